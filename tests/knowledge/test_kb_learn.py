"""The answers of `learn`, byte for byte, compared with examples written by hand."""

import os
import re
from pathlib import Path

import pytest
from kb_support import Build, write

from kbtui.errors import NothingFound
from kbtui.knowledge import KnowledgeBase, read_subject_for_assistant, read_subject_text
from kbtui.workspace.user_settings import get_settings_path


def test_the_listing_of_a_topic_reads_as_in_the_rfd(two_topics: Build) -> None:
    knowledge = two_topics(skills='description = "[[optional topic description]]"')
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


def test_a_listing_with_preloaded_subjects_reads_as_in_the_rfd(two_topics: Build) -> None:
    knowledge = two_topics(
        'description = "[[optional topic description]]"\nlearned = ["maintainers/*"]'
    )
    assert knowledge.learn("project", has_prompt=True).text == (
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


def test_a_listing_without_a_description_leaves_no_blank_block(two_topics: Build) -> None:
    for description in ("", 'description = ""', 'description = " \\n"'):
        assert two_topics(skills=description).learn("skills").text == (
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


def test_where_all_is_learned_the_listing_offers_nothing(two_topics: Build) -> None:
    assert two_topics(skills='learned = ["**"]').learn("skills", has_prompt=True).text == (
        "# Topic: Learnable Assistant Skills\n"
        "\n"
        "## Already learned (in system prompt):\n"
        "\n"
        "- ast-grep"
    )


def test_an_empty_topic_says_so(build: Build) -> None:
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', {"a/.x.md": "x"})
    assert knowledge.learn("a").text == "# Topic: a\n\nNo subjects are available."


def test_one_exact_slug_returns_the_file_alone(two_topics: Build) -> None:
    knowledge = two_topics()
    assert knowledge.learn("skills", ["ast-grep"]).text == "...content...\n"
    assert knowledge.learn("skills", "ast-grep").text == "...content...\n"


def test_a_glob_wraps_even_a_single_match_as_in_the_rfd(two_topics: Build) -> None:
    assert two_topics().learn("skills", ["**"]).text == (
        '<subject "ast-grep">\n...content...\n</subject>'
    )


def test_several_patterns_wrap_and_keep_their_order_without_repeats(two_topics: Build) -> None:
    assert two_topics().learn("project", ["maintainers/r*", "code-quality", "**"]).text == (
        '<subject "maintainers/ryan">\n...file content...\n</subject>\n'
        "\n"
        '<subject "code-quality">\n# Code quality\n</subject>\n'
        "\n"
        '<subject "maintainers/jean">\n...file content...\n</subject>'
    )


def test_a_hidden_subject_comes_by_its_exact_slug_and_by_no_glob(two_topics: Build) -> None:
    knowledge = two_topics()
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


def test_a_disabled_subject_comes_by_nothing(two_topics: Build) -> None:
    knowledge = two_topics(skills='disabled = ["ast-grep/rules", "ast-grep"]')
    for subjects in ("ast-grep", "ast-grep/rules", "**", ["**", "ast-grep/rules"]):
        learned = knowledge.learn("skills", subjects)
        assert learned.is_error
        assert "No subjects are available." in learned.text


def test_disabled_wins_over_learned(two_topics: Build) -> None:
    knowledge = two_topics('learned = ["maintainers/*"]\ndisabled = ["maintainers/jean"]')
    text = knowledge.learn("project").text
    assert "- maintainers/ryan" in text
    assert "jean" not in text


def test_a_learned_subject_is_a_line_by_its_slug_and_skipped_by_a_glob(two_topics: Build) -> None:
    knowledge = two_topics('learned = ["maintainers/*"]')
    line = '"maintainers/jean" is already in the system prompt.'
    exact = knowledge.learn("project", "maintainers/jean", has_prompt=True)
    assert (exact.text, exact.is_error) == (line, False)
    assert knowledge.learn("project", "**", has_prompt=True).text == (
        '<subject "code-quality">\n# Code quality\n</subject>'
    )
    two = ["maintainers/jean", "code-*"]
    assert knowledge.learn("project", two, has_prompt=True).text == (
        f'<subject "maintainers/jean">\n{line}\n</subject>\n'
        "\n"
        '<subject "code-quality">\n# Code quality\n</subject>'
    )
    assert knowledge.learn("project", "maintainers/*", has_prompt=True).text == (
        'Everything that matches "maintainers/*" is already in the system prompt.'
    )


def test_without_the_prompt_what_is_preloaded_is_listed_and_given(two_topics: Build) -> None:
    knowledge = two_topics('learned = ["maintainers/jean", "internal-notes"]')
    listing = knowledge.learn("project").text
    assert "- code-quality\n- internal-notes\n- maintainers/jean\n- maintainers/ryan\n" in listing
    assert "Already learned" not in listing
    assert knowledge.learn("project", "maintainers/jean").text == "...file content...\n"
    assert (
        knowledge.learn("project", "internal-notes").text
        == two_topics().learn("project", "internal-notes").text
    )
    assert knowledge.learn("project", "**").text.count("<subject ") == 3


def test_lines_of_a_subject_come_by_its_slug_and_their_numbers(build: Build) -> None:
    knowledge = build(
        '[kb.topic.a]\nsubjects = "a"\n',
        {"a/x.md": "1\r\n2\n3\n4", "a/code.py": "one\ntwo\nthree\n", "a/odd:2.md": "odd"},
    )
    assert knowledge.learn("a", "x:1-2").text == "1\r\n2\n"
    assert knowledge.learn("a", "x:4").text == "4"
    assert knowledge.learn("a", "x:3-99").text == "3\n4"
    assert knowledge.learn("a", "code:2").text == "```python\ntwo\n```"
    assert knowledge.learn("a/x:2").text == "2\n", "as knowledge_search names it"
    assert knowledge.learn("a", ["x:1", "code:3"]).text == (
        '<subject "x:1">\n1\r\n</subject>\n\n<subject "code:3">\n```python\nthree\n```\n</subject>'
    )
    assert knowledge.learn("a", "odd:2").text == "odd", "a slug comes before lines of one"
    for wrong, said in [
        ("x:5", 'Skipped "x": there is no line 5: the subject has 4 lines.'),
        ("x:2-1", '"x:2-1": 2-1 is not a valid range of lines.'),
        ("x:0", '"x:0": 0 is not a valid range of lines.'),
    ]:
        learned = knowledge.learn("a", wrong)
        assert (learned.text, learned.is_error) == (said, True)
    assert knowledge.learn("a", "nope:1-2").text.startswith('Nothing in topic "a" matches')
    assert knowledge.learn("b/x:1").text.startswith('Unknown topic "b/x:1".')


@pytest.mark.parametrize("pattern", ["x:abc", "x:", "x:1-", "x:1:2x"])
def test_a_slug_with_something_that_is_no_range_of_lines_matches_nothing(
    build: Build, pattern: str
) -> None:
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', {"a/x.md": "1\n2\n", "a/x:1.md": "odd"})
    learned = knowledge.learn("a", pattern)
    assert learned.is_error
    assert learned.text.startswith(f'Nothing in topic "a" matches "{pattern}".')


def test_a_hidden_or_disabled_subject_has_no_other_lines_than_text(two_topics: Build) -> None:
    knowledge = two_topics('disabled = ["code-quality"]')
    assert knowledge.learn("skills", "ast-grep/rules:1").text == "# Rules\n"
    assert knowledge.learn("project", "code-quality:1").is_error


MOST = 5_000


def test_a_long_subject_is_given_part_by_part_until_its_end(build: Build) -> None:
    text = "".join(f"line {number} {'x' * (number % 90)}\n" for number in range(1, 401))
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', {"a/x.md": text, "a/y.py": text})
    assert knowledge.learn("a", "x").text == text, "without a limit it is whole"
    for slug, fence in (("x", 0), ("y", 1)):
        asked, rows = slug, []
        for _ in range(100):
            part = knowledge.learn("a", asked, max_chars=MOST).text
            assert len(part) <= MOST
            content, _, note = part.partition("\n[")
            given = content.splitlines()
            rows += given[fence : len(given) - fence]
            found = re.search(r'subjects "([^"]+)"', note)
            if found is None:
                break
            asked = found[1]
        assert rows == text.splitlines(), "every line, once"


def test_a_line_that_is_too_long_is_cut_and_the_next_can_be_had(build: Build) -> None:
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', {"a/x.json": "x" * 20_000 + "\nend\n"})
    part = knowledge.learn("a", "x", max_chars=MOST).text
    assert len(part) <= MOST
    assert "Line 1 of 2, cut after" in part
    assert 'subjects "x:2"' in part
    assert "end" in knowledge.learn("a", "x:2", max_chars=MOST).text


def test_a_glob_gives_what_fits_and_names_the_rest(build: Build) -> None:
    files = {f"a/s{number:04}.md": f"text {number}\n" * 20 for number in range(600)}
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', files)
    part = knowledge.learn("a", "**", max_chars=MOST).text
    assert len(part) <= MOST
    assert part.startswith('<subject "s0000">\ntext 0\n')
    given = part.count("<subject ")
    assert (
        f"{600 - given} subjects were left out, because the answer has at most 5,000 characters"
        in part
    )
    assert f"\n- s{given:04}\n" in part, "the first that is left out"
    again = knowledge.learn("a", [f"s{given:04}"], max_chars=MOST).text
    assert again == f"text {given}\n" * 20

    long = build('[kb.topic.a]\nsubjects = "b"\n', {"b/a.md": "x\n" * 9000, "b/b.md": "b\n"})
    first = long.learn("a", "*", max_chars=MOST).text
    assert len(first) <= MOST
    assert 'Continue with `learn`: topic "a", subjects "a:' in first
    assert first.endswith('<subject "b">\nb\n</subject>'), "what follows still fits"


def test_a_listing_ends_where_it_would_be_too_long(build: Build) -> None:
    files = {f"a/deep/subject-{number:04}.md": "" for number in range(900)}
    knowledge = build('[kb.topic.a]\nsubjects = "a"\n', files)
    for subjects in (None, "nope"):
        text = knowledge.learn("a", subjects, max_chars=MOST).text
        assert len(text) <= MOST
        assert "more, from 'deep/subject-" in text
        assert "Use a glob in `subjects` to load some of them" in text
    assert knowledge.learn("a").text.count("- deep/") == 900


def test_patterns_that_match_nothing_are_named_beside_what_came(two_topics: Build) -> None:
    learned = two_topics().learn("project", ["nope", "code-quality"])
    assert not learned.is_error
    assert learned.text == (
        '<subject "code-quality">\n# Code quality\n</subject>\n\nNothing matches "nope".'
    )


def test_an_empty_list_is_a_listing_and_an_empty_string_matches_nothing(two_topics: Build) -> None:
    knowledge = two_topics()
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
def formats(build: Build) -> KnowledgeBase:
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
        # An example written by hand.
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
def test_the_extension_decides_the_form(formats: KnowledgeBase, slug: str, text: str) -> None:
    assert formats.learn("f", slug).text == text
    subject = formats.find_subject("f", slug)
    assert subject is not None
    assert read_subject_for_assistant(subject) == text
    assert read_subject_text(subject).encode() == subject.path.read_bytes()


def test_a_missing_last_newline_is_added_before_the_closing_tag_only(
    formats: KnowledgeBase,
) -> None:
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
    assert len(knowledge.list_subjects("t")) == 6
    (workspace_root / "t/gone.md").unlink()
    plain_open = os.open

    # Root can read every file, so simulate the refusal.
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
        '<subject "gone">\nSkipped "gone": its file no longer exists.\n</subject>\n\n'
        '<subject "late">\n' + "x" * 8192 + "\0\n</subject>\n\n"
        '<subject "latin">\nSkipped "latin": it is not UTF-8 text (byte 3).\n</subject>\n\n'
        '<subject "shut">\nSkipped "shut": permission denied.\n</subject>'
    )
    alone = knowledge.learn("t", "gone")
    assert (alone.text, alone.is_error) == ('Skipped "gone": its file no longer exists.', True)


def test_a_subject_of_200_mb_is_a_line(build: Build, workspace_root: Path) -> None:
    write(workspace_root, {"t/big.md": "x" * 10_000, "t/a.md": "fine\n"})
    os.truncate(workspace_root / "t/big.md", 200 * 1024**2)
    learned = build('[kb.topic.t]\nsubjects = "t"\n').learn("t", "*")
    assert learned.text == (
        '<subject "a">\nfine\n</subject>\n\n'
        '<subject "big">\n'
        'Skipped "big": its size is 200 MB, more than the limit of 32 MB (setting subject_megabytes).\n'
        "</subject>"
    )


@pytest.mark.parametrize("megabytes", [40, 0])
def test_a_setting_allows_larger_subjects(
    build: Build, workspace_root: Path, megabytes: int
) -> None:
    line = "many words " * 100 + "\n"
    text = line * (33 * 1024**2 // len(line) + 1)
    write(workspace_root, {"t/big.md": text})
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n')
    assert "(setting subject_megabytes)" in knowledge.learn("t", "big").text
    get_settings_path().parent.mkdir(parents=True, exist_ok=True)
    get_settings_path().write_text(f"subject_megabytes = {megabytes}\n")
    learned = knowledge.learn("t", "big")
    assert not learned.is_error
    assert learned.text == text


def test_quotes_in_slugs_are_written_as_entities_in_tags_only(build: Build) -> None:
    knowledge = build('[kb.topic.t]\nsubjects = "t"\n', {'t/a"b.md': "x\n"})
    assert '- a"b' in knowledge.learn("t").text
    assert knowledge.learn("t", "*").text == '<subject "a&quot;b">\nx\n</subject>'
    assert knowledge.learn("t", 'a"b').text == "x\n"
