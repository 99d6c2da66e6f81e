"""Reading lays out and paints what changed, not the whole screen."""

from support import Builder, asked, said
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
