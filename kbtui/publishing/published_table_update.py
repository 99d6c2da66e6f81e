"""Updates the table of vectors of a large library when much of it is obsolete.

Readers that use the current manifest go on reading the version of the table that this manifest names.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kbtui.index.chunk_embedder import (
    combine_passage_vector,
    list_texts_of_passage_vector,
    make_vector_row,
)
from kbtui.index.entries_and_chunks import hash_embedded_text
from kbtui.index.published_vector_table import get_table_place, make_published_row_number
from kbtui.publishing.library_manifest import VectorTableVersion
from kbtui.publishing.library_store import convert_table_errors
from kbtui.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from kbtui.index.entries_and_chunks import CatalogEntry, Chunk
    from kbtui.index.vector_store import VectorRow
    from kbtui.publishing.text_embedder import TextVectorProvider

MAX_SHARE_BESIDE_TABLE = 0.05
"""The table is updated when more than this share of its rows is obsolete, or of the passages is missing.

Until then, readers fetch the vectors of the missing passages as parts. An update of the table costs more: LanceDB
indexes and joins rows, each reader fetches the ids of all rows again, and a search by URI would read rows
without an index one by one.
"""
ROWS_AT_ONCE = 20_000
"""The number of rows that are in memory at once while they are sent."""
KEEP_ALL_VERSIONS = timedelta(days=36_500)
REQUEST_TIMEOUT = timedelta(minutes=10)
"""LanceDB sends ten parts of 8 MB at once, which takes long on a slow link."""


class PassageToPublish(NamedTuple):
    """A passage for the table of vectors: its entry, all passages of the entry, and its position in them."""

    entry: CatalogEntry
    chunks: list[Chunk]
    position: int

    @property
    def number(self) -> int:
        """The number of its row in the table."""
        return make_published_row_number(int(self.chunk.id, 16))

    @property
    def chunk(self) -> Chunk:
        """The passage itself."""
        return self.chunks[self.position]

    def list_texts(self) -> list[str]:
        """Return the texts from which the passage's vector is computed."""
        return list_texts_of_passage_vector(self.entry.title, self.chunks, self.position)


class PublishedTableUpdate(NamedTuple):
    """The table version that a new manifest will use.

    `lacking` lists the passages whose vectors this version lacks.
    """

    table: VectorTableVersion
    lacking: list[PassageToPublish]


def update_published_table(
    uri: str,
    embedder: TextVectorProvider,
    passages: Iterable[PassageToPublish],
    dimension: int,
    old: VectorTableVersion | None,
    needed_versions: Sequence[int],
    now: float,
) -> PublishedTableUpdate:
    """Update the table of vectors of the library at `uri` if much of it is obsolete.

    `passages` are the passages of the new version of the library, and `dimension` is the length of
    their vectors. `old` is the version of the table in the current manifest. Readers may need the
    versions in `needed_versions`, so they are kept. `now` is the time by the store's clock. Raises
    `LibraryStoreError`.
    """
    from kbtui.index.vector_store import VectorStore

    place = get_table_place(uri)
    wanted = {passage.number: passage for passage in passages}
    with convert_table_errors(str(place)):
        store = VectorStore(
            place, embedder.model.key, dimension,
            is_published=True, request_timeout=REQUEST_TIMEOUT,
        )  # fmt: skip
        numbers, hashes = store.read_vector_hashes()
        have = dict(zip(numbers.tolist(), hashes.tolist(), strict=True))

        def is_row_current(number: int) -> bool:
            if number not in wanted or number not in have:
                return False
            # numpy leaves out zero bytes at the end.
            return bool((wanted[number].chunk.vector_hash or b"").rstrip(b"\0") == have[number])

        stale = [number for number in have if not is_row_current(number)]
        lacking = [passage for number, passage in wanted.items() if not is_row_current(number)]
        is_good = max(len(stale), len(lacking)) <= MAX_SHARE_BESIDE_TABLE * len(wanted)
        if is_good and old is not None and old.version == store.version:
            return PublishedTableUpdate(old, lacking)
        store.remove_vectors_of_chunks(stale)
        if lacking:
            store.add_vector_batches(_make_vector_rows(embedder, lacking))
        if stale or lacking:
            store.compact_vector_table(force=True, keep_versions=KEEP_ALL_VERSIONS)
            store.delete_versions_before(needed_versions)
        return PublishedTableUpdate(VectorTableVersion(store.version, dimension, now), [])


def _make_vector_rows(
    embedder: TextVectorProvider, passages: list[PassageToPublish]
) -> Iterator[tuple[list[VectorRow], np.ndarray]]:
    """Yield the rows and the vectors of passages, in batches."""
    import numpy as np

    for start in range(0, len(passages), ROWS_AT_ONCE):
        some = passages[start : start + ROWS_AT_ONCE]
        groups = [passage.list_texts() for passage in some]
        texts = {hash_embedded_text(text): text for group in groups for text in group}
        known = embedder.get_vectors(texts)
        rows, vectors = [], []
        for passage, group in zip(some, groups, strict=True):
            title, own, *around = (known[hash_embedded_text(text)] for text in group)
            vectors.append(combine_passage_vector(passage.entry.kind, title, own, around))
            row = make_vector_row(passage.entry, passage.chunk)
            row["number"] = passage.number
            rows.append(row)
        yield rows, np.vstack(vectors)
