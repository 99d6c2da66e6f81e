"""Somebody else's text in what commands print: a terminal is never commanded, a pipe gets the bytes."""

import json
from pathlib import Path

import pytest
from hostile import CANARY, COLOUR, COPIED, ONE_LINE
from running import on_pipe, on_terminal
from support import Builder, end_engine
from terminal_grammar import parse

from kbtui.cli.main import COMMANDS

pytestmark = pytest.mark.slow

TALK = "jp-c17800000001"
ON_SCREEN = {"tui", "demo", "open", "serve"}
"""What draws a screen or serves: looked at elsewhere, refused on a pipe."""
GIVEN: list[list[str]] = [
    ["topics"], ["topics", "--hidden"], ["topics", "--json"], ["topics", "bad"], ["topics", ONE_LINE],
    ["learn", "bad", "**"], ["learn", "bad", "code"], ["learn", "bad", ONE_LINE], ["learn", ONE_LINE],
    ["prompt"], ["prompt", "-k", "bad/**"], ["prompt", "-k", ONE_LINE],
    ["c", "ls"], ["c", "ls", "--title", ONE_LINE], ["c", "ls", "--format", "json"], ["c", "ls", "--format", "xml"],
    ["c", "grep", "harmless"], ["c", "grep", ONE_LINE], ["c", "grep", "a link", "--format", "json"],
    ["c", "read", TALK], ["c", "read", TALK, "--format", "xml"], ["c", "read", TALK, "--format", "json"],
    ["c", "read", "jp-c17800000002"], ["c", "read", ONE_LINE], ["c", "export", TALK],
    ["show", "bad/front"], ["show", "good/plain"], ["show", "bad/code"], ["show", "bad/binary"],
    ["show", TALK], ["show", f"{TALK}:1"], ["show", f"{TALK}:1.1"], ["show", ONE_LINE],
    ["cites", "good/plain"], ["cites", TALK], ["cites", ONE_LINE], ["cites", TALK, "--json"],
    ["entries"], ["entries", "--json"], ["entries", ONE_LINE], ["entry", "show", "bad/front", "--full"],
    ["entry", "show", TALK], ["entry", "show", ONE_LINE], ["entry", "edit", ONE_LINE],
    ["entry", "new", "--topic", "good", "--title", ONE_LINE, "--text", ONE_LINE],
    ["entry", "new", "--topic", ONE_LINE, "--title", "x", "--text", "x"], ["entry", "rm", "bad/front"],
    ["search", "harmless"], ["search", "harmless", "--explain"], ["search", "harmless", "--json"],
    ["search", ONE_LINE], ["search", f"topic:{ONE_LINE}"], ["search", "--like", "bad/front"],
    ["insights"], ["insights", "--json"], ["insights", "erase"],
    ["source", "ls"], ["source", "approve", "web"], ["source", "run", ONE_LINE], ["source", "rm", ONE_LINE],
    ["source", "add", "url_crawl", ONE_LINE, "--topic", "good"], ["source", "edit", "web", "--what", ONE_LINE],
    ["tools", "schema"], ["tools", "install", "--yes"], ["tools", "uninstall"],
    ["tool", "{}", ONE_LINE], ["tool", ONE_LINE, "{}"], ["index", "--no-vectors"], ["engine"], ["engine", "stop"],
    ["doctor"], ["doctor", "--json"], ["paths"], ["model"], [ONE_LINE], [f"--{ONE_LINE}"],
]  # fmt: skip


def every_command() -> list[list[str]]:
    """Each command with help, with hostile words, and with a hostile option."""
    every = [name for name in COMMANDS if name not in ON_SCREEN]
    usual = [
        [name, *rest] for name in every for rest in (["--help"], [ONE_LINE], [f"--{ONE_LINE}"])
    ]
    return [words for words in usual if words[0] != "mcp" or words[1] == "--help"]


both = pytest.mark.parametrize(
    "commands",
    [
        pytest.param(GIVEN, id="given"),
        pytest.param(every_command(), id="every", marks=pytest.mark.slow),
    ],
)


@pytest.fixture
def hostile(hostile: Builder, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv("COLUMNS", "100")
    return hostile


def choose(home: Path, policy: str) -> None:
    (home / "config/kbtui").mkdir(exist_ok=True)
    (home / "config/kbtui/config.toml").write_text(f'terminal_text = "{policy}"\n')


@both
@pytest.mark.timeout(300)
def test_no_command_lets_hostile_text_command_the_terminal(
    hostile: Builder, commands: list[list[str]]
) -> None:
    for words in commands:
        raw, code = on_terminal(["-w", str(hostile.root), *words], typed=b"n\r")
        try:
            tokens = list(parse(raw, screen=False))
        except AssertionError as error:
            raise AssertionError(f"{words}: {error}") from error
        assert b"Traceback" not in raw, (words, raw.decode())
        assert code in {0, 1, 2, 3}, (words, code, raw)
        assert not [text for kind, text in tokens if kind == "colour" and COLOUR in text], words
        shown = "".join(text for kind, text in tokens if kind == "text")
        # Where only the control characters go (XML), or are spelled out, the rest is plain text.
        if "xml" not in words and "\\x1b" not in shown and "\\u001b" not in shown:
            assert CANARY not in shown, (words, shown)
        assert shown.strip(), words


@both
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_on_a_pipe_results_are_the_bytes_and_remarks_are_safe(
    hostile: Builder, commands: list[list[str]]
) -> None:
    for words in commands:
        out, err, code = on_pipe(["-w", str(hostile.root), *words])
        try:
            list(parse(err, screen=False))
        except AssertionError as error:
            raise AssertionError(f"{words}: {error}") from error
        assert b"Traceback" not in err, (words, err.decode())
        assert code in {0, 1, 2, 3}, (words, code, err)
        if out and ("--json" in words or words[-1] == "json"):
            json.loads(out)
        elif words == ["learn", "bad", "code"]:
            assert (hostile.root / "docs/bad/code.py").read_bytes() in out


@pytest.mark.parametrize("policy", ["visualize", "off"])
def test_a_person_can_have_it_shown_or_let_through(
    hostile: Builder, home: Path, policy: str
) -> None:
    choose(home, policy)
    raw, _ = on_terminal(["-w", str(hostile.root), "show", "good/plain"])
    assert ("␛]0;" + CANARY in raw.decode()) == (policy == "visualize")
    assert (f"\x1b]0;{CANARY}".encode() in raw) == (policy == "off")
    if policy == "visualize":
        list(parse(raw, screen=False))
    # What does not stand on a terminal is as it was.
    assert (
        on_pipe(["-w", str(hostile.root), "show", "good/plain"])[0]
        == (hostile.root / "docs/good/plain.md").read_bytes()
    )
    assert COPIED.encode() in on_pipe(["-w", str(hostile.root), "show", "good/plain"])[0]


def test_a_workspace_whose_own_name_is_hostile_commands_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / f"ws \x1b]0;{CANARY}\x07\u202e\x9b5i")
    builder.topics(guide={})
    builder.subject("guide/one.md", "# One\n\nAn otter.\n")
    try:
        for words in (
            ["index"],
            ["engine"],
            ["paths"],
            ["doctor"],
            ["topics"],
            ["search", "otter"],
        ):
            raw, code = on_terminal(["-w", str(builder.root), *words])
            shown = "".join(text for kind, text in parse(raw, screen=False) if kind == "text")
            assert CANARY not in shown, (words, shown)
            assert code in {0, 1, 3}, (words, shown)
        written = builder.workspace.engine_log_file.read_bytes()
        assert b"engine" in written
        list(parse(written, screen=False))
    finally:
        end_engine(builder)
