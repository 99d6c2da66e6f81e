"""Brings the vectors up to date with the catalog, a batch at a time."""

from __future__ import annotations

import threading
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from kbtui.errors import KbtuiError
from kbtui.index.embedding_model import BATCH
from kbtui.index.embedding_status import EmbeddingStatusWriter
from kbtui.index.indexer import IndexProgress
from kbtui.index.ingest import NEIGHBOURS, vector_neighbours
from kbtui.index.models import text_hash, tie_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kbtui.index.catalog import Catalog
    from kbtui.index.embedding_cache import EmbeddingCache
    from kbtui.index.embedding_model import Matrix
    from kbtui.index.models import Chunk, Entry
    from kbtui.index.vectors import VectorStore


DIFF_BATCH = 20_000


class MissingVectors:
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
        # Read before everything else: what is written meanwhile is then looked at again.
        seq = catalog.seq()
        stale, found = _compare_vectors(catalog, store)
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


def _compare_vectors(catalog: Catalog, store: VectorStore) -> tuple[list[int], dict[str, set[int]]]:
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
    rows = catalog.wanted_vectors()
    while batch := list(islice(rows, DIFF_BATCH)):
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


NEIGHBOUR_WEIGHT = TITLE_WEIGHT = 0.3
WRITE_ROWS, WRITE_SECONDS, WRITE_SECONDS_MOST = 5000, 3.0, 60.0
"""Rows are written when there are so many, or so long after the last ones; the longer the work
goes on, the more at once, because every write makes the table another fragment."""
SLICE = 128
"""So many chunks of an entry are read at once: a long conversation is never in memory whole."""
FAILURES_MOST = 3
"""After so many entries in a row that cannot be embedded, it is the model and not the entries."""
HOLD_SECONDS = 2.0
"""How often it is asked whether work may go on."""


class Encoder(Protocol):
    """A loaded model, whatever it runs under."""

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors, one row a text."""


class EmbeddingQueue:
    """Embeds what the catalog has and the vector table has not. One thread makes all calls."""

    def __init__(
        self,
        catalog: Catalog,
        store: VectorStore,
        remembered: EmbeddingCache,
        *,
        say: Callable[[IndexProgress], None] | None = None,
        stop: threading.Event | None = None,
        hold: Callable[[], str | None] | None = None,
    ) -> None:
        """`hold` says in a phrase why work has to wait; None when it has not."""
        self._catalog, self._store = catalog, store
        self._remembered = remembered
        self._say = say or (lambda progress: None)
        self._stop = stop or threading.Event()
        self._hold = hold or (lambda: None)
        self._lacking = MissingVectors()
        self._total = self._hidden_total = self._failures = 0
        self._failing: set[str] = set()
        self._rows: list[tuple[dict[str, Any], Matrix]] = []

    def continue_with(self, catalog: Catalog, remembered: EmbeddingCache) -> None:
        """Go on with these, opened anew; what the table has is still known."""
        self._catalog, self._remembered = catalog, remembered

    def lacking(self, numbers: Sequence[int]) -> list[int]:
        """Those of the chunks `numbers` that wait for their vector. From any thread."""
        waiting = self._lacking.numbers
        return [number for number in numbers if number in waiting]

    def counts(self, *, hidden: bool) -> tuple[int, int]:
        """How many chunks have no vector yet, and how many want one; with `hidden` false, of what
        everybody may see. From any thread."""
        left, total = len(self._lacking.numbers), self._total
        if not hidden:
            left, total = left - self._lacking.hidden, total - self._hidden_total
        return max(0, left), total

    def run(
        self, encoder: Callable[[int], Encoder], again: Callable[[], bool] = lambda: False
    ) -> int:
        """Work until nothing is left, stopped, or `again()` says that the catalog moved on.

        `encoder` gives a loaded model for so many chunks; it is asked only when there is a text
        that was never embedded. Returns how many chunks are left.
        """
        self._encoder, self._again = encoder, again
        self._standing = EmbeddingStatusWriter(self._catalog.path.parent)
        self._lacking.follow(self._catalog, self._store)
        self._standing.begin(self._lacking.seq, self._remembered.model, self._lacking.entries)
        if self._lacking.numbers:
            self._total = self._store.count() + len(self._lacking.numbers)
            self._hidden_total = self._store.count("hidden = true") + self._lacking.hidden
            self._tell()
            self._work()
        if not self._stop.is_set():
            self._store.tidy()
        return len(self._lacking.numbers)

    def _tell(self, waits: str | None = None) -> None:
        left = len(self._lacking.numbers) - len(self._rows)
        self._say(IndexProgress("vectors", self._total - left, self._total, waits))

    def _work(self) -> None:
        written, writes = time.monotonic(), 0
        for entry_id, numbers in self._slices():
            try:
                made = self._slice(entry_id, numbers)
                self._failures = 0
            except KbtuiError:
                raise
            except Exception as error:
                self._failed(entry_id, error)
                continue
            self._rows += made
            self._tell()
            if self._stop.is_set():
                # Nothing is lost: what was embedded is remembered.
                self._rows = []
                return
            pause = min(WRITE_SECONDS * (1 + writes), WRITE_SECONDS_MOST)
            if len(self._rows) >= WRITE_ROWS or time.monotonic() - written > pause:
                self._write()
                written, writes = time.monotonic(), writes + 1
                self._store.tidy()
        self._write()

    def _slices(self) -> Iterator[tuple[str, list[int]]]:
        """The entries to work on, a few chunks at a time, until something else comes first."""
        self._rows, self._failures, self._failing = [], 0, set()
        for entry_id in list(self._lacking.entries):
            numbers = sorted(self._lacking.entries.get(entry_id, ()))
            for at in range(0, len(numbers), SLICE):
                if self._stop.is_set() or self._again():
                    return
                if entry_id in self._failing:
                    break
                yield entry_id, numbers[at : at + SLICE]

    def _failed(self, entry_id: str, error: Exception) -> None:
        """Tried again with the next work; one entry never takes the rest down."""
        self._failing.add(entry_id)
        self._standing.failed(entry_id, f"not embedded: {type(error).__name__}: {error}")
        self._failures += 1
        if self._failures >= FAILURES_MOST:
            raise error

    def _write(self) -> None:
        """Put the rows that were made into the table."""
        if not self._rows:
            return
        import numpy as np

        self._store.add(
            [row for row, _ in self._rows], np.vstack([vector for _, vector in self._rows])
        )
        done: dict[str, set[int]] = {}
        for row, _ in self._rows:
            done.setdefault(row["entry"], set()).add(row["number"])
        self._rows = []
        self._standing.done([name for name, held in done.items() if self._lacking.done(name, held)])

    def _slice(self, entry_id: str, numbers: list[int]) -> list[tuple[dict[str, Any], Matrix]]:
        """The rows of some of an entry's chunks; fewer when stopped half way."""
        import numpy as np

        with self._catalog.snapshot():
            entry = self._catalog.entry(entry_id)
            chunks = self._surroundings(entry_id, numbers)
        if entry is None:
            return []
        lacking = set(numbers)
        wanted = [
            (run, at)
            for run in chunks
            for at, chunk in enumerate(run)
            if chunk.number in lacking and chunk.embed
        ]
        around = [vector_neighbours(run, at) for run, at in wanted]
        texts = {text_hash(entry.title): entry.title}
        for (run, at), others in zip(wanted, around, strict=True):
            for chunk in (run[at], *others):
                texts[text_hash(chunk.text)] = chunk.text
        known = self._embedded(texts)
        title = known.get(text_hash(entry.title))
        result: list[tuple[dict[str, Any], Matrix]] = []
        for (run, at), others in zip(wanted, around, strict=True):
            own = known.get(text_hash(run[at].text))
            beside = [known.get(text_hash(chunk.text)) for chunk in others]
            if own is None or title is None:
                break
            vector = np.array(own)
            for other in beside:
                if other is None:
                    return result
                vector = vector + NEIGHBOUR_WEIGHT * other
            vector = vector / np.linalg.norm(vector) + TITLE_WEIGHT * title
            result.append((_row(entry, run[at]), vector / np.linalg.norm(vector)))
        return result

    def _surroundings(self, entry_id: str, numbers: list[int]) -> list[list[Chunk]]:
        """These chunks with those that colour their vectors, in runs without a gap."""
        runs: list[list[int]] = []
        for ordinal in self._catalog.ordinals(numbers):
            first, end = max(0, ordinal - NEIGHBOURS), ordinal + NEIGHBOURS + 1
            if runs and first <= runs[-1][1]:
                runs[-1][1] = end
            else:
                runs.append([first, end])
        return [self._catalog.chunks_between(entry_id, first, end) for first, end in runs]

    def _embedded(self, texts: dict[bytes, str]) -> dict[bytes, Matrix]:
        import numpy as np

        found = {
            key: np.frombuffer(blob, dtype=np.float32)
            for key, blob in self._remembered.get(texts).items()
        }
        missing = [key for key in texts if key not in found]
        while missing and self._may_go_on():
            keys, missing = missing[:BATCH], missing[BATCH:]
            left = len(self._lacking.numbers)
            vectors = self._encoder(left).encode([texts[key] for key in keys])
            fresh = dict(zip(keys, vectors, strict=True))
            self._remembered.put(fresh)
            found.update(fresh)
            if self._again():
                break
        return found

    def _may_go_on(self) -> bool:
        """Whether to embed the next batch; waits while something asks for it."""
        reason = self._hold()
        while reason and not self._stop.is_set():
            self._write()
            self._tell(reason)
            if self._again():
                return False
            self._stop.wait(HOLD_SECONDS)
            reason = self._hold()
        return not self._stop.is_set()


def _row(entry: Entry, chunk: Chunk) -> dict[str, Any]:
    return {
        "number": chunk.number,
        "hash": chunk.vector_hash or b"",
        "hidden": entry.hidden,
        "archived": entry.archived,
        "kind": entry.kind,
        "topic": entry.topic,
        "type": entry.type,
        "role": chunk.role,
        "entry": entry.id,
        "time": chunk.timestamp if chunk.timestamp else entry.changed,
        "tie": tie_value(chunk.id),
    }
