"""Keys that come in one go do what they would do one by one."""

import pytest
from support import Builder
from textual import events
from textual.widgets import Input
from tui_support import Tui, running

from kbtui.tui import ahead

KEYS = {"?": "question_mark", "/": "slash", ":": "colon", "#": "number_sign", " ": "space"}


async def at_once(tui: Tui, *parts: str | events.Paste) -> None:
    """Put all of it in the application's queue before it can deal with any of it."""
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


async def test_what_is_typed_behind_the_palettes_key_is_in_the_palette(book: Builder) -> None:
    async with running(book.root) as tui:
        await at_once(tui, ":", *"jump to")
        await tui.until(lambda: tui.app.screen is not tui.main)
        await tui.until(lambda: value(tui, "#palette-input") == "jump to")


async def test_a_turns_number_typed_in_one_go_is_gone_to(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("jp-c17800000001")
        await at_once(tui, "#", "2", "enter")
        await tui.until("turn 2 of 3")
        assert tui.app.screen is tui.main


async def test_a_pasted_text_stands_between_the_keys_around_it(book: Builder) -> None:
    async with running(book.root) as tui:
        await at_once(tui, "/", "a", events.Paste("bc"), "d")
        await tui.until(lambda: value(tui, "#search") == "abcd")


async def test_keys_behind_a_dialog_that_closes_go_where_it_was_opened(book: Builder) -> None:
    async with running(book.root) as tui:
        await at_once(tui, "?", "escape", "/", "x")
        await tui.until(lambda: tui.app.screen is tui.main and value(tui, "#search") == "x")


@pytest.mark.parametrize("dialog", ["?", ":", "#"])
async def test_a_key_after_a_dialog_was_closed_waits_for_nothing_else(
    book: Builder, dialog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What follows the key that closes a dialog goes with it: nobody may wait for that.
    monkeypatch.setattr(ahead, "GIVE_UP_SECONDS", 3_600.0)
    async with running(book.root) as tui:
        await at_once(tui, dialog)
        await tui.until(lambda: tui.app.screen is not tui.main)
        await at_once(tui, "escape")
        await tui.until(lambda: tui.app.screen is tui.main)
        await at_once(tui, "G")
        rows = tui.main.library_pane.list
        await tui.until(lambda: rows.index == len(rows.rows) - 1)
