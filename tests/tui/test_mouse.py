"""The mouse: opening, unfolding, scrolling, selecting."""

from support import Builder
from tui_support import Tui, running

TALK = "jp-c17800000001"


def row_of(tui: Tui, words: str) -> int:
    return next(n for n, row in enumerate(tui.text.split("\n")) if words in row)


async def test_a_click_opens_a_row(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.pilot.click(offset=(6, row_of(tui, "Retries")))
        await tui.until(lambda: tui.main.reader_pane.document_view.document.title == "Retries")
        await tui.pilot.click(offset=(6, row_of(tui, "people/")))
        await tui.until(lambda: "ada" in tui.rows("library-list"))


async def test_a_click_unfolds_and_another_folds(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open(TALK)
        line = row_of(tui, "▸ ✗ shell")
        await tui.pilot.click(offset=(50, line))
        await tui.until("no such target")
        await tui.pilot.click(offset=(50, line))
        await tui.until(lambda: "no such target" not in tui.text)


async def test_a_click_on_the_name_of_a_view_shows_it(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/start")
        row = row_of(tui, "read source learn")
        line = tui.text.split("\n")[row]
        reader = tui.main.reader_pane.document_view
        for view in ("learn", "source", "read"):
            await tui.pilot.click(offset=(line.index(view) + 1, row))
            await tui.until(lambda view=view: reader.document.view == view)
        await tui.pilot.click(offset=(line.index("characters"), row))
        await tui.pilot.pause()
        assert reader.document.view == "read"


async def test_the_wheel_scrolls_and_keeps_the_cursor_visible(book: Builder) -> None:
    book.subject("project/long.md", "\n\n".join(f"Paragraph {n}." for n in range(300)))
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open("project/long")
        reader = tui.main.reader_pane.document_view
        for _ in range(10):
            reader.post_message(_wheel(reader, down=True))
        await tui.until("Paragraph 15.")
        assert reader.viewport.cursor in [position for position, _ in reader.viewport.rows]
        assert "Paragraph 0." not in tui.text
        for _ in range(10):
            reader.post_message(_wheel(reader, down=False))
        await tui.until("Paragraph 0.")


def _wheel(widget, *, down: bool):  # type: ignore[no-untyped-def]
    from textual.events import MouseScrollDown, MouseScrollUp

    kind = MouseScrollDown if down else MouseScrollUp
    return kind(widget, 3, 3, 0, 0, 0, False, False, False)


async def test_the_scroll_bar_goes_to_any_part(book: Builder) -> None:
    book.subject("project/long.md", "\n\n".join(f"Paragraph {n}." for n in range(2000)))
    async with running(book.root, size=(100, 24)) as tui:
        await tui.open("project/long")
        reader = tui.main.reader_pane.document_view
        reader.scroll_to(y=reader.virtual_size.height // 2, animate=False)
        await tui.until(lambda: any(f"Paragraph {n}." in tui.text for n in range(900, 1100)))
        assert reader.viewport.cursor in [position for position, _ in reader.viewport.rows]


async def test_text_is_selected_and_copied(book: Builder) -> None:
    async with running(book.root) as tui:
        await tui.open("project/people/ada")
        line = row_of(tui, "Wrote the first program.")
        column = tui.text.split("\n")[line].index("Wrote")
        await tui.pilot.mouse_down(offset=(column, line))
        await tui.pilot.hover(offset=(column + 14, line))
        await tui.pilot.mouse_up(offset=(column + 14, line))
        await tui.pilot.pause()
        selected = tui.main.get_selected_text()
        assert selected is not None
        assert selected.startswith("Wrote the firs")
        await tui.press("ctrl+c")
        assert tui.app.clipboard.startswith("Wrote the firs")
