"""The catalog's tables, and the records that their rows are."""

from __future__ import annotations

import json
from typing import Any

from kbtui.index.models import Chunk, Entry

VERSION = 11
"""Part of the generation's fingerprint: change it with the tables."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, title TEXT NOT NULL, signature TEXT NOT NULL,
  path TEXT NOT NULL, type TEXT NOT NULL, topic TEXT, slug TEXT, conversation TEXT,
  tags TEXT NOT NULL, source_url TEXT, created REAL NOT NULL, changed REAL NOT NULL,
  size INTEGER NOT NULL, hidden INTEGER NOT NULL, archived INTEGER NOT NULL, error TEXT,
  stat TEXT NOT NULL, seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX entries_seq ON entries (seq);
CREATE TABLE sums (entry_id TEXT PRIMARY KEY, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE gone (entry_id TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE chunks (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, entry_id TEXT NOT NULL,
  ordinal INTEGER NOT NULL, text TEXT NOT NULL, first_line INTEGER, last_line INTEGER,
  turn INTEGER, role TEXT, tool TEXT, timestamp REAL, embed INTEGER NOT NULL, hash BLOB,
  call INTEGER, args TEXT, seq INTEGER NOT NULL
);
CREATE INDEX chunks_entry ON chunks (entry_id, ordinal);
CREATE INDEX chunks_seq ON chunks (seq);
CREATE TABLE dropped (number INTEGER PRIMARY KEY, seq INTEGER NOT NULL);
CREATE INDEX dropped_seq ON dropped (seq);
CREATE TABLE marks (entry_id TEXT PRIMARY KEY, mark TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE citations (
  conversation TEXT NOT NULL, turn INTEGER NOT NULL, call INTEGER, how TEXT NOT NULL,
  kind TEXT NOT NULL, target TEXT NOT NULL, title TEXT NOT NULL, tool TEXT NOT NULL,
  timestamp REAL, chunk TEXT, score REAL
);
CREATE INDEX citations_target ON citations (target);
CREATE INDEX citations_source ON citations (conversation, turn);
"""

ENTRY = (
    "id, kind, title, signature, path, type, topic, slug, conversation, tags, source_url, "
    "created, changed, size, hidden, archived, error, stat"
)
CHUNK = (
    "number, id, ordinal, text, first_line, last_line, turn, role, tool, timestamp, embed, hash, "
    "call, args"
)


def entry_of(row: tuple[Any, ...]) -> Entry:
    """The entry that a row of `ENTRY` is."""
    values = list(row)
    values[9] = [] if values[9] == "[]" else json.loads(str(values[9]))
    values[14], values[15] = bool(values[14]), bool(values[15])
    (id_, kind, title, signature, path, type_, topic, slug, conversation, *rest) = values
    return Entry(id_, kind, title, signature, path, type_, topic, slug, conversation, *rest)


def chunk_of(row: tuple[Any, ...]) -> Chunk:
    """The chunk that a row beginning with `CHUNK` is."""
    (number, id_, ordinal, text, first, last, turn, role, tool, timestamp, embed, mark, call,
     args) = row[:14]  # fmt: skip
    return Chunk(
        id=id_,
        text=text,
        ordinal=ordinal,
        lines=(first, last) if first is not None else None,
        turn=turn,
        role=role,
        tool=tool,
        timestamp=timestamp,
        embed=bool(embed),
        number=number,
        vector_hash=mark,
        call=call,
        args=json.loads(args) if args else None,
    )
