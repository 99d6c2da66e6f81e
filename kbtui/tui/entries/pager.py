"""The entries that a filter leaves, page by page as one comes to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.index.entry_query import EntryFilter, EntryPage, EntryRow, list_entries
from kbtui.library.index_access import Cancellation, current_cancellation
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump

    from kbtui.library import Library
    from kbtui.tui.clock import Clock

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
