"""The reader pane: a document with a header, its details, and a find bar."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from textual import events, on
from textual.actions import SkipAction
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from kbtui.references import make_conversation_ref, parse_ref
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import (
    LabeledInput,
    LeftAndRightTextLine,
    PaneCoveredByChildren,
    TextInputInPane,
    WrappedTextBarAboveWidget,
    get_configured_keys,
    make_plain_label_text,
)
from kbtui.tui.framework.idle_garbage_collection import free_document_in_background
from kbtui.tui.framework.styled_text import Spans, StyledLines, measure_cell_width
from kbtui.tui.navigation_target import (
    OpenTargetRequested,
    make_difference_target,
    make_navigation_target,
)
from kbtui.tui.reader.document_view import DocumentView
from kbtui.tui.reader.reader_document import (
    CHANGES_VIEW_NAMES,
    CHANGES_VIEWS,
    STEP_VIEWS,
    compile_pattern_for_terms,
    describe_missing_line,
    describe_missing_turn_or_line,
    find_start_block_and_match,
    format_turn_count,
    has_lost_turns,
)
from kbtui.tui.tui_command_table import find_key_label_of_command, make_key_bindings_of_scopes

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.strip import Strip

    from kbtui.tui.navigation_target import NavigationTarget, ReadingPosition
    from kbtui.tui.reader.reader_document import OutlineEntry, ReaderDocument


MAX_MATCHES = 100_000
"""The search in a document stops after this many matches. The shown count then ends with "+"."""


class ReaderHeader(LeftAndRightTextLine):
    """The line above the document. The user can click the parts on its left side."""

    class HeaderPartClicked(Message):
        """The user clicked a part of the header."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def on_click(self, event: events.Click) -> None:
        """Post `HeaderPartClicked` for the clicked part."""
        edge = self.gutter.left
        for text, _ in self.left:
            edge += measure_cell_width([(text, "")])
            if event.x < edge:
                self.post_message(self.HeaderPartClicked(text))
                return


class DocumentFactsBar(WrappedTextBarAboveWidget):
    """The details of the document, shown above the document when the user asks for them."""

    DEFAULT_CSS = "DocumentFactsBar { max-height: 75%; }"

    def set_document_facts(self, facts: list[tuple[str, Spans]]) -> None:
        """Set the details of the document: names and values. Without details, hide the bar."""
        from kbtui.tui.reader.reader_blocks import FactTableReaderBlock

        self._block = FactTableReaderBlock("facts", facts)
        self.set_paragraphs([spans for _, spans in facts])

    def _wrap_paragraphs(self, width: int) -> StyledLines:
        return self._block.lay_out_with_lead_and_space_above(width) if self.display else []

    def render_line(self, y: int) -> Strip:
        """Render a line of the details.

        If some lines do not fit, the last visible line says how many are hidden.
        """
        width, height = self.content_size
        left = len(self._wrap_paragraphs(width)) - height
        if y == height - 1 and left > 0:
            text = f"… {format_counted_noun(left + 1, 'more line')}"
            return self.render_spans([(text, "dim")], width)
        return super().render_line(y)


class ReaderPane(PaneCoveredByChildren, Vertical):
    """The pane that shows a document and the cursor in it."""

    BINDINGS = make_key_bindings_of_scopes("reader")

    class CursorPositionChanged(Message):
        """The cursor moved."""

    class FindInDocumentEnded(Message):
        """The user has left the find mode.

        The keys that went to the next and the previous match now go to the next and the previous
        turn.
        """

    class StatusMessage(Message):
        """A message for the status line."""

        def __init__(self, text: str, role: str) -> None:
            super().__init__()
            self.text, self.role = text, role

    class ViewChangeRequested(Message):
        """The user asks for another view of the document. An empty `view` means the next view."""

        def __init__(self, view: str = "") -> None:
            super().__init__()
            self.view = view

    def __init__(self) -> None:
        super().__init__(id="reader", classes="pane")
        self.border_title = "Reader"
        self.document_view = DocumentView()
        self.viewport = self.document_view.viewport
        self.find_bar = LabeledInput("find", "find")
        self.place: NavigationTarget | None = None
        self.matches: list[tuple[int, int]] = []
        self.match_index = -1
        self.is_finding = False
        self._find_worker = LatestOnlyWorker(self)
        self.facts_bar = DocumentFactsBar(self.document_view)
        self.loss_bar = WrappedTextBarAboveWidget(self.document_view)
        self._cited_line = LeftAndRightTextLine(id="cited")
        self._start_worker = LatestOnlyWorker(self)
        self._request_texts: dict[int, str] = {}
        self._new_event_count = 0
        """The number of events that were added to the document since the user last saw its end."""

    def compose(self) -> ComposeResult:
        yield ReaderHeader(id="where")
        yield self._cited_line
        yield self.document_view
        yield self.find_bar

    @property
    def is_find_or_start_position_pending(self) -> bool:
        """Whether a thread is still searching for the matches or for the position to show first."""
        return self._start_worker.has_pending_result or self._find_worker.has_pending_result

    def show_document(self, document: ReaderDocument, place: NavigationTarget) -> None:
        """Show a document, starting at the position that `place` refers to."""
        self.place = place
        self.end_find_mode()
        self.facts_bar.set_paragraphs([])
        self.loss_bar.set_paragraphs([])
        self.viewport.highlight_search_pattern(compile_pattern_for_terms(place.words))
        before = self.viewport.document
        self._new_event_count = 0
        self.document_view.show_document(document, place.mark)
        self.free_document_unless_shown(before)
        self._find_and_go_to_start_position(document, place)
        self._update_pane_title()

    def go_to_place_in_document(self, place: NavigationTarget) -> None:
        """Go to the position in the current document that `place` refers to.

        The words of `place` are highlighted.
        """
        self.place = place
        self.end_find_mode()
        self.viewport.highlight_search_pattern(compile_pattern_for_terms(place.words))
        self._find_and_go_to_start_position(self.viewport.document, place)

    def show_reloaded_document(self, document: ReaderDocument) -> None:
        """Replace the document with its new version, and stay at the current position.

        If the user is at the end of the document, the view follows the new text.
        """
        before = self.viewport.document
        self.loss_bar.set_paragraphs([])
        if not before.is_partial:
            added = _get_total_event_count_of_conversation(
                document
            ) - _get_total_event_count_of_conversation(before)
            self._new_event_count += max(0, added)
        # A half-written file also lacks turns. In that case, the document shows the problem.
        if has_lost_turns(before, document) and not document.record.problems:
            gone = before.turns_total - document.turns_total
            verb = "is" if gone == 1 else "are"
            text = f"{format_counted_noun(gone, 'turn')} {verb} gone from this conversation's file."
            self._post_status_message(text)
        self.document_view.show_reloaded_document(document)
        self.free_document_unless_shown(before)
        if self.facts_bar.display:
            self.facts_bar.set_document_facts(document.facts)
        self._update_pane_title()
        if self.is_finding:
            self.find_and_highlight_text(self.find_bar.input.value, jump=False)

    def show_loss_of_document(self, loss: str) -> None:
        """Dim the document, and show above it why it can no longer be read.

        `loss` is the reason. If it is empty, the document can be read again, so show it as before.
        """
        self.viewport.document.loss = loss
        keys = get_configured_keys(self)
        hints = {"copy_more": "copies it", "back": "goes back"}
        labels = [(find_key_label_of_command(name, keys), does) for name, does in hints.items()]
        what_to_do = ", ".join(f"{key} {does}" for key, does in labels if key)
        rest = f" This is its last text{f': {what_to_do}' if what_to_do else ''}."
        self.loss_bar.set_paragraphs([[(loss, "warning"), (rest, "dim")]] if loss else [])
        self.document_view.refresh()

    def show_turn_citations_line(self, forms: list[Spans]) -> None:
        """Show a line below the header about what the turn at the cursor cites.

        `forms` are the variants of the line, the longest first. If there are none, hide the line.
        """
        if forms:
            self._cited_line.set_line_variants([(form, []) for form in forms])
        if self._cited_line.has_class("known") != bool(forms):
            self._cited_line.set_class(bool(forms), "known")

    def free_document_unless_shown(self, document: ReaderDocument) -> None:
        """Free the memory of a large document in the background, unless the reader shows it."""
        if document is self.viewport.document:
            return
        self._request_texts = {}
        if document.has_many_blocks or document.is_partial:
            free_document_in_background(document)

    def _find_and_go_to_start_position(
        self, document: ReaderDocument, place: NavigationTarget
    ) -> None:
        """Go to the position that `place` refers to.

        If the search for this position is slow, it runs in the background.
        """
        self._start_worker.discard_pending_results()
        if place.mark or not (document.has_many_blocks and place.words):
            start = None if place.mark else find_start_block_and_match(document, place)
            self._go_to_start_position(place, start)
            return
        self.document_view.redraw_after_viewport_change()
        self._start_worker.submit_call(
            lambda: find_start_block_and_match(document, place),
            lambda start: self._go_to_start_position(place, start),
            lambda error: self._go_to_start_position(place, None),
        )

    def _go_to_start_position(self, place: NavigationTarget, start: tuple[int, int] | None) -> None:
        viewport, document, ref = self.viewport, self.viewport.document, place.ref
        if start is not None and start[0] < len(document.blocks):
            index, match = start
            block = document.blocks[index]
            if match >= 0:
                is_visible = viewport.go_to_match_in_block(index, match)
                if ref and ref.lines and is_visible:
                    viewport.set_source_line_for_references_at_cursor(ref.lines[0])
                elif ref and ref.lines:
                    viewport.go_to_source_line(ref.lines[0])
                if block.key in document.fold_kinds and not viewport.is_fold_open(block.key):
                    # The heading shows only the beginning of the text with the match, so open the
                    # fold.
                    viewport.toggle_fold(block.key)
            elif ref and ref.lines:
                viewport.go_to_source_line(ref.lines[0])
            else:
                # Keep the heading above a list of files visible, although no key acts on it.
                lead = 1 if block.key.startswith("file:") else 0
                viewport.go_to_block_line(index, block.above, lead)
                is_fold = block.key in document.fold_kinds
                if ref and ref.turn and is_fold and not viewport.is_fold_open(block.key):
                    viewport.toggle_fold(block.key)
        self.document_view.redraw_after_viewport_change()
        missing = describe_missing_turn_or_line(document, ref)
        if missing and place.mark is None and not document.is_partial:
            self._post_status_message(missing)

    def _update_pane_title(self) -> None:
        self.border_title = make_plain_label_text(self.viewport.document.title or "Reader")

    # the header

    @on(DocumentView.DocumentCursorMoved)
    def _update_header_after_cursor_move(self, event: DocumentView.DocumentCursorMoved) -> None:
        event.stop()
        self.update_header()
        self.post_message(self.CursorPositionChanged())

    def update_header(self) -> None:
        """Update the header and the reference in the border."""
        viewport, document = self.viewport, self.viewport.document
        left: Spans = []
        if document.turns_total and (turn := viewport.current_turn_number) is not None:
            total = f" of {document.turns_total:,}{' or more' if document.is_partial else ''}  "
            left = [("turn ", "dim"), (f"{turn:,}", "turn"), (total, "dim")]
            left.append((self._summarize_turn_request(turn), ""))
        elif document.turns_total:
            left = [(format_turn_count(document.turns_total, document.rewound_turns), "dim")]
        elif document.view in CHANGES_VIEWS:
            # Show only the name of the current view. The key hints show the name of the other one.
            left = [(f"changes {CHANGES_VIEW_NAMES[document.view]}", "strong")]
            left += self._make_next_change_hint("  ")
        elif len(document.views) > 1:
            for view in document.views:
                left += [(" ", "")] if left else []
                left.append((view, "key" if view == document.view else "dim"))
        elif document.block_indices_by_kind.get("change"):
            left = self._make_next_change_hint()
        elif document.view in ("learn", "prompt"):
            left = [("as the assistant sees it", "dim")]
        if self._new_event_count and viewport.is_last_line_visible:
            self._new_event_count = 0
        reference = viewport.current_reference
        if reference and document.ref and document.short_ref:
            reference = reference.replace(document.ref, document.short_ref, 1)
        header = self.query_one("#where", ReaderHeader)
        header.set_line_variants([(left, right) for right in self._make_right_header_variants()])
        self.set_border_subtitle(make_plain_label_text(reference) if reference else "")

    def _make_next_change_hint(self, space: str = "") -> Spans:
        key = find_key_label_of_command("reader.next", get_configured_keys(self))
        return [(space, ""), (key, "key"), (" next change", "dim")]

    def _make_right_header_variants(self) -> list[Spans]:
        """Return the variants of the header's right side, the longest first.

        They differ only in how they show the size of the document.
        """
        document = self.viewport.document
        if self.is_finding and not self.matches and self.find_bar.input.value.strip():
            return [[("no match", "warning")]]
        if self.matches:
            more = "+" if len(self.matches) >= MAX_MATCHES else ""
            return [[(f"{self.match_index + 1:,} of {len(self.matches):,}{more}", "found")]]
        if self._new_event_count:
            key = find_key_label_of_command("reader.follow", get_configured_keys(self))
            follow = f" – {key} follows" if key else ""
            count = format_counted_noun(self._new_event_count, "new event")
            return [[(f"↓ {count}{follow}", "found")], [(f"↓ {count}", "found")]]
        right: Spans = [("● as the model sees it", "accent")] if self.viewport.is_model_view else []
        for badge in document.badges:
            right += [(" ● " if right else "● ", badge[1]), badge]
        if not document.size:
            return [right]
        space = "  " if right else ""
        sizes = document.size, document.short_size
        return [*([*right, (space, ""), (size, "dim")] for size in sizes), right]

    @on(ReaderHeader.HeaderPartClicked)
    def _request_clicked_view(self, event: ReaderHeader.HeaderPartClicked) -> None:
        event.stop()
        document = self.viewport.document
        if event.text in document.views:
            self.post_message(self.ViewChangeRequested(event.text))
        elif event.text == f"changes {CHANGES_VIEW_NAMES.get(document.view)}":
            self.action_request_next_view()

    def _summarize_turn_request(self, turn: int) -> str:
        document = self.viewport.document
        if turn not in self._request_texts:
            from kbtui.tui.reader.markdown_layout import strip_markdown_and_move_matches

            conversation = document.record
            found = conversation.find_turn(turn) if conversation else None
            events = found.events if found else []
            text = next((event.text for event in events if event.kind == "chat_request"), "")
            words, _ = strip_markdown_and_move_matches(text[:300], [])
            self._request_texts[turn] = sanitize_to_one_line(words)
        return self._request_texts[turn]

    # folds and turns

    def action_toggle_fold_or_open_link(self) -> None:
        """Open the link on the current line, or fold or unfold the block at the cursor.

        In the diff of a conversation's changes, open the call that made the change.
        """
        viewport = self.viewport
        blocks = viewport.document.blocks
        block = blocks[viewport.cursor.block] if blocks else None
        if block and block.link:
            self.post_message(OpenTargetRequested(make_navigation_target(parse_ref(block.link))))
        elif block and block.cite:
            self.post_message(OpenTargetRequested(make_difference_target(block.cite)))
        elif block and block.file and (reference := viewport.current_reference):
            self.post_message(OpenTargetRequested(make_navigation_target(parse_ref(reference))))
        if fold := viewport.find_fold_at_cursor():
            viewport.toggle_fold(fold)
            self.document_view.redraw_after_viewport_change()

    def action_toggle_folds_of_kind(self, kind: str, name: str) -> None:
        """Open or close all folds of a kind, in this document and in documents that are opened later.

        `name` is a plural noun for these folds, which a message uses.
        """
        document = self.viewport.document
        if kind not in document.fold_kinds.values() and not document.is_partial:
            self._post_status_message(f"No {name} here.", "dim")
            return
        self.viewport.toggle_folds_of_kind(kind)
        self.document_view.redraw_after_viewport_change()

    def action_switch_tool_folds(self) -> None:
        """Switch which tool calls are open: first those with diffs, then all, then none."""
        document = self.viewport.document
        if not {"tool", "diff"} & set(document.fold_kinds.values()) and not document.is_partial:
            self._post_status_message("No tool calls here.", "dim")
            return
        shown = self.viewport.cycle_open_tool_folds()
        self.document_view.redraw_after_viewport_change()
        if shown == "diffs":
            said = (
                "Tool calls with diffs are unfolded. Press the key again to unfold all tool calls."
            )
            self._post_status_message(said, "dim")

    def action_go_to_next_match_or_turn(self, step: int) -> None:
        """Go to the next turn or change, or to the next match while the user searches the document.

        If `step` is -1 instead of 1, go to the previous one.
        """
        if self.matches:
            self.go_to_match_at_index(self.match_index + step)
        elif not self.viewport.document.block_indices_by_kind.get("change"):
            self._go_to_next_block_of_kind("turn", step)
        elif not self._go_to_next_block_of_kind("change", step):
            where = "below" if step > 0 else "above"
            self._post_status_message(f"No more changes {where}.", "dim")

    def action_go_to_next_request_or_error(self, kind: str, step: int) -> None:
        """Go to the next event of a kind: `request`, or `error` for a failed tool call.

        If `step` is -1 instead of 1, go to the previous one.
        """
        if not self._go_to_next_block_of_kind(kind, step):
            names = {"request": "requests", "error": "failed tool calls"}
            is_listed = self.viewport.document.turns_total
            where = "below" if step > 0 else "above"
            self._post_status_message(
                f"No more {names[kind]} {where}."
                if is_listed
                else f"This page has no {names[kind]}."
            )

    def _go_to_next_block_of_kind(self, kind: str, step: int) -> bool:
        """Go to the next turn, change, request or error, depending on `kind`. Return whether there is one.

        If `step` is -1 instead of 1, go to the previous one.
        """
        viewport = self.viewport
        block_indices_by_kind = viewport.document.block_indices_by_kind.get(kind, [])
        here = viewport.cursor.block
        if step > 0:
            candidates = block_indices_by_kind[bisect_right(block_indices_by_kind, here) :]
        else:
            candidates = block_indices_by_kind[: bisect_left(block_indices_by_kind, here)][::-1]
        block = next(filter(viewport.is_block_of_current_view, candidates), None)
        if block is None:
            return False
        viewport.go_to_block_line(block, viewport.document.blocks[block].above, lead=0)
        self.document_view.redraw_after_viewport_change()
        return True

    def go_to_turn_or_line_number(self, text: str) -> bool:
        """Go to the turn ("3"), tool call ("3.2") or line whose number is `text`.

        A negative number counts from the end. If the turn or line does not exist, go to the nearest one
        and show a message. Return False if `text` is not such a number, or if the turn is still
        loading.
        """
        document = self.viewport.document
        match = re.fullmatch(r"(-?\d{1,9})(?:\.(\d{1,9}))?", text.strip())
        if match is None:
            return False
        number, call = int(match[1]), int(match[2]) if match[2] else None
        if document.is_partial and not 1 <= number < document.turns_total:
            return False
        if document.turns_total:
            self._go_to_turn_or_tool_call(number, call)
        elif document.lines_total and call is None:
            self._go_to_subject_line(number)
        elif document.view in CHANGES_VIEWS and number > 0:
            self._go_to_first_change_from_turn_on(number, call)
        else:
            self._post_status_message(self._explain_lack_of_numbered_turns_and_lines())
        return True

    def _go_to_first_change_from_turn_on(self, turn: int, call: int | None) -> None:
        """Go to the first change in or after a turn or call. If it is not in this turn or call, say so."""
        document = self.viewport.document
        place = make_navigation_target(make_conversation_ref(document.key, turn, call))
        name = f"turn {turn}" if call is None else f"call {turn}.{call}"
        start = find_start_block_and_match(document, place)
        if start is None:
            self._post_status_message(f"No change in or after {name}.")
            return
        self._go_to_start_position(place, start)
        block = document.blocks[start[0]]
        if block.turn != turn or call not in (None, block.call):
            self._post_status_message(f"No change in {name}; this is the next one.")

    def _explain_lack_of_numbered_turns_and_lines(self) -> str:
        """Return a message that says why the user cannot go to a turn or line of this page by its number."""
        document = self.viewport.document
        if not document.block_indices_by_kind.get("change"):
            return "This page has no turns or lines to go to."
        keys = get_configured_keys(self)
        texts = {"reader.next": "goes to the next one"}
        if "source" in document.views:
            texts["reader.view"] = "shows the text with its lines"
        labels = [(find_key_label_of_command(name, keys), does) for name, does in texts.items()]
        hints = ", ".join(f"{key} {does}" for key, does in labels if key)
        return f"Changes have no numbers{f': {hints}' if hints else ''}."

    def go_to_outline_entry(self, entry: OutlineEntry) -> None:
        """Go to the start of an entry of the outline.

        Do nothing if the document no longer contains the entry.
        """
        document, viewport = self.viewport.document, self.viewport
        if entry.turn is not None:
            self._go_to_turn_or_tool_call(entry.turn.number, None)
        elif entry.line and document.lines_total:
            viewport.go_to_source_line(entry.line)
        elif (block := document.find_block_index_by_key(entry.block)) is not None:
            lines = viewport.get_block_lines(block)
            before = [n for n, line in enumerate(lines) if 0 < line.source_line <= entry.line]
            line = before[-1] if before else document.blocks[block].above
            viewport.go_to_block_line(block, line, lead=0)
        self.document_view.redraw_after_viewport_change()

    def go_to_reading_position(self, position: ReadingPosition) -> None:
        """Go to a position in the current document."""
        found = self.viewport.locate_reading_position(position)
        if found != self.viewport.cursor:
            self.viewport.go_to_block_line(*found)
            self.document_view.redraw_after_viewport_change()

    def _go_to_turn_or_tool_call(self, turn: int, call: int | None) -> None:
        document, viewport = self.viewport.document, self.viewport
        if -document.turns_total <= turn < 0:
            turn += document.turns_total + 1
        place = make_navigation_target(make_conversation_ref(document.key, turn, call))
        if start := find_start_block_and_match(document, place):
            if not viewport.is_block_of_current_view(start[0]):
                viewport.show_or_hide_model_view(False)
            self._go_to_start_position(place, start)

    def _go_to_subject_line(self, line: int) -> None:
        document = self.viewport.document
        if -document.lines_total <= line < 0:
            line += document.lines_total + 1
        self.viewport.go_to_source_line(line)
        self.document_view.redraw_after_viewport_change()
        if not 1 <= line <= document.lines_total:
            self._post_status_message(describe_missing_line(document, line))

    def action_go_to_end_and_follow(self) -> None:
        self.document_view.action_bottom()

    def action_toggle_facts_bar(self) -> None:
        if self.facts_bar.display:
            self.facts_bar.set_paragraphs([])
        elif facts := self.viewport.document.facts:
            self.facts_bar.set_document_facts(facts)
        else:
            self._post_status_message("This document has no details.", "dim")

    def action_toggle_model_view(self) -> None:
        """Switch between the whole conversation and the model's view after compaction."""
        viewport = self.viewport
        if not viewport.is_model_view and not viewport.document.is_compacted:
            self._post_status_message("Nothing is compacted, so the model sees everything.", "dim")
            return
        viewport.show_or_hide_model_view(not viewport.is_model_view)
        self.document_view.redraw_after_viewport_change()
        if self.is_finding:
            self.find_and_highlight_text(self.find_bar.input.value, jump=False)

    def _post_status_message(self, text: str, role: str = "warning") -> None:
        self.post_message(self.StatusMessage(text, role))

    def action_toggle_code_wrapping(self) -> None:
        wrapped = self.viewport.code_offset is None
        self.viewport.set_horizontal_code_offset(0 if wrapped else None)
        self.document_view.redraw_after_viewport_change()
        said = "Code is not wrapped; ←/→ scroll it." if wrapped else "Code is wrapped."
        self._post_status_message(said, "strong")

    def action_scroll_code_sideways(self, way: int) -> None:
        """Scroll wide code to the right if `way` is 1, or to the left if `way` is -1.

        One step is a third of the reader's width.
        """
        viewport, offset = self.viewport, self.viewport.code_offset
        if way < 0 and not offset:
            return
        if offset is None:
            offset = 0
        elif way > 0 and not any(line.continues_right for _, line in viewport.rows):
            self._post_status_message("No more code to the right.", "dim")
            return
        else:
            offset = max(0, offset + way * max(8, viewport.width // 3))
        viewport.set_horizontal_code_offset(offset)
        self.document_view.redraw_after_viewport_change()

    # finding

    def action_open_find_bar(self) -> None:
        entry = self.find_bar.input
        if not self.is_finding and self.place and self.place.words:
            entry.value = self.place.words[0]
        self.is_finding = True
        self.find_bar.show_input()
        self.find_and_highlight_text(entry.value, jump=False)

    @on(Input.Changed, "#find")
    def _find_while_user_types(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_finding:
            self.find_and_highlight_text(event.value, jump=True)

    @on(Input.Submitted, "#find")
    def _focus_document_after_find(self, event: Input.Submitted) -> None:
        event.stop()
        self.screen.set_focus(self.document_view)

    def find_and_highlight_text(self, words: str, *, jump: bool) -> None:
        """Find and highlight `words`.

        If `jump` is true, go to the first match in the block at the cursor or in a later block. If
        there is none, go to the first match of the document.
        """
        pattern = compile_pattern_for_terms([words])
        document, as_model = self.viewport.document, self.viewport.is_model_view
        self.viewport.highlight_search_pattern(pattern)
        self.document_view.redraw_after_viewport_change()
        if pattern is None:
            self._show_find_matches([])
            return
        self._find_worker.submit_call(
            lambda: list(
                islice(document.find_search_pattern_matches(pattern, as_model), MAX_MATCHES)
            ),
            lambda found: self._show_find_matches(found, jump),
            lambda error: self._show_find_matches([]),
        )

    def _show_find_matches(self, matches: list[tuple[int, int]], jump: bool = False) -> None:
        here = self.viewport.cursor.block
        first = next((n for n, (block, _) in enumerate(matches) if block >= here), 0)
        self.matches, self.match_index = matches, first if matches else -1
        if matches and jump:
            self.go_to_match_at_index(first)
        else:
            self.update_header()
            self.post_message(self.CursorPositionChanged())

    def go_to_match_at_index(self, match: int) -> None:
        """Go to the match with the index `match`. An index past the last match wraps around to the first."""
        if self.matches:
            self.match_index = match % len(self.matches)
            self.viewport.go_to_match_in_block(*self.matches[self.match_index])
            self.document_view.redraw_after_viewport_change()

    @on(TextInputInPane.EscapePressed)
    def _end_find_after_escape(self, event: TextInputInPane.EscapePressed) -> None:
        event.stop()
        self.action_end_find_and_clear_matches()

    def action_end_find_and_clear_matches(self) -> None:
        # Clearing the matches of a hit is not a separate step: Esc goes back to the results.
        has_ended_step = self.is_finding or bool(self.screen.get_selected_text())
        self.end_find_mode()
        self.viewport.highlight_search_pattern(None)
        if self.place:
            self.place = self.place._replace(words=())
        self.screen.clear_selection()
        self.screen.set_focus(self.document_view)
        self.document_view.redraw_after_viewport_change()
        if not has_ended_step:
            raise SkipAction

    def end_find_mode(self) -> None:
        """Leave the find mode and hide the find bar. The matches stay highlighted."""
        if self.is_finding:
            self.post_message(self.FindInDocumentEnded())
        self.is_finding = False
        self.matches, self.match_index = [], -1
        self.find_bar.hide_input()
        self._find_worker.discard_pending_results()

    def action_toggle_changes_view(self) -> None:
        """Switch between a conversation and its changes to files, or between a subject and its versions."""
        document = self.viewport.document
        if document.view in STEP_VIEWS:
            self.post_message(self.ViewChangeRequested("read"))
        elif document.turns_total:
            self.post_message(self.ViewChangeRequested("changes"))
        elif "source" in document.views:
            self.post_message(self.ViewChangeRequested("history"))
        else:
            self._post_status_message("Only a conversation or a subject has changes.", "dim")

    def action_request_next_view(self) -> None:
        if len(self.viewport.document.views) > 1:
            self.post_message(self.ViewChangeRequested())
        else:
            self._post_status_message("This document has only one view.", "dim")


def _get_total_event_count_of_conversation(document: ReaderDocument) -> int:
    info = getattr(document.record, "info", None) if document.turns_total else None
    return getattr(info, "events_count", None) or 0
