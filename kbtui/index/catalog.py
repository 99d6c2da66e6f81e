"""The catalog: SQLite, the source of truth for the index."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.errors import IndexUnavailable
from kbtui.index import catalog, row_checksums
from kbtui.index.schema import CHUNK, ENTRY, TABLES, chunk_of, entry_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from kbtui.index.models import Chunk, Entry


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
class WriteResult:
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
) -> WriteResult:
    """Put an entry in place of what was there, its chunks from ordinal `start` on.

    Unchanged chunks keep their number; each chunk is given its own. `mark` says where to go
    on when the entry has grown.
    """
    old = row_checksums.entry_rows(db, entry.id)
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
    row_checksums.add(db, entry.id, difference + row_checksums.part(now) - row_checksums.part(old))
    return written


def _put_chunks(
    db: sqlite3.Connection, entry_id: str, chunks: Sequence[Chunk], seq: int, start: int | None
) -> tuple[WriteResult, int]:
    """Write the changed rows; also returns the change of the entry's checksum.

    `start` is None for an entry that has no rows yet.
    """
    old: dict[str, tuple[Any, ...]] = {}
    if start is not None:
        asked = "SELECT * FROM chunks WHERE entry_id = ? AND ordinal >= ? ORDER BY ordinal"
        old = {row[1]: row for row in db.execute(asked, (entry_id, start))}
    gone = [old[id_] for id_ in old.keys() - {c.id for c in chunks}] if old else []
    written = WriteResult(gone=_drop(db, [row[0] for row in gone], seq))
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
    return written, row_checksums.part(plus) - row_checksums.part(minus)


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
    conversation: str,
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
    row_checksums.add(db, entry_id, row_checksums.part(now) - row_checksums.part(old))


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


_OF_ENTRY = (
    ("chunks", "entry_id"),
    ("entries", "id"),
    ("sums", "entry_id"),
    ("marks", "entry_id"),
)


class Catalog:
    """One catalog file. A writer's transactions end with `commit`."""

    def __init__(self, path: Path, *, write: bool = False) -> None:
        """Open; `write` makes it when missing. Raises `IndexUnavailable`."""
        self.path = path
        try:
            if write:
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._db.execute("PRAGMA journal_mode=WAL")
                # A crash of the machine may lose the last transactions, never tear one:
                # what is lost is found again by the next start's comparison with the files.
                self._db.execute("PRAGMA synchronous=NORMAL")
                if not self._db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                    self._db.executescript(f"BEGIN; {TABLES} COMMIT;")
            else:
                uri = f"{path.absolute().as_uri()}?mode=ro"
                self._db = sqlite3.connect(
                    uri, uri=True, isolation_level=None, check_same_thread=False
                )
                self._db.execute("SELECT 1 FROM meta LIMIT 1")
        except sqlite3.Error as error:
            raise IndexUnavailable(
                f"the catalog cannot be opened: {error}",
                where=str(path),
                hint="`kbtui index --rebuild` makes a new one",
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # transactions

    def begin(self) -> int:
        """Begin a transaction; returns its sequence number."""
        self._db.execute("BEGIN IMMEDIATE")
        seq = self.seq() + 1
        self.set("seq", str(seq))
        return seq

    def commit(self) -> None:
        """Make the transaction last."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """Forget the transaction, if one is open."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def seq(self) -> int:
        """The number of the last transaction."""
        return int(self.get("seq") or 0)

    def get(self, key: str) -> str | None:
        """A value of the catalog's own notes."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set(self, key: str, value: str) -> None:
        """Note a value."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # writing

    def put(
        self,
        entry: Entry,
        chunks: Sequence[Chunk],
        seq: int,
        *,
        start: int = 0,
        mark: str | None = None,
    ) -> WriteResult:
        """Put an entry in place of what was there, its chunks from ordinal `start` on."""
        return catalog.put(self._db, entry, chunks, seq, start=start, mark=mark)

    def remove(self, entry_id: str, seq: int) -> None:
        """Take an entry out, with its chunks and, for a conversation, its citations."""
        row = self._db.execute(
            "SELECT conversation FROM entries WHERE id = ?", (entry_id,)
        ).fetchone()
        if row and row[0] is not None:
            self._db.execute("DELETE FROM citations WHERE conversation = ?", (row[0],))
        numbers = self._db.execute("SELECT number FROM chunks WHERE entry_id = ?", (entry_id,))
        catalog.drop(self._db, [row[0] for row in numbers.fetchall()], seq)
        for table, column in _OF_ENTRY:
            self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (entry_id,))
        self._db.execute("INSERT OR REPLACE INTO gone VALUES (?, ?)", (entry_id, seq))

    def put_citations(
        self, entry: Entry, rows: Sequence[tuple[object, ...]], *, after: int = 0
    ) -> None:
        """Put a conversation's citations (columns as in the table) in place of what was there
        of its turns after turn `after`."""
        assert entry.conversation is not None
        catalog.put_citations(self._db, entry.id, entry.conversation, rows, after)

    def damage(self, stop: threading.Event | None = None) -> str | None:
        """What is not as it was written, in a phrase; None when nothing is, or `stop` is set.

        Raises `sqlite3.Error` where the file cannot be read at all.
        """
        with self.snapshot():
            return row_checksums.damage(self._db, stop)

    # reading

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within it, all that a reader is told is of one state."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self.rollback()

    def ids(self) -> list[str]:
        """The ids of all entries."""
        return [row[0] for row in self._db.execute("SELECT id FROM entries")]

    def states(self) -> Iterable[tuple[str, str | None, str, str]]:
        """Of each entry: its topic and slug, or a conversation's id and None; its id; and the
        signature of the files that it was made from."""
        return self._db.execute(
            "SELECT coalesce(topic, conversation), slug, id, signature FROM entries"
        )

    def unread(self) -> frozenset[str]:
        """The ids of the entries whose file could not be read."""
        rows = self._db.execute("SELECT id FROM entries WHERE error IS NOT NULL")
        return frozenset(row[0] for row in rows)

    def hidden(self) -> frozenset[str]:
        """The ids of the hidden entries."""
        return frozenset(row[0] for row in self._db.execute("SELECT id FROM entries WHERE hidden"))

    def mark(self, entry_id: str) -> str | None:
        """Where to go on when the entry has grown, as it was put."""
        row = self._db.execute("SELECT mark FROM marks WHERE entry_id = ?", (entry_id,)).fetchone()
        return row[0] if row else None

    def changed_since(self, seq: int) -> list[str]:
        """The entries written after transaction `seq`."""
        return [row[0] for row in self._db.execute("SELECT id FROM entries WHERE seq > ?", (seq,))]

    def gone_since(self, seq: int) -> list[str]:
        """The entries taken out after transaction `seq`."""
        return [
            row[0] for row in self._db.execute("SELECT entry_id FROM gone WHERE seq > ?", (seq,))
        ]

    def entry(self, entry_id: str) -> Entry | None:
        """One entry."""
        row = self._db.execute(f"SELECT {ENTRY} FROM entries WHERE id = ?", (entry_id,)).fetchone()
        return entry_of(row) if row else None

    def entries(self, ids: Iterable[str]) -> dict[str, Entry]:
        """Entries by id; those that do not exist are left out."""
        held = list(ids)
        marks = ", ".join("?" * len(held))
        rows = self._db.execute(f"SELECT {ENTRY} FROM entries WHERE id IN ({marks})", held)
        return {row[0]: entry_of(row) for row in rows}

    def all_entries(self) -> Iterator[Entry]:
        """Every entry, by id."""
        for row in self._db.execute(f"SELECT {ENTRY} FROM entries ORDER BY id"):
            yield entry_of(row)

    def chunks_of(self, entry_id: str) -> list[Chunk]:
        """An entry's chunks, in order."""
        rows = self._db.execute(
            f"SELECT {CHUNK} FROM chunks WHERE entry_id = ? ORDER BY ordinal", (entry_id,)
        )
        return [chunk_of(row) for row in rows]

    def chunks_between(self, entry_id: str, first: int, end: int) -> list[Chunk]:
        """An entry's chunks from ordinal `first` on, before ordinal `end`."""
        rows = self._db.execute(
            f"SELECT {CHUNK} FROM chunks WHERE entry_id = ? AND ordinal >= ? AND ordinal < ? "
            "ORDER BY ordinal",
            (entry_id, first, end),
        )
        return [chunk_of(row) for row in rows]

    def ordinals(self, numbers: Sequence[int]) -> list[int]:
        """The ordinals of chunks by number, ascending."""
        rows = self._db.execute(
            "SELECT ordinal FROM chunks WHERE number IN (SELECT value FROM json_each(?)) ORDER BY 1",
            (json.dumps(list(numbers)),),
        )
        return [row[0] for row in rows]

    def standing_before(self, ids: Sequence[str], ordinal: int) -> frozenset[str]:
        """Those of the chunks `ids` that stand before ordinal `ordinal` of their entry."""
        rows = self._db.execute(
            "SELECT id FROM chunks WHERE id IN (SELECT value FROM json_each(?)) AND ordinal < ?",
            (json.dumps(list(ids)), ordinal),
        )
        return frozenset(row[0] for row in rows)

    def chunks(self, numbers: Iterable[int]) -> dict[int, tuple[Chunk, str]]:
        """Chunks by number, each with its entry's id; those that do not exist are left out."""
        held = list(numbers)
        marks = ", ".join("?" * len(held))
        rows = self._db.execute(
            f"SELECT {CHUNK}, entry_id FROM chunks WHERE number IN ({marks})", held
        )
        return {row[0]: (chunk_of(row), row[-1]) for row in rows}

    def owners(self, numbers: Iterable[int]) -> dict[int, tuple[str, str]]:
        """The ids of chunks by number, each with its entry's; those that do not exist are left out."""
        held = list(numbers)
        marks = ", ".join("?" * len(held))
        rows = self._db.execute(
            f"SELECT number, id, entry_id FROM chunks WHERE number IN ({marks})", held
        )
        return {number: (id_, entry_id) for number, id_, entry_id in rows}

    def chunk(self, chunk_id: str) -> tuple[Chunk, str] | None:
        """A chunk by its id, with its entry's id."""
        row = self._db.execute(
            f"SELECT {CHUNK}, entry_id FROM chunks WHERE id = ?", (chunk_id,)
        ).fetchone()
        return (chunk_of(row), row[-1]) if row else None

    def counts(self) -> dict[str, int]:
        """How many entries, chunks and citations there are."""
        count = self._db.execute
        return {
            "subjects": count("SELECT count(*) FROM entries WHERE kind = 'subject'").fetchone()[0],
            "conversations": count(
                "SELECT count(*) FROM entries WHERE kind = 'conversation'"
            ).fetchone()[0],
            "chunks": count("SELECT count(*) FROM chunks").fetchone()[0],
            "citations": count("SELECT count(*) FROM citations").fetchone()[0],
        }

    def is_empty(self, *, hidden: bool) -> bool:
        """Whether there is no entry; with `hidden` false, none but hidden ones."""
        asked = "SELECT 1 FROM entries WHERE hidden <= ? LIMIT 1"
        return self._db.execute(asked, (int(hidden),)).fetchone() is None

    def citing(self, targets: Sequence[str], chunk: str | None = None) -> list[tuple[object, ...]]:
        """The citations of any of `targets`, newest first (columns as in the table).

        With `chunk` also those of that passage, whatever entry it is in.
        """
        marks = ", ".join("?" * len(targets))
        wanted, values = f"target IN ({marks})", list(targets)
        if chunk is not None:
            wanted, values = f"{wanted} OR chunk = ?", [*values, chunk]
        return self._db.execute(
            f"SELECT * FROM citations WHERE {wanted} ORDER BY "
            "(SELECT created FROM entries WHERE id = conversation) DESC, "
            "conversation DESC, turn DESC, call",
            values,
        ).fetchall()

    def wanted_vectors(self) -> Iterator[tuple[int, str, bytes]]:
        """Number, entry and vector hash of every chunk that gets a vector."""
        yield from self._db.execute("SELECT number, entry_id, hash FROM chunks WHERE embed = 1")

    def vectors_since(
        self, seq: int
    ) -> tuple[list[tuple[int, str, bytes | None]], list[int]] | None:
        """What transactions after `seq` did that is about vectors.

        Number, entry and vector hash (None where there is to be no vector) of the chunks whose
        vector is another now, and the numbers of those that are gone. None when that is too
        long ago to be known.
        """
        if seq < int(self.get("forgotten") or 0):
            return None
        changed = self._db.execute(
            "SELECT number, entry_id, iif(embed, hash, NULL) FROM chunks WHERE seq > ?", (seq,)
        ).fetchall()
        gone = self._db.execute("SELECT number FROM dropped WHERE seq > ?", (seq,)).fetchall()
        return changed, [row[0] for row in gone]

    def wants_vectors_since(self, seq: int) -> bool:
        """Whether there is a chunk that gets a vector, and was written after transaction `seq`."""
        asked = "SELECT 1 FROM chunks WHERE seq > ? AND embed = 1 LIMIT 1"
        return self._db.execute(asked, (seq,)).fetchone() is not None

    def oldest_last(self, ids: Collection[str]) -> list[str]:
        """These entries in the order in which vectors are made: subjects first, then the newest."""
        rows = self._db.execute(
            "SELECT id FROM entries WHERE id IN (SELECT value FROM json_each(?)) "
            "ORDER BY kind = 'conversation', changed DESC, id",
            (json.dumps(list(ids)),),
        )
        return [row[0] for row in rows]
