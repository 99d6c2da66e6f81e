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
"""Rows of the largest page. Each page costs a walk over all entries, so a few large pages are read
instead of many small ones to get far down the list."""
ALL_ROWS = 10**9
STATUS_SIGNS = {"ready": ("●", "inserted"), "pending": ("◌", "warning"), "error": ("!", "error")}


@dataclass
class LoadedEntryRows:
    """The rows read so far, and the newest page, which has the totals."""

    wanted: EntryFilter
    rows: list[EntryRow]
    page: EntryPage

    @property
    def has_more(self) -> bool:
        """Whether there are further pages."""
        return self.page.cursor is not None


class EntryPageLoader:
    """Reads pages of entries in a thread; `on_loaded` gets all rows read so far."""

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
        """Whether the first entries that pass a filter are still being read."""
        return self._is_reading and (self.loaded is None or self.loaded.wanted != wanted)

    def read_first_pages(self, wanted: EntryFilter) -> None:
        """Read from the beginning; with an unchanged filter, as many rows as before."""
        before = self.loaded
        # One page more than before, so that new rows above do not push out the current one.
        known = len(before.rows) if before is not None and before.wanted == wanted else 0
        self._submit_page_read(wanted, None, PAGE_ROWS + known)

    def read_more_entries(self, least: int = PAGE_ROWS) -> None:
        """Read at least `least` further rows, if there are as many."""
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
        """Read `least` rows after those of `before`; called in a thread."""
        library, call = self._library, get_current_cancellation()
        rows = list(before.rows) if before else []
        cursor = before.page.cursor if before else None
        goal = len(rows) + least
        while True:
            page = list_entries(
                library.workspace,
                library.open_reader(),
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
    """A column on the right; shown in a table of at least `min_width` cells."""

    name: str
    cells: int
    is_right_aligned: bool
    min_width: int

    def align_text(self, text: str) -> str:
        """Cut or pad a text to the column's width."""
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
"""The columns besides the title. Their minimum widths leave at least 48 cells for titles."""


class EntryTable(RowList):
    """The entries, one row each; there may be tens of thousands, so rows are made when drawn."""

    def __init__(self) -> None:
        super().__init__("entries")
        self.empty_text = [("Reading the entries …", "dim")]

    class LastEntryRequested(Message):
        """The user wants to go to the last entry, which may not be read yet."""

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
        """Draw line `y` of the visible part."""
        number = y + round(self.scroll_y)
        if 0 <= number < len(self.rows):
            row, width = self.rows[number], self.scrollable_content_region.width
            row.left, row.right = (
                _format_left_columns(row.data),
                _format_right_columns(row.data, width),
            )
        return super().render_line(y)


def make_table_headings(width: int) -> tuple[Spans, Spans]:
    """Return the left and right side of the line above a table of `width` cells."""
    names = [column.align_text(column.name) for column in COLUMNS if width >= column.min_width]
    return [("  entry  reference  #tags", "section")], [("  ".join(names), "section")]


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
