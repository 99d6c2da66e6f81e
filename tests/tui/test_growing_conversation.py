"""A conversation that JP is writing: followed at the end, and not scrolled while the user reads."""

import json
from typing import Any

from support import Builder, asked, called, said, write_json
from tui_support import Tui, running

TALK = "jp-c17800000030"
TIME = "2026-05-29 10:00:00.0"


class Written:
    """A conversation that is written several times per turn, each time as a new file."""

    def __init__(self, book: Builder) -> None:
        turns = [[asked(f"Question {n}"), said(f"Answer {n}")] for n in range(1, 13)]
        self.folder = book.conversation(30, turns, title="Live talk")
        self.events: list[dict[str, Any]] = json.loads((self.folder / "events.json").read_text())

    def flush(self, *events: dict[str, Any]) -> None:
        self.events += [{"timestamp": TIME, **event} for event in events]
        metadata = json.loads((self.folder / "metadata.json").read_text())
        write_json(self.folder / "metadata.json", {**metadata, "last_activated_at": TIME})
        write_json(self.folder / "events.json", self.events)


async def again(tui: Tui) -> None:
    """Do what an event of the engine does after the file changed."""
    before = tui.main.reader_pane.document_view.document
    tui.main.handle_files_changed({"event": "changed", "conversations": [TALK]})
    await tui.until(lambda: tui.main.reader_pane.document_view.document is not before)


async def test_at_the_end_every_flush_of_a_turn_is_followed(book: Builder) -> None:
    talk = Written(book)
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open(TALK)
        await tui.press("F")
        viewport = tui.main.reader_pane.document_view.viewport
        request, response = called("c1", "shell", "no luck", error=True, command="make")
        for event, words in (
            ({"type": "turn_start"}, "turn 13"),
            (asked("Question 13"), "Question 13"),
            (request, "no result"),
            (response, "✗ shell"),
            (said("Answer 13, in "), "Answer 13, in"),
            (said("two pieces."), "Answer 13, in two pieces."),
        ):
            talk.flush(event)
            await again(tui)
            assert words in tui.text
            assert viewport.cursor == viewport.document_end_position
            assert "new event" not in tui.text


async def test_scrolled_up_one_stays_put_and_is_told_that_there_is_more(book: Builder) -> None:
    talk = Written(book)
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open(TALK)
        viewport = tui.main.reader_pane.document_view.viewport
        tui.main.reader_pane.go_to_turn_or_line_number("4")
        rows = [line.plain for _, line in viewport.rows]
        talk.flush({"type": "turn_start"}, asked("Question 13"))
        await again(tui)
        assert "↓ 2 new events" in tui.text
        talk.flush(said("Answer 13"))
        await again(tui)
        assert "↓ 3 new events" in tui.text
        assert [line.plain for _, line in viewport.rows] == rows
        await tui.press("F")
        assert "Answer 13" in tui.text
        assert "new event" not in tui.text
        talk.flush(asked("And now?"))
        await again(tui)
        assert "And now?" in tui.text


async def test_what_is_unfolded_stays_so_and_a_half_written_file_breaks_nothing(
    book: Builder,
) -> None:
    talk = Written(book)
    talk.flush(*called("c1", "shell", "a long result", command="make"))
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open(TALK)
        await tui.press("F")
        while (
            "shell"
            not in (line := tui.main.reader_pane.document_view.viewport.current_styled_line).plain
        ):  # type: ignore[union-attr]
            assert line is not None
            await tui.press("k")
        await tui.press("enter")
        assert "a long result" in tui.text
        talk.flush(said("More."))
        await again(tui)
        assert "a long result" in tui.text
        whole = (talk.folder / "events.json").read_text()
        (talk.folder / "events.json").write_text(whole[: len(whole) - 40])
        await again(tui)
        assert "a long result" in tui.text
        talk.flush()
        await again(tui)
        assert "More." in tui.text
        for path in talk.folder.iterdir():
            path.unlink()
        talk.folder.rmdir()
        await tui.press("ctrl+r")
        await tui.until(f"{TALK} was deleted or renamed. This is its last text")
        assert "More." in tui.text


def shown_question(tui: Tui) -> str:
    """Return the first question that is shown at or below the cursor."""
    viewport = tui.main.reader_pane.document_view.viewport
    rows = [line.plain for at, line in viewport.rows if at >= viewport.cursor]
    return next(row for row in rows if "Question" in row)


async def test_when_turns_are_removed_the_reader_keeps_its_place_and_says_how_many(
    book: Builder,
) -> None:
    talk = Written(book)
    per_turn = 3  # an event that starts the turn, the question and the answer
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open(TALK)
        tui.main.reader_pane.go_to_turn_or_line_number("8")
        assert "Question 8" in shown_question(tui)
        # The first turns.
        del talk.events[: 2 * per_turn]
        talk.flush()
        await again(tui)
        assert "2 turns are gone from this conversation's file." in tui.text
        assert "Question 8" in shown_question(tui)
        assert "turn 6 of 10" in tui.text
        # The turn that is read.
        del talk.events[5 * per_turn : 6 * per_turn]
        talk.flush()
        await again(tui)
        assert "1 turn is gone" in tui.text
        assert "Question 9" in shown_question(tui)
        # All turns from here on.
        del talk.events[3 * per_turn :]
        talk.flush()
        await again(tui)
        assert "6 turns are gone" in tui.text
        assert "turn 3 of 3" in tui.text
