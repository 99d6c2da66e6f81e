"""Heights of many blocks, with the running total up to any of them in logarithmic time.

A document may have hundreds of thousands of blocks, so they are counted in chunks: a
chunk has one estimate until one of its blocks is asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHUNK = 256
"""Blocks of a chunk."""


class Heights:
    """Heights in lines: of `count` blocks, `height` tells one, `chunks` about how much a chunk has.

    Without `chunks` every height is asked for at once.
    """

    def __init__(
        self,
        count: int = 0,
        height: Callable[[int], int] = lambda _: 0,
        chunks: Sequence[int] | None = None,
    ) -> None:
        self._count = count
        self._height = height
        number = -(-count // CHUNK)
        self._known: list[list[int] | None] = [None] * number
        if chunks is None:
            self._known = [self._ask(chunk) for chunk in range(number)]
            chunks = [sum(known or ()) for known in self._known]
        self._totals = list(chunks)
        tree = [0, *self._totals]
        for index in range(1, number + 1):
            parent = index + (index & -index)
            if parent <= number:
                tree[parent] += tree[index]
        self._tree = tree

    def _ask(self, chunk: int) -> list[int]:
        first = chunk * CHUNK
        return list(map(self._height, range(first, min(first + CHUNK, self._count))))

    def _chunk(self, chunk: int) -> list[int]:
        """The heights of a chunk, asked for now if need be."""
        known = self._known[chunk]
        if known is None:
            known = self._known[chunk] = self._ask(chunk)
            self._add(chunk, sum(known) - self._totals[chunk])
        return known

    def _add(self, chunk: int, change: int) -> None:
        if not change:
            return
        self._totals[chunk] += change
        position = chunk + 1
        while position < len(self._tree):
            self._tree[position] += change
            position += position & -position

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return self._chunk(index // CHUNK)[index % CHUNK]

    def set(self, index: int, height: int) -> None:
        """Give block `index` the height `height`."""
        chunk, place = divmod(index, CHUNK)
        known = self._chunk(chunk)
        change = height - known[place]
        if change:
            known[place] = height
            self._add(chunk, change)

    def before(self, index: int) -> int:
        """Lines above block `index`."""
        chunk, place = divmod(index, CHUNK)
        inside = sum(self._chunk(chunk)[:place]) if place else 0
        return inside + self._before_chunk(chunk)

    def _before_chunk(self, chunk: int) -> int:
        total = 0
        while chunk > 0:
            total += self._tree[chunk]
            chunk -= chunk & -chunk
        return total

    @property
    def total(self) -> int:
        """Lines of all blocks."""
        return self._before_chunk(len(self._totals))

    def find(self, line: int) -> tuple[int, int]:
        """The block that holds `line`, and the line within it; the last one past the end."""
        chunk, left = self._find_chunk(max(0, line))
        while chunk < len(self._totals):
            # A chunk may have fewer lines than was thought.
            ends = list(accumulate(self._chunk(chunk)))
            if left < ends[-1]:
                place = bisect_right(ends, left)
                return chunk * CHUNK + place, left - (ends[place] - self._chunk(chunk)[place])
            left -= ends[-1]
            chunk += 1
        for chunk in range(len(self._totals) - 1, -1, -1):
            known = self._chunk(chunk)
            for place in range(len(known) - 1, -1, -1):
                if known[place]:
                    return chunk * CHUNK + place, known[place] - 1
        return 0, 0

    def _find_chunk(self, line: int) -> tuple[int, int]:
        size = len(self._totals)
        position, left = 0, line
        step = 1 << size.bit_length()
        while step:
            after = position + step
            if after <= size and self._tree[after] <= left:
                position = after
                left -= self._tree[after]
            step >>= 1
        return position, left
