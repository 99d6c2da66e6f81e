"""What a turn did to files, from the tool calls of every agent."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked, called, said

from kbtui.citations.turn_file_actions_and_commands import (
    TurnFileAction,
    collect_turn_actions_and_commands,
)
from kbtui.cli.main import main
from kbtui.conversations.conversation_data_types import ConversationEvent, Turn
from kbtui.conversations.patch_parser import (
    FilePatch,
    find_unified_diffs,
    format_file_patch,
    make_hunks_from_texts,
)

PATCH = """*** Begin Patch
*** Add File: new.py
+one
+two
*** Update File: a.py
*** Move to: b.py
@@ def f():
 kept
-old
+new
*** Delete File: gone.py
*** End Patch"""
DIFF = "Done:\n\n```diff\n--- a.py\n+++ a.py\n@@ -7,2 +7,2 @@\n kept\n-old\n+new\n```"
AIDER = "a.py\n```python\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n```"


def make_call(
    name: str, arguments: Any, result: str | None = "ok", *, failed: bool = False
) -> ConversationEvent:
    text = "" if isinstance(arguments, dict) else arguments
    values = arguments if isinstance(arguments, dict) else {}
    call = ConversationEvent("tool_call_request", None, text, 0, name=name, arguments=values)
    call.call = 1
    if result is not None:
        call.result = ConversationEvent("tool_call_response", None, result, 1, is_error=failed)
    return call


def list_actions(*events: ConversationEvent, directory: str | None = None) -> list[TurnFileAction]:
    return list(
        collect_turn_actions_and_commands(Turn(1, list(events)), directory, lambda path: path).files
    )


def describe(*events: ConversationEvent) -> list[str]:
    return [
        f"{one.kind} {f'{one.old_path} ' if one.old_path else ''}{one.path} +{one.added_line_count} -{one.removed_line_count}"
        for one in list_actions(*events)
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "result", "wanted"),
    [
        ("fs_modify_file", {"path": "a.py", "patterns": [{"old": "x", "new": "y"}]}, DIFF, "a.py"),
        ("Edit", {"file_path": "a.py", "old_string": "old", "new_string": "new"}, "ok", "a.py"),
        ("MultiEdit", {"file_path": "a.py", "edits": [{"old_string": "old", "new_string": "new"}]}, "", "a.py"),
        ("replace", {"file_path": "a.py", "old_string": "old", "new_string": "new"}, "ok", "a.py"),
        ("edit", {"filePath": "a.py", "oldString": "old", "newString": "new"}, "ok", "a.py"),
        ("mcp__filesystem__edit_file", {"path": "a.py", "edits": [{"oldText": "old", "newText": "new"}]}, "", "a.py"),
        ("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Update File: a.py\n-old\n+new\n*** End Patch"]}, "", "a.py"),
        ("shell_command", {"command": "cd src && apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.py\n-old\n+new\n*** End Patch\nEOF"}, "", "src/a.py"),
    ],
)  # fmt: skip
def test_an_edit_of_any_agent_is_a_change_of_one_line(
    name: str, arguments: dict[str, Any], result: str, wanted: str
) -> None:
    assert describe(make_call(name, arguments, result)) == [f"changed {wanted} +1 -1"]


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("Write", {"file_path": "a.py", "content": "1\n2\n"}, ["created a.py +2 -0"]),
        ("fs_create_file", {"path": "a.py", "content": "1\n2"}, ["created a.py +2 -0"]),
        ("write_file", {"file_path": "a.py", "content": ""}, ["created a.py +0 -0"]),
        ("fs_move_file", {"source": "a.py", "target": "b.py"}, ["moved a.py b.py +0 -0"]),
        ("fs_delete_file", {"path": "a.py"}, ["deleted a.py +0 -0"]),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "1"}, ["changed a.ipynb +1 -0"]),
        ("Read", {"file_path": "a.py"}, ["read a.py +0 -0"]),
        ("apply_patch", PATCH, ["created new.py +2 -0", "moved a.py b.py +1 -1", "deleted gone.py +0 -0"]),
        ("apply_patch", {"input": "no patch"}, []),
        ("Bash", {"command": "git mv a.py src/ && rm -f b.py; touch c.py"}, ["moved a.py src/a.py +0 -0", "deleted b.py +0 -0", "created c.py +0 -0"]),
        ("Bash", {"command": "cat > a.py <<'EOF'\n1\n2\nEOF\nsed -i s/1/2/ b.py"}, ["created a.py +2 -0", "changed b.py +0 -0"]),
        ("Bash", {"command": "make 2>&1 | tee log.txt > /dev/null; ls 2>/dev/null"}, []),
        ("Bash", {"command": "echo $X > $Y; rm -r build; cd x; rm y"}, []),
        ("Bash", {"command": "echo 1 > 'b"}, []),
        ("Bash", {"command": "rm a.py 2>&1"}, ["deleted a.py +0 -0"]),
        ("Bash", {"command": "echo failed >&2; echo '' >> a.py"}, ["changed a.py +0 -0"]),
        ("Bash", {"command": "(touch a.py; echo 1)>b.py"}, ["created a.py +0 -0", "created b.py +0 -0"]),
        ("shell", {"command": ["python", "-c", "print(a > b)"]}, []),
        ("shell", {"command": ["grep", "-c", "a > b"]}, []),
        ("shell", {"command": ["echo", "1", ">", "b"]}, []),
        ("shell", {"command": ["rm", "a.py"], "workdir": "src"}, ["deleted src/a.py +0 -0"]),
        ("shell", {"command": ["/bin/bash", "-lc", "echo 1 > b"]}, ["created b +0 -0"]),
        ("shell", {"script": "cat a.py"}, ["read a.py +0 -0"]),
    ],
)  # fmt: skip
def test_files_are_created_moved_deleted_and_read(
    name: str, arguments: Any, wanted: list[str]
) -> None:
    assert describe(make_call(name, arguments)) == wanted


def test_a_call_that_failed_or_changed_nothing_does_not_count() -> None:
    edit = {"path": "a.py", "old": "1", "new": "2"}
    assert describe(make_call("edit", edit, "no match", failed=True)) == []
    assert describe(make_call("edit", edit, None)) == []
    assert describe(make_call("fs_modify_file", edit, "0/1 patterns applied.\n\n…")) == []


def test_aider_reports_which_edits_it_applied() -> None:
    asked_edit = ConversationEvent(
        "message", None, f"{AIDER}\n\n{AIDER.replace('a.py', 'b.py')}", 0
    )
    output = ConversationEvent(
        "tool_call_response",
        None,
        "Applied edit to src/a.py\nApplied edit to c.py",
        1,
        name="aider",
    )
    assert describe(asked_edit, output) == ["changed src/a.py +1 -1", "changed c.py +0 -0"]
    assert describe(asked_edit) == []


def test_a_written_file_is_created_only_once() -> None:
    calls = [make_call("write_file", {"path": "a.py", "content": text}) for text in ("1", "2")]
    assert [one.kind for one in list_actions(*calls)] == ["created", "changed"]
    said_so = make_call(
        "Write", {"path": "b.py", "content": "1"}, "The file b.py has been updated."
    )
    assert list_actions(said_so)[0].kind == "changed"


@pytest.mark.parametrize("tool", ["fs_create_file", "Write"])
def test_a_file_that_was_read_before_is_not_created(tool: str) -> None:
    read = make_call("Read", {"file_path": "a.py"}, "old")
    write = make_call(tool, {"path": "a.py", "content": "1"}, "File created successfully")
    gone = make_call("fs_delete_file", {"path": "a.py"})
    kinds = [one.kind for one in list_actions(read, write, gone, write)]
    assert kinds == ["read", "changed", "deleted", "created"]
    assert list_actions(read, write)[1].format_diff().startswith("--- a/a.py\n")
    moved = make_call("fs_move_file", {"source": "a.py", "target": "b.py"})
    assert list_actions(read, moved, write)[-1].kind == "created"


def test_a_replaced_file_is_compared_with_its_text_after_the_earlier_calls() -> None:
    read = make_call("fs_read_file", {"path": "a.py"}, "```py\none\ntwo\nthree\n```")
    edit = make_call("Edit", {"file_path": "a.py", "old_string": "two", "new_string": "2"}, "ok")
    write = make_call("fs_create_file", {"path": "a.py", "content": "one\n2\n3\n"}, "created")
    done = list_actions(read, edit, write)[-1]
    assert (done.kind, done.added_line_count, done.removed_line_count) == ("changed", 1, 1)
    assert "-three\n+3\n" in done.format_diff()
    part = make_call("shell", {"command": "sed -n 1,2p a.py"}, "one\ntwo\n")
    assert (
        list_actions(part, write)[-1].added_line_count,
        list_actions(part, write)[-1].removed_line_count,
    ) == (3, 0)
    by_shell = make_call("shell", {"command": "sed -i s/one/1/ a.py"}, "")
    assert list_actions(read, by_shell, write)[-1].removed_line_count == 0
    again = make_call(
        "write_file", {"path": "a.py", "content": "one\n"}, "Successfully overwrote file"
    )
    assert list_actions(read, write, again)[-1].removed_line_count == 2


def test_commands_and_failures_are_listed() -> None:
    turn = Turn(
        1,
        [
            make_call("shell", {"command": ["bash", "-lc", "make test"]}, "2 failed", failed=True),
            make_call("cargo_test", {"package": "core", "backtrace_frames": 5}),
            make_call("git_log", {"paths": ["a.py"], "count": 3}),
            make_call("Read", {"file_path": "/ws/a.py"}),
        ],
    )
    done = collect_turn_actions_and_commands(turn, "/ws", lambda path: path.removeprefix("/ws/"))
    assert [(one.text, one.has_failed) for one in done.commands] == [
        ("make test", True),
        ("cargo test core", False),
        ("git log a.py", False),
    ]
    assert [one.name for one in done.failures] == ["shell"]
    assert done.list_paths("read") == ["a.py"]


_LINES = st.lists(st.sampled_from(["", "a", "-- b", "++ c", "@@", "```", " d"]), max_size=12)


@given(_LINES, _LINES)
def test_a_diff_is_read_back_as_it_was_written(old: list[str], new: list[str]) -> None:
    texts = ["".join(f"{line}\n" for line in one) for one in (old, new)]
    hunks = make_hunks_from_texts(*texts, old_start=1)
    patch = FilePatch("a.py", "changed", hunks)
    found = list(find_unified_diffs(f"before\n{format_file_patch(patch)}after\n"))
    assert [one.patch for one in found] == ([patch] if hunks else [])
    lines = list(old)
    for hunk in reversed(hunks):
        start = (hunk.old_start or 1) - 1
        assert lines[start : start + len(hunk.old_lines)] == hunk.old_lines
        lines[start : start + len(hunk.old_lines)] = hunk.new_lines
    assert lines == new


def test_the_changes_of_a_conversation_are_printed_as_one_diff(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = DIFF.replace("a.py", "src/a.py")
    workspace = Builder(tmp_path / "ws")
    workspace.conversation(
        1,
        [
            [
                asked("Change it"),
                *called("c1", "fs_modify_file", result, path="src/a.py"),
                said("Done"),
            ],
            [
                asked("And these"),
                *called("c2", "fs_create_file", "File created.", path="b.py", content="1\n"),
                *called("c3", "fs_modify_file", result, path="src/a.py"),
            ],
        ],
    )
    where = ["-w", str(workspace.root), "conversation", "changes", "jp-c17800000001"]
    assert main([*where, "--by-file"]) == 0
    heads = re.findall(r"^jp-c17800000001:(\S+)", capfd.readouterr().out, re.MULTILINE)
    assert heads == ["1.1", "2.2", "2.1"]
    where[-1] += ":1"
    assert main(where) == 0
    shown = capfd.readouterr().out
    assert shown.startswith("jp-c17800000001:1.1 changed src/a.py  +1 −1\n--- a/src/a.py\n")
    assert "@@ -7,2 +7,2 @@\n kept\n-old\n+new\n" in shown
    assert main([*where, "--stat"]) == 0
    assert capfd.readouterr().out == "src/a.py  changed  +1 −1  turn 1\n"
    assert main([*where, "--json", "--file", "src/b.py"]) == 1
    assert json.loads(capfd.readouterr().out)["turns"][0]["files"] == []


@pytest.mark.parametrize("name", ["a.py", "./a.py", "../src/a.py", "src/a.py", "/src/a.py"])
def test_changes_accept_the_path_of_a_file_in_any_form(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
) -> None:
    builder = Builder(tmp_path / "ws")
    call = called("c1", "fs_modify_file", DIFF.replace("a.py", "src/a.py"), path="src/a.py")
    builder.conversation(1, [[asked("Change it"), *call]])
    (builder.root / "src").mkdir()
    (builder.root / "src/a.py").write_text("new\n")
    monkeypatch.chdir(builder.root / "src")
    where = ["-w", str(builder.root), "conversation", "changes", "jp-c17800000001", "--file"]
    assert main([*where, f"{builder.root}{name}" if name[0] == "/" else name]) == 0
    assert "changed src/a.py" in capfd.readouterr().out
    assert main([*where, "../b.py"]) == 1
    assert capfd.readouterr().err == "kbtui: b.py was not changed in jp-c17800000001\n"
