"""A large conversation: its beginning shows while the rest loads, and its memory is freed."""

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support import Builder, asked, called, said
from tui_support import Tui, running

from kbtui.conversations.conversation_data_types import Conversation
from kbtui.tui.reader.reader_document import MANY_BLOCKS, ReaderDocument

pytestmark = pytest.mark.slow

TALK = "jp-c17800000001"
TURNS = 1_200


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one conversation of several megabytes."""
    root = tmp_path_factory.mktemp("big")
    (root / ".jp").mkdir()
    words = "Some words that fill a line of text.\n" * 60
    turns = [
        [asked(f"Question {n}?"), *called(f"c{n}", "shell", words, command=f"run {n}"), said(words)]
        for n in range(1, TURNS + 1)
    ]
    Builder(root).conversation(1, turns, title="Big talk")
    return root


def lines(tui: Tui) -> list[str]:
    return [line.plain for _, line in tui.main.reader_pane.document_view.viewport.rows]


async def test_the_beginning_shows_while_the_rest_loads(big: Path) -> None:
    read = threading.Event()
    from kbtui.library import Library

    whole = Library.load_conversation

    def slow(self: Library, conversation: str) -> Conversation:
        read.wait(60)
        return whole(self, conversation)

    async with running(big, size=(100, 30)) as tui:
        reader = tui.main.reader_pane.document_view
        with mock.patch.object(Library, "load_conversation", slow):
            tui.main.open_target_in_reader(place(tui, TALK))
            await tui.until("Question 1?")
            assert reader.document.is_partial
            assert "or more" not in tui.text  # one stands before the first turn
            await tui.press("n", "n", "n")
            assert "turn 3 of" in tui.text
            assert "or more" in tui.text
            assert "reading the rest" in tui.text
            before = lines(tui)
            read.set()
            await tui.until(lambda: not reader.document.is_partial)
        assert lines(tui) == before
        assert f"turn 3 of {TURNS:,}" in tui.text
        assert "reading the rest" not in tui.text
        await tui.press("G")
        await tui.until(f"turn {TURNS:,} of {TURNS:,}")


@pytest.mark.slow
async def test_opening_waits_for_a_turn_beyond_the_beginning(big: Path) -> None:
    async with running(big, size=(100, 30)) as tui:
        await tui.open(f"{TALK}:1100")
        await tui.until("turn 1,100 of 1,200")
        assert not tui.main.reader_pane.document_view.document.is_partial


@pytest.mark.slow
async def test_a_closed_document_is_freed_without_the_collector(big: Path) -> None:
    async with running(big, size=(100, 30)) as tui:
        reader = tui.main.reader_pane.document_view
        await tui.open(TALK)
        await tui.until(lambda: not reader.document.is_partial)
        document = reader.document
        assert len(document.blocks) > MANY_BLOCKS
        gone = [weakref.ref(document), weakref.ref(document.record)]
        gc.disable()
        try:
            del document
            tui.main.action_home()
            await tui.until(lambda: reader.document.key == "home")
            await tui.until(lambda: all(one() is None for one in gone))
        finally:
            gc.enable()


def place(tui: Tui, ref: str):  # type: ignore[no-untyped-def]
    from kbtui.tui.navigation_target import make_navigation_target

    return make_navigation_target(tui.app.library.parse_entered_reference(ref))


@pytest.mark.slow
async def test_folds_and_views_keep_the_current_line(big: Path) -> None:
    async with running(big, size=(100, 30)) as tui:
        reader = tui.main.reader_pane.document_view
        await tui.open(TALK)
        await tui.until(lambda: not reader.document.is_partial)
        tui.main.reader_pane.go_to_turn_or_line_number("600")
        assert reader.viewport.current_styled_line is not None
        line = reader.viewport.current_styled_line.plain
        for key in ("t", "r", "t"):
            await tui.press(key)
            assert reader.viewport.current_styled_line is not None
            assert reader.viewport.current_styled_line.plain == line
        await tui.pilot.resize_terminal(70, 20)
        await tui.until(
            lambda: (
                reader.viewport.current_styled_line is not None
                and "turn 600" in reader.viewport.current_styled_line.plain
            )
        )
        # The scroll bar is about half way down.
        share = reader.scroll_y / reader.virtual_size.height
        assert 0.4 < share < 0.6
        assert reader.viewport.layout_count < 1_000


async def test_a_hit_in_a_huge_turn_is_searched_for_in_a_thread(
    workspace_root: Path,
) -> None:
    import json

    from kbtui.references import make_conversation_ref
    from kbtui.tui.navigation_target import NavigationTarget
    from kbtui.tui.reader import reader_pane

    builder = Builder(workspace_root)
    words = "Some words that fill a line of text.\n" * 20
    folder = builder.conversation(1, [[asked(f"Question {n}?"), said(words)] for n in range(2_500)])
    # Before March 2026 JP wrote no turn markers: the whole conversation is one turn.
    events = json.loads((folder / "events.json").read_text())
    unmarked = [event for event in events if event["type"] != "turn_start"]
    (folder / "events.json").write_text(json.dumps(unmarked, indent=2) + "\n")
    looked = []
    found = reader_pane.find_start_block_and_match

    def remembered(*args):  # type: ignore[no-untyped-def]
        looked.append(threading.current_thread())
        return found(*args)

    async with running(builder.root, size=(100, 30)) as tui:
        ref = make_conversation_ref("jp-c17800000001", 1)
        passage = "Question 1777?"
        with mock.patch.object(reader_pane, "find_start_block_and_match", remembered):
            tui.main.open_target_in_reader(
                NavigationTarget(TALK, ref=ref, words=("1777",), text=passage)
            )
            await tui.until("Question 1777?")
        assert tui.main.reader_pane.document_view.viewport.current_turn_number == 1
        assert looked
        assert threading.current_thread() not in looked


async def test_an_unchanged_conversation_is_not_read_again(big: Path) -> None:
    async with running(big, size=(100, 30)) as tui:
        reader = tui.main.reader_pane.document_view
        await tui.open(TALK)
        await tui.until(lambda: not reader.document.is_partial)
        document = reader.document
        from kbtui.library import Library

        looked: list[object] = []
        find = Library.find_conversation

        def looking(*values: Any) -> object:
            looked.append(values)
            return find(*values)

        with (
            mock.patch.object(Library, "find_conversation", looking),
            mock.patch.object(Library, "load_conversation", side_effect=AssertionError),
        ):
            tui.main.document_controller.reload_shown_document()
            await tui.until(lambda: bool(looked))
            await tui.pilot.pause(0.1)
        assert "cannot open" not in tui.text.lower()
        assert reader.document is document
        (events,) = big.glob(".jp/conversations/*/events.json")
        said = events.read_text()
        events.write_text(said.replace("Question 1?", "Another question?", 1))
        tui.main.document_controller.reload_shown_document()
        await tui.until("Another question?")
        events.write_text(said)


@contextmanager
def noted() -> Iterator[list[weakref.ref[ReaderDocument]]]:
    """Yield a list that gets each conversation document built from now on."""
    from kbtui.tui.reader import conversation_document_builder as conversation

    make = conversation.build_conversation_document
    made: list[weakref.ref[ReaderDocument]] = []

    def noting(*values: Any, **named: Any) -> ReaderDocument:
        document = make(*values, **named)
        made.append(weakref.ref(document))
        return document

    with mock.patch.object(conversation, "build_conversation_document", noting):
        yield made


async def test_a_document_that_was_never_shown_is_freed_without_the_collector(big: Path) -> None:
    from kbtui.tui.navigation_target import HOME

    async with running(big, size=(100, 30)) as tui:
        with noted() as made:
            gc.disable()
            try:
                tui.main.open_target_in_reader(place(tui, TALK))
                await tui.until(lambda: bool(made))
                tui.main.open_target_in_reader(HOME)
                await tui.until(lambda: len(made) == 2)
                await tui.until(lambda: all(one() is None for one in made))
            finally:
                gc.enable()
        assert tui.main.reader_pane.document_view.document.key == "home"


async def test_however_often_it_changes_nothing_is_read_for_nobody(big: Path) -> None:
    (events,) = big.glob(".jp/conversations/*/events.json")
    said = events.read_text()
    async with running(big, size=(100, 30)) as tui:
        reader = tui.main.reader_pane.document_view
        await tui.open(TALK)
        await tui.until(lambda: not reader.document.is_partial)
        with noted() as made:
            try:
                for words in ("Another question?", "A third one?"):
                    events.write_text(said.replace("Question 1?", words, 1))
                    for _ in range(5):
                        tui.main.document_controller.reload_shown_document()
                await tui.until("A third one?")
                await tui.pilot.pause(0.5)
                assert len(made) <= 2
            finally:
                events.write_text(said)
