"""Keys typed ahead have the same effect as keys typed one by one."""

from typing import Any

import pytest
from support import Builder
from textual import events
from textual.widgets import Input
from tui_support import Tui, WithoutEngine, running, with_keys

from kbtui.tui import citations_pane
from kbtui.tui.app import KbtuiApp, TuiStartOptions
from kbtui.tui.framework import key_press_queue
from kbtui.workspace import load_settings

KEYS = {
    "'": "apostrophe",
    "?": "question_mark",
    "/": "slash",
    ":": "colon",
    "#": "number_sign",
    " ": "space",
}


async def at_once(tui: Tui, *parts: str | events.Paste) -> None:
    """Put all keys in the application's queue before it handles the first."""
    for part in parts:
        if isinstance(part, str):
            character = part if len(part) == 1 else None
            tui.app.post_message(events.Key(KEYS.get(part, part), character))
        else:
            tui.app.post_message(part)


def value(tui: Tui, selector: str) -> str:
    return str(tui.app.screen.query_one(selector, Input).value)


async def test_a_search_begun_right_after_opening_keeps_the_keys(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("j")
        await at_once(tui, "enter", "/", *"make")
        await tui.until(lambda: value(tui, "#search") == "make")
        await tui.until(lambda: tui.main.results_pane.answer is not None)
        focused = tui.app.focused
        assert focused is not None
        assert focused.id == "search"


async def test_text_typed_after_the_palettes_key_is_in_the_palette(book: Builder) -> None:
    async with running(book.root) as tui:
        await at_once(tui, ":", *"jump to")
        await tui.until(lambda: tui.app.screen is not tui.main)
        await tui.until(lambda: value(tui, "#palette-input") == "jump to")


async def test_a_turn_number_typed_ahead_is_reached(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("jp-c17800000001")
        await at_once(tui, "#", "2", "enter")
        await tui.until("turn 2 of 3")
        assert tui.app.screen is tui.main


async def test_pasted_text_stays_between_the_keys_around_it(book: Builder) -> None:
    async with running(book.root) as tui:
        await at_once(tui, "/", "a", events.Paste("bc"), "d")
        await tui.until(lambda: value(tui, "#search") == "abcd")


async def test_keys_typed_after_a_dialog_closes_reach_the_screen_below(book: Builder) -> None:
    async with running(book.root) as tui:
        await at_once(tui, "?", "escape", "/", "x")
        await tui.until(lambda: tui.app.screen is tui.main and value(tui, "#search") == "x")


@pytest.mark.parametrize("dialog", ["?", ":", "#"])
async def test_a_key_after_a_dialog_was_closed_waits_for_nothing_else(
    book: Builder, dialog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The follow-up of the key that closes a dialog is lost with the dialog.
    monkeypatch.setattr(key_press_queue, "FOLLOW_UP_TIMEOUT_SECONDS", 3_600.0)
    async with running(book.root) as tui:
        await at_once(tui, dialog)
        await tui.until(lambda: tui.app.screen is not tui.main)
        await at_once(tui, "escape")
        await tui.until(lambda: tui.app.screen is tui.main)
        await at_once(tui, "G")
        rows = tui.main.library_pane.list
        await tui.until(lambda: rows.index == len(rows.rows) - 1)


async def test_the_view_key_typed_twice_changes_the_view_twice(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/start")
        views = tui.main.reader_pane.document_view.document.views
        assert len(views) == 3
        await at_once(tui, "v", "v")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.view == views[2])
        # Not four keys: with three views, the first of them already shows what all four show.
        await at_once(tui, "v", "v")
        await tui.until(lambda: tui.main.reader_pane.document_view.document.view == views[1])


async def test_a_key_that_arrives_while_the_application_closes_is_ignored(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_screens = KbtuiApp._close_all

    async def close_screens_and_type(app: KbtuiApp) -> None:
        await close_screens(app)
        for key in "vv":
            await app.on_event(events.Key(key, key))

    monkeypatch.setattr(KbtuiApp, "_close_all", close_screens_and_type)
    async with running(book.root) as tui:
        assert tui.main is not None


async def test_keys_typed_after_opening_apply_to_what_was_opened(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("snippets/retry")
        await at_once(tui, "#", *"jp-c17800000001", "enter", "n", "n")
        await tui.until("turn 2 of 3")
        await at_once(tui, "#", *"project/style", "enter", "y")
        await tui.until("Copied project/style")
        await at_once(tui, "#", *"jp-c17800000001", "enter", "3", "enter")
        await tui.until(lambda: tui.main.document_controller.shown.key == "project/start")


async def test_a_citation_that_is_opened_right_after_another_turn_is_that_turns(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for the keys to arrive first, and shorter than a key waits.
    monkeypatch.setattr(citations_pane, "TURN_DELAY_SECONDS", 1.0)
    async with running(book.root) as tui:
        await tui.open("jp-c17800000001:3")
        await tui.until("No tool calls in")
        await at_once(tui, "N", "N", "3", "enter")
        await tui.until(lambda: tui.main.document_controller.shown.key == "project/start")


async def test_a_hit_is_opened_before_the_keys_that_follow(book: Builder) -> None:
    async with running(book.root) as tui:
        await at_once(tui, "/", *"retry how often", "enter", "y")
        await tui.until("Copied jp-c17800000002:1")
        assert value(tui, "#search") == "retry how often"


async def test_the_next_match_is_gone_to_when_the_matches_are_known(book: Builder) -> None:
    builder = book
    builder.subject("project/long.md", "# Long\n\n" + "a needle\n\nand hay\n\n" * 40)
    async with running(builder.root) as tui:
        await tui.open("project/long")
        await at_once(tui, "f", *"needle", "enter", "n", "n")
        await tui.until("3 of 40")


async def test_the_palette_gives_what_was_typed_and_not_what_was_listed_before(
    book: Builder,
) -> None:
    async with running(book.root) as tui:
        await at_once(tui, ":", *"snippets/retry", "enter")
        await tui.until(lambda: tui.app.screen is tui.main)
        await tui.until(lambda: tui.main.document_controller.shown.key == "snippets/retry")


async def test_a_note_typed_right_behind_its_key_is_the_bookmarks(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/start")
        await at_once(tui, "B", *"never mind", "enter", "'")
        await tui.until(lambda: "never mind" in tui.text and "Bookmarks" in tui.text)


async def test_keys_typed_into_a_filter_of_entries_choose_among_what_it_leaves(
    book: Builder,
) -> None:
    async with running(book.root) as tui:
        tui.app.library.open_index_reader()
        await at_once(tui, "E", "f", *"times", "enter", "2")
        await tui.until(lambda: tui.app.screen is tui.main)
        await tui.until(lambda: tui.main.document_controller.shown.key == "snippets/retry")


async def test_a_mark_set_before_the_topics_are_read_is_set(book: Builder) -> None:
    async with running(book.root, size=(140, 50)) as tui:
        await tui.open("project/start")
        await at_once(tui, "P", "space", "ctrl+s")
        await tui.until("This will be written")
        assert "Nothing has been written yet" in tui.text


class Failing(WithoutEngine):
    """A library that cannot search."""

    def search_by_keywords(self, question: Any, **options: Any) -> Any:
        raise OSError("no such disk")

    search = search_by_keywords  # type: ignore[assignment]


async def test_after_a_search_that_failed_no_key_waits_for_its_hits(book: Builder) -> None:
    library = Failing(book.workspace, load_settings())
    async with running(book.root, library=library) as tui:
        await at_once(tui, "/", "x", "enter")
        await tui.until("The search failed: no such disk")
        await tui.until(lambda: not tui.main.search.is_opening_hit)
        assert not tui.main.should_key_wait("y")


async def test_enter_that_was_typed_before_the_screen_was_there_opens(book: Builder) -> None:
    # Until the screen is there, the terminal turns Enter into a line feed.
    start = TuiStartOptions(fresh=True, typed="/program\n")
    async with running(book.root, size=(120, 40), start=start) as tui:
        await tui.until(lambda: getattr(tui.app.focused, "id", "") == "document")
        assert "Wrote the first program." in tui.text


async def test_a_line_feed_can_be_a_configured_key(book: Builder) -> None:
    library = with_keys(book, {"help": "ctrl+j"})
    async with running(book.root, size=(120, 40), library=library) as tui:
        await tui.press("ctrl+j")
        await tui.until("In the library")
