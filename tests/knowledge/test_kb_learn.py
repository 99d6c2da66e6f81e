"""What `learn` returns, byte for byte; the RFD's examples are typed from it by hand."""

import os
from pathlib import Path

import pytest
from kb_support import Build, write

from kbtui.errors import NothingFound
from kbtui.knowledge import Knowledge, read_subject, subject_text
from kbtui.workspace.settings import settings_path


def test_the_listing_of_a_topic_reads_as_in_the_rfd(rfd: Build) -> None:
    knowledge = rfd(skills='description = "[[optional topic description]]"')
    learned = knowledge.learn("skills")
    assert not learned.is_error
    assert learned.text == (
        "# Topic: Learnable Assistant Skills\n"
        "\n"
        "[[optional topic description]]\n"
        "\n"
        "## Available subjects:\n"
        "\n"
        "- ast-grep\n"
        "\n"
        "Use the `learn` tool with the `subjects` argument to learn specific subjects."
    )


def test_a_listing_with_preloaded_subjects_reads_as_in_the_rfd(rfd: Build) -> None:
    knowledge = rfd('description = "[[optional topic description]]"\nlearned = ["maintainers/*"]')
    assert knowledge.learn("project").text == (
        "# Topic: General Project Knowledge\n"
        "\n"
        "[[optional topic description]]\n"
        "\n"
        "## Available subjects:\n"
        "\n"
        "- code-quality\n"
        "\n"
        "Use the `learn` tool with the `subjects` argument to learn specific subjects.\n"
        "\n"
        "## Already learned (in system prompt):\n"
        "\n"
        "- maintainers/jean\n"
        "- maintainers/ryan"
    )


def test_a_listing_without_a_description_leaves_no_blank_block(rfd: Build) -> None:
    for description in ("", 'description = ""', 'description = " \\n"'):
        assert rfd(skills=description).learn("skills").text == (
            "# Topic: Learnable Assistant Skills\n"
            "\n"
            "## Available subjects:\n"
            "\n"
            "- ast-grep\n"
            "\n"
            "Use the `learn` tool with the `subjects` argument to learn specific subjects."
        )


def test_a_topic_without_a_title_is_called_by_its_id(build: Build) -> None:
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', {"a/x.md": "x"})
    assert knowledge.learn("a").text.startswith("# Topic: a\n")


def test_where_all_is_learned_the_listing_offers_nothing(rfd: Build) -> None:
    assert rfd(skills='learned = ["**"]').learn("skills").text == (
        "# Topic: Learnable Assistant Skills\n"
        "\n"
        "## Already learned (in system prompt):\n"
        "\n"
        "- ast-grep"
    )


def test_an_empty_topic_says_so(build: Build) -> None:
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', {"a/.x.md": "x"})
    assert knowledge.learn("a").text == "# Topic: a\n\nNo subjects are available."


def test_one_exact_slug_returns_the_file_alone(rfd: Build) -> None:
    knowledge = rfd()
    assert knowledge.learn("skills", ["ast-grep"]).text == "...content...\n"
    assert knowledge.learn("skills", "ast-grep").text == "...content...\n"


def test_a_glob_wraps_even_a_single_match_as_in_the_rfd(rfd: Build) -> None:
    assert rfd().learn("skills", ["**"]).text == ('<subject "ast-grep">\n...content...\n</subject>')


def test_several_patterns_wrap_and_keep_their_order_without_repeats(rfd: Build) -> None:
    assert rfd().learn("project", ["maintainers/r*", "code-quality", "**"]).text == (
        '<subject "maintainers/ryan">\n...file content...\n</subject>\n'
        "\n"
        '<subject "code-quality">\n# Code quality\n</subject>\n'
        "\n"
        '<subject "maintainers/jean">\n...file content...\n</subject>'
    )


def test_a_hidden_subject_comes_by_its_exact_slug_and_by_no_glob(rfd: Build) -> None:
    knowledge = rfd()
    assert knowledge.learn("skills", ["ast-grep/rules"]).text == "# Rules\n"
    missed = knowledge.learn("skills", ["ast-grep/*"])
    assert missed.is_error
    assert missed.text == (
        'Nothing in topic "Learnable Assistant Skills" matches "ast-grep/*".\n'
        "\n"
        "## Available subjects:\n"
        "\n"
        "- ast-grep"
    )


def test_a_disabled_subject_comes_by_nothing(rfd: Build) -> None:
    knowledge = rfd(skills='disabled = ["ast-grep/rules", "ast-grep"]')
    for subjects in ("ast-grep", "ast-grep/rules", "**", ["**", "ast-grep/rules"]):
        learned = knowledge.learn("skills", subjects)
        assert learned.is_error
        assert "No subjects are available." in learned.text


def test_disabled_wins_over_learned(rfd: Build) -> None:
    knowledge = rfd('learned = ["maintainers/*"]\ndisabled = ["maintainers/jean"]')
    text = knowledge.learn("project").text
    assert "- maintainers/ryan" in text
    assert "jean" not in text


def test_a_learned_subject_is_a_line_by_its_slug_and_skipped_by_a_glob(rfd: Build) -> None:
    knowledge = rfd('learned = ["maintainers/*"]')
    line = '"maintainers/jean" is already in the system prompt.'
    exact = knowledge.learn("project", "maintainers/jean")
    assert (exact.text, exact.is_error) == (line, False)
    assert knowledge.learn("project", "**").text == (
        '<subject "code-quality">\n# Code quality\n</subject>'
    )
    assert knowledge.learn("project", ["maintainers/jean", "code-*"]).text == (
        f'<subject "maintainers/jean">\n{line}\n</subject>\n'
        "\n"
        '<subject "code-quality">\n# Code quality\n</subject>'
    )
    assert knowledge.learn("project", "maintainers/*").text == (
        'Everything that matches "maintainers/*" is already in the system prompt.'
    )


def test_patterns_that_match_nothing_are_named_beside_what_came(rfd: Build) -> None:
    learned = rfd().learn("project", ["nope", "code-quality"])
    assert not learned.is_error
    assert learned.text == (
        '<subject "code-quality">\n# Code quality\n</subject>\n\nNothing matches "nope".'
    )


def test_an_empty_list_is_a_listing_and_an_empty_string_matches_nothing(rfd: Build) -> None:
    knowledge = rfd()
    assert knowledge.learn("skills", []).text == knowledge.learn("skills").text
    empty = knowledge.learn("skills", "")
    assert empty.is_error
    assert empty.text.startswith('Nothing in topic "Learnable Assistant Skills" matches "".')


def test_an_unknown_topic_lists_the_valid_ones(build: Build) -> None:
    knowledge = build(
        '[kb.topic.a]\ntitle = "First"\nsubjects = "a"\n'
        '[kb.topic.b]\nsubjects = "b"\n'
        '[kb.topic.off]\nsubjects = "c"\nenable = false\n',
        {"a/x.md": "", "b/x.md": "", "c/x.md": ""},
    )
    for name in ("nope", "off"):
        learned = knowledge.learn(name)
        assert learned.is_error
        assert learned.text == (f'Unknown topic "{name}".\n\nValid topics:\n\n- a (First)\n- b')
    assert build("").learn("x").text == 'Unknown topic "x". There are no topics.'


def test_topics_are_found_by_id_then_by_title_without_case(build: Build) -> None:
    knowledge = build(
        '[kb.topic.one]\ntitle = "Two"\nsubjects = "a"\n'
        '[kb.topic.Two]\ntitle = "Straße"\nsubjects = "a"\n'
        '[kb.topic.three]\ntitle = "STRASSE"\nsubjects = "a"\n',
        {"a/x.md": ""},
    )
    assert knowledge.resolve_topic("Two").id == "Two"
    assert knowledge.resolve_topic("two").id == "one"
    assert knowledge.resolve_topic("strasse").id == "Two", "the first declared wins"
    with pytest.raises(NothingFound):
        knowledge.resolve_topic("ONE")


@pytest.fixture
def formats(build: Build) -> Knowledge:
    return build(
        '[kb.topic.f]\nsubjects = "f"\n',
        {
            "f/md.md": "# a\r\n\r\nb",
            "f/upper.MD": "# up",
            "f/txt.txt": "plain",
            "f/text.text": "plain",
            "f/none": "plain",
            "f/toml.toml": '[package]\nname = "example"\n',
            "f/json.json": "{}",
            "f/yaml.yaml": "a: 1",
            "f/yml.yml": "a: 1",
            "f/rs.rs": "fn",
            "f/py.py": "pass",
            "f/js.js": "0",
            "f/ts.ts": "0",
            "f/go.go": "package main",
            "f/odd.a`b": "odd",
            "f/deep.sh": "```\n````` \n",
            "f/empty.toml": "",
            "f/bom.md": "\ufeffx\n",
        },
    )


@pytest.mark.parametrize(
    ("slug", "text"),
    [
        ("md", "# a\r\n\r\nb"),
        ("upper", "# up"),
        ("txt", "plain"),
        ("text", "plain"),
        ("none", "plain"),
        # The RFD's example.
        ("toml", '```toml\n[package]\nname = "example"\n```'),
        ("json", "```json\n{}\n```"),
        ("yaml", "```yaml\na: 1\n```"),
        ("yml", "```yaml\na: 1\n```"),
        ("rs", "```rust\nfn\n```"),
        ("py", "```python\npass\n```"),
        ("js", "```javascript\n0\n```"),
        ("ts", "```typescript\n0\n```"),
        ("go", "```go\npackage main\n```"),
        ("odd", "```\nodd\n```"),
        ("deep", "``````sh\n```\n````` \n``````"),
        ("empty", "```toml\n```"),
        ("bom", "\ufeffx\n"),
    ],
)
def test_the_extension_decides_the_form(formats: Knowledge, slug: str, text: str) -> None:
    assert formats.learn("f", slug).text == text
    subject = formats.find("f", slug)
    assert subject is not None
    assert read_subject(subject) == text
    assert subject_text(subject).encode() == subject.path.read_bytes()


def test_a_missing_last_newline_is_added_before_the_closing_tag_only(formats: Knowledge) -> None:
    assert formats.learn("f", ["md", "txt"]).text == (
        '<subject "md">\n# a\r\n\r\nb\n</subject>\n\n<subject "txt">\nplain\n</subject>'
    )


def test_unreadable_subjects_are_a_line_and_the_others_still_come(
    build: Build, workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge = build(
        '[kb.topic.t]\nsubjects = "t"\n',
        {
            "t/a.md": "fine\n",
            "t/binary.md": b"x" * 8191 + b"\0",
            "t/late.md": b"x" * 8192 + b"\0",
            "t/latin.md": "caf\u00e9".encode("latin-1"),
            "t/shut.md": "secret",
            "t/gone.md": "soon",
        },
    )
    assert len(knowledge.subjects("t")) == 6
    (workspace_root / "t/gone.md").unlink()
    plain_open = os.open

    # Tests may run as root, whom no mode keeps out: the system's refusal is made here.
    def refuse(path: object, *rest: object, **options: object) -> int:
        if str(path).endswith("shut.md"):
            raise PermissionError(13, "Permission denied")
        return plain_open(path, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    learned = knowledge.learn("t", "*")
    assert not learned.is_error
    assert learned.text == (
        '<subject "a">\nfine\n</subject>\n\n'
        '<subject "binary">\nSkipped "binary": it is a binary file.\n</subject>\n\n'
        '<subject "gone">\nSkipped "gone": it has vanished.\n</subject>\n\n'
        '<subject "late">\n' + "x" * 8192 + "\0\n</subject>\n\n"
        '<subject "latin">\nSkipped "latin": it is not UTF-8 text (byte 3).\n</subject>\n\n'
        '<subject "shut">\nSkipped "shut": permission denied.\n</subject>'
    )
    alone = knowledge.learn("t", "gone")
    assert (alone.text, alone.is_error) == ('Skipped "gone": it has vanished.', True)


def test_a_subject_of_200_mb_is_a_line(build: Build, workspace_root: Path) -> None:
    write(workspace_root, {"t/big.md": "x" * 10_000, "t/a.md": "fine\n"})
    os.truncate(workspace_root / "t/big.md", 200 * 1024**2)
    learned = build('[kb.topic.t]\nsubjects = "t"\n').learn("t", "*")
    assert learned.text == (
        '<subject "a">\nfine\n</subject>\n\n'
        '<subject "big">\n'
        'Skipped "big": it has 200 MB, more than the 32 MB that are read (setting subject_megabytes).\n'
        "</subject>"
    )


@pytest.mark.parametrize("megabytes", [40, 0])
def test_a_setting_allows_larger_subjects(
    build: Build, workspace_root: Path, megabytes: int
) -> None:
    text = "many words\n" * (33 * 1024**2 // 11 + 1)
    write(workspace_root, {"t/big.md": text})
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n')
    assert "(setting subject_megabytes)" in knowledge.learn("t", "big").text
    settings_path().parent.mkdir(parents=True, exist_ok=True)
    settings_path().write_text(f"subject_megabytes = {megabytes}\n")
    learned = knowledge.learn("t", "big")
    assert not learned.is_error
    assert learned.text == text


def test_quotes_in_slugs_are_written_as_entities_in_tags_only(build: Build) -> None:
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n', {'t/a"b.md': "x\n"})
    assert '- a"b' in knowledge.learn("t").text
    assert knowledge.learn("t", "*").text == '<subject "a&quot;b">\nx\n</subject>'
    assert knowledge.learn("t", 'a"b').text == "x\n"
