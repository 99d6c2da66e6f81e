"""Do the slow work of the workshop in threads, and write marks to `.jp/kb.toml`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kbtui.knowledge import kb_toml_editing
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.garbage_collection import freeze_objects_if_grown
from kbtui.tui.prompt_workshop.pattern_bar import PatternMatchResult, try_pattern
from kbtui.tui.prompt_workshop.preview_documents import make_preview_page
from kbtui.tui.prompt_workshop.prompt_state import (
    PendingPreloadMarks,
    SubjectCosts,
    apply_marks,
    make_prefix_sums,
    read_prompt_state,
)
from kbtui.tui.prompt_workshop.subject_tree import (
    SubjectRowFormatter,
    SubjectTreeOptions,
    VisibleSubjectSlugs,
    make_match_rows,
    make_subject_tree_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump

    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.kb_toml_editing import TomlChange
    from kbtui.knowledge.models import PreloadOrDisableMark
    from kbtui.library import Library
    from kbtui.tui.framework.row_list import ListRow
    from kbtui.tui.prompt_workshop.preview_documents import DocumentWithCost
    from kbtui.tui.prompt_workshop.prompt_state import FolderCostSums, PromptState
    from kbtui.tui.prompt_workshop.subject_tree import SubjectTreeNode


class KbTomlWriter:
    """Proposes changes of `.jp/kb.toml`, and writes a change only after the user has seen it.

    `written` is the list of changes written in this session, oldest first. The caller owns the list,
    so that a later screen can undo them. `on_error` is called with the error if nothing was written.
    """

    def __init__(
        self,
        owner: MessagePump,
        written: list[TomlChange],
        *,
        on_proposed: Callable[[TomlChange], None],
        on_written: Callable[[], None],
        on_undone: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.written = written
        self.shown: TomlChange | None = None
        self.is_writing = False
        self._on_proposed, self._on_error = on_proposed, on_error
        self._on_written, self._on_undone = on_written, on_undone
        self._worker = LatestOnlyWorker(owner)

    def propose_change(self, knowledge: Knowledge, marks: tuple[PreloadOrDisableMark, ...]) -> None:
        """Compute how the marks would change the file."""
        if not self.is_writing:
            self._worker.submit(
                lambda: kb_toml_editing.propose_preload_or_disable_marks(knowledge, marks),
                self._receive_proposed_change,
                self._on_error,
            )

    def _receive_proposed_change(self, change: TomlChange) -> None:
        self.shown = None if change.is_empty else change
        self._on_proposed(change)

    def withdraw_change(self) -> None:
        """Discard the proposed change."""
        self.shown = None
        if not self.is_writing:
            self._worker.discard_results()

    def write_change(self) -> None:
        """Write the shown change."""
        change, self.shown = self.shown, None
        if change is not None:
            self._change_file(
                change, kb_toml_editing.apply_toml_change, self.written.append, self._on_written
            )

    def undo_change(self) -> None:
        """Undo the newest written change."""
        if self.written:
            self._change_file(
                self.written[-1],
                kb_toml_editing.undo_toml_change,
                self.written.remove,
                self._on_undone,
            )

    def _change_file(
        self,
        change: TomlChange,
        act: Callable[[TomlChange], None],
        record: Callable[[TomlChange], None],
        on_done: Callable[[], None],
    ) -> None:
        if self.is_writing:
            return
        self.is_writing = True

        def on_change_applied(_: None) -> None:
            self.is_writing = False
            record(change)
            on_done()

        def report_failed_change(error: Exception) -> None:
            self.is_writing = False
            self._on_error(error)

        self._worker.submit(lambda: act(change), on_change_applied, report_failed_change)


class PromptWorkshopCallbacks(Protocol):
    """The methods that the controller calls on the event loop when a thread has finished."""

    def show_prompt_state(self, *, reread: bool) -> None:
        """Show a new state of the prompt; `reread` says whether it comes from reading the files again."""

    def show_error(self, error: Exception) -> None:
        """Show why a mark cannot be set, or why the files cannot be read."""

    def show_rows(self, rows: list[ListRow]) -> None:
        """Show new rows."""

    def show_preview(self, page: DocumentWithCost) -> None:
        """Show the preview of the selected row."""

    def show_pattern_result(self, result: PatternMatchResult) -> None:
        """Show the result of a tried pattern."""

    def show_uncounted_subjects(self, left: int) -> None:
        """Show that `left` subjects still have to be counted."""


class PromptWorkshopController:
    """Keeps the newest state of the prompt, and builds states, rows and previews in threads."""

    def __init__(self, view: PromptWorkshopCallbacks, pump: MessagePump, library: Library) -> None:
        self.prompt_state: PromptState | None = None
        self.marks = PendingPreloadMarks()
        self.options = SubjectTreeOptions()
        self.costs = SubjectCosts()
        self.pattern_result = PatternMatchResult("")
        self.pattern_topic: str | None = None
        """The topic for a pattern that contains no topic."""
        self.formatter = SubjectRowFormatter(self.costs, self.marks, self.options)
        self._view, self._pump, self._library = view, pump, library
        self._slugs: VisibleSubjectSlugs | None = None
        self._count_number = 0
        """The number of the newest count; a count with an older number ends early."""
        self._read_worker = LatestOnlyWorker(pump)
        self._mark_worker = LatestOnlyWorker(pump)
        self._row_worker = LatestOnlyWorker(pump)
        # Run two at a time, so that a text of several megabytes does not delay the preview of the next row.
        self._page_worker = LatestOnlyWorker(pump, limit=2)
        self.pattern_worker = LatestOnlyWorker(pump)
        self.count_worker = LatestOnlyWorker(pump)

    # the state of the prompt

    def reread_files(self, written: tuple[PreloadOrDisableMark, ...] = ()) -> None:
        """Read the files again; keep all marks except `written`, which have just been written."""
        marks = tuple(mark for mark in self.marks.all_marks if mark not in written)

        def read_state_and_costs() -> tuple[PromptState, dict[str, FolderCostSums]]:
            prompt_state = read_prompt_state(self._library, marks)
            return prompt_state, make_prefix_sums(prompt_state.knowledge, self.costs)

        def remove_written_marks(made: tuple[PromptState, dict[str, FolderCostSums]]) -> None:
            for mark in written:
                self.marks.remove_mark(mark)
            self._update_prompt_state(*made, reread=True)

        self._read_worker.submit(read_state_and_costs, remove_written_marks, self._view.show_error)

    def apply_marks(self) -> None:
        """Apply the marks to the state read from the files."""
        prompt_state, marks = self.prompt_state, self.marks.all_marks
        if prompt_state is None:
            return

        def apply_and_sum_costs() -> tuple[PromptState, dict[str, FolderCostSums]]:
            marked = apply_marks(prompt_state, marks)
            return marked, make_prefix_sums(marked.knowledge, self.costs)

        def show_if_current(made: tuple[PromptState, dict[str, FolderCostSums]]) -> None:
            if self.prompt_state is not None and made[0].written is self.prompt_state.written:
                self._update_prompt_state(*made, reread=False)

        self._mark_worker.submit(apply_and_sum_costs, show_if_current, self._view.show_error)

    def _update_prompt_state(
        self, prompt_state: PromptState, sums: dict[str, FolderCostSums], *, reread: bool
    ) -> None:
        self.prompt_state = prompt_state
        self.formatter.update(prompt_state, sums)
        for refusal in prompt_state.refusals:
            self.marks.remove_mark(refusal.mark)
        self._view.show_prompt_state(reread=reread)
        if (
            self.marks.all_marks != prompt_state.marks
        ):  # the user changed marks while the thread ran
            self.apply_marks()
        if reread:
            knowledge = prompt_state.written
            self._slugs = VisibleSubjectSlugs(knowledge, hidden=self.options.hidden)
            subjects = sum(
                len(knowledge.get_topic_slugs(topic).scan.slugs) for topic in knowledge.topics
            )
            freeze_objects_if_grown(subjects)
            self._count_subjects()
        self.make_rows()
        for refusal in prompt_state.refusals:
            self._view.show_error(refusal.error)

    # rows and patterns

    def make_rows(self) -> None:
        """Build the rows of the tree; if there is a pattern, try it again instead."""
        if self.pattern_result.text.strip():
            self.try_pattern(self.pattern_result.text)
            return
        prompt_state, slugs = self.prompt_state, self._slugs
        if prompt_state is None or slugs is None:
            return
        options = replace(self.options, opened=set(self.options.opened))
        self._row_worker.submit(
            lambda: make_subject_tree_rows(prompt_state, slugs, options),
            self._view.show_rows,
            self._view.show_error,
        )

    def show_hidden(self, hidden: bool) -> None:
        """Show or hide hidden subjects."""
        self.options.hidden = hidden
        if self.prompt_state is not None:
            self._slugs = VisibleSubjectSlugs(self.prompt_state.written, hidden=hidden)
        self.make_rows()

    def try_pattern(self, text: str) -> None:
        """Parse a pattern and list its matches; an empty pattern shows the tree again."""
        prompt_state = self.prompt_state
        if not text.strip():
            self.pattern_worker.discard_results()
            self.pattern_result = PatternMatchResult("")
            self._view.show_pattern_result(self.pattern_result)
            self.make_rows()
            return
        topic = self.pattern_topic
        self.pattern_result = replace(self.pattern_result, text=text)
        if prompt_state is None:  # `make_rows` tries the pattern once the files are read
            return

        def match_pattern() -> tuple[PatternMatchResult, list[ListRow]]:
            result = try_pattern(text, prompt_state.knowledge, self.costs, topic)
            return result, make_match_rows(result.matches)

        def show_matches(made: tuple[PatternMatchResult, list[ListRow]]) -> None:
            self.pattern_result, rows = made
            self._view.show_rows(rows)
            self._view.show_pattern_result(self.pattern_result)

        self._row_worker.discard_results()
        self.pattern_worker.submit(match_pattern, show_matches, self._view.show_error)

    # previews

    def make_preview(self, node: SubjectTreeNode, view: str) -> None:
        """Build the preview of a row, or of the tried pattern."""
        prompt_state = self.prompt_state
        if prompt_state is None:
            return
        result = self.pattern_result if self.pattern_result.text.strip() else None
        self._page_worker.submit(
            lambda: make_preview_page(prompt_state, node, view, result),
            self._view.show_preview,
            self._view.show_error,
        )

    def discard_previews(self) -> None:
        """Discard previews that are still being built."""
        self._page_worker.discard_results()

    # counting

    def _count_subjects(self) -> None:
        """In a background thread, count the characters of every subject and report the progress."""
        self._count_number += 1
        number, prompt_state = self._count_number, self.prompt_state
        if prompt_state is None:
            return

        def count_in_thread() -> None:
            for left in self.costs.measure_all_subjects(
                prompt_state.written, lambda: number == self._count_number
            ):
                newest = self.prompt_state or prompt_state
                sums = make_prefix_sums(newest.knowledge, self.costs)
                self._pump.call_later(self._report_count_progress, number, newest, sums, left)

        self.count_worker.submit(count_in_thread, lambda _: None, self._view.show_error)

    def _report_count_progress(
        self, number: int, prompt_state: PromptState, sums: dict[str, FolderCostSums], left: int
    ) -> None:
        if number != self._count_number:
            return
        if prompt_state is self.prompt_state:
            self.formatter.sums = sums
        self._view.show_uncounted_subjects(left)

    def stop(self) -> None:
        """Stop counting, and free the state, which may be large."""
        self._count_number += 1
        self.prompt_state = self._slugs = None
        self.pattern_result = PatternMatchResult("")
        self.costs.clear()
