"""Lists, finds and loads the conversations of a workspace, in all formats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kbtui.conversations.formats import jp
from kbtui.errors import NothingFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from kbtui.conversations.formats.conversation_format import (
        ConversationFormat,
        StoredConversation,
        UnusableConversationDirectory,
    )
    from kbtui.conversations.models import Conversation, ConversationInfo
    from kbtui.workspace import Workspace

FORMATS: tuple[ConversationFormat, ...] = (jp,)
"""The known formats. A new one is a module that implements `ConversationFormat`."""


def get_conversation_format(info: ConversationInfo) -> ConversationFormat:
    """Return the format of a conversation."""
    return next(one for one in FORMATS if info.id.startswith(one.ID_PREFIX))


def list_conversations(
    workspace: Workspace,
    archived: bool | None = None,
    *,
    counts: bool = True,
    known: Mapping[str, ConversationInfo] | None = None,
) -> list[ConversationInfo]:
    """Return the conversations of a workspace, newest activity first.

    `archived` selects archived (True), live (False) or all conversations (None). Unreadable ones are
    included, with their `problem`. With `counts`, each file of events is parsed for
    `events_count` and `last_event_at`; without it, `last_activated_at` determines the order. `known`
    maps ids to results of an earlier call; results whose files have not changed are reused.
    """
    infos = []
    for stored in _iterate_stored_conversations(workspace):
        if archived is not None and stored.is_archived is not archived:
            continue
        info = (known or {}).get(stored.id)
        # A problem such as a missing permission may disappear without a change of the files.
        if info is None or info.problem or info.signature != stored.signature:
            info = stored.read_conversation_info()
        infos.append(get_conversation_format(info).add_event_count(info) if counts else info)
    infos.sort(key=_get_activity_sort_key, reverse=True)
    return infos


def list_conversation_signatures(workspace: Workspace) -> dict[str, str]:
    """Return the signature of every conversation by id; no file is read."""
    return {one.id: one.signature for one in _iterate_stored_conversations(workspace)}


def find_conversation(
    workspace: Workspace,
    id: str,  # noqa: A002
    *,
    counts: bool = False,
) -> ConversationInfo:
    """Return the live or archived conversation with this id; `counts` as in `list_conversations`.

    Raises `ConversationNotFound`.
    """
    for stored in _iterate_stored_conversations(workspace, id):
        info = stored.read_conversation_info()
        return get_conversation_format(info).add_event_count(info) if counts else info
    raise ConversationNotFound(workspace, id)


class ConversationNotFound(NothingFound):
    """There is no conversation with this id; `nearest` is a similar id, None if there is none."""

    def __init__(self, workspace: Workspace, id: str) -> None:  # noqa: A002
        from difflib import get_close_matches

        similar = get_close_matches(id, list_conversation_signatures(workspace), n=1, cutoff=0.78)
        self.nearest = similar[0] if similar else None
        everything = "`kbtui conversation ls` lists all conversations"
        hint = f"did you mean {self.nearest}?" if similar else everything
        super().__init__(f"there is no conversation {id}", where=str(workspace.root), hint=hint)


def load_conversation(info: ConversationInfo) -> Conversation:
    """Load a conversation with its turns. Never raises; `problems` says what is wrong."""
    return get_conversation_format(info).load_conversation(info)


def add_event_count_and_problems(info: ConversationInfo) -> ConversationInfo:
    """Return `info` with counts, and with all problems of the conversation.

    This decodes all events, because only decoding finds wrong types and missing times.
    """
    conversation = load_conversation(info)
    return replace(conversation.info, problem=conversation.describe_problems())


def add_last_event_time(info: ConversationInfo) -> ConversationInfo:
    """Return `info` with `last_event_at`, reading as little as possible."""
    return get_conversation_format(info).add_last_event_time(info)


def find_unusable_conversation_directories(
    workspace: Workspace,
) -> list[UnusableConversationDirectory]:
    """Return the directories that cannot be listed as conversations, with the reasons."""
    found = (one.find_stored_conversations(workspace)[1] for one in FORMATS)
    return [directory for directories in found for directory in directories]


def count_trashed_conversations(workspace: Workspace) -> dict[str, int]:
    """Return the number of conversations in each trash directory, where agents move damaged ones."""
    counts: dict[str, int] = {}
    for one in FORMATS:
        counts |= one.count_trashed_conversations(workspace)
    return counts


def get_last_activity_time(info: ConversationInfo) -> datetime:
    """Return the time of the last event, or the creation time if it is unknown."""
    return info.last_event_at or info.created_at


def _iterate_stored_conversations(
    workspace: Workspace, only: str | None = None
) -> Iterator[StoredConversation]:
    for one in FORMATS:
        if only is None or only.startswith(one.ID_PREFIX):
            yield from one.find_stored_conversations(workspace, only)[0]


def _get_activity_sort_key(info: ConversationInfo) -> tuple[datetime, datetime, str]:
    return (
        info.last_event_at or info.last_activated_at or info.created_at,
        info.created_at,
        info.id,
    )
