"""Reads agents' SQLite databases, which may be in use, without writing to them."""

from __future__ import annotations

import os
import stat
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import WorkspaceError
from kbtui.file_reading_and_writing import FileState, read_inode_size_and_mtime

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

LOCK_SECONDS = 1.0
"""If an agent has locked the database, a query waits for at most this many seconds."""
_MAGIC = b"SQLite format 3\0"
_WAL_VERSION = 2

DatabaseState = tuple[FileState | None, ...]
"""The states of two files: a database and its write-ahead log. The state of a missing file is None."""


def read_database_state(path: str) -> DatabaseState:
    """Return the state of a database's files, which changes whenever the database changes."""
    return tuple(read_inode_size_and_mtime(f"{path}{suffix}") for suffix in ("", "-wal"))


@contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """Open a database for reading; yield a connection whose rows map column names to values.

    Raises `WorkspaceError` if the database cannot be opened, or if a query within the block fails.
    """
    # Import this only here: completion lists the conversations of all agents, and few agents use
    # databases.
    import sqlite3

    try:
        with closing(
            sqlite3.connect(_check_and_make_database_uri(path), timeout=LOCK_SECONDS, uri=True)
        ) as database:
            database.row_factory = sqlite3.Row
            # An agent may store bytes that are not UTF-8; the default raises an error for them.
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            yield database
    except sqlite3.Error as error:
        raise WorkspaceError(str(error), where=path) from error
    except FileNotFoundError:
        raise WorkspaceError("there is no such file", where=path) from None
    except OSError as error:
        raise WorkspaceError((error.strerror or str(error)).lower(), where=path) from error


def _check_and_make_database_uri(path: str) -> str:
    """Check a database file. Return a URI that opens the database for reading.

    Opening this URI creates no other file.
    """
    status = os.stat(path)  # noqa: PTH116
    if not stat.S_ISREG(status.st_mode):
        raise WorkspaceError("this is not a file", where=path)
    with Path(path).open("rb") as file:
        header = file.read(20)
    if not header:
        raise WorkspaceError("the file is empty", where=path)
    if not header.startswith(_MAGIC) or len(header) < 20:
        raise WorkspaceError("the file is not an SQLite database", where=path)
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    if header[18] != _WAL_VERSION:
        return uri
    log = read_inode_size_and_mtime(f"{path}-wal")
    if log is not None and read_inode_size_and_mtime(f"{path}-shm") is not None:
        return uri
    if log is not None and log[1]:
        raise WorkspaceError(
            "the last changes are in a log file that only the agent can apply",
            where=path,
            hint="start the agent once, so that it applies them",
        )
    # No process has the database open, and this one file contains everything. Without `immutable`,
    # SQLite would create its `-wal` and `-shm` files, and would leave them there.
    return f"{uri}&immutable=1"


def list_table_columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns; the set is empty if there is no such table."""
    return {row["name"] for row in database.execute(f'PRAGMA table_info("{table}")')}


def format_select_columns(table: str, wanted: tuple[str, ...], existing: set[str]) -> str:
    """Return the column list of a SELECT statement.

    NULL takes the place of each wanted column that is not in `existing`.
    """
    return ", ".join(
        f'"{table}"."{name}" AS "{name}"' if name in existing else f'NULL AS "{name}"'
        for name in wanted
    )
