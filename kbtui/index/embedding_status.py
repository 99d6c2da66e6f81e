"""How far each entry's vectors are: written while embedding, read by clients without LanceDB.

A file beside the vectors has the catalog's sequence number for which it holds: entries that the
catalog wrote later are pending, listed entries lack vectors, and all others have them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

STATUS_FILE = "embedding_status.sqlite"

_TABLES = """
BEGIN;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS missing (entry_id TEXT PRIMARY KEY, error TEXT) WITHOUT ROWID;
COMMIT
"""


@dataclass
class EmbeddingStatus:
    """Which entries lack vectors.

    `missing` has their ids, each with the error that kept it from being embedded, if any. `seq` is
    the catalog's transaction that this is about, -1 when nothing was ever embedded; `model` is the
    model's key.
    """

    seq: int = -1
    model: str = ""
    missing: dict[str, str | None] = field(default_factory=dict)


def read_embedding_status(folder: Path) -> EmbeddingStatus:
    """Read the status of a generation; if the file is missing or unreadable, nothing is embedded."""
    path = folder / STATUS_FILE
    if path.exists():
        with (
            contextlib.suppress(sqlite3.Error, ValueError),
            contextlib.closing(
                sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
                )
            ) as db,
        ):
            db.execute("BEGIN")
            meta = dict(db.execute("SELECT key, value FROM meta"))
            missing = dict(db.execute("SELECT entry_id, error FROM missing"))
            return EmbeddingStatus(int(meta.get("seq", -1)), meta.get("model", ""), missing)
    return EmbeddingStatus()


def is_fully_embedded(folder: Path, model: str) -> bool:
    """Whether every chunk of the generation at `folder` has a vector of this model.

    Answered without opening LanceDB.
    """
    from kbtui.index.catalog import Catalog

    status = read_embedding_status(folder)
    catalog = Catalog(folder / "catalog.sqlite")
    try:
        is_known = status.seq >= 0 and status.model == model and (folder / "vectors").is_dir()
        if is_known and status.missing:
            return False
        return not catalog.has_embeddable_chunks_since(status.seq if is_known else -1)
    finally:
        catalog.close()


class EmbeddingStatusWriter:
    """Writes the embedding status. Errors of SQLite are ignored, so that embedding continues."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STATUS_FILE

    def start(self, seq: int, model: str, missing: Iterable[str]) -> None:
        """Note which entries lack vectors in the catalog at transaction `seq`."""
        entry_ids = list(missing)

        def write(db: sqlite3.Connection) -> None:
            # An entry that failed keeps its error until it is tried again.
            errors = dict(db.execute("SELECT entry_id, error FROM missing WHERE error IS NOT NULL"))
            db.execute("DELETE FROM missing")
            db.executemany(
                "INSERT OR REPLACE INTO missing VALUES (?, ?)",
                [(entry_id, errors.get(entry_id)) for entry_id in entry_ids],
            )
            meta = [("seq", str(seq)), ("model", model)]
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta)

        self._write_transaction(write)

    def mark_entries_embedded(self, entries: Iterable[str]) -> None:
        """Note that these entries have all their vectors."""
        rows = [(entry_id,) for entry_id in entries]
        self._write_transaction(
            lambda db: db.executemany("DELETE FROM missing WHERE entry_id = ?", rows)
        )

    def mark_entry_failed(self, entry_id: str, error: str) -> None:
        """Note why an entry could not be embedded; the next run tries it again."""
        row = (entry_id, error)
        self._write_transaction(
            lambda db: db.execute("INSERT OR REPLACE INTO missing VALUES (?, ?)", row)
        )

    def _write_transaction(self, work: Callable[[sqlite3.Connection], object]) -> None:
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as db,
        ):
            db.execute("PRAGMA synchronous=OFF")
            db.executescript(_TABLES)
            db.execute("BEGIN IMMEDIATE")
            work(db)
            db.execute("COMMIT")
