"""Stores when records of the user's data were removed, so that importing an older version does not restore them.

Each change or removal gets a later time than the version or removal before it. Therefore the user's
last action wins when data is merged, even if a clock was wrong.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

REMOVALS_TABLE = """
CREATE TABLE IF NOT EXISTS removals (
  kind TEXT, id TEXT, at REAL NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID
"""
_MOMENT = 1e-6
"""A microsecond, in seconds. A `float` with a Unix time cannot express much shorter intervals."""


def record_removals(
    db: sqlite3.Connection, kind: str, removed: Iterable[tuple[str, float]]
) -> None:
    """Store the current time as the time of removal of records.

    `removed` has the id and time of each removed version.
    """
    now = time.time()
    rows = [(kind, name, max(now, changed + _MOMENT)) for name, changed in removed]
    db.executemany("INSERT OR REPLACE INTO removals VALUES (?, ?, ?)", rows)


def choose_change_time(
    db: sqlite3.Connection, kind: str, name: str, earlier: tuple[float] | None
) -> float:
    """Return the time to store for a change that is made now, and forget an earlier removal of the record.

    `earlier` has the time of the stored version; None means that there is none. The result is in
    Unix seconds.
    """
    values = (kind, name)
    removed = db.execute("SELECT at FROM removals WHERE kind = ? AND id = ?", values).fetchone()
    db.execute("DELETE FROM removals WHERE kind = ? AND id = ?", values)
    known = [row[0] + _MOMENT for row in (earlier, removed) if row is not None]
    return max([time.time(), *known])
