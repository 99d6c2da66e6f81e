"""Embeds the chunks that have no vector yet, in batches."""

from __future__ import annotations

import os
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.index.entry_and_chunk_data_types import hash_embedded_text
from kbtui.index.indexable_entry_reader import find_neighbours_embedded_with_chunk
from kbtui.index.unembedded_entries_file import EntriesWithoutVectorsWriter
from kbtui.index.workspace_index_writer import IndexProgress
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kbtui.index.catalog_database import CatalogDatabase
    from kbtui.index.embedding_cache import EmbeddingCache
    from kbtui.index.embedding_model import LoadedEmbeddingModel, Matrix
    from kbtui.index.embedding_process import EmbeddingProcess
    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
    from kbtui.index.published_vector_table_search import PublishedVectorTableSearcher
    from kbtui.index.vector_store import VectorRow, VectorStore
    from kbtui.notices import PauseReason

COMPARED_ROWS = 20_000
"""To find the chunks without a vector, this many chunks at a time are compared with the vector table."""
# These values were measured: docs/search-quality.md.
NEIGHBOUR_WEIGHTS = {"conversation": 0.15, "subject": 0.3}
"""The weight of each neighbour in a chunk's vector, by kind of entry. The chunk's own text has the weight 1."""
TITLE_WEIGHT = 0.3
"""The weight of the title in a chunk's vector."""
WRITE_ROWS, WRITE_SECONDS, WRITE_SECONDS_MAX = 5000, 3.0, 60.0
"""The conditions for writing the waiting rows.

They are written as soon as there are `WRITE_ROWS` of them, or when some time has passed since the
last write. At first, this time is `WRITE_SECONDS`. Each write lengthens it by `WRITE_SECONDS`, up
to `WRITE_SECONDS_MAX`. Fewer writes are better, because each write adds a fragment to the table.
"""
EMBEDDING_BATCH = 8
"""The number of texts that a model in the engine's own process embeds at a time."""
BULK_CHUNKS, BULK_TEXTS = 500, 64
"""The conditions for embedding chunks in bulk, in a separate process on all cores.

At least `BULK_CHUNKS` chunks have no vector, and at least `BULK_TEXTS` texts of a slice are not in
the cache. For fewer chunks, starting the process takes longer than it saves.
"""
SLICE_CHUNKS, BULK_SLICE_CHUNKS = 32, 64 * (os.cpu_count() or 1)
"""The number of chunks in a slice. The chunks can belong to several entries.

After each slice, the chunk embedder checks whether it must start again. In bulk, a slice is one request to the
separate process.
"""
FAILURES_MAX = 3
"""If this many consecutive entries fail, the chunk embedder stops and raises the last error."""
PAUSE_SECONDS = 2.0
"""The interval in seconds at which a paused chunk embedder checks whether it may continue."""


class EntryChunksToEmbed(NamedTuple):
    """The chunks of an entry. Those at `positions` in `chunks` are to be embedded."""

    entry: CatalogEntry
    chunks: list[Chunk]
    positions: list[int]


class ChunksWithoutVector:
    """The chunks that still need a vector.

    * `numbers` contains the chunk numbers.
    * `entries` maps the id of each entry to the numbers of its chunks; the entries are in the order
      in which they are embedded.
    * `seq` is the number of the last catalog transaction that the queue covers, or -1 if it covers
      none yet.
    """

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.entries: dict[str, set[int]] = {}
        self.seq = -1
        self._of_hidden_entries: set[int] = set()
        self._of_conversations: set[int] = set()

    def queue_chunks_and_remove_stale_vectors(
        self,
        catalog: CatalogDatabase,
        store: VectorStore,
        remote: PublishedVectorTableSearcher | None = None,
    ) -> None:
        """Queue the chunks without a current vector. Remove vectors that are stale or belong to no chunk.

        Chunks whose vectors are in `remote` are not queued.
        """
        # Read the transaction number first, so that chunks written during the comparison are compared next time.
        seq = catalog.get_last_transaction_number()
        stale, found = compare_vectors_with_catalog(catalog, store)
        store.remove_vectors_of_chunks(stale)
        if remote is not None:
            found = remote.update_coverage_and_list_uncovered_chunks(catalog, found)
        self.entries = {name: found[name] for name in catalog.sort_entries_for_embedding(found)}
        self.numbers = set().union(*self.entries.values())
        self._of_hidden_entries = self._list_queued_chunks_of_entries(
            catalog.list_hidden_entry_ids()
        )
        self._of_conversations = self._list_queued_chunks_of_entries(
            catalog.list_conversation_entry_ids()
        )
        self.seq = seq

    def _list_queued_chunks_of_entries(self, entry_ids: set[str]) -> set[int]:
        return set().union(*(self.entries[name] for name in entry_ids & self.entries.keys()))

    def count_queued_conversation_chunks(self) -> int:
        """Count the chunks without a vector that belong to conversations."""
        return len(self.numbers & self._of_conversations)

    def count_queued_hidden_chunks(self) -> int:
        """Count the chunks without a vector that belong to hidden entries."""
        return len(self.numbers & self._of_hidden_entries)

    def remove_embedded_chunks_from_queue(self, entry_id: str, numbers: set[int]) -> bool:
        """Remove an entry's embedded chunks from the queue; return whether the whole entry is now embedded."""
        self.numbers -= numbers
        self.entries[entry_id] -= numbers
        if self.entries[entry_id]:
            return False
        del self.entries[entry_id]
        return True


def compare_vectors_with_catalog(
    catalog: CatalogDatabase, store: VectorStore
) -> tuple[list[int], dict[str, set[int]]]:
    """Return the numbers of the chunks with stale vectors, and the chunks without a current vector.

    The second result maps entry ids to chunk numbers. A vector is stale if its chunk was removed or
    changed. If a chunk has several vectors, all of them are stale.
    """
    import numpy as np

    numbers, hashes = store.read_vector_hashes()
    numbers, rows_of_numbers, counts = np.unique(numbers, return_index=True, return_counts=True)
    duplicates, single = numbers[counts > 1], counts == 1
    numbers, hashes = numbers[single], hashes[rows_of_numbers[single]]
    is_current = np.zeros(len(numbers), dtype=bool)
    missing: dict[str, set[int]] = {}
    rows = catalog.iterate_chunks_to_embed()
    while batch := list(islice(rows, COMPARED_ROWS)):
        wanted = np.array([number for number, _, _ in batch], dtype=np.int64)
        wanted_hashes = np.array([hash_ for _, _, hash_ in batch], dtype=hashes.dtype)
        at = np.searchsorted(numbers, wanted)
        is_same = at < len(numbers)
        at[~is_same] = 0
        if len(numbers):
            is_same &= (numbers[at] == wanted) & (hashes[at] == wanted_hashes)
        is_current[at[is_same]] = True
        for position in np.flatnonzero(~is_same):
            number, name, _ = batch[position]
            missing.setdefault(name, set()).add(number)
    return [*numbers[~is_current].tolist(), *duplicates.tolist()], missing


class ChunkEmbedder:
    """Embeds the chunks that have no vector. Only one thread may use it, unless a method says otherwise."""

    def __init__(
        self,
        catalog: CatalogDatabase,
        store: VectorStore,
        cache: EmbeddingCache,
        *,
        on_progress: Callable[[IndexProgress], None] | None = None,
        stop: threading.Event | None = None,
        find_embedding_pause_reason: Callable[[], PauseReason | None] | None = None,
        remote: PublishedVectorTableSearcher | None = None,
    ) -> None:
        """Create a chunk embedder. While `find_embedding_pause_reason` returns a reason, embedding is paused.

        `remote` contains the vectors of a large published library.
        """
        self._remote = remote
        self._catalog, self._store, self._cache = catalog, store, cache
        self._on_progress = on_progress or (lambda progress: None)
        self._stop = stop or threading.Event()
        self._get_pause_reason = find_embedding_pause_reason or (lambda: None)
        self._missing = ChunksWithoutVector()
        self._total = self._hidden_total = self._conversations_total = 0
        self._preferred_entries: list[str] = []
        self._preferred_chunks: Sequence[int] = ()
        self._rows: list[tuple[VectorRow, Matrix]] = []

    def replace_catalog_and_cache(self, catalog: CatalogDatabase, cache: EmbeddingCache) -> None:
        """Use another catalog and cache from now on."""
        self._catalog, self._cache = catalog, cache

    def select_chunks_without_vector(self, numbers: Sequence[int]) -> list[int]:
        """Return the chunk numbers in `numbers` whose chunks have no vector yet.

        Any thread may call this method.
        """
        missing = self._missing.numbers
        return [number for number in numbers if number in missing]

    def count_missing_and_required_vectors(self, *, hidden: bool) -> tuple[int, int]:
        """Return how many chunks still lack a vector, and how many need one in total.

        Chunks of hidden entries count only if `hidden` is true. Any thread may call this.
        """
        left, total = len(self._missing.numbers), self._total
        if not hidden:
            left -= self._missing.count_queued_hidden_chunks()
            total -= self._hidden_total
        return max(0, left), total

    def prefer_entries_for_embedding(self, entry_ids: Sequence[str]) -> None:
        """Embed these entries next, in this order. Any thread may call this."""
        self._preferred_entries = list(entry_ids)

    def prefer_entries_of_chunks_for_embedding(self, numbers: Sequence[int]) -> None:
        """Embed the entries of these chunks next, in this order. Any thread may call this."""
        self._preferred_chunks = numbers

    def embed_missing_chunks(
        self,
        get_or_start_passage_embedder: Callable[[bool], LoadedEmbeddingModel | EmbeddingProcess],
        should_restart: Callable[[], bool] = lambda: False,
        on_counted: Callable[[], None] = lambda: None,
    ) -> int:
        """Embed the chunks that have no vector; return how many of them are left.

        Ends early if `stop` is set, or if `should_restart` returns true because the catalog has
        changed. `get_or_start_passage_embedder` returns the model. It is called only if the cache lacks
        vectors; its argument says whether many texts are embedded at once. `on_counted` is called
        before the first chunk is embedded; from then on, `count_missing_and_required_vectors` counts all chunks.
        """
        self._get_encoder, self._should_restart = get_or_start_passage_embedder, should_restart
        self._entries_without_vectors = EntriesWithoutVectorsWriter(self._catalog.path.parent)
        self._missing.queue_chunks_and_remove_stale_vectors(
            self._catalog, self._store, self._remote
        )
        self._entries_without_vectors.replace_entries_without_vectors_in_file(
            self._missing.seq, self._cache.model, self._missing.entries
        )
        if self._missing.numbers:
            self._total = self._store.count_vector_rows() + len(self._missing.numbers)
            hidden = self._missing.count_queued_hidden_chunks()
            self._hidden_total = self._store.count_vector_rows("hidden = true") + hidden
            self._conversations_total = (
                self._store.count_vector_rows("kind = 'conversation'")
                + self._missing.count_queued_conversation_chunks()
            )
        on_counted()
        if self._missing.numbers:
            self._report_embedding_progress()
            self._embed_and_write_vectors()
        if not self._stop.is_set():
            self._store.compact_vector_table()
        return len(self._missing.numbers)

    def _report_embedding_progress(self, pause_reason: PauseReason | None = None) -> None:
        done = self._total - len(self._missing.numbers) + len(self._rows)
        in_conversations = (
            self._conversations_total - self._missing.count_queued_conversation_chunks()
        )
        in_conversations += sum(row["kind"] == "conversation" for row, _ in self._rows)
        parts = {
            "subjects": (done - in_conversations, self._total - self._conversations_total),
            "conversations": (in_conversations, self._conversations_total),
        }
        self._on_progress(IndexProgress("vectors", done, self._total, pause_reason, parts))

    def _embed_and_write_vectors(self) -> None:
        self._rows = []
        written, writes = time.monotonic(), 0
        for rows in self._embed_missing_chunks_in_slices():
            self._rows += rows
            self._report_embedding_progress()
            if self._stop.is_set():
                # No work is lost, because every embedded text is in the cache.
                self._rows = []
                return
            pause = min(WRITE_SECONDS * (1 + writes), WRITE_SECONDS_MAX)
            if len(self._rows) >= WRITE_ROWS or time.monotonic() - written > pause:
                self._write_vector_rows()
                written, writes = time.monotonic(), writes + 1
                self._store.compact_vector_table()
        self._write_vector_rows()

    def _embed_missing_chunks_in_slices(self) -> Iterator[list[tuple[VectorRow, Matrix]]]:
        """Embed a slice of chunks at a time, and yield their rows.

        An entry that cannot be embedded is skipped. If `FAILURES_MAX` consecutive entries fail, the error
        of the last one is raised.
        """
        failures = 0
        for parts in self._read_missing_chunks_in_slices():
            try:
                yield self._embed_chunks_and_make_rows(parts)
                failures = 0
            except KbtuiError:
                raise
            except Exception:
                # Embed each entry alone, to find out which of them cannot be embedded.
                for part in parts:
                    if self._stop.is_set():
                        return
                    try:
                        yield self._embed_chunks_and_make_rows([part])
                        failures = 0
                    except KbtuiError:
                        raise
                    except Exception as error:
                        self._entries_without_vectors.record_embedding_error_of_entry(
                            part.entry.id, f"not embedded: {type(error).__name__}: {error}"
                        )
                        failures += 1
                        if failures >= FAILURES_MAX:
                            raise

    def _read_missing_chunks_in_slices(self) -> Iterator[list[EntryChunksToEmbed]]:
        """Yield the chunks that have no vector, in slices.

        Ends early if `stop` is set, or if the chunk embedder must start again.
        """
        parts: list[EntryChunksToEmbed] = []
        free = slice_chunks = BULK_SLICE_CHUNKS if self._are_many_vectors_missing else SLICE_CHUNKS
        waiting, begun = dict(self._missing.entries), list[EntryChunksToEmbed]()
        in_order = list(reversed(waiting))
        while begun or in_order:
            if (entry_id := self._take_preferred_entry(waiting)) is not None:
                part = self._read_missing_chunks_of_entry(entry_id)
            elif begun:
                part = begun.pop()
            elif (entry_id := in_order.pop()) in waiting:
                del waiting[entry_id]
                part = self._read_missing_chunks_of_entry(entry_id)
            else:
                continue
            if part is None:
                continue
            if rest := part.positions[free:]:
                begun.append(part._replace(positions=rest))
            parts.append(part._replace(positions=part.positions[:free]))
            free -= len(parts[-1].positions)
            if not free:
                if self._stop.is_set() or self._should_restart():
                    return
                yield parts
                parts, free = [], slice_chunks
        if parts and not self._stop.is_set() and not self._should_restart():
            yield parts

    def _read_missing_chunks_of_entry(self, entry_id: str) -> EntryChunksToEmbed | None:
        """Return an entry and the positions of its chunks without vectors; None if all chunks have vectors."""
        with self._catalog.open_read_transaction():
            entry = self._catalog.get_entry(entry_id)
            chunks = self._catalog.list_entry_chunks(entry_id)
        missing = self._missing.entries[entry_id]
        positions = [at for at, one in enumerate(chunks) if one.number in missing]
        return (
            EntryChunksToEmbed(entry, chunks, positions)
            if entry is not None and positions
            else None
        )

    def _take_preferred_entry(self, waiting: dict[str, set[int]]) -> str | None:
        """Remove the most preferred entry from `waiting`, and return its id; None if `waiting` has no preferred entry."""
        # Another thread may set these at any time, so each is read only once.
        numbers, self._preferred_chunks = self._preferred_chunks, ()
        if numbers:
            ranks = {number: rank for rank, number in enumerate(numbers)}
            found = {
                name: min(ranks[number] for number in of_entry & ranks.keys())
                for name, of_entry in waiting.items()
                if not of_entry.isdisjoint(ranks)
            }
            self._preferred_entries = [
                *sorted(found, key=found.__getitem__),
                *self._preferred_entries,
            ]
        preferred = self._preferred_entries
        while preferred:
            entry_id = preferred.pop(0)
            if waiting.pop(entry_id, None) is not None:
                return entry_id
        return None

    @property
    def _are_many_vectors_missing(self) -> bool:
        return len(self._missing.numbers) >= BULK_CHUNKS

    def _write_vector_rows(self) -> None:
        if not self._rows:
            return
        import numpy as np

        self._store.add_vectors(
            [row for row, _ in self._rows], np.vstack([vector for _, vector in self._rows])
        )
        done: dict[str, set[int]] = {}
        for row, _ in self._rows:
            done.setdefault(row["entry"], set()).add(row["number"])
        self._rows = []
        finished = [
            name
            for name, numbers in done.items()
            if self._missing.remove_embedded_chunks_from_queue(name, numbers)
        ]
        self._entries_without_vectors.mark_entries_embedded(finished)

    def _embed_chunks_and_make_rows(
        self, parts: list[EntryChunksToEmbed]
    ) -> list[tuple[VectorRow, Matrix]]:
        """Embed chunks, and return their rows and vectors. If embedding must stop, the result lacks some chunks."""

        text_groups = [
            list_texts_to_embed_for_passage(part.entry.title, part.chunks, at)
            for part in parts
            for at in part.positions
        ]
        known = self._embed_texts_or_read_cache(
            {hash_embedded_text(text): text for texts in text_groups for text in texts}
        )
        rows = (
            make_vector_table_row_without_vector(part.entry, part.chunks[at])
            for part in parts
            for at in part.positions
        )
        result: list[tuple[VectorRow, Matrix]] = []
        for row, texts in zip(rows, text_groups, strict=True):
            hashes = [hash_embedded_text(text) for text in texts]
            if not known.keys() >= set(hashes):
                continue
            title, vector, *around = (known[hash_] for hash_ in hashes)
            result.append(
                (row, combine_title_text_and_neighbour_vectors(row["kind"], title, vector, around))
            )
        return result

    def _embed_texts_or_read_cache(self, texts: dict[bytes, str]) -> dict[bytes, Matrix]:
        """Map the hash of each text to its vector. If embedding must stop, the result lacks some texts."""
        import numpy as np

        found = {
            key: np.frombuffer(blob, dtype=np.float32)
            for key, blob in self._cache.get_cached_vectors(texts).items()
        }
        # Texts of similar length are embedded together, because the model pads them to one length.
        missing = sorted(
            (key for key in texts if key not in found), key=lambda key: len(texts[key])
        )
        is_bulk = self._are_many_vectors_missing and len(missing) >= BULK_TEXTS
        batch = len(missing) if is_bulk else EMBEDDING_BATCH
        while missing and self._wait_while_paused():
            keys, missing = missing[:batch], missing[batch:]
            vectors = self._get_encoder(is_bulk).embed_texts([texts[key] for key in keys])
            fresh = dict(zip(keys, vectors, strict=True))
            self._cache.store_cached_vectors(fresh)
            found.update(fresh)
            if self._should_restart():
                break
        return found

    def _wait_while_paused(self) -> bool:
        """Wait while embedding is paused; return whether to embed the next batch."""
        reason = self._get_pause_reason()
        while reason and not self._stop.is_set():
            self._write_vector_rows()
            self._report_embedding_progress(reason)
            if self._should_restart():
                return False
            self._stop.wait(PAUSE_SECONDS)
            reason = self._get_pause_reason()
        return not self._stop.is_set()


def list_texts_to_embed_for_passage(title: str, chunks: list[Chunk], position: int) -> list[str]:
    """Return the texts that make up a passage's vector: the title, the passage and its neighbours."""
    around = find_neighbours_embedded_with_chunk(chunks, position)
    return [title, chunks[position].text, *(one.text for one in around)]


def combine_title_text_and_neighbour_vectors(
    kind: str, title: Matrix, own: Matrix, around: Sequence[Matrix]
) -> Matrix:
    """Return the unit vector of a passage from the vectors of its title, its text and its neighbours.

    `kind` is the kind of the passage's entry.
    """
    import numpy as np

    vector = own
    for other in around:
        vector = vector + NEIGHBOUR_WEIGHTS[kind] * other
    vector = vector / np.linalg.norm(vector) + TITLE_WEIGHT * title
    unit: Matrix = vector / np.linalg.norm(vector)
    return unit


def make_vector_table_row_without_vector(entry: CatalogEntry, chunk: Chunk) -> VectorRow:
    """Return the row of a chunk for the vector table, without the vector."""
    return {
        "number": chunk.number,
        "hash": chunk.vector_hash or b"",
        "hidden": entry.hidden,
        "archived": entry.archived,
        "kind": entry.kind,
        "topic": entry.topic,
        "type": entry.type,
        "agent": entry.agent,
        "role": chunk.role,
        "entry": entry.id,
        "time": chunk.timestamp if chunk.timestamp else entry.changed,
        "tie": int(chunk.id, 16),
    }
