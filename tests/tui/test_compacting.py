"""What the model sees after compaction, as JP computes it."""

from pathlib import Path
from typing import Any

from support import Builder, asked, called, said, write_json
from tui_support import PRESENT, running

from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.tui.reader.conversation_document_builder import build_conversation_document
from kbtui.tui.reader.document_view import DocumentViewport

TALK = "jp-c17800000001"


def compaction(first: int, last: int, when: str = "11:00", **policy: Any) -> dict[str, Any]:
    stamp = f"2026-05-29 {when}:00.0"
    return {
        "timestamp": stamp,
        "type": "compaction",
        "from_turn": first - 1,
        "to_turn": last - 1,
        **policy,
    }


def summary(text: str) -> dict[str, Any]:
    return {"summary": {"summary": text}}


def write(root: Path, *compactions: dict[str, Any]) -> Builder:
    builder = Builder(root)
    turns = [
        [
            asked(f"Question {n}"),
            {"type": "chat_response", "reasoning": f"Thought {n}"},
            *called(f"c{n}", "fs_read_file", f"content {n}", path=f"file{n}"),
            said(f"Answer {n}"),
        ]
        for n in range(1, 6)
    ]
    folder = builder.conversation(1, turns, title="Compacted talk")
    if compactions:
        import json

        events = json.loads((folder / "events.json").read_text())
        write_json(folder / "events.json", [*events, *compactions])
    return builder


def seen(root: Path, *compactions: dict[str, Any]) -> str:
    builder = write(root, *compactions)
    conversation = load_conversation(find_conversation(builder.workspace, "jp-c17800000001"))
    viewport = DocumentViewport()
    viewport.resize(90, 400)
    viewport.show_document(build_conversation_document(conversation, PRESENT))
    for kind in ("tool", "reasoning"):
        viewport.toggle_folds_of_kind(kind)
    whole = [line.plain for _, line in viewport.rows]
    assert sum("Question" in line for line in whole) == 5
    viewport.show_or_hide_model_view(True)
    text = "\n".join(line.plain.rstrip() for _, line in viewport.rows)
    viewport.show_or_hide_model_view(False)
    assert [line.plain for _, line in viewport.rows] == whole
    return text


def test_a_summary_replaces_its_turns(workspace_root: Path) -> None:
    text = seen(workspace_root, compaction(2, 3, **summary("What went before.")))
    assert "summary in place of turns 2–3" in text
    assert text.count("What went before.") == 1
    assert "Question 1" in text
    assert "Question 2" not in text
    assert "Question 3" not in text
    assert "Question 4" in text


def test_a_newer_inner_summary_splits_an_older_one(workspace_root: Path) -> None:
    text = seen(
        workspace_root,
        compaction(3, 3, "12:00", **summary("Inner.")),
        compaction(1, 9, "11:00", **summary("Outer.")),
    )
    for words in ("in place of turns 1–2", "in place of turn 3", "in place of turns 4–5"):
        assert words in text
    assert text.count("Outer.") == 2
    assert text.count("Inner.") == 1
    assert "Question" not in text


def test_reasoning_and_calls_are_removed_according_to_their_policy(workspace_root: Path) -> None:
    text = seen(
        workspace_root,
        compaction(1, 1, reasoning="strip"),
        compaction(2, 2, tool_calls={"policy": "omit"}),
        compaction(3, 3, tool_calls={"policy": "strip", "request": True, "response": True}),
        compaction(4, 4, tool_calls={"policy": "strip", "response": True}),
        compaction(4, 4, "12:00", tool_calls={"policy": "strip", "request": True}),
    )
    assert "Thought 1" not in text
    assert "content 1" in text
    assert "Thought 2" in text
    assert "content 2" not in text
    assert "file2" not in text
    assert "content 3" not in text
    assert "path: file3" not in text
    assert "[compacted] fs_read_file: success" in text
    assert "content 4" in text  # the later of two policies applies
    assert "path: file4" not in text
    assert all(f"Question {n}" in text for n in range(1, 6))


async def test_a_key_shows_what_the_model_sees_at_the_current_line(workspace_root: Path) -> None:
    builder = write(workspace_root, compaction(2, 3, **summary("What went before.")))
    async with running(builder.root, size=(100, 25)) as tui:
        await tui.open(TALK)
        viewport = tui.main.reader_pane.document_view.viewport
        assert "compacted for the model: turns 2–3, replaced" in tui.text
        tui.main.reader_pane.go_to_turn_or_line_number("4")
        assert viewport.current_styled_line is not None
        line = viewport.current_styled_line.plain
        await tui.press("c")
        assert "as the model sees it" in tui.text
        assert viewport.current_styled_line.plain == line
        await tui.press("k")
        assert "What went before." in tui.text
        await tui.press("j")
        await tui.press("N")
        assert "turn 1 of 5" in tui.text  # turns 2 and 3 are not there
        await tui.press("c")
        assert "as the model sees it" not in tui.text
        tui.main.reader_pane.go_to_turn_or_line_number("3")
        await tui.press("c")
        assert viewport.current_styled_line is not None
        assert "What went before." in viewport.current_styled_line.plain
        await tui.press("f")
        await tui.type("question")
        await tui.until("of 3")


async def test_a_conversation_without_compaction_says_so(workspace_root: Path) -> None:
    builder = write(workspace_root)
    async with running(builder.root) as tui:
        await tui.open(TALK)
        await tui.press("c")
        await tui.until("Nothing is compacted, so the model sees everything.")
