"""Tests of `kbtui topics`, `learn` and `prompt`."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Builder

from kbtui.cli.main import main

KB = """\
[kb.topic.project]
title = "General Project Knowledge"
introduction = "foo bar baz..."
subjects = ".jp/kb/project"
disabled = ["old"]

[kb.topic.skills]
title = "Learnable Assistant Skills"
subjects = ".jp/kb/skills"
"""
FILES = {
    ".jp/kb/project/maintainers/jean.md": "Jean.\n",
    ".jp/kb/project/old.md": "gone\n",
    ".jp/kb/project/.notes.md": "secret\n",
    ".jp/kb/skills/ast-grep.md": "# ast-grep\r\nno newline \u2603",
}


@pytest.fixture
def root(workspace_root: Path) -> Path:
    for name, content in {**FILES, ".jp/kb.toml": KB}.items():
        path = workspace_root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    return workspace_root


class Ran:
    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out.decode(), err.decode()


Run = Callable[..., Ran]


@pytest.fixture
def run(root: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    def run(command: str, *words: str) -> Ran:
        code = main([command, "-w", str(root), *words])
        return Ran(code, *capfdbinary.readouterr())

    return run


def test_learn_prints_the_bytes_of_a_subject_and_nothing_else(run: Run, root: Path) -> None:
    ran = run("learn", "skills", "ast-grep")
    assert ran.out.encode() == (root / ".jp/kb/skills/ast-grep.md").read_bytes()
    assert (ran.code, ran.err) == (0, "")


def test_learn_as_a_process_prints_the_same_bytes(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbtui.cli.main", "learn", "SKILLS", "ast-grep", "-w", str(root)],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, "an id counts with its case"
    command = ["learn", "learnable assistant skills", "*", "-w", str(root)]
    done = subprocess.run(
        [sys.executable, "-m", "kbtui.cli.main", *command], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == (
        '<subject "ast-grep">\n# ast-grep\r\nno newline \u2603\n</subject>'
    )


def test_learn_beside_a_prompt_leaves_out_what_that_has(run: Run) -> None:
    plain = run("learn", "skills", "ast-grep")
    beside = run("learn", "skills", "ast-grep", "-k", "skills/ast-grep")
    assert "already in the system prompt" in beside.out
    assert "already in the system prompt" not in plain.out
    assert run("learn", "skills", "--cfg", "kb.topic.skills.learned+=ast-grep").out.count(
        "- ast-grep"
    )


def test_learn_lists_a_topic(run: Run) -> None:
    ran = run("learn", "project")
    assert ran.out == (
        "# Topic: General Project Knowledge\n"
        "\n"
        "## Available subjects:\n"
        "\n"
        "- maintainers/jean\n"
        "\n"
        "Use the `learn` tool with the `subjects` argument to learn specific subjects."
    )


@pytest.mark.parametrize("words", [["nope"], ["project", "nope"], ["project", "old"]])
def test_learn_ends_with_1_where_nothing_is_found(run: Run, words: list[str]) -> None:
    ran = run("learn", *words)
    assert ran.code == 1
    assert "nope" in ran.out or "old" in ran.out
    assert ran.err == ""


def test_prompt_prints_the_section_and_k_adds_to_it(run: Run) -> None:
    plain = run("prompt")
    assert plain.code == 0
    assert plain.out.startswith("<knowledge>\nThe following knowledge topics are available")
    assert plain.out.endswith("</knowledge>")
    more = run("prompt", "-k", "project/maintainers/*", "--knowledge", "skills/**")
    assert '<subject "maintainers/jean">\nJean.\n</subject>' in more.out
    assert "available to learn" not in more.out
    assigned = run("prompt", "--cfg", "kb.topic.project.learned+=**", "-k", "skills/ast-grep")
    assert assigned.out == more.out


def test_prompt_ends_with_1_where_there_is_no_section(run: Run, root: Path) -> None:
    (root / ".jp/kb.toml").unlink()
    ran = run("prompt")
    assert (ran.code, ran.out) == (1, "")
    assert "no <knowledge> section" in ran.err


@pytest.mark.parametrize(
    "words",
    [["-k", "project"], ["-k", "nope/x"], ["--cfg", "nope"], ["--cfg", "kb.topic.project.x=1"]],
)
def test_wrong_flags_end_with_2_and_a_hint(run: Run, words: list[str]) -> None:
    ran = run("prompt", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "hint:" in ran.err


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("project/zzz", ""),
        ("project/maintainers/jaen", "did you mean 'maintainers/jean'?"),
        ("project/old", "the matching subjects are disabled"),
        ("skills/ast-grep.md", "slugs have no extension"),
    ],
)
def test_a_pattern_to_preload_that_matches_nothing_is_named(run: Run, value: str, why: str) -> None:
    plain = run("prompt")
    for command in (["prompt"], ["topics"], ["learn", "skills"]):
        ran = run(*command, "-k", value, "-k", "skills/*")
        assert ran.err.startswith(f"kbtui: -k {value} matches no subject")
        assert why in ran.err
        assert "skills/*" not in ran.err
    assert run("prompt", "-k", value).out == plain.out


@pytest.mark.parametrize("name", ["kb.toml", "config.toml"])
def test_a_configuration_that_begins_with_a_byte_order_mark_is_read(
    run: Run, root: Path, name: str
) -> None:
    plain = run("prompt").out
    (root / ".jp/kb.toml").unlink()
    (root / ".jp" / name).write_bytes(b"\xef\xbb\xbf" + KB.encode())
    ran = run("prompt")
    assert (ran.code, ran.out, ran.err) == (0, plain, "")


@pytest.mark.parametrize("name", ["kb.toml", "config.toml"])
def test_a_directory_in_the_place_of_a_configuration_is_an_error(
    run: Run, root: Path, name: str
) -> None:
    (root / ".jp/kb.toml").unlink()
    (root / ".jp" / name).mkdir()
    ran = run("topics")
    assert f".jp/{name}: the file cannot be read: Is a directory" in ran.err
    assert ".jp/" + name in run("doctor").out


def test_topics_lists_them_with_their_subjects(run: Run) -> None:
    ran = run("topics", "-k", "skills/*")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "project  General Project Knowledge\n"
        "  foo bar baz...\n"
        "  project/maintainers/jean\n"
        "  project/old  (disabled)\n"
        "  and 1 hidden (--hidden lists them)\n"
        "\n"
        "skills  Learnable Assistant Skills\n"
        "  skills/ast-grep  (learned)\n"
    )
    assert "  project/notes  (hidden)\n" in run("topics", "--hidden", "project").out


def test_topics_json_is_documented_and_complete(run: Run) -> None:
    ran = run("topics", "--json", "--hidden", "project")
    (topic,) = json.loads(ran.out)["topics"]
    subjects = topic.pop("subjects")
    assert topic == {
        "id": "project",
        "title": "General Project Knowledge",
        "introduction": "foo bar baz...",
        "description": None,
        "enable": True,
        "directory": ".jp/kb/project",
        "learned": [],
        "disabled": ["old"],
        "hidden_count": 1,
    }
    assert subjects[1] == {
        "ref": "project/notes",
        "slug": "notes",
        "path": ".jp/kb/project/.notes.md",
        "size": 7,
        "hidden": True,
        "disabled": False,
        "learned": False,
        "shadowed": False,
    }
    assert [subject["slug"] for subject in subjects] == ["maintainers/jean", "notes", "old"]


def test_topics_shows_jps_fragments_as_a_group(run: Run, root: Path) -> None:
    for name, text in {
        "knowledge/style.toml": '[[assistant.system_prompt_sections]]\ntitle = "Style"\ncontent = "x"\n',
        "personas/dev.toml": 'extends = ["../knowledge/style.toml"]\n',
    }.items():
        (root / ".jp/config" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / ".jp/config" / name).write_text(text)
    assert run("topics").out.endswith(
        "\n\nJP's prompt sections (read-only)\n"
        "  .jp/config/knowledge/style.toml: Style\n"
        "    loaded by .jp/config/personas/dev.toml\n"
    )
    (fragment,) = json.loads(run("topics", "--json").out)["fragments"]
    assert fragment["loaded_by"] == [".jp/config/personas/dev.toml"]


def test_mistakes_are_said_on_stderr_and_the_rest_is_listed(run: Run, root: Path) -> None:
    (root / ".jp/kb.toml").write_text(KB + '[kb.topic.bad]\nsubjects = "x"\ntitel = "y"\n')
    ran = run("topics")
    assert ran.code == 0
    assert "skills/ast-grep" in ran.out
    assert "kbtui: .jp/kb.toml: kb.topic.bad.titel: unknown key 'titel'" in ran.err
    assert "did you mean 'title'?" in ran.err
    assert json.loads(run("topics", "--json").out)["problems"] == [
        {
            "message": "unknown key 'titel'",
            "where": ".jp/kb.toml",
            "key": "kb.topic.bad.titel",
            "topic": "bad",
            "hint": "did you mean 'title'?",
        }
    ]


def test_topics_ends_with_1_without_topics_and_2_where_only_mistakes_are(
    run: Run, root: Path
) -> None:
    (root / ".jp/kb.toml").unlink()
    ran = run("topics")
    assert (ran.code, ran.out) == (1, "")
    assert ".jp/kb.toml" in ran.err
    assert json.loads(run("topics", "--json").out) == {
        "topics": [],
        "fragments": [],
        "problems": [],
    }
    (root / ".jp/kb.toml").write_text("[kb")
    assert run("topics").code == 2


def test_an_unknown_topic_is_nothing_found(run: Run) -> None:
    ran = run("topics", "nope")
    assert ran.code == 1
    assert "skills (Learnable Assistant Skills)" in ran.err


def test_learn_imports_nothing_heavy(root: Path) -> None:
    code = (
        "import sys; from kbtui.cli.main import main; main(sys.argv[1:]); "
        "heavy = {'yaml', 'json5', 'tomlkit', 'tomli_w', 'asyncio', 'difflib', 'textual', "
        "'lancedb', 'torch', 'tantivy', 'importlib.metadata', 'kbtui.knowledge.knowledge_lint'}; "
        "sys.stderr.write(','.join(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "learn", "skills", "-w", str(root)],
        capture_output=True,
        check=True,
    )
    assert done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize("command", ["show", "cites", "entry edit"])
def test_a_reference_that_is_mistyped_names_the_nearest(
    workspace_root: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"}, ops={})
    for slug in ("keys", ".kyeso", "commands/search", "about"):
        builder.subject(f"guide/{slug}.md", "# Text\n")
    for wrong, right in (
        ("guide/kyes", "guide/keys"),
        ("gudie/keys", "guide/keys"),
        ("ops/keys", "guide/keys"),
        ("guide/commands/serach:3-4", "guide/commands/search"),
    ):
        assert main([*command.split(), wrong, "-w", str(workspace_root)]) == 1
        assert f"hint: did you mean {right}?" in capsys.readouterr().err


def test_a_reference_that_is_like_no_other_names_none(
    workspace_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/keys.md", "# Keys\n")
    assert main(["show", "guide/zzzzzzz", "-w", str(workspace_root)]) == 1
    said = capsys.readouterr().err
    assert "did you mean" not in said
    assert "`kbtui learn guide` lists them" in said
