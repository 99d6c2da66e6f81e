"""The backlog: brings the vectors up to date with the catalog, a batch at a time.

Resumable, because what is left to do is always the difference between catalog
and vector table; and stoppable between two batches of eight texts. Texts are
embedded alone and put together: norm(norm(chunk + .3 · each neighbour) + .3 ·
title), so that an edit embeds only what is new (stack, section 7).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from kbtui.errors import KbtuiError
from kbtui.index.embedding import BATCH
from kbtui.index.entries import vector_neighbours
from kbtui.index.identity import text_hash
from kbtui.index.standing import StandingWriter
from kbtui.index.writer import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.index.catalog import Catalog
    from kbtui.index.embedding import Matrix
    from kbtui.index.records import Chunk, Entry
    from kbtui.index.remembered import Remembered
    from kbtui.index.vectors import VectorStore

NEIGHBOUR_WEIGHT = TITLE_WEIGHT = 0.3
WRITE_ROWS, WRITE_SECONDS = 1000, 3.0
FAILURES_MOST = 3
"""After so many entries in a row that cannot be embedded, it is the model and not the entries."""


class Encoder(Protocol):
    """A loaded model, whatever it runs under."""

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors, one row a text."""


class Backlog:
    """Embeds what the catalog has and the vector table has not. One thread makes all calls."""

    def __init__(
        self,
        catalog: Catalog,
        store: VectorStore,
        remembered: Remembered,
        *,
        say: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._catalog, self._store = catalog, store
        self._remembered = remembered
        self._say = say or (lambda progress: None)
        self._stop = stop or threading.Event()
        self._rows: dict[int, bytes] | None = None
        self._marks: dict[int, bytes] = {}

    def continue_with(self, catalog: Catalog, remembered: Remembered) -> None:
        """Go on with these, opened anew; the rows of the table are still known."""
        self._catalog, self._remembered = catalog, remembered

    def lacking(self, numbers: Sequence[int]) -> list[int]:
        """Those of the chunks `numbers` that wait for their vector. From any thread."""
        rows, marks = self._rows or {}, self._marks
        return [number for number in numbers if number in marks and number not in rows]

    def run(
        self, encoder: Callable[[int], Encoder], again: Callable[[], bool] = lambda: False
    ) -> int:
        """Work until nothing is left, stopped, or `again()` says that the catalog moved on.

        `encoder` gives a loaded model for so many chunks; it is asked only when there is a text
        that was never embedded. Returns how many chunks are left.
        """
        self._encoder = encoder
        if self._rows is None:
            self._rows = self._store.rows()
        standing = StandingWriter(self._catalog.path.parent)
        seq = self._catalog.seq()
        wanted = self._catalog.wanted_vectors()
        marks = self._marks = {number: mark for number, _, mark in wanted}
        stale = [number for number, mark in self._rows.items() if marks.get(number) != mark]
        missing = [row for row in wanted if self._rows.get(row[0]) != row[2]]
        if stale:
            self._store.remove(stale)
            for number in stale:
                del self._rows[number]
        lacks = Counter(entry_id for _, entry_id, _ in missing)
        standing.begin(seq, self._remembered.model, lacks)
        left = self._left = len(missing)
        total = len(wanted)
        if not missing:
            self._store.tidy()
            return 0
        self._say(Progress("vectors", total - left, total))
        rows: list[dict[str, Any]] = []
        vectors: list[Matrix] = []
        written = time.monotonic()
        lacking = {number for number, _, _ in missing}
        complete: list[str] = []
        failures = 0
        for entry_id in lacks:
            entry = self._catalog.entry(entry_id)
            if entry is None:
                continue
            try:
                made = self._entry(entry, lacking)
                failures = 0
            except KbtuiError:
                raise
            except Exception as error:
                # Tried again with the next work; one entry never takes the rest down.
                standing.failed(entry_id, f"not embedded: {type(error).__name__}: {error}")
                failures += 1
                if failures >= FAILURES_MOST:
                    raise
                continue
            for row, vector in made:
                rows.append(row)
                vectors.append(vector)
                left -= 1
            if len(made) == lacks[entry_id]:
                complete.append(entry_id)
            self._left = left
            self._say(Progress("vectors", total - left, total))
            if self._stop.is_set() or again():
                break
            if len(rows) >= WRITE_ROWS or time.monotonic() - written > WRITE_SECONDS:
                self._write(rows, vectors)
                standing.done(complete)
                rows, vectors, complete, written = [], [], [], time.monotonic()
        self._write(rows, vectors)
        standing.done(complete)
        self._store.tidy()
        return left

    def _write(self, rows: list[dict[str, Any]], vectors: list[Matrix]) -> None:
        if not rows or self._rows is None:
            return
        import numpy as np

        self._store.add(rows, np.vstack(vectors))
        self._rows.update((row["number"], row["hash"]) for row in rows)

    def _entry(self, entry: Entry, lacking: set[int]) -> list[tuple[dict[str, Any], Matrix]]:
        """The rows of an entry's chunks that lack one; fewer when stopped half way."""
        import numpy as np

        chunks = self._catalog.chunks_of(entry.id)
        wanted = [at for at, chunk in enumerate(chunks) if chunk.number in lacking and chunk.embed]
        around = {at: vector_neighbours(chunks, at) for at in wanted}
        texts = {text_hash(entry.title): entry.title}
        for at in wanted:
            for chunk in (chunks[at], *around[at]):
                texts[text_hash(chunk.text)] = chunk.text
        known = self._embedded(texts)
        title = known.get(text_hash(entry.title))
        result: list[tuple[dict[str, Any], Matrix]] = []
        for at in wanted:
            own = known.get(text_hash(chunks[at].text))
            others = [known.get(text_hash(chunk.text)) for chunk in around[at]]
            if own is None or title is None:
                break
            vector = np.array(own)
            for other in others:
                if other is None:
                    return result
                vector = vector + NEIGHBOUR_WEIGHT * other
            vector = vector / np.linalg.norm(vector) + TITLE_WEIGHT * title
            result.append((_row(entry, chunks[at]), vector / np.linalg.norm(vector)))
        return result

    def _embedded(self, texts: dict[bytes, str]) -> dict[bytes, Matrix]:
        import numpy as np

        found = {
            key: np.frombuffer(blob, dtype=np.float32)
            for key, blob in self._remembered.get(texts).items()
        }
        missing = [key for key in texts if key not in found]
        for at in range(0, len(missing), BATCH):
            if self._stop.is_set():
                break
            keys = missing[at : at + BATCH]
            vectors = self._encoder(self._left).encode([texts[key] for key in keys])
            fresh = dict(zip(keys, vectors, strict=True))
            self._remembered.put(fresh)
            found.update(fresh)
        return found


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
    }
