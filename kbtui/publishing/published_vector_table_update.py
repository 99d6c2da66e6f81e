"""Updates a large library's published table when the table lacks many passages or has many obsolete rows.

Readers of the current manifest continue to read the table version that this manifest refers to.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kbtui.index.chunk_embedder import (
    combine_title_text_and_neighbour_vectors,
    list_texts_to_embed_for_passage,
    make_vector_table_row_without_vector,
)
from kbtui.index.entry_and_chunk_data_types import hash_embedded_text
from kbtui.index.published_vector_table_search import (
    get_published_table_path_or_uri,
    make_row_number_from_chunk_tie,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.publishing.published_library_format import VectorTableVersion
from kbtui.publishing.published_library_store import convert_table_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
    from kbtui.index.vector_store import VectorRow, VectorStore
    from kbtui.publishing.caching_text_embedder import CachingTextEmbedder

MAX_PASSAGES_MISSING_FROM_TABLE = 100_000
"""If the table lacks more than this many passages, it is updated.

Until then, readers fetch the vectors of the missing passages as parts: 77 MB for 100,000 passages.
Writing the vectors into the table means sending them once more. Therefore, if a library has at most
this many passages, its table is empty, and all readers mirror the vectors.
"""
MAX_OBSOLETE_SHARE = 0.5
"""If more than this share of its rows is obsolete, the table is updated, too.

A search by URI drops obsolete rows from its results.
"""
ROWS_AT_ONCE = 20_000
"""Rows are sent in batches of this size, so that only one batch is in memory at once."""
REQUEST_TIMEOUT = timedelta(minutes=10)
"""The time limit of a request to the store.

LanceDB sends ten parts of 8 MB at once, which takes a long time on a slow link.
"""


class PassageToPublish(NamedTuple):
    """A passage for the published table: its entry, all the entry's passages, and its position among them."""

    entry: CatalogEntry
    chunks: list[Chunk]
    position: int

    @property
    def number_in_published_table(self) -> int:
        """The value of the table's column `number` for this passage."""
        return make_row_number_from_chunk_tie(int(self.chunk.id, 16))

    @property
    def chunk(self) -> Chunk:
        """The passage itself."""
        return self.chunks[self.position]

    def list_embedded_texts(self) -> list[str]:
        """Return the texts from which the passage's vector is computed."""
        return list_texts_to_embed_for_passage(self.entry.title, self.chunks, self.position)


class UpdatedPublishedVectorTable(NamedTuple):
    """The table version that a new manifest will use.

    `lacking` lists the passages whose vectors this version lacks.
    """

    table: VectorTableVersion
    lacking: list[PassageToPublish]


def update_vector_table_in_store(
    uri: str,
    embedder: CachingTextEmbedder,
    passages: Iterable[PassageToPublish],
    dimension: int,
    old: VectorTableVersion | None,
    needed_versions: Sequence[int],
    now: float,
) -> UpdatedPublishedVectorTable:
    """Update the published table of the library at `uri` if the table lacks many passages or has many obsolete rows.

    `passages` are the passages of the new version of the library, and `dimension` is the length of
    their vectors. `old` is the version of the table in the current manifest. Readers may need the
    versions in `needed_versions`, so they are kept. `now` is the time by the store's clock. Raises
    `LibraryStoreError`.
    """
    from kbtui.index.vector_store import VectorStore

    place = get_published_table_path_or_uri(uri)
    wanted = {passage.number_in_published_table: passage for passage in passages}
    with convert_table_errors(str(place)):
        store = VectorStore(
            place, embedder.model.key, dimension,
            is_published=True, request_timeout=REQUEST_TIMEOUT,
        )  # fmt: skip
        current, obsolete = _find_current_and_obsolete_rows(store, wanted)
        lacking = _list_passages_without_row(wanted, current)
        rows = len(current) + len(obsolete)
        is_good = (
            len(lacking) <= MAX_PASSAGES_MISSING_FROM_TABLE
            and len(obsolete) <= MAX_OBSOLETE_SHARE * rows
        )
        is_known = old is not None and old.version == store.version
        if is_good and old is not None and is_known:
            return UpdatedPublishedVectorTable(old, lacking)
        if is_good and not rows:
            version = store.version
            return UpdatedPublishedVectorTable(
                VectorTableVersion(version, dimension, now, whole_version=version), lacking
            )
        if old is not None and is_known and old.whole_version != old.version:
            store.restore_table_version(old.whole_version)
            current, obsolete = _find_current_and_obsolete_rows(store, wanted)
        if len(obsolete) > MAX_OBSOLETE_SHARE * (len(current) + len(obsolete)):
            # LanceDB now writes the remaining rows into new files.
            store.remove_rows(obsolete)
        if lacking := _list_passages_without_row(wanted, current):
            store.add_vector_batches(_make_vector_rows(embedder, lacking))
        versions = [*needed_versions, store.version]
        store.compact_vector_table(
            force=True, keep_versions=store.compute_age_of_oldest_given_version(versions)
        )
        whole_version = store.version
        store.remove_rows(_find_current_and_obsolete_rows(store, wanted)[1])
        return UpdatedPublishedVectorTable(
            VectorTableVersion(store.version, dimension, now, whole_version=whole_version), []
        )


def _find_current_and_obsolete_rows(
    store: VectorStore, wanted: dict[int, PassageToPublish]
) -> tuple[set[int], list[int]]:
    """Return the numbers of the passages whose current vector is in the table, and the ids of all other rows."""
    current, obsolete = set[int](), []
    for row_id, number, hash_ in store.iterate_row_ids_and_hashes("number"):
        passage = wanted.get(number)
        if passage and (passage.chunk.vector_hash or b"") == hash_:
            current.add(number)
        else:
            obsolete.append(row_id)
    return current, obsolete


def _list_passages_without_row(
    wanted: dict[int, PassageToPublish], current: set[int]
) -> list[PassageToPublish]:
    return [passage for number, passage in wanted.items() if number not in current]


def _make_vector_rows(
    embedder: CachingTextEmbedder, passages: list[PassageToPublish]
) -> Iterator[tuple[list[VectorRow], np.ndarray]]:
    """Yield the rows and the vectors of passages, in batches."""
    import numpy as np

    for start in range(0, len(passages), ROWS_AT_ONCE):
        some = passages[start : start + ROWS_AT_ONCE]
        groups = [passage.list_embedded_texts() for passage in some]
        texts = {hash_embedded_text(text): text for group in groups for text in group}
        known = embedder.embed_texts_by_hash(texts)
        rows, vectors = [], []
        for passage, group in zip(some, groups, strict=True):
            title, own, *around = (known[hash_embedded_text(text)] for text in group)
            vectors.append(
                combine_title_text_and_neighbour_vectors(passage.entry.kind, title, own, around)
            )
            row = make_vector_table_row_without_vector(passage.entry, passage.chunk)
            row["number"] = passage.number_in_published_table
            rows.append(row)
        yield rows, np.vstack(vectors)
