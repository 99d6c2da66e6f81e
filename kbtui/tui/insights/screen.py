"""Insights: top queries, gaps to be written, what is cited and what never, by day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Vertical

from kbtui.refs import parse_ref
from kbtui.tui.commands import SCREEN_COMMANDS, bindings, own_key
from kbtui.tui.entries.editor import EntryWriter
from kbtui.tui.framework.dialogs import ConfirmDialog
from kbtui.tui.framework.styled_widget import LEAVING, StyledScreen
from kbtui.tui.framework.text_line import MessageLine, TextLine
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.help import HelpScreen
from kbtui.tui.insights.page import GapBlock, insights_document
from kbtui.tui.key_hints import bindings_of, help_of, hints_of
from kbtui.tui.reader.document import Document, counted
from kbtui.tui.reader.document_view import DocumentView
from kbtui.tui.workshop.layout import words_of
from kbtui.userdata import UserData

if TYPE_CHECKING:
    from textual.app import ComposeResult
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


class InsightsScreen(StyledScreen):
    """A page; gives back the reference that one chose to open."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("insights"), *bindings("moving")]
    DEFAULT_CSS = """
    InsightsScreen {
        #totals { height: 1; padding: 0 1; background: $background; }
        #keys { height: 1; padding: 0 1; background: $surface; }
    }
    """

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__()
        self.library = library
        self.reader = DocumentView()
        self.said = MessageLine("said")
        self.found: Insights | None = None
        self.writer = EntryWriter(self, library, self.said.say, self._wrote)
        self._clock = clock
        self._days = SPANS[0]
        self._hidden = False
        self._lane, self._erasing = LatestOnlyWorker(self), LatestOnlyWorker(self)

    def compose(self) -> ComposeResult:
        """The page, the totals, what was said, the keys."""
        with Vertical(id="insights", classes="pane") as pane:
            pane.border_title = "Insights"
            yield self.reader
        yield TextLine(id="totals")
        yield self.said
        yield TextLine(id="keys")

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self.reader.focus()
        self.query_one("#totals", TextLine).say([("reading …", "dim")])
        self.call_after_refresh(self.action_reload)

    def on_resize(self) -> None:
        """Other keys fit."""
        self.call_after_refresh(self._say_keys)

    def _say_keys(self) -> None:
        bar = self.query_one("#keys", TextLine)
        bar.say(hints_of("insights", bar.content_size.width, frozenset(), self.own_keys))

    def is_unsettled(self, key: str) -> bool:
        """Until the page is read, there is nothing for a key to be about."""
        return self.found is None and self._meant_by(key)[1] not in LEAVING

    # reading

    def action_reload(self) -> None:
        """Read everything again."""
        self._lane.submit(self._read, self._show, self._failed)

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
        return found, insights_document(
            found, own_key("insights.open", self.own_keys, SCREEN_COMMANDS)
        )

    def _show(self, made: tuple[Insights, Document]) -> None:
        self.found, document = made
        if self.reader.document.key == document.key:
            self.reader.reload(document)
        else:
            self.reader.show(document)
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
        self.query_one("#totals", TextLine).say(left, right)

    def _failed(self, error: Exception) -> None:
        self.said.say(words_of(error, self.library.workspace.root), "error")

    def action_days(self) -> None:
        """Look at other days."""
        self._days = SPANS[(SPANS.index(self._days) + 1) % len(SPANS)]
        self.action_reload()

    def action_hidden(self) -> None:
        """Count hidden subjects too, or not."""
        self._hidden = not self._hidden
        self.said.say(f"hidden subjects are {'' if self._hidden else 'not '}counted", "strong")
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
        port = self.reader.port
        heads = [
            number
            for number, block in enumerate(port.document.blocks)
            if block.key.startswith("head:") or block.key == "chart"
        ]
        here = port.cursor.block
        beyond = [n for n in heads if (n > here if step > 0 else n < here)]
        if beyond:
            target = beyond[0 if step > 0 else -1]
            port.go_to(target, port.document.blocks[target].above, lead=0)
            self.reader.changed()

    # erasing

    def action_erase(self) -> None:
        """Ask, and remove every logged search."""

        def answered(answer: str | None) -> None:
            if answer == "y":
                journal = UserData(self.library.workspace)
                self._erasing.submit(journal.erase, self._erased, self._failed)

        question = "Erase every logged search of this workspace? Citations stay: they are in the conversations."
        self.app.push_screen(ConfirmDialog(question, {"y": "erase them"}), answered)

    def _erased(self, count: int) -> None:
        self.said.say(
            "1 search is erased" if count == 1 else f"{count:,} searches are erased", "strong"
        )
        self.action_reload()

    def action_help(self) -> None:
        """Explain the keys."""
        note = "A gap is a query whose last search found nothing, or nothing by its words."
        self.app.push_screen(HelpScreen(page=help_of("insights", [note], self.own_keys)))

    def action_leave(self) -> None:
        """Close the page."""
        self.dismiss(None)
