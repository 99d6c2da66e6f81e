"""The query log: an SQLite file with a row for each search and for each opened hit."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kbtui.dates import DAY_SECONDS, format_unix_time_as_iso
from kbtui.errors import WorkspaceError
from kbtui.file_reading_and_writing import delete_database_files
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import Notice
from kbtui.terminal_text import replace_surrogates
from kbtui.userdata.user_data_sqlite_file import UserDataSqliteFile

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.search.search_request_and_answer import SearchAnswer
    from kbtui.workspace import Settings, Workspace

LOG_SECONDS = 0.05
"""If another process is writing to the log, a search waits at most this many seconds.

After this time, the search is not logged.
"""
REPLACE_SECONDS = 600.0
"""A query replaces its incomplete form in the log, unless that form was logged more than this many seconds ago."""
QUERY_CHARACTERS = 1000
"""A query with more than this many characters is cut before it is logged."""
_HINT = "`kbtui insights erase` replaces the file with an empty log"

_TABLES = """
CREATE TABLE IF NOT EXISTS searches (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, query TEXT NOT NULL, key TEXT NOT NULL,
  mode TEXT NOT NULL, filters TEXT NOT NULL DEFAULT '', result_count INTEGER NOT NULL,
  is_gap INTEGER NOT NULL DEFAULT 0, origin TEXT NOT NULL CHECK (origin IN ('sdk', 'dashboard', 'cli', 'mcp')),
  caller TEXT, milliseconds REAL, is_meaning_only INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS searches_at ON searches (at);
CREATE TABLE IF NOT EXISTS opened_hits (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, query TEXT NOT NULL, ref TEXT NOT NULL,
  chunk TEXT NOT NULL, rank INTEGER NOT NULL
)
"""
_UPGRADES = (
    # Version 0.1 counted the hits that contained a word of the query.
    """
ALTER TABLE searches ADD COLUMN filters TEXT NOT NULL DEFAULT '';
ALTER TABLE searches ADD COLUMN is_gap INTEGER NOT NULL DEFAULT 0;
UPDATE searches SET is_gap = (result_count = 0 OR coalesce(keyword_count = 0, 0))
""",
    # Version 0.2 did not record whether any hit contained the words of the query.
    "ALTER TABLE searches ADD COLUMN is_meaning_only INTEGER NOT NULL DEFAULT 0",
    # Version 0.3 did not record which hits the user opened.
    """
CREATE TABLE opened_hits (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, query TEXT NOT NULL, ref TEXT NOT NULL,
  chunk TEXT NOT NULL, rank INTEGER NOT NULL
)
""",
)


class QueryWithSearchCount(NamedTuple):
    """A query in the log, and how often it was searched for.

    * `last` is the time of the last search for this query, in Unix seconds.
    * `results` is the number of hits in the last search.
    * `filters` are the filters of the last search.
    * `is_meaning_only` means that none of these hits contains the words of the query.
    """

    query: str
    times: int
    last: float
    results: int
    filters: str = ""
    is_meaning_only: bool = False

    @property
    def last_result_count_text(self) -> str:
        """The number of hits in the last search, as text."""
        if self.is_meaning_only:
            return f"0 with these words, {self.results:,} by meaning"
        return f"{self.results:,} found"

    def as_json(self) -> dict[str, object]:
        """Return the query as a JSON object with the documented keys."""
        return {
            "query": self.query,
            "times": self.times,
            "last_asked_at": format_unix_time_as_iso(self.last),
            "last_result_count": self.results,
            "last_filters": self.filters,
            "last_meaning_only": self.is_meaning_only,
        }


class OpenedHit(NamedTuple):
    """A hit that the user opened. `rank` is its position among the hits, counted from 1."""

    query: str
    ref: str
    chunk_id: str
    rank: int


class SearchLogSummary(NamedTuple):
    """A summary of several days' searches. `gaps` are the queries without a good match."""

    total: int
    top: list[QueryWithSearchCount]
    gaps: list[QueryWithSearchCount]
    by_day: dict[str, int]
    by_origin: dict[str, int]


def log_search_answer(
    workspace: Workspace,
    settings: Settings,
    answer: SearchAnswer,
    origin: str,
    caller: str | None = None,
    milliseconds: float | None = None,
    replaces: str = "",
) -> Notice | None:
    """Log a search if the settings allow it. Never raises.

    Returns a notice if the log is damaged. The parameters after `answer` have the same meaning as
    in `QueryLog.log_search`.
    """
    if settings.query_log and answer.query.strip() and not answer.mistakes:
        damage = QueryLog(workspace.user_data_directory / "queries.sqlite").log_search(
            answer.query, answer.mode, answer.total, origin, caller, milliseconds,
            filters=answer.filters, is_gap=answer.is_gap,
            is_meaning_only=answer.has_notice("meaning_only"), replaces=replaces,
        )  # fmt: skip
        if damage is not None:
            return Notice("search_not_logged", {"detail": damage})
    return None


class QueryLog:
    """The logged searches of one workspace, and the hits that were opened.

    If another process keeps the log locked, searches are not logged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = UserDataSqliteFile(path, _TABLES, hint=_HINT, sync=False, upgrades=_UPGRADES)

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
        is_meaning_only: bool = False,
        replaces: str = "",
        at: float | None = None,
    ) -> str | None:
        """Log a search. Never raises.

        If another process keeps the log locked, the search is not logged. If the file is damaged,
        nothing is logged until the log is erased, and this method returns a description of the
        damage.

        * `origin` is `sdk`, `dashboard` (the TUI), `cli` or `mcp`.
        * `is_gap` means that the search found nothing useful. A search without hits is always a
          gap.
        * `is_meaning_only` means that no hit contains the words of the query.
        * `replaces` is the incomplete query that was logged earlier, while the user was still
          typing. The last logged search for this query with the same origin is deleted, unless that
          search is older than `REPLACE_SECONDS`.
        * `at` is the time of the search in Unix seconds; None means now.
        """
        query = query[:QUERY_CHARACTERS]
        texts = [replace_surrogates(text) for text in (query, filters, caller or "")]
        at = time.time() if at is None else at
        row = (
            at, texts[0], normalize_query(texts[0]), mode, texts[1], result_count,
            is_gap or result_count == 0, origin, texts[2] or None, milliseconds, is_meaning_only,
        )  # fmt: skip
        # `ValueError`: a path contains NUL. `OverflowError`: SQLite cannot hold a number.
        try:
            with (
                contextlib.suppress(ValueError, OverflowError),
                self.file.open_write_transaction(LOG_SECONDS) as db,
            ):
                if replaces:
                    db.execute(
                        "DELETE FROM searches WHERE id = (SELECT max(id) FROM searches "
                        "WHERE key = ? AND origin = ? AND at >= ?)",
                        (
                            normalize_query(replace_surrogates(replaces)),
                            origin,
                            at - REPLACE_SECONDS,
                        ),
                    )
                db.execute(
                    "INSERT INTO searches (at, query, key, mode, filters, result_count, is_gap, "
                    "origin, caller, milliseconds, is_meaning_only) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
        except WorkspaceError as error:
            if _is_database_damage_error(error.__cause__):
                return str(error)
        return None

    def log_opened_hit(self, hit: OpenedHit, at: float | None = None) -> None:
        """Log that the user opened a hit. Never raises.

        `at` is the time in Unix seconds; None means now.
        """
        texts = [replace_surrogates(text) for text in (hit.query[:QUERY_CHARACTERS], hit.ref)]
        with (
            contextlib.suppress(ValueError, OverflowError, WorkspaceError),
            self.file.open_write_transaction(LOG_SECONDS) as db,
        ):
            db.execute(
                "INSERT INTO opened_hits (at, query, ref, chunk, rank) VALUES (?, ?, ?, ?, ?)",
                (time.time() if at is None else at, *texts, hit.chunk_id, hit.rank),
            )

    def list_opened_hits(self) -> list[OpenedHit]:
        """Return the hits that the user opened, newest first.

        Raises `WorkspaceError` if the log cannot be read.
        """
        rows = self.file.select_rows(
            "SELECT query, ref, chunk, rank FROM opened_hits ORDER BY id DESC"
        )
        return [OpenedHit(*row) for row in rows]

    def remove_old_logged_searches(self, days: int, now: float | None = None) -> int:
        """Remove searches and opened hits that are older than `days` days. Never raises.

        Searches that are dated too far in the future, because a clock was wrong, are also removed.
        Returns how many searches were removed.
        """
        now = time.time() if now is None else now
        span = max(0, days) * DAY_SECONDS
        times = (now - span, now + span + DAY_SECONDS)
        if self.path.exists():
            with contextlib.suppress(WorkspaceError), self.file.open_write_transaction() as db:
                db.execute("DELETE FROM opened_hits WHERE at < ? OR at > ?", times)
                return db.execute("DELETE FROM searches WHERE at < ? OR at > ?", times).rowcount
        return 0

    def delete_all_logged_searches(self) -> int:
        """Erase all searches and opened hits from the disk. Return how many searches were erased.

        If the file is damaged, it is deleted, and its searches are not counted.
        """
        if not self.path.exists():
            return 0
        with self.file.convert_sqlite_errors("delete the file"):
            try:
                return self._delete_searches_from_disk()
            except sqlite3.DatabaseError as error:
                if not _is_database_damage_error(error):
                    raise
                delete_database_files(self.file.path)
                return 0

    def _delete_searches_from_disk(self) -> int:
        with contextlib.closing(self.file.connect_to_database()) as db:
            db.execute("PRAGMA secure_delete=ON")
            db.execute("DELETE FROM opened_hits")
            count = db.execute("DELETE FROM searches").rowcount
            db.execute("VACUUM")
            # The queries stay on the disk until the write-ahead log is emptied, too.
            if db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise sqlite3.OperationalError("another process is reading the log; try again")
            return count

    def list_recent_tui_queries(self) -> list[str]:
        """Return the last 50 different queries from the TUI, newest first."""
        statement = (
            "SELECT query, max(at) AS last FROM searches WHERE origin = 'dashboard' GROUP BY key "
            "ORDER BY last DESC, query LIMIT 50"
        )
        return [row[0] for row in self.file.select_rows(statement)]

    def compute_search_statistics(
        self, days: int = 30, limit: int = 10, now: float | None = None
    ) -> SearchLogSummary:
        """Summarize the searches in the last `days` days; each list contains at most `limit` queries.

        Queries that differ only in case and spacing count as one. A gap is a query whose last
        search without filters had no good match. Searches with filters do not count as gaps,
        because the filters may have excluded the match. Raises `WorkspaceError` if the log cannot
        be read.
        """
        dates = list_last_local_dates(time.time() if now is None else now, days)
        since = get_local_midnight(dates[0])

        def group_logged_queries(rows: str, queries: str) -> list[QueryWithSearchCount]:
            # SQLite takes the columns without an aggregate from the row with the `max()`.
            statement = (
                "SELECT query, times, last, found, filters, is_meaning_only "
                "FROM (SELECT query, count(*) AS times, max(at) AS last, result_count AS found, "
                f"filters, is_gap, is_meaning_only FROM searches WHERE at >= ? {rows} GROUP BY key) "
                f"{queries} ORDER BY times DESC, last DESC, query LIMIT ?"
            )
            found = self.file.select_rows(statement, since, limit)
            return [
                QueryWithSearchCount(*row)._replace(is_meaning_only=bool(row[5])) for row in found
            ]

        def count_searches_by(column: str) -> dict[str, int]:
            statement = (
                f"SELECT {column}, count(*) FROM searches WHERE at >= ? GROUP BY 1 ORDER BY 1"
            )
            return dict(self.file.select_rows(statement, since))

        by_day = count_searches_by("date(at, 'unixepoch', 'localtime')")
        by_origin = count_searches_by("origin")
        return SearchLogSummary(
            total=sum(by_origin.values()),
            top=group_logged_queries("", ""),
            gaps=group_logged_queries("AND filters = ''", "WHERE is_gap"),
            by_day={date: by_day.get(date, 0) for date in dates},
            by_origin=by_origin,
        )


def _is_database_damage_error(error: BaseException | None) -> bool:
    # The subclass `OperationalError` has other causes, such as a locked file or a full disk.
    is_operational = isinstance(error, sqlite3.OperationalError)
    return isinstance(error, sqlite3.DatabaseError) and not is_operational


def normalize_query(query: str) -> str:
    """Return the form in which queries are compared: in lower case, with single spaces."""
    return " ".join(query.casefold().split())


def list_last_local_dates(now: float, days: int) -> list[str]:
    """Return `days` local dates in ISO format, oldest first. The last one is the date of `now`."""
    last = datetime.fromtimestamp(now).date()
    return [(last - timedelta(days=back)).isoformat() for back in range(max(1, days) - 1, -1, -1)]


def get_local_midnight(date: str) -> float:
    """Return the time, in Unix seconds, at which the local day `date` begins. `date` is in ISO format."""
    return datetime.fromisoformat(date).timestamp()
