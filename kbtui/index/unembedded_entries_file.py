"""The list of entries without vectors, in a file that clients can read without LanceDB.

The list is in a small SQLite file next to the vectors. The file also contains the number of the last
catalog transaction that the list covers: entries that were written after this transaction may lack
vectors, too.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_FILE_NAME = "embedding_status.sqlite"

_TABLES = """
BEGIN;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS missing (entry_id TEXT PRIMARY KEY, error TEXT) WITHOUT ROWID;
COMMIT
"""


@dataclass
class EntriesWithoutVectors:
    """The entries that lack vectors.

    * `missing` maps the id of each entry to the error of the last attempt to embed it. The error is
      None if no attempt has failed.
    * `seq` is the number of the last catalog transaction that the list covers; -1 means that
      nothing was ever embedded.
    * `model` is the key of the embedding model.
    """

    seq: int = -1
    model: str = ""
    missing: dict[str, str | None] = field(default_factory=dict)


def read_entries_without_vectors(folder: Path) -> EntriesWithoutVectors:
    """Return the entries of the index generation in `folder` that lack vectors.

    If the file is missing or unreadable, the result says that no entry was ever embedded: its `seq`
    is -1, its `model` is "", and its `missing` is empty.
    """
    path = folder / _FILE_NAME
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
            return EntriesWithoutVectors(int(meta.get("seq", -1)), meta.get("model", ""), missing)
    return EntriesWithoutVectors()


def is_index_fully_embedded(folder: Path, model: str) -> bool:
    """Return whether the generation in `folder` has a vector of `model` for every chunk that needs one.

    Does not load LanceDB.
    """
    from kbtui.index.catalog_database import CatalogDatabase

    pending = read_entries_without_vectors(folder)
    if pending.model != model or not (folder / "vectors").is_dir():
        pending = EntriesWithoutVectors()
    with contextlib.closing(CatalogDatabase(folder / "catalog.sqlite")) as catalog:
        return not (pending.missing or catalog.has_embeddable_chunks_since(pending.seq))


class EntriesWithoutVectorsWriter:
    """Writes the list of entries that lack vectors. SQLite errors are ignored, so that embedding continues."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE_NAME

    def replace_entries_without_vectors_in_file(
        self, seq: int, model: str, missing: Iterable[str]
    ) -> None:
        """Record `missing` as the entries that lack vectors after the catalog transaction `seq`."""
        entry_ids = [(json.dumps(list(missing)),)]
        # An entry that failed keeps its error until it is tried again.
        self._execute_in_transaction(
            (
                "DELETE FROM missing WHERE entry_id NOT IN (SELECT value FROM json_each(?))",
                entry_ids,
            ),
            ("INSERT OR IGNORE INTO missing SELECT value, NULL FROM json_each(?)", entry_ids),
            ("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("seq", str(seq)), ("model", model)]),
        )

    def mark_entries_embedded(self, entries: Iterable[str]) -> None:
        """Record that these entries have all their vectors."""
        rows = [(entry_id,) for entry_id in entries]
        self._execute_in_transaction(("DELETE FROM missing WHERE entry_id = ?", rows))

    def record_embedding_error_of_entry(self, entry_id: str, error: str) -> None:
        """Record why an entry could not be embedded. The entry stays in the list, and is tried again later."""
        rows = [(entry_id, error)]
        self._execute_in_transaction(("INSERT OR REPLACE INTO missing VALUES (?, ?)", rows))

    def _execute_in_transaction(self, *statements: tuple[str, Sequence[tuple[str, ...]]]) -> None:
        """Execute each SQL statement once for each of its rows, all in one transaction."""
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as db,
        ):
            db.execute("PRAGMA synchronous=OFF")
            db.executescript(_TABLES)
            db.execute("BEGIN IMMEDIATE")
            for statement, rows in statements:
                db.executemany(statement, rows)
            db.execute("COMMIT")
