"""A dialog that is closed twice closes once, and the screen below stays."""

import pytest
from support import Builder
from textual.events import Key
from textual.widgets import Input
from tui_support import running

from kbtui.tui.doctor_screen import DoctorScreen
from kbtui.tui.framework.dialogs import ChoiceField, FormDialog, FormField, OptionsDialog
from kbtui.tui.main.main_screen import MainScreen


async def test_a_second_key_before_the_options_close_is_ignored(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/start")
        await tui.press("Y")
        await tui.until(lambda: isinstance(tui.app.screen, OptionsDialog))
        # Both keys arrive before the first is handled, as when typed fast on a slow machine.
        for _ in range(2):
            tui.app.screen.post_message(Key("c", "c"))
        await tui.until(lambda: isinstance(tui.app.screen, MainScreen))
        await tui.until(lambda: tui.app.clipboard)
        assert tui.app.clipboard == "kbtui show project/start"


async def test_closing_twice_keeps_the_screen_below(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("D")
        await tui.until(lambda: isinstance(tui.app.screen, DoctorScreen))
        doctor = tui.app.screen
        chosen: list[object] = []
        tui.app.push_screen(above := OptionsDialog("One of", []), chosen.append)
        await tui.until(lambda: tui.app.screen is above and above.is_mounted)
        above.dismiss("one")
        above.dismiss("two")
        await tui.until(lambda: chosen == ["one"])
        assert tui.app.screen is doctor


async def test_typing_a_choice_selects_it_and_one_letter_goes_round(book: Builder) -> None:
    topics = ("guide", "engineering", "people", "english")
    async with running(book.root) as tui:
        form = FormDialog("New", (FormField("topic", "topic", "guide", choices=topics),), dict, str)
        tui.app.push_screen(form)
        await tui.until(lambda: bool(form.query(ChoiceField)))
        field = form.query_one(ChoiceField)
        field.focus()
        turns = [
            ("engineering", "engineering"),
            ("e", "english"),
            ("e", "engineering"),
            ("p", "people"),
        ]
        for typed, chosen in turns:
            for letter in typed:
                await tui.press(letter)
            assert field.value == chosen


@pytest.mark.parametrize("key", ["down", "tab"])
async def test_a_key_goes_to_the_next_field_of_a_form_at_once(book: Builder, key: str) -> None:
    async with running(book.root) as tui:
        fields = FormField("note", "note"), FormField("file", "file")
        tui.app.push_screen(form := FormDialog("New", fields, dict, str))
        await tui.until(lambda: form.focused is not None)
        await tui.press(key, "x")
        values = [one.value for one in form.query(Input)]
        assert values == ["", "x"]
        await tui.press("up", "y")
        assert [one.value for one in form.query(Input)] == ["y", "x"]


@pytest.mark.parametrize("size", [(40, 12), (40, 9), (80, 24)])
async def test_a_form_shows_the_field_its_help_and_its_keys_in_any_terminal(
    book: Builder, size: tuple[int, int]
) -> None:
    async with running(book.root, size=size) as tui:
        await tui.press("E")
        await tui.press("+")
        await tui.until(lambda: isinstance(tui.app.screen, FormDialog))
        for name, words in (
            ("title", "Title of the entry"),
            ("topic", "Topic of the entry"),
            ("type", ""),
            ("tags", "Comma-separated"),
            ("file name", "Separate folders"),
        ):
            await tui.until(words)
            # The field is scrolled into view after its help.
            await tui.until(
                lambda name=name: (
                    name in [row.strip(" │").split("  ")[0] for row in tui.text.split("\n")]
                )
            )
            assert "Enter next" in tui.text
            focused = tui.app.focused
            assert focused is not None
            assert tui.app.screen.find_widget(focused).visible_region.height == 1
            await tui.press("enter")
        await tui.until("A subject needs a title")
        assert "Enter next" in tui.text
