"""The workshop's slow work in threads, and writing marks to `.jp/kb.toml`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kbtui.knowledge import editing
from kbtui.tui.framework.gc_tuning import freeze_if_grown
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.workshop.pages import make_page
from kbtui.tui.workshop.pattern import PatternResult, attempt
from kbtui.tui.workshop.prompt_state import Costs, Marks, read_prompt_state, sums_of, with_marks
from kbtui.tui.workshop.tree import RowFormatter, TreeOptions, Trees, make_rows, match_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.editing import TomlChange
    from kbtui.knowledge.models import SubjectMark
    from kbtui.library import Library
    from kbtui.tui.framework.row_list import ListRow
    from kbtui.tui.workshop.pages import WorkshopPage
    from kbtui.tui.workshop.prompt_state import PromptState, Sums
    from kbtui.tui.workshop.tree import TreeEntry


class WriteObserver(Protocol):
    """Who hears of what was done, on the event loop."""

    def proposed(self, change: TomlChange) -> None:
        """This is what would be written."""

    def wrote(self, change: TomlChange) -> None:
        """It was written."""

    def took_back(self, change: TomlChange) -> None:
        """It was taken back."""

    def not_written(self, error: Exception) -> None:
        """Nothing was written, and why."""


class KbTomlWriter:
    """Proposes a change, and writes only the one that was shown.

    `written` has the changes written from here, oldest first; it outlives the
    screen, so that they can be taken back later.
    """

    def __init__(self, owner: WriteObserver, pump: MessagePump, written: list[TomlChange]) -> None:
        self.written = written
        self.shown: TomlChange | None = None
        self.writing = False
        """Whether a file is being written just now."""
        self._owner = owner
        self._lane = LatestOnlyWorker(pump)

    def propose(self, knowledge: Knowledge, marks: tuple[SubjectMark, ...]) -> None:
        """Work out what the marks would write."""
        if not self.writing:
            self._lane.submit(
                lambda: editing.propose_marks(knowledge, marks),
                self._propose,
                self._owner.not_written,
            )

    def _propose(self, change: TomlChange) -> None:
        self.shown = None if change.is_empty else change
        self._owner.proposed(change)

    def withdraw(self) -> None:
        """What is shown, or being worked out, will not be written."""
        self.shown = None
        if not self.writing:
            self._lane.discard_results()

    def write(self) -> None:
        """Write what is shown; nothing else is ever written."""
        change, self.shown = self.shown, None
        if change is not None:
            self._do(change, editing.apply_change, self._wrote)

    def _wrote(self, change: TomlChange) -> None:
        self.written.append(change)
        self._owner.wrote(change)

    def undo(self) -> None:
        """Take back what was last written from here."""
        if self.written:
            self._do(self.written[-1], editing.undo_change, self._took_back)

    def _took_back(self, change: TomlChange) -> None:
        self.written.remove(change)
        self._owner.took_back(change)

    def _do(
        self,
        change: TomlChange,
        act: Callable[[TomlChange], None],
        tell: Callable[[TomlChange], None],
    ) -> None:
        if self.writing:
            return
        self.writing = True

        def done(_: None) -> None:
            self.writing = False
            tell(change)

        def failed(error: Exception) -> None:
            self.writing = False
            self._owner.not_written(error)

        self._lane.submit(lambda: act(change), done, failed)


class WorkshopView(Protocol):
    """What the controller calls on the event loop when something is done."""

    def prompt_state_changed(self, *, reread: bool) -> None:
        """There is a new state of the prompt; `reread` when the files were read for it."""

    def report_error(self, error: Exception) -> None:
        """A mark cannot be set, or the files cannot be read."""

    def rows_made(self, rows: list[ListRow]) -> None:
        """There are new rows."""

    def page_made(self, page: WorkshopPage) -> None:
        """The page of the selected entry is ready."""

    def trial_made(self, trial: PatternResult) -> None:
        """The pattern was parsed and tried."""

    def counted(self, left: int) -> None:
        """More subjects were counted."""


class WorkshopController:
    """Holds the newest state, rows and pages, and makes new ones in threads."""

    def __init__(self, owner: WorkshopView, pump: MessagePump, library: Library) -> None:
        self.prompt_state: PromptState | None = None
        self.marks = Marks()
        self.options = TreeOptions()
        self.costs = Costs()
        self.trial = PatternResult("")
        self.addressed: str | None = None
        """The topic that a pattern without one is meant for."""
        self.formatter = RowFormatter(self.costs, self.marks, self.options)
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

    # the state of the prompt

    def read(self, written: tuple[SubjectMark, ...] = ()) -> None:
        """Read the files again; marks stay, but for those that were written."""
        marks = tuple(mark for mark in self.marks.all if mark not in written)

        def work() -> tuple[PromptState, dict[str, Sums]]:
            prompt_state = read_prompt_state(self._library, marks)
            return prompt_state, sums_of(prompt_state.knowledge, self.costs)

        def done(made: tuple[PromptState, dict[str, Sums]]) -> None:
            for mark in written:
                self.marks.drop(mark)
            self._set_prompt_state(*made, reread=True)

        self._reading.submit(work, done, self._owner.report_error)

    def mark(self) -> None:
        """Apply the marks."""
        prompt_state, marks = self.prompt_state, self.marks.all
        if prompt_state is None:
            return

        def work() -> tuple[PromptState, dict[str, Sums]]:
            marked = with_marks(prompt_state, marks)
            return marked, sums_of(marked.knowledge, self.costs)

        def done(made: tuple[PromptState, dict[str, Sums]]) -> None:
            if self.prompt_state is not None and made[0].written is self.prompt_state.written:
                self._set_prompt_state(*made, reread=False)

        self._marking.submit(work, done, self._owner.report_error)

    def _set_prompt_state(
        self, prompt_state: PromptState, sums: dict[str, Sums], *, reread: bool
    ) -> None:
        self.prompt_state = prompt_state
        self.formatter.update(prompt_state, sums)
        for refusal in prompt_state.refusals:
            self.marks.drop(refusal.mark)
        self._owner.prompt_state_changed(reread=reread)
        if self.marks.all != prompt_state.marks:  # marked further meanwhile
            self.mark()
        if reread:
            self._trees = Trees(prompt_state.written, hidden=self.options.hidden)
            knowledge = prompt_state.written
            freeze_if_grown(
                sum(len(knowledge.resolve(topic).scan.slugs) for topic in knowledge.topics)
            )
            self._count()
        self.make_rows()
        for refusal in prompt_state.refusals:
            self._owner.report_error(refusal.error)

    # rows and trials

    def make_rows(self) -> None:
        """Make the rows for the options; while a pattern is tried, try it again."""
        if self.trial.text.strip():
            self.attempt(self.trial.text)
            return
        prompt_state, trees = self.prompt_state, self._trees
        if prompt_state is None or trees is None:
            return
        options = replace(self.options, opened=set(self.options.opened))
        self._rows.submit(
            lambda: make_rows(prompt_state, trees, options),
            self._owner.rows_made,
            self._owner.report_error,
        )

    def show_hidden(self, shown: bool) -> None:
        """Show hidden subjects, or do not."""
        self.options.hidden = shown
        if self.prompt_state is not None:
            self._trees = Trees(self.prompt_state.written, hidden=shown)
        self.make_rows()

    def attempt(self, text: str) -> None:
        """Parse a pattern and list what it matches; an empty one brings the trees back."""
        prompt_state = self.prompt_state
        if not text.strip():
            self._trials.discard_results()
            self.trial = PatternResult("")
            self._owner.trial_made(self.trial)
            self.make_rows()
            return
        topic = self.addressed
        self.trial = replace(self.trial, text=text)
        if prompt_state is None:  # typed ahead; tried when the files were read
            return

        def work() -> tuple[PatternResult, list[ListRow]]:
            trial = attempt(text, prompt_state.knowledge, self.costs, topic)
            return trial, match_rows(trial.matches)

        self._rows.discard_results()
        self._trials.submit(work, self._tried, self._owner.report_error)

    def _tried(self, made: tuple[PatternResult, list[ListRow]]) -> None:
        self.trial, rows = made
        self._owner.rows_made(rows)
        self._owner.trial_made(self.trial)

    # texts

    def make_page(self, entry: TreeEntry, view: str) -> None:
        """Make the text for an entry, or for what is tried."""
        prompt_state = self.prompt_state
        if prompt_state is None:
            return
        trial = self.trial if self.trial.text.strip() else None
        self._pages.submit(
            lambda: make_page(prompt_state, entry, view, trial),
            self._owner.page_made,
            self._owner.report_error,
        )

    def forget_pages(self) -> None:
        """Show no text that is still being made."""
        self._pages.discard_results()

    # counting

    def _count(self) -> None:
        """Count the characters of every subject, little by little."""
        self._counting += 1
        number, prompt_state = self._counting, self.prompt_state
        if prompt_state is None:
            return

        def wanted() -> bool:
            return number == self._counting

        def work() -> None:
            for left in self.costs.measure(prompt_state.written, wanted):
                newest = self.prompt_state or prompt_state
                sums = sums_of(newest.knowledge, self.costs)
                self._pump.call_later(self._counted, number, newest, sums, left)

        self._counts.submit(work, lambda _: None, self._owner.report_error)

    def _counted(
        self, number: int, prompt_state: PromptState, sums: dict[str, Sums], left: int
    ) -> None:
        if number == self._counting and prompt_state is self.prompt_state:
            self.formatter.sums = sums
        if number == self._counting:
            self._owner.counted(left)

    def stop(self) -> None:
        """Stop counting, and drop what is held, which may be large."""
        self._counting += 1
        self.prompt_state = self._trees = None
        self.trial = PatternResult("")
        self.costs.clear()
