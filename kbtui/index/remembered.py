"""Embeddings remembered by text and model, so that no text is ever embedded twice.

One SQLite file a workspace, beside the generations: it outlives them. It is a
cache and nothing more; a damaged one is thrown away.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kbtui.index.embedding import Matrix


class Remembered:
    """The file of remembered embeddings of one model. For one thread."""

    def __init__(self, path: Path, model: str) -> None:
        self._path, self.model = path, model
        try:
            self._open()
        except sqlite3.DatabaseError:
            path.unlink(missing_ok=True)
            self._open()

    def _open(self) -> None:
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS embeddings (model TEXT, hash BLOB, vector BLOB, "
            "PRIMARY KEY (model, hash)) WITHOUT ROWID"
        )

    def get(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        """The vectors that are remembered, as float32 bytes."""
        held = list(hashes)
        found: dict[bytes, bytes] = {}
        for at in range(0, len(held), 500):
            part = held[at : at + 500]
            marks = ", ".join("?" * len(part))
            found.update(
                self._db.execute(
                    f"SELECT hash, vector FROM embeddings WHERE model = ? AND hash IN ({marks})",
                    [self.model, *part],
                )
            )
        return found

    def put(self, vectors: Mapping[bytes, Matrix]) -> None:
        """Remember vectors."""
        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)",
            [(self.model, key, vector.tobytes()) for key, vector in vectors.items()],
        )
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()
