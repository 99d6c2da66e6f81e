"""What a turn did, below its citations, and the commands on a file that a call changed."""

import re
from pathlib import Path

import pytest
from feature_screen_support import editor
from support import Builder, asked, called, said
from tui_support import running

from kbtui.library import open_workspace
from kbtui.library.file_turn_history import list_files_used_by_call_or_turn
from kbtui.references import parse_ref
from kbtui.userdata.user_data_store import UserData

DIFF = "File modified successfully:\n\n```diff\n--- src/a.py\n+++ src/a.py\n@@ -9,2 +9,2 @@\n kept\n-old = 1\n+new = 2\n```"


@pytest.fixture
def changed(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.conversation(
        1,
        [
            [
                asked("Change it"),
                *called("a", "fs_read_file", "old = 1", path="src/a.py"),
                *called("b", "fs_modify_file", DIFF, path="src/a.py"),
                *called("c", "cargo_test", "2 failed", True, package="core"),
                *called("d", "fs_create_file", "exists", True, path="src/b.py", content="1"),
            ],
            [asked("Thanks"), said("You are welcome.")],
        ],
        title="Change",
    )
    (workspace_root / "src").mkdir()
    (workspace_root / "src/a.py").write_text("# a line\n" * 20 + "new = 2\n")
    return builder


async def test_the_pane_lists_what_the_turn_did_and_opens_the_call(changed: Builder) -> None:
    async with running(changed.root, size=(160, 45)) as tui:
        await tui.open("jp-c17800000001")
        await tui.until(lambda: "DONE IN TURN 1" in tui.text)
        assert "1 file changed, 1 file read, 1" in tui.text
        assert "src/a.py" in tui.text
        assert "+1 −1" in tui.text
        assert "✗ cargo test core" in tui.text
        assert "✗ fs_create_file" in tui.text
        await tui.press("3", "j")
        await tui.press("enter")
        await tui.until(lambda: "jp-c17800000001:1.2" in tui.text)
        assert "+new = 2" in tui.text
        await tui.press("2", "n")
        await tui.until(lambda: "CITED IN TURN 2" in tui.text)
        assert "DONE IN TURN" not in tui.text


async def test_the_turns_of_a_calls_file_can_be_chosen(changed: Builder) -> None:
    changed.conversation(900, [[asked("Read"), *called("a", "fs_read_file", "x", path="src/a.py")]])
    async with running(changed.root, size=(160, 45)) as tui:
        await tui.open("jp-c17800000001:1.2")
        await tui.press("2", "A")
        await tui.until(lambda: "Turns of src/a.py, newest first" in tui.text)
        rows = tui.text.split("\n")
        (number,) = (n for n, row in enumerate(rows) if "read, changed +1 −1" in row)
        assert "turn 1 · Change" in rows[number]
        assert "Change it" in rows[number + 1]
        await tui.press("colon")
        await tui.until(lambda: "Lines of src/a.py" in tui.text)
        assert "21" in tui.text.split("Lines of src/a.py")[1]
        await tui.press("enter")
        await tui.until(lambda: "No turn wrote line 21" in tui.text)
        await tui.press("A")
        await tui.until(lambda: "Turns of src/a.py, newest first" in tui.text)
        await tui.press("a")
        await tui.until(lambda: "jp-c17800000900:1" in tui.text)
        await tui.press("n", "g", "A")
        assert "Go to a tool call or a subject" in tui.text


async def test_the_changes_of_a_conversation_are_shown_as_one_diff(changed: Builder) -> None:
    async with running(changed.root, size=(80, 24)) as tui:
        await tui.open("jp-c17800000001:2")
        await tui.press("2", "C")
        await tui.until(lambda: "1 file changed" in tui.text)
        assert "turn 1, call 2" in tui.text
        assert "+new = 2" in tui.text
        assert "Enter open call" in tui.text
        assert "e edit file" in tui.text
        await tui.press("n", "j", "j", "enter")
        await tui.until(lambda: "fs_modify_file" in tui.text)
        assert "jp-c17800000001:1.2" in tui.text
        await tui.press("left_square_bracket")
        await tui.until(lambda: "1 file changed" in tui.text)
        await tui.press("C")
        await tui.until(lambda: "fs_modify_file" in tui.text)
        assert "jp-c17800000001:1.2" in tui.text


async def test_the_changes_are_also_shown_file_by_file(changed: Builder) -> None:
    calls = [
        *called("a", "fs_create_file", "File created.", path="x.py", content="1\n"),
        *called("b", "fs_create_file", "File created.", path="y.py", content="1\n"),
        *called("c", "fs_modify_file", DIFF.replace("src/a.py", "x.py"), path="x.py"),
    ]
    changed.conversation(900, [[asked("More"), *calls]])
    async with running(changed.root, size=(120, 40)) as tui:

        def list_calls() -> list[str]:
            return re.findall(r"turn 1, call (\d)", tui.text)

        await tui.open("jp-c17800000900")
        await tui.press("2", "C")
        await tui.until(lambda: list_calls() == ["1", "2", "3"])
        await tui.press("v")
        await tui.until(lambda: list_calls() == ["1", "3", "2"])
        await tui.press("C")
        await tui.until("fs_create_file")


async def test_a_change_is_found_by_its_turn_also_in_the_outline(changed: Builder) -> None:
    calls = called("a", "fs_create_file", "File created.", path="src/long/x.py", content="1\n")
    talks = [asked("Why?"), said("So.")]
    changed.conversation(900, [talks, calls, talks, [*calls, *called("b", "rm", "no", True)]])
    async with running(changed.root, size=(80, 24)) as tui:
        viewport = tui.main.reader_pane.viewport
        await tui.open("jp-c17800000900")
        await tui.press("2", "C")
        await tui.until("1 file changed")
        await tui.press("O")
        await tui.until("Outline · 2 changes")
        assert [row.split() for row in tui.rows("outline-list")] == [
            ["2.1", "x.py", "src/long"],
            ["4.1", "x.py", "src/long"],
        ]
        await tui.type("4.1")
        await tui.press("enter")
        await tui.until(lambda: viewport.current_reference == "jp-c17800000900:4.1")
        for text, place, message in (
            ("2", "2.1", ""),
            ("3", "4.1", "No change in turn 3; this is the next one."),
            ("4.1", "4.1", ""),
            ("5", "4.1", "No change in or after turn 5."),
        ):
            await tui.press("number_sign", *text, "enter")
            await tui.until(lambda place=place: viewport.current_reference.endswith(f":{place}"))
            await tui.until(message)
        await tui.press("w")
        await tui.until("This page has no failed tool calls.")


async def test_editing_a_file_that_is_gone_names_it(changed: Builder) -> None:
    (changed.root / "src/a.py").unlink()
    async with running(changed.root, size=(80, 24)) as tui:
        for keys in ("", "Cn"):
            await tui.open("jp-c17800000001:1.2")
            await tui.press("2", *keys)
            await tui.press("e")
            await tui.until("src/a.py: the file no longer exists")
            await tui.press("escape")


@pytest.mark.parametrize(("place", "owner"), [("1.1", "call"), ("1", "turn")])
async def test_editing_files_that_are_all_gone_counts_those_of_the_call_or_turn(
    workspace_root: Path, place: str, owner: str
) -> None:
    builder = Builder(workspace_root)
    patch = "*** Begin Patch\n*** Add File: x.py\n+1\n*** Add File: y.py\n+2\n*** End Patch"
    calls = called("a", "apply_patch", "Done", input=patch)
    builder.conversation(1, [[asked("Add them"), *calls]])
    async with running(builder.root, size=(80, 24)) as tui:
        await tui.open(f"jp-c17800000001:{place}")
        await tui.press("2", "e")
        await tui.until(f"None of the {owner}'s 2 files exists any longer")


async def test_the_changes_show_the_citations_of_the_turn_at_the_cursor(changed: Builder) -> None:
    async with running(changed.root, size=(160, 45)) as tui:
        await tui.open("jp-c17800000001")
        await tui.press("2", "C")
        await tui.until("1 file changed")
        await tui.press("n")
        await tui.until("CITED IN TURN 1")
        assert "[1] src/a.py" in tui.text


async def test_the_changes_of_a_conversation_that_cannot_be_read_say_so(changed: Builder) -> None:
    events = next(changed.root.glob(".jp/conversations/*/events.json"))
    whole = events.read_text()
    async with running(changed.root, size=(80, 24)) as tui:
        await tui.open("jp-c17800000001")
        await tui.press("2", "C")
        await tui.until("1 file changed")
        for text in ("[", whole):
            events.write_text(text)
            await tui.press("ctrl+r")
            if text == "[":
                await tui.until("! events.json")
                assert "● damaged" in tui.text
                assert "No turn of this conversation" not in tui.text
        await tui.until(lambda: "● damaged" not in tui.text)
        await tui.until("1 file changed")


async def test_lists_of_turns_show_the_marks_of_the_turns(changed: Builder) -> None:
    changed.topics(guide={})
    changed.subject("guide/limits.md", "# Limits\n\nTen.\n")
    call = called("a", "learn", "# Limits\n\nNine.\n", topic="guide", subjects="limits")
    changed.conversation(900, [[asked("How many?"), *call, said("Nine.")]], title="Count")
    with open_workspace(changed.root) as library:
        library.mark("jp-c17800000001:1", "rejected", note="too early")
        library.mark("jp-c17800000900:1", "decided", note="nine it is")
        UserData(library.workspace).save_bookmark("jp-c17800000900:1", "Count", "")
    async with running(changed.root, size=(160, 45)) as tui:
        await tui.open("jp-c17800000001:1.2")
        await tui.press("2", "A")
        await tui.until("rejected: too early · Change it")
        await tui.press("escape", "O")
        await tui.until("1  ✗ Change it")
        await tui.press("escape", "2", "C")
        await tui.until("1 file changed")
        assert "✗ rejected: too early" in tui.text
        await tui.open("guide/limits")
        await tui.until("✓ decided: nine it is")  # in the citations pane
        await tui.press("2", "C")
        await tui.until("given to jp-c17800000900:1")
        assert tui.text.count("✓ decided: nine it is") == 2
        await tui.press("apostrophe")
        await tui.until("★ Count")
        assert "✓ decided: nine it is" in tui.text
        await tui.press("escape", "I")
        await tui.until("Turns based on knowledge that has since changed")
        await tui.until("✓ decided: nine it is")


def test_a_changed_line_is_opened_where_it_stands_now(changed: Builder) -> None:
    with open_workspace(changed.root) as library:
        conversation = library.load_conversation("jp-c17800000001")

        def list_lines(ref: str, line: int = 0) -> list[tuple[str, int]]:
            target = parse_ref(f"jp-c17800000001:{ref}")
            found = list_files_used_by_call_or_turn(library.workspace, conversation, target, line)
            return [(file.name, file.line) for file in found]

        assert list_lines("1.2") == [("src/a.py", 21)]
        assert list_lines("1.2", 9) == [("src/a.py", 9)]
        assert list_lines("1") == [("src/a.py", 21)]
        assert list_lines("1.4") == []


async def test_after_editing_the_only_file_of_a_turn_its_name_is_shown(
    changed: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with editor(monkeypatch, tmp_path, "true") as runs:
        async with running(changed.root, size=(160, 45)) as tui:
            await tui.open("jp-c17800000001:1")
            await tui.press("2", "e")
            await tui.until("Closed src/a.py, the only file of turn 1")
            assert runs() == 1


async def test_several_files_of_a_turn_are_offered(changed: Builder) -> None:
    (changed.root / "src/b.py").write_text("1\n")
    calls = [*called("a", "fs_read_file", "x", path="src/a.py")]
    calls += called("b", "fs_read_file", "1", path="src/b.py")
    changed.conversation(900, [[asked("Read"), *calls]])
    async with running(changed.root, size=(160, 45)) as tui:
        await tui.open("jp-c17800000900:1")
        await tui.press("2", "e")
        await tui.until("Edit which file of turn 1?")
        assert "src/b.py" in tui.text
