"""The data of conversations: list entries, turns, events."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

Presence = Literal["projected", "user_local", "external"]
"""Both roots, JP's user-local one, or the workspace alone."""


@dataclass(frozen=True)
class ConversationInfo:
    """One entry of a conversation list; made from metadata and a light look at the events.

    `id` is in deciseconds, `ref` is `jp-c<id>`. `events_count` counts every array
    element, as `jp c ls` does. All times are aware, in UTC. `problem` says why
    the conversation, or a part of it, cannot be read; such a one stays listed.
    `signature` changes whenever one of its files does. `parent` is the id of the conversation
    that this one belongs to.
    """

    id: str
    title: str | None
    directory: Path
    events_path: Path | None
    base_config_path: Path | None
    archived: bool
    presence: Presence
    created_at: datetime
    updated_at: datetime | None = None
    last_event_at: datetime | None = None
    last_activated_at: datetime | None = None
    pinned_at: datetime | None = None
    archived_at: datetime | None = None
    expires_at: datetime | None = None
    labels: dict[str, str] = field(default_factory=dict)
    events_count: int | None = None
    size: int = 0
    signature: str = ""
    problem: str | None = None
    parent: str | None = None

    @property
    def ref(self) -> str:
        """The id as JP prints it."""
        return self.id

    @property
    def name(self) -> str:
        """The title, else "Untitled"."""
        return self.title or "Untitled"

    def counted(self, count: int | None, last: datetime | None) -> "ConversationInfo":
        """The entry with its events' number and the last one's time; `replace` takes ten times as long."""
        entry: ConversationInfo = object.__new__(type(self))
        entry.__dict__.update(self.__dict__, events_count=count, last_event_at=last)
        return entry


@dataclass(slots=True)
class Event:
    """One thing said or done in a turn, decoded.

    `kind` names a row of `event_kinds.EVENT_KINDS`. An event of a kind that is not known has its
    `type` as `name`, and all of it as JSON in `text`.
    `text` is what it says: the message, the result, the question. `name`,
    `arguments` and `call_id` belong to tool calls; a request knows its `result`
    and a result its `request` once paired. `call` is the 1-based number of the
    tool call within its turn (`jp-c…:3.2`). `index` is the position of the
    first array element that it was made from.
    """

    kind: str
    timestamp: datetime | None
    text: str
    index: int
    author: str | None = None
    name: str | None = None
    arguments: dict[str, Any] | None = None
    call_id: str | None = None
    call: int | None = None
    is_error: bool = False
    data: Any = None
    metadata: dict[str, Any] | None = None
    problem: str | None = None
    result: "Event | None" = field(default=None, repr=False)
    request: "Event | None" = field(default=None, repr=False)


@dataclass(slots=True)
class Turn:
    """One turn, 1-based as JP counts; it may be empty.

    `model` is the model in force at its start, where the configuration says.
    """

    number: int
    events: list[Event]
    model: str | None = None
    started_at: datetime | None = None


@dataclass(frozen=True)
class Compaction:
    """An overlay on turns `first` to `last`, 1-based and inclusive."""

    first: int
    last: int
    timestamp: datetime | None
    summary: str | None = None
    reasoning: bool = False
    tool_calls: str | None = None


@dataclass
class Conversation:
    """A whole conversation: its list entry, turns, overlays, and what was wrong.

    `problems` has a line for each damaged part (the first hundred elements by
    name, the rest as a number, which is `more_problems`); everything else was read.
    `leading` are the events of unknown kinds before the first turn: they open none. `resources`
    counts what requests bring with them.
    """

    info: ConversationInfo
    turns: list[Turn]
    compactions: list[Compaction] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    assistant: str | None = None
    model: str | None = None
    attachments: list[str] = field(default_factory=list)
    leading: list[Event] = field(default_factory=list)
    resources: int = 0
    more_problems: int = 0

    @property
    def unknown(self) -> list[Event]:
        """The events of kinds that are not known, wherever they stand."""
        events = (event for turn in self.turns for event in turn.events)
        return [*self.leading, *(event for event in events if event.kind == "unknown")]

    def turn(self, number: int) -> Turn | None:
        """Turn `number`, 1-based; None where there is none."""
        return self.turns[number - 1] if 1 <= number <= len(self.turns) else None
