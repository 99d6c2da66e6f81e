"""The prompt workshop, a screen that shows the prompt that an assistant receives.

The user can mark subjects to pre-load or disable them, and then write these marks to `kb.toml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Literal

from textual import on
from textual.containers import Vertical
from textual.widgets import Input

from kbtui.errors import KbtuiError
from kbtui.knowledge import toml_config_editor
from kbtui.knowledge.knowledge_data_types import PreloadOrDisableChange
from kbtui.knowledge.learn_tool_answers import escape_quotes_as_entities
from kbtui.library.index_and_engine_access import CallCancellation, get_current_cancellation
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import (
    LabeledInput,
    LeftAndRightTextLine,
    make_plain_label_text,
)
from kbtui.tui.framework.idle_garbage_collection import freeze_gc_if_many_new_entries
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.library_pane import ENTRY_MARKS, list_parent_row_keys
from kbtui.tui.prompt_workshop.subject_pattern_input_bar import (
    SubjectPatternInputBar,
    SubjectPatternMatches,
    find_subject_pattern_matches,
)
from kbtui.tui.prompt_workshop.subject_tree import (
    UNWRITTEN_SIGN,
    WHOLE_PROMPT_KEY,
    SubjectTreeFoldsAndFilter,
    SubjectTreeList,
    describe_tree_node,
    format_prompt_totals,
    make_rows_of_matching_subjects,
    make_subject_tree_rows,
)
from kbtui.tui.prompt_workshop.system_prompt_with_unsaved_changes import (
    PendingPreloadOrDisableChanges,
    PromptTextSize,
    RunningSumsOfSubjectSizes,
    SubjectPromptSizes,
    SystemPromptWithUnsavedChanges,
    format_prompt_size_change,
    load_prompt_with_changes,
    make_prompt_with_pending_marks,
    make_running_subject_size_sums_by_topic,
    measure_prompt_size,
)
from kbtui.tui.reader.reader_blocks import (
    FactTableReaderBlock,
    ParagraphReaderBlock,
    make_blocks_of_problem_and_hint,
    make_heading_block_with_note,
    make_source_text_blocks,
)
from kbtui.tui.reader.reader_document import ReaderDocument
from kbtui.tui.reader.subject_document_builder import (
    NO_KNOWLEDGE_SECTION,
    build_assistant_text_document,
)
from kbtui.tui.secondary_screen import ListDetailScreen
from kbtui.workspace.paths import TOPICS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer
    from textual.widget import Widget

    from kbtui.engine.engine_protocol import IndexChangedEvent
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.toml_config_editor import TomlFileChange
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.prompt_workshop.subject_tree import SubjectTreeNode
    from kbtui.tui.reader.reader_blocks import ReaderBlock


# the pages of the right pane


@dataclass(frozen=True)
class WorkshopPreviewDocument:
    """A document for the right pane of the workshop.

    `size` is the size of the document's text, or None if assistants do not receive this text. `line`
    is the number of the line to show first, counted from 1; None means the top.
    """

    document: ReaderDocument
    size: PromptTextSize | None = None
    line: int | None = None


def make_workshop_preview(
    prompt_with_changes: SystemPromptWithUnsavedChanges,
    node: SubjectTreeNode,
    view: str,
    result: SubjectPatternMatches | None,
) -> WorkshopPreviewDocument:
    """Return the preview of the selected row, or of the pattern that the user is trying.

    If this preview cannot be built, return one that shows the error. Called in a background thread.
    """
    try:
        return _make_tree_node_preview(prompt_with_changes, node, view, result)
    except KbtuiError as error:
        return _make_message_preview("problem", error.message, error.where, error.hint)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return _make_message_preview("problem", f"{type(error).__name__}: {error}")


def _make_tree_node_preview(
    prompt_with_changes: SystemPromptWithUnsavedChanges,
    node: SubjectTreeNode,
    view: str,
    result: SubjectPatternMatches | None,
) -> WorkshopPreviewDocument:
    knowledge = prompt_with_changes.knowledge
    if result is not None and result.preloads:
        tried = knowledge.copy_with_preload_options(result.preloads)
        return _make_prompt_preview(
            result.kbtui_command_arguments, tried.format_knowledge_section()
        )
    if result is not None and result.topic and view == "learn":
        return _make_learn_output_preview(knowledge, result.topic, result.patterns)
    if node.kind == "problem":
        return _make_message_preview("problem", node.name)
    if node.kind == "fragment":
        return _make_jp_prompt_section_preview(prompt_with_changes, node.number)
    if view == "prompt" or node.kind == "whole":
        preview = _make_prompt_preview("prompt", prompt_with_changes.prompt)
        line = _find_subject_line_in_system_prompt(
            knowledge, prompt_with_changes.prompt or "", node
        )
        return replace(preview, line=line)
    if node.kind == "topic":
        return _make_learn_output_preview(knowledge, node.topic, ())
    pattern = f"{escape_glob(node.name)}**" if node.kind == "folder" else node.name
    return _make_learn_output_preview(knowledge, node.topic, (pattern,))


def escape_glob(text: str) -> str:
    """Return a glob that matches only `text`."""
    return re.sub(r"[*?\[]", r"[\g<0>]", text)


def _make_learn_output_preview(
    knowledge: KnowledgeBase, topic: str, patterns: tuple[str, ...]
) -> WorkshopPreviewDocument:
    """Return a preview with the exact output of `learn`."""
    text = knowledge.learn(topic, list(patterns), has_prompt=True).text
    command = " ".join(["learn", quote(topic), *map(quote, patterns)])
    return _make_preview_of_text_for_assistants(
        f"learn:{topic}:{' '.join(patterns)}", command, text
    )


def _make_prompt_preview(title: str, text: str | None) -> WorkshopPreviewDocument:
    if text is None:
        return _make_message_preview("prompt", NO_KNOWLEDGE_SECTION)
    return _make_preview_of_text_for_assistants("prompt", title, text)


def _make_preview_of_text_for_assistants(
    key: str, title: str, text: str
) -> WorkshopPreviewDocument:
    document = build_assistant_text_document(key, sanitize_to_one_line(title), text, view="prompt")
    size = measure_prompt_size(text)
    document.size = size.format_prompt_size_with_units()
    return WorkshopPreviewDocument(document, size)


def _find_subject_line_in_system_prompt(
    knowledge: KnowledgeBase, text: str, node: SubjectTreeNode
) -> int | None:
    """Return the line number of a topic or subject in the prompt, or None.

    If the prompt does not contain the subject, return the line number of its topic.
    """
    if node.kind not in ("topic", "subject") or node.topic not in knowledge.topics:
        return None
    name = escape_quotes_as_entities(knowledge.topics[node.topic].name)
    at = text.find(f'\n<topic "{name}">\n')
    if at >= 0 and node.kind == "subject":
        within = text.find(f'\n<subject "{escape_quotes_as_entities(node.name)}">\n', at)
        at = within if within >= 0 else at
    return None if at < 0 else text.count("\n", 0, at + 1) + 1


def _make_jp_prompt_section_preview(
    prompt_with_changes: SystemPromptWithUnsavedChanges, number: int
) -> WorkshopPreviewDocument:
    if number >= len(prompt_with_changes.jp_sections):
        return _make_message_preview("fragment", "This prompt section no longer exists.")
    section = prompt_with_changes.jp_sections[number]
    root, path = prompt_with_changes.written.workspace.root, section.path
    path = path.relative_to(root) if path.is_relative_to(root) else path
    facts: list[tuple[str, Spans]] = [("file", [(sanitize_to_one_line(str(path)), "")])]
    if section.tag:
        facts.append(("tag", [(sanitize_to_one_line(section.tag), "")]))
    if section.position is not None:
        facts.append(("position", [(str(section.position), "")]))
    loaders = sanitize_to_one_line(", ".join(section.loaded_by))
    facts.append(("loaded by", [(loaders or "nothing", "" if loaders else "warning")]))
    blocks: list[ReaderBlock] = [FactTableReaderBlock("facts", facts)]
    blocks += make_source_text_blocks("text", section.content, above=1)
    size = measure_prompt_size(section.content)
    key, size_text = f"fragment:{number}:{section.path}", size.format_prompt_size_with_units()
    return WorkshopPreviewDocument(
        ReaderDocument(key, sanitize_to_one_line(section.name), blocks, size=size_text), size
    )


def _make_message_preview(
    key: str, message: str, where: str | None = None, hint: str | None = None
) -> WorkshopPreviewDocument:
    blocks = make_blocks_of_problem_and_hint([(sanitize_to_one_line(message), "")], where, hint)
    return WorkshopPreviewDocument(ReaderDocument(f"message:{key}", "", blocks))


def make_toml_change_preview(
    change: TomlFileChange, heading: str, note: str
) -> WorkshopPreviewDocument:
    """Return a preview with a heading, a note, and the unified diff of a change."""
    blocks: list[ReaderBlock] = [
        make_heading_block_with_note("head", sanitize_to_one_line(heading), above=0),
        ParagraphReaderBlock("words", [(note, "dim")]),
        *make_source_text_blocks("text", change.diff, language="diff", above=1),
    ]
    return WorkshopPreviewDocument(ReaderDocument("change", "", blocks))


# the screen

PREVIEW_DELAY = 0.06
"""The number of seconds that a row must stay selected before its preview is built."""
MAX_UNFOLDED_SUBJECTS = 40
"""If there are at most this many subjects in total, all topics start unfolded."""


class PromptWorkshopScreen(ListDetailScreen):
    """A screen with a tree of topics and subjects, a preview, and an input for trying out patterns.

    When the screen closes, it returns whether it has written to a file. `reference` is the entry to
    select at first. `written` lists the changes that the workshop has written since kbtui was
    started. The screen appends its changes to this list, and removes changes that the user undoes.
    """

    HEADING = "Prompt workshop"
    SCOPE = "workshop"
    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (70, "-beside")]  # noqa: RUF012
    DEFAULT_CSS = """
    PromptWorkshopScreen {
        #listed, #detail { width: 1fr; }
        &.-stacked #panes { layout: vertical; }
        #particulars, #problem { height: 1; padding: 0 1; background: $background; }
        #trying { height: auto; }
        #pattern-line { height: 1; background: $surface; }
        #pattern-sign { width: 4; height: 1; padding: 0 0 0 2; background: $surface; }
        #pattern { width: 1fr; background: $surface; color: $foreground; }
        #problem { padding: 0; display: none; }
    }
    """

    def __init__(
        self, library: Library, reference: str | None, written: list[TomlFileChange]
    ) -> None:
        self.marks = PendingPreloadOrDisableChanges()
        self.subject_sizes = SubjectPromptSizes()
        self.options = SubjectTreeFoldsAndFilter()
        self.list: SubjectTreeList
        super().__init__(library, SubjectTreeList(self.subject_sizes, self.marks, self.options))
        self.prompt_with_changes: SystemPromptWithUnsavedChanges | None = None
        self.pattern_bar = SubjectPatternInputBar()
        self.pattern_result = SubjectPatternMatches("")
        self.filter = LabeledInput("choose", "filter")
        self.view = "learn"
        self.preview: WorkshopPreviewDocument | None = None
        self._pattern_topic: str | None = None
        """The topic in which patterns without a topic are matched."""
        self._has_match_rows = False
        self._initial_reference: str | None = reference or ""
        self._key_to_select: str | None = WHOLE_PROMPT_KEY
        self._preview_timer: Timer | None = None
        self._shown_change: TomlFileChange | None = None
        """The change to `kb.toml` that the user is reviewing; None if a preview is shown instead."""
        self._written_changes = written
        self._is_writing = False
        self._has_written = False
        self._is_asking_to_leave = False
        self._write_worker = LatestOnlyWorker(self)
        self._mark_worker = LatestOnlyWorker(self)
        self._row_worker = LatestOnlyWorker(self)
        # Build up to two previews at a time, so that a very long text does not delay the next preview.
        self._preview_worker = LatestOnlyWorker(self, limit=2)
        self.pattern_worker = LatestOnlyWorker(self)
        self.count_worker = LatestOnlyWorker(self, cancellation=CallCancellation)

    def compose_list_pane(self) -> list[Widget]:
        return [self.filter, self.list, LeftAndRightTextLine(id="particulars")]

    def make_widgets_below_panes(self) -> list[Widget]:
        return [self.pattern_bar]

    def on_mount(self) -> None:
        self._show_prompt_totals()

    def on_unmount(self) -> None:
        """Stop measuring sizes, and free the rows and the prompt, because they may be large."""
        self.count_worker.discard_pending_results()
        self.prompt_with_changes = self.list.prompt_with_changes = None
        self.pattern_result = SubjectPatternMatches("")
        self.subject_sizes.forget_subject_sizes()
        self.list.rows = []

    def _show_prompt_totals(self) -> None:
        self.show_totals_line(*format_prompt_totals(self.prompt_with_changes, len(self.marks)))
        self.show_key_hints()

    def show_message(self, text: str = "", role: str = "strong") -> None:
        """Show a message.

        If the screen is asking whether to leave without writing, the message replaces this question.
        """
        self._is_asking_to_leave = False
        super().show_message(text, role)

    @property
    def command_condition_states(self) -> dict[str, bool]:
        return {"marks": bool(self.marks), "written": bool(self._written_changes)}

    @property
    def has_loaded_content(self) -> bool:
        return self.prompt_with_changes is not None

    # the prompt with the changes

    def action_reload(self) -> None:
        self._reload_knowledge_files()

    def handle_files_changed(self, event: IndexChangedEvent) -> None:
        """Reload if topics or subjects have changed. The user's unwritten marks are kept."""
        is_affected = event.get("knowledge") or event.get("subjects")
        if is_affected and self._shown_change is None and not self._is_writing:
            self._reload_knowledge_files()

    def _reload_knowledge_files(self, written: tuple[PreloadOrDisableChange, ...] = ()) -> None:
        """Read the files again, and remove the marks in `written`, because `kb.toml` now contains them."""
        marks = tuple(mark for mark in self.marks.pending_marks_in_order if mark not in written)

        def show_reloaded_prompt(prompt_with_changes: SystemPromptWithUnsavedChanges) -> None:
            for mark in written:
                self.marks.remove_pending_mark_unless_replaced(mark)
            if self._initial_reference is not None:
                self._select_initial_entry(prompt_with_changes, self._initial_reference)
                self._initial_reference = None
            self._update_tree_with_changed_prompt(prompt_with_changes)
            knowledge = prompt_with_changes.written
            slugs = (
                knowledge.get_topic_slugs_by_visibility(topic).scan.slugs
                for topic in knowledge.topics
            )
            freeze_gc_if_many_new_entries(sum(map(len, slugs)))
            self._measure_subjects_with_progress(prompt_with_changes)

        self.run_in_thread(
            lambda: load_prompt_with_changes(self.library, self.subject_sizes, marks),
            show_reloaded_prompt,
        )

    def _apply_pending_marks_to_prompt(self) -> None:
        """Apply the current marks to the prompt that was read from the files, and show the result."""
        prompt_with_changes, marks = self.prompt_with_changes, self.marks.pending_marks_in_order
        if prompt_with_changes is None:
            return

        def show_prompt_if_current(marked: SystemPromptWithUnsavedChanges) -> None:
            if (
                self.prompt_with_changes is not None
                and marked.written is self.prompt_with_changes.written
            ):
                self._update_tree_with_changed_prompt(marked)

        self.run_in_thread(
            lambda: make_prompt_with_pending_marks(prompt_with_changes, self.subject_sizes, marks),
            show_prompt_if_current,
            self._mark_worker,
        )

    def _update_tree_with_changed_prompt(
        self, prompt_with_changes: SystemPromptWithUnsavedChanges
    ) -> None:
        self.prompt_with_changes = prompt_with_changes
        self.list.set_prompt_with_changes(prompt_with_changes)
        for mark, _ in prompt_with_changes.refusals:
            self.marks.remove_pending_mark_unless_replaced(mark)
        self._show_prompt_totals()
        self._show_row_facts_and_preview_after_delay()
        # The marks may have changed while the thread ran.
        if self.marks.pending_marks_in_order != prompt_with_changes.marks:
            self._apply_pending_marks_to_prompt()
        self._rebuild_tree_rows()
        for _, error in prompt_with_changes.refusals:
            self.show_error(error)

    def _select_initial_entry(
        self, prompt_with_changes: SystemPromptWithUnsavedChanges, reference: str
    ) -> None:
        """Select the entry `reference`, and unfold the topic and folders that contain it."""
        knowledge, options = prompt_with_changes.written, self.options
        topics = {
            topic: knowledge.get_topic_slugs_by_visibility(topic) for topic in knowledge.topics
        }
        if sum(len(slugs.visible) for slugs in topics.values()) <= MAX_UNFOLDED_SUBJECTS:
            options.opened |= {f"topic:{topic}" for topic in topics}
        topic, _, slug = reference.partition("/")
        if topic not in topics:
            return
        self._key_to_select = f"topic:{topic}"
        options.opened.add(self._key_to_select)
        scan = topics[topic].scan
        slug = slug if slug in scan else slug.rpartition(":")[0]  # Remove line numbers.
        if slug and slug in scan:
            options.hidden = options.hidden or slug in scan.hidden
            self._key_to_select = f"{topic}/{slug}"
            options.opened.update(list_parent_row_keys(topic, slug))

    def _measure_subjects_with_progress(
        self, prompt_with_changes: SystemPromptWithUnsavedChanges
    ) -> None:
        """Measure the size of every subject in a background thread, and show the progress."""

        def measure_in_thread() -> None:
            call, written = get_current_cancellation(), prompt_with_changes.written
            for left in self.subject_sizes.measure_subject_sizes(
                written, lambda: not call.cancelled
            ):
                knowledge = (self.prompt_with_changes or prompt_with_changes).knowledge
                sums = make_running_subject_size_sums_by_topic(knowledge, self.subject_sizes)
                self.call_later(show_progress, call, knowledge, sums, left)

        def show_progress(
            call: CallCancellation,
            knowledge: KnowledgeBase,
            sums: dict[str, RunningSumsOfSubjectSizes],
            left: int,
        ) -> None:
            if call.cancelled:
                return
            if (
                self.prompt_with_changes is not None
                and self.prompt_with_changes.knowledge is knowledge
            ):
                self.prompt_with_changes = replace(self.prompt_with_changes, sums=sums)
                self.list.set_prompt_with_changes(self.prompt_with_changes)
            subtitle = f"{format_counted_noun(left, 'subject')} still to be read" if left else ""
            self.query_one("#listed", Vertical).border_subtitle = subtitle

        self.run_in_thread(measure_in_thread, lambda _: None, self.count_worker)

    # rows and patterns

    def _rebuild_tree_rows(self) -> None:
        """Rebuild the rows of the tree, or the list of matches if the user has typed a pattern."""
        if self.pattern_result.text.strip():
            self._list_matches_of_pattern_instead_of_tree(self.pattern_result.text)
        elif (prompt_with_changes := self.prompt_with_changes) is not None:
            options = replace(self.options, opened=set(self.options.opened))
            make_rows = partial(make_subject_tree_rows, prompt_with_changes, options)
            self.run_in_thread(make_rows, self._show_tree_rows, self._row_worker)

    def _show_tree_rows(self, rows: list[ListRow]) -> None:
        """Show new rows; the selected row stays selected."""
        has_pattern = bool(self.pattern_result.text)
        if has_pattern and not self._has_match_rows and len(rows) > 1:
            self._key_to_select = rows[1].key  # Select the first match.
        self._has_match_rows = has_pattern
        empty = "No matches." if has_pattern else "Nothing to show."
        self.list.set_rows(rows, [(empty, "dim")], select=self._key_to_select)
        self._key_to_select = None
        self._show_row_facts_and_preview_after_delay()

    def _list_matches_of_pattern_instead_of_tree(self, text: str) -> None:
        """Parse a pattern and list its matches. If the pattern is empty, show the tree again."""
        if not text.strip():
            self.pattern_worker.discard_pending_results()
            self._set_pattern_result(SubjectPatternMatches(""))
            self._rebuild_tree_rows()
            return
        prompt_with_changes, topic = self.prompt_with_changes, self._pattern_topic
        self.pattern_result = replace(self.pattern_result, text=text)
        if (
            prompt_with_changes is None
        ):  # `_rebuild_tree_rows` will match the pattern after the files have been read
            return

        def match_pattern() -> tuple[SubjectPatternMatches, list[ListRow]]:
            result = find_subject_pattern_matches(
                text, prompt_with_changes.knowledge, self.subject_sizes, topic
            )
            return result, make_rows_of_matching_subjects(result.matches)

        def show_matches(made: tuple[SubjectPatternMatches, list[ListRow]]) -> None:
            result, rows = made
            self._show_tree_rows(rows)
            self._set_pattern_result(result)

        self._row_worker.discard_pending_results()
        self.run_in_thread(match_pattern, show_matches, self.pattern_worker)

    def _set_pattern_result(self, result: SubjectPatternMatches) -> None:
        self.pattern_result = result
        self.pattern_bar.show_pattern_result(result, result.size.format_prompt_size_with_units())
        self._show_row_facts_and_preview_after_delay(PREVIEW_DELAY)

    def action_focus_pattern_input(self) -> None:
        self._pattern_topic = self.list.selected_tree_node.topic or self._pattern_topic
        self.set_focus(self.pattern_bar.input)

    @on(Input.Changed, "#pattern")
    def _on_pattern_changed(self, event: Input.Changed) -> None:
        self._discard_proposed_kb_toml_change()
        self._list_matches_of_pattern_instead_of_tree(event.value)

    def action_focus_filter(self) -> None:
        self.filter.show_input()

    @on(Input.Changed, "#choose")
    def _on_filter_changed(self, event: Input.Changed) -> None:
        self.options.words = event.value
        self._rebuild_tree_rows()

    def action_toggle_hidden_subjects(self) -> None:
        self.options.hidden = not self.options.hidden
        self._rebuild_tree_rows()
        self.show_message(f"hidden subjects are {'shown' if self.options.hidden else 'not shown'}")

    # the selected row and its preview

    def _show_row_facts_and_preview_after_delay(self, delay: float = 0.001) -> None:
        """Describe the selected row now, and build its preview after a delay."""
        if self.prompt_with_changes is None:
            return
        text = sanitize_to_one_line(
            describe_tree_node(self.prompt_with_changes, self.list.selected_tree_node)
        )
        self.query_one("#particulars", LeftAndRightTextLine).set_edge_texts([(text, "dim")])
        if self._preview_timer is not None:
            self._preview_timer.stop()
        self._preview_timer = self.set_timer(delay, self._build_selected_row_preview)

    def _build_selected_row_preview(self) -> None:
        """Build the preview of the selected row, or of the pattern if the user has typed one."""
        prompt_with_changes, view = self.prompt_with_changes, self.view
        node = self.list.selected_tree_node
        if prompt_with_changes is None or self._shown_change is not None:
            return
        result = self.pattern_result if self.pattern_result.text.strip() else None
        make_preview = partial(make_workshop_preview, prompt_with_changes, node, view, result)
        self.run_in_thread(make_preview, self._show_built_preview, self._preview_worker)

    def _show_built_preview(self, preview: WorkshopPreviewDocument) -> None:
        if self._shown_change is not None:
            return
        self._show_preview(preview)
        result, prompt_with_changes = self.pattern_result, self.prompt_with_changes
        if result.is_valid_pattern and preview.size is not None:
            outcome = preview.document.size
            if result.preloads and prompt_with_changes is not None:
                growth = format_prompt_size_change(prompt_with_changes.size, preview.size)
                outcome = growth or "prompt size unchanged"
            self.pattern_bar.show_pattern_result(result, outcome)

    def _show_preview(self, preview: WorkshopPreviewDocument) -> None:
        before, self.preview = self.preview, preview
        document = preview.document
        if before and (before.document.key, before.line) == (document.key, preview.line):
            self.reader.show_reloaded_document(document)
        else:
            self.reader.show_document(document)
            if preview.line is not None:
                self.reader.viewport.go_to_source_line(preview.line)
                self.reader.redraw_after_viewport_change()
        pane = self.query_one("#detail", Vertical)
        pane.border_title = make_plain_label_text(document.title)
        pane.border_subtitle = make_plain_label_text(document.size)

    @on(RowList.SelectedRowChanged)
    def _on_row_selected(self) -> None:
        self._discard_proposed_kb_toml_change()
        self._show_row_facts_and_preview_after_delay(PREVIEW_DELAY)

    @on(RowList.RowClicked)
    def _on_row_clicked(self) -> None:
        if self.list.selected_tree_node.kind in ("topic", "folder"):
            self.action_open_row_or_write()

    def action_move_in_list(self, where: str, *pages: float) -> None:
        """Select another row in the list while the pattern input keeps the focus.

        `where` is "down", "up" or "scroll_pages".
        """
        getattr(self.list, f"action_{where}")(*pages)

    def action_toggle_preview_kind(self) -> None:
        self.view = "prompt" if self.view == "learn" else "learn"
        self._discard_proposed_kb_toml_change()
        self._show_row_facts_and_preview_after_delay()

    def action_open_row_or_write(self) -> None:
        """Write the change under review.

        If no change is under review, fold or unfold the selected topic or folder. If another kind of
        row is selected, focus the preview.
        """
        if self._shown_change is not None:
            self.action_review_or_write_marks()
        elif key := self.list.selected_tree_node.row_key_if_foldable:
            self.options.opened ^= {key}
            self._rebuild_tree_rows()
        else:
            self.set_focus(self.reader)

    def action_unfold_row(self) -> None:
        if key := self.list.selected_tree_node.row_key_if_foldable:
            self.options.opened.add(key)
            self._rebuild_tree_rows()

    def action_fold_row(self) -> None:
        """Fold the selected topic or folder if it is unfolded. Otherwise, select the parent row."""
        node = self.list.selected_tree_node
        if node.row_key_if_foldable in self.options.opened:
            self.options.opened.remove(node.row_key_if_foldable)
            self._rebuild_tree_rows()
        elif node.topic:
            self.list.select_row(list_parent_row_keys(node.topic, node.name.rstrip("/"))[-1])

    def action_focus_other_pane(self) -> None:
        self.set_focus(self.reader if self.focused is self.list else self.list)

    # marks

    def action_toggle_subject_mark(self, state: Literal["learned", "disabled"]) -> None:
        node = self.list.selected_tree_node
        if node.kind == "subject":
            self._toggle_pending_mark(PreloadOrDisableChange(node.topic, node.name, state))
            return
        switch = self.get_key_label("switch")
        reasons = {
            "folder": "folders cannot be marked; mark their subjects instead",
            "topic": f"select a subject to mark, or press {switch} to switch the topic on or off",
            "fragment": "JP's prompt sections are read-only here",
        }
        self.show_unavailable_key_message(reasons.get(node.kind, "select a subject to mark"))

    def action_toggle_topic(self) -> None:
        topic = self.list.selected_tree_node.topic
        if not topic:
            self.show_unavailable_key_message("select a topic to switch on or off")
        elif self.prompt_with_changes is not None:
            is_on = (
                self.marks.find_state_with_pending_mark(
                    self.prompt_with_changes.written, topic, None
                )
                == "on"
            )
            self._toggle_pending_mark(PreloadOrDisableChange(topic, None, "off" if is_on else "on"))

    def _toggle_pending_mark(self, mark: PreloadOrDisableChange) -> None:
        written = self.prompt_with_changes.written if self.prompt_with_changes else None
        if written is not None and mark.topic in written.topics and not self._is_writing:
            self.marks.toggle_pending_mark(mark, written)
            self._update_prompt_after_marking()

    def action_discard_marks(self) -> None:
        if self.marks:
            self.marks.clear()
            self._update_prompt_after_marking()

    def _update_prompt_after_marking(self) -> None:
        self._discard_proposed_kb_toml_change()
        self.show_message()
        self._show_prompt_totals()
        self.list.refresh()
        self._apply_pending_marks_to_prompt()

    # writing

    def action_review_or_write_marks(self) -> None:
        """Show how the marks would change `kb.toml`. If this change is already shown, write it."""
        change, marks = self._shown_change, self.marks.pending_marks_in_order
        if change is not None:
            self._shown_change = None

            def show_written_change() -> None:
                self._written_changes.append(change)
                self._reload_knowledge_files(marks)
                undo = self.get_key_label("undo")
                self.show_message(f"written to {change.name} · {undo}: undo", "inserted")

            self._change_kb_toml_file(
                lambda: toml_config_editor.write_toml_file_change(change), show_written_change
            )
        elif not marks:
            self.show_unavailable_key_message("no changes to write")
        elif self.prompt_with_changes is not None and not self._is_writing:
            written = self.prompt_with_changes.written
            self._write_worker.submit_call(
                lambda: toml_config_editor.plan_toml_change_for_preload_or_disable_changes(
                    written, marks
                ),
                self._show_proposed_kb_toml_change,
                self._on_write_error,
            )

    def action_undo_written_change(self) -> None:
        """Undo the last change that the workshop has written since kbtui was started."""
        if not self._written_changes:
            self.show_unavailable_key_message("nothing to undo")
            return
        change = self._written_changes[-1]

        def show_undone_change() -> None:
            self._written_changes.remove(change)
            self._reload_knowledge_files()
            self.show_message(f"restored the previous {change.name}", "inserted")

        self._discard_proposed_kb_toml_change()
        self._change_kb_toml_file(
            lambda: toml_config_editor.undo_toml_change(change), show_undone_change
        )

    def _change_kb_toml_file(
        self, change_file: Callable[[], None], on_changed: Callable[[], None]
    ) -> None:
        if self._is_writing:
            return
        self._is_writing = True

        def finish_writing(_: None) -> None:
            self._is_writing = False
            self._has_written = True
            on_changed()

        self._write_worker.submit_call(change_file, finish_writing, self._on_write_error)

    def _on_write_error(self, error: Exception) -> None:
        self._is_writing = False
        self.show_message(f"Not written. {self.format_error_on_one_line(error)}", "error")
        self._reload_knowledge_files()

    def _show_proposed_kb_toml_change(self, change: TomlFileChange) -> None:
        if change.has_no_changes:
            self.show_unavailable_key_message("the file already has these settings")
            return
        self._shown_change = change
        self._preview_worker.discard_pending_results()
        state = self.prompt_with_changes
        growth = format_prompt_size_change(state.written_size, state.size) if state else ""
        note = f"Prompt: {growth or 'size unchanged'}. Nothing has been written yet."
        heading = f"This will be written to {change.name}"
        self._show_preview(make_toml_change_preview(change, heading, note))
        write, enter, back = map(self.get_key_label, ("write", "open", "back"))
        self.show_message(f"{write} or {enter}: write · {back}: cancel", "key")

    def _discard_proposed_kb_toml_change(self) -> None:
        """Discard the proposed change without writing it."""
        if self._shown_change is not None:
            self._shown_change = None
            self.show_message()
        if not self._is_writing:
            self._write_worker.discard_pending_results()

    # leaving

    def action_back(self) -> None:
        """Close the question, review, pattern or filter that is open.

        If none of them is open, move the focus from the preview to the list. If the list already has
        it, leave the screen.
        """
        if self._is_asking_to_leave:
            self.show_message()
        elif self._shown_change is not None:
            self._discard_proposed_kb_toml_change()
            self._show_row_facts_and_preview_after_delay()
        elif self.pattern_bar.input.value or self.focused is self.pattern_bar.input:
            self.pattern_bar.input.value = ""
            self.set_focus(self.list)
        elif self.filter.display:
            self.set_focus(self.list)
            self.filter.hide_input()
        elif self.focused is self.reader:
            self.set_focus(self.list)
        else:
            self.action_leave()

    def action_leave(self) -> None:
        if self.can_close_or_ask_first():
            self.dismiss(self._has_written)

    def can_close_or_ask_first(self) -> bool:
        """Return whether the screen can close now.

        If there are unwritten changes, the first call asks the user whether to discard them and returns
        False; the next call returns True. While the file is being written, return False.
        """
        if self._is_writing:
            file = self.library.workspace.format_config_path(TOPICS_FILE)
            self.show_unavailable_key_message(f"{file} is being written; try again in a moment")
            return False
        if not self.marks or self._is_asking_to_leave:
            return True
        leave, write, back = map(self.get_key_label, ("leave", "write", "back"))
        lost = f"{format_counted_noun(len(self.marks), 'unwritten change')} · {leave}: discard"
        self.show_message(f"{lost} · {write}: review · {back}: stay", "warning")
        self._is_asking_to_leave = True
        return False

    def make_help_blocks(self) -> list[ReaderBlock]:
        names = ("pre-loaded", "disabled", "hidden")
        signs: list[tuple[str, Spans]] = [
            *((ENTRY_MARKS[name][0], [(name, "")]) for name in names),
            (UNWRITTEN_SIGN, [("changed, but not written yet", "")]),
            ("~", [("estimated from the file size", "")]),
            ("≈", [("characters ≈ estimated tokens", "")]),
        ]
        write, enter = self.get_key_label("write"), self.get_key_label("open")
        file = self.library.workspace.format_config_path(TOPICS_FILE)
        note = (
            f"Marks have no effect until you write them: {write} shows the change to {file}, then "
            f"{write} or {enter} writes it. In an input, letters are typed as text; press Esc to leave "
            "it and use single-key commands."
        )
        return [
            make_heading_block_with_note("head:signs", "Signs"),
            FactTableReaderBlock("signs", signs),
            ParagraphReaderBlock("note", [(note, "dim")], above=1),
        ]
