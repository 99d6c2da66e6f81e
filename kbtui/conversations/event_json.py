"""The JSON form of an event, which commands, tools and exports share."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kbtui.conversations.models import get_subagent_of_result
from kbtui.dates import format_timestamp

if TYPE_CHECKING:
    from typing import Any, Required, TypedDict

    from kbtui.conversations.models import ContentBlock, ContentState, ConversationEvent

    class ContentBlockJson(TypedDict, total=False):
        """A block of an event's content as JSON. Its text is in the event's `content`."""

        kind: Required[str]
        name: str
        title: str
        media_type: str
        bytes: int
        state: ContentState
        recipients: list[str]

    class EventJson(TypedDict, total=False):
        """An event of a turn as JSON, with the documented keys; keys that do not apply to it are left out."""

        event_kind: Required[str]
        timestamp: Required[str | None]
        event_id: str | None
        author: str | None
        name: str | None
        call: int | None
        is_error: bool | None
        arguments: dict[str, Any] | None
        fields: dict[str, Any] | None
        outcome: str | None
        subagent: str | None
        problem: str | None
        blocks: list[ContentBlockJson] | None
        content: Required[str | None]


def make_event_json(event: ConversationEvent, conversation: str) -> EventJson:
    """Return an event of a conversation as JSON. Keys that do not apply to the event are left out."""
    shape: EventJson = {
        "event_kind": event.kind,
        "timestamp": format_timestamp(event.timestamp),
        "event_id": event.event_id,
        "author": event.author,
        "name": event.name,
        "call": event.call,
        "is_error": event.is_error,
        "arguments": event.arguments,
        "fields": event.fields,
        "outcome": event.outcome,
        "subagent": get_subagent_of_result(event, conversation),
        "problem": event.problem,
        "blocks": [_make_block_json(block) for block in event.blocks] if event.blocks else None,
        "content": event.text if event.text or event.arguments is None else None,
    }
    always = ("timestamp", "content")
    kept = {name: value for name, value in shape.items() if value is not None or name in always}
    return cast("EventJson", kept)


def _make_block_json(block: ContentBlock) -> ContentBlockJson:
    shape = {
        "kind": block.kind,
        "name": block.name,
        "title": block.title,
        "media_type": block.media_type,
        "bytes": block.size,
        "state": block.state,
        "recipients": list(block.recipients) or None,
    }
    kept = {name: value for name, value in shape.items() if value is not None}
    return cast("ContentBlockJson", kept)
