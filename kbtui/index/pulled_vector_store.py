"""Stores the vectors of a published library on this machine, one for each text and model.

A pull writes the vectors, and the engine reads them. Each number has 16 bits, which halves the size.
Each row has a checksum. A row that does not match its checksum counts as missing, and its text is
embedded again.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

VECTORS_TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors (model TEXT, hash BLOB, vector BLOB, sum INTEGER, "
    "PRIMARY KEY (model, hash)) WITHOUT ROWID"
)
LOOKED_UP_HASHES = 500
"""The maximum number of hashes that are looked up in one query."""


def compute_vector_checksum(model: str, key: bytes, vector: bytes) -> int:
    """Return the checksum of a row: of the model's key, the hash of the text, and the vector."""
    return crc32(vector, crc32(key, crc32(model.encode())))


def write_pulled_vectors(
    db: sqlite3.Connection, model: str, hashes: Iterable[bytes], vectors: Iterable[bytes]
) -> None:
    """Write vectors of 16-bit numbers into the open transaction of `db`."""
    db.executemany(
        "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)",
        (
            (model, key, vector, compute_vector_checksum(model, key, vector))
            for key, vector in zip(hashes, vectors, strict=True)
        ),
    )


def find_hashes_with_vector(
    db: sqlite3.Connection, model: str, hashes: Sequence[bytes]
) -> set[bytes]:
    """Return the hashes in `hashes` that have a vector of `model`."""
    found = set[bytes]()
    for at in range(0, len(hashes), LOOKED_UP_HASHES):
        some = hashes[at : at + LOOKED_UP_HASHES]
        marks = ", ".join("?" * len(some))
        query = f"SELECT hash FROM vectors WHERE model = ? AND hash IN ({marks})"
        found.update(row[0] for row in db.execute(query, (model, *some)))
    return found


class PulledVectorStore:
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

        found: dict[bytes, bytes] = {}
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
            for at in range(0, len(hashes), LOOKED_UP_HASHES):
                some = hashes[at : at + LOOKED_UP_HASHES]
                marks = ", ".join("?" * len(some))
                rows = self._db.execute(
                    f"SELECT hash, vector, sum FROM vectors WHERE model = ? AND hash IN ({marks})",
                    (model, *some),
                )
                for key, vector, checksum in rows:
                    if compute_vector_checksum(model, key, vector) == checksum:
                        numbers = np.frombuffer(vector, dtype="<f2").astype(np.float32)
                        found[key] = numbers.tobytes()
        except (sqlite3.Error, OSError, TypeError, ValueError):
            self.close()
        return found

    def close(self) -> None:
        """Close the file. The next lookup opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None
