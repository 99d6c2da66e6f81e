"""`Journal`: one workspace's memory of what people and assistants did with it."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kbtui.userdata.query_log import QueryLog
from kbtui.userdata.store import Store, explained, text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from kbtui.userdata.models import Bookmark, Queries, Run
    from kbtui.workspace import Workspace

SESSION_CHARACTERS = 1_000_000

_TABLES = """
CREATE TABLE IF NOT EXISTS bookmarks (
  ref TEXT PRIMARY KEY, title TEXT NOT NULL, note TEXT NOT NULL, created REAL NOT NULL, changed REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, state TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS approvals (hash TEXT PRIMARY KEY, source TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
  source TEXT PRIMARY KEY, began REAL NOT NULL, ended REAL NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('ok', 'partial', 'error')), error TEXT,
  entries INTEGER NOT NULL, added INTEGER NOT NULL, updated INTEGER NOT NULL, removed INTEGER NOT NULL,
  unchanged INTEGER NOT NULL, problems TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fetched (source TEXT, url TEXT, facts TEXT NOT NULL, PRIMARY KEY (source, url)) WITHOUT ROWID
"""
_HINT = "look at the file's permissions and the space on its disk"


class UserData:
    """Opens nothing until asked; every call stands alone and may come from any thread.

    All times are Unix seconds. Everything but `log_search` and `sweep` raises
    `WorkspaceError` when the files cannot be used.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.directory = workspace.data_dir
        self.queries = QueryLog(self.directory / "queries.sqlite")
        self._store = Store(self.directory / "journal.sqlite", _TABLES, sync=True)

    # the query log

    def log_search(
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
    ) -> None:
        """Note a search; never raises, never waits: what cannot be written at once is dropped.

        `origin` is `sdk`, `dashboard` (the TUI), `cli` or `mcp`; `caller` says who
        asked, where that is known. `filters` are what narrowed the
        search, `is_gap` says that what was asked for seems to be missing.
        """
        self.queries.add(
            query,
            mode,
            result_count,
            origin,
            caller,
            milliseconds,
            filters=filters,
            is_gap=is_gap,
        )

    def sweep(self, days: int) -> int:
        """Remove searches older than `days`; returns how many. Never raises."""
        return self.queries.sweep(days)

    def erase(self) -> int:
        """Remove every search, so that no byte of a query is left; returns how many."""
        return self.queries.erase()

    def insights(self, days: int = 30, limit: int = 10) -> Queries:
        """What was searched in the last `days` days; lists have at most `limit` rows."""
        return self.queries.read(days, limit)

    def recent(self, limit: int = 50) -> list[str]:
        """What a person searched for in the TUI, as last spelled, newest first."""
        return self.queries.recent("dashboard", limit)

    # bookmarks

    def bookmark(self, ref: str, title: str = "", note: str = "") -> None:
        """Mark a place, or change the title and note of a marked one."""
        now = time.time()
        with self._writing() as db:
            db.execute(
                "INSERT INTO bookmarks VALUES (?, ?, ?, ?, ?) ON CONFLICT (ref) DO UPDATE "
                "SET title = excluded.title, note = excluded.note, changed = excluded.changed",
                (text(ref), text(title), text(note), now, now),
            )

    def unbookmark(self, ref: str) -> bool:
        """Take a mark away; says whether there was one."""
        with self._writing() as db:
            return db.execute("DELETE FROM bookmarks WHERE ref = ?", (text(ref),)).rowcount > 0

    def bookmarks(self) -> list[Bookmark]:
        """All marked places, newest first."""
        from kbtui.userdata.models import Bookmark

        rows = self._rows("SELECT * FROM bookmarks ORDER BY created DESC, ref")
        return [Bookmark(*row) for row in rows]

    # sessions

    def remember(self, name: str, state: dict[str, Any]) -> None:
        """Keep what a face wants to find again; `state` is JSON of at most a million characters."""
        kept = json.dumps(state)
        if len(kept) > SESSION_CHARACTERS:
            raise ValueError("the state is too large to remember")
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", (name, kept, time.time())
            )

    def remembered(self, name: str) -> dict[str, Any] | None:
        """What was kept under a name; None where there is nothing."""
        rows = self._rows("SELECT state FROM sessions WHERE name = ?", name)
        return json.loads(rows[0][0]) if rows else None

    # sources

    def approve(self, source: str, digest: str) -> None:
        """Note that the user approved the source's block of this hash."""
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO approvals VALUES (?, ?, ?)", (digest, source, time.time())
            )

    def approved(self, digest: str) -> float | None:
        """When the block of this hash was approved; None when it was not."""
        rows = self._rows("SELECT at FROM approvals WHERE hash = ?", digest)
        return rows[0][0] if rows else None

    def put_run(self, run: Run) -> None:
        """Note how a source's run ended, in place of the one before."""
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run.source, run.began, run.ended, run.status, text(run.error) if run.error else None,
                    run.entries, run.added, run.updated, run.removed, run.unchanged,
                    json.dumps(_report(run)),
                ),
            )  # fmt: skip

    def runs(self) -> dict[str, Run]:
        """The last run of each source, by its name."""
        from kbtui.userdata.models import Run

        rows = self._rows("SELECT * FROM runs")
        return {row[0]: Run(*row[:-1], **_parts(json.loads(row[-1]))) for row in rows}

    def fetched(self, source: str) -> dict[str, dict[str, Any]]:
        """What a source remembers of each address for its next run (`ETag`, links, …)."""
        rows = self._rows("SELECT url, facts FROM fetched WHERE source = ?", source)
        return {url: json.loads(facts) for url, facts in rows}

    def put_fetched(self, source: str, facts: dict[str, dict[str, Any]]) -> None:
        """Remember these addresses of a source, and no others."""
        with self._writing() as db:
            db.execute("DELETE FROM fetched WHERE source = ?", (source,))
            db.executemany(
                "INSERT INTO fetched VALUES (?, ?, ?)",
                [(source, text(url), json.dumps(value)) for url, value in facts.items()],
            )

    def forget_source(self, source: str) -> None:
        """Remove a source's approvals, run and memory."""
        with self._writing() as db:
            for table in ("approvals", "runs", "fetched"):
                db.execute(f"DELETE FROM {table} WHERE source = ?", (source,))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with explained(self._store.path, _HINT), self._store.writing() as db:
            yield db

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with explained(self._store.path, _HINT), self._store.reading() as db:
            return db.execute(statement, values).fetchall() if db else []


def _report(run: Run) -> dict[str, Any]:
    """What the column `problems` holds: all that a run names."""
    return {
        "problems": run.problems,
        "skipped": run.skipped,
        "skips": run.skips,
        "edited": run.edited,
    }


def _parts(report: Any) -> dict[str, Any]:
    """The fields of a run that `_report` gave; version 0.1 wrote a list of problems alone."""
    from kbtui.userdata.models import Skip

    if isinstance(report, list):
        report = {"problems": report}
    return {
        "problems": tuple(report["problems"]),
        "skipped": report.get("skipped", 0),
        "skips": tuple(Skip(*one) for one in report.get("skips", ())),
        "edited": tuple(report.get("edited", ())),
    }
