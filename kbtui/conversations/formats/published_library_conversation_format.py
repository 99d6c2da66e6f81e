"""The format of conversations in a published library: JSON Lines that kbtui writes, for all agents.

The first line contains the metadata, and each of the other lines contains a turn. The agents' own
files are not published, because they contain system prompts, unmasked secrets, and other things
besides the conversation.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import orjson

from kbtui.conversations.conversation_data_types import (
    ContentBlock,
    Conversation,
    ConversationEvent,
    TokenUsage,
    Turn,
)
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.conversations.formats.conversation_format import ConversationFormat
from kbtui.conversations.formats.stored_session import (
    StoredSession,
    list_directory,
    make_change_signature,
    stat_session_file,
)
from kbtui.conversations.formats.turn_builder import READ_ERRORS, get_text_or_none
from kbtui.dates import convert_unix_time_to_datetime, format_time_as_rfc3339_utc, parse_timestamp
from kbtui.errors import WorkspaceError
from kbtui.file_reading_and_writing import read_regular_file
from kbtui.terminal_text import format_readable_json
from kbtui.workspace.published_library_settings import find_existing_mirror_of_subscribed_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.conversations.conversation_data_types import ConversationFileFacts, ConversationInfo
    from kbtui.conversations.formats.conversation_format import (
        SkippedConversationPath,
        StoredConversation,
    )
    from kbtui.workspace import Workspace

FILE_SUFFIX = ".published.jsonl"
MAX_FILE_BYTES = 64 << 20
_EVENT_FIELDS = (
    "kind", "text", "index", "author", "name", "arguments", "call_id", "call", "is_error", "fields",
    "data", "problem", "outcome", "event_id",
)  # fmt: skip


def make_mirror_file_name_of_published_conversation(conversation_id: str) -> str:
    """Return the name of a conversation's file in a mirror of a published library."""
    return quote(conversation_id, safe="~") + FILE_SUFFIX


def is_from_published_library(info: ConversationInfo) -> bool:
    """Return whether a conversation is read from a published library."""
    return info.events_path is not None and info.events_path.name.endswith(FILE_SUFFIX)


# writing


def encode_published_conversation(original: Conversation, masked: Conversation) -> bytes:
    """Return the content of a conversation's published file.

    `masked` has the same events as `original`, with secrets masked. `original` is needed too,
    because only its events contain the links between calls and their results.
    """
    info = masked.info
    facts = {
        "format": 1,
        "id": info.id,
        "agent": info.agent,
        "title": info.title,
        "created_at": format_time_as_rfc3339_utc(info.created_at),
        "updated_at": format_time_as_rfc3339_utc(info.updated_at),
        "last_event_at": format_time_as_rfc3339_utc(info.last_event_at),
        "archived": info.archived,
        "labels": info.labels,
        "parent": info.parent,
        "assistant": masked.assistant,
        "model": masked.model,
        "attachments": masked.attachments,
    }
    positions = {
        id(event): (turn_at, event_at)
        for turn_at, turn in enumerate(original.turns)
        for event_at, event in enumerate(turn.events)
    }
    lines = [facts]
    for turn, old in zip(masked.turns, original.turns, strict=True):
        events = []
        for event, before in zip(turn.events, old.events, strict=True):
            values = {name: getattr(event, name) for name in _EVENT_FIELDS}
            values["timestamp"] = format_time_as_rfc3339_utc(event.timestamp)
            values["metadata"] = event.metadata
            values["answers"] = positions.get(id(before.request)) if before.request else None
            if event.blocks is not None:
                values["blocks"] = [asdict(block) for block in event.blocks]
            events.append({name: value for name, value in values.items() if value is not None})
        lines.append(
            {
                "number": turn.number,
                "model": turn.model,
                "started_at": format_time_as_rfc3339_utc(turn.started_at),
                "is_rewound": turn.is_rewound,
                "event_id": turn.event_id,
                "usage": [[model, usage._asdict()] for model, usage in turn.usage.items()],
                "events": events,
            }
        )
    return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)


# reading


def read_published_conversation_facts(path: str) -> dict[str, Any]:
    """Return the metadata in the first line of a file. Raises `OSError` or one of `READ_ERRORS`."""
    facts = orjson.loads(read_regular_file(path, MAX_FILE_BYTES).partition(b"\n")[0])
    if type(facts) is not dict or facts["format"] != 1:
        raise ValueError("the conversation has a format that this version of kbtui cannot read")
    return facts


class PublishedLibraryConversationFormat(ConversationFormat):
    """Finds and reads the conversations of the published library that a workspace subscribes to.

    The conversations are read from the library's mirror on this machine.
    """

    name = "published"
    label = "Published"
    id_prefix = ""

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[SkippedConversationPath]]:
        """Find all published conversations, or only the one with the id `only`."""
        mirror = find_existing_mirror_of_subscribed_library(workspace)
        if mirror is None:
            return [], []
        unusable: list[SkippedConversationPath] = []
        found = []
        for entry in list_directory(str(mirror.conversations_directory), unusable):
            id_ = unquote(entry.name.removesuffix(FILE_SUFFIX))
            if entry.name.endswith(FILE_SUFFIX) and only in (None, id_):
                session = _make_published_session(id_, entry.path)
                if session is not None:
                    found.append(session)
        return found, unusable

    def load_conversation(self, info: ConversationInfo) -> Conversation:
        """Load a conversation. Never raises; errors are listed in the result's `problems`."""
        try:
            conversation = _read_and_decode_published_conversation(info)
        except (OSError, WorkspaceError, *READ_ERRORS) as error:
            return Conversation(info, [], problems=[f"cannot be read: {error}"])
        count = sum(len(turn.events) for turn in conversation.turns)
        return replace(conversation, info=replace(info, events_count=count))


def _make_published_session(id_: str, path: str) -> StoredSession | None:
    status = stat_session_file(path)
    if status is None:
        return None
    modified = convert_unix_time_to_datetime(status.st_mtime)
    assert modified is not None
    try:
        facts = read_published_conversation_facts(path)
        agent = str(facts["agent"])
    except (OSError, *READ_ERRORS):
        facts, agent = {}, "published"
    return StoredSession(
        id_,
        agent,
        path,
        make_change_signature(path, status.st_ino, status.st_size, status.st_mtime_ns),
        parse_timestamp(facts.get("created_at")) or modified,
        parse_timestamp(facts.get("updated_at")) or modified,
        partial(_read_title_and_labels_of_published_conversation, path),
        is_archived=facts.get("archived") is True,
        parent=get_text_or_none(facts.get("parent")),
        last_event_at=parse_timestamp(facts.get("last_event_at")),
        size=status.st_size,
    )


def _read_title_and_labels_of_published_conversation(path: str) -> ConversationFileFacts:
    facts = read_published_conversation_facts(path)
    labels = facts.get("labels")
    return {
        "title": get_text_or_none(facts.get("title")),
        "labels": {str(key): str(value) for key, value in labels.items()} if labels else {},
    }


def _read_and_decode_published_conversation(info: ConversationInfo) -> Conversation:
    first, *lines = read_regular_file(info.events_path or "", MAX_FILE_BYTES).splitlines()
    facts = orjson.loads(first)
    turns = []
    answers: list[tuple[ConversationEvent, list[int]]] = []
    for line in lines:
        record = orjson.loads(line)
        events = []
        for values in record["events"]:
            events.append(_decode_event(values))
            if values.get("answers") is not None:
                answers.append((events[-1], values["answers"]))
        usage = {get_text_or_none(model): TokenUsage(**counts) for model, counts in record["usage"]}
        turns.append(
            Turn(
                int(record["number"]),
                events,
                get_text_or_none(record["model"]),
                parse_timestamp(record["started_at"]),
                record["is_rewound"] is True,
                usage,
                get_text_or_none(record["event_id"]),
            )
        )
    for event, (turn_at, event_at) in answers:
        event.request = turns[turn_at].events[event_at]
        event.request.result = event
    return Conversation(
        info,
        turns,
        assistant=get_text_or_none(facts["assistant"]),
        model=get_text_or_none(facts["model"]),
        attachments=[str(one) for one in facts["attachments"]],
    )


def _decode_event(values: dict[str, Any]) -> ConversationEvent:
    given = {name: values[name] for name in _EVENT_FIELDS if name in values}
    if not isinstance(given["text"], str) or not isinstance(given["kind"], str):
        raise ValueError("the text or kind of an event is not a string")
    if given["kind"] not in EVENT_KINDS:
        # A newer version of kbtui published this event. It is shown as JSON, like an agent's unknown events.
        given |= {"kind": "unknown", "name": given["kind"], "text": format_readable_json(values)}
    blocks = values.get("blocks")
    if blocks is not None:
        given["blocks"] = [
            ContentBlock(**block | {"recipients": tuple(block["recipients"])}) for block in blocks
        ]
    return ConversationEvent(
        timestamp=parse_timestamp(values.get("timestamp")),
        metadata=values.get("metadata"),
        **given,
    )


PUBLISHED_FORMAT = PublishedLibraryConversationFormat()
"""The format of published conversations. It is not in the list of agents' formats."""
