"""The table of entries, read page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message

from kbtui.dates import format_iso_day
from kbtui.index.entry_query import EntryFilter, EntryPage, EntryRow, list_entries
from kbtui.library.index_access import CallCancellation, get_current_cancellation
from kbtui.text import count_columns, cut_to_width, one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.reader.document import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump
    from textual.strip import Strip

    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans


PAGE_ROWS = 200
PAGE_ROWS_MOST = 5000
"""The maximum number of rows in a page.

Reading a page visits all entries, so reading a long list in a few large pages is faster.
"""
ALL_ROWS = 10**9
STATUS_SIGNS = {"ready": ("●", "inserted"), "pending": ("◌", "warning"), "error": ("!", "error")}


@dataclass
class LoadedEntryRows:
    """The rows read so far; `page` is the page read last, which contains the totals."""

    wanted: EntryFilter
    rows: list[EntryRow]
    page: EntryPage

    @property
    def has_more(self) -> bool:
        """Whether more rows can be read."""
        return self.page.cursor is not None


class EntryPageLoader:
    """Reads pages of entries in a thread, and calls `on_loaded` with all rows read so far."""

    def __init__(
        self,
        owner: MessagePump,
        library: Library,
        clock: Clock,
        on_loaded: Callable[[LoadedEntryRows], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._library, self._clock = library, clock
        self._on_loaded, self._on_error = on_loaded, on_error
        self._worker = LatestOnlyWorker(owner, cancellation=CallCancellation)
        self._is_reading = False
        self.loaded: LoadedEntryRows | None = None

    def is_waiting_for(self, wanted: EntryFilter) -> bool:
        """Return whether the first rows for a filter are still being read."""
        return self._is_reading and (self.loaded is None or self.loaded.wanted != wanted)

    def read_first_pages(self, wanted: EntryFilter) -> None:
        """Read from the beginning; if the filter is unchanged, read at least as many rows as before."""
        before = self.loaded
        # Read a page more than before, so that the selected row stays in the list if new rows appear above it.
        known = len(before.rows) if before is not None and before.wanted == wanted else 0
        self._submit_page_read(wanted, None, PAGE_ROWS + known)

    def read_more_entries(self, least: int = PAGE_ROWS) -> None:
        """Read at least `least` further rows, or all remaining rows if there are fewer."""
        if self.loaded is not None and self.loaded.has_more and not self._is_reading:
            self._submit_page_read(self.loaded.wanted, self.loaded, least)

    def _submit_page_read(
        self, wanted: EntryFilter, before: LoadedEntryRows | None, least: int
    ) -> None:
        self._is_reading = True
        self._worker.submit(
            lambda: self._read_entry_pages(wanted, before, least),
            self._receive_loaded_entries,
            self._report_error,
        )

    def _read_entry_pages(
        self, wanted: EntryFilter, before: LoadedEntryRows | None, least: int
    ) -> LoadedEntryRows:
        """Read at least `least` more rows than `before` contains; called in a thread."""
        library, call = self._library, get_current_cancellation()
        rows = list(before.rows) if before else []
        cursor = before.page.cursor if before else None
        goal = len(rows) + least
        while True:
            page = list_entries(
                library.workspace,
                library.open_index_reader(),
                wanted,
                cursor=cursor,
                limit=max(1, goal - len(rows)),
                most=PAGE_ROWS_MOST,
                vectors=library.settings.model != "off",
                now=self._clock().timestamp(),
                is_given_up=lambda: call.cancelled,
            )
            rows += page.entries
            cursor = page.cursor
            if cursor is None or len(rows) >= goal:
                return LoadedEntryRows(wanted, rows, page)

    def _receive_loaded_entries(self, loaded: LoadedEntryRows) -> None:
        self._is_reading = False
        self.loaded = loaded
        self._on_loaded(loaded)

    def _report_error(self, error: Exception) -> None:
        self._is_reading = False
        self._on_error(error)


class EntryTableColumn(NamedTuple):
    """A column at the right, shown only if the table is at least `min_width` cells wide."""

    name: str
    cells: int
    is_right_aligned: bool
    min_width: int

    def align_text(self, text: str) -> str:
        """Cut or pad a text to the width of the column."""
        text = cut_to_width(one_line(text), self.cells)
        space = " " * (self.cells - count_columns(text))
        return space + text if self.is_right_aligned else text + space


COLUMNS = (
    EntryTableColumn("type", 12, False, 86),
    EntryTableColumn("changed", 10, False, 58),
    EntryTableColumn("passages", 8, True, 96),
    EntryTableColumn("size", 6, True, 104),
    EntryTableColumn("cited 30d", 9, True, 0),
)
"""The columns at the right; their minimum widths leave at least 48 cells for the titles."""


FIRST_HEADINGS = ("title, reference, #tags", "title, reference", "title")
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
        """Go to the last entry."""
        super().action_bottom()
        self.post_message(self.LastEntryRequested())

    @property
    def selected_entry(self) -> EntryRow | None:
        """The selected entry."""
        row = self.selected_row
        return row.data if row is not None else None

    def render_line(self, y: int) -> Strip:
        """Draw visible line `y`."""
        number = y + round(self.scroll_y)
        if 0 <= number < len(self.rows):
            row, width = self.rows[number], self.scrollable_content_region.width
            row.left, row.right = (
                _format_left_columns(row.data),
                _format_right_columns(row.data, width),
            )
        return super().render_line(y)


def make_table_headings(width: int) -> tuple[Spans, Spans]:
    """Return the left and the right part of the heading of a table that is `width` cells wide."""
    names = [column.align_text(column.name) for column in COLUMNS if width >= column.min_width]
    right = "  ".join(names)
    # Leave two cells free at the left edge and two for the scroll bar; two cells separate the headings.
    room = width - count_columns(right) - 6
    left = next((text for text in FIRST_HEADINGS if len(text) <= room), FIRST_HEADINGS[-1])
    return [(f"  {left}", "section")], [(right, "section")]


def _format_left_columns(entry: EntryRow) -> Spans:
    sign, role = STATUS_SIGNS.get(entry.status, ("?", "dim"))
    flags = [name for name in ("hidden", "archived") if getattr(entry, name)]
    spans: Spans = [(f"{sign} ", role), (one_line(entry.title), "")]
    if flags:
        spans.append((f"  {', '.join(flags)}", "dim"))
    # Tags come last, because a narrow table cuts the end.
    tags = "".join(f" #{one_line(tag)}" for tag in entry.tags)
    return [*spans, (f"  {one_line(entry.ref)}", "dim"), (f" {tags}" if tags else "", "note")]


def _format_right_columns(entry: EntryRow, width: int) -> Spans:
    values = {
        "type": entry.type,
        "changed": format_iso_day(entry.changed),
        "passages": f"{entry.chunks:,}",
        "size": format_size(entry.size),
        "cited 30d": f"{entry.cites_30d:,}",
    }
    spans: Spans = []
    for column in COLUMNS:
        if width >= column.min_width:
            role = "" if column.name == "cited 30d" and entry.cites_30d else "dim"
            spans += [("  " if spans else "", ""), (column.align_text(values[column.name]), role)]
    return spans
