"""The workshop's screen without its keys: what is shown of the bench's newest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical

from kbtui.errors import KbtuiError
from kbtui.knowledge.topic_config import shown
from kbtui.tui.framework.labeled_input import LabeledInput
from kbtui.tui.framework.styled_widget import StyledScreen, plain
from kbtui.tui.framework.text_line import MessageLine, TextLine
from kbtui.tui.key_hints import hints_of
from kbtui.tui.reader.document_view import DocumentView
from kbtui.tui.workshop.controller import WorkshopController
from kbtui.tui.workshop.costs import growth
from kbtui.tui.workshop.pattern_bar import PatternBar
from kbtui.tui.workshop.row_format import particulars, totals
from kbtui.tui.workshop.tree import WHOLE, EntryList, folder_key

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.timer import Timer

    from kbtui.library import Library
    from kbtui.tui.framework.row_list import ListRow
    from kbtui.tui.workshop.pages import WorkshopPage
    from kbtui.tui.workshop.pattern import PatternResult

PAGE_SECONDS = 0.06
"""How long one stays on an entry before its text is made."""
EXPAND_MOST = 40
"""Subjects up to which all topics are open in the beginning."""


class WorkshopLayout(StyledScreen):
    """List and text, the pattern, the totals, what was said, the keys; `reference` is where to begin."""

    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (70, "-broad")]  # noqa: RUF012
    AUTO_FOCUS = "#entries"
    DEFAULT_CSS = """
    WorkshopLayout {
        #sides { height: 1fr; }
        #sides > .pane { width: 1fr; }
        &.-slim #sides { layout: vertical; }
        #particulars, #remark { height: 1; padding: 0 1; background: $background; }
        #trying { height: auto; }
        #pattern-line { height: 1; background: $surface; }
        #pattern-sign { width: 4; height: 1; padding: 0 0 0 2; background: $surface; }
        #pattern { width: 1fr; background: $surface; color: $foreground; }
        #remark { padding: 0; display: none; }
        #totals { height: 1; padding: 0 1; background: $background; }
        #keys { height: 1; padding: 0 1; background: $surface; }
    }
    """

    def __init__(self, library: Library, reference: str | None) -> None:
        super().__init__()
        self.library = library
        self.bench = WorkshopController(self, self, library)
        self.list = EntryList(self.bench.faces)
        self.reader = DocumentView()
        self.trybar = PatternBar()
        self.filter = LabeledInput("choose", "filter")
        self.said = MessageLine("said")
        self.view = "learn"
        self.page: WorkshopPage | None = None
        self._reference = reference
        self._select: str | None = WHOLE
        self._page_timer: Timer | None = None
        self._asking = False
        self._trying = False

    def compose(self) -> ComposeResult:
        """List and text, the pattern, the totals, what was said, the keys."""
        with Horizontal(id="sides"):
            with Vertical(id="shelves", classes="pane") as pane:
                pane.border_title = "Prompt workshop"
                yield self.filter
                yield self.list
                yield TextLine(id="particulars")
            with Vertical(id="given", classes="pane"):
                yield self.reader
        yield self.trybar
        yield TextLine(id="totals")
        yield self.said
        yield TextLine(id="keys")

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self._say_totals()
        self.call_after_refresh(self.bench.read)

    def on_unmount(self) -> None:
        """Count no more, and keep nothing."""
        self.bench.stop()
        self.list.rows = []

    def on_resize(self) -> None:
        """Other words fit."""
        self.call_after_refresh(self._say_totals)

    @property
    def holding(self) -> bool:
        """Whether what stands on the right is to stay: a change that is shown before it is written."""
        return False

    @property
    def can_undo(self) -> bool:
        """Whether something was written from here."""
        return False

    # what the bench says

    def standing_changed(self, *, anew: bool) -> None:
        """Show the newest standing."""
        if anew and self._reference is not None:
            self._begin(self._reference)
            self._reference = None
        elif anew and not self.list.rows:
            self._begin("")
        self._say_totals()
        self.list.refresh()
        self._look()

    def _begin(self, reference: str) -> None:
        """Select what the screen was opened for, with everything open that it lies in."""
        standing = self.bench.standing
        if standing is None:
            return
        knowledge, wishes = standing.written, self.bench.wishes
        counts = {topic: len(knowledge.resolved(topic).visible) for topic in knowledge.topics}
        if sum(counts.values()) <= EXPAND_MOST:
            wishes.opened |= {f"topic:{topic}" for topic in counts}
        topic, _, slug = reference.partition("/")
        if topic not in knowledge.topics:
            return
        self._select = f"topic:{topic}"
        wishes.opened.add(self._select)
        scan = knowledge.resolved(topic).scan
        slug = slug if slug in scan else slug.rpartition(":")[0]  # lines may follow
        if slug and slug in scan:
            wishes.hidden = wishes.hidden or slug in scan.hidden
            self._select = f"{topic}/{slug}"
            parts = slug.split("/")
            wishes.opened |= {
                folder_key(topic, "/".join(parts[:depth]) + "/") for depth in range(1, len(parts))
            }

    def rows_made(self, rows: list[ListRow]) -> None:
        """Show other rows; the selected one stays selected."""
        nothing = "Nothing matches." if self.bench.trial.text else "Nothing is here."
        if self.bench.trial.text and not self._trying and len(rows) > 1:
            self._select = rows[1].key  # the first match
        self._trying = bool(self.bench.trial.text)
        self.list.set_rows(rows, [(nothing, "dim")], select=self._select)
        self._select = None
        self._look()

    def trial_made(self, trial: PatternResult) -> None:
        """Say what was understood."""
        self.query_one("#remark").display = bool(trial.text.strip())
        self.trybar.show(trial, trial.cost.long)
        self._look(at_once=False)

    def counted(self, left: int) -> None:
        """More subjects were counted."""
        self.query_one("#shelves", Vertical).border_subtitle = f"counting {left:,}" if left else ""
        self.list.refresh()

    def refused(self, error: Exception) -> None:
        """Say why a mark cannot be set, or what cannot be read."""
        self._say(self._words(error), "error")

    def page_made(self, page: WorkshopPage) -> None:
        """Show the text for what is selected."""
        if self.holding:
            return
        self._show(page)
        trial = self.bench.trial
        if trial.usable and page.cost is not None:
            outcome = page.cost.long
            if trial.preloads and self.bench.standing is not None:
                outcome = growth(self.bench.standing.cost, page.cost) or "no change"
            self.trybar.show(trial, outcome)

    def _show(self, page: WorkshopPage) -> None:
        same = self.page is not None and self.page.document.key == page.document.key
        before, self.page = self.page, page
        if same and before is not None and before.line == page.line:
            self.reader.reload(page.document)
        else:
            self.reader.show(page.document)
            if page.line is not None:
                self._go_to(page.line)
        pane = self.query_one("#given", Vertical)
        pane.border_title = plain(page.document.title)
        pane.border_subtitle = plain(page.cost.long if page.cost else page.document.size)

    def _go_to(self, line: int) -> None:
        port = self.reader.port
        block = port.document.block_of_line(line)
        lines = port.lines(block)
        port.go_to(block, next((n for n, drawn in enumerate(lines) if drawn.source == line), 0), 0)
        self.reader.changed()

    # what is selected

    def _look(self, *, at_once: bool = True) -> None:
        """Have the text made for what is selected, and say what there is to say about it."""
        standing = self.bench.standing
        if standing is None:
            return
        self.query_one("#particulars", TextLine).say(particulars(standing, self.list.entry))
        if self._page_timer is not None:
            self._page_timer.stop()
        seconds = 0.001 if at_once else PAGE_SECONDS
        self._page_timer = self.set_timer(seconds, self._make_page)

    def _make_page(self) -> None:
        if not self.holding:
            self.bench.make_page(self.list.entry, self.view)

    # saying

    def _words(self, error: Exception) -> str:
        return words_of(error, self.library.workspace.root)

    def _say_totals(self) -> None:
        bar = self.query_one("#totals", TextLine)
        width = bar.content_size.width
        bar.say(*totals(self.bench.standing, len(self.bench.marks), width))
        self._say_keys()

    def _say(self, text: str = "", role: str = "strong") -> None:
        """Say something until something else is said; a question that was asked is over."""
        self._asking = False
        self.said.say(text, role)

    def _say_keys(self) -> None:
        offers = {"marks": len(self.bench.marks) > 0, "written": self.can_undo}
        bar = self.query_one("#keys", TextLine)
        offered = frozenset(name for name, has in offers.items() if has)
        bar.say(hints_of("workshop", bar.content_size.width, offered, self.own_keys))


def words_of(error: Exception, root: Path) -> str:
    """An error in a few words: where, seen from the workspace's root, what, and what to do."""
    if not isinstance(error, KbtuiError):
        return f"{type(error).__name__}: {error}"
    # One knows which workspace one is in, and its path would push the words out of a line.
    where = shown(root, Path(error.where)) if error.where and error.where != str(root) else ""
    return (
        (f"{where}: " if where else "") + error.message + (f" ({error.hint})" if error.hint else "")
    )
