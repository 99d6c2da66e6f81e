"""Diffs in the reader: edits, patches in results and questions, and the key that unfolds them."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked, called, said
from tui_support import running

from kbtui.conversations.patch_parser import PatchHunk, make_hunks_from_texts
from kbtui.tui.reader.tool_call_blocks import make_blocks_of_diff_hunks

QUESTION = "Do you want to apply the following patch?\n\n```diff\n--- src/a.py\n+++ src/a.py\n@@ -9,2 +9,3 @@\n kept\n-old = 1\n+old = 2\n+new = 3\n```"


async def test_t_unfolds_diffs_then_all_calls_then_none(workspace_root: Path) -> None:
    question = {"text": QUESTION, "answer_type": {"type": "boolean"}}
    inquiry = {
        "type": "inquiry_request",
        "id": "q",
        "source": {"source": "tool"},
        "question": question,
    }
    turns = [
        asked("Change it"),
        *called("a", "cargo_check", "No warnings", package="core"),
        inquiry,
        *called("b", "fs_modify_file", QUESTION.partition("?")[2], path="src/a.py"),
        *called("c", "fs_create_file", "created", path="src/b.py", content="one\ntwo\n"),
        said("Done"),
    ]
    Builder(workspace_root).conversation(1, [turns], title="Change")
    async with running(workspace_root, size=(160, 60)) as tui:
        await tui.open("jp-c17800000001")
        assert "▸ asks  src/a.py  Do you want to apply the following patch?" in tui.text
        # The question, the call, and what the turn did, which is read in the background.
        await tui.until(lambda: tui.text.count("+2 −1") == 3)
        assert "+2 " in next(
            line for line in tui.text.split("\n") if "▸ fs_create_file  src/b.py" in line
        )
        await tui.press("2", "t")
        assert tui.text.count(" 9  9  kept") == 2
        assert tui.text.count("10    -old = 1") == 2
        assert "   11 +new = 3" in tui.text
        assert "  1 +one" in tui.text
        assert "```" not in tui.text
        assert "▸ cargo_check" in tui.text
        await tui.press("t")
        assert "▾ cargo_check" in tui.text
        assert "▾ fs_modify_file" in tui.text
        await tui.press("t")
        assert "▾" not in tui.text.replace("▾ TOPICS", "").partition("Change it")[2]
        await tui.press("t")
        assert "▸ cargo_check" in tui.text
        assert "▾ fs_modify_file" in tui.text


def test_only_the_words_that_differ_are_marked() -> None:
    hunks = make_hunks_from_texts("a = first(1)\n\nsame\n", "a = second(1)\n\nsame\n", 7)
    (block,) = make_blocks_of_diff_hunks("key", hunks)
    lines = block.lay_out_with_lead_and_space_above(80)
    assert [line.plain for line in lines] == [
        " 7    -a = first(1)", "    7 +a = second(1)", " 8  8  ", " 9  9  same",
    ]  # fmt: skip
    marked = [text for line in lines for text, role in line.spans if "changed-word" in role]
    assert marked == ["first", "second"]
    assert [line.plain for line in block.lay_out_with_lead_and_space_above(60)][:2] == [
        " 7 -a = first(1)", " 7 +a = second(1)",
    ]  # fmt: skip


_LINES = st.lists(
    st.sampled_from([" kept", "-old x", "+new x", "+", "-\t\x1b[31mred"]), max_size=200
)


@given(_LINES, st.booleans())
def test_every_line_of_a_hunk_is_shown_with_its_number(lines: list[str], numbered: bool) -> None:
    hunk = PatchHunk(tuple(lines), 5 if numbered else None, 6 if numbered else None)
    blocks = list(make_blocks_of_diff_hunks("key", [hunk]))
    shown = [
        line.plain for block in blocks for line in block.lay_out_with_lead_and_space_above(100)
    ]
    assert len(shown) == len(lines)
    wanted, number = [], 6
    for line in lines:
        if line == "+new x":
            wanted.append(str(number) if numbered else "+new")
        number += line[0] != "-"
    pairs = zip(shown, lines, strict=True)
    assert [row.split()[0] for row, line in pairs if line == "+new x"] == wanted


async def test_a_question_refers_to_the_call_that_shows_its_patch(workspace_root: Path) -> None:
    patch = QUESTION.partition("?")[2]
    call, result = called("b", "fs_modify_file", patch, path="src/a.py")
    inquiry = {
        "type": "inquiry_request",
        "id": "b.apply_changes",
        "source": {"source": "tool", "name": "fs_modify_file"},
        "question": {"text": QUESTION, "answer_type": {"type": "boolean"}},
    }
    Builder(workspace_root).conversation(
        1, [[asked("Change"), call, inquiry, result, said("Done")]]
    )
    async with running(workspace_root, size=(160, 60)) as tui:
        await tui.open("jp-c17800000001")
        # The call, and what the turn did.
        await tui.until(lambda: tui.text.count("+2 −1") == 2)
        heading = next(line for line in tui.text.split("\n") if "▸ asks" in line)
        assert "Do you want to apply the following patch?" in heading
        assert "patch of call 1.1" in heading
        await tui.press("2", "t", "t")
        await tui.until("Call 1.1 above shows the patch.")
        assert tui.text.count("```") == 0
        assert tui.text.count("+2 −1") == 2


async def test_the_header_names_the_view_of_the_changes(workspace_root: Path) -> None:
    turn = [
        asked("Change"),
        *called("c", "fs_create_file", "created", path="src/b.py", content="one\ntwo\n"),
        said("Done"),
    ]
    Builder(workspace_root).conversation(1, [turn])
    async with running(workspace_root, size=(120, 40)) as tui:
        await tui.open("jp-c17800000001")
        await tui.press("2", "C")
        await tui.until("changes in order")
        assert "view: by file" in tui.text
        await tui.press("v")
        await tui.until("changes by file")
        assert "changes in order" not in tui.text


async def test_a_hit_is_unfolded_after_the_calls_were_folded(workspace_root: Path) -> None:
    turn = [
        asked("Look"),
        *called("a", "fs_read_file", "the lighthouse keeper\nsleeps\n", path="src/lighthouse.txt"),
        *called("b", "fs_create_file", "created", path="src/b.py", content="one\ntwo\n"),
    ]
    Builder(workspace_root).conversation(1, [turn])
    async with running(workspace_root, size=(120, 40)) as tui:
        await tui.open("jp-c17800000001")
        await tui.press("2", "t")
        await tui.until("Tool calls with diffs are unfolded")
        await tui.press("slash")
        await tui.type("lighthouse")
        await tui.until_hits()
        await tui.press("enter")
        await tui.until("│ the lighthouse keeper")
