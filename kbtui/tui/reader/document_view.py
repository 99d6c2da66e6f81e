"""The document view, which scrolls through a document and draws the visible lines."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from textual.cache import LRUCache
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from kbtui.light_named_tuple import NamedTuple
from kbtui.tui.framework.base_screens_and_widgets import (
    ScrollViewWithoutRelayout,
    StyledTextWidget,
)
from kbtui.tui.framework.styled_text import HighlightPattern, add_style_role
from kbtui.tui.framework.tui_command_definition import MOVE_BINDINGS
from kbtui.tui.navigation_target import ReadingPosition
from kbtui.tui.reader.reader_document import (
    ReaderDocument,
    has_lost_turns,
    map_block_to_document_with_turns_removed,
    map_old_to_new_source_lines,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

    from textual import events
    from textual.screen import Screen
    from textual.selection import Selection

    from kbtui.tui.framework.styled_text import StyledLine, StyledLines


MAX_CACHED_BLOCKS = 200
"""The lines of at most this many blocks are cached."""


class DocumentLinePosition(NamedTuple):
    """The position of a line in a document.

    It consists of the index of the block, and the index of the line in the block.
    """

    block: int = 0
    line: int = 0


def _count_letters_before_lines(lines: Iterable[StyledLine]) -> list[int]:
    """Return how many letters and digits precede each line, followed by their total in all lines."""
    texts = (line.full_text or line.plain for line in lines)
    return list(accumulate((sum(map(str.isalnum, text)) for text in texts), initial=0))


TOOL_FOLD_KINDS = ("tool", "diff")
"""The kinds of the folds of tool calls: "tool" for calls without a diff, "diff" for calls with a diff."""


class DocumentViewport:
    """The visible part of a document, with the cursor, the open folds and the highlights.

    The visible part has `width` x `height` cells.
    """

    def __init__(self) -> None:
        self.document = ReaderDocument("", "", [])
        self.width = self.height = 0
        self.top = self.cursor = DocumentLinePosition()
        self.rows: list[tuple[DocumentLinePosition, StyledLine]] = []
        """The visible lines with their positions."""
        self.pattern: re.Pattern[str] | None = None
        self.is_model_view = False
        """Whether the document is shown as the model sees it, not as the user sees it (`ReaderBlock.view`)."""
        self.code_offset: int | None = None
        """The number of cells of wide code that are hidden at the left by scrolling; None if code is wrapped."""
        self.current_match: tuple[int, int] | None = None
        """The index of the block that contains the current match, and the match's index in this block."""
        self.layout_count = 0
        """The number of times that blocks have been laid out. Only tests read this number."""
        self._open_fold_kinds: set[str] = set()
        """The kinds of folds that are open by default."""
        self._toggled_folds: set[str] = set()
        """The keys of the folds that the user opened or closed.

        The state of such a fold is the opposite of the default state for its kind.
        """
        self._wanted_source_line = 0
        self._heights: list[int] = []
        """The number of lines of each block. It is an estimate until the block is laid out."""
        self._block_tops: list[int] = []
        """The number of lines before each block, followed by the total.

        The list is empty if the lines must be counted again.
        """
        self._line_cache: LRUCache[int, StyledLines] = LRUCache(MAX_CACHED_BLOCKS)
        self._resize_reading_positions: tuple[ReadingPosition, ReadingPosition] | None = None
        self._resize_positions = (self.top, self.cursor)

    # blocks and their heights

    def is_block_of_current_view(self, block: int) -> bool:
        """Return whether a block belongs to the current view: what the user saw, or what the model saw.

        A block in a closed fold belongs to the view, although it is not visible.
        """
        view = self.document.blocks[block].view
        return not view or view == ("model" if self.is_model_view else "user")

    def _is_block_hidden(self, block: int) -> bool:
        if not self.is_block_of_current_view(block):
            return True
        fold = self.document.blocks[block].fold
        if fold is None:
            return False
        # Check the innermost fold first, which is fast: there may be very many blocks.
        return not self.is_fold_open(fold) or not all(
            map(self.is_fold_open, self.document.list_folds_of_block(block)[1:])
        )

    def _discard_block_layouts(self) -> None:
        """Discard the lines of all blocks, and estimate the heights of the blocks again."""
        self._line_cache.clear()
        self._heights = [
            0 if self._is_block_hidden(index) else block.estimate_line_count(self.width)
            for index, block in enumerate(self.document.blocks)
        ]
        self._block_tops = []

    def get_block_lines(self, block: int) -> StyledLines:
        """Return the lines of a block; lay out the block on first use."""
        if self._is_block_hidden(block):
            return []
        lines = self._line_cache.get(block)
        if lines is None:
            lines = self._line_cache[block] = self._lay_out_block(block)
            if self._heights[block] != len(lines):
                self._heights[block] = len(lines)
                self._block_tops = []
        return lines

    def _lay_out_block(self, index: int) -> StyledLines:
        from kbtui.tui.reader.reader_blocks import FoldHeadingBlock

        self.layout_count += 1
        block = self.document.blocks[index]
        block.code_offset = self.code_offset
        match_block, match = self.current_match or (-1, -1)
        found = None
        if self.pattern:
            found = HighlightPattern(self.pattern, match if match_block == index else -1)
        if isinstance(block, FoldHeadingBlock):
            block.is_open = self.is_fold_open(block.key)
        return block.lay_out_with_lead_and_space_above(self.width, found)

    def _get_line_counts_before_blocks(self) -> list[int]:
        self._block_tops = self._block_tops or [0, *accumulate(self._heights)]
        return self._block_tops

    @property
    def total_line_count(self) -> int:
        """The number of lines of the document, partly estimated."""
        return self._get_line_counts_before_blocks()[-1]

    def count_lines_before_position(self, position: DocumentLinePosition) -> int:
        """Return the number of lines before a position. Lines that are not laid out yet are estimated."""
        return self._get_line_counts_before_blocks()[position.block] + position.line

    def find_position_at_line(self, line: int) -> DocumentLinePosition:
        """Return the position of line number `line`, or of the last line if the document is shorter."""
        tops = self._get_line_counts_before_blocks()
        if not tops[-1]:
            return DocumentLinePosition()
        line = min(max(0, line), tops[-1] - 1)
        block = bisect_right(tops, line) - 1
        return DocumentLinePosition(block, line - tops[block])

    # positions

    def _find_next_visible_block(self, block: int, step: int) -> int | None:
        """Return the first visible block at or beyond `block`, or None if there is none.

        `step` is the direction: 1 for down, -1 for up.
        """
        while 0 <= block < len(self.document.blocks):
            if self.get_block_lines(block):
                return block
            block += step
        return None

    @property
    def document_start_position(self) -> DocumentLinePosition:
        """The position of the first line."""
        return DocumentLinePosition(self._find_next_visible_block(0, 1) or 0)

    @property
    def document_end_position(self) -> DocumentLinePosition:
        """The position of the last line."""
        last = self._find_next_visible_block(len(self.document.blocks) - 1, -1)
        return DocumentLinePosition() if last is None else self._find_last_line_of_block(last)

    def _find_last_line_of_block(self, block: int) -> DocumentLinePosition:
        return DocumentLinePosition(block, max(0, len(self.get_block_lines(block)) - 1))

    def find_position_lines_below(
        self, start: DocumentLinePosition, lines: int
    ) -> DocumentLinePosition:
        """Return the position `lines` lines below `start`, or above `start` if `lines` is negative.

        The position is limited to the lines of the document.
        """
        if not self.document.blocks:
            return DocumentLinePosition()
        block, line = start.block, start.line + lines
        while line < 0:
            before = self._find_next_visible_block(block - 1, -1)
            if before is None:
                return DocumentLinePosition(block)
            block, line = before, line + len(self.get_block_lines(before))
        while lines > 0 and line >= len(self.get_block_lines(block)):
            following = self._find_next_visible_block(block + 1, 1)
            if following is None:
                return self._find_last_line_of_block(block)
            block, line = following, line - len(self.get_block_lines(block))
        return DocumentLinePosition(block, line)

    def find_nearest_visible_position(self, position: DocumentLinePosition) -> DocumentLinePosition:
        """Return `position` or, if its line is not visible, the nearest visible position before it.

        A line is not visible if it does not exist, or if it is in a closed fold.
        """
        block = min(position.block, len(self.document.blocks) - 1)
        found = self._find_next_visible_block(block, -1)
        if found is None:
            return self.document_start_position
        last = self._find_last_line_of_block(found)
        return min(position, last) if found == position.block else last

    def make_reading_position(
        self, position: DocumentLinePosition | None = None
    ) -> ReadingPosition:
        """Return the reading position of a line, by default of the line at the cursor."""
        block, line = position or self.cursor
        if block >= len(self.document.blocks):
            return ReadingPosition("", 0, 0, 0)
        letters = _count_letters_before_lines(self.get_block_lines(block)[:line])[-1]
        return ReadingPosition(self.document.blocks[block].key, block, line, letters)

    def make_reading_position_with_folds(self) -> ReadingPosition:
        """Return the reading position of the cursor, with the first visible line and the folds.

        If the user has not moved since the last resize, the cursor and the first visible line are
        those from before the resize.
        """
        kept = self._resize_reading_positions
        if kept is None or self._resize_positions != (self.top, self.cursor):
            kept = self.make_reading_position(self.top), self.make_reading_position()
        top, cursor = kept
        return cursor._replace(top=top, folds=frozenset(self._toggled_folds))

    def locate_reading_position(self, reading_position: ReadingPosition) -> DocumentLinePosition:
        """Return the position in the current layout that corresponds to a reading position."""
        block, line = (
            self.document.find_block_index_by_key(reading_position.key),
            reading_position.line,
        )
        if block is None:
            return self.find_nearest_visible_position(DocumentLinePosition(reading_position.block))
        letters = _count_letters_before_lines(self.get_block_lines(block))
        if line >= len(letters) - 1 or letters[line] != reading_position.letters:
            line = bisect_right(letters, reading_position.letters) - 1
        return self.find_nearest_visible_position(DocumentLinePosition(block, line))

    # document and size

    def show_document(self, document: ReaderDocument, at: ReadingPosition | None = None) -> None:
        """Show a document from the reading position `at`, or from its top if `at` is None."""
        self.document = document
        self._resize_reading_positions = None
        self._toggled_folds = set(at.folds & document.fold_kinds.keys()) if at else set()
        self.current_match = None
        self._wanted_source_line = 0
        self.is_model_view = False
        self.top = self.cursor = DocumentLinePosition()
        self._discard_block_layouts()
        if at is not None:
            self.cursor = self.locate_reading_position(at)
            self.top = self.locate_reading_position(at.top) if at.top else self.cursor
        self.update_visible_lines_and_snap_cursor()
        if at is not None and at.top:
            self.keep_cursor_visible()
            # The panes may soon get back the widths that they had when the user left this position.
            self._resize_reading_positions = at.top, at
            self._resize_positions = self.top, self.cursor

    def show_reloaded_document(self, document: ReaderDocument) -> None:
        """Replace the document with its new version.

        The position stays the same, but a view at the end of the document moves to the new end,
        unless only marks have changed.
        """
        signature = document.conversation_signature
        is_same_file = signature and signature == self.document.conversation_signature
        following = self.should_follow_new_text and not is_same_file
        top, cursor = self.make_reading_position(self.top), self.make_reading_position()
        source_lines = [
            self._find_source_line_above_and_distance_to_it(at) for at in (self.top, self.cursor)
        ]
        moved_lines = map_old_to_new_source_lines(self.document, document)
        if has_lost_turns(self.document, document):
            top, cursor = (
                self._map_position_to_document_with_turns_removed(at, document)
                for at in (top, cursor)
            )
        self.document = document
        self._resize_reading_positions = None
        self._toggled_folds &= document.fold_kinds.keys()
        self._discard_block_layouts()
        if following:
            self.go_to_last_line()
        else:
            self.top = self.locate_reading_position(top)
            self.cursor = self.locate_reading_position(cursor)
            if moved_lines:
                moved = [
                    self._find_position_of_source_line(*at, moved_lines) for at in source_lines
                ]
                self.top, self.cursor = moved[0] or self.top, moved[1] or self.cursor
            self.update_visible_lines_and_snap_cursor()
            if all(at != self.cursor for at, _ in self.rows):
                self.keep_cursor_visible(self.height // 4)

    def _find_source_line_above_and_distance_to_it(
        self, position: DocumentLinePosition
    ) -> tuple[int, int]:
        """Return the number of the nearest source line at or above a position, and the distance from its start to the position.

        Only source lines in the position's block count. The distance is a number of screen lines.
        If there is no such source line, both numbers are 0.
        """
        lines = self.get_block_lines(position.block) if self.document.blocks else []
        sources = [line.source_line for line in lines[: position.line + 1]]
        source = next((number for number in reversed(sources) if number), 0)
        return (source, position.line - sources.index(source)) if source else (0, 0)

    def _find_position_of_source_line(
        self, source: int, below: int, moved_lines: Mapping[int, int]
    ) -> DocumentLinePosition | None:
        """Return the position `below` lines after the start of the source line whose old number is `source`.

        `moved_lines` maps the old number of each remaining source line to its new number. Return
        None if the source line no longer exists.
        """
        if (number := moved_lines.get(source)) is None:
            return None
        block = self.document.find_block_index_of_source_line(number)
        lines = enumerate(self.get_block_lines(block))
        start = next((row for row, line in lines if line.source_line == number), None)
        if start is None:
            return None
        return self.find_nearest_visible_position(DocumentLinePosition(block, start + below))

    def _map_position_to_document_with_turns_removed(
        self, position: ReadingPosition, document: ReaderDocument
    ) -> ReadingPosition:
        """Return the position in `document` that corresponds to a position in the shown document.

        `document` is a new version of the shown conversation, from which turns were removed.
        """
        if position.block >= len(self.document.blocks) or not document.blocks:
            return position
        block = map_block_to_document_with_turns_removed(self.document, document, position.block)
        return position._replace(key=document.blocks[block].key, block=block)

    @property
    def should_follow_new_text(self) -> bool:
        """Whether the view follows new text, because the user is at the end of the document."""
        is_at_end = bool(self.rows) and self.cursor == self.document_end_position
        return is_at_end or (self.is_last_line_visible and self.top > self.document_start_position)

    @property
    def is_last_line_visible(self) -> bool:
        """Whether the last line is visible."""
        return bool(self.rows) and self.rows[-1][0] == self.document_end_position

    def resize(self, width: int, height: int) -> None:
        """Change the size of the viewport, and stay at the current line."""
        # Keep the same reading positions while the size changes several times. With new ones after each change,
        # the view would drift, because each of them would be at the start of a wrapped line.
        has_moved = self._resize_positions != (self.top, self.cursor)
        reading_positions = None if has_moved else self._resize_reading_positions
        # A bar that appears above the document must not hide the end of the document.
        must_show_end = (
            width == self.width
            and height < self.height
            and self.is_last_line_visible
            and self.top > self.document_start_position
        )
        self.height = height
        if width != self.width:
            if reading_positions is None and self.width:
                top = self.make_reading_position(self.top)
                reading_positions = top, self.make_reading_position()
            self.width = width
            self._discard_block_layouts()
        if reading_positions:
            self.top, self.cursor = map(self.locate_reading_position, reading_positions)
        if must_show_end:
            self.top = self.find_position_lines_below(self.document_end_position, 1 - height)
        self.update_visible_lines_and_snap_cursor()
        if all(at != self.cursor for at, _ in self.rows):
            self.keep_cursor_visible(1)
        self._resize_reading_positions = reading_positions
        self._resize_positions = self.top, self.cursor

    @contextmanager
    def _keep_cursor_row_during_new_layout(self) -> Iterator[None]:
        """Lay the document out again at the end of a `with` block.

        The cursor stays on its line, in the same row of the screen.
        """
        row = next((row for row, (at, _) in enumerate(self.rows) if at == self.cursor), 0)
        cursor = self.make_reading_position()
        yield
        self._discard_block_layouts()
        self.cursor = self.locate_reading_position(cursor)
        self.top = self.find_position_lines_below(self.cursor, -row)
        self.update_visible_lines_and_snap_cursor()
        self.keep_cursor_visible()

    def set_horizontal_code_offset(self, code_offset: int | None) -> None:
        """Scroll wide code to cell `code_offset`, or wrap the code if `code_offset` is None.

        The cursor stays on its line.
        """
        with self._keep_cursor_row_during_new_layout():
            self.code_offset = code_offset

    def show_or_hide_model_view(self, on: bool) -> None:
        """Show the model's view if `on` is true; otherwise, show the user's view.

        The cursor stays on its line.
        """
        with self._keep_cursor_row_during_new_layout():
            self.is_model_view, self.current_match = on, None

    def update_visible_lines_and_snap_cursor(self) -> None:
        """Update the list of visible lines.

        If the cursor stops only at lines that can be opened, move it to the nearest visible one of
        them.
        """
        self._update_visible_lines()
        if (
            self.document.is_cursor_limited_to_openable_lines
            and not self._is_first_line_of_openable_block(self.cursor)
        ):
            line = self.count_lines_before_position(self.cursor)
            stops = [at for at, _ in self.rows if self._is_first_line_of_openable_block(at)]
            count = self.count_lines_before_position
            self.cursor = min(stops, key=lambda at: abs(count(at) - line), default=self.cursor)

    def _is_first_line_of_openable_block(self, position: DocumentLinePosition) -> bool:
        """Return whether a position is the first line of a block that can be opened."""
        block = self.document.blocks[position.block]
        return block.can_be_opened and position.line == block.above

    def _update_visible_lines(self) -> None:
        self.rows = []
        if not self.width or self.height <= 0 or not self.document.blocks:
            return
        self.top = self.find_nearest_visible_position(self.top)
        self.cursor = self.find_nearest_visible_position(self.cursor)
        self.rows = self._collect_visible_lines()
        if len(self.rows) < self.height and self.top > self.document_start_position:
            self.top = self.find_position_lines_below(self.document_end_position, 1 - self.height)
            self.rows = self._collect_visible_lines()

    def _collect_visible_lines(self) -> list[tuple[DocumentLinePosition, StyledLine]]:
        rows: list[tuple[DocumentLinePosition, StyledLine]] = []
        start = self.top.line
        for block in range(self.top.block, len(self.document.blocks)):
            lines = self.get_block_lines(block)
            rows += [(DocumentLinePosition(block, n), lines[n]) for n in range(start, len(lines))]
            start = 0
            if len(rows) >= self.height:
                break
        return rows[: self.height]

    # moving

    def move_cursor_by_lines(self, lines: int) -> None:
        """Move the cursor down by `lines`, or up if `lines` is negative.

        If the cursor stops only at lines that can be opened, move it to the next such line. If
        there is none in view or just beyond the edge of the view, scroll and leave the cursor where
        it is, so that all lines can be read.
        """
        if self.document.is_cursor_limited_to_openable_lines:
            self._move_cursor_to_next_openable_line(lines)
            return
        self.cursor = self.find_position_lines_below(self.cursor, lines)
        self.keep_cursor_visible(self.height // 4)

    def _move_cursor_to_next_openable_line(self, step: int) -> None:
        below = step > 0
        edge = self.rows[-1 if below else 0][0] if self.rows else self.cursor
        last = self.find_position_lines_below(edge, step * (self.height // 4))
        at = self.cursor
        while at != last:
            following = self.find_position_lines_below(at, step)
            if following == at or (following > last if below else following < last):
                break
            at = following
            if self._is_first_line_of_openable_block(at):
                self.cursor = at
                # Also show the lines around this one, such as the headings above the first line
                # that can be opened.
                self.keep_cursor_visible(self.height // 4)
                return
        self.scroll_by_lines(step)

    def scroll_by_lines(self, lines: int) -> None:
        """Scroll down by `lines`, or up if `lines` is negative.

        The cursor moves only if it would become invisible.
        """
        self.top = self.find_position_lines_below(self.top, lines)
        self.update_visible_lines_and_snap_cursor()
        self.keep_cursor_visible()

    def scroll_to_document_line(self, line: int) -> None:
        """Scroll to line number `line`. The line numbers of the document are partly estimated."""
        self.top = self.find_position_at_line(line)
        self.update_visible_lines_and_snap_cursor()
        self.keep_cursor_visible()

    def scroll_and_move_cursor(self, lines: int) -> None:
        """Scroll and move the cursor by `lines` lines: down, or up if `lines` is negative."""
        self.cursor = self.find_position_lines_below(self.cursor, lines)
        self.scroll_by_lines(lines)

    def go_to_first_line(self) -> None:
        """Go to the first line."""
        self.top = self.cursor = self.document_start_position
        self.update_visible_lines_and_snap_cursor()

    def go_to_last_line(self) -> None:
        """Go to the last line."""
        self.cursor = self.document_end_position
        self.top = self.find_position_lines_below(self.cursor, 1 - self.height)
        self.update_visible_lines_and_snap_cursor()

    def go_to_block_line(self, block: int, line: int = 0, lead: int | None = None) -> None:
        """Open the folds that contain a block, and go to a line of the block.

        `lead` is the number of lines to show above this line; None means a quarter of the view.
        """
        folds = self.document.list_folds_of_block(block)
        if closed := {fold for fold in folds if not self.is_fold_open(fold)}:
            self._toggled_folds ^= closed
            self._discard_block_layouts()
        self.cursor = self.find_nearest_visible_position(DocumentLinePosition(block, line))
        self.top = self.find_position_lines_below(
            self.cursor, -(self.height // 4 if lead is None else lead)
        )
        self.update_visible_lines_and_snap_cursor()

    def go_to_source_line(self, line: int) -> None:
        """Go to a line of the source text.

        If the line is not shown, go to the nearest shown line before it.
        """
        if line > self.document.lines_total:
            self.go_to_last_line()
            return
        self.set_source_line_for_references_at_cursor(line)
        block = self.document.find_block_index_of_source_line(line)
        row, before = self.document.blocks[block].above, 0
        for number, drawn in enumerate(self.get_block_lines(block)):
            first, last = drawn.covered_source_lines or (drawn.source_line, drawn.source_line)
            # A blank line between two blocks has the source line of the lower block, so skip it.
            if before < min(last, line) and first <= line and drawn.plain.strip():
                row, before = number, min(last, line)
        self.go_to_block_line(block, row, lead=0)

    def set_source_line_for_references_at_cursor(self, line: int) -> None:
        """Let references to the line at the cursor refer to source line `line`.

        This has an effect only if the line at the cursor shows several source lines, and `line` is
        one of them.
        """
        self._wanted_source_line = line

    def keep_cursor_visible(self, margin: int = 0) -> None:
        """Scroll until the cursor and `margin` lines around it are visible.

        If `margin` is 0 and the cursor is out of view, do not scroll, but move the cursor to the
        nearest visible line.
        """
        if not self.rows:
            return
        rows = [position for position, _ in self.rows]
        last = self.height - 1
        if self.cursor in rows:
            row = rows.index(self.cursor)
            beyond = max(0, row - (last - margin)) or min(0, row - margin)
            self.top = self.find_position_lines_below(self.top, beyond)
        elif margin:
            before = last - margin if self.cursor > rows[-1] else margin
            self.top = self.find_position_lines_below(self.cursor, -before)
        else:
            self.cursor = rows[0] if self.cursor < rows[0] else rows[-1]
        self.update_visible_lines_and_snap_cursor()

    # folds

    def is_fold_open(self, key: str) -> bool:
        """Return whether the fold with this key is open."""
        is_kind_open = self.document.fold_kinds.get(key) in self._open_fold_kinds
        return is_kind_open != (key in self._toggled_folds)

    def find_fold_at_cursor(self) -> str | None:
        """Return the key of the fold at the cursor.

        On the heading of a fold, this is the key of that fold. On any other line, it is the key of the fold
        that contains the line, or None.
        """
        if not self.document.blocks:
            return None
        block = self.document.blocks[self.cursor.block]
        return block.key if block.key in self.document.fold_kinds else block.fold

    def toggle_fold(self, fold: str) -> None:
        """Open or close one fold."""
        self._move_cursor_to_fold_heading(fold)
        with self._keep_cursor_row_during_new_layout():
            self._toggled_folds ^= {fold}
        if self.is_fold_open(fold):
            # If the heading is near the bottom of the screen, scroll so that the content becomes visible.
            self.keep_cursor_visible(self.height // 4)

    def toggle_folds_of_kind(self, kind: str) -> None:
        """Open or close all folds of a kind."""
        kinds = self.document.fold_kinds
        inside = self.find_fold_at_cursor()
        if inside and kinds.get(inside) == kind:
            self._move_cursor_to_fold_heading(inside)
        with self._keep_cursor_row_during_new_layout():
            self._toggled_folds = {key for key in self._toggled_folds if kinds.get(key) != kind}
            self._open_fold_kinds ^= {kind}

    def cycle_open_tool_folds(self) -> str:
        """Switch the folds of tool calls to their next state, and return the name of this state.

        In the state "diffs", only tool calls with a diff are open. The other states are "all" and
        "none". The state "diffs" is skipped if no tool call has a diff, or if all have one.
        """
        kinds = self.document.fold_kinds
        here = {*kinds.values()}.intersection(TOOL_FOLD_KINDS)
        is_open = here & self._open_fold_kinds
        wanted = set() if is_open and is_open == here else set(TOOL_FOLD_KINDS)
        if len(here) > 1 and not is_open:
            wanted = {"diff"}
        inside = self.find_fold_at_cursor()
        if inside and kinds.get(inside) in TOOL_FOLD_KINDS and kinds[inside] not in wanted:
            self._move_cursor_to_fold_heading(inside)
        with self._keep_cursor_row_during_new_layout():
            self._toggled_folds = {
                key for key in self._toggled_folds if kinds.get(key) not in TOOL_FOLD_KINDS
            }
            self._open_fold_kinds = {*self._open_fold_kinds.difference(TOOL_FOLD_KINDS), *wanted}
        return "all" if len(wanted) > 1 else "diffs" if wanted else "none"

    def _move_cursor_to_fold_heading(self, fold: str) -> None:
        """If the cursor is in a fold that is about to close, move the cursor to the fold's heading."""
        head = self.document.find_block_index_by_key(fold)
        if head is not None and fold in self.document.list_folds_of_block(self.cursor.block):
            self.cursor = DocumentLinePosition(head, self.document.blocks[head].above)

    # finding

    def highlight_search_pattern(self, pattern: re.Pattern[str] | None) -> None:
        """Highlight all matches of `pattern`; None removes all highlights."""
        if self.pattern != pattern or self.current_match is not None:
            self.pattern, self.current_match = pattern, None
            self._line_cache.clear()
            self.update_visible_lines_and_snap_cursor()

    def go_to_match_in_block(self, block: int, match: int) -> bool:
        """Go to the match with index `match` in a block, and make it the current match.

        Return whether the match is visible. A match that contains Markdown marks is not.
        """
        for changed in {block, self.current_match[0] if self.current_match else block}:
            self._line_cache.discard(changed)
        self.current_match = (block, match)
        self.go_to_block_line(block)
        for number, line in enumerate(self.get_block_lines(block)):
            if any("found-here" in roles for _, roles in line.spans):
                self.go_to_block_line(block, number)
                return True
        return False

    def set_citation_numbers_of_calls(self, numbers: dict[str, int]) -> bool:
        """Set the citation numbers next to tool calls; return whether a number has changed.

        `numbers` maps the key of each call's block to its citation number.
        """
        from kbtui.tui.reader.reader_blocks import FoldHeadingBlock

        has_changed = False
        for key, number in numbers.items():
            index = self.document.find_block_index_by_key(key)
            if index is None:
                continue
            block = self.document.blocks[index]
            if isinstance(block, FoldHeadingBlock) and block.citation_number != number:
                block.citation_number, has_changed = number, True
                self._line_cache.discard(index)
        if has_changed:
            self.update_visible_lines_and_snap_cursor()
        return has_changed

    @property
    def current_turn_number(self) -> int | None:
        """The number of the turn at the cursor, or None."""
        blocks = self.document.blocks
        return blocks[min(self.cursor.block, len(blocks) - 1)].turn if blocks else None

    @property
    def is_openable_block_at_cursor(self) -> bool:
        """Whether Enter opens something at the cursor."""
        blocks = self.document.blocks
        return bool(blocks) and blocks[self.cursor.block].can_be_opened

    @property
    def is_file_at_cursor(self) -> bool:
        """Whether the line at the cursor is about one file.

        Such a line belongs to a change of a file, or to a tool call that names a path.
        """
        if not self.document.blocks:
            return False
        if self.document.blocks[self.cursor.block].file is not None:
            return True
        from kbtui.tui.reader.reader_blocks import FoldHeadingBlock

        fold = self.find_fold_at_cursor()
        index = self.document.find_block_index_by_key(fold) if fold else None
        heading = self.document.blocks[index] if index is not None else None
        return isinstance(heading, FoldHeadingBlock) and (
            heading.kind == "diff" or any("path" in role.split() for _, role in heading.left)
        )

    @property
    def current_styled_line(self) -> StyledLine | None:
        """The line at the cursor."""
        return next((line for at, line in self.rows if at == self.cursor), None)

    @property
    def current_source_line(self) -> int:
        """The number of the source line at the cursor, or 0 if the cursor is on no source line.

        If the line at the cursor shows several source lines, this is the one that the user wanted to go
        to, or else the first.
        """
        line = self.current_styled_line
        if line is None:
            return 0
        first, last = line.covered_source_lines or (line.source_line, line.source_line)
        return self._wanted_source_line if first <= self._wanted_source_line <= last else first

    @property
    def current_reference(self) -> str | None:
        """The reference of the line at the cursor."""
        return self.document.make_reference_to_line(self.cursor.block, self.current_source_line)


class DocumentView(StyledTextWidget, ScrollViewWithoutRelayout, can_focus=True):
    """A widget that shows a document and posts a message when the cursor moves."""

    ALLOW_MAXIMIZE = False
    ALLOW_SELECT: ClassVar[bool] = True
    BINDINGS = MOVE_BINDINGS

    class DocumentCursorMoved(Message):
        """The cursor moved, or the view shows another document."""

    def __init__(self) -> None:
        super().__init__(id="document")
        self.viewport = DocumentViewport()
        self._is_syncing = False
        self._painted_rows: list[tuple[DocumentLinePosition, StyledLine]] = []
        self._painted_cursor = DocumentLinePosition()

    @property
    def document(self) -> ReaderDocument:
        """The document that the view shows."""
        return self.viewport.document

    def show_document(self, document: ReaderDocument, at: ReadingPosition | None = None) -> None:
        """Show a document from the reading position `at`, or from its top if `at` is None."""
        self._fit_viewport_to_widget()
        self.viewport.show_document(document, at)
        self.redraw_after_viewport_change()

    def show_reloaded_document(self, document: ReaderDocument) -> None:
        """Replace the document with its new version.

        The position stays the same, but a view at the end of the document moves to the new end.
        """
        self.viewport.show_reloaded_document(document)
        self.redraw_after_viewport_change()

    def _fit_viewport_to_widget(self) -> None:
        region = self.scrollable_content_region
        # A hidden view has no size; it is laid out when it appears.
        if region:
            # The first column marks the current line.
            self.viewport.resize(max(8, region.width - 1), region.height)

    def redraw_after_viewport_change(self) -> None:
        """Update the scroll bar, repaint, and post `DocumentCursorMoved`.

        Call this after each change of the viewport.
        """
        port = self.viewport
        self._is_syncing = True
        self.set_content_size(Size(port.width, port.total_line_count))
        if not self.is_vertical_scrollbar_grabbed:
            self.scroll_y = self.scroll_target_y = port.count_lines_before_position(port.top)
        self._is_syncing = False
        self._repaint_changed_lines()
        self.post_message(self.DocumentCursorMoved())

    def _repaint_changed_lines(self) -> None:
        before, rows = self._painted_rows, self.viewport.rows
        cursors = self._painted_cursor, self.viewport.cursor
        self._painted_rows, self._painted_cursor = rows, self.viewport.cursor
        changed = None
        if rows and len(before) == len(rows):
            changed = [
                y
                for y, ((was, old), (at, line)) in enumerate(zip(before, rows, strict=True))
                if was != at or old is not line or at in cursors
            ]
        self.repaint_lines(changed)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll the document after the user has moved the scroll bar."""
        super().watch_scroll_y(old_value, new_value)
        if self._is_syncing or round(old_value) == round(new_value):
            return
        if self.size.height == self.viewport.height:
            self.viewport.scroll_to_document_line(round(new_value))
        else:
            # Nobody scrolled. Textual limits the offset when the height changes, before `on_resize` is called.
            self._fit_viewport_to_widget()
        self.redraw_after_viewport_change()

    def on_mount(self) -> None:
        # Textual posts no `Resize` if the region of a widget was looked up between a scroll and the layout.
        signal = self.screen.screen_layout_refresh_signal
        signal.subscribe(self, self._fit_viewport_after_layout, immediate=True)

    def _fit_viewport_after_layout(self, screen: Screen[Any]) -> None:
        if self.size.height != self.viewport.height:
            self.call_next(self._fit_viewport_and_redraw)

    def on_resize(self, event: events.Resize) -> None:
        self._fit_viewport_and_redraw()

    def _fit_viewport_and_redraw(self) -> None:
        self._fit_viewport_to_widget()
        self.redraw_after_viewport_change()

    @property
    def lines_until_end_of_text(self) -> int:
        """The number of visible lines that have text."""
        return len(self.viewport.rows)

    def render_line(self, y: int) -> Strip:
        """Render the line that is `y` lines below the top of the view's visible part.

        The segments of the line contain their positions in the text, because selection by mouse needs
        them.
        """
        width = self.scrollable_content_region.width
        if y >= len(self.viewport.rows):
            return Strip.blank(width, self.base_style)
        position, line = self.viewport.rows[y]
        here = position == self.viewport.cursor
        base = ("cursor" if self.has_focus else "cursor-off") if here else ""
        lead = ("▎" if here else " ", "accent" if here else "")
        spans = add_style_role(line.spans, "dim") if self.document.loss else line.spans
        strip = self.render_spans([lead, *spans], width, base)
        absolute = self.viewport.count_lines_before_position(position)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(absolute)) is not None:
            start, end = span[0], strip.cell_length if span[1] == -1 else span[1]
            style = self.screen.get_component_rich_style("screen--selection")
            marked = strip.crop(start, end).apply_style(style)
            strip = Strip.join([strip.crop(0, start), marked, strip.crop(end)])
        return strip.apply_offsets(0, absolute)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, and a line break that ends it.

        The first column is left out, because it contains only the sign of the current line.
        """
        if selection.start is None or selection.end is None:
            return None
        texts = []
        for y in range(selection.start.y, selection.end.y + 1):
            block, number = self.viewport.find_position_at_line(y)
            span = selection.get_span(y)
            lines = self.viewport.get_block_lines(block) if self.document.blocks else []
            if span is not None and number < len(lines):
                start, end = max(1, span[0]), None if span[1] == -1 else span[1]
                texts.append(f" {lines[number].plain}"[start:end].rstrip())
        return "\n".join(texts), "\n"

    def text_select_all(self) -> None:
        """Do nothing: a double click should not select the whole document, which may be long."""

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    # moving

    def action_down(self) -> None:
        self.viewport.move_cursor_by_lines(1)
        self.redraw_after_viewport_change()

    def action_up(self) -> None:
        self.viewport.move_cursor_by_lines(-1)
        self.redraw_after_viewport_change()

    def action_scroll_pages(self, pages: float) -> None:
        """Scroll down by `pages`, or up if `pages` is negative.

        A page is the height of the view minus one line.
        """
        height = self.viewport.height
        lines = max(1, height // 2 if abs(pages) < 1 else height - 1)
        self.viewport.scroll_and_move_cursor(lines if pages > 0 else -lines)
        self.redraw_after_viewport_change()

    def action_top(self) -> None:
        self.viewport.go_to_first_line()
        self.redraw_after_viewport_change()

    def action_bottom(self) -> None:
        self.viewport.go_to_last_line()
        self.redraw_after_viewport_change()

    def _on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.viewport.scroll_by_lines(3)
        self.redraw_after_viewport_change()
        event.stop().prevent_default()

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.viewport.scroll_by_lines(-3)
        self.redraw_after_viewport_change()
        event.stop().prevent_default()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked line.

        If the line is the heading of a fold, open or close the fold.
        """
        if not 0 <= event.y < len(self.viewport.rows):
            return
        self.viewport.cursor = self.viewport.rows[event.y][0]
        block = self.document.blocks[self.viewport.cursor.block]
        if block.key in self.document.fold_kinds and self.viewport.cursor.line >= block.above:
            self.viewport.toggle_fold(block.key)
        self.redraw_after_viewport_change()
