"""The vectors: LanceDB, one table a model. The only module that knows LanceDB.

A row is a chunk's number with its vector and the columns that questions narrow
by, so that a filter works before ranking. Rows follow the
catalog (`lacking` says what differs), and writing is in batches.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kbtui.errors import IndexUnavailable
from kbtui.index.models import RankedChunk, sort_ranked_chunks
from kbtui.workspace.paths import as_utf8, make_private

# Lance writes its log to file descriptor 2 unless told before it is imported.
os.environ.setdefault("LANCEDB_LOG", "error")
os.environ.setdefault("LANCE_LOG", "error")

import lancedb
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kbtui.index.embedding_model import Matrix

VECTORS_VERSION = 3
"""Part of the table's name: change it with the columns or the way vectors are put together."""

EXACT_ROWS = 10_000
"""From here an index of one partition, always probed, pays: exact, and three times as fast
(design, "Processes")."""
APPROXIMATE_ROWS = 100_000
"""From here the exact index takes longer than a question should. One of many partitions, of which
some are probed, with a bit a dimension (RaBitQ), whose best are ranked by their whole vectors, finds
.99 of the same (docs/performance.md)."""
PARTITION_ROWS, PROBED_PARTITIONS = 4000, 64
MIN_RERANKED = 500
"""So many at least are ranked by their whole vectors: a bit a dimension only says which may be near."""
REINDEX_GROWTH = 4
"""An index is made anew when the table has grown so many times."""
MAX_SUPPLEMENTS = 12
"""Each time that the table is tidied, new rows get a small index of their own, and rows of different
indexes are never joined into one fragment: after so many, one index is made of all."""
NARROW_ROWS = 50_000
"""When a filter leaves no more, these are ranked exactly: their neighbours may be in any partition."""
CACHE_BYTES, METADATA_BYTES = 256 << 20, 64 << 20
"""What Lance may keep in memory of its index, and of what it knows about its files."""
KEEP_VERSIONS = timedelta(minutes=2)
"""Old versions are kept so long, for whoever still reads them: threads of this process."""

LEAN_WEIGHT, LEAN_CANDIDATES = 0.3, 3
MAX_FRAGMENTS = 24
OVERFETCH = 5
"""How many times the limit is looked at before an entry's surplus chunks are left out."""


class VectorStore:
    """The vectors of one model. Written by one thread; searched by others through `search`."""

    def __init__(
        self, folder: Path, model: str, dimension: int, *, kept: timedelta = KEEP_VERSIONS
    ) -> None:
        """Open, or make, the table of `model` with vectors of `dimension` floats.

        Raises `IndexUnavailable` when it cannot be opened.
        """
        self._dimension, self._kept, self._writes = dimension, kept, 0
        schema = pa.schema(
            [
                pa.field("number", pa.int64()),
                pa.field("hash", pa.binary()),
                pa.field("hidden", pa.bool_()),
                pa.field("archived", pa.bool_()),
                *[
                    pa.field(name, pa.string())
                    for name in ("kind", "topic", "type", "role", "entry")
                ],
                pa.field("time", pa.float64()),
                pa.field("tie", pa.uint64()),
                pa.field("vector", pa.list_(pa.float32(), dimension)),
            ]
        )
        self._schema = schema
        try:
            make_private(folder)
            session = lancedb.Session(
                index_cache_size_bytes=CACHE_BYTES, metadata_cache_size_bytes=METADATA_BYTES
            )
            self._db = lancedb.connect(as_utf8(folder.absolute()), session=session)
            self._table = self._db.create_table(
                f"chunks_{VECTORS_VERSION}_{model}", schema=schema, exist_ok=True
            )
            self._partitions = self._find_partition_count()
        except BaseException as error:  # many kinds, and panics, which derive from no `Exception`
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise IndexUnavailable(
                f"the vectors cannot be opened: {error}", where=str(folder)
            ) from error

    def read_hashes(self) -> tuple[Any, Any]:
        """Number and hash of every row, as two arrays."""
        import numpy as np

        table = self._table.search().select(["number", "hash"]).to_arrow()
        marks = [np.array(batch["hash"].to_pylist(), dtype="S16") for batch in table.to_batches()]
        return table["number"].to_numpy(), np.concatenate([np.array([], dtype="S16"), *marks])

    def count_rows(self, where: str | None = None) -> int:
        """How many rows there are, or how many a filter leaves."""
        return int(self._table.count_rows(where))

    def add_rows(self, rows: Sequence[dict[str, Any]], vectors: Matrix) -> None:
        """Add chunks; `rows` have the table's columns but the vector."""
        if not rows:
            return
        columns: dict[str, Any] = {
            name: pa.array([row[name] for row in rows], type=self._schema.field(name).type)
            for name in self._schema.names
            if name != "vector"
        }
        flat = pa.array(vectors.astype("float32").reshape(-1), type=pa.float32())
        columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, self._dimension)
        self._table.add(pa.table(columns, schema=self._schema))
        self._writes += 1

    def remove_rows(self, numbers: Iterable[int]) -> None:
        """Take chunks out."""
        held = sorted(numbers)
        for at in range(0, len(held), 2000):
            part = ", ".join(str(int(number)) for number in held[at : at + 2000])
            self._table.delete(f"number IN ({part})")
            self._writes += 1

    def search(
        self, vector: Sequence[float], where: str, limit: int, per_entry: int
    ) -> list[tuple[int, float]]:
        """The nearest chunks with their cosine similarity, best first; ties by chunk id.

        At most `per_entry` chunks of one entry, so that a long one does not fill the leg.
        """
        wanted, probed = limit * OVERFETCH, min(self._partitions, PROBED_PARTITIONS)
        if self._partitions > 1:
            wanted = max(wanted, MIN_RERANKED)
        if self._partitions > 1 and where not in _WIDE_FILTERS and self._is_narrow(where):
            probed = 0
        found = self._find_nearest(vector, where, wanted, probed)
        if len(found) < wanted and 0 < probed < self._partitions:
            # The filter left too few in these. Lance could be told to go on by itself, but then
            # it always looks into all of them.
            found = self._find_nearest(vector, where, wanted, self._partitions)
        seen: Counter[object] = Counter()
        kept = []
        for row in sort_ranked_chunks(found, least=1.0, cut=len(found) == wanted):
            seen[row.owner] += 1
            if seen[row.owner] <= per_entry:
                kept.append((row.number, row.score))
        return kept[:limit]

    def _find_nearest(
        self, vector: Sequence[float], where: str, wanted: int, probed: int
    ) -> list[RankedChunk]:
        """The nearest rows in so many partitions of the index; 0 for exact search without it."""
        query: Any = self._table.search(list(vector), vector_column_name="vector")
        query = query.distance_type("cosine")
        if probed:
            query = query.minimum_nprobes(probed).maximum_nprobes(probed)
            if self._partitions > 1:
                query = query.refine_factor(1)
        elif self._partitions:
            query = query.bypass_vector_index()
        if where:
            query = query.where(where, prefilter=True)
        rows = query.select(["number", "entry", "tie", "_distance"]).limit(wanted).to_list()
        return [
            RankedChunk(row["number"], 1.0 - row["_distance"], row["entry"], row["tie"])
            for row in rows
        ]

    def get_vector(self, numbers: Sequence[int]) -> list[float] | None:
        """The vector of the first of these chunks that has one."""
        if not numbers:
            return None
        wanted = ", ".join(str(int(number)) for number in numbers)
        query: Any = self._table.search().where(f"number IN ({wanted})")
        rows = query.select(["number", "vector"]).limit(len(numbers)).to_list()
        held = {row["number"]: row["vector"] for row in rows}
        return next((list(held[number]) for number in numbers if number in held), None)

    def _is_narrow(self, where: str) -> bool:
        return self.count_rows(where) <= NARROW_ROWS

    def compact(self, *, force: bool = False) -> None:
        """Keep the table compact: join fragments, drop old versions, index what is large."""
        stats: Any = self._table.stats()
        fragments = stats["fragment_stats"]["num_fragments"]
        if not force and fragments <= MAX_FRAGMENTS and self._writes <= MAX_FRAGMENTS:
            return
        rows = self.count_rows()
        wanted = 1 if rows < APPROXIMATE_ROWS else rows // PARTITION_ROWS
        grown = wanted >= max(2, self._partitions * REINDEX_GROWTH)
        if rows >= EXACT_ROWS and (not self._partitions or grown):
            self._build_vector_index(wanted)
        elif self._partitions and self._count_supplements() > MAX_SUPPLEMENTS:
            self._build_vector_index(self._partitions)
        self._table.optimize(cleanup_older_than=self._kept)
        self._writes = 0

    def _build_vector_index(self, partitions: int) -> None:
        from lancedb.index import Bitmap, BTree, IvfFlat, IvfRq

        old = self._find_partition_count()
        # A bit a dimension comes in whole bytes.
        form = IvfRq if partitions > 1 and self._dimension % 8 == 0 else IvfFlat
        self._table.create_index(
            "vector",
            config=form(distance_type="cosine", num_partitions=partitions),
            name=f"{_INDEX_PREFIX}{partitions}",
            replace=True,
        )
        self._partitions = partitions
        for index in self._table.list_indices():
            if index.columns == ["vector"] and index.name != f"{_INDEX_PREFIX}{partitions}":
                self._table.drop_index(index.name)
        if partitions > 1 and not old > 1:
            # What most questions narrow by, and what single chunks are found by.
            for column in ("hidden", "archived"):
                self._table.create_index(column, config=Bitmap())
            for column in ("number", "entry"):
                self._table.create_index(column, config=BTree())

    def _count_supplements(self) -> int:
        stats = self._table.index_stats(f"{_INDEX_PREFIX}{self._partitions}")
        return int(stats.num_indices or 0) if stats else 0

    def _find_partition_count(self) -> int:
        """How many partitions the index has, 0 where there is none; its name says so."""
        names = [index.name for index in self._table.list_indices()]
        found = [
            name.removeprefix(_INDEX_PREFIX) for name in names if name.startswith(_INDEX_PREFIX)
        ]
        return max((int(one) for one in found if one.isdigit()), default=0)


def remove_vectors(folder: Path) -> None:
    """Remove a directory of vectors, which are made again."""
    shutil.rmtree(folder, ignore_errors=True)


def shift_towards(vector: list[float], towards: list[float] | None) -> list[float]:
    """A question's vector, moved by `LEAN` towards another (docs/search-quality.md)."""
    if towards is None:
        return vector
    return [mine + LEAN_WEIGHT * other for mine, other in zip(vector, towards, strict=True)]


def make_filter_sql(
    *,
    hidden: bool = False,
    archived: bool | None = False,
    kinds: Sequence[str] = (),
    topics: Sequence[str] = (),
    types: Sequence[str] = (),
    roles: Sequence[str] = (),
    since: float | None = None,
    until: float | None = None,
    exclude: str | None = None,
    entries: Sequence[str] = (),
) -> str:
    """The filter of a question in LanceDB's SQL; every value is quoted."""
    parts = []
    if not hidden:
        parts.append("hidden = false")
    if not archived:
        parts.append("archived = false")
    columns = {"kind": kinds, "topic": topics, "type": types, "role": roles, "entry": entries}
    for column, values in columns.items():
        if values:
            parts.append(f"{column} IN ({', '.join(_quote_sql(value) for value in values)})")
    if since is not None:
        parts.append(f"time >= {float(since)!r}")
    if until is not None:
        parts.append(f"time < {float(until)!r}")
    if exclude:
        parts.append(f"entry <> {_quote_sql(exclude)}")
    return " AND ".join(parts)


def _quote_sql(value: str) -> str:
    return "'" + value.replace("'", "''").replace("\0", "") + "'"


_INDEX_PREFIX = "near_"
_WIDE_FILTERS = {
    "",
    make_filter_sql(),
    make_filter_sql(hidden=True),
    make_filter_sql(archived=True),
}
"""Filters that leave nearly everything."""
