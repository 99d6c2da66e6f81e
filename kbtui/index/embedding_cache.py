"""Caches the vector of each text for each model, so that no text is embedded twice.

There are two kinds of SQLite files. Each workspace has one with the vectors that were computed on
this machine. This file is not part of a generation, so the cache survives a rebuild of the index.
Each mirror has one with the vectors of the published library, which a pull downloads. These vectors
consist of 16-bit numbers, which halves the size of the file.

Damage would also survive a rebuild, so each row has a checksum. A row that does not match its checksum
counts as missing, and its text is embedded again. If a workspace's file cannot be read, it is deleted.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from kbtui.file_reading_and_writing import delete_database_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kbtui.index.embedding_model import Matrix

VECTORS_TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors (model TEXT, hash BLOB, vector BLOB, sum INTEGER, "
    "PRIMARY KEY (model, hash)) WITHOUT ROWID"
)
"""The table with the vectors that a pull has downloaded, in a mirror's SQLite file."""
_LOOKED_UP_HASHES = 500
"""At most this many hashes are looked up in one query."""
_Result = TypeVar("_Result")

DAMAGE_CODES = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR_SHORT_READ,
)
"""SQLite's error codes for damaged files. `SQLITE_ERROR` means that the schema is damaged."""


def _compute_vector_checksum(model: str, key: bytes, vector: bytes) -> int:
    """Return the checksum of a row: of the model's key, the hash of the text, and the vector."""
    return crc32(vector, crc32(key, crc32(model.encode())))


def _look_up_rows_by_hash(
    db: sqlite3.Connection, selection: str, model: str, hashes: Sequence[bytes]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows with these hashes. `selection` is the query up to `WHERE`."""
    for at in range(0, len(hashes), _LOOKED_UP_HASHES):
        some = hashes[at : at + _LOOKED_UP_HASHES]
        marks = ", ".join("?" * len(some))
        yield from db.execute(f"{selection} WHERE model = ? AND hash IN ({marks})", (model, *some))


def _look_up_undamaged_vectors_by_text_hash(
    db: sqlite3.Connection, table: str, model: str, hashes: Sequence[bytes]
) -> dict[bytes, bytes]:
    """Map each hash with an undamaged row to the bytes of its vector."""
    return {
        key: vector
        for key, vector, checksum in _look_up_rows_by_hash(
            db, f"SELECT hash, vector, sum FROM {table}", model, hashes
        )
        if isinstance(vector, bytes) and _compute_vector_checksum(model, key, vector) == checksum
    }


class EmbeddingCache:
    """The cached vectors of one model. Only one thread may use the cache.

    A vector that the cache lacks is looked up in `published`, the vectors of a published library. A
    published vector is not copied into the cache.
    """

    def __init__(self, path: Path, model: str, published: PulledVectorLookup | None = None) -> None:
        self._path, self.model, self._published = path, model, published
        self._retry_with_new_cache_file(self._open_embedding_cache_file)

    def _open_embedding_cache_file(self) -> None:
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS embeddings (model TEXT, hash BLOB, vector BLOB, sum INTEGER, "
            "PRIMARY KEY (model, hash)) WITHOUT ROWID"
        )

    def _retry_with_new_cache_file(self, work: Callable[[], _Result]) -> _Result:
        """Call `work`; if the cache file is damaged, create an empty one, and call `work` again."""
        try:
            return work()
        except sqlite3.DatabaseError as error:
            # A new file does not help against a full disk or a lock.
            if getattr(error, "sqlite_errorcode", None) not in DAMAGE_CODES:
                raise
        if hasattr(self, "_db"):
            self._db.close()
        delete_database_files(self._path)
        self._open_embedding_cache_file()
        return work()

    def get_cached_vectors(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        """Map each hash that has a cached vector to this vector, as bytes of float32 numbers."""
        held = list(hashes)
        found = self._retry_with_new_cache_file(
            lambda: _look_up_undamaged_vectors_by_text_hash(
                self._db, "embeddings", self.model, held
            )
        )
        if self._published is not None and len(found) < len(held):
            missing = [key for key in held if key not in found]
            found |= self._published.get_vectors(self.model, missing)
        return found

    def store_cached_vectors(self, vectors: Mapping[bytes, Matrix]) -> None:
        """Store vectors; the keys of `vectors` are the hashes of the embedded texts."""
        rows = [(self.model, key, vector.tobytes()) for key, vector in vectors.items()]
        self._retry_with_new_cache_file(lambda: self._write_cached_vectors(rows))

    def _write_cached_vectors(self, rows: list[tuple[str, bytes, bytes]]) -> None:
        with self._db:  # commits or rolls back
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?)",
                [(*row, _compute_vector_checksum(*row)) for row in rows],
            )

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        if self._published is not None:
            self._published.close()


def write_pulled_vectors_to_mirror_database(
    db: sqlite3.Connection, model: str, hashes: Iterable[bytes], vectors: Iterable[bytes]
) -> None:
    """Write vectors of 16-bit numbers to the mirror's database `db`, as part of its open transaction."""
    db.executemany(
        "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)",
        (
            (model, key, vector, _compute_vector_checksum(model, key, vector))
            for key, vector in zip(hashes, vectors, strict=True)
        ),
    )


def find_hashes_with_pulled_vector(
    db: sqlite3.Connection, model: str, hashes: Sequence[bytes]
) -> set[bytes]:
    """Return the hashes in `hashes` for which the mirror's database `db` has a vector of `model`."""
    rows = _look_up_rows_by_hash(db, "SELECT hash FROM vectors", model, hashes)
    return {row[0] for row in rows}


class PulledVectorLookup:
    """Looks up published vectors. Only one thread may use an object of this class.

    `find_database` returns the file, or None before the first pull. A file that cannot be read
    counts as empty, so that the texts are embedded on this machine.
    """

    def __init__(self, find_database: Callable[[], Path | None]) -> None:
        self._find_database = find_database
        self._db: sqlite3.Connection | None = None

    def get_vectors(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Map each hash that has a published vector to this vector, as bytes of float32 numbers."""
        import numpy as np

        try:
            if self._db is None and (path := self._find_database()) is not None:
                self._db = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=ro",
                    uri=True,
                    check_same_thread=False,
                    isolation_level=None,
                )
            if self._db is None:
                return {}
            found = _look_up_undamaged_vectors_by_text_hash(self._db, "vectors", model, hashes)
            return {
                key: np.frombuffer(vector, "<f2").astype(np.float32).tobytes()
                for key, vector in found.items()
            }
        except (sqlite3.Error, OSError, TypeError, ValueError):
            self.close()
            return {}

    def close(self) -> None:
        """Close the file. The next lookup opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None
