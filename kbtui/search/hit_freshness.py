"""Checks whether the file of a hit is unchanged, has changed, or no longer has the text.

No hit may come from a deleted or disabled subject. So the file of each hit is checked, and its
topic, too, if the configuration has changed since indexing.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kbtui.index.models import format_file_state
from kbtui.text import strip_escape_sequences

if TYPE_CHECKING:
    from kbtui.conversations.models import Conversation
    from kbtui.index import IndexReader
    from kbtui.index.models import CatalogEntry, Chunk
    from kbtui.knowledge import Knowledge
    from kbtui.workspace import Workspace


def _get_file_state_or_none(path: str) -> os.stat_result:
    # The index stores paths in UTF-8, but the locale of this process may have another encoding.
    return os.stat(path.encode("utf-8", "surrogateescape"))  # noqa: PTH116  (cheaper)


class HitFreshnessChecker:
    """Checks the hits of one answer; reads each file only once."""

    def __init__(self, workspace: Workspace, reader: IndexReader) -> None:
        self._workspace = workspace
        self._reader = reader
        self._stats: dict[str, str | None] = {}
        self._texts: dict[str, str | None] = {}
        self._conversations: dict[str, Conversation | None] = {}
        self._turn_texts: dict[tuple[str, int], list[str]] = {}
        self._knowledge: Knowledge | None = None
        self._is_configuration_changed = self._has_configuration_changed()

    def check_hit(
        self, entry: CatalogEntry, chunk: Chunk
    ) -> tuple[str, tuple[int, int] | None] | None:
        """Return "fresh" or "changed" and the current lines of a chunk.

        Returns None if the chunk's file no longer contains it, or the chunk's subject is disabled.
        """
        if (
            entry.kind == "subject"
            and self._is_configuration_changed
            and not self._is_visible(entry)
        ):
            return None
        if self._read_state(entry) == entry.stat and entry.stat:
            return "fresh", chunk.lines
        if entry.kind == "subject":
            return self._find_chunk_in_subject(entry, chunk)
        return self._find_chunk_in_conversation(entry, chunk)

    def _read_state(self, entry: CatalogEntry) -> str | None:
        if entry.path not in self._stats:
            try:
                self._stats[entry.path] = format_file_state(_get_file_state_or_none(entry.path))
            except OSError:
                self._stats[entry.path] = None
        return self._stats[entry.path]

    def _has_configuration_changed(self) -> bool:
        for path, size, modified in self._reader.get_configuration_state():
            try:
                status = _get_file_state_or_none(str(path))
            except OSError:
                if size is not None:
                    return True
                continue
            if [status.st_size, status.st_mtime_ns] != [size, modified]:
                return True
        return False

    def _is_visible(self, entry: CatalogEntry) -> bool:
        if self._knowledge is None:
            from kbtui.knowledge import load_knowledge

            self._knowledge = load_knowledge(self._workspace)
        topic = self._knowledge.topics.get(entry.topic or "")
        if topic is None or not topic.enable:
            return False
        subject = self._knowledge.find(topic.id, entry.slug or "")
        if subject is None or subject.disabled or str(subject.path) != entry.path:
            return False
        return not subject.hidden or entry.hidden

    def _find_chunk_in_subject(
        self, entry: CatalogEntry, chunk: Chunk
    ) -> tuple[str, tuple[int, int] | None] | None:
        if entry.path not in self._texts:
            self._texts[entry.path] = self._read_subject(entry.path)
        text = self._texts[entry.path]
        if text is None:
            return None
        at = text.find(chunk.text)
        if at >= 0:
            first = text.count("\n", 0, at) + 1
            return "changed", (first, first + chunk.text.count("\n"))
        # Chunks join paragraphs by one empty line, so white space may differ.
        return (
            ("changed", chunk.lines)
            if _collapse_spaces(chunk.text) in _collapse_spaces(text)
            else None
        )

    def _read_subject(self, path: str) -> str | None:
        """Return the text of a subject file.

        Returns None if the file is missing, unreadable, too large or outside of the workspace.
        """
        from kbtui.files import read_regular_file
        from kbtui.knowledge.subject_files import explain_too_large_subject
        from kbtui.knowledge.topic_scan import is_inside_folder

        try:
            real = os.path.realpath(path, strict=True)
            if not is_inside_folder(real, str(self._workspace.root)):
                return None
            if explain_too_large_subject(os.stat(real).st_size):  # noqa: PTH116
                return None
            return read_regular_file(real, sys.maxsize).decode("utf-8").replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError):
            return None

    def _find_chunk_in_conversation(
        self, entry: CatalogEntry, chunk: Chunk
    ) -> tuple[str, tuple[int, int] | None] | None:
        wanted = _collapse_spaces(chunk.text)
        if any(wanted in text for text in self._get_turn_texts(entry, chunk.turn or 0)):
            return "changed", None
        return None

    def _get_turn_texts(self, entry: CatalogEntry, number: int) -> list[str]:
        """Return the current texts of a turn; [] if the turn no longer exists."""
        if (entry.id, number) not in self._turn_texts:
            self._turn_texts[entry.id, number] = self._read_turn(entry, number)
        return self._turn_texts[entry.id, number]

    def _read_turn(self, entry: CatalogEntry, number: int) -> list[str]:
        from kbtui.conversations.repository import find_conversation, load_conversation
        from kbtui.errors import KbtuiError
        from kbtui.index.chunking import format_event_text

        try:
            if entry.id not in self._conversations:
                self._conversations[entry.id] = None
                info = find_conversation(self._workspace, entry.conversation or "")
                self._conversations[entry.id] = load_conversation(info)
            conversation = self._conversations[entry.id]
            turn = conversation.turn(number) if conversation else None
        except (KbtuiError, OSError):
            return []
        return [
            _collapse_spaces(format_event_text(event)) for event in (turn.events if turn else ())
        ]


def _collapse_spaces(text: str) -> str:
    return " ".join(strip_escape_sequences(text).split())
