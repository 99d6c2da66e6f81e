"""The workshop's slow work, each sort in a lane of its own: reading, marking, rows, pages, counting."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kbtui.tui.framework.gc_tuning import settle
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.workshop.costs import Costs, sums_of
from kbtui.tui.workshop.marks import Marks, read_standing, with_marks
from kbtui.tui.workshop.pages import make_page
from kbtui.tui.workshop.pattern import PatternResult, attempt
from kbtui.tui.workshop.row_format import RowFormatter
from kbtui.tui.workshop.tree import TreeOptions, Trees, make_rows, match_rows

if TYPE_CHECKING:
    from textual.message_pump import MessagePump

    from kbtui.knowledge.models import SubjectMark
    from kbtui.library import Library
    from kbtui.tui.framework.row_list import ListRow
    from kbtui.tui.workshop.costs import Sums
    from kbtui.tui.workshop.marks import PromptState
    from kbtui.tui.workshop.pages import WorkshopPage
    from kbtui.tui.workshop.tree import TreeEntry


class WorkshopView(Protocol):
    """Who hears of what was done, on the event loop."""

    def standing_changed(self, *, anew: bool) -> None:
        """The standing is another one; `anew` when the files were read."""

    def refused(self, error: Exception) -> None:
        """A mark, or the reading itself, was not possible."""

    def rows_made(self, rows: list[ListRow]) -> None:
        """The rows are others."""

    def page_made(self, page: WorkshopPage) -> None:
        """The text for what is selected is there."""

    def trial_made(self, trial: PatternResult) -> None:
        """What was typed is understood."""

    def counted(self, left: int) -> None:
        """More subjects were counted."""


class WorkshopController:
    """Holds the newest of everything, and has it made anew in threads."""

    def __init__(self, owner: WorkshopView, pump: MessagePump, library: Library) -> None:
        self.standing: PromptState | None = None
        self.marks = Marks()
        self.wishes = TreeOptions()
        self.costs = Costs()
        self.trial = PatternResult("")
        self.addressed: str | None = None
        """The topic that a pattern without one is meant for."""
        self.formatter = RowFormatter(self.costs, self.marks, self.wishes)
        self._owner, self._pump, self._library = owner, pump, library
        self._trees: Trees | None = None
        self._counting = 0
        self._reading = LatestOnlyWorker(pump)
        self._marking = LatestOnlyWorker(pump)
        self._rows = LatestOnlyWorker(pump)
        # Two at once: a text of megabytes must not hold up the next one that is selected.
        self._pages = LatestOnlyWorker(pump, limit=2)
        self._trials = LatestOnlyWorker(pump)
        self._counts = LatestOnlyWorker(pump)

    # the standing

    def read(self, written: tuple[SubjectMark, ...] = ()) -> None:
        """Read the files again; marks stay, but for those that were written."""
        marks = tuple(mark for mark in self.marks.all if mark not in written)

        def work() -> tuple[PromptState, dict[str, Sums]]:
            standing = read_standing(self._library, marks)
            return standing, sums_of(standing.knowledge, self.costs)

        def done(made: tuple[PromptState, dict[str, Sums]]) -> None:
            for mark in written:
                self.marks.drop(mark)
            self._took(*made, anew=True)

        self._reading.submit(work, done, self._owner.refused)

    def mark(self) -> None:
        """See what the marks make of it."""
        standing, marks = self.standing, self.marks.all
        if standing is None:
            return

        def work() -> tuple[PromptState, dict[str, Sums]]:
            marked = with_marks(standing, marks)
            return marked, sums_of(marked.knowledge, self.costs)

        def done(made: tuple[PromptState, dict[str, Sums]]) -> None:
            if self.standing is not None and made[0].written is self.standing.written:
                self._took(*made, anew=False)

        self._marking.submit(work, done, self._owner.refused)

    def _took(self, standing: PromptState, sums: dict[str, Sums], *, anew: bool) -> None:
        self.standing = standing
        self.formatter.look_at(standing, sums)
        for refusal in standing.refusals:
            self.marks.drop(refusal.mark)
        self._owner.standing_changed(anew=anew)
        if self.marks.all != standing.marks:  # marked further meanwhile
            self.mark()
        if anew:
            self._trees = Trees(standing.written, hidden=self.wishes.hidden)
            knowledge = standing.written
            settle(sum(len(knowledge.resolved(topic).scan.slugs) for topic in knowledge.topics))
            self._count()
        self.make_rows()
        for refusal in standing.refusals:
            self._owner.refused(refusal.error)

    # rows and trials

    def make_rows(self) -> None:
        """Make the rows for what one wishes to see; while a pattern is tried, try it again."""
        if self.trial.text.strip():
            self.attempt(self.trial.text)
            return
        standing, trees = self.standing, self._trees
        if standing is None or trees is None:
            return
        wishes = replace(self.wishes, opened=set(self.wishes.opened))
        self._rows.submit(
            lambda: make_rows(standing, trees, wishes), self._owner.rows_made, self._owner.refused
        )

    def show_hidden(self, shown: bool) -> None:
        """Show hidden subjects, or do not."""
        self.wishes.hidden = shown
        if self.standing is not None:
            self._trees = Trees(self.standing.written, hidden=shown)
        self.make_rows()

    def attempt(self, text: str) -> None:
        """Understand what was typed, and list what it matches; empty text brings the trees back."""
        standing = self.standing
        if not text.strip():
            self._trials.forget()
            self.trial = PatternResult("")
            self._owner.trial_made(self.trial)
            self.make_rows()
            return
        topic = self.addressed
        self.trial = replace(self.trial, text=text)
        if standing is None:  # typed ahead; tried when the files were read
            return

        def work() -> tuple[PatternResult, list[ListRow]]:
            trial = attempt(text, standing.knowledge, self.costs, topic)
            return trial, match_rows(trial.matches)

        self._rows.forget()
        self._trials.submit(work, self._tried, self._owner.refused)

    def _tried(self, made: tuple[PatternResult, list[ListRow]]) -> None:
        self.trial, rows = made
        self._owner.rows_made(rows)
        self._owner.trial_made(self.trial)

    # texts

    def make_page(self, entry: TreeEntry, view: str) -> None:
        """Make the text for an entry, or for what is tried."""
        standing = self.standing
        if standing is None:
            return
        trial = self.trial if self.trial.text.strip() else None
        self._pages.submit(
            lambda: make_page(standing, entry, view, trial),
            self._owner.page_made,
            self._owner.refused,
        )

    def forget_pages(self) -> None:
        """Show no text that is still being made."""
        self._pages.forget()

    # counting

    def _count(self) -> None:
        """Count the characters of every subject, little by little."""
        self._counting += 1
        number, standing = self._counting, self.standing
        if standing is None:
            return

        def wanted() -> bool:
            return number == self._counting

        def work() -> None:
            for left in self.costs.measure(standing.written, wanted):
                newest = self.standing or standing
                sums = sums_of(newest.knowledge, self.costs)
                self._pump.call_later(self._counted, number, newest, sums, left)

        self._counts.submit(work, lambda _: None, self._owner.refused)

    def _counted(
        self, number: int, standing: PromptState, sums: dict[str, Sums], left: int
    ) -> None:
        if number == self._counting and standing is self.standing:
            self.formatter.sums = sums
        if number == self._counting:
            self._owner.counted(left)

    def stop(self) -> None:
        """Count no more, and let go of everything: there may be much of it."""
        self._counting += 1
        self.standing = self._trees = None
        self.trial = PatternResult("")
        self.costs.clear()
