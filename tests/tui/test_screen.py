"""The whole screen: sizes, panes and their keys, help, palette, themes; with snapshots."""

from typing import Any

import pytest
from support import Builder
from textual.color import Color
from tui_support import Tui, WithoutEngine, clock, running

from kbtui.tui.theme import DARK, LIGHT
from kbtui.tui.tui_command_table import MAIN_SCREEN_COMMANDS, SCOPES, make_key_bindings_of_scopes
from kbtui.workspace import load_settings

TALK = "jp-c17800000001"


def panes(tui: Tui) -> list[str]:
    names = ("library", "results", "reader", "citations")
    return [name for name in names if tui.main.query_one(f"#{name}").size.width > 0]


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((160, 50), ["library", "reader", "citations"]),
        ((120, 40), ["library", "reader", "citations"]),
        ((80, 24), ["library", "reader"]),
        ((60, 20), ["library"]),
        ((40, 10), ["library"]),
    ],
)
async def test_as_many_panes_show_as_there_is_room_for(
    book: Builder, size: tuple[int, int], shown: list[str]
) -> None:
    async with running(book.root, size=size) as tui:
        assert panes(tui) == shown
        # A folded pane is unfolded by its key.
        for key, name in (("2", "reader"), ("3", "citations"), ("1", "library")):
            await tui.press(key)
            await tui.until(lambda name=name: name in panes(tui))
            assert tui.main.panes.focused_pane_id == name
        await tui.press("slash", "m", "a", "k", "e")
        await tui.until(lambda: "results" in panes(tui))
        await tui.press("enter")
        await tui.until(lambda: panes(tui) and "reader" in panes(tui))
        lines = tui.text.split("\n")
        assert len(lines) == size[1]
        assert max(map(len, lines)) <= size[0]


async def test_no_size_breaks_it(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        for size in ((20, 5), (12, 3), (300, 90)):
            await tui.open(TALK)
            await tui.pilot.resize_terminal(*size)
            for key in (
                "1",
                "j",
                "2",
                "G",
                "3",
                "4",
                "escape",
                "question_mark",
                "j",
                "escape",
                "t",
            ):
                await tui.press(key)
                tui.paint()
            await tui.pilot.resize_terminal(80, 24)
            await tui.press("2")
            await tui.until("You")


async def test_the_citations_are_shown_and_folded_where_room_is_short(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open(TALK)
        await tui.press("3")
        await tui.until(lambda: panes(tui) == ["reader", "citations"])
        await tui.press("underscore")
        await tui.until(lambda: "citations" not in panes(tui))
        assert tui.app.focused is tui.main.reader_pane.document_view


async def test_tab_goes_round_the_panes(book: Builder) -> None:
    async with running(book.root) as tui:
        seen = []
        for _ in range(4):
            seen.append(tui.main.panes.focused_pane_id)
            await tui.press("tab")
        assert seen == ["library", "reader", "citations", "library"]
        await tui.press("shift+tab")
        assert tui.main.panes.focused_pane_id == "library"


async def test_help_explains_the_keys_of_where_one_is(book: Builder) -> None:
    async with running(book.root, size=(100, 60)) as tui:
        await tui.press("question_mark")
        await tui.until("In the library")
        assert tui.text.index("In the library") < tui.text.index("Find and open")
        await tui.press("escape", "2", "question_mark")
        await tui.until("In the reader")
        assert tui.text.index("In the reader") < tui.text.index("Moving inside a pane")
        assert "Go to the next turn or change, or to the next" in tui.text
        await tui.press("q")
        assert "In the reader" not in tui.text
        assert tui.app.is_running


async def test_every_command_is_in_the_help(book: Builder) -> None:
    from kbtui.tui.generated_reader_pages import build_main_help_document

    text = "\n".join(
        block.get_searchable_text() for block in build_main_help_document(("reader",), {}).blocks
    )
    assert all(command.help in text for command in MAIN_SCREEN_COMMANDS)


def test_commands_have_ids_of_their_own_and_keys_that_do_not_clash() -> None:
    assert len({command.id for command in MAIN_SCREEN_COMMANDS}) == len(MAIN_SCREEN_COMMANDS)
    for scope in SCOPES:
        scopes = {scope, "everywhere"} | ({"moving"} if scope != "everywhere" else set())
        keys = [key for c in MAIN_SCREEN_COMMANDS if c.scope in scopes for key in c.keys.split(",")]
        # Esc ends the innermost step, and is passed on if a pane has nothing to end.
        keys = [key for key in keys if key != "escape"]
        assert len(keys) == len(set(keys)), (scope, sorted(keys))
    assert {binding.id for binding in make_key_bindings_of_scopes(*SCOPES)} == {
        command.id for command in MAIN_SCREEN_COMMANDS
    }


@pytest.mark.parametrize("command", MAIN_SCREEN_COMMANDS, ids=lambda command: command.id)
async def test_every_command_has_its_action_where_it_is_bound(book: Builder, command) -> None:  # type: ignore[no-untyped-def]
    from kbtui.tui.app import KbtuiApp
    from kbtui.tui.citations_pane import CitationsPane
    from kbtui.tui.framework.row_list import RowList
    from kbtui.tui.library_pane import LibraryPane
    from kbtui.tui.main.main_screen import MainScreen
    from kbtui.tui.reader.document_view import DocumentView
    from kbtui.tui.reader.reader_pane import ReaderPane
    from kbtui.tui.search_pane import SearchResultsPane

    main = MainScreen(WithoutEngine(book.workspace, load_settings()), clock)
    owners: dict[str, list[Any]] = {
        "library": [LibraryPane],
        "reader": [ReaderPane],
        "citations": [CitationsPane],
        "results": [SearchResultsPane],
        "moving": [RowList, DocumentView],
        "everywhere": [main],
    }[command.scope]
    place, _, name = command.action.partition("(")[0].rpartition(".")
    owners = {"app": [KbtuiApp], "screen": [main]}.get(place, owners)
    assert all(hasattr(owner, f"action_{name}") for owner in owners)


async def test_the_palette_finds_commands_topics_subjects_and_conversations(book: Builder) -> None:
    async with running(book.root) as tui:
        for words, kind, then in (
            ("ada", "subject", "Wrote the first program."),
            ("retries", "conversation", "Retry how often?"),
            ("handbook", "topic", "what everybody here should know"),
            ("knowledge prompt", "command", "<knowledge>"),
            ("c17800000003", "conversation", "Pin me"),
        ):
            await tui.press("ctrl+p")
            await tui.until(lambda: len(tui.app.screen_stack) == 2)
            await tui.until(lambda: getattr(tui.app.focused, "id", "") == "palette-input")
            await tui.type(words)
            listed = tui.app.screen.list  # type: ignore[attr-defined]
            await tui.until(
                lambda listed=listed, kind=kind: bool(
                    listed.rows and listed.rows[0].left[0][0].strip() == kind
                )
            )
            await tui.press("enter")
            await tui.until(then)


async def test_the_palette_does_what_was_chosen(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("ctrl+p")
        await tui.until(lambda: getattr(tui.app.focused, "id", "") == "palette-input")
        await tui.type("light theme")
        await tui.press("enter")
        await tui.until(lambda: tui.app.theme == LIGHT)
        await tui.press("colon")
        await tui.until(lambda: getattr(tui.app.focused, "id", "") == "palette-input")
        await tui.type("filter")
        await tui.press("escape")
        await tui.until(lambda: len(tui.app.screen_stack) == 1)


def contrast(one: Color, other: Color) -> float:
    def luminance(color: Color) -> float:
        parts = [c / 255 for c in (color.r, color.g, color.b)]
        red, green, blue = (
            p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [DARK, LIGHT])
async def test_every_role_can_be_read_on_every_ground(book: Builder, theme: str) -> None:
    from kbtui.tui.framework.base_screens_and_widgets import TEXT_STYLES

    quiet = {"rule", "cursor", "cursor-off", "code"}
    async with running(book.root) as tui:
        tui.app.theme = theme
        await tui.pilot.pause()
        screen = tui.main
        ground = {
            name: Color.from_rich_color(style.bgcolor)
            for name, style in (
                ("plain", screen.query_one("#document").rich_style),
                ("cursor", screen.get_role_style("cursor")),
                ("cursor-off", screen.get_role_style("cursor-off")),
                ("code", screen.get_role_style("code")),
            )
            if style.bgcolor
        }
        assert set(ground) == {"plain", "cursor", "cursor-off", "code"}
        for role in sorted(TEXT_STYLES.keys() - quiet):
            style = screen.get_role_style(role)
            color = style.color or screen.query_one("#document").rich_style.color
            assert color is not None
            for name, back in ground.items():
                behind = Color.from_rich_color(style.bgcolor) if style.bgcolor else back
                ratio = contrast(Color.from_rich_color(color), behind)
                assert ratio >= 4.5, (theme, role, name, round(ratio, 2))


async def test_without_colours_the_place_one_is_at_still_shows(
    book: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running(book.root) as tui:
        assert tui.app.no_color
        await tui.press("j", "j")
        selected = tui.main.library_pane.list.selected_row
        assert selected is not None
        name = selected.left[-1][0]
        assert any("▎" in row and name in row for row in tui.text.split("\n"))


async def test_ctrl_c_says_how_to_leave_and_does_when_pressed_again(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.press("ctrl+c")
        assert tui.app.is_running
        assert "Nothing selected. Press Ctrl+C again to quit." in tui.text
        await tui.pilot.press("ctrl+c")
    assert not tui.app.is_running


async def test_a_low_terminal_still_shows_the_most_important_keys(book: Builder) -> None:
    async with running(book.root, size=(40, 12)) as tui:
        for wanted in ("/ search", "? help", "q quit"):
            assert wanted in tui.text.split("\n")[-1]


async def test_the_keys_of_the_entries_are_hinted_at_in_a_usual_terminal(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        assert "E entries" in tui.text.split("\n")[-1]
        await tui.press("E")
        await tui.until("d delete")


async def test_the_citations_hint_at_the_way_back_in_a_usual_terminal(book: Builder) -> None:
    async with running(book.root, size=(80, 24)) as tui:
        await tui.open(TALK)
        await tui.press("3")
        await tui.until("Esc back")
