"""Stores vectors in LanceDB, with one table for each model. No other module imports LanceDB.

Each row contains the number and the vector of a chunk, and the values of the search filters, so that
LanceDB can apply filters before it ranks chunks. `chunk_embedder` writes rows in batches.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from kbtui.errors import IndexUnavailable
from kbtui.index.entry_and_chunk_data_types import (
    RankedChunk,
    select_best_chunks_and_best_of_further_entries,
    sort_ranked_chunks,
)
from kbtui.workspace.paths import convert_path_to_utf8, make_private_directory

# Set these variables before the import; otherwise, Lance writes a log to standard error.
os.environ.setdefault("LANCEDB_LOG", "error")
os.environ.setdefault("LANCE_LOG", "error")

import lancedb
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Literal, TypedDict

    from kbtui.index.embedding_model import Matrix

    class VectorRow(TypedDict):
        """A row of the vector table without its vector: facts about a chunk, used to filter hits."""

        number: int
        hash: bytes
        hidden: bool
        archived: bool
        kind: str
        topic: str | None
        type: str | None
        agent: str | None
        role: str | None
        entry: str
        time: float | None
        tie: int


VECTORS_VERSION = 5
"""The version of the table.

Increase it if the columns change, or if vectors are computed from other texts.
"""

EXACT_ROWS = 10_000
"""A local table with at least this many rows gets an exact index.

This index, which has one partition, makes searches three times as fast.
"""
APPROXIMATE_ROWS = 100_000
"""Tables with at least this many rows get an approximate index, because an exact one would be too slow.

The approximate index stores one bit per dimension (RaBitQ, Gao and Long, 2024), in many partitions.
A search reads some of the partitions, and finds 99 % of the rows that it should find
(docs/performance.md).
"""
PARTITION_ROWS, PROBED_PARTITIONS = 4000, 64
MIN_RERANKED = 500
"""A search with an approximate index compares the full vectors of at least this many rows."""
REINDEX_GROWTH = 4
"""The factor by which a table must have grown before its index is rebuilt with more partitions.

An index with n partitions is rebuilt when the table is large enough for n × `REINDEX_GROWTH`
partitions.
"""
# Lance never joins table fragments that different parts of the index cover, so their number only grows.
MAX_SUPPLEMENTS = 12
"""If a vector index has more than this many parts, it is rebuilt. Each compaction adds a part."""
NARROW_ROWS = 50_000
"""If at most this many rows match a filter, the search compares them one by one, without the index."""
CACHE_BYTES, METADATA_BYTES = 256 << 20, 64 << 20
"""The maximum sizes of Lance's caches in memory: one for its indexes, one for the metadata of its files."""
VERSION_MARGIN = timedelta(minutes=1)
"""Only versions that are older than the oldest needed version by more than this time are deleted.

LanceDB reads the clock later than kbtui, so without this margin, it could delete a needed version.
"""
KEEP_VERSIONS = timedelta(minutes=2)
"""Old versions of the table are kept for this time, because other threads may still be reading them."""

LEAN_WEIGHT, LEAN_CANDIDATES = 0.3, 3
"""A search by meaning adds a keyword hit's vector, times `LEAN_WEIGHT`, to the query's vector.

The keyword hit is the first of the best `LEAN_CANDIDATES` that has a vector.
"""
MAX_FRAGMENTS = 24
"""The table is compacted if it has more than this many fragments, or after more than this many writes."""
OVERFETCH = 3
"""A search for N results fetches at least `OVERFETCH` × N rows, because one entry can crowd out others."""


_Found = TypeVar("_Found")
_TEXT_COLUMNS = ("kind", "topic", "type", "agent", "role", "entry")


class VectorStore:
    """The vectors of one model. One thread writes; any thread may search."""

    def __init__(
        self,
        folder: Path | str,
        model: str,
        dimension: int,
        *,
        is_published: bool = False,
        version: int | None = None,
        request_timeout: timedelta | None = None,
    ) -> None:
        """Open or create the table of `model`, whose vectors have `dimension` floats.

        `folder` is a directory, or a URI in object storage. Credentials come from the storage's usual
        environment variables. The floats of a published table have 16 bits, those of a local one 32 bits.
        If `version` is not None, this version of an existing table is opened for reading.

        Raises `IndexUnavailable`.
        """
        self._dimension, self._is_published, self._writes = dimension, is_published, 0
        self._number_type = pa.float16() if is_published else pa.float32()
        # A search by URI reads the index only, which stays in memory. Comparing the full vectors of 500 rows
        # takes 400 more requests (docs/performance.md).
        self._reads_vectors = not isinstance(folder, str)
        self._schema = pa.schema(
            [
                pa.field("number", pa.int64()),
                pa.field("hash", pa.binary()),
                pa.field("hidden", pa.bool_()),
                pa.field("archived", pa.bool_()),
                *(pa.field(name, pa.string()) for name in _TEXT_COLUMNS),
                pa.field("time", pa.float64()),
                pa.field("tie", pa.uint64()),
                pa.field("vector", pa.list_(self._number_type, dimension)),
            ]
        )
        try:
            if isinstance(folder, str):
                place = folder
            else:
                if not is_published:
                    make_private_directory(folder)
                place = convert_path_to_utf8(folder.absolute())
            session = lancedb.Session(
                index_cache_size_bytes=CACHE_BYTES, metadata_cache_size_bytes=METADATA_BYTES
            )
            options = None
            if request_timeout is not None:
                options = {"timeout": f"{request_timeout.total_seconds():.0f}s"}
            self._db = lancedb.connect(place, session=session, storage_options=options)
            name = _make_table_name(model, is_published=is_published)
            if version is None:
                self.table = self._db.create_table(name, schema=self._schema, exist_ok=True)
            else:
                self.table = self._db.open_table(name)
                self.table.checkout(version)
            self._partitions = self._read_partition_count()
        except BaseException as error:  # LanceDB raises many types, even outside of `Exception`
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise IndexUnavailable(
                f"the vectors cannot be opened: {error}", where=str(folder)
            ) from error

    def read_vector_hashes(self) -> tuple[Any, Any]:
        """Return the chunk numbers and the vector hashes of all rows, as two arrays."""
        import numpy as np

        table = self.table.search().select(["number", "hash"]).to_arrow()
        marks = [np.array(batch["hash"].to_pylist(), dtype="S16") for batch in table.to_batches()]
        return table["number"].to_numpy(), np.concatenate([np.array([], dtype="S16"), *marks])

    @property
    def version(self) -> int:
        """The number of the current version of the table."""
        return int(self.table.version)

    def iterate_row_ids_and_hashes(
        self, column: Literal["number", "tie"]
    ) -> Iterator[tuple[int, int, bytes]]:
        """Yield LanceDB's row id, the value of `column`, and the vector hash of each row."""
        query: Any = self.table.search().select([column, "hash"]).with_row_id(True)
        for batch in query.to_arrow().to_batches():
            columns = (batch[name].to_pylist() for name in ("_rowid", column, "hash"))
            yield from zip(*columns, strict=True)

    def count_vector_rows(self, where: str | None = None) -> int:
        """Count all rows, or those that match the SQL condition `where`."""
        return int(self.table.count_rows(where))

    def add_vectors(self, rows: Sequence[Mapping[str, object]], vectors: Matrix) -> None:
        """Add rows (see `VectorRow`) to the table, with their `vectors` in the same order."""
        if rows:
            self.table.add(pa.Table.from_batches([self._make_record_batch(rows, vectors)]))
            self._writes += 1

    def add_vector_batches(self, batches: Iterable[tuple[Sequence[VectorRow], Matrix]]) -> None:
        """Add rows like `add_vectors`, but all batches in one write.

        One write makes one file. Several files would be joined later, and object storage would then
        receive all vectors again.
        """
        made = (self._make_record_batch(rows, vectors) for rows, vectors in batches)
        self.table.add(pa.RecordBatchReader.from_batches(self._schema, made))
        self._writes += 1

    def _make_record_batch(
        self, rows: Sequence[Mapping[str, object]], vectors: Matrix
    ) -> pa.RecordBatch:
        columns: dict[str, Any] = {
            name: pa.array([row[name] for row in rows], type=self._schema.field(name).type)
            for name in self._schema.names
            if name != "vector"
        }
        numbers = vectors.astype(self._number_type.to_pandas_dtype())
        flat = pa.array(numbers.reshape(-1), type=self._number_type)
        columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, self._dimension)
        return pa.RecordBatch.from_pydict(columns, schema=self._schema)

    def remove_vectors_of_chunks(self, numbers: Iterable[int]) -> None:
        """Remove the rows of the chunks with these numbers."""
        held = sorted(numbers)
        for at in range(0, len(held), 2000):
            part = ", ".join(map(str, held[at : at + 2000]))
            self.table.delete(f"number IN ({part})")
            self._writes += 1

    def remove_rows(self, row_ids: Iterable[int]) -> None:
        """Remove the rows that have these row ids in LanceDB."""
        held = sorted(row_ids)
        for at in range(0, len(held), 20_000):
            part = ",".join(map(str, held[at : at + 20_000]))
            self.table.delete(f"_rowid IN ({part})")

    def restore_table_version(self, version: int) -> None:
        """Make an earlier version of the table the current one. No row is written again."""
        table: Any = self.table
        table.restore(version)

    def search_nearest_chunks(
        self, vector: Sequence[float], where: str, limit: int
    ) -> list[tuple[int, float]]:
        """Return the numbers of the nearest chunks and their cosine similarities, best first.

        See `find_nearest_ranked_chunks`.
        """
        ranked = self.find_nearest_ranked_chunks(vector, where, limit)
        return [(row.number, row.score) for row in ranked]

    def find_nearest_ranked_chunks(
        self, vector: Sequence[float], where: str, limit: int
    ) -> list[RankedChunk]:
        """Return the nearest chunks, best first.

        Equal similarities are sorted by chunk id. `where` is a condition from
        `make_vector_filter_sql`. If the nearest `limit` chunks belong to few entries, the nearest chunks
        of other entries follow (see `select_best_chunks_and_best_of_further_entries`).
        """
        found, is_cut = self._find_enough_rows(
            where, limit,
            lambda wanted, probed: self.find_nearest_vector_rows(vector, where, wanted, probed),
        )  # fmt: skip
        return select_best_chunks_and_best_of_further_entries(
            sort_ranked_chunks(found, least=1.0, cut=is_cut), limit
        )

    def find_nearest_row_ids(
        self, vector: Sequence[float], where: str, limit: int
    ) -> tuple[list[tuple[int, float]], bool]:
        """Return the nearest rows as pairs of LanceDB's row id and the similarity, and whether the limit cut the list.

        If there is an approximate index, and each column in `where` has an index, LanceDB reads only
        indexes, which stay in memory. The list can be longer than `limit`, so that the caller can leave out
        rows.
        """

        def find_nearest_rows(wanted: int, probed: int) -> list[tuple[int, float]]:
            query = self._make_nearest_rows_query(vector, where, probed).select(["_distance"])
            table = query.with_row_id(True).limit(wanted).to_arrow()
            ids, distances = (table[name].to_pylist() for name in ("_rowid", "_distance"))
            return [(id_, 1.0 - distance) for id_, distance in zip(ids, distances, strict=True)]

        return self._find_enough_rows(where, limit, find_nearest_rows)

    def _find_enough_rows(
        self, where: str, limit: int, find_nearest_rows: Callable[[int, int], list[_Found]]
    ) -> tuple[list[_Found], bool]:
        """Return what `find_nearest_rows(wanted, probed)` finds, and whether it stopped at `wanted` rows."""
        wanted, probed = limit * OVERFETCH, min(self._partitions, PROBED_PARTITIONS)
        if self._partitions > 1 and self._reads_vectors:
            wanted = max(wanted, MIN_RERANKED)
            if where not in _WIDE_FILTERS and self.count_vector_rows(where) <= NARROW_ROWS:
                probed = 0
        found = find_nearest_rows(wanted, probed)
        if len(found) < wanted and 0 < probed < self._partitions:
            # The filter left too few rows in these partitions, so search all of them. Lance's own
            # option for such filters would search all partitions every time.
            found = find_nearest_rows(wanted, self._partitions)
        return found, len(found) == wanted

    def find_nearest_vector_rows(
        self, vector: Sequence[float], where: str, wanted: int, probed: int
    ) -> list[RankedChunk]:
        """Return the rows whose vectors are nearest to `vector`, at most `wanted` of them.

        `where` is a filter in SQL. The search reads `probed` partitions of the index. If `probed` is 0,
        it reads the whole table without the index.
        """
        query = self._make_nearest_rows_query(vector, where, probed)
        rows = query.select(["number", "entry", "tie", "_distance"]).limit(wanted).to_list()
        return [
            RankedChunk(row["number"], 1.0 - row["_distance"], row["entry"], row["tie"])
            for row in rows
        ]

    def _make_nearest_rows_query(self, vector: Sequence[float], where: str, probed: int) -> Any:
        query: Any = self.table.search(list(vector), vector_column_name="vector")
        query = query.distance_type("cosine")
        if probed:
            query = query.minimum_nprobes(probed).maximum_nprobes(probed)
            if self._partitions > 1 and self._reads_vectors:
                query = query.refine_factor(1)
        elif self._partitions:
            query = query.bypass_vector_index()
        return query.where(where, prefilter=True) if where else query

    def get_vector_of_first_given_chunk_with_vector(
        self, numbers: Sequence[int]
    ) -> list[float] | None:
        """Return the vector of the first chunk in `numbers` that has a vector, or None."""
        if not numbers:
            return None
        query: Any = self.table.search().where(f"number IN ({', '.join(map(str, numbers))})")
        rows = query.select(["number", "vector"]).limit(len(numbers)).to_list()
        held = {row["number"]: row["vector"] for row in rows}
        return next((list(held[number]) for number in numbers if number in held), None)

    def select_chunks_without_vector(self, numbers: Sequence[int]) -> list[int]:
        """Return the chunk numbers in `numbers` whose chunks have no vector."""
        if not numbers:
            return []
        query: Any = self.table.search().where(f"number IN ({', '.join(map(str, numbers))})")
        rows = query.select(["number"]).limit(len(numbers)).to_list()
        found = {row["number"] for row in rows}
        return [number for number in numbers if number not in found]

    def reload(self) -> None:
        """Load the changes that other processes have written since the table was opened or last reloaded."""
        table: Any = self.table
        table.checkout_latest()

    def compact_vector_table(
        self, *, force: bool = False, keep_versions: timedelta = KEEP_VERSIONS
    ) -> None:
        """Join fragments, delete versions older than `keep_versions` and, if the table is large, build its index.

        The table is compacted if it has more than `MAX_FRAGMENTS` fragments, if there were more than
        `MAX_FRAGMENTS` writes since the last compaction, or if `force` is true.
        """
        stats: Any = self.table.stats()
        fragments = stats["fragment_stats"]["num_fragments"]
        if not force and fragments <= MAX_FRAGMENTS and self._writes <= MAX_FRAGMENTS:
            return
        rows = self.count_vector_rows()
        # An exact index contains the vectors, so a reader would fetch all of them.
        is_exact = rows < APPROXIMATE_ROWS and not self._is_published
        wanted = 1 if is_exact else max(2, rows // PARTITION_ROWS)
        grown = wanted >= max(2, self._partitions * REINDEX_GROWTH)
        if rows >= EXACT_ROWS and (not self._partitions or grown):
            self._build_vector_index(wanted)
        elif self._partitions:
            index = self.table.index_stats(f"{_INDEX_PREFIX}{self._partitions}")
            if index and (index.num_indices or 0) > MAX_SUPPLEMENTS:
                self._build_vector_index(self._partitions)
        self.table.optimize(cleanup_older_than=keep_versions)
        self._writes = 0

    def compute_age_of_oldest_given_version(self, versions: Iterable[int]) -> timedelta:
        """Return the age of the oldest of the given versions of the table, plus `VERSION_MARGIN`.

        LanceDB deletes versions by age, according to the clocks of the machines that wrote them. If a
        clock is wrong by less than `VERSION_MARGIN`, extra versions may be kept, but none of the given
        versions is deleted.
        """
        table: Any = self.table
        needed = set(versions)
        oldest: datetime = min(
            version["timestamp"].astimezone(UTC)
            for version in table.list_versions()
            if version["version"] in needed
        )
        return max(timedelta(), datetime.now(UTC) - oldest) + VERSION_MARGIN

    def _build_vector_index(self, partitions: int) -> None:
        """Build a vector index with this number of partitions. It replaces the existing index."""
        from lancedb.index import Bitmap, BTree, IvfFlat, IvfRq

        was_approximate = self._partitions > 1
        name = f"{_INDEX_PREFIX}{partitions}"
        # `IvfRq` stores one bit per dimension, and needs whole bytes.
        form = IvfRq if partitions > 1 and self._dimension % 8 == 0 else IvfFlat
        self.table.create_index(
            "vector",
            config=form(distance_type="cosine", num_partitions=partitions),
            name=name,
            replace=True,
        )
        self._partitions = partitions
        for index in self.table.list_indices():
            if index.columns == ["vector"] and index.name != name:
                self.table.drop_index(index.name)
        if partitions > 1 and not was_approximate:
            # These indexes serve the most common filters, and look-ups of single chunks.
            for column in ("hidden", "archived"):
                self.table.create_index(column, config=Bitmap())
            for column in ("number", "entry"):
                self.table.create_index(column, config=BTree())

    def _read_partition_count(self) -> int:
        """Return the number of partitions of the vector index, read from its name; 0 if there is no index."""
        names = (index.name for index in self.table.list_indices())
        counts = [
            int(name.removeprefix(_INDEX_PREFIX))
            for name in names
            if name.startswith(_INDEX_PREFIX)
        ]
        return max(counts, default=0)


def has_vectors_of_model(folder: Path, model: str) -> bool:
    """Return whether there is a table with a model's vectors.

    If so, opening the folder with `VectorStore` writes nothing.
    """
    return (folder / f"{_make_table_name(model)}.lance").is_dir()


def _make_table_name(model: str, *, is_published: bool = False) -> str:
    return f"{'published' if is_published else 'chunks'}_{VECTORS_VERSION}_{model}"


def remove_vector_directory(folder: Path) -> None:
    """Remove a directory of vectors."""
    shutil.rmtree(folder, ignore_errors=True)


def move_vector_towards(vector: list[float], goal: list[float] | None) -> list[float]:
    """Return `vector + LEAN_WEIGHT * goal`, or `vector` if `goal` is None (see docs/search-quality.md)."""
    if goal is None:
        return vector
    return [mine + LEAN_WEIGHT * other for mine, other in zip(vector, goal, strict=True)]


def make_vector_filter_sql(
    *,
    hidden: bool = False,
    archived: bool = False,
    kinds: Sequence[str] = (),
    topics: Sequence[str] = (),
    types: Sequence[str] = (),
    agents: Sequence[str] = (),
    roles: Sequence[str] = (),
    since: float | None = None,
    until: float | None = None,
    exclude: str | None = None,
    entries: Sequence[str] = (),
    chunks: Sequence[int] = (),
) -> str:
    """Return a search's filters as a condition in LanceDB's SQL, with every value quoted."""
    parts = [] if hidden else ["hidden = false"]
    parts += [] if archived else ["archived = false"]
    columns = {
        "kind": kinds,
        "topic": topics,
        "type": types,
        "agent": agents,
        "role": roles,
        "entry": entries,
    }
    for column, values in columns.items():
        if values:
            parts.append(f"{column} IN ({', '.join(map(_quote_sql_value, values))})")
    if chunks:
        parts.append(f"number IN ({', '.join(map(str, map(int, chunks)))})")
    if since is not None:
        parts.append(f"time >= {float(since)!r}")
    if until is not None:
        parts.append(f"time < {float(until)!r}")
    if exclude:
        parts.append(f"entry <> {_quote_sql_value(exclude)}")
    return " AND ".join(parts)


def _quote_sql_value(value: str) -> str:
    return "'" + value.replace("'", "''").replace("\0", "") + "'"


_INDEX_PREFIX = "near_"
_WIDE_FILTERS = {
    "",
    make_vector_filter_sql(),
    make_vector_filter_sql(hidden=True),
    make_vector_filter_sql(archived=True),
}
"""Filters that match nearly all rows, so that the matching rows need not be counted."""
