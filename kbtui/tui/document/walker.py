"""Walking through a document line by line, laying out only the blocks that are met.

A place is known as a block and a line within it, never as a line of the whole
document, because most heights are only estimates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual.cache import LRUCache

from kbtui.tui.document.document import Document
from kbtui.tui.document.folds import Folds
from kbtui.tui.document.heights import Heights
from kbtui.tui.document.lines import Found

if TYPE_CHECKING:
    import re

    from kbtui.tui.document.lines import Line

LAID_OUT_MOST = 200
"""Blocks whose lines are kept."""
_OPENED_MOST = 64


class Position(NamedTuple):
    """A line of a document: the block and the line within it."""

    block: int = 0
    line: int = 0


class Mark(NamedTuple):
    """A position that survives another width, or a reload.

    The block's key and number, the line, and the letters and digits before it.
    """

    key: str
    block: int
    line: int
    letters: int


class Walker:
    """The lines of a document at one width, with some folds open and some words marked."""

    def __init__(self) -> None:
        self.document = Document("", "", [])
        self.width = 0
        self.folds = Folds()
        self.pattern: re.Pattern[str] | None = None
        self.as_model = False
        """Whether what the model sees is shown (`Block.view`)."""
        self.shift: int | None = None
        """Cells of wide code that lie beyond the left edge; None while it is wrapped."""
        self.here: tuple[int, int] | None = None
        """Block and count of the match one stands at."""
        self.heights = Heights()
        self.layouts = 0
        """Counts the blocks that were laid out."""
        self._cache: LRUCache[int, list[Line]] = LRUCache(LAID_OUT_MOST)

    def reflow(self) -> None:
        """Begin again with estimates: width, folds or document changed."""
        self._cache.clear()
        count = len(self.document.blocks)
        self.heights = Heights(count, self._estimate, self._chunks())
        if self.document.weights:
            for fold in list(self.folds.opened)[:_OPENED_MOST]:
                # Counted by kind so far; these are exceptions.
                head = self.document.index_of(fold)
                if head is not None and head + 1 < count:
                    self.heights.before(head + 1)

    def _estimate(self, number: int) -> int:
        return 0 if self._hidden(number) else self.document.blocks[number].estimate(self.width)

    def _chunks(self) -> list[int] | None:
        """About how many lines each chunk of blocks has."""
        if not self.document.weights:
            return None
        width = max(8, self.width)
        kinds = {"", *self.folds.opened_kinds}
        views = {"", self.view}
        return [
            sum(
                lines + max(newlines, characters // width + newlines // 2)
                for (kind, view), (lines, characters, newlines) in chunk.items()
                if kind in kinds and view in views
            )
            for chunk in self.document.weights
        ]

    @property
    def view(self) -> str:
        """Which blocks are shown beside those of every view: "person" or "model"."""
        return "model" if self.as_model else "person"

    def shows(self, number: int) -> bool:
        """Whether a block belongs to the view; it may lie in a fold."""
        view = self.document.blocks[number].view
        return not view or view == self.view

    def _hidden(self, number: int) -> bool:
        block = self.document.blocks[number]
        if not self.shows(number):
            return True
        return block.fold is not None and not self.folds.is_open(block.fold)

    def lines(self, number: int) -> list[Line]:
        """The lines of a block, laid out now if need be."""
        lines = self._cache.get(number)
        if lines is None:
            lines = []
            if not self._hidden(number):
                here = self.here[1] if self.here and self.here[0] == number else -1
                block = self.document.blocks[number]
                found = Found(self.pattern, here) if self.pattern else None
                block.shift = self.shift
                lines = block.lines(self.width, found, self.folds.is_open(block.key))
                self.layouts += 1
            self._cache[number] = lines
            self.heights.set(number, len(lines))
        return lines

    def _seek(self, number: int, step: int) -> int | None:
        """The next block from `number` on, in direction `step`, that has lines."""
        blocks = self.document.blocks
        while 0 <= number < len(blocks):
            if not self._hidden(number):
                if self.lines(number):
                    return number
            elif (fold := blocks[number].fold) and not self.folds.is_open(fold):
                # All of a fold at once: it may have thousands of blocks.
                head = self.document.index_of(fold)
                over = self.document.fold_end(fold) if step > 0 else head
                if over is not None and (over - number) * step > 0:
                    number = over
                    continue
            number += step
        return None

    @property
    def first(self) -> Position:
        """The first line."""
        return Position(self._seek(0, 1) or 0, 0)

    @property
    def end(self) -> Position:
        """The last line."""
        last = self._seek(len(self.heights) - 1, -1)
        return Position() if last is None else Position(last, len(self.lines(last)) - 1)

    def step(self, start: Position, lines: int) -> Position:
        """The position `lines` further on (or back, when negative), within the document."""
        if not len(self.heights):
            return Position()
        block, line = start
        while lines > 0:
            count = len(self.lines(block))
            if line + lines < count:
                return Position(block, line + lines)
            following = self._seek(block + 1, 1)
            if following is None:
                return Position(block, max(0, count - 1))
            lines -= count - line
            block, line = following, 0
        while -lines > line:
            before = self._seek(block - 1, -1)
            if before is None:
                return Position(block, 0)
            lines += line + 1
            block, line = before, len(self.lines(before)) - 1
        return Position(block, line + lines)

    def valid(self, position: Position) -> Position:
        """The nearest position that exists and is not folded away."""
        if not len(self.heights):
            return Position()
        number = min(position.block, len(self.heights) - 1)
        found = self._seek(number, -1)
        if found is None:
            return self.first
        last = len(self.lines(found)) - 1
        return Position(found, min(position.line, last) if found == number else last)

    def mark_of(self, position: Position) -> Mark:
        """A mark for a position."""
        block, line = position
        if block >= len(self.document.blocks):
            return Mark("", 0, 0, 0)
        letters = sum(map(_letters, self.lines(block)[:line]))
        return Mark(self.document.blocks[block].key, block, line, letters)

    def locate(self, mark: Mark) -> Position:
        """Where a mark is now."""
        block = self.document.index_of(mark.key)
        if block is None:
            return self.valid(Position(mark.block, 0))
        lines = self.lines(block)
        if mark.line < len(lines) and sum(map(_letters, lines[: mark.line])) == mark.letters:
            return self.valid(Position(block, mark.line))
        seen = 0
        for number, line in enumerate(lines):
            seen += _letters(line)
            if seen > mark.letters:
                return Position(block, number)
        return self.valid(Position(block, max(0, len(lines) - 1)))


def _letters(line: Line) -> int:
    return sum(map(str.isalnum, line.whole or line.plain))
