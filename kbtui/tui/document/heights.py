"""Heights of many blocks, with the running total up to any of them in logarithmic time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Heights:
    """A Fenwick tree over block heights, in lines."""

    def __init__(self, heights: Iterable[int] = ()) -> None:
        self._heights = list(heights)
        size = len(self._heights)
        tree = [0, *self._heights]
        for index in range(1, size + 1):
            parent = index + (index & -index)
            if parent <= size:
                tree[parent] += tree[index]
        self._tree = tree

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    def set(self, index: int, height: int) -> None:
        """Give block `index` the height `height`."""
        change = height - self._heights[index]
        if not change:
            return
        self._heights[index] = height
        position = index + 1
        while position < len(self._tree):
            self._tree[position] += change
            position += position & -position

    def before(self, index: int) -> int:
        """Lines above block `index`."""
        total = 0
        while index > 0:
            total += self._tree[index]
            index -= index & -index
        return total

    @property
    def total(self) -> int:
        """Lines of all blocks."""
        return self.before(len(self._heights))

    def find(self, line: int) -> tuple[int, int]:
        """The block that holds `line`, and the line within it; the last one past the end."""
        size = len(self._heights)
        if not size:
            return 0, 0
        position, left = 0, max(0, line)
        step = 1 << size.bit_length()
        while step:
            after = position + step
            if after <= size and self._tree[after] <= left:
                position = after
                left -= self._tree[after]
            step >>= 1
        if position >= size:
            last = max((i for i in range(size - 1, -1, -1) if self._heights[i]), default=0)
            return last, max(0, self._heights[last] - 1)
        return position, left
