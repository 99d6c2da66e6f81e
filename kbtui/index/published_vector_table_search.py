"""The vectors of a large published library, which stay in object storage and are queried there.

A row of the published table contains the id of a chunk, and a hash of the texts from which the
chunk's vector was made. If a chunk on this machine has the same id and hash, no vector is stored
here. All other chunks are embedded here. A search merges the rankings by published and by local
vectors. Texts come only from verified parts, so a table that someone has tampered with could change
the order of hits, but not their texts.
"""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.entry_and_chunk_data_types import (
    RankedChunk,
    select_best_chunks_and_best_of_further_entries,
    sort_ranked_chunks,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.published_library_settings import is_library_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.index.vector_store import VectorStore
    from kbtui.workspace.published_library_settings import PublishedLibraryMirrorPaths

TABLE_DIRECTORY = "vectors"
"""The directory of the table of vectors, relative to the URI of the library."""
PUBLISHED_ROWS_TABLE = (
    "CREATE TABLE IF NOT EXISTS published_rows "
    "(row INTEGER PRIMARY KEY, id TEXT NOT NULL, hash BLOB NOT NULL)"
)
"""The SQL that creates a table in the mirror's database.

Its columns are LanceDB's row id, the chunk id and the vector hash of each published row.
"""


class PublishedVectorTableLocation(NamedTuple):
    """A version of a published table of vectors: where it is, its model, and the length of its vectors.

    `written_at` is the time at which the version was written, by the store's clock. `database` is the
    mirror's database, which contains the table `published_rows`.
    """

    place: Path | str
    version: int
    written_at: float
    model: str
    dimension: int
    database: Path

    @property
    def table_version_id(self) -> str:
        """An id of this version.

        If the state `published_rows` of the mirror's database has this value, the database contains the
        rows of this version.
        """
        return make_table_version_id(self.model, self.version, self.written_at)


def make_table_version_id(model: str | None, version: int, written_at: float) -> str:
    """Return the string that identifies a version of a published table in the mirror's database."""
    return json.dumps([model, version, written_at])


def find_published_vector_table_of_mirror(
    mirror: PublishedLibraryMirrorPaths,
) -> PublishedVectorTableLocation | None:
    """Return the published table that a mirror uses, or None if the mirror itself contains all vectors."""
    facts = mirror.read_mirror_facts().get("remote_vectors")
    if not isinstance(facts, dict):
        return None
    place = get_published_table_path_or_uri(mirror.uri)
    return PublishedVectorTableLocation(
        place,
        int(facts["version"]),
        float(facts["written_at"]),
        str(facts["model"]),
        int(facts["dimension"]),
        mirror.database,
    )


def get_published_table_path_or_uri(uri: str) -> Path | str:
    """Return the directory or the URI of a library's table of vectors, for `VectorStore`."""
    return f"{uri}/{TABLE_DIRECTORY}" if is_library_uri(uri) else Path(uri, TABLE_DIRECTORY)


def make_row_number_from_chunk_tie(tie: int) -> int:
    """Return the 63-bit number of a chunk's row in a published table; `tie` is the chunk id as a number."""
    return tie >> 1


class PublishedVectorTableSearcher:
    """Searches a published table for one index generation.

    Any thread may search, but only one thread may call `update_coverage_and_list_uncovered_chunks`.
    """

    def __init__(self, table: PublishedVectorTableLocation, folder: Path) -> None:
        self.table = table
        self._catalog_path = folder / "catalog.sqlite"
        self._covered: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self._store: VectorStore | None = None

    def update_coverage_and_list_uncovered_chunks(
        self, catalog: CatalogDatabase, missing: dict[str, set[int]]
    ) -> dict[str, set[int]]:
        """Return the chunks in `missing` that have no published vector.

        From now on, searches of this table find only the other chunks in `missing`. `missing` and
        the result map entry ids to the numbers of chunks that have no local vector.
        """
        covered = set[int]()
        for number, entry_id in catalog.list_chunks_with_published_vector(self.table.database):
            if number in missing.get(entry_id, ()):
                covered.add(number)
        self._covered = frozenset(covered)
        left = {name: numbers - covered for name, numbers in missing.items()}
        return {name: numbers for name, numbers in left.items() if numbers}

    def search_nearest_chunks(
        self, vector: Sequence[float], where: str, limit: int
    ) -> list[tuple[int, float]]:
        """Return the chunks of this index with the nearest published vectors, as `(number, similarity)`, best first.

        Raises `IndexUnavailable`, or an error of LanceDB if the store cannot be reached.
        """
        if not self._covered:
            return []
        # Other columns would be read from the store for each query: 12 MB for a million rows.
        found, is_cut = self._open_published_vector_store().find_nearest_row_ids(
            vector, where, limit
        )
        scores = dict(found)
        with closing(CatalogDatabase(self._catalog_path)) as catalog:
            chunks = catalog.list_chunks_of_published_rows(
                self.table.database, self.table.table_version_id, scores
            )
        ranked = [
            RankedChunk(number, scores[row], entry_id, int(id_, 16))
            for row, number, entry_id, id_ in chunks
            if number in self._covered
        ]
        best = select_best_chunks_and_best_of_further_entries(
            sort_ranked_chunks(ranked, least=1.0, cut=is_cut), limit
        )
        return [(chunk.number, chunk.score) for chunk in best]

    def _open_published_vector_store(self) -> VectorStore:
        from kbtui.index.vector_store import VectorStore

        with self._lock:
            if self._store is None:
                table = self.table
                self._store = VectorStore(
                    table.place, table.model, table.dimension,
                    is_published=True, version=table.version,
                )  # fmt: skip
            return self._store


def join_disjoint_rankings(
    first: list[tuple[int, float]], second: list[tuple[int, float]]
) -> list[tuple[int, float]]:
    """Join two rankings, which have no chunk in common, and sort the result by similarity, best first."""
    return sorted([*first, *second], key=lambda row: -row[1])
