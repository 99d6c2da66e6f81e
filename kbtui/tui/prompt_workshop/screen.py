"""The prompt workshop: show what an assistant gets, mark subjects, and write the marks to the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import on
from textual.containers import Vertical
from textual.widgets import Input

from kbtui.knowledge.models import PreloadOrDisableMark
from kbtui.text import one_line
from kbtui.tui.commands import make_scope_bindings
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.framework.styled_widget import make_plain_content
from kbtui.tui.framework.text_widgets import LabeledInput, PaneInput, TextLine
from kbtui.tui.library_pane import ENTRY_MARKS
from kbtui.tui.prompt_workshop.controller import KbTomlWriter, PromptWorkshopController
from kbtui.tui.prompt_workshop.pattern_bar import PatternBar
from kbtui.tui.prompt_workshop.preview_documents import make_change_preview
from kbtui.tui.prompt_workshop.prompt_state import find_subject_or_topic_state, format_cost_growth
from kbtui.tui.prompt_workshop.subject_tree import (
    UNWRITTEN_SIGN,
    WHOLE_KEY,
    SubjectTreeList,
    describe_selected_row,
    format_prompt_totals,
    make_folder_key,
)
from kbtui.tui.reader.document import format_count
from kbtui.tui.reader.document_blocks import FactTableBlock, HeadingBlock
from kbtui.tui.secondary_screen import ListDetailScreen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.binding import BindingType
    from textual.timer import Timer
    from textual.widget import Widget

    from kbtui.knowledge.kb_toml_editing import TomlChange
    from kbtui.library import Library
    from kbtui.tui.framework.row_list import ListRow
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.prompt_workshop.pattern_bar import PatternMatchResult
    from kbtui.tui.prompt_workshop.preview_documents import DocumentWithCost
    from kbtui.tui.prompt_workshop.subject_tree import SubjectTreeNode
    from kbtui.tui.reader.document_blocks import DocumentBlock

PAGE_DELAY = 0.06
"""How many seconds a row stays selected before its preview is built."""
EXPAND_MOST = 40
"""If there are no more subjects than this, all topics are expanded at first."""


class PromptWorkshopScreen(ListDetailScreen):
    """A tree of topics and subjects with their costs, a preview, and an input to try patterns.

    The result of the screen is whether it wrote anything. `reference` is the entry selected at first.
    `written` is the list of changes written in this session; the screen appends to it.
    """

    HEADING = "Prompt workshop"
    SCOPE = "workshop"
    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (70, "-beside")]  # noqa: RUF012
    AUTO_FOCUS = "#entries"
    BINDINGS: ClassVar[list[BindingType]] = [*make_scope_bindings("workshop")]
    DEFAULT_CSS = """
    PromptWorkshopScreen {
        #listed, #detail { width: 1fr; }
        &.-stacked #panes { layout: vertical; }
        #particulars, #remark { height: 1; padding: 0 1; background: $background; }
        #trying { height: auto; }
        #pattern-line { height: 1; background: $surface; }
        #pattern-sign { width: 4; height: 1; padding: 0 0 0 2; background: $surface; }
        #pattern { width: 1fr; background: $surface; color: $foreground; }
        #remark { padding: 0; display: none; }
    }
    """

    def __init__(self, library: Library, reference: str | None, written: list[TomlChange]) -> None:
        super().__init__(library)
        self.controller = PromptWorkshopController(self, self, library)
        self.list = SubjectTreeList(self.controller.formatter)
        self.pattern_bar = PatternBar()
        self.filter = LabeledInput("choose", "filter")
        self.writer = KbTomlWriter(
            self,
            written,
            on_proposed=self._show_proposed_change,
            on_written=self._on_written,
            on_undone=self._on_undone,
            on_error=self._on_write_error,
        )
        self.view = "learn"
        self.page: DocumentWithCost | None = None
        self._first_reference = reference
        self._key_to_select: str | None = WHOLE_KEY
        self._page_timer: Timer | None = None
        self._is_asking_to_leave = False
        self._has_pattern = False
        self._has_written = False
        self._marks_being_written: tuple[PreloadOrDisableMark, ...] = ()

    def compose_list_pane(self) -> list[Widget]:
        """Return the filter, the list, and the line that describes the selected row."""
        return [self.filter, self.list, TextLine(id="particulars")]

    def compose_below_panes(self) -> list[Widget]:
        """Return the input to try patterns."""
        return [self.pattern_bar]

    def on_mount(self) -> None:
        """Start reading after the first paint."""
        self._show_prompt_totals()
        self.call_after_refresh(self.controller.reread_files)

    def on_unmount(self) -> None:
        """Stop counting, and free the rows."""
        self.controller.stop()
        self.list.rows = []

    def on_resize(self) -> None:
        """Show totals and key hints that fit the new width."""
        self.call_after_refresh(self._show_prompt_totals)

    def _show_prompt_totals(self) -> None:
        width = self.query_one("#totals", TextLine).content_size.width
        marks = len(self.controller.marks)
        self.show_totals(*format_prompt_totals(self.controller.prompt_state, marks, width))
        self.show_key_hints()

    def show_message(self, text: str = "", role: str = "strong") -> None:
        """Show a message; if it replaces the question of whether to leave, cancel that question."""
        self._is_asking_to_leave = False
        super().show_message(text, role)

    @property
    def met_command_needs(self) -> frozenset[str]:
        """The features that commands can need: marks to discard, and written changes to undo."""
        found = {"marks": len(self.controller.marks) > 0, "written": bool(self.writer.written)}
        return frozenset(name for name, is_met in found.items() if is_met)

    @property
    def is_showing_change(self) -> bool:
        """Whether the screen shows a change for review, which no preview may replace."""
        return self.writer.shown is not None

    @property
    def is_loaded(self) -> bool:
        """Whether the topics have been loaded."""
        return self.controller.prompt_state is not None

    # callbacks of the controller

    def show_prompt_state(self, *, reread: bool) -> None:
        """Show a new state of the prompt; `reread` says whether it comes from reading the files again."""
        if reread and self._first_reference is not None:
            self._select_first(self._first_reference)
            self._first_reference = None
        elif reread and not self.list.rows:
            self._select_first("")
        self._show_prompt_totals()
        self.list.refresh()
        self._show_selected()

    def _select_first(self, reference: str) -> None:
        """Select the entry `reference`, and expand the topic and folders that contain it."""
        prompt_state = self.controller.prompt_state
        if prompt_state is None:
            return
        knowledge, options = prompt_state.written, self.controller.options
        counts = {
            topic: len(knowledge.get_topic_slugs(topic).visible) for topic in knowledge.topics
        }
        if sum(counts.values()) <= EXPAND_MOST:
            options.opened |= {f"topic:{topic}" for topic in counts}
        topic, _, slug = reference.partition("/")
        if topic not in knowledge.topics:
            return
        self._key_to_select = f"topic:{topic}"
        options.opened.add(self._key_to_select)
        scan = knowledge.get_topic_slugs(topic).scan
        slug = slug if slug in scan else slug.rpartition(":")[0]  # without line numbers
        if slug and slug in scan:
            options.hidden = options.hidden or slug in scan.hidden
            self._key_to_select = f"{topic}/{slug}"
            parts = slug.split("/")
            options.opened |= {
                make_folder_key(topic, "/".join(parts[:depth]) + "/")
                for depth in range(1, len(parts))
            }

    def show_rows(self, rows: list[ListRow]) -> None:
        """Show new rows; the selected row stays selected."""
        has_pattern = bool(self.controller.pattern_result.text)
        if has_pattern and not self._has_pattern and len(rows) > 1:
            self._key_to_select = rows[1].key  # the first match
        self._has_pattern = has_pattern
        empty = "No matches." if has_pattern else "Nothing to show."
        self.list.set_rows(rows, [(empty, "dim")], select=self._key_to_select)
        self._key_to_select = None
        self._show_selected()

    def show_pattern_result(self, result: PatternMatchResult) -> None:
        """Show the result of a tried pattern."""
        self.query_one("#remark").display = bool(result.text.strip())
        self.pattern_bar.show_result(result, result.cost.format_long_cost())
        self._show_selected(PAGE_DELAY)

    def show_uncounted_subjects(self, left: int) -> None:
        """Show that `left` subjects still have to be counted."""
        subtitle = f"counting {left:,}" if left else ""
        self.query_one("#listed", Vertical).border_subtitle = subtitle
        self.list.refresh()

    def show_preview(self, page: DocumentWithCost) -> None:
        """Show the preview of the selected row, unless the screen shows a change."""
        if self.is_showing_change:
            return
        self._show_preview_now(page)
        result, prompt_state = self.controller.pattern_result, self.controller.prompt_state
        if result.is_usable and page.cost is not None:
            outcome = page.cost.format_long_cost()
            if result.preloads and prompt_state is not None:
                outcome = (
                    format_cost_growth(prompt_state.cost, page.cost) or "prompt size unchanged"
                )
            self.pattern_bar.show_result(result, outcome)

    def _show_preview_now(self, page: DocumentWithCost) -> None:
        before, self.page = self.page, page
        is_same = before is not None and before.document.key == page.document.key
        if is_same and before is not None and before.line == page.line:
            self.reader.reload_document(page.document)
        else:
            self.reader.show_document(page.document)
            if page.line is not None:
                self._go_to_line(page.line)
        pane = self.query_one("#detail", Vertical)
        pane.border_title = make_plain_content(page.document.title)
        size = page.cost.format_long_cost() if page.cost else page.document.size
        pane.border_subtitle = make_plain_content(size)

    def _go_to_line(self, line: int) -> None:
        viewport = self.reader.viewport
        block = viewport.document.find_line_block(line)
        lines = viewport.get_block_lines(block)
        row = next((n for n, drawn in enumerate(lines) if drawn.source_line == line), 0)
        viewport.go_to_block_line(block, row, 0)
        self.reader.update_view()

    # the selected row

    def _show_selected(self, delay: float = 0.001) -> None:
        """Describe the selected row now, and build its preview after a delay."""
        prompt_state = self.controller.prompt_state
        if prompt_state is None:
            return
        text = one_line(describe_selected_row(prompt_state, self.list.selected_node))
        self.query_one("#particulars", TextLine).set_text([(text, "dim")])
        if self._page_timer is not None:
            self._page_timer.stop()
        self._page_timer = self.set_timer(delay, self._make_preview)

    def _make_preview(self) -> None:
        if not self.is_showing_change:
            self.controller.make_preview(self.list.selected_node, self.view)

    @on(RowList.SelectionChanged)
    def _on_row_selected(self, event: RowList.SelectionChanged) -> None:
        event.stop()
        self._withdraw_change()
        self._show_selected(PAGE_DELAY)

    @on(RowList.RowClicked)
    def _on_row_clicked(self, event: RowList.RowClicked) -> None:
        event.stop()
        if self.list.selected_node.kind in ("topic", "folder"):
            self.action_open()

    def action_move_in_list(self, where: str, *pages: float) -> None:
        """Move in the list while the pattern input keeps the focus."""
        getattr(self.list, f"action_{where}")(*pages)

    def action_view(self) -> None:
        """Switch between the output of `learn` and the whole `<knowledge>` section."""
        self.view = "prompt" if self.view == "learn" else "learn"
        self._withdraw_change()
        self._show_selected()

    def action_open(self) -> None:
        """Write the shown change; without one, expand or collapse a topic or folder, or focus the preview."""
        if self.is_showing_change:
            self.action_write()
            return
        key = self._get_branch_key(self.list.selected_node)
        if key is None:
            self.set_focus(self.reader)
        else:
            self.controller.options.opened ^= {key}
            self.controller.make_rows()

    def action_expand(self) -> None:
        """Expand the selected topic or folder."""
        if (key := self._get_branch_key(self.list.selected_node)) is not None:
            self.controller.options.opened.add(key)
            self.controller.make_rows()

    def action_collapse(self) -> None:
        """Collapse the selected topic or folder; if it is not expanded, select the parent row."""
        node, opened = self.list.selected_node, self.controller.options.opened
        key = self._get_branch_key(node)
        if key in opened:
            opened.discard(key or "")
            self.controller.make_rows()
        elif node.topic:
            above = node.name.rstrip("/").rpartition("/")[0]
            parent = make_folder_key(node.topic, f"{above}/") if above else f"topic:{node.topic}"
            self.list.select_row(parent)

    def _get_branch_key(self, node: SubjectTreeNode) -> str | None:
        if node.kind == "topic":
            return f"topic:{node.topic}"
        return make_folder_key(node.topic, node.name) if node.kind == "folder" else None

    def action_other_side(self) -> None:
        """Switch the focus between the list and the preview."""
        self.set_focus(self.reader if self.focused is self.list else self.list)

    # marks

    def action_mark(self, state: str) -> None:
        """Mark the selected subject as learned or disabled, or undo this."""
        node = self.list.selected_node
        if node.kind != "subject":
            messages = {
                "folder": "folders cannot be marked; mark their subjects",
                "topic": f"mark the subjects of this topic, or press {self.get_key_hint('switch')} to switch it on or off",
                "fragment": "JP's prompt fragments are read-only here",
            }  # fmt: skip
            self.refuse_key(messages.get(node.kind, "select a subject to mark"))
            return
        mark = PreloadOrDisableMark(
            node.topic, node.name, "learned" if state == "learned" else "disabled"
        )
        self._toggle_mark(mark)

    def action_switch(self) -> None:
        """Switch the topic of the selected row on or off."""
        topic = self.list.selected_node.topic
        if not topic:
            self.refuse_key("select a topic to switch on or off")
            return
        is_on = self.controller.formatter.find_subject_state(topic, None) == "on"
        self._toggle_mark(PreloadOrDisableMark(topic, None, "off" if is_on else "on"))

    def _toggle_mark(self, mark: PreloadOrDisableMark) -> None:
        prompt_state = self.controller.prompt_state
        if prompt_state is None or self.writer.is_writing:
            return
        if mark.topic in prompt_state.written.topics:
            current = self.controller.formatter.find_subject_state(mark.topic, mark.slug)
            written = find_subject_or_topic_state(prompt_state.written, mark.topic, mark.slug)
            otherwise: Literal["on", "plain"] = "on" if mark.slug is None else "plain"
            self.controller.marks.toggle_mark(mark, current, written, otherwise)
            self._apply_changed_marks()

    def _apply_changed_marks(self) -> None:
        self.writer.withdraw_change()
        self.show_message()
        self._show_prompt_totals()
        self.list.refresh()
        self.controller.apply_marks()

    def action_drop(self) -> None:
        """Discard all marks that are not written yet."""
        if len(self.controller.marks):
            self.controller.marks.clear()
            self._apply_changed_marks()

    # patterns, filter, hidden subjects

    def action_try(self) -> None:
        """Focus the pattern input."""
        self.controller.pattern_topic = (
            self.list.selected_node.topic or self.controller.pattern_topic
        )
        self.set_focus(self.pattern_bar.input)

    @on(PatternBar.PatternChanged)
    def _on_pattern_changed(self, event: PatternBar.PatternChanged) -> None:
        event.stop()
        self._withdraw_change()
        self.controller.try_pattern(event.text)

    @on(PatternBar.PatternSubmitted)
    def _on_pattern_submitted(self, event: PatternBar.PatternSubmitted) -> None:
        event.stop()
        self.set_focus(self.list)

    def action_filter(self) -> None:
        """Show and focus the filter of slugs."""
        self.filter.show_input()

    @on(Input.Changed, "#choose")
    def _on_filter_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.controller.options.words = event.value
        self.controller.make_rows()

    @on(Input.Submitted, "#choose")
    def _on_filter_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.set_focus(self.list)

    def action_hidden(self) -> None:
        """Show or hide hidden subjects."""
        hidden = not self.controller.options.hidden
        self.controller.show_hidden(hidden)
        self.show_message(f"hidden subjects are {'shown' if hidden else 'not shown'}")

    # writing

    def action_write(self) -> None:
        """Show the change for review; if it is shown already, write it."""
        prompt_state, marks = self.controller.prompt_state, self.controller.marks.all_marks
        if self.is_showing_change:
            self._marks_being_written = marks
            self.writer.write_change()
        elif not marks:
            self.refuse_key("no changes to write")
        elif prompt_state is not None:
            self.writer.propose_change(prompt_state.written, marks)

    def _withdraw_change(self) -> None:
        """Discard the shown change without writing it."""
        if self.is_showing_change:
            self.show_message()
        self.writer.withdraw_change()

    def _show_proposed_change(self, change: TomlChange) -> None:
        if change.is_empty:
            self.refuse_key("the file already has these settings")
            return
        self.controller.discard_previews()
        prompt_state = self.controller.prompt_state
        growth = ""
        if prompt_state:
            growth = format_cost_growth(prompt_state.written_cost, prompt_state.cost)
        note = f"Prompt: {growth or 'size unchanged'}. Nothing is written yet."
        self._show_preview_now(
            make_change_preview(change, "This will be written to .jp/kb.toml", note)
        )
        write, enter, back = (self.get_key_hint(name) for name in ("write", "open", "back"))
        self.show_message(f"{write} or {enter} write · {back} cancel", "key")

    def _on_written(self) -> None:
        self._has_written = True
        self.controller.reread_files(self._marks_being_written)
        self.show_message(f"saved to .jp/kb.toml · {self.get_key_hint('undo')} undo", "inserted")

    def action_undo(self) -> None:
        """Undo the change written last in this session."""
        if not self.writer.written:
            self.refuse_key("nothing to undo")
            return
        self._withdraw_change()
        self.writer.undo_change()

    def _on_undone(self) -> None:
        self._has_written = True
        self.controller.reread_files()
        self.show_message("restored .jp/kb.toml as it was before", "inserted")

    def _on_write_error(self, error: Exception) -> None:
        self.show_message(f"Not written. {self.describe_error(error)}", "error")
        self.controller.reread_files()

    # leaving

    @on(PaneInput.EscapePressed)
    def _on_input_left(self, event: PaneInput.EscapePressed) -> None:
        event.stop()
        self.action_back()

    def action_back(self) -> None:
        """Close the question, the change, the pattern or the filter, or leave the preview; else leave the screen."""
        if self._is_asking_to_leave:
            self.show_message()
        elif self.is_showing_change:
            self._withdraw_change()
            self._show_selected()
        elif self.pattern_bar.input.value or self.focused is self.pattern_bar.input:
            self.pattern_bar.clear()
            self.set_focus(self.list)
        elif self.filter.display:
            self.set_focus(self.list)
            self.filter.hide_input()
        elif self.focused is self.reader:
            self.set_focus(self.list)
        else:
            self.action_leave()

    def action_leave(self) -> None:
        """Leave the screen."""
        if self.can_leave():
            self.dismiss(self._has_written)

    def can_leave(self) -> bool:
        """Return True if no mark would be lost or the user was already asked; otherwise ask."""
        if self.writer.is_writing:
            self.refuse_key(".jp/kb.toml is being written; try again in a moment")
            return False
        count = len(self.controller.marks)
        if not count or self._is_asking_to_leave:
            return True
        leave, write, back = (self.get_key_hint(name) for name in ("leave", "write", "back"))
        changes = format_count(count, "unsaved change")
        self.show_message(f"{changes} · {leave} discard · {write} review · {back} stay", "warning")
        self._is_asking_to_leave = True
        return False

    # the rest

    def action_reload(self) -> None:
        """Read everything again."""
        self.controller.reread_files()

    def handle_files_changed(self, event: Mapping[str, Any]) -> None:
        """Reload if topics or subjects have changed; unwritten marks stay."""
        is_affected = event.get("knowledge") or event.get("subjects")
        if is_affected and not self.is_showing_change and not self.writer.is_writing:
            self.controller.reread_files()

    # help

    def make_help_blocks(self) -> list[DocumentBlock]:
        """Return a table that explains the signs in the list."""
        names = ("pre-loaded", "disabled", "hidden")
        signs: list[tuple[str, Spans]] = [(ENTRY_MARKS[name][0], [(name, "")]) for name in names]
        signs.append((UNWRITTEN_SIGN, [("changed, but not written yet", "")]))
        signs.append(("~", [("estimated from the file size", "")]))
        signs.append(("≈", [("characters ≈ estimated tokens", "")]))
        return [
            HeadingBlock("head:signs", [("Signs", "h2")], above=1),
            FactTableBlock("signs", signs),
        ]

    def make_help_notes(self) -> tuple[str]:
        """Return a note on how to write marks, with the configured keys."""
        write, enter = self.get_key_hint("write"), self.get_key_hint("open")
        return (
            f"Marks have no effect until you write them: {write} shows the change of .jp/kb.toml, then "
            f"{write} or {enter} writes it. In an input, keys type text; press Esc to leave it and "
            "use single-key commands.",
        )
