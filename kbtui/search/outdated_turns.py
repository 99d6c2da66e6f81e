"""Finds outdated turns: turns that were given a subject that has since changed or disappeared.

Most texts are compared by their hashes in the catalog. The file of a subject is read only for a
turn that was given a part of the subject, and only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbtui.citations.given_text import ComparableText, find_citation_state
from kbtui.errors import KbtuiError
from kbtui.index.entries_and_chunks import make_subject_id
from kbtui.search.hit_freshness import read_subject_file
from kbtui.search.search_request_and_answer import OutdatedSubject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.index.catalog_database import GivenTextRow
    from kbtui.index.entries_and_chunks import CatalogEntry
    from kbtui.index.index_reader import IndexReader
    from kbtui.workspace import Workspace


class OutdatedTurn(NamedTuple):
    """A turn, and the subjects that have changed since they were given to it.

    `timestamp` is the time of the first call that returned one of them, in Unix seconds.
    """

    conversation: str
    turn: int
    timestamp: float | None
    subjects: list[OutdatedSubject]


def list_outdated_turns(
    workspace: Workspace, reader: IndexReader, *, hidden: bool = False
) -> list[OutdatedTurn]:
    """Return all outdated turns, newest first."""
    rows = reader.list_citations_of_subjects()
    return group_outdated_turns(workspace, reader, rows, hidden=hidden)


def group_outdated_turns(
    workspace: Workspace, reader: IndexReader, rows: Iterable[GivenTextRow], *, hidden: bool
) -> list[OutdatedTurn]:
    """Return the outdated turns among those in `rows`, in the order of the rows.

    Hidden subjects count only if `hidden` is true.
    """
    rows = list(rows)
    ids = {
        row.target: make_subject_id(*row.target.split("/", 1)) for row in rows if "/" in row.target
    }
    entries = reader.get_entries_by_id(set(ids.values()))
    root = str(workspace.root)
    texts = {entry.id: _open_indexed_subject(root, entry) for entry in entries.values()}
    turns: dict[tuple[str, int], OutdatedTurn] = {}
    for row in rows:
        entry = entries.get(ids.get(row.target, ""))
        if entry is not None and entry.hidden and not hidden:
            continue
        now = texts[entry.id] if entry else None
        state = find_citation_state(row.extent, row.given, now).state
        if state in ("changed", "gone"):
            key = row.conversation, row.turn
            turn = turns.setdefault(key, OutdatedTurn(*key, row.timestamp, []))
            subject = OutdatedSubject(row.target, state)
            if subject not in turn.subjects:
                turn.subjects.append(subject)
    return list(turns.values())


def _open_indexed_subject(root: str, entry: CatalogEntry) -> ComparableText:
    """Return the text of a subject, with its hashes from the catalog. The file is read only when needed."""

    def read_text() -> str:
        text = read_subject_file(root, entry.path)
        if text is None:
            raise KbtuiError("the subject cannot be read", where=entry.path)
        return text

    return ComparableText(read_text, entry.path, entry.digests)
