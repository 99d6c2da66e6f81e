"""`UserData`: reads and writes the data of a workspace that kbtui cannot rebuild from files."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from kbtui.dates import format_unix_time_as_iso
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import replace_surrogates
from kbtui.userdata.query_log import QueryLog
from kbtui.userdata.user_data_sqlite_file import (
    REMOVALS_TABLE,
    UserDataSqliteFile,
    choose_change_time_of_user_record,
    remove_user_record_and_store_removal_time,
    store_removal_times_of_user_records,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.search.search_request_and_answer import Mode
    from kbtui.workspace import Workspace

RunStatus = Literal["ok", "partial", "error"]
SESSION_CHARACTERS = 1_000_000
"""A TUI session whose JSON has more than this many characters is not saved."""

_ADDED_TABLES = f"""
CREATE TABLE IF NOT EXISTS saved_searches (
  name TEXT PRIMARY KEY, query TEXT NOT NULL, mode TEXT NOT NULL, archived INTEGER NOT NULL,
  hidden INTEGER NOT NULL, all_projects INTEGER NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
{REMOVALS_TABLE}"""
"""The tables that may be missing in files of version 1."""
_TABLES = f"""
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
CREATE TABLE IF NOT EXISTS fetched (source TEXT, url TEXT, facts TEXT NOT NULL, PRIMARY KEY (source, url)) WITHOUT ROWID;
{_ADDED_TABLES}"""
_UPGRADES = (_ADDED_TABLES,)


class Bookmark(NamedTuple):
    """A bookmark for the reference `ref`. Times are in Unix seconds."""

    ref: str
    title: str
    note: str
    created: float
    changed: float


class SavedSearch(NamedTuple):
    """A search that the user has saved under a name. `query` includes the filters.

    `archived`, `hidden` and `all_projects` mean the same as in `SearchRequest`. `created` is in
    Unix seconds.
    """

    name: str
    query: str
    mode: Mode = "hybrid"
    archived: bool = False
    hidden: bool = False
    all_projects: bool = False
    created: float = 0.0


class FetchedAddressFacts(TypedDict, total=False):
    """The facts that a source's last run learned about an address, for use by the next run.

    * `etag` and `modified` are headers of the server's response for a web page.
    * `links` are the links on the web page.
    * `stat` is the size and modification time of a file.
    * `reader` is the version of the code that extracted the text.
    """

    etag: str | None
    modified: str | None
    links: list[str]
    stat: str
    reader: int


class SkippedAddressOrFile(NamedTuple):
    """An address or a file that a run skipped, and the reason."""

    what: str
    reason: str


class SourceRunRecord(NamedTuple):
    """The record of the last run of a source.

    * `began` and `ended` are in Unix seconds.
    * `error` is the first problem, or the reason why the run did not start.
    * `entries` is the number of documents that the source has after the run.
    * `problems` contains a line for each failed document, up to a limit.
    * `skipped` is the number of documents that the run left out without an error.
    * `skips` lists these documents, up to a limit.
    * `edited` contains a message for each document that the run left unchanged because the user has
      edited it.
    """

    source: str
    began: float
    ended: float
    status: RunStatus
    error: str | None = None
    entries: int = 0
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    problems: tuple[str, ...] = ()
    skipped: int = 0
    skips: tuple[SkippedAddressOrFile, ...] = ()
    edited: tuple[str, ...] = ()

    @property
    def document_counts_text(self) -> str:
        """The numbers of new, changed, removed and other documents, as one line of text."""
        counted = {
            "new": self.added,
            "changed": self.updated,
            "removed": self.removed,
            "kept": self.unchanged,
            "skipped": self.skipped,
            "edited by you and left alone": len(self.edited),
        }
        first = ("new", "changed", "removed")
        return ", ".join(f"{n:,} {what}" for what, n in counted.items() if n or what in first)

    @property
    def skipped_documents_by_reason(self) -> dict[str, list[str]]:
        """The skipped documents, grouped by reason."""
        found: dict[str, list[str]] = {}
        for skip in self.skips:
            found.setdefault(skip.reason, []).append(skip.what)
        return found

    def as_json(self) -> dict[str, object]:
        """Return the record as a JSON object with the documented keys.

        Times are in ISO 8601 and UTC.
        """
        return {
            "last_run_at": format_unix_time_as_iso(self.began),
            "last_run_ended_at": format_unix_time_as_iso(self.ended),
            "last_run_status": self.status,
            "last_run_error": self.error,
            "last_run_entry_count": self.entries,
            "added": self.added,
            "updated": self.updated,
            "removed": self.removed,
            "unchanged": self.unchanged,
            "problems": list(self.problems),
            "skipped": self.skipped,
            "skips": [skip._asdict() for skip in self.skips],
            "edited": list(self.edited),
        }


class UserData:
    """Reads and writes the user's data for one workspace. Thread-safe.

    The data consists of bookmarks, saved searches, the approvals and runs of sources, the query
    log, and the states of front ends.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.directory = workspace.user_data_directory
        self.query_log = QueryLog(self.directory / "queries.sqlite")
        self.file = UserDataSqliteFile(
            self.directory / "journal.sqlite",
            _TABLES,
            hint="check the file's permissions and the free space on its disk",
            sync=True,
            upgrades=_UPGRADES,
            damage_hint="move it and its -wal and -shm files away, or restore these files from a backup; "
            "if you move them away, kbtui starts without bookmarks, saved searches and approvals of sources",
        )

    def save_bookmark(self, ref: str, title: str = "", note: str = "") -> None:
        """Bookmark a reference, or change the title and note of its bookmark."""
        ref, title, note = map(replace_surrogates, (ref, title, note))
        with self.file.open_write_transaction() as db:
            select = "SELECT changed FROM bookmarks WHERE ref = ?"
            earlier = db.execute(select, (ref,)).fetchone()
            now = choose_change_time_of_user_record(db, "bookmark", ref, earlier)
            db.execute(
                "INSERT INTO bookmarks VALUES (?, ?, ?, ?, ?) ON CONFLICT (ref) DO UPDATE "
                "SET title = excluded.title, note = excluded.note, changed = excluded.changed",
                (ref, title, note, now, now),
            )

    def move_bookmarks(self, moves: Mapping[str, str]) -> None:
        """Change the references of bookmarks. `moves` maps each current reference to the new one.

        If another bookmark already has the new reference and stays there, the two bookmarks are
        merged, and the result contains both notes.
        """
        with self.file.open_write_transaction() as db:
            select = "SELECT * FROM bookmarks WHERE ref = ?"
            found = [db.execute(select, (old,)).fetchone() for old in moves]
            for old in moves:
                remove_user_record_and_store_removal_time(
                    db, "bookmark", "bookmarks", "ref", "changed", old
                )
            for row in filter(None, found):
                moved = Bookmark(*row)
                ref = moves[moved.ref]
                present = db.execute("SELECT note, changed FROM bookmarks WHERE ref = ?", (ref,))
                note, changed = present.fetchone() or ("", 0.0)
                now = choose_change_time_of_user_record(
                    db, "bookmark", ref, (max(changed, moved.changed),)
                )
                notes = dict.fromkeys(filter(None, (moved.note, note)))
                db.execute(
                    "INSERT OR REPLACE INTO bookmarks VALUES (?, ?, ?, ?, ?)",
                    moved._replace(ref=ref, note="\n".join(notes), changed=now),
                )

    def remove_bookmark(self, ref: str) -> bool:
        """Remove a bookmark; return False if there was none."""
        with self.file.open_write_transaction() as db:
            return remove_user_record_and_store_removal_time(
                db, "bookmark", "bookmarks", "ref", "changed", ref
            )

    def _execute_write_statement(self, statement: str, *values: object) -> int:
        with self.file.open_write_transaction() as db:
            return db.execute(statement, values).rowcount

    def list_bookmarks(self) -> list[Bookmark]:
        """Return all bookmarks, newest first."""
        rows = self.file.select_rows("SELECT * FROM bookmarks ORDER BY created DESC, ref")
        return [Bookmark(*row) for row in rows]

    def save_search(self, search: SavedSearch) -> bool:
        """Save a search; return whether it replaced a search with the same name."""
        name, query, mode = map(replace_surrogates, search[:3])
        with self.file.open_write_transaction() as db:
            select = "SELECT created FROM saved_searches WHERE name = ?"
            earlier = db.execute(select, (name,)).fetchone()
            now = choose_change_time_of_user_record(db, "saved_search", name, earlier)
            db.execute(
                "INSERT OR REPLACE INTO saved_searches VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, query, mode, *search[3:6], now),
            )
        return earlier is not None

    def list_saved_searches(self) -> list[SavedSearch]:
        """Return the saved searches, sorted by name."""
        rows = self.file.select_rows("SELECT * FROM saved_searches ORDER BY name")
        return [
            SavedSearch(*row)._replace(
                archived=bool(row[3]), hidden=bool(row[4]), all_projects=bool(row[5])
            )
            for row in rows
        ]

    def remove_saved_search(self, name: str) -> bool:
        """Remove a saved search; return False if there was none with this name."""
        with self.file.open_write_transaction() as db:
            return remove_user_record_and_store_removal_time(
                db, "saved_search", "saved_searches", "name", "created", name
            )

    def save_front_end_state(self, name: str, state: Mapping[str, object]) -> None:
        """Save the state of a front end under a name.

        Raises `ValueError` if the state is too large.
        """
        text = json.dumps(state)
        if len(text) > SESSION_CHARACTERS:
            raise ValueError(f"the state of {name} is too large to save")
        self._execute_write_statement(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", name, text, time.time()
        )

    def load_front_end_state(self, name: str) -> Any:
        """Return the state that was saved under a name, or None if there is none."""
        rows = self.file.select_rows("SELECT state FROM sessions WHERE name = ?", name)
        return json.loads(rows[0][0]) if rows else None

    def save_source_approval(self, source: str, digest: str) -> None:
        """Record that the user has approved the source configuration with the hash `digest`."""
        with self.file.open_write_transaction() as db:
            earlier = db.execute("SELECT at FROM approvals WHERE hash = ?", (digest,)).fetchone()
            now = choose_change_time_of_user_record(db, "approval", digest, earlier)
            db.execute("INSERT OR REPLACE INTO approvals VALUES (?, ?, ?)", (digest, source, now))

    def get_source_approval_time(self, digest: str) -> float | None:
        """Return the Unix time when the user approved a configuration of a source, or None.

        `digest` is the hash of the configuration.
        """
        rows = self.file.select_rows("SELECT at FROM approvals WHERE hash = ?", digest)
        return rows[0][0] if rows else None

    def save_source_run(self, run: SourceRunRecord) -> None:
        """Save the record of a source's run. It replaces the record of the previous run."""
        details = {name: getattr(run, name) for name in ("problems", "skipped", "skips", "edited")}
        error = replace_surrogates(run.error) if run.error else None
        statement = "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._execute_write_statement(statement, *run[:4], error, *run[5:10], json.dumps(details))

    def load_last_source_runs(self) -> dict[str, SourceRunRecord]:
        """Map the name of each source to the record of its last run."""
        runs = {}
        for row in self.file.select_rows("SELECT * FROM runs"):
            run, details = SourceRunRecord(*row[:-1]), json.loads(row[-1])
            if isinstance(details, list):  # version 0.1 stored only the problems
                details = {"problems": details}
            runs[run.source] = run._replace(
                problems=tuple(details["problems"]),
                skipped=details.get("skipped", 0),
                skips=tuple(SkippedAddressOrFile(*skip) for skip in details.get("skips", ())),
                edited=tuple(details.get("edited", ())),
            )
        return runs

    def save_fetched_address_facts(
        self, source: str, facts: dict[str, FetchedAddressFacts]
    ) -> None:
        """Save the facts about a source's addresses. They replace the earlier facts."""
        rows = [(source, replace_surrogates(url), json.dumps(fact)) for url, fact in facts.items()]
        with self.file.open_write_transaction() as db:
            db.execute("DELETE FROM fetched WHERE source = ?", (source,))
            db.executemany("INSERT INTO fetched VALUES (?, ?, ?)", rows)

    def load_fetched_address_facts(self, source: str) -> dict[str, FetchedAddressFacts]:
        """Map the addresses of a source to the facts that the last run saved about them."""
        rows = self.file.select_rows("SELECT url, facts FROM fetched WHERE source = ?", source)
        return {url: json.loads(facts) for url, facts in rows}

    def remove_source_data(self, source: str) -> None:
        """Remove the approvals, the last run and the fetched addresses of a source."""
        with self.file.open_write_transaction() as db:
            found = db.execute("SELECT hash, at FROM approvals WHERE source = ?", (source,))
            store_removal_times_of_user_records(db, "approval", found.fetchall())
            for table in ("approvals", "runs", "fetched"):
                db.execute(f"DELETE FROM {table} WHERE source = ?", (source,))
