"""Small SQLite files under the data directory: opened for one piece of work, closed after it.

A connection that is never kept needs no thinking about threads, forks or a file
that somebody deleted; opening one takes a fraction of a millisecond.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kbtui.errors import WorkspaceError
from kbtui.workspace.paths import make_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

BUSY_SECONDS = 5.0
"""How long a write waits for another process's write."""


class Store:
    """One file with its tables. `sync` false never waits for the disk (for what may be lost).

    `upgrades` has for each earlier version, from 1 on, the statements that lead to the next.
    """

    def __init__(
        self, path: Path, tables: str, *, sync: bool, upgrades: Sequence[str] = ()
    ) -> None:
        self.path = path
        self._tables, self._sync, self._upgrades = tables, sync, upgrades

    @contextmanager
    def writing(self, wait: float = BUSY_SECONDS) -> Iterator[sqlite3.Connection]:
        """A transaction that lasts when the block ends well; the file is made when missing.

        `wait`: seconds to wait for other writers. Raises `sqlite3.Error` or `OSError`.
        """
        make_private(self.path.parent)
        with closing(self._connect(wait)) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection to read from; None where there is no file yet. Raises `sqlite3.Error`."""
        if not self.path.exists():
            yield None
            return
        with closing(self._connect(BUSY_SECONDS)) as db:
            yield db

    def _connect(self, wait: float) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=wait, isolation_level=None)
        try:
            db.execute(f"PRAGMA synchronous={'NORMAL' if self._sync else 'OFF'}")
            if _version(db) <= len(self._upgrades):
                self._make(db)
        except BaseException:
            db.close()
            raise
        return db

    def _make(self, db: sqlite3.Connection) -> None:
        self.path.chmod(0o600)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("BEGIN IMMEDIATE")
        # Looked at again: another process may have made the tables meanwhile.
        version = _version(db)
        for script in self._upgrades[version - 1 :] if version else [self._tables]:
            for statement in script.split(";"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version={1 + len(self._upgrades)}")
        db.execute("COMMIT")

    def files(self) -> list[Path]:
        """The file and what SQLite keeps beside it."""
        return [self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))]


def _version(db: sqlite3.Connection) -> int:
    """The version of its tables; 0 for a new file."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def explained(path: Path, hint: str) -> Iterator[None]:
    """Turn what SQLite and the system say into a `WorkspaceError` that names the file."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WorkspaceError(
            f"the journal cannot be used: {reason}", where=str(path), hint=hint
        ) from error


def text(value: str) -> str:
    """Text that SQLite takes: without lone surrogates, which file names and JSON can hold."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
