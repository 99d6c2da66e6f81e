"""The catalog: SQLite, the record of truth for the index.

Entries, their chunks with text, citations, and from which state of which file
each was made. Every transaction has a sequence number; the lexical index and
the vectors follow it (design, "Storage").
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbtui.errors import IndexUnavailable
from kbtui.index import putting, sums
from kbtui.index.tables import CHUNK, ENTRY, TABLES, chunk_of, entry_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from kbtui.index.putting import Written
    from kbtui.index.records import Chunk, Entry

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
    ) -> Written:
        """Put an entry in place of what was there, its chunks from ordinal `start` on."""
        return putting.put(self._db, entry, chunks, seq, start=start, mark=mark)

    def remove(self, entry_id: str, seq: int) -> None:
        """Take an entry out, with its chunks and, for a conversation, its citations."""
        row = self._db.execute(
            "SELECT conversation FROM entries WHERE id = ?", (entry_id,)
        ).fetchone()
        if row and row[0] is not None:
            self._db.execute("DELETE FROM citations WHERE conversation = ?", (row[0],))
        numbers = self._db.execute("SELECT number FROM chunks WHERE entry_id = ?", (entry_id,))
        putting.drop(self._db, [row[0] for row in numbers.fetchall()], seq)
        for table, column in _OF_ENTRY:
            self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (entry_id,))
        self._db.execute("INSERT OR REPLACE INTO gone VALUES (?, ?)", (entry_id, seq))

    def put_citations(
        self, entry: Entry, rows: Sequence[tuple[object, ...]], *, after: int = 0
    ) -> None:
        """Put a conversation's citations (columns as in the table) in place of what was there
        of its turns after turn `after`."""
        assert entry.conversation is not None
        putting.put_citations(self._db, entry.id, entry.conversation, rows, after)

    def damage(self, stop: threading.Event | None = None) -> str | None:
        """What is not as it was written, in a phrase; None when nothing is, or `stop` is set.

        Raises `sqlite3.Error` where the file cannot be read at all.
        """
        with self.snapshot():
            return sums.damage(self._db, stop)

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

    def states(self) -> Iterable[tuple[str | int, str | None, str, str]]:
        """Of each entry: its topic and slug, or a conversation's number and None; its id; and the
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
            f"SELECT * FROM citations WHERE {wanted} ORDER BY conversation DESC, turn DESC, call",
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
