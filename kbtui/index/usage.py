"""How often entries are cited, by the catalog's citations: for one page, for all, by day."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kbtui.errors import IndexUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kbtui.index.reader import IndexReader
    from kbtui.workspace import Workspace

STEPS = 10_000
"""How many of SQLite's instructions, some 100 microseconds, lie between two looks whether to go on."""

# A conversation's id is a time too: that of citations which have none of their own.
_AT = "coalesce(t.timestamp, t.conversation / 10.0)"


class Citable(Protocol):
    """What is needed of an entry to know how citations call it."""

    id: str
    kind: str
    ref: str
    path: str


@contextmanager
def reading(
    reader: IndexReader, is_given_up: Callable[[], bool] | None = None
) -> Iterator[sqlite3.Connection]:
    """A connection to the catalog that sees one state of it; raises `IndexUnavailable`."""
    path = reader.folder / "catalog.sqlite"
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        ) as db:
            db.create_function(
                "folded", 1, lambda text: (text or "").casefold(), deterministic=True
            )
            db.set_progress_handler(is_given_up, STEPS)
            db.execute("PRAGMA temp_store=MEMORY")
            db.execute("BEGIN")
            yield db
    except sqlite3.Error as error:
        raise IndexUnavailable(
            f"the catalog cannot be read: {error}",
            where=str(path),
            hint="`kbtui index --rebuild` makes a new one",
        ) from error


def _names(workspace: Workspace, entries: list[Citable]) -> dict[str, str]:
    """What citations may call these entries, and which entry that is.

    A subject is called `topic/slug`, or its path where it was read as a file
    before it was a subject.
    """
    root = f"{workspace.root}/"
    found = {}
    for entry in entries:
        if entry.kind == "subject" and entry.path.startswith(root):
            found[entry.path.removeprefix(root)] = entry.id
    for entry in entries:
        found[entry.ref] = entry.id
    return found


def count_cites(
    db: sqlite3.Connection, workspace: Workspace, entries: Iterable[Citable], since: float
) -> dict[str, int]:
    """How many citations each of some entries has from Unix time `since` on; 0 is left out."""
    entries = list(entries)
    names = _names(workspace, entries)
    counts: dict[str, int] = {}
    for target, count in db.execute(
        "SELECT t.target, count(*) FROM citations t "
        f"WHERE t.target IN (SELECT value FROM json_each(?)) AND {_AT} >= ? GROUP BY t.target",
        (json.dumps(list(names)), since),
    ):
        counts[names[target]] = counts.get(names[target], 0) + count
    for entry_id, count in db.execute(
        "SELECT c.entry_id, count(*) FROM chunks c JOIN citations t ON t.target = 'chunk:' || c.id "
        f"WHERE c.entry_id IN (SELECT value FROM json_each(?)) AND {_AT} >= ? GROUP BY c.entry_id",
        (json.dumps([entry.id for entry in entries]), since),
    ):
        counts[entry_id] = counts.get(entry_id, 0) + count
    return counts


@dataclass
class Used:
    """Citations of entries that exist: by entry, and by local day; 0 is left out."""

    by_entry: dict[str, int] = field(default_factory=dict)
    by_day: dict[str, int] = field(default_factory=dict)


def used_since(
    db: sqlite3.Connection, workspace: Workspace, entries: Iterable[Citable], since: float
) -> Used:
    """How often each of all entries is cited from Unix time `since` on, in one walk."""
    names = _names(workspace, list(entries))
    rows = db.execute(
        f"SELECT t.target, date({_AT}, 'unixepoch', 'localtime'), count(*) FROM citations t "
        # The plus keeps SQLite from walking the index on targets, which is eight times slower.
        f"WHERE {_AT} >= ? GROUP BY +t.target, 2",
        (since,),
    ).fetchall()
    names |= _chunk_names(db, (row[0] for row in rows))
    found = Used()
    for target, day, count in rows:
        # What is gone counts nowhere (decisions C, "citation").
        if (entry_id := names.get(target)) is not None:
            found.by_entry[entry_id] = found.by_entry.get(entry_id, 0) + count
            found.by_day[day] = found.by_day.get(day, 0) + count
    return found


def ever_cited(
    db: sqlite3.Connection, workspace: Workspace, entries: Iterable[Citable]
) -> set[str]:
    """The ids of the entries that any turn ever cited."""
    names = _names(workspace, list(entries))
    targets = [row[0] for row in db.execute("SELECT DISTINCT target FROM citations")]
    names |= _chunk_names(db, targets)
    return {names[target] for target in targets if target in names}


def _chunk_names(db: sqlite3.Connection, targets: Iterable[str]) -> dict[str, str]:
    """The entries of targets that are chunks."""
    loose = json.dumps([target[6:] for target in targets if target.startswith("chunk:")])
    rows = db.execute(
        "SELECT 'chunk:' || id, entry_id FROM chunks WHERE id IN (SELECT value FROM json_each(?))",
        (loose,),
    )
    return dict(rows)
