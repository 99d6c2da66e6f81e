"""How far each entry's vectors are: written by the backlog, read by clients, who never open LanceDB.

A file beside the vectors, with the catalog's sequence number that it was made
at: what the catalog wrote later is pending, what is listed lacks vectors, and
everything else has them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

NAME = "standing.sqlite"

_TABLES = """
BEGIN;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lacking (entry_id TEXT PRIMARY KEY, error TEXT) WITHOUT ROWID;
COMMIT
"""


@dataclass
class EmbeddingStatus:
    """`lacking` has the entries without all their vectors, each with why it failed, if it did.

    `seq` is the catalog's transaction that this is about, -1 when nothing was
    ever embedded; `model` is the model's key.
    """

    seq: int = -1
    model: str = ""
    lacking: dict[str, str | None] = field(default_factory=dict)


def read_standing(folder: Path) -> EmbeddingStatus:
    """How far the generation at `folder` is; nothing known counts as nothing done."""
    found = EmbeddingStatus()
    path = folder / NAME
    if not path.exists():
        return found
    with contextlib.suppress(sqlite3.Error, ValueError):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            db.execute("BEGIN")
            facts = dict(db.execute("SELECT key, value FROM meta"))
            lacking = dict(db.execute("SELECT entry_id, error FROM lacking"))
            found = EmbeddingStatus(int(facts.get("seq", -1)), facts.get("model", ""), lacking)
        finally:
            db.close()
    return found


def nothing_lacks(folder: Path, model: str) -> bool:
    """Whether every chunk of the generation at `folder` has its vector of this model.

    Known without opening LanceDB. What the catalog wrote since counts as lacking, where it has
    something to embed.
    """
    from kbtui.index.catalog import Catalog

    standing = read_standing(folder)
    catalog = Catalog(folder / "catalog.sqlite")
    try:
        known = standing.seq >= 0 and standing.model == model and (folder / "vectors").is_dir()
        if known and standing.lacking:
            return False
        return not catalog.wants_vectors_since(standing.seq if known else -1)
    finally:
        catalog.close()


class EmbeddingStatusWriter:
    """Notes how far the vectors are. For the backlog's thread; a failure is no reason to stop."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def begin(self, seq: int, model: str, lacking: Iterable[str]) -> None:
        """The work now known: these entries, of the catalog at transaction `seq`."""
        rows = list(lacking)

        def write(db: sqlite3.Connection) -> None:
            # What failed before is failed until it has been tried again.
            errors = dict(db.execute("SELECT entry_id, error FROM lacking WHERE error IS NOT NULL"))
            db.execute("DELETE FROM lacking")
            db.executemany(
                "INSERT OR REPLACE INTO lacking VALUES (?, ?)",
                [(entry_id, errors.get(entry_id)) for entry_id in rows],
            )
            facts = [("seq", str(seq)), ("model", model)]
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts)

        self._write(write)

    def done(self, entries: Iterable[str]) -> None:
        """These entries have all their vectors."""
        rows = [(entry_id,) for entry_id in entries]
        self._write(lambda db: db.executemany("DELETE FROM lacking WHERE entry_id = ?", rows))

    def failed(self, entry_id: str, reason: str) -> None:
        """This entry could not be embedded; it is tried again with the next work."""
        row = (entry_id, reason)
        self._write(lambda db: db.execute("INSERT OR REPLACE INTO lacking VALUES (?, ?)", row))

    def _write(self, work: Callable[[sqlite3.Connection], object]) -> None:
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as db,
        ):
            db.execute("PRAGMA synchronous=OFF")
            db.executescript(_TABLES)
            db.execute("BEGIN IMMEDIATE")
            work(db)
            db.execute("COMMIT")
