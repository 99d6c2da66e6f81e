"""`kbtui blame`: which turns changed or read a file, and wrote its lines."""

import json
import lzma
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import claude_folder
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked, called, said

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.citations.line_attribution import attribute_lines_to_edits
from kbtui.citations.turn_file_actions_and_commands import FileEdit
from kbtui.cli.main import main
from kbtui.library import Library, open_workspace
from kbtui.workspace.git_history import GitHistory

SESSION = "4d5611e5-241a-462a-8d15-5122611a9569"
SAMPLE = Path(__file__).parents[1] / "data/agent_sessions/claude" / f"{SESSION}.jsonl.xz"
RAN_IN = "/home/USER/projects/spotter-worktrees/spotter-dov"
RENAMED = "lib/spotter_web/live/session_live.ex"


def run_git(root: Path, *words: str, date: str = "2026-01-01T00:00:00Z") -> None:
    names = {
        f"GIT_{who}_{key}": "a@b" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", "-C", str(root), *words]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **names, **dates})


def list_writes(records: list[dict[str, Any]]) -> Iterator[tuple[str, str, str | None, str]]:
    """Every write of a file in a sample: its time, path, and text before and after."""
    for record in records:
        details = record.get("toolUseResult")
        if isinstance(details, dict) and "originalFile" in details:
            before = details["originalFile"]
            after = details.get("content") or before.replace(
                details["oldString"], details["newString"], -1 if details["replaceAll"] else 1
            )
            yield record["timestamp"], os.path.relpath(details["filePath"], RAN_IN), before, after


def carry_labels(old: str, new: str, labels: list[Any], label: Any) -> list[Any]:
    """The labels of the lines of `new`: those of equal lines in `old`, `label` for the others."""
    made = [label] * len(new.splitlines())
    matcher = SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    for block in matcher.get_matching_blocks():
        made[block.b : block.b + block.size] = labels[block.a : block.a + block.size]
    return made


@pytest.mark.parametrize("commits", [True, False])
def test_the_lines_of_a_replayed_session_belong_to_the_turns_that_a_scan_finds(
    tmp_path: Path, home: Path, commits: bool
) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    text = lzma.decompress(SAMPLE.read_bytes()).decode("utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    folder = claude_folder(home, root)
    (folder / f"{SESSION}.jsonl").write_text(text.replace(RAN_IN, str(root)))
    texts: dict[str, str] = {}
    labels: dict[str, list[Any]] = {}
    writes = list(list_writes(records))
    for _, path, before, _ in writes:
        if path not in texts:
            texts[path], labels[path] = before or "", [None] * len((before or "").splitlines())
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(before or "")
    if commits:
        run_git(root, "init", "-q")
        run_git(root, "add", "-A")
        run_git(root, "commit", "-qm", "start")
    for number, (time, path, before, after) in enumerate(writes):
        labels[path] = carry_labels(texts[path], before or "", labels[path], None)
        labels[path] = carry_labels(before or "", after, labels[path], time)
        texts[path] = after
        (root / path).write_text(after)
        if commits and number % 13 == 12:
            run_git(root, "add", "-A")
            run_git(root, "commit", "-qm", f"step {number}", date=time)
    if commits:
        run_git(root, "add", "-A")
        run_git(root, "mv", RENAMED, "lib/renamed.ex")
        run_git(root, "commit", "-qm", "end", date="2026-12-01T00:00:00Z")
        labels["lib/renamed.ex"] = labels.pop(RENAMED)
    wrong, significant = [], 0
    with open_workspace(root) as library:
        conversation = library.load_conversation(library.list_conversations()[0].id)
        starts = [turn.started_at for turn in conversation.turns]
        for path, wanted in labels.items():
            found = library.blame(f"{path}:1-{len(wanted)}")
            writers: dict[int, int] = {}
            for turn in found.turns:
                for lines in turn.lines:
                    writers |= dict.fromkeys(range(lines.first, lines.last + 1), turn.turn)
            for line, (time, content) in enumerate(
                zip(wanted, (root / path).read_text().splitlines(), strict=True), 1
            ):
                moment = datetime.fromisoformat(time) if time else None
                turns = [
                    n for n, start in enumerate(starts, 1) if moment and start and start <= moment
                ]
                # Which of two equal lines, such as `end`, was added is a matter of taste.
                if sum(map(str.isalnum, content)) > 3:
                    significant += 1
                    if writers.get(line) != (turns[-1] if turns else None):
                        wrong.append((path, line, content))
    assert significant > 3000
    assert len(wrong) <= 1, wrong


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6))
def test_undoing_known_edits_finds_the_writer_of_every_line(versions: list[list[int]]) -> None:
    texts = ["".join(f"unique line number {one}\n" for one in dict.fromkeys(v)) for v in versions]
    edits = [FileEdit("", texts[0], 1, is_whole_file=True)]
    edits += [FileEdit(None, text, 1, is_whole_file=True) for text in texts[1:]]
    labels: list[Any] = []
    for number, text in enumerate(texts):
        labels = carry_labels(texts[number - 1] if number else "", text, labels, number)
    lines = texts[-1].splitlines()
    assert attribute_lines_to_edits(lines, range(len(lines)), edits) == dict(enumerate(labels))


@pytest.fixture
def edited(tmp_path: Path, home: Path) -> Library:
    builder = Builder(tmp_path / "ws")
    first, second = (
        "def first_function():\n    return 1\n",
        "def second_function():\n    return 2\n",
    )
    builder.conversation(
        1,
        [
            [
                asked("Write it"),
                *called("c1", "fs_create_file", "created", path="src/a.py", content=first),
                *called("c2", "fs_modify_file", "no", True, path="src/a.py", old="1", new="3"),
            ],
            [
                asked("Look at it"),
                *called("c3", "fs_read_file", first, path="src/a.py"),
                said("ok"),
            ],
            [asked("Something else"), *called("c4", "fs_read_file", "x", path="src/b.py")],
        ],
        title="Functions",
    )
    moved = called("c5", "fs_move_file", "Moved", source="src/a.py", target="lib/é.py")
    patch = called("c6", "Write", "updated", path="lib/é.py", content=f"{first}\n{second}")
    builder.conversation(900, [[asked("Move it and add one"), *moved, *patch]], title="More")
    (builder.root / "lib").mkdir()
    (builder.root / "lib/é.py").write_text(f"{first}\n{second}# by hand\n")
    return open_workspace(builder.root)


def test_blame_lists_turns_newest_first_under_all_names(
    edited: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["-w", str(edited.workspace.root), "blame"]
    assert main([*where, "lib/é.py"]) == 0
    shown = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown if line.startswith("jp-c")] == [
        "jp-c17800000900:1", "jp-c17800000001:2", "jp-c17800000001:1",
    ]  # fmt: skip
    assert "    moved from src/a.py (call 1), changed +5 (call 2)" in shown
    assert "    created +2 (call 1)" in shown
    assert main([*where, "lib/é.py", "--changes", "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["earlier_names"] == ["src/a.py"]
    assert [turn["ref"] for turn in facts["turns"]] == [
        "jp-c17800000900:1.1",
        "jp-c17800000001:1.1",
    ]
    assert facts["turns"][1]["request"] == "Write it"


def test_blame_of_lines_names_their_writers_and_the_lines_without_one(
    edited: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["-w", str(edited.workspace.root), "blame"]
    assert main([*where, "lib/é.py:1-9", "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["lines"] == [1, 6]
    assert [(turn["ref"], turn["lines"]) for turn in facts["turns"]] == [
        ("jp-c17800000900:1.2", [[3, 5]]),
        ("jp-c17800000001:1.1", [[1, 2]]),
    ]
    assert [one["lines"] for one in facts["unexplained"]] == [[6, 6]]
    assert main([*where, "lib/é.py:6"]) == 1
    assert "no turn wrote line 6" in capfd.readouterr().err
    assert main([*where, "lib/é.py:7"]) == 1
    assert "the file has 6 lines" in capfd.readouterr().err
    assert main([*where, "missing.py"]) == 1
    assert "no turn has read or changed this file" in capfd.readouterr().err
    assert main([*where, "src/b.py", "--diff"]) == 0


def test_an_edit_after_the_commit_of_a_line_did_not_write_the_line(
    edited: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    root = edited.workspace.root
    run_git(root, "init")
    run_git(root, "add", "lib")
    run_git(root, "commit", "-m", "All of it")
    (root / "lib/é.py").write_text(f"{(root / 'lib/é.py').read_text()}# later, by hand\n")
    assert main(["-w", str(root), "blame", "lib/é.py:1-7"]) == 1
    said = capfd.readouterr().err
    assert "no turn wrote lines 1-6, which come from commit" in said
    assert "no turn wrote line 7\n" in said


def test_a_replaced_file_is_compared_with_its_text_in_git(
    edited: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    root = edited.workspace.root
    (root / "src").mkdir()
    file = root / "src/a.py"
    file.write_text("def function():\n    return 0\n")
    run_git(root, "init")
    run_git(root, "add", "src")
    run_git(root, "commit", "-m", "First", date="2026-01-01T00:00:00Z")
    file.write_text("something later\n")
    run_git(root, "commit", "-am", "Later", date="2027-01-01T00:00:00Z")
    where = ["-w", str(root), "conversation", "changes", "jp-c17800000001:1"]
    assert main(where) == 0
    shown = capfd.readouterr().out
    assert "jp-c17800000001:1.1 changed src/a.py  +2 −2" in shown
    assert "-    return 0\n" in shown


def test_a_turn_that_learned_a_subject_read_its_file(
    workspace_root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/limits.md", "At most ten.\n")
    builder.subject("guide/other.md", "Another subject.\n")
    for number, subjects in enumerate(("limits", "other", "limits:1", "*"), 1):
        result = "At most ten."
        if subjects == "*":
            result = '<subject "limits">\nAt most ten.\n</subject>\n\n<subject "other">\nAnother subject.\n</subject>'
        call = called("l", "learn", result, topic="guide", subjects=subjects)
        builder.conversation(number, [[asked("How many?"), *call]])
    assert main(["-w", str(workspace_root), "blame", "guide/limits"]) == 0
    shown = capfd.readouterr().out.splitlines()
    turns = [line.split()[0] for line in shown if line.startswith("jp-c")]
    assert turns == [f"jp-c1780000000{number}:1" for number in (4, 3, 1)]
    with open_workspace(workspace_root) as library:
        for name in ("guide/limits", "guide/limits:1"):
            listed = answer_tool_call("conversation_list", {"file": name}, library).text
            assert ("<actions>read (call 1)</actions>" in listed) == (":" not in name)
            assert ("no turn wrote line 1" in listed) == (":" in name)
    assert shown.count("    read (call 1)") == 3
    (workspace_root / "docs/guide/limits.md").unlink()
    for name in ("docs/guide/limits.md", "guide/limits"):
        assert main(["-w", str(workspace_root), "blame", name]) == 0
        assert capfd.readouterr().out.count("    read (call 1)") == 3
    assert main(["-w", str(workspace_root), "blame", "guide/missing"]) == 1
    assert "guide/missing: no turn has read or changed" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["mv", "git mv", "git mv and edit"])
def test_an_uncommitted_rename_is_followed(
    edited: Library, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    root = edited.workspace.root
    (root / "other.py").write_text("nothing = 'of the same'\n")
    run_git(root, "init")
    run_git(root, "add", "lib", "other.py")
    run_git(root, "commit", "-m", "All of it", date="2027-01-01T00:00:00Z")
    new = root / "é" / "new.py"
    new.parent.mkdir()
    if command == "mv":
        (root / "lib/é.py").rename(new)
        (root / "other.py").unlink()
    else:
        run_git(root, "mv", "lib/é.py", str(new))
    if command.endswith("edit"):
        new.write_text(f"{new.read_text()}# later, by hand\n")
    assert main(["-w", str(root), "blame", "é/new.py:1-9", "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["earlier_names"] == ["lib/é.py", "src/a.py"]
    assert [turn["lines"] for turn in facts["turns"]] == [[[3, 5]], [[1, 2]]]
    assert facts["unexplained"][0]["summary"] == "All of it"


@pytest.mark.parametrize("left", [0.3, 0.95])
def test_blame_says_which_conversations_cannot_be_read_completely(
    edited: Library, capfd: pytest.CaptureFixture[str], left: float
) -> None:
    root = edited.workspace.root
    file = root / ".jp/conversations/17800000900/events.json"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * left)])
    wanted = "1 conversation could not be read completely: jp-c17800000900: "
    for name, code in (("src/a.py", 0), ("missing.py", 1)):
        assert main(["-w", str(root), "blame", name]) == code
        assert wanted in capfd.readouterr().err
    assert main(["-w", str(root), "blame", "src/a.py", "--json"]) == 0
    (problem,) = json.loads(capfd.readouterr().out)["problems"]
    assert problem["conversation"] == "jp-c17800000900"
    assert problem["problem"]
    listing = ["-w", str(root), "conversation", "ls", "--file", "src/a.py"]
    assert main(listing) == 0
    assert wanted in capfd.readouterr().err
    assert main([*listing, "--json"]) == 0
    assert wanted in json.loads(capfd.readouterr().out)["hint"]


@pytest.mark.parametrize("lines", ["-3", "1-", "1,5", "x", "", "0", "5-2", "9" * 20])
def test_blame_says_that_lines_are_invalid(
    edited: Library, capfd: pytest.CaptureFixture[str], lines: str
) -> None:
    assert main(["-w", str(edited.workspace.root), "blame", f"lib/é.py:{lines}"]) == 2
    shown = capfd.readouterr().err
    assert "is not a valid range of lines" in shown
    assert "12" in shown


def test_blame_says_that_a_directory_is_no_file(
    edited: Library, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(edited.workspace.root / "lib")
    for name in ("lib", "lib/", ".", "../lib"):
        assert main(["-w", str(edited.workspace.root), "blame", name]) == 1
        assert "this is a directory" in capfd.readouterr().err


@pytest.mark.parametrize("is_missing", [True, False])
def test_blame_says_that_git_fails(
    edited: Library,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_missing: bool,
) -> None:
    where = ["-w", str(edited.workspace.root), "blame", "lib/é.py:1"]
    run_git(edited.workspace.root, "init", "-q")
    assert main(where) == 0
    assert capfd.readouterr().err == ""
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    if not is_missing:
        program.write_text("#!/bin/sh\necho 'fatal: out of luck' >&2\nexit 128\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}")
    assert main(where) == 0
    (line,) = capfd.readouterr().err.splitlines()
    reason = "No such file or directory" if is_missing else "out of luck"
    assert line.endswith(f"the Git history cannot be read and is left out: git: {reason}")


def test_assistants_find_the_conversations_that_changed_a_file(
    edited: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    reply = answer_tool_call("conversation_list", {"file": "lib/é.py:1-2"}, edited)
    assert "<id>jp-c17800000001</id>" in reply.text
    assert "jp-c17800000900" not in reply.text
    for element in (
        "<ref>jp-c17800000001:1.1</ref>", "<turn>1</turn>", "<actions>created +2 (call 1)</actions>",
        "<lines>1-2</lines>", "<request>Write it</request>", "<unexplained_lines></unexplained_lines>",
    ):  # fmt: skip
        assert element in reply.text
    reply = answer_tool_call("conversation_list", {"file": "lib/é.py:5-6"}, edited)
    assert "<hint>no turn wrote line 6</hint>" in reply.text
    assert "<lines>[6, 6]</lines>" in reply.text
    for name in ("../secret", "/etc/passwd", "missing.py", "lib/é.py:99"):
        reply = answer_tool_call("conversation_list", {"file": name}, edited)
        assert reply.is_error, name
        assert reply.text.startswith("`file`: "), reply.text
    where = ["-w", str(edited.workspace.root), "conversation", "ls", "--file", "lib/é.py"]
    assert main(where) == 0
    shown = capfd.readouterr().out
    done = re.findall(r"^    (turn \d), \S+: (.*)\n +asked: (.*)$", shown, re.MULTILINE)
    assert done == [
        ("turn 1", "moved from src/a.py (call 1), changed +5 (call 2)", "Move it and add one"),
        ("turn 2", "read (call 1)", "Look at it"),
        ("turn 1", "created +2 (call 1)", "Write it"),
    ]


def test_a_hostile_repository_runs_nothing(tmp_path: Path) -> None:
    root, trap = tmp_path / "repo", tmp_path / "trap"
    root.mkdir()
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {trap}\ncat\n")
    program.chmod(0o755)
    run_git(root, "init", "-q")
    (root / "a.py").write_text("one\n")
    run_git(root, "add", "-A")
    run_git(root, "commit", "-qm", "one")
    run_git(root, "mv", "--", "a.py", "-b.py")
    run_git(root, "commit", "-qm", "two")
    (root / ".gitattributes").write_text("* diff=evil filter=evil\n")
    settings = (
        "diff.evil.textconv", "diff.evil.command", "filter.evil.clean", "filter.evil.smudge",
        "core.pager", "core.fsmonitor", "diff.external", "pager.blame", "gpg.program",
        "core.editor", "core.sshCommand",
    )  # fmt: skip
    for setting in settings:
        run_git(root, "config", setting, str(program))
    run_git(root, "config", "log.showSignature", "true")
    trap.unlink(missing_ok=True)
    history = GitHistory(str(root))
    assert [origin.path for origin in history.list_line_origins("-b.py")] == ["a.py"]
    assert [name.path for name in history.list_earlier_paths("-b.py")] == ["a.py"]
    assert history.read_file("HEAD", "-b.py") == "one\n"
    assert history.list_line_origins("no\0file") == []
    assert GitHistory(str(tmp_path)).list_line_origins("a.py") == []
    assert not trap.exists()
    assert datetime.fromtimestamp(history.list_line_origins("-b.py")[0].time, UTC).year == 2026
