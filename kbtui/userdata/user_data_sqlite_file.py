"""Small SQLite files in the data directory. They also store when their records were removed.

No connection stays open, because opening one takes only a fraction of a millisecond. Therefore
threads, forks and deleted files need no special handling.

The times of removals prevent an import from restoring a record that was removed after the export.
Each change or removal gets a later time than the version or removal before it. Therefore, when data
is merged, the user's last action wins, even if a clock was wrong.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from kbtui.errors import DamagedUserDataFileError, WorkspaceError
from kbtui.terminal_text import replace_surrogates
from kbtui.workspace.paths import make_private_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


BUSY_SECONDS = 5.0
"""A write waits at most this many seconds for another process to finish writing."""


_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class UserDataSqliteFile:
    """A small SQLite file.

    If `sync` is false, a write returns before its data is on the disk.
    """

    def __init__(
        self,
        path: Path,
        tables: str,
        *,
        hint: str,
        sync: bool,
        damage_hint: str = "",
        upgrades: Sequence[str] = (),
    ) -> None:
        # `upgrades` contains a script for each earlier version of the tables, from version 1 on.
        self.path, self._tables, self._hint = path, tables, hint
        self._damage_hint = damage_hint or hint
        self._sync, self._upgrades = sync, upgrades

    @contextmanager
    def open_write_transaction(self, wait: float = BUSY_SECONDS) -> Iterator[sqlite3.Connection]:
        """Open a transaction. Commit it after the `with` block, or undo it if the block raises.

        Waits at most `wait` seconds while another process is writing.
        """
        with self.convert_sqlite_errors():
            make_private_directory(self.path.parent)
            with closing(self.connect_to_database(wait)) as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                except BaseException:
                    db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")

    @contextmanager
    def open_for_reading(self) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection for several queries, or None if the file does not exist yet."""
        with self.convert_sqlite_errors():
            if not self.path.exists():
                yield None
                return
            with closing(self.connect_to_database()) as db:
                yield db

    def select_rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query, or an empty list if the file does not exist yet."""
        with self.open_for_reading() as db:
            return [] if db is None else db.execute(statement, values).fetchall()

    def connect_to_database(self, wait: float = BUSY_SECONDS) -> sqlite3.Connection:
        """Open the file and create or upgrade its tables. Raises `sqlite3.Error` or `OSError`."""
        db = sqlite3.connect(self.path, timeout=wait, isolation_level=None)
        try:
            db.execute(f"PRAGMA synchronous={'NORMAL' if self._sync else 'OFF'}")
            if _read_sqlite_schema_version(db) <= len(self._upgrades):
                self._create_or_upgrade_tables(db)
        except BaseException:
            db.close()
            raise
        return db

    def _create_or_upgrade_tables(self, db: sqlite3.Connection) -> None:
        self.path.chmod(0o600)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("BEGIN IMMEDIATE")
        # Read again inside the transaction: another process may have created the tables by now.
        version = _read_sqlite_schema_version(db)
        for script in self._upgrades[version - 1 :] if version else [self._tables]:
            for statement in script.split(";"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version={1 + len(self._upgrades)}")
        db.execute("COMMIT")

    def copy_database_to(self, target: Path) -> None:
        """Copy the committed content into a new file. Raises `WorkspaceError`."""
        with (
            self.convert_sqlite_errors(),
            closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy)
        target.chmod(0o600)

    def check_database_file(self) -> None:
        """Raise `WorkspaceError` if the file is damaged or cannot be read."""
        for (found,) in self.select_rows("PRAGMA quick_check(1)"):
            if found != "ok":
                raise self.make_damage_error(found)

    def make_damage_error(self, reason: str) -> DamagedUserDataFileError:
        """Return the error for a damaged file. `reason` says what is wrong; the hint says what to do."""
        message = f"the file is damaged: {reason}"
        return DamagedUserDataFileError(message, where=str(self.path), hint=self._damage_hint)

    @contextmanager
    def convert_sqlite_errors(self, hint: str = "") -> Iterator[None]:
        """Convert errors from SQLite and the operating system to `WorkspaceError`s with the file's path."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if getattr(error, "sqlite_errorcode", None) in _DAMAGE_CODES and not hint:
                raise self.make_damage_error(reason) from error
            message = f"kbtui cannot use this file: {reason}"
            raise WorkspaceError(message, where=str(self.path), hint=hint or self._hint) from error


def commit_all_transactions_or_none(
    transactions: Sequence[tuple[UserDataSqliteFile, sqlite3.Connection, Path]],
) -> None:
    """Commit transactions in several files. If a commit fails, undo the earlier commits.

    `transactions` contains each file, its connection, and the path of a copy of the file from
    before the transaction. Raises `WorkspaceError`.
    """
    committed: list[tuple[UserDataSqliteFile, sqlite3.Connection, Path]] = []
    try:
        for one in transactions:
            with one[0].convert_sqlite_errors():
                one[1].execute("COMMIT")
            committed.append(one)
    except BaseException:
        for file, db, copy in committed:
            with file.convert_sqlite_errors(), closing(sqlite3.connect(copy)) as source:
                source.backup(db)
        raise


def _read_sqlite_schema_version(db: sqlite3.Connection) -> int:
    """Return the version of the tables, or 0 for a new file."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


REMOVALS_TABLE = """
CREATE TABLE IF NOT EXISTS removals (
  kind TEXT, id TEXT, at REAL NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID
"""
_MOMENT = 1e-6
"""A microsecond, in seconds. A `float` with a Unix time cannot express much shorter intervals."""


def store_removal_times_of_user_records(
    db: sqlite3.Connection, kind: str, removed: Iterable[tuple[str, float]]
) -> None:
    """Store the current time as the removal time of records.

    `removed` contains the id of each record and the time of its last change. If this time is in the
    future, the removal time is slightly later than it.
    """
    now = time.time()
    rows = [(kind, name, max(now, changed + _MOMENT)) for name, changed in removed]
    db.executemany("INSERT OR REPLACE INTO removals VALUES (?, ?, ?)", rows)


def remove_user_record_and_store_removal_time(
    db: sqlite3.Connection, kind: str, table: str, key: str, time_column: str, name: str
) -> bool:
    """Remove the record `name` from a table, and store the time of the removal.

    Return False if there is no such record.
    """
    name = replace_surrogates(name)
    select = f"SELECT {key}, {time_column} FROM {table} WHERE {key} = ?"
    store_removal_times_of_user_records(db, kind, db.execute(select, (name,)).fetchall())
    return db.execute(f"DELETE FROM {table} WHERE {key} = ?", (name,)).rowcount > 0


def choose_change_time_of_user_record(
    db: sqlite3.Connection, kind: str, name: str, earlier: tuple[float] | None
) -> float:
    """Return the time, in Unix seconds, to store for a change that is made now.

    The time is later than the record's stored version and its removal. `earlier` contains the time
    of the stored version; it is None if no version is stored. If the record was removed earlier,
    the removal is forgotten.
    """
    values = (kind, name)
    removed = db.execute("SELECT at FROM removals WHERE kind = ? AND id = ?", values).fetchone()
    db.execute("DELETE FROM removals WHERE kind = ? AND id = ?", values)
    known = [row[0] + _MOMENT for row in (earlier, removed) if row is not None]
    return max([time.time(), *known])
