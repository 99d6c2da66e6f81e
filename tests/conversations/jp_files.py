"""Writes conversations in the formats of the current and of earlier versions of JP."""

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

from kbtui.conversations.conversation_data_types import Conversation, ConversationEvent
from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.workspace import Workspace, open_workspace_at_root

ID = 17_800_836_875


def jp_id(number: int = ID) -> str:
    """Return the id of the conversation with this number."""
    return f"jp-c{number}"


WORKSPACE_ID = "otvo8"
BASE = {
    "assistant": {
        "name": "Architect",
        "model": {"id": {"provider": "anthropic", "name": "claude-opus-4-8"}},
    },
    "conversation": {"attachments": {"value": ["file://a.md"], "strategy": "replace"}},
}


def standard(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return base64.b64encode(data).decode()


def url_safe(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def time(second: int) -> str:
    """Format a time as JP does: with a space, no zone, and a fraction without final zeros."""
    return f"2026-05-29 {10 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.5"


class Stream:
    """Builds the elements of an `events.json`, one second apart; each call appends one."""

    def __init__(self) -> None:
        self.elements: list[Any] = []

    def add(self, kind: str, **fields: Any) -> "Stream":
        element = {"timestamp": time(len(self.elements)), "type": kind, **fields}
        self.elements.append(element)
        return self

    def turn(self) -> "Stream":
        return self.add("turn_start")

    def ask(self, content: str, **fields: Any) -> "Stream":
        return self.add("chat_request", content=content, **fields)

    def say(self, message: str) -> "Stream":
        return self.add("chat_response", message=message)

    def think(self, reasoning: str, **fields: Any) -> "Stream":
        return self.add("chat_response", reasoning=reasoning, **fields)

    def call(self, name: str, call_id: str, **arguments: Any) -> "Stream":
        return self.add("tool_call_request", id=call_id, name=name, arguments=encode(arguments))

    def result(self, call_id: str, content: str, is_error: bool = False) -> "Stream":
        return self.add(
            "tool_call_response", id=call_id, content=standard(content), is_error=is_error
        )

    def used(self, name: str, call_id: str, result: str, **arguments: Any) -> "Stream":
        return self.call(name, call_id, **arguments).result(call_id, result)

    def delta(self, **delta: Any) -> "Stream":
        return self.add("config_delta", delta=delta)


def encode(value: Any) -> Any:
    if isinstance(value, str):
        return standard(value)
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encode(item) for item in value]
    return value


def put_blob(root: Path, content: str | bytes) -> str:
    """Store a blob in `root`, as JP's RFD 066 describes; return its SHA-256."""
    data = content.encode() if isinstance(content, str) else content
    digest = hashlib.sha256(data).hexdigest()
    path = root / "blobs" / digest[:2] / digest[2:4] / f"{digest[4:]}.blob.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data))
    return digest


def dump(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write(
    root: Path,
    events: Stream | list[Any] | str | bytes | None,
    *,
    number: int = ID,
    slug: str = "a-title",
    metadata: dict[str, Any] | str | None = None,
    title: str | None = "A title",
    base: dict[str, Any] | str | None = BASE,
    archived: bool = False,
) -> Path:
    """Write one conversation below `root`: `.jp` or the user's own directory."""
    folder = root / "conversations"
    if archived:
        folder /= ".archive"
    folder /= f"{number}-{slug}" if slug else str(number)
    folder.mkdir(parents=True, exist_ok=True)
    if metadata is None:
        metadata = {"last_activated_at": time(0)}
        if title is not None:
            metadata["title"] = title
    if metadata != "missing":
        text = metadata if isinstance(metadata, str) else dump(metadata)
        (folder / "metadata.json").write_text(text)
    if base is not None:
        (folder / "base_config.json").write_text(base if isinstance(base, str) else dump(base))
    if isinstance(events, Stream):
        events = events.elements
    if isinstance(events, list):
        events = dump(events)
    if isinstance(events, str):
        events = events.encode("utf-8", "surrogatepass")
    if events is not None:
        (folder / "events.json").write_bytes(events)
    return folder


def workspace_at(root: Path) -> Workspace:
    """Open the workspace again, so that nothing is cached."""
    return open_workspace_at_root(root)


def load(root: Path, number: int = ID) -> Conversation:
    return load_conversation(find_conversation(workspace_at(root), jp_id(number)))


def events_of(conversation: Conversation) -> list[ConversationEvent]:
    return [event for turn in conversation.turns for event in turn.events]


def texts(conversation: Conversation) -> list[str]:
    return [event.text for event in events_of(conversation)]
