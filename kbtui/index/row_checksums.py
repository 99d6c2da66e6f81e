"""Checksums of what the catalog holds: one an entry, which follows a change without reading the rest.

An entry's sum is that of its own row, its chunks, its citations and its mark, added up: what
is written adds a row's part, what is taken out subtracts it.
"""

from __future__ import annotations

from marshal import dumps
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    import sqlite3
    import threading
    from collections.abc import Iterable

_MODULUS = 1 << 63


def part(rows: Iterable[Any]) -> int:
    """What these rows, as the catalog gives them, are of a sum."""
    # The first version of that form: in later ones equal rows may have other bytes.
    return sum(crc32(dumps(row, 0)) for row in rows)


def add(db: sqlite3.Connection, entry_id: str, difference: int) -> None:
    """Add to an entry's sum; one that has none begins at 0."""
    row = db.execute("SELECT sum FROM sums WHERE entry_id = ?", (entry_id,)).fetchone()
    total = ((row[0] if row else 0) + difference) % _MODULUS
    db.execute("INSERT OR REPLACE INTO sums VALUES (?, ?)", (entry_id, total))


def entry_rows(db: sqlite3.Connection, entry_id: str) -> list[Any]:
    """An entry's own row and its mark; [] where there is no entry."""
    rows = db.execute("SELECT * FROM entries WHERE id = ?", (entry_id,)).fetchall()
    return rows and [*rows, *db.execute("SELECT * FROM marks WHERE entry_id = ?", (entry_id,))]


def _whole(db: sqlite3.Connection, entry_id: str) -> int:
    chunks = db.execute("SELECT * FROM chunks WHERE entry_id = ?", (entry_id,))
    cited = db.execute(
        "SELECT * FROM citations WHERE conversation = "
        "(SELECT conversation FROM entries WHERE id = ?)",
        (entry_id,),
    )
    return (part(entry_rows(db, entry_id)) + part(chunks) + part(cited)) % _MODULUS


def damage(db: sqlite3.Connection, stop: threading.Event | None = None) -> str | None:
    """What is not as it was written, in a phrase; None when nothing is, or `stop` is set.

    Raises `sqlite3.Error` where the file cannot be read at all.
    """
    said = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if said != "ok":
        return f"the catalog is damaged: {said}"
    sums = dict(db.execute("SELECT entry_id, sum FROM sums"))
    known = {row[0] for row in db.execute("SELECT id FROM entries")}
    strays = db.execute(
        "SELECT entry_id FROM chunks WHERE entry_id NOT IN (SELECT id FROM entries) LIMIT 1"
    ).fetchone()
    if known != sums.keys() or strays:
        return "the catalog is damaged: its entries are not those that were written"
    for entry_id, wanted in sums.items():
        if stop is not None and stop.is_set():
            return None
        if _whole(db, entry_id) != wanted:
            return "the catalog is damaged: an entry is not as it was written"
    return None
