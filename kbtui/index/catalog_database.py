"""The catalog: the SQLite file from which the keyword indexes and the vectors are made.

SQLite does not detect damaged rows. The catalog therefore stores a checksum for each entry: the sum
of the CRCs of all rows about the entry, in all tables. Writing a row adds its CRC to the sum, and
deleting the row subtracts it, so other rows need not be read.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from bisect import bisect_left
from collections import Counter
from contextlib import contextmanager
from functools import cache
from itertools import repeat
from marshal import dumps
from typing import TYPE_CHECKING, Any
from zlib import crc32

from kbtui.errors import IndexUnavailable
from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk, UserRequestChunkPlace
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import replace_surrogates

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from kbtui.citations.cited_text_comparison import GivenTextExtent

CATALOG_VERSION = 22
"""The version of the tables.

Increase it when the tables change, or when kbtui extracts other facts from conversations, so that
the index is rebuilt.
"""

CATALOG_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, signature TEXT NOT NULL,
  path TEXT NOT NULL, type TEXT NOT NULL, topic TEXT, slug TEXT, conversation TEXT,
  tags TEXT NOT NULL, source_url TEXT, created REAL NOT NULL, changed REAL NOT NULL,
  size INTEGER NOT NULL, hidden INTEGER NOT NULL, archived INTEGER NOT NULL, error TEXT,
  stat TEXT NOT NULL, agent TEXT, parent TEXT, rewound TEXT NOT NULL, digests TEXT,
  seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX entries_seq ON entries (seq);
CREATE TABLE sums (entry_id TEXT PRIMARY KEY, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE gone (entry_id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE chunks (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, entry_id TEXT NOT NULL,
  ordinal INTEGER NOT NULL, text TEXT NOT NULL, first_line INTEGER, last_line INTEGER,
  turn INTEGER, role TEXT, tool TEXT, timestamp REAL, embed INTEGER NOT NULL, hash BLOB,
  call INTEGER, args TEXT, seq INTEGER NOT NULL
);
CREATE UNIQUE INDEX chunks_id ON chunks (id);
CREATE INDEX chunks_entry ON chunks (entry_id, ordinal);
CREATE INDEX chunks_seq ON chunks (seq);
CREATE TABLE marks (entry_id TEXT PRIMARY KEY, mark TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE citations (
  conversation TEXT NOT NULL, turn INTEGER NOT NULL, call INTEGER, how TEXT NOT NULL,
  kind TEXT NOT NULL, target TEXT NOT NULL, title TEXT NOT NULL, tool TEXT NOT NULL,
  timestamp REAL, chunk TEXT, score REAL, extent TEXT, given TEXT
);
CREATE INDEX citations_target ON citations (target);
CREATE INDEX citations_source ON citations (conversation, turn);
CREATE TABLE usage (
  conversation TEXT NOT NULL, turn INTEGER NOT NULL, model TEXT, project TEXT, timestamp REAL,
  input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER,
  total_tokens INTEGER, is_estimate INTEGER NOT NULL
);
CREATE INDEX usage_source ON usage (conversation, turn);
"""

TURN_TABLES = ("citations", "usage")
"""The catalog's tables about turns: what the turns cite, and how many tokens they used."""

_CHECKSUM_MODULUS = 1 << 63
_VECTOR_COLUMNS = slice(11, 13)
"""The positions of the columns `embed` and `hash` in the table `chunks`.

These two columns determine the vector of a chunk.
"""
_DOCUMENT_COLUMNS = (3, 4, 8, 9, 10, 11, 14)
"""The positions, in the table `chunks`, of the columns from which the keyword index is made."""


class CitationWithGivenSubjectText(NamedTuple):
    """A citation of a subject, with facts about the text that the turn was given.

    `given` is that text as `GivenSubjectText.make_hash_and_text_for_catalog` returns it, and
    `extent` is `GivenSubjectText.extent`. Both are None if the text is not known.
    """

    conversation: str
    turn: int
    target: str
    title: str
    timestamp: float | None
    extent: GivenTextExtent | None
    given: str | None


_GIVEN_TEXT_COLUMNS = ", ".join(CitationWithGivenSubjectText._fields)


class EntryChunksWriteResult(NamedTuple):
    """The result of writing an entry's chunks.

    * `numbers` are the numbers of the written chunks.
    * `changed` lists the positions of those chunks that need a new document in the keyword index.
    * `gone` lists the numbers of the deleted chunks.
    * `previous` is the entry as it was before; None if the entry is new.
    """

    numbers: list[int]
    changed: list[int]
    gone: list[int]
    previous: CatalogEntry | None


def parse_catalog_entry_row(row: tuple[Any, ...]) -> CatalogEntry:
    """Convert a row of the table `entries` to an entry."""
    values = list(row[:-1])
    values[9] = _parse_json_list(values[9])
    values[14], values[15] = bool(values[14]), bool(values[15])
    values[20] = _parse_json_list(values[20])
    return CatalogEntry(*values)


def _parse_json_list(text: str) -> list[Any]:
    # A search parses hundreds of lists, and nearly all are empty.
    return [] if text == "[]" else json.loads(text)


def parse_catalog_chunk_row(row: tuple[Any, ...]) -> Chunk:
    """Convert a row of the table `chunks` to a chunk."""
    number, id_, _, ordinal, text, first, last, turn, role, tool, time, embed, digest, *rest = row
    lines = None if first is None else (first, last)
    call, args, _ = rest
    args = json.loads(args) if args else None
    return Chunk(
        id_, text, ordinal, lines, turn, role, tool, time, bool(embed), number, digest, call, args
    )


def _make_chunk_row(entry_id: str, chunk: Chunk, number: int, seq: int) -> tuple[Any, ...]:
    """Return a chunk's row with the values and types that SQLite returns when it reads the row."""
    id_, text, ordinal, lines, turn, role, tool, when, embed, _, digest, call, args = chunk
    first, last = lines or (None, None)
    return (
        number, id_, entry_id, ordinal, text if text.isascii() else replace_surrogates(text), first, last,
        turn, role, tool and replace_surrogates(tool), None if when is None else float(when),
        int(embed), digest, call, _encode_tool_arguments_as_json(args) if args else None, seq,
    )  # fmt: skip


def _encode_tool_arguments_as_json(arguments: dict[str, str]) -> str:
    import orjson  # imported here because a search does not need it

    try:
        return orjson.dumps(arguments).decode()
    except TypeError:  # a lone surrogate
        return json.dumps(arguments)


def _convert_entry_to_sql_row(entry: CatalogEntry, seq: int) -> tuple[Any, ...]:
    return (
        entry.id, entry.kind, replace_surrogates(entry.title), entry.signature, replace_surrogates(entry.path),
        entry.type, entry.topic, entry.slug and replace_surrogates(entry.slug), entry.conversation,
        json.dumps(entry.tags) if entry.tags else "[]", entry.source_url and replace_surrogates(entry.source_url), float(entry.created),
        float(entry.changed), entry.size, int(entry.hidden), int(entry.archived), entry.error,
        entry.stat, entry.agent, entry.parent, json.dumps(entry.rewound) if entry.rewound else "[]",
        entry.digests, seq,
    )  # fmt: skip


def _make_sql_placeholders(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


@cache
def _make_insert_statement(table: str, count: int) -> str:
    return f"INSERT INTO {table} VALUES ({_make_sql_placeholders(range(count))})"


def _compute_checksum_of_rows(rows: Iterable[Any]) -> int:
    """Return the sum of the CRCs of rows. The values must have the types that SQLite returns."""
    # Use marshal's version 0, because later versions can encode equal rows differently.
    return sum(map(crc32, map(dumps, rows, repeat(0))))


def make_catalog_error(verb: str, error: sqlite3.Error, path: Path) -> IndexUnavailable:
    """Return the error for a catalog file that cannot be opened or read; `verb` is "opened" or "read"."""
    problem, hint = f"the catalog cannot be {verb}: {error}", "run `kbtui index --rebuild`"
    return IndexUnavailable(problem, where=str(path), hint=hint)


# Without an adapter, `sqlite3` looks up two attributes of each None, and formats an exception that it
# discards. `get` of an empty dict returns None for None, and is faster than a lambda.
sqlite3.register_adapter(type(None), dict[None, None]().get)


class CatalogDatabase:
    """A catalog file, opened for reading or writing."""

    def __init__(self, path: Path, *, write: bool = False) -> None:
        """Open the file; with `write`, create it if it is missing. Raises `IndexUnavailable`."""
        self.path = path
        is_new = False
        target = path if write else f"{path.absolute().as_uri()}?mode=ro"
        try:
            self._db = sqlite3.connect(
                target, uri=True, isolation_level=None, check_same_thread=False
            )
            if write:
                self._db.execute("PRAGMA journal_mode=WAL")
                # If the machine crashes, the last transactions may be lost, but none is half done. The
                # next refresh compares the catalog with the files and repeats the lost changes.
                self._db.execute("PRAGMA synchronous=NORMAL")
                is_new = not self._db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
                if is_new:
                    self._db.executescript(f"BEGIN; {CATALOG_TABLES} COMMIT;")
            self._db.execute("SELECT 1 FROM meta LIMIT 1")
        except sqlite3.Error as error:
            raise make_catalog_error("opened", error, path) from error
        self._is_part = False
        self._written_ids = set[str]() if is_new else None
        """The ids of all entries that were ever written, if this object created the catalog; otherwise None.

        An entry with another id has no old rows, so they need not be queried.
        """

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _query_first_column(self, query: str, *values: object) -> list[Any]:
        return [row[0] for row in self._db.execute(query, values)]

    def _query_single_value(self, query: str, *values: object) -> Any:
        """Return the first column of the first row; None if there is no row."""
        row = self._db.execute(query, values).fetchone()
        return row[0] if row else None

    # transactions

    @contextmanager
    def open_write_transaction(self) -> Iterator[int]:
        """Open a write transaction, and yield its number. An error rolls the transaction back."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            seq = self.get_last_transaction_number() + 1
            self.set_meta_value("seq", str(seq))
            yield seq
            self.commit_transaction()
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def commit_transaction(self) -> None:
        """Commit the open transaction."""
        self._db.execute("COMMIT")

    def get_last_transaction_number(self) -> int:
        """Return the number of the last transaction; 0 if there was none."""
        return int(self.get_meta_value("seq") or 0)

    def get_meta_value(self, key: str) -> str | None:
        """Return a value from the table `meta`."""
        found: str | None = self._query_single_value("SELECT value FROM meta WHERE key = ?", key)
        return found

    def set_meta_value(self, key: str, value: str) -> None:
        """Set a value in the table `meta`."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # parts of an index

    def prepare_for_part(self, chunk_number: int, transaction_number: int) -> None:
        """Prepare an empty catalog whose rows will be added to another catalog.

        Its chunk numbers and transaction numbers will be higher than the given ones. It has no journal,
        so it is unusable after a crash or a failed transaction. It has only the SQLite indexes that
        writing uses; the others would be thrown away unused. The index by chunk id is created when it is
        first needed.
        """
        self._is_part = True
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute("PRAGMA journal_mode=OFF")
        with self.open_write_transaction():
            for name in ("entries_seq", "chunks_id", "chunks_seq", "citations_target"):
                self._db.execute(f"DROP INDEX {name}")
            self._db.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES ('chunks', ?)", (chunk_number,)
            )
            self.set_meta_value("seq", str(transaction_number))

    def get_last_chunk_number(self) -> int:
        """Return the highest number that any chunk has had so far; 0 if there was none."""
        return (
            self._query_single_value("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'") or 0
        )

    def add_rows_of_part(self, path: Path) -> int:
        """Add all rows of another catalog in one transaction; return the number of added entries.

        The chunk numbers and transaction numbers of the other catalog must be higher than those of this one.
        """
        self._db.execute("ATTACH ? AS part", (path.absolute().as_uri(),))
        try:
            with self.open_write_transaction():
                self._db.execute("DELETE FROM gone WHERE entry_id IN (SELECT id FROM part.entries)")
                ids = self._query_first_column("SELECT id FROM part.entries")
                if self._written_ids is not None:
                    self._written_ids.update(ids)
                for table in ("entries", "sums", "chunks", "marks", *TURN_TABLES):
                    self._db.execute(f"INSERT INTO {table} SELECT * FROM part.{table}")
                last = self._query_single_value("SELECT value FROM part.meta WHERE key = 'seq'")
                self.set_meta_value("seq", last)
        finally:
            self._db.execute("DETACH part")
        return len(ids)

    # writing

    def write_entry_and_chunks(
        self,
        entry: CatalogEntry,
        chunks: Sequence[Chunk],
        seq: int,
        *,
        start: int = 0,
        mark: str | None = None,
    ) -> EntryChunksWriteResult:
        """Replace an entry, and its chunks from position `start` on.

        Unchanged chunks keep their numbers. `mark` says where to resume reading when the entry's
        file has grown.
        """
        before: list[Any] = []
        if self._written_ids is None or entry.id in self._written_ids:
            before = self._get_entry_and_resume_point_rows(entry.id)
            self._db.execute("DELETE FROM gone WHERE entry_id = ?", (entry.id,))
        else:
            self._written_ids.add(entry.id)
        now = self._write_entry_and_resume_point_rows(entry, mark, seq, is_new=not before)
        old: dict[str, tuple[Any, ...]] = {}
        if before:
            query = "SELECT * FROM chunks WHERE entry_id = ? AND ordinal >= ? ORDER BY ordinal"
            old = {row[1]: row for row in self._db.execute(query, (entry.id, start))}
        entry_id, ids = entry.id, [chunk.id for chunk in chunks]
        removed = [old[id_] for id_ in old.keys() - set(ids)]
        gone = [row[0] for row in removed]
        added: list[tuple[Any, ...]] = []
        same: set[str] = set()
        numbers = []
        # Numbers are never reused.
        last = self.get_last_chunk_number()
        for chunk in chunks:
            held = old.get(chunk.id)
            if held is None:
                last += 1
                numbers.append(last)
                added.append(_make_chunk_row(entry_id, chunk, last, seq))
                continue
            numbers.append(held[0])
            row = _make_chunk_row(entry_id, chunk, held[0], held[-1])
            if held[_VECTOR_COLUMNS] != row[_VECTOR_COLUMNS]:
                row = (*row[:-1], seq)
            if held != row:
                removed.append(held)
                added.append(row)
            if all(held[at] == row[at] for at in _DOCUMENT_COLUMNS):
                same.add(chunk.id)
        if removed:
            self._db.executemany(
                "DELETE FROM chunks WHERE number = ?", [row[:1] for row in removed]
            )
        self._insert_rows("chunks", added)
        self._update_entry_checksum(
            entry_id, [*before, *removed], [*now, *added], is_new=not before
        )
        changed = [at for at, id_ in enumerate(ids) if id_ not in same]
        previous = parse_catalog_entry_row(before[0]) if before else None
        return EntryChunksWriteResult(numbers, changed, gone, previous)

    def _write_entry_and_resume_point_rows(
        self, entry: CatalogEntry, mark: str | None, seq: int, *, is_new: bool
    ) -> list[tuple[Any, ...]]:
        """Replace the rows of an entry in the tables `entries` and `marks`; return the new rows."""
        if not is_new:
            for table, column in (("entries", "id"), ("marks", "entry_id")):
                self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (entry.id,))
        rows: list[tuple[Any, ...]] = [_convert_entry_to_sql_row(entry, seq)]
        self._insert_rows("entries", rows)
        if mark is not None:
            rows.append((entry.id, mark))
            self._insert_rows("marks", rows[1:])
        return rows

    def _insert_rows(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            self._db.executemany(_make_insert_statement(table, len(rows[0])), rows)

    def remove_entry(self, entry_id: str, seq: int) -> None:
        """Delete an entry with its chunks.

        For a conversation, also delete its usage and the citations in it.
        """
        for table in TURN_TABLES:
            self._db.execute(
                f"DELETE FROM {table} WHERE conversation = "
                "(SELECT conversation FROM entries WHERE id = ?)",
                (entry_id,),
            )
        self._db.execute("DELETE FROM entries WHERE id = ?", (entry_id,))
        for table in ("chunks", "sums", "marks"):
            self._db.execute(f"DELETE FROM {table} WHERE entry_id = ?", (entry_id,))
        self._db.execute("INSERT OR REPLACE INTO gone VALUES (?, ?)", (entry_id, seq))
        if self._written_ids is not None:
            self._written_ids.add(entry_id)

    def replace_citation_or_usage_rows_of_conversation(
        self,
        table: str,
        entry: CatalogEntry,
        rows: Sequence[tuple[object, ...]],
        *,
        after: int = 0,
        after_call: int = 0,
    ) -> None:
        """Replace a conversation's rows in `table`, one of `TURN_TABLES`.

        The rows of the first `after` turns stay. In turn `after` + 1, the citations of the first
        `after_call` calls stay, too; a row that repeats one of these citations is not inserted.
        """
        where = f"{table} WHERE conversation = ? AND turn > ?"
        values: tuple[object, ...] = (entry.conversation, after)
        if after_call:
            kept = self._db.execute(
                f"SELECT target, chunk FROM {table} WHERE conversation = ? AND turn = ? AND call <= ?",
                (entry.conversation, after + 1, after_call),
            )
            cited = set(kept)
            rows = [row for row in rows if row[1] != after + 1 or (row[5], row[9]) not in cited]
            where += " AND (turn > ? OR call > ?)"
            values = (*values, after + 1, after_call)
        old = self._db.execute(f"SELECT * FROM {where}", values).fetchall()
        if old:
            self._db.execute(f"DELETE FROM {where}", values)
        self._insert_rows(table, rows)
        if old or rows:
            self._update_entry_checksum(
                entry.id, old, self._db.execute(f"SELECT * FROM {where}", values)
            )

    # checksums

    def _update_entry_checksum(
        self, entry_id: str, removed: Iterable[Any], added: Iterable[Any], *, is_new: bool = False
    ) -> None:
        total = _compute_checksum_of_rows(added)
        if not is_new:
            query = "SELECT sum FROM sums WHERE entry_id = ?"
            total += self._query_single_value(query, entry_id) or 0
            total -= _compute_checksum_of_rows(removed)
        row = (entry_id, total % _CHECKSUM_MODULUS)
        self._db.execute("INSERT OR REPLACE INTO sums VALUES (?, ?)", row)

    def _get_entry_and_resume_point_rows(self, entry_id: str) -> list[Any]:
        """Return the rows of an entry in the tables `entries` and `marks`; [] if there is no entry."""
        rows = self._db.execute("SELECT * FROM entries WHERE id = ?", (entry_id,)).fetchall()
        if rows:
            rows += self._db.execute("SELECT * FROM marks WHERE entry_id = ?", (entry_id,))
        return rows

    def _compute_entry_checksum(self, entry_id: str) -> int:
        rows = self._get_entry_and_resume_point_rows(entry_id)
        rows += self._db.execute("SELECT * FROM chunks WHERE entry_id = ?", (entry_id,))
        for table in TURN_TABLES:
            rows += self._db.execute(
                f"SELECT * FROM {table} WHERE conversation = "
                "(SELECT conversation FROM entries WHERE id = ?)",
                (entry_id,),
            )
        return _compute_checksum_of_rows(rows) % _CHECKSUM_MODULUS

    def find_catalog_damage(self, stop: threading.Event | None = None) -> str | None:
        """Verify all checksums; return a phrase that describes the first damage, or None if there is none.

        When `stop` is set, the verification ends early and returns None. Raises `sqlite3.Error` if
        the file cannot be read.
        """
        with self.open_read_transaction():
            problem = self._query_single_value("PRAGMA quick_check(1)")
            if problem != "ok":
                return f"the catalog is damaged: {problem}"
            checksums = dict(self._db.execute("SELECT entry_id, sum FROM sums"))
            has_strays = self._query_single_value(
                "SELECT 1 FROM chunks WHERE entry_id NOT IN (SELECT id FROM entries) LIMIT 1"
            )
            if set(self.list_entry_ids()) != checksums.keys() or has_strays:
                return "the catalog is damaged: entries or their checksums are missing"
            for entry_id, checksum in checksums.items():
                if stop is not None and stop.is_set():
                    return None
                if self._compute_entry_checksum(entry_id) != checksum:
                    return "the catalog is damaged: an entry does not match its checksum"
        return None

    # reading

    @contextmanager
    def open_read_transaction(self) -> Iterator[None]:
        """Open a read transaction, in which all queries see the same state."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def list_entry_ids(self) -> list[str]:
        """Return the ids of all entries."""
        return self._query_first_column("SELECT id FROM entries")

    def list_entry_signatures(self) -> Iterable[tuple[str, str | None, str, str]]:
        """Return the topic, slug, id and signature of each entry.

        For a conversation, the first two values are its id and None.
        """
        return self._db.execute(
            "SELECT coalesce(topic, conversation), slug, id, signature FROM entries"
        )

    def list_unreadable_entry_ids(self) -> set[str]:
        """Return the ids of the entries that could not be read."""
        return set(self._query_first_column("SELECT id FROM entries WHERE error IS NOT NULL"))

    def list_conversation_entry_ids(self) -> set[str]:
        """Return the ids of the conversations."""
        return set(self._query_first_column("SELECT id FROM entries WHERE kind = 'conversation'"))

    def list_hidden_entry_ids(self) -> set[str]:
        """Return the ids of the hidden entries."""
        return set(self._query_first_column("SELECT id FROM entries WHERE hidden"))

    def get_reading_resume_point(self, entry_id: str) -> str | None:
        """Return the mark that says where to resume reading an entry when its file has grown."""
        mark: str | None = self._query_single_value(
            "SELECT mark FROM marks WHERE entry_id = ?", entry_id
        )
        return mark

    def list_entry_ids_changed_since(self, seq: int) -> list[str]:
        """Return the ids of the entries that were written or removed after transaction `seq`."""
        query = "SELECT id FROM entries WHERE seq > ? UNION SELECT entry_id FROM gone WHERE seq > ?"
        return self._query_first_column(query, seq, seq)

    def get_entry(self, entry_id: str) -> CatalogEntry | None:
        """Return the entry with this id; None if it does not exist."""
        return self.get_entries_by_id([entry_id]).get(entry_id)

    def get_entries_by_id(self, ids: Collection[str]) -> dict[str, CatalogEntry]:
        """Map these ids to their entries; unknown ids are left out."""
        query = f"SELECT * FROM entries WHERE id IN ({_make_sql_placeholders(ids)})"
        return {row[0]: parse_catalog_entry_row(row) for row in self._db.execute(query, list(ids))}

    def find_conversation_ids_with_prefixes(self, prefixes: Iterable[str]) -> list[str]:
        """Return the conversation ids that begin with one of `prefixes`."""
        query = "SELECT id FROM entries WHERE id >= ? AND id < ? AND kind = 'conversation'"
        # Ids contain no character that sorts after `~`.
        ranges = ((one, f"{one}\x7f") for one in prefixes)
        return [row[0] for limits in ranges for row in self._db.execute(query, limits)]

    def iterate_entries(self) -> Iterator[CatalogEntry]:
        """Yield all entries, ordered by id."""
        return map(parse_catalog_entry_row, self._db.execute("SELECT * FROM entries ORDER BY id"))

    def list_entry_chunks(
        self, entry_id: str, first: int = 0, end: int | None = None
    ) -> list[Chunk]:
        """Return an entry's chunks in order, from position `first` to before `end` (zero-based)."""
        rows = self._db.execute(
            "SELECT * FROM chunks WHERE entry_id = ? AND ordinal >= ? AND ordinal < ? "
            "ORDER BY ordinal",
            (entry_id, first, sys.maxsize if end is None else end),
        )
        return [parse_catalog_chunk_row(row) for row in rows]

    def count_repeats_of_chunk_texts(
        self, texts: Collection[str], entry_id: str, end: int
    ) -> Counter[str]:
        """Count how often each text occurs among an entry's chunks before position `end`.

        The id of a chunk is computed from its text and the number of equal texts before it. This
        method looks up such ids, which is faster than reading the chunks.
        """
        from kbtui.index.chunk_splitter import make_chunk_id  # a search does not need it

        query = "SELECT 1 FROM chunks WHERE id = ? AND ordinal < ?"
        if self._is_part:
            self._db.execute("CREATE UNIQUE INDEX IF NOT EXISTS chunks_id ON chunks (id)")

        def occurs_more_often_than(text: str, times: int) -> bool:
            chunk_id = make_chunk_id(entry_id, text, times)
            return self._query_single_value(query, chunk_id, end) is not None

        counts: Counter[str] = Counter()
        for text in texts if end else ():
            above = 1
            while occurs_more_often_than(text, above - 1):
                above *= 2
            counts[text] = bisect_left(
                range(above),
                True,
                above // 2,
                key=lambda times: not occurs_more_often_than(text, times),
            )
        return counts

    def get_chunks_by_number(self, numbers: Collection[int]) -> dict[int, tuple[Chunk, str]]:
        """Map chunk numbers to `(chunk, entry id)`; unknown numbers are left out."""
        query = f"SELECT * FROM chunks WHERE number IN ({_make_sql_placeholders(numbers)})"
        rows = self._db.execute(query, list(numbers))
        return {row[0]: (parse_catalog_chunk_row(row), row[2]) for row in rows}

    def find_chunk_numbers_of_turns(self, turns: Collection[tuple[str, int | None]]) -> list[int]:
        """Return the numbers of the chunks in the given turns.

        A turn is a pair of its conversation's id and its number.
        """
        query = "SELECT number FROM chunks WHERE entry_id = ? AND turn = ?"
        return [number for turn in turns for (number,) in self._db.execute(query, turn)]

    def map_requests_to_beginnings_of_final_answers(
        self, requests: Collection[UserRequestChunkPlace], max_characters: int
    ) -> dict[UserRequestChunkPlace, str]:
        """Map requests to the beginnings of their final answers.

        A beginning has at most about `max_characters` characters. The final answer consists of
        consecutive texts of the assistant, with no other event between them. It is the last such
        answer before the user's next request in the turn, or before the end of the turn. A message
        that the user sends while the assistant is still calling tools does not count as the next
        request. Requests without an answer are left out.
        """
        by_turn: dict[tuple[str, int], list[int]] = {}
        for request in requests:
            by_turn.setdefault((request.entry_id, request.turn), []).append(request.ordinal)
        found = {}
        for (entry_id, turn), ordinals in by_turn.items():
            rows = self._db.execute(
                "SELECT ordinal, turn, role, substr(text, 1, ?) FROM chunks "
                "WHERE entry_id = ? AND ordinal > ? ORDER BY ordinal",
                (max_characters, entry_id, min(ordinals)),
            )
            open_requests = sorted(ordinals)
            head, is_answer = "", False
            for ordinal, number, role, text in rows:
                if number != turn or not open_requests:
                    break
                if role == "user" and is_answer:
                    while open_requests and open_requests[0] < ordinal:
                        found[UserRequestChunkPlace(entry_id, turn, open_requests.pop(0))] = head
                    head = ""
                elif role == "assistant" and not is_answer:
                    head = text
                elif role == "assistant" and len(head) < max_characters:
                    head += f"\n{text}"
                is_answer = role == "assistant"
            found |= {UserRequestChunkPlace(entry_id, turn, one): head for one in open_requests}
        return {request: head for request, head in found.items() if head.strip()}

    def map_dialogue_chunks_to_turns(self, numbers: Collection[int]) -> dict[int, tuple[str, int]]:
        """Map the chunk numbers of requests and answers to pairs of an entry id and a turn number.

        Other chunks in `numbers` are left out.
        """
        rows = self._db.execute(
            "SELECT number, entry_id, turn FROM chunks "
            f"WHERE number IN ({_make_sql_placeholders(numbers)}) "
            "AND role IN ('user', 'assistant') AND turn IS NOT NULL",
            list(numbers),
        )
        return {number: (entry_id, turn) for number, entry_id, turn in rows}

    def map_visible_chunks_to_chunk_and_entry_ids(
        self, numbers: Collection[int], *, hidden: bool, archived: bool
    ) -> dict[int, tuple[str, str]]:
        """Map the number of each visible chunk to its chunk id and entry id; other numbers are left out.

        A chunk of a hidden entry is visible only if `hidden` is true. A chunk of an archived entry
        is visible only if `archived` is true.
        """
        rows = self._db.execute(
            "SELECT chunks.number, chunks.id, entry_id FROM chunks JOIN entries ON entries.id = entry_id "
            f"WHERE chunks.number IN ({_make_sql_placeholders(numbers)}) "
            "AND hidden <= ? AND archived <= ?",
            [*numbers, hidden, archived],
        )
        return {number: (chunk_id, entry_id) for number, chunk_id, entry_id in rows}

    def get_chunk_by_id(self, chunk_id: str) -> tuple[Chunk, str] | None:
        """Return the chunk with this id, and the id of its entry; None if the chunk does not exist."""
        row = self._db.execute("SELECT * FROM chunks WHERE id = ?", (chunk_id,)).fetchone()
        return (parse_catalog_chunk_row(row), row[2]) if row else None

    def count_catalog_rows(self) -> dict[str, int]:
        """Count the `subjects`, `conversations`, `chunks` and `citations`."""
        tables = {
            "subjects": "entries WHERE kind = 'subject'",
            "conversations": "entries WHERE kind = 'conversation'",
            "chunks": "chunks",
            "citations": "citations",
        }
        return {
            name: self._query_single_value(f"SELECT count(*) FROM {table}")
            for name, table in tables.items()
        }

    def is_catalog_empty(self, *, hidden: bool) -> bool:
        """Return whether the catalog is empty. Hidden entries count only if `hidden` is true."""
        query = "SELECT 1 FROM entries WHERE hidden <= ? LIMIT 1"
        return self._query_single_value(query, int(hidden)) is None

    def find_citations_of_targets_or_chunk(
        self, targets: Sequence[str], chunk: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Return the citations whose target is in `targets` or whose chunk is `chunk`, newest first."""
        wanted, values = f"target IN ({_make_sql_placeholders(targets)})", list(targets)
        if chunk is not None:
            wanted, values = f"{wanted} OR chunk = ?", [*values, chunk]
        return self._db.execute(
            f"SELECT * FROM citations WHERE {wanted} ORDER BY "
            "(SELECT created FROM entries WHERE id = conversation) DESC, "
            "conversation DESC, turn DESC, call",
            values,
        ).fetchall()

    def find_subject_citations_in_turns(
        self, turns: Iterable[tuple[str, int]]
    ) -> list[CitationWithGivenSubjectText]:
        """Return the citations of subjects in the given turns.

        A turn is a pair of its conversation's id and its number.
        """
        query = (
            f"SELECT {_GIVEN_TEXT_COLUMNS} FROM citations "
            "WHERE conversation = ? AND turn = ? AND kind = 'subject'"
        )
        return [
            CitationWithGivenSubjectText(*row)
            for turn in turns
            for row in self._db.execute(query, turn)
        ]

    def list_one_citation_per_given_text(self) -> list[CitationWithGivenSubjectText]:
        """For each subject, return one citation for each different text that turns were given."""
        query = (
            f"SELECT {_GIVEN_TEXT_COLUMNS} FROM citations WHERE kind = 'subject' "
            "GROUP BY target, extent, given"
        )
        return [CitationWithGivenSubjectText(*row) for row in self._db.execute(query)]

    def list_citations_of_targets(
        self, targets: Iterable[str]
    ) -> list[CitationWithGivenSubjectText]:
        """Return all citations of the subjects that `targets` identifies, newest first."""
        query = (
            f"SELECT {_GIVEN_TEXT_COLUMNS} FROM citations WHERE kind = 'subject' "
            "AND target IN (SELECT value FROM json_each(?)) ORDER BY coalesce("
            "timestamp, (SELECT created FROM entries WHERE id = conversation)) DESC, "
            "conversation DESC, turn DESC, call"
        )
        rows = self._db.execute(query, [json.dumps(list(targets))])
        return [CitationWithGivenSubjectText(*row) for row in rows]

    def iterate_chunks_to_embed(self) -> Iterator[tuple[int, str, bytes]]:
        """Yield the number, entry id and vector hash of every chunk that needs a vector."""
        yield from self._db.execute("SELECT number, entry_id, hash FROM chunks WHERE embed = 1")

    def list_chunks_with_published_vector(self, database: Path) -> list[tuple[int, str]]:
        """Return the numbers and entry ids of the chunks whose vectors are in a published table.

        The table `published_rows` in `database` contains the chunk id and the vector hash of each published vector.
        """
        with self._attach_library_mirror_database(database):
            return self._db.execute(
                "SELECT chunks.number, chunks.entry_id FROM mirror.published_rows AS published "
                "JOIN chunks ON chunks.id = published.id AND chunks.hash = published.hash "
                "WHERE chunks.embed"
            ).fetchall()

    def list_chunks_of_published_rows(
        self, database: Path, state: str, rows: Collection[int]
    ) -> list[tuple[int, int, str, str]]:
        """Look up the rows with the ids `rows` of a published table, and return their chunks.

        Each chunk is returned as `(row id, chunk number, entry id, chunk id)`. The result is empty
        unless `database` contains the rows of the table version that `state` identifies.
        """
        query = (
            "SELECT published.row, chunks.number, chunks.entry_id, chunks.id "
            "FROM mirror.published_rows AS published JOIN chunks ON chunks.id = published.id "
            f"WHERE published.row IN ({_make_sql_placeholders(rows)}) "
            "AND ? = (SELECT value FROM mirror.state WHERE key = 'published_rows')"
        )
        with self._attach_library_mirror_database(database):
            return self._db.execute(query, [*rows, state]).fetchall()

    @contextmanager
    def _attach_library_mirror_database(self, database: Path) -> Iterator[None]:
        self._db.execute("ATTACH ? AS mirror", (f"{database.absolute().as_uri()}?mode=ro",))
        try:
            yield
        finally:
            self._db.execute("DETACH mirror")

    def count_embeddable_chunks(self, *, hidden: bool) -> int:
        """Count the chunks that need a vector; those of hidden entries count only if `hidden` is true."""
        query = (
            "SELECT count(*) FROM chunks JOIN entries ON entries.id = entry_id "
            "WHERE embed AND hidden <= ?"
        )
        return int(self._query_single_value(query, int(hidden)))

    def has_embeddable_chunks_since(self, seq: int) -> bool:
        """Return whether a chunk that needs a vector was written after transaction `seq`."""
        query = "SELECT 1 FROM chunks WHERE seq > ? AND embed = 1 LIMIT 1"
        return self._query_single_value(query, seq) is not None

    def sort_entries_for_embedding(self, ids: Collection[str]) -> list[str]:
        """Sort entry ids into the order in which to embed the entries: first subjects, then conversations.

        In each group, the entry that changed last comes first.
        """
        return self._query_first_column(
            "SELECT id FROM entries WHERE id IN (SELECT value FROM json_each(?)) "
            "ORDER BY kind = 'conversation', changed DESC, id",
            json.dumps(list(ids)),
        )
