"""Reading lays out and repaints only what changed, not the whole screen."""

from unittest import mock

import pytest
from support import Builder, asked, called, said
from textual.geometry import Region
from textual.widget import Widget
from tui_support import Tui, running

TURNS = [[asked(f"question {n}"), said(f"answer {n}\n\n" * 30)] for n in range(9)]


def layouts(tui: Tui) -> list[object]:
    """Return a list that gets an item for each layout of the screen from now on."""
    seen: list[object] = []
    tui.main.screen_layout_refresh_signal.subscribe(tui.main, seen.append)
    return seen


async def test_reading_on_lays_out_nothing_and_keeps_bar_and_border_right(book: Builder) -> None:
    book.conversation(500, TURNS, title="Long")
    async with running(book.root) as tui:
        await tui.open("jp-c17800000500")
        reader = tui.main.reader_pane.document_view
        tui.main.panes.focus_widget("#document")
        await tui.pilot.pause()
        seen = layouts(tui)
        for key in ("pagedown", "n", "j", "pageup", "pagedown", "k"):
            await tui.press(key)
            assert reader.virtual_size.height == reader.viewport.total_line_count
            bar = reader.vertical_scrollbar
            assert bar.window_virtual_size == reader.virtual_size.height
            assert bar.position == reader.scroll_y
            assert f" {reader.viewport.current_reference} ─╯" in tui.text
        assert seen == []
        assert reader.viewport.cursor.block > 0


async def test_a_new_size_is_laid_out_with_its_own_widths_at_once(book: Builder) -> None:
    async with running(book.root) as tui:
        widths: dict[int, int] = {}

        def note(_: object) -> None:
            widths.setdefault(tui.app.size.width, tui.main.library_pane.outer_size.width)

        tui.main.screen_layout_refresh_signal.subscribe(tui.main, note)
        for width, usual in ((200, 42), (80, 30), (120, 34)):
            await tui.pilot.resize_terminal(width, 40)
            await tui.until(lambda width=width: width in widths)
            assert widths[width] == usual
            await tui.until(lambda width=width: len(tui.text.split("\n", 2)[1]) == width)


async def test_what_is_painted_line_by_line_is_as_if_all_were_painted(book: Builder) -> None:
    book.conversation(501, TURNS, title="Long")
    async with running(book.root, size=(160, 30)) as tui:
        await tui.open("jp-c17800000501")
        for pane, keys in (
            ("#library-list", "j j k G k g j"),
            ("#document", "j k pagedown j n n t j r k p end g"),
        ):
            tui.main.panes.focus_widget(pane)
            await tui.pilot.pause()
            for key in keys.split():
                await tui.press(key)
                await tui.until(lambda: not tui.main.citations_pane.is_loading_citations)
                seen = tui.text
                for widget in tui.main.walk_children():
                    widget.refresh()
                await tui.pilot.pause()
                assert seen == tui.text, key


async def test_a_pane_that_is_shown_or_folded_leaves_all_widgets_with_their_right_styles(
    book: Builder,
) -> None:
    keys = "1 2 3 3 z 1 1 2 O tab 3 slash t escape 3 z ="
    async with running(book.root, size=(60, 24)) as tui:
        for width in (60, 90):
            await tui.pilot.resize_terminal(width, 24)
            for key in keys.split():
                await tui.press(key)
                widgets = list(tui.main.walk_children(with_self=True))
                seen = [widget.styles.base.get_rules() for widget in widgets]
                tui.main.update_node_styles(animate=False)
                assert seen == [widget.styles.base.get_rules() for widget in widgets], (width, key)


async def test_another_selection_paints_two_lines_of_a_list(book: Builder) -> None:
    async with running(book.root) as tui:
        rows = tui.main.library_pane.list
        tui.main.panes.focus_widget("#library-list")
        await tui.press("j")
        painted: list[tuple[Region, ...]] = []
        refresh = type(rows).refresh

        def noted(widget: Widget, *regions: Region, **named: bool) -> Widget:
            painted.append(regions)
            return refresh(widget, *regions, **named)

        with mock.patch.object(type(rows), "refresh", noted):
            await tui.press("j")
        assert [len(regions) for regions in painted] == [2]


async def assert_painted(tui: Tui) -> None:
    """Assert that repainting every widget changes nothing on the screen."""
    # Nothing may arrive in between.
    await tui.until(lambda: "searching by meaning" not in tui.text)
    seen = tui.text
    for widget in tui.main.walk_children():
        widget.refresh()
    await tui.pilot.pause()
    assert seen == tui.text


async def resize_there_and_back(tui: Tui) -> None:
    """Resize the terminal and back; hidden widgets get no resize event."""
    before = tui.app.size
    await tui.pilot.resize_terminal(before.width - 9, before.height - 5)
    await tui.pilot.pause()
    await tui.pilot.resize_terminal(*before)
    await tui.pilot.pause()


async def test_citations_of_an_opened_hit_are_its_own(book: Builder) -> None:
    async with running(book.root, size=(120, 35)) as tui:
        await tui.open("project/people/ada")
        await tui.until("No turn cites this")
        await tui.press("slash")
        await tui.type("clone build run")
        # The hit is previewed; its citations arrive while their pane is hidden.
        await tui.until(lambda: tui.main.reader_pane.document_view.document.key == "project/start")
        await tui.until(lambda: any("First steps" in row for row in tui.rows("citations-list")))
        await tui.press("enter")
        await tui.until(lambda: not tui.main.has_class("searching"))
        await tui.until(lambda: tui.main.citations_pane.region.width > 0)
        assert "turn 1 · " in tui.text
        assert "No turn cites this" not in tui.text
        await assert_painted(tui)


PANES = {
    "library": ("#library-list", "animal-aaa", "animal-bbb"),
    "reader": ("#document", "Wombat aaa.", "Wombat bbb."),
    "citations": ("#citations-list", "turn 1 · ", "No turn cites this"),
    "results": ("#results-list", "A quokka.", "A hippo."),
}
"""Pane -> its selector, and a text that it shows before and after a change."""


@pytest.mark.parametrize("is_resized", [False, True])
@pytest.mark.parametrize("pane", PANES)
async def test_what_changed_in_a_hidden_pane_shows_with_it(
    book: Builder, pane: str, is_resized: bool
) -> None:
    selector, before, after = PANES[pane]

    def write(word: str) -> None:
        for old in (book.root / "docs/project").glob("animal-*.md"):
            old.unlink()
        book.subject(f"project/animal-{word}.md", "# Animal\n\nA quokka.\n")
        book.subject("project/mammal.md", "# Mammal\n\nA hippo.\n")
        book.subject("project/start.md", "# Start\n\n" + "Line.\n\n" * 9 + f"Wombat {word}.\n")
        uses = called("a", "learn", "# Start", topic="project", subjects="start")
        book.conversation(1, [[asked("How?"), *uses]], title="First talk")

    def is_ready() -> bool:
        """Return whether the hidden pane has the new content."""
        reader, results = tui.main.reader_pane.document_view, tui.main.results_pane
        return {
            "library": lambda: after in tui.rows("library-list"),
            "reader": lambda: after in reader.document.blocks[-1].get_searchable_text(),
            "citations": lambda: any("No turn" in row for row in tui.rows("citations-list")),
            "results": lambda: bool(results.answer and results.answer.query == "hippo"),
        }[pane]()

    write("aaa")
    async with running(book.root, size=(120, 35)) as tui:
        await tui.open("project/start")
        await tui.until(lambda: any("First talk" in row for row in tui.rows("citations-list")))
        if pane == "results":
            await tui.press("slash")
            await tui.type("quokka")
            await tui.until(before)
            await tui.press("escape", "escape")
        tui.main.panes.focus_widget("#library-list" if pane == "reader" else "#document")
        await tui.press("z")
        await tui.until(lambda: tui.main.query_one(selector).region.width == 0)

        write("bbb")
        if pane == "results":
            # As if an answer came after the user had left the search.
            tui.main.search.search_new_query("hippo")
            tui.main.panes.focus_widget("#document")
        if pane == "citations":
            await tui.open("project/mammal")
        tui.main.action_reload()
        await tui.until(is_ready)
        if is_resized:
            await resize_there_and_back(tui)

        await tui.press("z")
        if pane == "results":
            await tui.press("4")
        await tui.until(lambda: tui.main.query_one(selector).region.width > 0)
        await tui.until(after)
        assert before not in tui.text
        await assert_painted(tui)
        await resize_there_and_back(tui)
        await tui.until(after)
        await assert_painted(tui)
