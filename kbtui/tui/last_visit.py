"""The user's last visit to a workspace, and what has happened in the workspace since then."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.conversations.models import ConversationInfo
    from kbtui.knowledge.models import Subject
    from kbtui.library import Library
    from kbtui.tui.library_snapshot import LibrarySnapshot

STATE_NAME = "visit"
"""The name under which the last visit is stored in the user data."""
MAX_TURN_COUNTS = 2_000
"""The numbers of turns are stored for at most this many conversations: the latest ones."""
RUNNING_FOR = timedelta(minutes=2)
"""A conversation counts as being written if its last event is at most this old."""


@dataclass(frozen=True)
class LastVisit:
    """When the user last left the workspace, and how many turns each conversation had then."""

    at: datetime
    turns: Mapping[str, int] = field(default_factory=dict)

    def has_new_events(self, info: ConversationInfo) -> bool:
        """Return whether a conversation has events that are later than the visit."""
        return info.last_activity_at > self.at

    def has_new_text(self, subject: Subject) -> bool:
        """Return whether the file of a subject was written after the visit."""
        return subject.mtime_ns > self.at.timestamp() * 1e9


class NewsSinceVisit(NamedTuple):
    """What is new since the last visit. Each list begins with its latest item.

    `turns` maps the ids of conversations to their numbers of new turns, if these are known.
    """

    conversations: list[ConversationInfo]
    turns: Mapping[str, int]
    subjects: list[Subject]


def find_news(contents: LibrarySnapshot, visit: LastVisit) -> NewsSinceVisit:
    """Return the conversations and visible subjects that are new or have changed since the last visit."""
    found = [info for info in contents.main_conversations if visit.has_new_events(info)]
    found.sort(key=lambda info: info.last_activity_at, reverse=True)
    turns = {
        info.id: count - visit.turns[info.id]
        for info in found
        if info.id in visit.turns and (count := contents.count_turns(info)) > visit.turns[info.id]
    }
    subjects = [one for one in contents.subjects if not one.hidden and visit.has_new_text(one)]
    subjects.sort(key=lambda subject: subject.mtime_ns, reverse=True)
    return NewsSinceVisit(found, turns, subjects)


def list_running_conversations(contents: LibrarySnapshot, now: datetime) -> list[ConversationInfo]:
    """Return the conversations that are being written now, the latest first."""
    found = [
        info
        for info in contents.main_conversations
        if info.last_event_at is not None and timedelta() <= now - info.last_event_at <= RUNNING_FOR
    ]
    return sorted(found, key=lambda info: info.last_activity_at, reverse=True)


def load_last_visit(library: Library) -> LastVisit | None:
    """Return the last visit, or None if there was none or it cannot be read."""
    from kbtui.errors import KbtuiError
    from kbtui.userdata.user_data_store import UserData

    try:
        state = UserData(library.workspace).load_front_end_state(STATE_NAME)
        if not state:
            return None
        turns = {str(name): int(count) for name, count in state["turns"].items()}
        return LastVisit(datetime.fromtimestamp(float(state["at"]), UTC), turns)
    except (KbtuiError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def save_visit(library: Library, now: datetime, contents: LibrarySnapshot | None) -> None:
    """Record that the user is leaving the workspace now. Errors are ignored."""
    from contextlib import suppress

    from kbtui.errors import KbtuiError
    from kbtui.userdata.user_data_store import UserData

    turns: dict[str, int] = {}
    if contents is not None:
        latest = sorted(contents.conversations, key=lambda one: one.last_activity_at, reverse=True)
        counts = ((info.id, contents.count_turns(info)) for info in latest[:MAX_TURN_COUNTS])
        turns = {name: count for name, count in counts if count >= 0}
    state = {"at": now.timestamp(), "turns": turns}
    with suppress(KbtuiError, OSError, ValueError):
        UserData(library.workspace).save_front_end_state(STATE_NAME, state)
