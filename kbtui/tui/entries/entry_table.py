"""The table of the entries screen, whose rows are read page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message

from kbtui.dates import format_unix_time_as_day
from kbtui.index.entry_query import EntryFilter, EntryPage, EntryRow, query_entry_page
from kbtui.library.index_and_engine_access import get_current_cancellation
from kbtui.text import cut_to_width, format_parent_of_title, measure_text_width, one_line
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.reader.reader_document import format_size

if TYPE_CHECKING:
    from datetime import datetime

    from textual.strip import Strip

    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans


PAGE_ROWS = 200
MAX_PAGE_ROWS = 5000
"""The maximum number of rows in a page.

Reading a page visits all entries of the index, so a few large pages are faster than many small ones.
"""
ALL_ROWS = 10**9
STATUS_SIGNS = {"ready": ("●", "inserted"), "pending": ("◌", "warning"), "error": ("!", "error")}


class LoadedEntryRows(NamedTuple):
    """The rows read so far for the filter `wanted`; `page` is the last page read, which has the totals."""

    wanted: EntryFilter
    rows: list[EntryRow]
    page: EntryPage

    @property
    def has_more_rows(self) -> bool:
        """Whether some rows have not been read yet."""
        return self.page.cursor is not None


def read_entry_pages(
    library: Library, wanted: EntryFilter, before: LoadedEntryRows | None, least: int, now: datetime
) -> LoadedEntryRows:
    """Return the rows in `before` with at least `least` more rows, or with all rows if fewer are left.

    `wanted` is the filter, and `now` the time for counting recent citations. Called in a background thread.
    """
    call = get_current_cancellation()
    rows = list(before.rows) if before else []
    cursor = before.page.cursor if before else None
    goal = len(rows) + least
    while True:
        page = query_entry_page(
            library.workspace,
            library.open_index_reader(),
            wanted,
            cursor=cursor,
            limit=goal - len(rows),
            most=MAX_PAGE_ROWS,
            vectors=library.settings.model != "off",
            now=now.timestamp(),
            is_given_up=lambda: call.cancelled,
        )
        rows += page.entries
        cursor = page.cursor
        if cursor is None or len(rows) >= goal:
            return LoadedEntryRows(wanted, rows, page)


class EntryTableColumn(NamedTuple):
    """A column to the right of the titles, shown if the table is at least `min_width` cells wide.

    The values of `min_width` leave at least 48 cells for the titles.
    """

    name: str
    cells: int
    is_right_aligned: bool
    min_width: int

    def fit_text_to_column(self, text: str) -> str:
        """Cut or pad a text to the width of the column."""
        text = cut_to_width(one_line(text), self.cells)
        space = " " * (self.cells - measure_text_width(text))
        return space + text if self.is_right_aligned else text + space


COLUMNS = (
    EntryTableColumn("type", 12, False, 86),
    EntryTableColumn("changed", 10, False, 58),
    EntryTableColumn("passages", 8, True, 96),
    EntryTableColumn("size", 6, True, 104),
    EntryTableColumn("cited 30d", 9, True, 0),
)

TITLE_HEADINGS = ("title, reference, #tags", "title, reference", "title")
"""The possible headings of the first column; the longest one that fits is shown."""


class EntryTable(RowList):
    """A table with a row for each entry.

    There may be tens of thousands of entries, so the text of a row is made when the row is drawn.
    """

    def __init__(self) -> None:
        super().__init__("entries")
        self.empty_text = [("Reading the entries …", "dim")]

    class LastEntryRequested(Message):
        """The user asks to go to the last entry, which may not be loaded yet."""

    def action_bottom(self) -> None:
        super().action_bottom()
        self.post_message(self.LastEntryRequested())

    @property
    def selected_entry(self) -> EntryRow | None:
        """The entry in the selected row; None if the list is empty."""
        row = self.selected_row
        return row.data if row is not None else None

    def render_line(self, y: int) -> Strip:
        number = y + round(self.scroll_y)
        if 0 <= number < len(self.rows):
            row = self.rows[number]
            row.left = _format_entry_title_cell(row.data)
            row.right = _format_entry_value_cells(row.data, self.scrollable_content_region.width)
        return super().render_line(y)


def make_entry_table_headings(width: int) -> tuple[Spans, Spans]:
    """Return the left and right parts of the headings for a table that is `width` cells wide."""
    right = "  ".join(
        column.fit_text_to_column(column.name) for column in COLUMNS if width >= column.min_width
    )
    # Leave two cells free at the left edge and two for the scroll bar; two cells separate the headings.
    room = width - measure_text_width(right) - 6
    left = next((text for text in TITLE_HEADINGS if len(text) <= room), TITLE_HEADINGS[-1])
    return [(f"  {left}", "section")], [(right, "section")]


def _format_entry_title_cell(entry: EntryRow) -> Spans:
    sign, role = STATUS_SIGNS[entry.status]
    flags = ", ".join(name for name in ("hidden", "archived") if getattr(entry, name))
    # Tags come last, because a narrow table cuts off the end of the text.
    tags = "".join(f" #{one_line(tag)}" for tag in entry.tags)
    return [
        (f"{sign} ", role),
        (one_line(entry.title), ""),
        (format_parent_of_title(entry.parent_name), "dim"),
        (f"  {flags}" if flags else "", "dim"),
        (f"  {one_line(entry.short_ref)}", "dim"),
        (f" {tags}" if tags else "", "note"),
    ]


def _format_entry_value_cells(entry: EntryRow, width: int) -> Spans:
    values = {
        "type": entry.type,
        "changed": format_unix_time_as_day(entry.changed),
        "passages": f"{entry.chunks:,}",
        "size": format_size(entry.size),
        "cited 30d": f"{entry.cites_30d:,}",
    }
    spans: Spans = []
    for column in COLUMNS:
        if width >= column.min_width:
            role = "" if column.name == "cited 30d" and entry.cites_30d else "dim"
            text = column.fit_text_to_column(values[column.name])
            spans += [("  " if spans else "", ""), (text, role)]
    return spans
