"""Checks whether a hit's file has changed, and whether the file still contains the hit's text.

Because of these checks, answers contain no hits in deleted or disabled subjects. The file of each
hit is checked. If the configuration has changed since indexing, the topic and the subject are
checked, too.

A turn is outdated if it was given a subject that has since changed or disappeared. Most texts are
compared by their hashes in the catalog. A subject's file is read only if a turn was given just a
part of the subject, and at most once.
"""

from __future__ import annotations

import os
import sys
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Literal

from kbtui.errors import KbtuiError
from kbtui.file_reading_and_writing import (
    format_inode_size_and_mtime,
    get_inode_size_and_mtime,
    read_regular_file,
)
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.light_named_tuple import NamedTuple
from kbtui.search.search_request_and_answer import OutdatedCitedSubject
from kbtui.terminal_text import strip_escape_sequences

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.citations.cited_text_comparison import ComparableSubjectText
    from kbtui.conversations.conversation_data_types import Conversation
    from kbtui.index.catalog_database import CitationWithGivenSubjectText
    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
    from kbtui.index.index_reader import IndexReader
    from kbtui.knowledge import KnowledgeBase
    from kbtui.workspace import Workspace


HitFreshnessAndLines = tuple[Literal["fresh", "changed"], tuple[int, int] | None]
"""Whether a chunk's file has changed, and the chunk's first and last line in the current file.

The second value is None for a chunk without lines.
"""


class HitFreshnessChecker:
    """Checks whether the files of the hits in one answer have changed. Each file is read only once."""

    def __init__(self, workspace: Workspace, reader: IndexReader) -> None:
        self._workspace = workspace
        self._is_configuration_changed = _has_configuration_changed(reader)
        self._format_current_file_stat = cache(_format_current_file_stat)
        self._read_subject_file = cache(self._read_current_subject_file)
        self._load_conversation_by_id = cache(partial(_load_conversation_by_id, workspace))
        self._get_turn_texts = cache(self._read_turn_texts)

    def check_hit_freshness_and_find_lines(
        self, entry: CatalogEntry, chunk: Chunk
    ) -> HitFreshnessAndLines | None:
        """Return whether the file of a chunk has changed, and which lines the chunk has now.

        Returns None if the file no longer contains the chunk, or if the subject is disabled.
        """
        is_subject = entry.kind == "subject"
        if is_subject and self._is_configuration_changed and not self._is_subject_visible(entry):
            return None
        if entry.stat and entry.stat == self._format_current_file_stat(entry.path):
            return "fresh", chunk.lines
        if is_subject:
            return self._find_chunk_in_subject_file(entry, chunk)
        wanted = _strip_escapes_and_collapse_spaces(chunk.text)
        texts = self._get_turn_texts(entry.conversation or "", chunk.turn or 0)
        return ("changed", None) if any(wanted in text for text in texts) else None

    @cached_property
    def _knowledge(self) -> KnowledgeBase:
        from kbtui.knowledge import load_knowledge

        return load_knowledge(self._workspace)

    def _is_subject_visible(self, entry: CatalogEntry) -> bool:
        topic = self._knowledge.topics.get(entry.topic or "")
        if topic is None or not topic.enable:
            return False
        subject = self._knowledge.find_subject(topic.id, entry.slug or "")
        if subject is None or subject.disabled or str(subject.path) != entry.path:
            return False
        return not subject.hidden or entry.hidden

    def _read_current_subject_file(self, path: str) -> str | None:
        text = read_subject_file_inside_workspace(str(self._workspace.root), path)
        if text is None:
            # The import takes longer than reading most files.
            from kbtui.workspace.published_library_settings import (
                find_existing_mirror_of_subscribed_library,
            )

            if (mirror := find_existing_mirror_of_subscribed_library(self._workspace)) is not None:
                return read_subject_file_inside_workspace(
                    os.path.realpath(mirror.workspace_root), path
                )
        return text

    def _find_chunk_in_subject_file(
        self, entry: CatalogEntry, chunk: Chunk
    ) -> HitFreshnessAndLines | None:
        text = self._read_subject_file(entry.path)
        if text is None:
            return None
        at = text.find(chunk.text)
        if at >= 0:
            first = text.count("\n", 0, at) + 1
            return "changed", (first, first + chunk.text.count("\n"))
        # In a chunk, one empty line separates paragraphs, so its white space may differ from the
        # file's.
        is_found = _strip_escapes_and_collapse_spaces(
            chunk.text
        ) in _strip_escapes_and_collapse_spaces(text)
        return ("changed", chunk.lines) if is_found else None

    def _read_turn_texts(self, conversation_id: str, number: int) -> list[str]:
        """Return the current texts of a turn; [] if the turn no longer exists."""
        from kbtui.conversations.conversation_data_types import format_event_text

        try:
            turn = self._load_conversation_by_id(conversation_id).find_turn(number)
        except (KbtuiError, OSError):
            return []
        return [
            _strip_escapes_and_collapse_spaces(format_event_text(event))
            for event in (turn.events if turn else ())
        ]


def _has_configuration_changed(reader: IndexReader) -> bool:
    for path, size, modified in reader.get_recorded_configuration_file_stats():
        status = _stat_file(str(path))
        now = (status.st_size, status.st_mtime_ns) if status else (None, None)
        if now != (size, modified):
            return True
    return False


def _format_current_file_stat(path: str) -> str | None:
    status = _stat_file(path)
    return format_inode_size_and_mtime(get_inode_size_and_mtime(status)) if status else None


def _stat_file(path: str) -> os.stat_result | None:
    # The catalog stores paths in UTF-8, but the locale of this process may have another encoding.
    try:
        return os.stat(path.encode("utf-8", "surrogateescape"))  # noqa: PTH116  (`Path` takes no bytes)
    except OSError:
        return None


def read_subject_file_inside_workspace(root: str, path: str) -> str | None:
    """Return the text of a subject.

    Returns None if the file is unreadable, too large or outside the workspace.
    """
    from kbtui.knowledge.subject_files import explain_too_large_subject, is_inside_directory

    try:
        real = os.path.realpath(path, strict=True)
        if not is_inside_directory(real, root) or explain_too_large_subject(os.stat(real).st_size):  # noqa: PTH116
            return None
        return read_regular_file(real, sys.maxsize).decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None


def _load_conversation_by_id(workspace: Workspace, conversation_id: str) -> Conversation:
    from kbtui.conversations.conversation_repository import find_conversation, load_conversation

    return load_conversation(find_conversation(workspace, conversation_id))


def _strip_escapes_and_collapse_spaces(text: str) -> str:
    return " ".join(strip_escape_sequences(text).split())


class TurnCitingOutdatedSubjects(NamedTuple):
    """A turn, and the subjects that have changed or disappeared since they were given to the turn.

    `timestamp` is the time of the first call that returned one of these subjects, in Unix seconds.
    """

    conversation: str
    turn: int
    timestamp: float | None
    subjects: list[OutdatedCitedSubject]


def list_outdated_turns(
    workspace: Workspace, reader: IndexReader, *, hidden: bool = False
) -> list[TurnCitingOutdatedSubjects]:
    """Return all outdated turns, newest first."""
    given = reader.list_one_citation_per_given_text()
    outdated = find_turns_with_outdated_citations(workspace, reader, given, hidden=hidden)
    targets = {subject.ref for turn in outdated for subject in turn.subjects}
    rows = reader.list_citations_of_targets(targets)
    return find_turns_with_outdated_citations(workspace, reader, rows, hidden=hidden)


def find_turns_with_outdated_citations(
    workspace: Workspace,
    reader: IndexReader,
    rows: Iterable[CitationWithGivenSubjectText],
    *,
    hidden: bool,
) -> list[TurnCitingOutdatedSubjects]:
    """Return the outdated turns among the turns in `rows`, in the order of the rows.

    Hidden subjects count only if `hidden` is true.
    """
    from kbtui.citations.cited_text_comparison import find_citation_state

    rows = list(rows)
    ids = {
        row.target: make_subject_id(*row.target.split("/", 1)) for row in rows if "/" in row.target
    }
    entries = reader.get_entries_by_id(set(ids.values()))
    root = str(workspace.root)
    texts = {entry.id: _make_lazy_subject_text(root, entry) for entry in entries.values()}
    turns: dict[tuple[str, int], TurnCitingOutdatedSubjects] = {}
    for row in rows:
        entry = entries.get(ids.get(row.target, ""))
        if entry is not None and entry.hidden and not hidden:
            continue
        now = texts[entry.id] if entry else None
        state = find_citation_state(row.extent, row.given, now).state
        if state in ("changed", "gone"):
            key = row.conversation, row.turn
            turn = turns.setdefault(key, TurnCitingOutdatedSubjects(*key, row.timestamp, []))
            subject = OutdatedCitedSubject(row.target, state)
            if subject not in turn.subjects:
                turn.subjects.append(subject)
    return list(turns.values())


def _make_lazy_subject_text(root: str, entry: CatalogEntry) -> ComparableSubjectText:
    """Return the text of a subject, with its hashes from the catalog. The file is read only when needed."""

    from kbtui.citations.cited_text_comparison import ComparableSubjectText

    def read_indexed_subject_text() -> str:
        text = read_subject_file_inside_workspace(root, entry.path)
        if text is None:
            raise KbtuiError("the subject cannot be read", where=entry.path)
        return text

    return ComparableSubjectText(read_indexed_subject_text, entry.path, entry.digests)
