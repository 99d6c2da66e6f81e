"""Queries the catalog for entries: filtered pages, totals and citation counts."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import time
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from kbtui.dates import DAY_SECONDS
from kbtui.errors import NothingFound, UsageError
from kbtui.index.catalog_database import make_catalog_error
from kbtui.index.unembedded_entries_file import EntriesWithoutVectors, read_entries_without_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kbtui.index.index_reader import IndexReader
    from kbtui.workspace import Workspace


CANCEL_CHECK_STEPS = 10_000
"""After each of this many SQLite instructions (about 100 µs), a query checks whether it was cancelled."""

# SQL for the time of a citation or, if it has none, the time at which its conversation was created.
_CITED_AT = "coalesce(t.timestamp, (SELECT created FROM entries WHERE id = t.conversation))"


class CitableEntry(Protocol):
    """The attributes of an entry that are needed to find its citations."""

    id: str
    kind: str
    ref: str
    path: str


@contextmanager
def open_catalog_snapshot(
    reader: IndexReader, is_given_up: Callable[[], bool] | None = None
) -> Iterator[sqlite3.Connection]:
    """Open the catalog in a read transaction, so that all queries see the same state.

    `is_given_up` is called repeatedly during each query. If it returns true, the query is
    cancelled, and `IndexUnavailable` is raised. This error is also raised if the catalog cannot be
    read.
    """
    path = reader.folder / "catalog.sqlite"
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        ) as db:
            db.create_function(
                "folded", 1, lambda text: (text or "").casefold(), deterministic=True
            )
            db.set_progress_handler(is_given_up, CANCEL_CHECK_STEPS)
            db.execute("PRAGMA temp_store=MEMORY")
            db.execute("BEGIN")
            yield db
    except sqlite3.Error as error:
        raise make_catalog_error("read", error, path) from error


def _map_reference_and_path_targets_to_entries(
    workspace: Workspace, entries: Sequence[CitableEntry]
) -> dict[str, str]:
    """Map the targets of citations to the ids of the cited entries.

    Usually, the target is the reference of the entry. If an assistant read a file before the file
    became a subject, the target is the path of the file.
    """
    root = f"{workspace.root}/"
    by_path = {
        entry.path.removeprefix(root): entry.id
        for entry in entries
        if entry.kind == "subject" and entry.path.startswith(root)
    }
    return by_path | {entry.ref: entry.id for entry in entries}


def count_citations_of_entries(
    db: sqlite3.Connection, workspace: Workspace, entries: Sequence[CitableEntry], since: float
) -> Counter[str]:
    """Map the id of each cited entry to the number of its citations since the Unix time `since`."""
    names = _map_reference_and_path_targets_to_entries(workspace, entries)
    names |= db.execute(
        "SELECT 'chunk:' || id, entry_id FROM chunks "
        "WHERE entry_id IN (SELECT value FROM json_each(?))",
        (json.dumps([entry.id for entry in entries]),),
    )
    counts: Counter[str] = Counter()
    for target, count in db.execute(
        "SELECT t.target, count(*) FROM citations t "
        f"WHERE t.target IN (SELECT value FROM json_each(?)) AND {_CITED_AT} >= ? GROUP BY t.target",
        (json.dumps(list(names)), since),
    ):
        counts[names[target]] += count
    return counts


@dataclass
class CitationCountsByEntryAndCountsByDay:
    """Counts of citations, by the id of the cited entry and by the local day of the citing turn."""

    by_entry: Counter[str] = field(default_factory=Counter)
    by_day: Counter[str] = field(default_factory=Counter)


def count_citations_by_entry_and_by_day(
    db: sqlite3.Connection, workspace: Workspace, entries: Sequence[CitableEntry], since: float
) -> CitationCountsByEntryAndCountsByDay:
    """Count all citations since the Unix time `since`. The table of citations is read once."""
    names = _map_reference_and_path_targets_to_entries(workspace, entries)
    rows = db.execute(
        f"SELECT t.target, date({_CITED_AT}, 'unixepoch', 'localtime'), count(*) FROM citations t "
        # The plus keeps SQLite from using the index on targets. With this index, the query takes several times as long.
        f"WHERE {_CITED_AT} >= ? GROUP BY +t.target, 2",
        (since,),
    ).fetchall()
    names |= _map_chunk_targets_to_entries(db, (row[0] for row in rows))
    found = CitationCountsByEntryAndCountsByDay()
    for target, day, count in rows:
        # Citations of deleted entries do not count.
        if (entry_id := names.get(target)) is not None:
            found.by_entry[entry_id] += count
            found.by_day[day] += count
    return found


def map_cited_targets_to_entries(
    db: sqlite3.Connection, workspace: Workspace, entries: Sequence[CitableEntry]
) -> dict[str, str]:
    """Map each cited target, such as `topic/slug` or `chunk:ID`, to the id of its entry.

    Targets that belong to no entry are left out.
    """
    names = _map_reference_and_path_targets_to_entries(workspace, entries)
    targets = [row[0] for row in db.execute("SELECT DISTINCT target FROM citations")]
    names |= _map_chunk_targets_to_entries(db, targets)
    return {target: names[target] for target in targets if target in names}


def _map_chunk_targets_to_entries(db: sqlite3.Connection, targets: Iterable[str]) -> dict[str, str]:
    """Map each target `chunk:<id>` to the id of the entry that contains the chunk."""
    loose = json.dumps([target[6:] for target in targets if target.startswith("chunk:")])
    rows = db.execute(
        "SELECT 'chunk:' || id, entry_id FROM chunks WHERE id IN (SELECT value FROM json_each(?))",
        (loose,),
    )
    return dict(rows)


CITATION_DAYS = 30
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 50, 500
PREVIEW_CHARACTERS = 200
"""An entry's details show this many characters of each passage, unless the user asks for all."""


@dataclass(frozen=True)
class EntryFilter:
    """Conditions on entries. An entry is listed if it meets all of them.

    * `q`, `phrases`: each word of `q` and each phrase occurs in the title or in the text; case is
      ignored.
    * `without`: the title and text contain none of these texts; case is ignored.
    * `types`: entry types, source kinds or `conversation`.
    * `since` (inclusive) and `until` (exclusive): limits on the time of creation, in Unix seconds.
    * `hidden`: whether hidden entries are listed, too.
    * `archived`: whether archived entries are listed, too.
    """

    q: str = ""
    phrases: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    hidden: bool = False
    archived: bool = False

    @property
    def conditions_hash(self) -> str:
        """A hash of the conditions. A page's cursor is valid only for filters with this hash."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


@dataclass
class EntryListRow:
    """A row in a list of entries. `cites_30d` counts the citations of the entry in the last 30 days.

    `parent_title` is the title of the conversation `parent_id`, to which the entry belongs.
    `short_ref` is the form of `ref` for lists that people read.
    """

    id: str
    ref: str
    kind: str
    title: str
    type: str
    status: str
    error: str | None
    topic: str | None
    slug: str | None
    tags: list[str]
    source_url: str | None
    created: float
    changed: float
    chunks: int
    size: int
    hidden: bool
    archived: bool
    path: str
    agent: str | None = None
    parent_id: str | None = None
    parent_title: str | None = None
    cites_30d: int = 0
    short_ref: str = ""


@dataclass
class EntryPage:
    """A page of entries, newest first.

    `total`, `by_status` and `by_type` count the matching entries of all pages.
    """

    entries: list[EntryListRow] = field(default_factory=list)
    total: int = 0
    by_status: Counter[str] = field(default_factory=Counter)
    by_type: Counter[str] = field(default_factory=Counter)
    cursor: str | None = None
    """The value to pass as `cursor` to get the next page. None if this is the last page."""


def query_entry_page(
    workspace: Workspace,
    reader: IndexReader,
    wanted: EntryFilter,
    *,
    cursor: str | None = None,
    limit: int = DEFAULT_PAGE_SIZE,
    most: int = MAX_PAGE_SIZE,
    vectors: bool = True,
    now: float | None = None,
    is_given_up: Callable[[], bool] | None = None,
    only: str | None = None,
) -> EntryPage:
    """Return the page of entries that starts at `cursor`; the first page if `cursor` is None.

    The page has at most `limit` entries; a `limit` above `most` is reduced to `most`. If `vectors`
    is false, which means that the model is switched off, no entry has the status `pending`. If
    `only` is an entry id, the page contains only this entry.

    Raises `UsageError` if the cursor is invalid or belongs to another filter. Raises
    `IndexUnavailable` once `is_given_up` returns true.
    """
    limit = max(1, min(most, limit))
    now = time.time() if now is None else now
    if wanted.topics:
        wanted = replace(wanted, topics=_resolve_topic_names_to_ids(workspace, wanted.topics))
    with open_catalog_snapshot(reader, is_given_up) as db:
        _create_listed_entries_table(db, reader, wanted, vectors, only)
        page = EntryPage()
        for status, type_, count in db.execute(
            "SELECT status, type, count(*) FROM listed GROUP BY status, type ORDER BY type"
        ):
            page.total += count
            page.by_status[status] += count
            page.by_type[type_] += count
        position = _decode_page_cursor(cursor, wanted) if cursor is not None else ()
        after = "WHERE (created, id) < (?, ?)" if position else ""
        rows = db.execute(
            "SELECT *, (SELECT count(*) FROM chunks WHERE entry_id = listed.id) "
            f"FROM listed {after} ORDER BY created DESC, id DESC LIMIT ?",
            [*position, limit + 1],
        ).fetchall()
        page.entries = [_parse_entry_list_row(row) for row in rows[:limit]]
        if len(rows) > limit:
            last = page.entries[-1]
            page.cursor = _encode_page_cursor(last.created, last.id, wanted)
        _fill_citation_counts_of_entry_list_rows(db, workspace, page.entries, now)
    short_refs = reader.map_references_to_short_forms(row.ref for row in page.entries)
    for row in page.entries:
        row.short_ref = short_refs.get(row.ref, row.ref)
    return page


def _resolve_topic_names_to_ids(workspace: Workspace, names: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of topics. `names` contains ids or titles of topics; unknown names are returned unchanged."""
    from kbtui.knowledge import load_knowledge

    knowledge = load_knowledge(workspace)
    ids = []
    for name in names:
        try:
            ids.append(knowledge.resolve_topic(name).id)
        except NothingFound:
            ids.append(name)
    return tuple(ids)


def get_entry_list_row(
    workspace: Workspace, reader: IndexReader, entry_id: str, *, vectors: bool = True
) -> EntryListRow | None:
    """Return an entry, even if it is hidden or archived; None if the entry does not exist."""
    every_entry = EntryFilter(hidden=True, archived=True)
    page = query_entry_page(workspace, reader, every_entry, vectors=vectors, only=entry_id)
    return page.entries[0] if page.entries else None


_ENTRY_COLUMNS = (
    "id", "kind", "title", "type", "topic", "slug", "tags", "source_url", "created", "changed", "size",
    "hidden", "archived", "path", "agent",
)  # fmt: skip
_LISTED_COLUMNS = (*_ENTRY_COLUMNS, "parent_id", "parent_title")


def _create_listed_entries_table(
    db: sqlite3.Connection,
    reader: IndexReader,
    wanted: EntryFilter,
    vectors: bool,
    only: str | None,
) -> None:
    """Create the temporary table `listed`: the entries that match the filter, with their status."""
    pending = (
        read_entries_without_vectors(reader.folder) if vectors else EntriesWithoutVectors(seq=2**62)
    )
    failed = {entry_id: error for entry_id, error in pending.missing.items() if error}
    conditions, values = _make_catalog_sql_of_entry_filter(wanted)
    if only is not None:
        conditions.append("e.id = ?")
        values.append(only)
    columns = ", ".join(f"e.{name} AS {name}" for name in _ENTRY_COLUMNS)
    columns += (
        ", e.parent AS parent_id, "
        "(SELECT title FROM entries p WHERE p.id = e.parent) AS parent_title"
    )
    sql = f"""
    CREATE TEMP TABLE listed AS WITH found AS (
      SELECT {columns}, coalesce(e.error, f.value) AS error,
        CASE WHEN coalesce(e.error, f.value) IS NOT NULL THEN 'error'
          WHEN (e.seq > ? OR e.id IN (SELECT value FROM json_each(?)))
            AND EXISTS (SELECT 1 FROM chunks c WHERE c.entry_id = e.id AND c.embed = 1) THEN 'pending'
          ELSE 'ready' END AS status
      FROM entries e LEFT JOIN json_each(?) f ON f.key = e.id
      WHERE {" AND ".join(conditions) or "1"}
    ) SELECT * FROM found WHERE {_make_sql_in_clause("status", wanted.statuses)}
    """
    missing = json.dumps(list(pending.missing))
    db.execute(sql, [pending.seq, missing, json.dumps(failed), *values, *wanted.statuses])


class EntryChunkJson(TypedDict):
    """A chunk of an entry, in the documented JSON format.

    `model` is None if the chunk has no vector.
    """

    chunk_id: str
    characters: int
    model: str | None
    lines: list[int] | None
    turn: int | None
    role: str | None
    text: str


def read_entry_chunks_as_json(reader: IndexReader, entry_id: str) -> list[EntryChunkJson]:
    """Return an entry's chunks in order, in the documented JSON format."""
    pending = read_entries_without_vectors(reader.folder)
    with open_catalog_snapshot(reader) as db:
        row = db.execute("SELECT seq FROM entries WHERE id = ?", (entry_id,)).fetchone()
        embedded = bool(row) and row[0] <= pending.seq and entry_id not in pending.missing
        rows = db.execute(
            "SELECT id, text, first_line, last_line, turn, role, embed FROM chunks "
            "WHERE entry_id = ? ORDER BY ordinal",
            (entry_id,),
        ).fetchall()
    return [
        {
            "chunk_id": id_,
            "characters": len(text),
            "model": pending.model if embed and embedded else None,
            "lines": None if first is None else [first, last],
            "turn": turn,
            "role": role,
            "text": text,
        }
        for id_, text, first, last, turn, role, embed in rows
    ]


def _make_sql_in_clause(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join('?' * len(values))})" if values else "1"


def _make_catalog_sql_of_entry_filter(wanted: EntryFilter) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions for a filter, and the values for the placeholders in them."""
    conditions = [f"e.{flag} = 0" for flag in ("hidden", "archived") if not getattr(wanted, flag)]
    values: list[Any] = []
    for column, chosen in (
        ("e.type", wanted.types),
        ("e.topic", wanted.topics),
        ("e.agent", wanted.agents),
    ):
        conditions.append(_make_sql_in_clause(column, chosen))
        values += chosen
    if wanted.since is not None:
        conditions.append("e.created >= ?")
        values.append(wanted.since)
    if wanted.until is not None:
        conditions.append("e.created < ?")
        values.append(wanted.until)
    terms = [("", word) for word in (*wanted.q.split(), *wanted.phrases)]
    terms += [("NOT ", word) for word in wanted.without]
    for negation, word in terms:
        conditions.append(
            f"{negation}(instr(folded(e.title), ?) OR EXISTS "
            "(SELECT 1 FROM chunks c WHERE c.entry_id = e.id AND instr(folded(c.text), ?)))"
        )
        values += [word.casefold()] * 2
    return conditions, values


def _parse_entry_list_row(row: tuple[Any, ...]) -> EntryListRow:
    *facts, error, status, chunks = row
    named = dict(zip(_LISTED_COLUMNS, facts, strict=True))
    named["tags"] = json.loads(named["tags"])
    named["hidden"], named["archived"] = bool(named["hidden"]), bool(named["archived"])
    subject = named["kind"] == "subject"
    ref = f"{named['topic']}/{named['slug']}" if subject else named["id"]
    return EntryListRow(ref=ref, error=error, status=status, chunks=chunks, **named)


def _fill_citation_counts_of_entry_list_rows(
    db: sqlite3.Connection, workspace: Workspace, rows: list[EntryListRow], now: float
) -> None:
    since = now - CITATION_DAYS * DAY_SECONDS
    if len(rows) > MAX_PAGE_SIZE:
        # For so many entries, one pass over all citations is faster than one query for each entry.
        counts = count_citations_by_entry_and_by_day(db, workspace, rows, since).by_entry
    else:
        counts = count_citations_of_entries(db, workspace, rows, since)
    for row in rows:
        row.cites_30d = counts[row.id]


def _encode_page_cursor(created: float, entry_id: str, wanted: EntryFilter) -> str:
    position = json.dumps([wanted.conditions_hash, created, entry_id]).encode()
    return base64.urlsafe_b64encode(position).decode().rstrip("=")


def _decode_page_cursor(cursor: str, wanted: EntryFilter) -> tuple[float, str]:
    """Return the creation time and id of the last entry on the previous page.

    Raises `UsageError`.
    """
    fault = "the cursor is for a list with other filters"
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        key, created, entry_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if key == wanted.conditions_hash:
            return float(created), str(entry_id)
    except (ValueError, TypeError, RecursionError):
        fault = "invalid cursor"
    raise UsageError(fault, where=cursor[:40], hint="omit the cursor to start at the first page")
