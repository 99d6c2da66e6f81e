"""The query log: one row a search, in a file of its own."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import TYPE_CHECKING

from kbtui.userdata.store import Store, explained, text

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.search.models import Answer
    from kbtui.userdata.models import Queries
    from kbtui.workspace import Settings, Workspace

ORIGINS = ("sdk", "dashboard", "cli", "mcp")
LOG_SECONDS = 0.05
"""How long a search may be held up by others that log at the same moment."""
QUERY_CHARACTERS = 1000

_TABLES = """
CREATE TABLE IF NOT EXISTS searches (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, query TEXT NOT NULL, key TEXT NOT NULL,
  mode TEXT NOT NULL, filters TEXT NOT NULL DEFAULT '', result_count INTEGER NOT NULL,
  is_gap INTEGER NOT NULL DEFAULT 0, origin TEXT NOT NULL CHECK (origin IN ('sdk', 'dashboard', 'cli', 'mcp')),
  caller TEXT, milliseconds REAL
);
CREATE INDEX IF NOT EXISTS searches_at ON searches (at)
"""
_UPGRADES = (
    # Version 0.1 counted the results that had a word of the query.
    """
ALTER TABLE searches ADD COLUMN filters TEXT NOT NULL DEFAULT '';
ALTER TABLE searches ADD COLUMN is_gap INTEGER NOT NULL DEFAULT 0;
UPDATE searches SET is_gap = (result_count = 0 OR coalesce(keyword_count = 0, 0))
""",
)
_HINT = "`kbtui insights erase` makes a new one"
_DAY = 86_400.0


def log_answer(
    workspace: Workspace,
    settings: Settings,
    answered: Answer,
    origin: str,
    caller: str | None = None,
    milliseconds: float | None = None,
) -> None:
    """Note a search in the query log, unless the settings forbid it; never fails.

    A query with a mistake was not searched, so it is not noted.
    """
    if not settings.query_log or not answered.query.strip() or answered.mistakes:
        return
    QueryLog(workspace.data_dir / "queries.sqlite").add(
        answered.query,
        answered.mode,
        answered.total,
        origin,
        caller,
        milliseconds,
        filters=answered.filters,
        is_gap=answered.is_gap,
    )


class QueryLog:
    """The searches of one workspace. What is logged may be lost; searching never suffers."""

    def __init__(self, path: Path) -> None:
        self._store = Store(path, _TABLES, sync=False, upgrades=_UPGRADES)

    @property
    def path(self) -> Path:
        """The file."""
        return self._store.path

    def add(
        self,
        query: str,
        mode: str,
        result_count: int,
        origin: str,
        caller: str | None = None,
        milliseconds: float | None = None,
        *,
        filters: str = "",
        is_gap: bool = False,
        at: float | None = None,
    ) -> None:
        """Log a search; what goes wrong is dropped. `at` is Unix seconds, by default now.

        `filters` are what narrowed it, as a query spells them. A search without results is a gap
        in any case.
        """
        query = text(query[:QUERY_CHARACTERS])
        row = (
            time.time() if at is None else at, query, key_of(query), mode, text(filters), result_count,
            is_gap or result_count == 0, origin, text(caller) if caller else None, milliseconds,
        )  # fmt: skip
        # ValueError: NUL in a path; OverflowError: a number that SQLite cannot hold.
        with (
            contextlib.suppress(sqlite3.Error, OSError, ValueError, OverflowError),
            self._store.writing(LOG_SECONDS) as db,
        ):
            db.execute(
                "INSERT INTO searches (at, query, key, mode, filters, result_count, is_gap, origin, caller, "
                "milliseconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def sweep(self, days: int, now: float | None = None) -> int:
        """Remove what is older than `days`, and what a wrong clock dated as far ahead.

        Returns how many rows went; a failure is dropped (the next sweep does it).
        """
        now = time.time() if now is None else now
        span = max(0, days) * _DAY
        if not self.path.exists():
            return 0
        with contextlib.suppress(sqlite3.Error, OSError), self._store.writing() as db:
            return db.execute(
                "DELETE FROM searches WHERE at < ? OR at > ?", (now - span, now + span + _DAY)
            ).rowcount
        return 0

    def erase(self) -> int:
        """Remove everything, so that no byte of a query is left; returns how many rows went.

        A damaged file is deleted. Raises `WorkspaceError`.
        """
        if not self.path.exists():
            return 0
        with explained(self.path, "delete the file"):
            try:
                return self._emptied()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                for path in self._store.files():
                    path.unlink(missing_ok=True)
                return 0

    def _emptied(self) -> int:
        with self._store.reading() as db:
            if db is None:
                return 0
            db.execute("PRAGMA secure_delete=ON")
            count = db.execute("DELETE FROM searches").rowcount
            db.execute("VACUUM")
            # Until the log of changes is emptied too, the words are still on the disk.
            if db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise sqlite3.OperationalError("others are reading it; try again")
            return count

    def recent(self, origin: str, limit: int) -> list[str]:
        """The last different queries of an origin, newest first. Raises `WorkspaceError`."""
        with explained(self.path, _HINT), self._store.reading() as db:
            if db is None:
                return []
            rows = db.execute(
                "SELECT query, max(at) AS last FROM searches WHERE origin = ? GROUP BY key "
                "ORDER BY last DESC, query LIMIT ?",
                (origin, limit),
            )
            return [row[0] for row in rows]

    def read(self, days: int, limit: int, now: float | None = None) -> Queries:
        """What was searched in the last `days` days: the most frequent, the gaps, each day.

        Queries count as equal without regard to case and spacing. A gap is one whose last
        search without filters found nothing that fits: with filters, what was asked for may well
        be there. Raises `WorkspaceError`.
        """
        from kbtui.userdata.models import AskedQuery, Queries, days_until, start_of

        now = time.time() if now is None else now
        dates = days_until(now, days)
        found = Queries(total=0, top=[], gaps=[], by_day=dict.fromkeys(dates, 0), by_origin={})
        with explained(self.path, _HINT), self._store.reading() as db:
            if db is None:
                return found
            since = start_of(dates)
            # With max(), SQLite takes the other columns from the row that has the maximum.
            grouped = (
                "SELECT query, count(*) AS times, max(at) AS last, result_count AS found, filters, "
                "is_gap FROM searches WHERE at >= ? {} GROUP BY key"
            )

            def asked(rows: str, queries: str) -> list[AskedQuery]:
                found = db.execute(
                    f"SELECT query, times, last, found, filters FROM ({grouped.format(rows)}) "
                    f"{queries} ORDER BY times DESC, last DESC, query LIMIT ?",
                    (since, limit),
                )
                return [AskedQuery(*row) for row in found]

            found.top, found.gaps = asked("", ""), asked("AND filters = ''", "WHERE is_gap")
            found.total = db.execute(
                "SELECT count(*) FROM searches WHERE at >= ?", (since,)
            ).fetchone()[0]
            found.by_origin = dict(
                db.execute(
                    "SELECT origin, count(*) FROM searches WHERE at >= ? GROUP BY origin ORDER BY origin",
                    (since,),
                )
            )
            for day, count in db.execute(
                "SELECT date(at, 'unixepoch', 'localtime') AS day, count(*) FROM searches WHERE at >= ? "
                "GROUP BY day",
                (since,),
            ):
                if day in found.by_day:
                    found.by_day[day] = count
        return found


def key_of(query: str) -> str:
    """What equal queries have in common: their words without case and spacing."""
    return " ".join(query.casefold().split())
