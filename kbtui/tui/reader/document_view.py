"""The document view, which scrolls through a document and draws the visible lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding
from textual.cache import LRUCache
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from kbtui.tui.framework.command import MOVE_BINDINGS
from kbtui.tui.framework.styled_text import MatchHighlight
from kbtui.tui.framework.styled_widget import (
    ScrollViewWithoutRelayout,
    StyledScreen,
    StyledWidget,
    make_plain_content,
)
from kbtui.tui.navigation_target import ScrollAnchor
from kbtui.tui.reader.document import BlockHeightIndex, Document

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.geometry import Region
    from textual.selection import Selection

    from kbtui.tui.framework.styled_text import StyledLine


MAX_CACHED_BLOCKS = 200
"""The maximum number of blocks whose lines are cached."""
_MAX_EXACT_FOLDS = 64


class LinePosition(NamedTuple):
    """A line of a document: the position of a block, and the line within the block."""

    block: int = 0
    line: int = 0


@dataclass
class FoldState:
    """The open folds: `open_kinds` are kinds whose folds are open, and `toggled` are exceptions."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    toggled: set[str] = field(default_factory=set)
    open_kinds: set[str] = field(default_factory=set)

    def is_fold_open(self, key: str) -> bool:
        """Return whether the fold with this key is open."""
        # If both are true, the fold was opened with its kind, and then the user closed it.
        return (key in self.toggled) != (self.kinds.get(key) in self.open_kinds)

    def toggle_fold(self, key: str) -> None:
        """Open or close one fold."""
        self.toggled ^= {key}

    def toggle_folds_of_kind(self, kind: str) -> None:
        """Open or close all folds of a kind."""
        self.toggled = {key for key in self.toggled if self.kinds.get(key) != kind}
        self.open_kinds ^= {kind}

    def adopt_document_folds(self, document: Document) -> None:
        """Use the folds of another document, and forget folds that it does not contain."""
        self.kinds = document.fold_kinds
        self.toggled = {key for key in self.toggled if key in self.kinds}


def _count_alphanumeric_characters(line: StyledLine) -> int:
    return sum(map(str.isalnum, line.full_text or line.plain))


class DocumentViewport:
    """The visible part of a document, `width` x `height` cells, with cursor, open folds and highlights."""

    def __init__(self) -> None:
        self.document = Document("", "", [])
        self.width = self.height = 0
        self.top = LinePosition()
        self.cursor = LinePosition()
        self.rows: list[tuple[LinePosition, StyledLine]] = []
        """The visible lines."""
        self.folds = FoldState()
        self.pattern: re.Pattern[str] | None = None
        self.is_model_view = False
        """Whether blocks for the model are shown, not those for the user (`DocumentBlock.view`)."""
        self.code_offset: int | None = None
        """How many cells wide code is scrolled to the left; None wraps it."""
        self.current_match: tuple[int, int] | None = None
        """The position of the block with the current match, and the number of the match in the block."""
        self.heights = BlockHeightIndex()
        self.layout_count = 0
        """How many blocks have been laid out, for tests."""
        self._line_cache: LRUCache[int, list[StyledLine]] = LRUCache(MAX_CACHED_BLOCKS)
        self._resize_anchors: tuple[ScrollAnchor, ScrollAnchor] | None = None
        self._resize_positions = (self.top, self.cursor)

    def reset_layout(self) -> None:
        """Discard all lines, and estimate the heights of all blocks again."""
        self._line_cache.clear()
        count = len(self.document.blocks)
        self.heights = BlockHeightIndex(count, self._estimate_height, self._estimate_block_chunks())
        if self.document.chunk_weights:
            for fold in list(self.folds.toggled)[:_MAX_EXACT_FOLDS]:
                # The estimate assumes that all folds of a kind are in the same state, which is wrong for these.
                head = self.document.find_block(fold)
                if head is not None and head + 1 < count:
                    self.heights.count_lines_before_block(head + 1)

    def _estimate_height(self, number: int) -> int:
        return (
            0
            if self._is_block_hidden(number)
            else self.document.blocks[number].estimate_height(self.width)
        )

    def _estimate_block_chunks(self) -> list[int] | None:
        """Estimate the number of lines of each chunk of blocks."""
        if not self.document.chunk_weights:
            return None
        width = max(8, self.width)
        kinds = {"", *self.folds.open_kinds}
        views = {"", self.view}
        return [
            sum(
                lines + max(newlines, characters // width + newlines // 2)
                for (kind, view), (lines, characters, newlines) in chunk.items()
                if kind in kinds and view in views
            )
            for chunk in self.document.chunk_weights
        ]

    @property
    def view(self) -> str:
        """The current view: "person" or "model". Blocks with the view "" are shown in both."""
        return "model" if self.is_model_view else "person"

    def is_block_in_view(self, number: int) -> bool:
        """Return whether a block belongs to the current view, even if it is in a closed fold."""
        view = self.document.blocks[number].view
        return not view or view == self.view

    def _is_block_hidden(self, number: int) -> bool:
        block = self.document.blocks[number]
        if not self.is_block_in_view(number):
            return True
        return block.fold is not None and not self.folds.is_fold_open(block.fold)

    def get_block_lines(self, number: int) -> list[StyledLine]:
        """Return the lines of a block; lay out the block on first use."""
        lines = self._line_cache.get(number)
        if lines is None:
            lines = []
            if not self._is_block_hidden(number):
                here = (
                    self.current_match[1]
                    if self.current_match and self.current_match[0] == number
                    else -1
                )
                block = self.document.blocks[number]
                found = MatchHighlight(self.pattern, here) if self.pattern else None
                block.code_offset = self.code_offset
                lines = block.make_lines(self.width, found, self.folds.is_fold_open(block.key))
                self.layout_count += 1
            self._line_cache[number] = lines
            self.heights.set_block_height(number, len(lines))
        return lines

    def _find_visible_block(self, number: int, step: int) -> int | None:
        """Return the first visible block at or after `number` in direction `step`, or None."""
        blocks = self.document.blocks
        while 0 <= number < len(blocks):
            if not self._is_block_hidden(number):
                if self.get_block_lines(number):
                    return number
            elif (fold := blocks[number].fold) and not self.folds.is_fold_open(fold):
                # Skip a closed fold in one step, because it may contain thousands of blocks.
                head = self.document.find_block(fold)
                over = self.document.find_fold_end(fold) if step > 0 else head
                if over is not None and (over - number) * step > 0:
                    number = over
                    continue
            number += step
        return None

    @property
    def first_position(self) -> LinePosition:
        """The position of the first line."""
        return LinePosition(self._find_visible_block(0, 1) or 0, 0)

    @property
    def last_position(self) -> LinePosition:
        """The position of the last line."""
        last = self._find_visible_block(len(self.heights) - 1, -1)
        return (
            LinePosition()
            if last is None
            else LinePosition(last, len(self.get_block_lines(last)) - 1)
        )

    def offset_position(self, start: LinePosition, lines: int) -> LinePosition:
        """Return the position `lines` below `start`, or above if negative, but not outside the document."""
        if not len(self.heights):
            return LinePosition()
        block, line = start
        while lines > 0:
            count = len(self.get_block_lines(block))
            if line + lines < count:
                return LinePosition(block, line + lines)
            following = self._find_visible_block(block + 1, 1)
            if following is None:
                return LinePosition(block, max(0, count - 1))
            lines -= count - line
            block, line = following, 0
        while -lines > line:
            before = self._find_visible_block(block - 1, -1)
            if before is None:
                return LinePosition(block, 0)
            lines += line + 1
            block, line = before, len(self.get_block_lines(before)) - 1
        return LinePosition(block, line + lines)

    def find_nearest_position(self, position: LinePosition) -> LinePosition:
        """Return the nearest visible position (one that is not in a closed fold)."""
        if not len(self.heights):
            return LinePosition()
        number = min(position.block, len(self.heights) - 1)
        found = self._find_visible_block(number, -1)
        if found is None:
            return self.first_position
        last = len(self.get_block_lines(found)) - 1
        return LinePosition(found, min(position.line, last) if found == number else last)

    def _make_anchor_at(self, position: LinePosition) -> ScrollAnchor:
        """Return an anchor for a position."""
        block, line = position
        if block >= len(self.document.blocks):
            return ScrollAnchor("", 0, 0, 0)
        letters = sum(map(_count_alphanumeric_characters, self.get_block_lines(block)[:line]))
        return ScrollAnchor(self.document.blocks[block].key, block, line, letters)

    def find_anchor(self, anchor: ScrollAnchor) -> LinePosition:
        """Return the current position of an anchor."""
        block = self.document.find_block(anchor.key)
        if block is None:
            return self.find_nearest_position(LinePosition(anchor.block, 0))
        lines = self.get_block_lines(block)
        if (
            anchor.line < len(lines)
            and sum(map(_count_alphanumeric_characters, lines[: anchor.line])) == anchor.letters
        ):
            return self.find_nearest_position(LinePosition(block, anchor.line))
        seen = 0
        for number, line in enumerate(lines):
            seen += _count_alphanumeric_characters(line)
            if seen > anchor.letters:
                return LinePosition(block, number)
        return self.find_nearest_position(LinePosition(block, max(0, len(lines) - 1)))

    # document and size

    def show_document(self, document: Document, at: ScrollAnchor | None = None) -> None:
        """Show a document from its top, or from an anchor."""
        self.document = document
        self._resize_anchors = None
        self.folds.toggled = set()
        self.folds.adopt_document_folds(document)
        self.current_match = None
        self.is_model_view = False
        self.top = self.cursor = LinePosition()
        self.reset_layout()
        if at is not None:
            self.top = self.cursor = self.find_anchor(at)
        self.update_rows()

    def reload_document(self, document: Document) -> None:
        """Replace the document by its new version; keep the position, or stay at the end if the user is there."""
        following = self.is_following
        top, cursor = self.make_anchor(self.top), self.make_anchor()
        self.document = document
        self._resize_anchors = None
        self.folds.adopt_document_folds(document)
        self.reset_layout()
        if following:
            self.go_to_end()
        else:
            self.top, self.cursor = self.find_anchor(top), self.find_anchor(cursor)
            self.update_rows()

    @property
    def is_following(self) -> bool:
        """Whether the user is at the end of the document, so that new text should scroll into view."""
        if not self.rows:
            return False
        end = self.last_position
        return self.cursor == end or (self.rows[-1][0] == end and self.top > self.first_position)

    @property
    def is_at_end(self) -> bool:
        """Whether the last line is visible."""
        return bool(self.rows) and self.rows[-1][0] == self.last_position

    def resize(self, width: int, height: int) -> None:
        """Change the size and stay at the current line."""
        # Keep the anchors during successive changes of size. New anchors after each change would
        # drift, because each would move to the start of a wrapped line.
        anchors = (
            self._resize_anchors if self._resize_positions == (self.top, self.cursor) else None
        )
        self.height = height
        if width != self.width:
            anchors = anchors or (
                (self.make_anchor(self.top), self.make_anchor()) if self.width else None
            )
            self.width = width
            self.reset_layout()
        if anchors:
            self.top, self.cursor = map(self.find_anchor, anchors)
        self.update_rows()
        self.keep_cursor_visible(1)
        self._resize_anchors, self._resize_positions = anchors, (self.top, self.cursor)

    def set_code_offset(self, code_offset: int | None) -> None:
        """Scroll wide code to a column, or wrap it (None), and stay at the current line."""
        anchors = self.make_anchor(self.top), self.make_anchor()
        self.code_offset = code_offset
        self.reset_layout()
        self.top, self.cursor = map(self.find_anchor, anchors)
        self.update_rows()
        self.keep_cursor_visible(1)

    def update_rows(self) -> None:
        """Update the list of visible lines."""
        if not self.width or self.height <= 0 or not len(self.heights):
            self.rows = []
            return
        self.top, self.cursor = (
            self.find_nearest_position(self.top),
            self.find_nearest_position(self.cursor),
        )
        self.rows = self._collect_visible_rows()
        if len(self.rows) < self.height and self.top > self.first_position:
            self.top = self.offset_position(self.last_position, -(self.height - 1))
            self.rows = self._collect_visible_rows()

    def _collect_visible_rows(self) -> list[tuple[LinePosition, StyledLine]]:
        rows: list[tuple[LinePosition, StyledLine]] = []
        block, line = self.top
        while len(rows) < self.height:
            lines = self.get_block_lines(block)
            last = min(len(lines), line + self.height - len(rows))
            rows += [(LinePosition(block, number), lines[number]) for number in range(line, last)]
            following = self._find_visible_block(block + 1, 1)
            if following is None:
                break
            block, line = following, 0
        return rows

    def make_anchor(self, position: LinePosition | None = None) -> ScrollAnchor:
        """Return an anchor for a position, or for the cursor by default."""
        return self._make_anchor_at(position or self.cursor)

    # moving

    def move_cursor(self, lines: int) -> None:
        """Move the cursor `lines` down, or up if negative."""
        self.cursor = self.offset_position(self.cursor, lines)
        self.keep_cursor_visible(self.height // 4)

    def scroll_lines(self, lines: int) -> None:
        """Scroll by a number of lines; move the cursor only if it would become invisible."""
        self.top = self.offset_position(self.top, lines)
        self.update_rows()
        self.keep_cursor_visible()

    def scroll_to_line(self, line: int) -> None:
        """Scroll to a line of the whole document; its number is partly based on estimated heights."""
        self.top = LinePosition(*self.heights.find_block_at_line(line))
        self.update_rows()
        self.keep_cursor_visible()

    def scroll_with_cursor(self, lines: int) -> None:
        """Scroll and move the cursor by the same number of lines."""
        self.cursor = self.offset_position(self.cursor, lines)
        self.scroll_lines(lines)

    def go_to_start(self) -> None:
        """Go to the first line."""
        self.top = self.cursor = self.first_position
        self.update_rows()

    def go_to_end(self) -> None:
        """Go to the last line."""
        self.cursor = self.last_position
        self.top = self.offset_position(self.cursor, -(self.height - 1))
        self.update_rows()

    def go_to_block_line(self, block: int, line: int = 0, lead: int | None = None) -> None:
        """Go to a line of a block, and open the fold that contains it; show `lead` lines above it."""
        fold = self.document.blocks[block].fold
        if fold is not None and not self.folds.is_fold_open(fold):
            self.folds.toggle_fold(fold)
            self.reset_layout()
        self.cursor = self.find_nearest_position(LinePosition(block, line))
        self.top = self.offset_position(self.cursor, -(self.height // 4 if lead is None else lead))
        self.update_rows()

    def go_to_source_line(self, line: int) -> None:
        """Go to a line of the source text, or to the nearest shown line before it."""
        if line > self.document.lines_total:
            self.go_to_end()
            return
        block = self.document.find_line_block(line)
        row, before = self.document.blocks[block].above, 0
        for number, drawn in enumerate(self.get_block_lines(block)):
            # A blank line between two parts has the source line of the part below, so skip it.
            if before < drawn.source_line <= line and drawn.plain.strip():
                row, before = number, drawn.source_line
        self.go_to_block_line(block, row, lead=0)

    def keep_cursor_visible(self, margin: int = 0) -> None:
        """Make the cursor visible.

        With a margin, scroll until `margin` lines above and below the cursor are visible. Without a margin,
        move the cursor into the visible part.
        """
        if not self.rows:
            return
        rows = [position for position, _ in self.rows]
        last = self.height - 1
        if self.cursor in rows:
            row = rows.index(self.cursor)
            beyond = max(0, row - (last - margin)) or min(0, row - margin)
            self.top = self.offset_position(self.top, beyond)
        elif margin:
            before = last - margin if self.cursor > rows[-1] else margin
            self.top = self.offset_position(self.cursor, -before)
        else:
            self.cursor = rows[0] if self.cursor < rows[0] else rows[-1]
        self.update_rows()

    # folds

    def find_fold_at_cursor(self) -> str | None:
        """Return the fold that starts at the current line or contains it."""
        if not self.document.blocks:
            return None
        block = self.document.blocks[self.cursor.block]
        return block.key if block.key in self.document.fold_kinds else block.fold

    def toggle_fold(self, fold: str) -> None:
        """Open or close one fold."""
        self._move_cursor_out_of_fold(fold)
        top = self.make_anchor(self.top)
        self.folds.toggle_fold(fold)
        self._lay_out_again(top)
        if self.folds.is_fold_open(fold):
            # Near the bottom of the screen, the content of the fold would be invisible otherwise.
            self.keep_cursor_visible(self.height // 4)

    def open_fold(self, fold: str) -> None:
        """Open a fold if it is closed."""
        if not self.folds.is_fold_open(fold):
            self.toggle_fold(fold)

    def toggle_folds_of_kind(self, kind: str) -> bool:
        """Open or close all folds of a kind; return whether they are open now."""
        inside = self.find_fold_at_cursor()
        if inside and self.folds.kinds.get(inside) == kind:
            self._move_cursor_out_of_fold(inside)
        row = next((n for n, (at, _) in enumerate(self.rows) if at == self.cursor), 0)
        self.folds.toggle_folds_of_kind(kind)
        self._lay_out_again(None, row)
        return kind in self.folds.open_kinds

    def show_as_model_sees(self, on: bool) -> None:
        """Show what the model sees, or else what the user sees, and stay at the current line."""
        row = next((n for n, (at, _) in enumerate(self.rows) if at == self.cursor), 0)
        cursor = self.make_anchor()
        self.is_model_view, self.current_match = on, None
        self.reset_layout()
        self.cursor = self.find_anchor(cursor)
        self.top = self.offset_position(self.cursor, -row)
        self.update_rows()
        self.keep_cursor_visible()

    def _move_cursor_out_of_fold(self, fold: str) -> None:
        """If the cursor is in a fold that is about to close, move it to the heading of the fold."""
        head = self.document.find_block(fold)
        if head is not None and self.document.blocks[self.cursor.block].fold == fold:
            self.cursor = LinePosition(head, self.document.blocks[head].above)

    def _lay_out_again(self, top: ScrollAnchor | None, row: int = 0) -> None:
        cursor = self.make_anchor()
        self.reset_layout()
        self.cursor = self.find_anchor(cursor)
        self.top = self.find_anchor(top) if top else self.offset_position(self.cursor, -row)
        self.update_rows()
        self.keep_cursor_visible()

    # finding

    def set_search_pattern(self, pattern: re.Pattern[str] | None) -> None:
        """Highlight all matches of `pattern`; None highlights nothing."""
        if self.pattern != pattern or self.current_match is not None:
            self.pattern, self.current_match = pattern, None
            self._line_cache.clear()
            self.update_rows()

    def go_to_match(self, block: int, count: int) -> None:
        """Go to match number `count` of a block and make it the current match."""
        for number in {block, self.current_match[0] if self.current_match else block}:
            self._line_cache.discard(number)
        self.current_match = (block, count)
        self.go_to_block_line(block)
        for number, line in enumerate(self.get_block_lines(block)):
            if any("found-here" in roles for _, roles in line.spans):
                self.go_to_block_line(block, number)
                return

    def set_citation_numbers(self, numbers: dict[str, int]) -> bool:
        """Set the citation numbers of tool calls, given by block key; return whether any number changed."""
        from kbtui.tui.reader.document_blocks import FoldHeadingBlock

        new = False
        for key, number in numbers.items():
            position = self.document.find_block(key)
            block = self.document.blocks[position] if position is not None else None
            if (
                position is not None
                and isinstance(block, FoldHeadingBlock)
                and block.citation_number != number
            ):
                block.citation_number, new = number, True
                self._line_cache.discard(position)
        if new:
            self.update_rows()
        return new

    # at the cursor

    @property
    def current_turn(self) -> int | None:
        """The number of the turn at the cursor, or None."""
        blocks = self.document.blocks
        return blocks[min(self.cursor.block, len(blocks) - 1)].turn if blocks else None

    @property
    def current_line(self) -> StyledLine | None:
        """The line at the cursor."""
        return next((line for at, line in self.rows if at == self.cursor), None)

    @property
    def current_reference(self) -> str | None:
        """The reference of the line at the cursor."""
        line = self.current_line
        return self.document.make_reference(self.cursor.block, line.source_line if line else 0)


class DocumentView(StyledWidget, ScrollViewWithoutRelayout, can_focus=True):
    """A widget that shows one document and reports when the cursor moves."""

    ALLOW_MAXIMIZE = False
    ALLOW_SELECT: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [*MOVE_BINDINGS]

    class CursorMoved(Message):
        """The cursor moved, or the view shows another document."""

    def __init__(self) -> None:
        super().__init__(id="document")
        self.viewport = DocumentViewport()
        self._is_syncing = False
        self._is_painting = False
        self._painted: tuple[list[tuple[LinePosition, StyledLine]], LinePosition] = (
            [],
            LinePosition(),
        )

    @property
    def document(self) -> Document:
        """The document that the view shows."""
        return self.viewport.document

    def show_document(self, document: Document, at: ScrollAnchor | None = None) -> None:
        """Show a document from its top, or from an anchor."""
        self._resize_viewport()
        self.viewport.show_document(document, at)
        self.update_view()

    def reload_document(self, document: Document) -> None:
        """Replace the document by its new version, and keep the position."""
        self.viewport.reload_document(document)
        self.update_view()

    def _resize_viewport(self) -> None:
        region = self.scrollable_content_region
        if not region:
            return  # a hidden view has no size; it is laid out when it appears
        # The first column is for the sign of the current line.
        self.viewport.resize(max(8, region.width - 1), region.height)

    def update_view(self) -> None:
        """After a change of the viewport, update the scroll bar, repaint, and post `CursorMoved`."""
        self._sync_scroll_bar()
        self._repaint_changes()
        self.post_message(self.CursorMoved())

    def _repaint_changes(self) -> None:
        """Repaint the lines that have changed since the last repaint."""
        rows, cursor = self.viewport.rows, self.viewport.cursor
        (before, was), self._painted = self._painted, (rows, cursor)
        if not rows or len(before) != len(rows):
            self.repaint_lines(None)
            return
        self.repaint_lines(
            [
                y
                for y, (old, new) in enumerate(zip(before, rows, strict=True))
                if old[0] != new[0] or old[1] is not new[1] or new[0] in (was, cursor)
            ]
        )

    def _sync_scroll_bar(self) -> None:
        """Update the scroll bar; it uses the estimated number of lines of the whole document."""
        port = self.viewport
        self._is_syncing = True
        try:
            self.set_content_size(Size(port.width, port.heights.total_lines))
            if not self.is_vertical_scrollbar_grabbed:
                line = port.heights.count_lines_before_block(port.top.block) + port.top.line
                self.scroll_y = self.scroll_target_y = line
        finally:
            self._is_syncing = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll after the user has moved the scroll bar."""
        super().watch_scroll_y(old_value, new_value)
        if not self._is_syncing and round(old_value) != round(new_value):
            self.viewport.scroll_to_line(round(new_value))
            self.update_view()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out the document for the new size, and stay at the current line."""
        self._resize_viewport()
        self.update_view()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render lines for painting, without offsets, which only selecting text by mouse needs."""
        self._is_painting = True
        try:
            return super().render_lines(crop)
        finally:
            self._is_painting = False

    def render_line(self, y: int) -> Strip:
        """Render visible line `y`; if not for painting, give each segment its offset in the text.

        Offsets make every segment unique, so Textual could not reuse cached segments for painting.
        """
        width = self.scrollable_content_region.width
        if y >= len(self.viewport.rows):
            return Strip.blank(width, self.base_style)
        position, line = self.viewport.rows[y]
        here = position == self.viewport.cursor
        base = ("cursor" if self.has_focus else "cursor-off") if here else ""
        lead = ("▎" if here else " ", "accent" if here else "")
        strip = self.render_spans([lead, *line.spans], width, base)
        absolute = self.viewport.heights.count_lines_before_block(position.block) + position.line
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(absolute)) is not None:
            strip = self._highlight_selection(strip, *span)
        return strip if self._is_painting else strip.apply_offsets(0, absolute)

    def _highlight_selection(self, strip: Strip, start: int, end: int) -> Strip:
        style = self.screen.get_component_rich_style("screen--selection")
        end = strip.cell_length if end == -1 else end
        middle = strip.crop(start, end).apply_style(style)
        return Strip.join([strip.crop(0, start), middle, strip.crop(end)])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, without the first column, which shows the cursor."""
        if selection.start is None or selection.end is None:
            return None
        texts = []
        for y in range(selection.start.y, selection.end.y + 1):
            block, number = self.viewport.heights.find_block_at_line(y)
            span = selection.get_span(y)
            lines = self.viewport.get_block_lines(block) if self.document.blocks else []
            if span is None or number >= len(lines):
                continue
            text = f" {lines[number].plain}"
            start, end = max(1, span[0]), span[1]
            texts.append((text[start:] if end == -1 else text[start:end]).rstrip())
        return "\n".join(texts), "\n"

    def text_select_all(self) -> None:
        """Do nothing: a double click should not select a whole, possibly long document."""

    def selection_updated(self, selection: Selection | None) -> None:
        """Repaint to show the changed selection."""
        self.refresh()

    # moving

    def action_down(self) -> None:
        """Move one line down."""
        self.viewport.move_cursor(1)
        self.update_view()

    def action_up(self) -> None:
        """Move one line up."""
        self.viewport.move_cursor(-1)
        self.update_view()

    def action_scroll_pages(self, pages: float) -> None:
        """Scroll half a page or a page down, or up if `pages` is negative.

        A whole page is one line less than the height of the view.
        """
        height = self.viewport.height
        lines = max(1, height // 2 if abs(pages) < 1 else height - 1)
        self.viewport.scroll_with_cursor(lines if pages > 0 else -lines)
        self.update_view()

    def action_top(self) -> None:
        """Go to the first line."""
        self.viewport.go_to_start()
        self.update_view()

    def action_bottom(self) -> None:
        """Go to the last line."""
        self.viewport.go_to_end()
        self.update_view()

    # the mouse

    def _on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.viewport.scroll_lines(3)
        self.update_view()
        event.stop().prevent_default()

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.viewport.scroll_lines(-3)
        self.update_view()
        event.stop().prevent_default()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked line; if it is the heading of a fold, open or close the fold."""
        if not 0 <= event.y < len(self.viewport.rows):
            return
        self.viewport.cursor = LinePosition(*self.viewport.rows[event.y][0])
        block = self.document.blocks[self.viewport.cursor.block]
        if block.key in self.document.fold_kinds and self.viewport.cursor.line >= block.above:
            self.viewport.toggle_fold(block.key)
        self.update_view()


class DocumentOverlayScreen(StyledScreen):
    """A document shown over another screen.

    With a `confirm_label`, such as "write it", the key `y` closes the screen with the result True.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n,question_mark", "dismiss", show=False),
        Binding("y", "confirm", show=False),
        *MOVE_BINDINGS,
    ]

    def __init__(self, title: str, page: Document, confirm_label: str = "") -> None:
        super().__init__()
        self._title, self._page, self._confirm_label = title, page, confirm_label
        self.reader = DocumentView()

    def compose(self) -> ComposeResult:
        """Yield the document, with key hints in the border."""
        with Vertical(id="page", classes="pane") as pane:
            pane.border_title = make_plain_content(self._title)
            leave = (
                "Esc close"
                if not self._confirm_label
                else f"y: {self._confirm_label} · n or Esc: no"
            )
            pane.border_subtitle = make_plain_content(leave)
            yield self.reader

    def on_mount(self) -> None:
        """Show the document."""
        self.reader.show_document(self._page)
        self.reader.focus()

    def action_confirm(self) -> None:
        """Close with the result True."""
        if self._confirm_label:
            self.dismiss(True)
