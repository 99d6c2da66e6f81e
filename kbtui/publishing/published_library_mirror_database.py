"""The database of a mirror: the mirror's state, its vectors, the tables of contents of parts, and the checksums of entries."""

from __future__ import annotations

import errno
import json
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.file_reading_and_writing import delete_database_files
from kbtui.index.embedding_cache import DAMAGE_CODES, VECTORS_TABLE
from kbtui.index.published_vector_table_search import PUBLISHED_ROWS_TABLE
from kbtui.workspace.paths import get_kbtui_data_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.publishing.published_library_format import EntryKey
    from kbtui.workspace.published_library_settings import PublishedLibraryMirrorPaths

_TABLES = f"""
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts (name TEXT PRIMARY KEY, contents BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, checksum TEXT NOT NULL) WITHOUT ROWID;
{VECTORS_TABLE};
{PUBLISHED_ROWS_TABLE};
"""


@contextmanager
def convert_mirror_errors(mirror: PublishedLibraryMirrorPaths) -> Iterator[None]:
    """Turn errors from the file system and SQLite into `KbtuiError`."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        code = getattr(error, "sqlite_errorcode", 0)
        is_full = code == sqlite3.SQLITE_FULL or (
            isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        )
        hint = (
            f"make {get_kbtui_data_directory()} writable, or set XDG_DATA_HOME to another directory"
        )
        raise KbtuiError(
            f"the mirror cannot be written: {(reason or str(error)).lower()}",
            where=str(mirror.directory),
            hint="free some space, then run the command again" if is_full else hint,
        ) from error


def open_mirror_database(mirror: PublishedLibraryMirrorPaths) -> sqlite3.Connection:
    """Open the database of a mirror, and create its tables. Replace a damaged database with an empty one."""
    try:
        return _connect_to_mirror_database(mirror)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode not in DAMAGE_CODES:
            raise
        # The file is damaged. Everything in it can be fetched again.
        delete_database_files(mirror.database)
        return _connect_to_mirror_database(mirror)


def _connect_to_mirror_database(mirror: PublishedLibraryMirrorPaths) -> sqlite3.Connection:
    db = sqlite3.connect(mirror.database, isolation_level=None, timeout=30)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_TABLES)
    except BaseException:
        db.close()
        raise
    return db


def read_value_from_mirror_state(db: sqlite3.Connection, key: str) -> str:
    """Return the value of `key` in the mirror's state, or "" if there is none."""
    row = db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def write_value_to_mirror_state(db: sqlite3.Connection, key: str, value: str) -> None:
    """Set the value of `key` in the mirror's state."""
    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))


def read_mirrored_entry_checksums(db: sqlite3.Connection) -> dict[EntryKey, str]:
    """Map the key of each mirrored entry to its checksum."""
    rows = db.execute("SELECT key, checksum FROM entries")
    return {tuple(json.loads(key)): checksum for key, checksum in rows}
