"""Reading lays out and paints what changed, not the whole screen."""

from unittest import mock

from support import Builder, asked, said
from textual.geometry import Region
from textual.widget import Widget
from tui_support import Tui, running

TURNS = [[asked(f"question {n}"), said(f"answer {n}\n\n" * 30)] for n in range(9)]


def layouts(tui: Tui) -> list[object]:
    """One for each time that the screen is laid out from now on."""
    seen: list[object] = []
    tui.main.screen_layout_refresh_signal.subscribe(tui.main, seen.append)
    return seen


async def test_reading_on_lays_out_nothing_and_keeps_bar_and_border_right(book: Builder) -> None:
    book.conversation(500, TURNS, title="Long")
    async with running(book.root) as tui:
        await tui.open("jp-c17800000500")
        reader = tui.main.reader_pane.reader
        tui.main.go("#reader")
        await tui.pilot.pause()
        seen = layouts(tui)
        for key in ("pagedown", "n", "j", "pageup", "pagedown", "k"):
            await tui.press(key)
            assert reader.virtual_size.height == reader.port.heights.total
            bar = reader.vertical_scrollbar
            assert bar.window_virtual_size == reader.virtual_size.height
            assert bar.position == reader.scroll_y
            assert f" {reader.port.reference} ─╯" in tui.text
        assert seen == []
        assert reader.port.cursor.block > 0


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
            ("#reader", "j k pagedown j n n t j r k p end g"),
        ):
            tui.main.go(pane)
            await tui.pilot.pause()
            for key in keys.split():
                await tui.press(key)
                await tui.pilot.pause()
                seen = tui.text
                for widget in tui.main.walk_children():
                    widget.refresh()
                await tui.pilot.pause()
                assert seen == tui.text, key


async def test_another_selection_paints_two_lines_of_a_list(book: Builder) -> None:
    async with running(book.root) as tui:
        rows = tui.main.library_pane.list
        tui.main.go("#library-list")
        await tui.press("j")
        painted: list[tuple[Region, ...]] = []
        refresh = type(rows).refresh

        def noted(widget: Widget, *regions: Region, **named: bool) -> Widget:
            painted.append(regions)
            return refresh(widget, *regions, **named)

        with mock.patch.object(type(rows), "refresh", noted):
            await tui.press("j")
        assert [len(regions) for regions in painted] == [2]
