"""The table of entries, read page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from kbtui.dates import format_iso_day
from kbtui.index.entry_query import EntryFilter, EntryPage, EntryRow, list_entries
from kbtui.library.index_access import Cancellation, current_cancellation
from kbtui.text import cells, cut, one_line
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.reader.document import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump
    from textual.strip import Strip

    from kbtui.dates import Clock
    from kbtui.index.entry_query import EntryRow as Entry
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans


PAGE = 200
PAGE_MOST = 5000
"""Each page costs a walk over all entries, so a long way takes few large pages."""
EVERYTHING = 10**9


@dataclass
class LoadedEntries:
    """Rows read so far, with the totals of the newest page."""

    wanted: EntryFilter
    rows: list[EntryRow]
    page: EntryPage

    @property
    def more(self) -> bool:
        """Whether there are further pages."""
        return self.page.cursor is not None


class EntryPager:
    """Reads pages in a thread; `show` is told what there is then."""

    def __init__(
        self,
        owner: MessagePump,
        library: Library,
        clock: Clock,
        show: Callable[[LoadedEntries], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._clock = clock
        self._library, self._show, self._failed = library, show, failed
        self._lane = LatestOnlyWorker(owner, cancellation=Cancellation)
        self._reading = False
        self.listed: LoadedEntries | None = None

    def lacks(self, wanted: EntryFilter) -> bool:
        """Whether what a filter lets through is still being read."""
        return self._reading and (self.listed is None or self.listed.wanted != wanted)

    def read(self, wanted: EntryFilter) -> None:
        """Read from the beginning, as far as was read before with the same filter."""
        before = self.listed
        # A page more than before: what came in above must not push out what one looks at.
        same = before is not None and before.wanted == wanted
        self._submit(wanted, None, PAGE + (len(before.rows) if before and same else 0))

    def more(self, least: int = PAGE) -> None:
        """Read the next page, of at least so many rows if there are as many."""
        if self.listed is not None and self.listed.more and not self._reading:
            self._submit(self.listed.wanted, self.listed, least)

    def _submit(self, wanted: EntryFilter, before: LoadedEntries | None, least: int) -> None:
        self._reading = True
        self._lane.submit(lambda: self._pages(wanted, before, least), self._took, self._refused)

    def _pages(
        self, wanted: EntryFilter, before: LoadedEntries | None, least: int
    ) -> LoadedEntries:
        """Called in a thread."""
        # The main screen has started the engine, which says when files are others.
        library, call = self._library, current_cancellation()
        rows = list(before.rows) if before else []
        cursor = before.page.cursor if before else None
        goal = len(rows) + least
        while True:
            page = list_entries(
                library.workspace,
                library.reader(),
                wanted,
                cursor=cursor,
                limit=max(1, goal - len(rows)),
                most=PAGE_MOST,
                vectors=library.settings.model != "off",
                now=self._clock().timestamp(),
                is_given_up=lambda: call.cancelled,
            )
            rows += page.entries
            cursor = page.cursor
            if cursor is None or len(rows) >= goal:
                return LoadedEntries(wanted, rows, page)

    def _took(self, listed: LoadedEntries) -> None:
        self._reading = False
        self.listed = listed
        self._show(listed)

    def _refused(self, error: Exception) -> None:
        self._reading = False
        self._failed(error)


SIGNS = {"ready": ("●", "inserted"), "pending": ("◌", "warning"), "error": ("!", "error")}
COLUMNS: tuple[tuple[str, int, bool, int], ...] = (
    ("type", 12, False, 86),
    ("changed", 10, False, 58),
    ("passages", 8, True, 96),
    ("size", 6, True, 104),
    ("cites 30d", 9, True, 0),
)
"""Name, cells, whether it stands at the right, and the width from which there is room for it.

Titles come first: beside the type and all that follows it, 48 cells are left for them.
"""


class EntryTable(RowList):
    """Entries, one a line; there may be tens of thousands."""

    def __init__(self) -> None:
        super().__init__("entries")
        self.empty = [("Reading the entries …", "dim")]

    class AtEnd(Message):
        """One wants the last entry of all, read or not."""

    def action_bottom(self) -> None:
        """To the last entry."""
        super().action_bottom()
        self.post_message(self.AtEnd())

    @property
    def entry(self) -> Entry | None:
        """The selected entry."""
        row = self.selected
        return row.data if row is not None else None

    def render_line(self, y: int) -> Strip:
        """Line `y` of what is in sight."""
        number = y + round(self.scroll_y)
        if 0 <= number < len(self.rows):
            row = self.rows[number]
            width = self.scrollable_content_region.width
            row.left, row.right = _left(row.data), _right(row.data, width)
        return super().render_line(y)


def headings(width: int) -> tuple[Spans, Spans]:
    """The line above the table."""
    names = [_fitted(name, name, size, right) for name, size, right, _ in _shown(width)]
    return [("  entry  reference  #tags", "section")], [("  ".join(names), "section")]


def _shown(width: int) -> list[tuple[str, int, bool, int]]:
    return [column for column in COLUMNS if width >= column[3]]


def _left(entry: Entry) -> Spans:
    sign, role = SIGNS.get(entry.status, ("?", "dim"))
    flags = [name for name in ("hidden", "archived") if getattr(entry, name)]
    spans: Spans = [(f"{sign} ", role), (one_line(entry.title), "")]
    if flags:
        spans.append((f"  {', '.join(flags)}", "dim"))
    # Tags give way to everything else, and take no room where there are none.
    tags = "".join(f" #{one_line(tag)}" for tag in entry.tags)
    return [*spans, (f"  {one_line(entry.ref)}", "dim"), (f" {tags}" if tags else "", "note")]


def _right(entry: Entry, width: int) -> Spans:
    values = {
        "type": entry.type,
        "changed": format_iso_day(entry.changed),
        "passages": f"{entry.chunks:,}",
        "size": format_size(entry.size),
        "cites 30d": f"{entry.cites_30d:,}",
    }
    spans: Spans = []
    for name, size, right, _ in _shown(width):
        role = "" if name == "cites 30d" and entry.cites_30d else "dim"
        spans.append(("  " if spans else "", ""))
        spans.append((_fitted(name, values[name], size, right), role))
    return spans


def _fitted(name: str, text: str, size: int, right: bool) -> str:
    text = cut(one_line(text), size)
    space = " " * (size - cells(text))
    return space + text if right else text + space
