"""Insights: top queries, gaps to be written, what is cited and what never, by day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kbtui.refs import parse_ref
from kbtui.tui.commands import bindings, own_key
from kbtui.tui.entries.editor import EntryWriter
from kbtui.tui.feature_screen import FeatureScreen
from kbtui.tui.framework.styled_widget import LEAVING
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.insights.page import GapBlock, insights_document
from kbtui.tui.reader.document import Document, counted
from kbtui.userdata import UserData

if TYPE_CHECKING:
    from textual.binding import BindingType

    from kbtui.library import Library
    from kbtui.tui.clock import Clock
    from kbtui.userdata.models import Insights

SPANS = (30, 90, 7)
"""Days to look at, in the order of their key; what is older than the log keeps is gone."""
ROWS = 15


ASKED = {
    "dashboard": "on the screen", "cli": "by command", "mcp": "by assistants", "sdk": "by programs",
}  # fmt: skip
"""Where a search came from -> how that is said."""


class InsightsScreen(FeatureScreen):
    """A page; gives back the reference that one chose to open."""

    TITLE_WORDS = "Insights"
    SCOPE = "insights"
    NOTES = ("A gap is a query whose last search found nothing, or nothing by its words.",)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("insights", "moving")]

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library)
        self.found: Insights | None = None
        self.writer = EntryWriter(self, library, self.say, self._wrote)
        self._clock = clock
        self._days = SPANS[0]
        self._hidden = False
        self._erasing = LatestOnlyWorker(self)

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self.reader.focus()
        self.show_totals([("reading …", "dim")])
        self.call_after_refresh(self.action_reload)

    def is_unsettled(self, key: str) -> bool:
        """Until the page is read, there is nothing for a key to be about."""
        return self.found is None and self._meant_by(key)[1] not in LEAVING

    # reading

    def action_reload(self) -> None:
        """Read everything again."""
        self.worker.submit(self._read, self._show_insights, self.failed)

    def files_changed(self, event: dict[str, Any]) -> None:
        """Entries or citations are others."""
        self.action_reload()

    def _read(self) -> tuple[Insights, Document]:
        """Called in a thread."""
        from kbtui.userdata.insights import insights

        library = self.library
        found = insights(
            library.workspace,
            UserData(library.workspace),
            library.reader(),
            days=self._days,
            limit=ROWS,
            hidden=self._hidden,
            now=self._clock().timestamp(),
        )
        return found, insights_document(found, own_key("insights.open", self.own_keys))

    def _show_insights(self, made: tuple[Insights, Document]) -> None:
        self.found, document = made
        self.show(document)
        found = self.found
        searches = "1 search" if found.searches.total == 1 else f"{found.searches.total:,} searches"
        origins = " · ".join(
            f"{count:,} {ASKED.get(name, name)}" for name, count in found.searches.by_origin.items()
        )
        left = [(f"{searches}, {counted(found.citations, 'citation')}", "strong")]
        left.append((f" in {counted(found.days, 'day')}", "dim"))
        right = [(origins, "dim")]
        if not self.library.settings.query_log:
            right = [("searches are not logged (query_log = false)", "warning")]
        self.show_totals(left, right)

    def action_days(self) -> None:
        """Look at other days."""
        self._days = SPANS[(SPANS.index(self._days) + 1) % len(SPANS)]
        self.action_reload()

    def action_hidden(self) -> None:
        """Count hidden subjects too, or not."""
        self._hidden = not self._hidden
        self.say(f"hidden subjects are {'' if self._hidden else 'not '}counted", "strong")
        self.action_reload()

    # the line one is at

    def action_open(self) -> None:
        """Open the entry, or write the missing one."""
        port = self.reader.port
        if not port.document.blocks:
            return
        block = port.document.blocks[port.cursor.block]
        if isinstance(block, GapBlock):
            self.writer.new(" ".join(block.query.split()))
        elif block.link:
            # It is in the index, whatever stands in its name.
            self.dismiss(parse_ref(block.link, lambda topic, slug: f"{topic}/{slug}" == block.link))

    def _wrote(self, ref: str) -> None:
        self.action_reload()

    def action_next(self, step: int) -> None:
        """To the next part, or the one before."""
        self.go_to_block(
            step, lambda block: block.key.startswith("head:") or block.key == "chart", lead=0
        )

    # erasing

    def action_erase(self) -> None:
        """Ask, and remove every logged search."""

        def answered(answer: str | None) -> None:
            if answer == "y":
                journal = UserData(self.library.workspace)
                self._erasing.submit(journal.erase, self._erased, self.failed)

        question = "Erase every logged search of this workspace? Citations stay: they are in the conversations."
        self.ask(question, {"y": "erase them"}, answered)

    def _erased(self, count: int) -> None:
        self.say("1 search is erased" if count == 1 else f"{count:,} searches are erased", "strong")
        self.action_reload()
