"""A conversation that an agent keeps together with others in one file or database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from kbtui.conversations.models import Conversation, ConversationInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.conversations.formats.turn_builder import TurnBuilder

READ_ERRORS = (
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    IndexError,
    RecursionError,
    OverflowError,
)
"""The exceptions that parsing a record may raise if it has values of the wrong type."""


@dataclass(slots=True)
class StoredSession:
    """One conversation of a file or database, found but not read.

    `read_facts` reads the fields of `ConversationInfo` that this class does not know, such as the
    title and the size; it may raise `OSError`, `ValueError` or `KbtuiError`.
    """

    id: str
    agent: str
    path: str
    signature: str
    created_at: datetime
    updated_at: datetime
    read_facts: Callable[[], dict[str, Any]]
    is_archived: bool = False
    parent: str | None = None
    working_directory: str | None = None
    worktree: str | None = None

    def read_conversation_info(self) -> ConversationInfo:
        """Read the metadata but no events. Never raises; `problem` says what is wrong."""
        facts, problem = {}, None
        try:
            facts = self.read_facts()
        except Exception as error:  # a damaged session must not hide the others
            problem = getattr(error, "message", None) or str(error) or type(error).__name__
        values: dict[str, Any] = {
            "id": self.id,
            "title": None,
            "directory": Path(self.path).parent,
            "events_path": Path(self.path),
            "base_config_path": None,
            "archived": self.is_archived,
            "presence": None,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "last_activated_at": self.updated_at,
            "signature": self.signature,
            "problem": problem,
            "parent": self.parent,
            "agent": self.agent,
            "working_directory": self.working_directory,
            "worktree": self.worktree,
        }
        return ConversationInfo(**(values | facts))


def make_conversation_id(prefix: str, own_id: str) -> str:
    """Make kbtui's id from an agent's own id; forbidden characters are written like `%20`."""
    return prefix + quote(own_id, safe="", errors="surrogateescape")


def parse_own_id(prefix: str, conversation_id: str) -> str:
    """Return the agent's own id of a conversation."""
    return unquote(conversation_id.removeprefix(prefix), errors="surrogateescape")


def make_signature(*values: object) -> str:
    """Return a digest of values, which changes if one of them does."""
    text = "\0".join(map(str, values))
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def convert_milliseconds_to_time(value: Any) -> datetime | None:
    """Convert Unix milliseconds to a time; return None if the value is not a valid time."""
    if type(value) not in (int, float):
        return None
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def make_conversation(
    info: ConversationInfo, builder: TurnBuilder, problems: list[str], **fields: Any
) -> Conversation:
    """Return a conversation with the turns, the model and the problems that `builder` has."""
    problems = [*problems, *builder.problems]
    if builder.more_problems:
        noun = "problem" if builder.more_problems == 1 else "problems"
        problems.append(f"{builder.more_problems} more {noun}")
    last = builder.last_time or info.last_event_at
    count = sum(len(turn.events) for turn in builder.turns)
    return Conversation(
        replace(info, events_count=count, last_event_at=last),
        builder.turns,
        problems=problems,
        model=builder.model,
        leading=builder.leading,
        more_problems=builder.more_problems,
        **fields,
    )


def describe_media(name: str | None, media_type: str | None, size: int | None) -> str:
    """Return the line that stands for an image or another attached file."""
    noun = "image" if (media_type or "").startswith("image/") else "file"
    parts = [name, media_type, f"{size:,} bytes" if size is not None else None]
    return f"[{noun}: {', '.join(part for part in parts if part)}]"
