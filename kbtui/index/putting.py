"""Putting an entry into the catalog: only what differs is written, and it is told what that was.

A conversation that has grown is put from the chunk on where it did (`start`); everything
before it is neither read nor written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.index import sums

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from kbtui.index.records import Chunk, Entry

AROUND = 2
"""So many chunks on each side of one are part of its document and of its vector."""
DROPPED_MOST = 20_000
"""So many numbers of chunks that are gone are remembered."""

_COLUMNS = (
    "number", "id", "entry_id", "ordinal", "text", "first_line", "last_line", "turn", "role",
    "tool", "timestamp", "embed", "hash", "call", "args", "seq",
)  # fmt: skip
_SET = f"({', '.join(_COLUMNS[1:])}) = ({', '.join('?' * (len(_COLUMNS) - 1))})"
_VECTOR = slice(11, 13)
"""Of the columns above, those that say whether there is a vector, and which."""
_DOCUMENT = (4, 8, 9, 10, 11, 14)
"""Those that are in the keyword index, or decide what else is."""


@dataclass
class Written:
    """What was written: the positions, in the chunks that were put, of those whose document is
    another now, and the numbers of the chunks that are gone."""

    changed: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)


def put(
    db: sqlite3.Connection,
    entry: Entry,
    chunks: Sequence[Chunk],
    seq: int,
    *,
    start: int = 0,
    mark: str | None = None,
) -> Written:
    """Put an entry in place of what was there, its chunks from ordinal `start` on.

    Unchanged chunks keep their number; each chunk is given its own. `mark` says where to go
    on when the entry has grown.
    """
    old = sums.entry_rows(db, entry.id)
    written, difference = _put_chunks(db, entry.id, chunks, seq, start if old else None)
    row = (
        entry.id, entry.kind, writable(entry.title), entry.signature, writable(entry.path),
        entry.type, entry.topic, writable(entry.slug), entry.conversation,
        json.dumps(entry.tags) if entry.tags else "[]", writable(entry.source_url), float(entry.created),
        float(entry.changed), entry.size, int(entry.hidden), int(entry.archived), entry.error,
        entry.stat, seq,
    )  # fmt: skip
    db.execute(f"INSERT OR REPLACE INTO entries VALUES ({', '.join('?' * len(row))})", row)
    db.execute("DELETE FROM gone WHERE entry_id = ?", (entry.id,))
    now: list[tuple[Any, ...]] = [row]
    if mark is not None:
        now.append((entry.id, mark))
        db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", now[-1])
    elif old:
        db.execute("DELETE FROM marks WHERE entry_id = ?", (entry.id,))
    sums.add(db, entry.id, difference + sums.part(now) - sums.part(old))
    return written


def _put_chunks(
    db: sqlite3.Connection, entry_id: str, chunks: Sequence[Chunk], seq: int, start: int | None
) -> tuple[Written, int]:
    """Write what differs; gives also by how much the entry's sum does.

    `start` is None for an entry of which there is nothing.
    """
    old: dict[str, tuple[Any, ...]] = {}
    if start is not None:
        asked = "SELECT * FROM chunks WHERE entry_id = ? AND ordinal >= ? ORDER BY ordinal"
        old = {row[1]: row for row in db.execute(asked, (entry_id, start))}
    gone = [old[id_] for id_ in old.keys() - {c.id for c in chunks}] if old else []
    written = Written(gone=_drop(db, [row[0] for row in gone], seq))
    minus, plus = gone, []
    number = _last_number(db)
    fresh: list[tuple[Any, ...]] = []
    same: set[str] = set()
    for chunk in chunks:
        held = old.get(chunk.id)
        if held is None:
            number += 1
            chunk.number = number
            fresh.append(_row(entry_id, chunk, seq))
            continue
        chunk.number = held[0]
        row = _row(entry_id, chunk, held[-1])
        if held != row:
            if held[_VECTOR] != row[_VECTOR]:
                row = (*row[:-1], seq)
            db.execute(f"UPDATE chunks SET {_SET} WHERE number = ?", (*row[1:], chunk.number))
            minus.append(held)
            plus.append(row)
        if all(held[at] == row[at] for at in _DOCUMENT):
            same.add(chunk.id)
    db.executemany(f"INSERT INTO chunks VALUES ({', '.join('?' * len(_COLUMNS))})", fresh)
    plus += fresh
    written.changed = _changed(list(old), [chunk.id for chunk in chunks], same)
    return written, sums.part(plus) - sums.part(minus)


def _last_number(db: sqlite3.Connection) -> int:
    """The highest number that a chunk ever had: none is given twice."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").fetchone()
    return int(row[0]) if row else 0


def _changed(old: list[str], new: list[str], same: set[str]) -> list[int]:
    """The positions of new chunks that are others, or stand beside others than before."""
    if not same:
        return list(range(len(new)))
    places = {id_: at for at, id_ in enumerate(old)}

    def around(ids: list[str], at: int) -> list[str | None]:
        return [
            (ids[other] if ids[other] in same else None) if 0 <= other < len(ids) else ""
            for other in range(at - AROUND, at + AROUND + 1)
        ]

    return [
        at
        for at, id_ in enumerate(new)
        if id_ not in same or None in (here := around(new, at)) or here != around(old, places[id_])
    ]


def _drop(db: sqlite3.Connection, numbers: list[int], seq: int) -> list[int]:
    db.executemany("DELETE FROM chunks WHERE number = ?", [(number,) for number in numbers])
    drop(db, numbers, seq)
    return numbers


def drop(db: sqlite3.Connection, numbers: Sequence[int], seq: int) -> None:
    """Remember that the chunks of these numbers are gone; the oldest of many are forgotten."""
    if not numbers:
        return
    db.executemany(
        "INSERT OR REPLACE INTO dropped VALUES (?, ?)", [(number, seq) for number in numbers]
    )
    count = db.execute("SELECT count(*) FROM dropped").fetchone()[0]
    if count > DROPPED_MOST:
        least = db.execute(
            "SELECT seq FROM dropped ORDER BY seq DESC LIMIT 1 OFFSET ?", (DROPPED_MOST // 2,)
        ).fetchone()[0]
        db.execute("DELETE FROM dropped WHERE seq <= ?", (least,))
        db.execute("INSERT OR REPLACE INTO meta VALUES ('forgotten', ?)", (str(least),))


def put_citations(
    db: sqlite3.Connection,
    entry_id: str,
    conversation: int,
    rows: Sequence[tuple[object, ...]],
    after: int,
) -> None:
    """Put a conversation's citations in place of those of its turns after turn `after`."""
    where = "FROM citations WHERE conversation = ? AND turn > ?"
    old = db.execute(f"SELECT * {where}", (conversation, after)).fetchall()
    if not old and not rows:
        return
    db.execute(f"DELETE {where}", (conversation, after))
    db.executemany("INSERT INTO citations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    now = db.execute(f"SELECT * {where}", (conversation, after))
    sums.add(db, entry_id, sums.part(now) - sums.part(old))


def writable(text: str | None) -> str | None:
    """Text that SQLite takes: it refuses lone surrogates, which file names and JSON can hold."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def _row(entry_id: str, chunk: Chunk, seq: int) -> tuple[Any, ...]:
    """A chunk's row, as the catalog will give it: its sum is made without reading it back."""
    first, last = chunk.lines or (None, None)
    when = chunk.timestamp
    return (
        chunk.number, chunk.id, entry_id, chunk.ordinal, writable(chunk.text), first, last,
        chunk.turn, chunk.role, writable(chunk.tool), None if when is None else float(when),
        int(chunk.embed), chunk.vector_hash, chunk.call,
        json.dumps(chunk.args) if chunk.args else None, seq,
    )  # fmt: skip
