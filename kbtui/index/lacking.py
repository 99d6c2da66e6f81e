"""What the vectors lack: the difference between catalog and vector table.

The whole of both is compared once, with little memory whatever the size; after that only the
chunks that the catalog wrote or took out since.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.index.catalog import Catalog
    from kbtui.index.vectors import VectorStore

CHUNKS_MOST = 20_000
"""When more chunks than these changed, everything is compared again."""
BATCH = 20_000


class Lacking:
    """The chunks without their vector: `numbers`, and by entry, in the order of work: `entries`.

    `hidden` counts those of hidden entries.
    """

    def __init__(self) -> None:
        self.hidden = 0
        self._hidden_entries: frozenset[str] = frozenset()
        self.numbers: set[int] = set()
        self.entries: dict[str, set[int]] = {}
        self.seq = -1

    def follow(self, catalog: Catalog, store: VectorStore) -> None:
        """Take in what the catalog did since, and remove the rows that it has no chunk for."""
        # Read first: what is written meanwhile is then looked at again.
        seq = catalog.seq()
        since = catalog.vectors_since(self.seq) if self.seq >= 0 else None
        if since is None or len(since[0]) + len(since[1]) > CHUNKS_MOST:
            stale, found = _all(catalog, store)
        else:
            stale, found = _some(store, *since)
            touched = {*since[1], *(number for number, _, _ in since[0])}
            for name, held in self.entries.items():
                if left := held - touched if touched & held else held:
                    found.setdefault(name, set()).update(left)
        if stale:
            store.remove(stale)
        self.entries = {name: found[name] for name in catalog.oldest_last(found)}
        self.numbers = {number for held in self.entries.values() for number in held}
        self._hidden_entries = catalog.hidden() & self.entries.keys()
        self.hidden = sum(len(self.entries[name]) for name in self._hidden_entries)
        self.seq = seq

    def done(self, entry_id: str, numbers: set[int]) -> bool:
        """These chunks of an entry have their vector now; whether all of the entry's have."""
        self.numbers -= numbers
        held = self.entries.get(entry_id, set())
        left = held - numbers
        if entry_id in self._hidden_entries:
            self.hidden -= len(held) - len(left)
        if left:
            self.entries[entry_id] = left
        else:
            self.entries.pop(entry_id, None)
        return not left


def _some(
    store: VectorStore, changed: list[tuple[int, str, bytes | None]], gone: list[int]
) -> tuple[list[int], dict[str, set[int]]]:
    """What is stale and what is missing of some chunks."""
    rows = store.rows_among([*gone, *(number for number, _, _ in changed)])
    marks = {number: mark for number, _, mark in changed}
    times = Counter(number for number, _ in rows)
    good = {number for number, mark in rows if marks.get(number) == mark and times[number] == 1}
    found: dict[str, set[int]] = {}
    for number, name, mark in changed:
        if mark is not None and number not in good:
            found.setdefault(name, set()).add(number)
    return sorted(set(times) - good), found


def _all(catalog: Catalog, store: VectorStore) -> tuple[list[int], dict[str, set[int]]]:
    """What is stale and what is missing of everything."""
    import numpy as np

    numbers, marks = store.rows()
    order = np.argsort(numbers, kind="stable")
    numbers, marks = numbers[order], marks[order]
    twice = np.unique(numbers[1:][numbers[1:] == numbers[:-1]])
    once = ~np.isin(numbers, twice)
    numbers, marks = numbers[once], marks[once]
    good = np.zeros(len(numbers), dtype=bool)
    found: dict[str, set[int]] = {}
    for batch in _batches(catalog.wanted_vectors()):
        wanted = np.array([number for number, _, _ in batch], dtype=np.int64)
        mark = np.array([mark for _, _, mark in batch], dtype=marks.dtype)
        at = np.searchsorted(numbers, wanted)
        inside = at < len(numbers)
        at[~inside] = 0
        same = inside
        if len(numbers):
            same = inside & (numbers[at] == wanted) & (marks[at] == mark)
        good[at[same]] = True
        for position in np.flatnonzero(~same):
            number, name, _ = batch[position]
            found.setdefault(name, set()).add(number)
    return [*numbers[~good].tolist(), *twice.tolist()], found


def _batches(
    rows: Iterator[tuple[int, str, bytes]],
) -> Iterator[list[tuple[int, str, bytes]]]:
    while batch := list(islice(rows, BATCH)):
        yield batch
