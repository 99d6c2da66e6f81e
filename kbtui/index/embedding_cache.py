"""Caches the vector of each text for each model, so that no text is embedded twice.

Each workspace has one SQLite file. This file is not part of a generation, so the cache survives a
rebuild of the index. Damage would also survive a rebuild. Therefore each row has a checksum. A row
that does not match its checksum counts as missing. A file that cannot be read is deleted.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, TypeVar

from kbtui.index.pulled_vector_store import compute_vector_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kbtui.index.embedding_model import Matrix
    from kbtui.index.pulled_vector_store import PulledVectorStore


_Result = TypeVar("_Result")

DAMAGE_CODES = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR_SHORT_READ,
)
"""SQLite's error codes for damaged files. `SQLITE_ERROR` means that the schema is damaged."""


class EmbeddingCache:
    """The cached vectors of one model. Only one thread may use the cache.

    A vector that the cache lacks is looked up in `published`, the vectors of a published library. A
    published vector is not copied into the cache.
    """

    def __init__(self, path: Path, model: str, published: PulledVectorStore | None = None) -> None:
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
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        self._open_embedding_cache_file()
        return work()

    def get_cached_vectors(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        """Map each hash that has a cached vector to this vector, as bytes of float32 numbers."""
        held = list(hashes)
        found = self._retry_with_new_cache_file(lambda: self._read_cached_vectors(held))
        if self._published is not None and len(found) < len(held):
            missing = [key for key in held if key not in found]
            found |= self._published.get_vectors(self.model, missing)
        return found

    def _read_cached_vectors(self, hashes: list[bytes]) -> dict[bytes, bytes]:
        marks = ", ".join("?" * len(hashes))
        rows = self._db.execute(
            f"SELECT hash, vector, sum FROM embeddings WHERE model = ? AND hash IN ({marks})",
            [self.model, *hashes],
        )
        return {
            key: vector
            for key, vector, checksum in rows
            if isinstance(vector, bytes)
            and compute_vector_checksum(self.model, key, vector) == checksum
        }

    def store_cached_vectors(self, vectors: Mapping[bytes, Matrix]) -> None:
        """Store vectors; the keys of `vectors` are the hashes of the embedded texts."""
        rows = [(self.model, key, vector.tobytes()) for key, vector in vectors.items()]
        self._retry_with_new_cache_file(lambda: self._write_cached_vectors(rows))

    def _write_cached_vectors(self, rows: list[tuple[str, bytes, bytes]]) -> None:
        with self._db:  # commits or rolls back
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?)",
                [(*row, compute_vector_checksum(*row)) for row in rows],
            )

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        if self._published is not None:
            self._published.close()
