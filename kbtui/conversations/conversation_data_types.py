"""Data classes for conversations: metadata, turns, events, compactions and segments.

Also defines the JSON form of an event.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from kbtui.dates import format_time_as_rfc3339_utc
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_counted_noun, format_json_value_on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from pathlib import Path
    from typing import Required, TypedDict

    class ConversationFileFacts(TypedDict, total=False):
        """The fields of `ConversationInfo` that are unknown until the files have been read."""

        title: str | None
        created_at: datetime
        last_event_at: datetime | None
        size: int
        labels: dict[str, str]
        problem: str | None
        kept_from: str | None

    class ConversationEventJson(TypedDict, total=False):
        """An event of a turn as JSON, with the documented keys.

        Keys that do not apply to the event are left out.
        """

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
        blocks: list[dict[str, Any]] | None
        content: Required[str | None]


Presence = Literal["projected", "user_local", "external"]
"""Where JP stores a conversation.

* `external`: only in the workspace.
* `user_local`: only in the user's own directory.
* `projected`: in both.
"""
TIME_SORTS = ("activity", "created", "updated")
"""The times by which conversations can be sorted; see `ConversationInfo.get_sort_time`."""
MAX_NAMED_PROBLEMS = 10
"""`Conversation.describe_problems` lists at most this many event problems, and only counts the others."""
MAX_NAMED_KINDS = 5
"""`Conversation.describe_unknown_events` lists at most this many unknown kinds, and only counts the others."""


@dataclass(frozen=True)
class ConversationInfo:
    """A conversation's metadata, the number of its events, and the time of the last event.

    * `id` has the prefix of its format (`jp-c17457886043`). `agent` is the agent's name.
    * `events_count` is the number of elements in the file, as in `jp c ls`; it is None until they
      are counted. `size` is in bytes. All times are in UTC.
    * `problem` says why the conversation, or a part of it, cannot be read.
    * `signature` changes whenever one of the conversation's files changes.
    * `parent` is the id of the conversation that this one belongs to.
    * `working_directory` is the directory in which the agent ran. `worktree` is the name of the Git
      worktree that contains this directory; None if the directory is in the workspace itself.
    * `kept_from` is set only if the conversation is read from the archive. It is the path of the
      agent's original file.
    * `blob_directories` are the directories that store content outside the conversation's own file.
    """

    id: str
    title: str | None
    directory: Path
    events_path: Path | None
    base_config_path: Path | None
    archived: bool
    presence: Presence | None
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
    agent: str = "jp"
    working_directory: str | None = None
    worktree: str | None = None
    kept_from: str | None = None
    blob_directories: tuple[str, ...] = ()

    @property
    def last_activity_at(self) -> datetime:
        """The time of the last event or, if that time is unknown, the creation time."""
        return self.last_event_at or self.created_at

    def get_sort_time(self, sort: str) -> datetime:
        """Return the time that is this conversation's sort key in the order `sort`.

        `sort` is one of `TIME_SORTS`.
        """
        if sort == "updated":
            return self.updated_at or self.created_at
        return self.last_activity_at if sort == "activity" else self.created_at

    def make_time_sort_key(self, sort: str = "activity") -> tuple[datetime, datetime, str]:
        """Return a sort key for the order `sort`. Later times have greater keys."""
        return self.get_sort_time(sort), self.created_at, self.id

    @property
    def ref(self) -> str:
        """The reference of the conversation: its id."""
        return self.id

    @property
    def name(self) -> str:
        """The title, or "Untitled"."""
        return self.title or "Untitled"

    @property
    def short_agent_name(self) -> str:
        """The agent's name as it occurs in ids, such as `claude`."""
        return self.id.removeprefix("x-").partition("-")[0]

    def has_label(self, wanted: str) -> bool:
        """Return whether the conversation has the label `wanted`: a key with any value, or `KEY=VALUE`."""
        key, sign, value = wanted.partition("=")
        return key in self.labels and (not sign or self.labels[key] == value)

    def copy_with_problem(self, problem: str) -> ConversationInfo:
        """Return the metadata with one more problem."""
        return replace(self, problem=f"{self.problem}; {problem}" if self.problem else problem)

    def already_lists_problem(self, problem: str) -> bool:
        """Return whether the metadata already contains this problem."""
        return f"; {problem}; " in f"; {self.problem}; "


ContentState = Literal["elsewhere", "missing", "damaged", "too-large", "encrypted"]
"""The reason why the content of a block cannot be read.

* `elsewhere`: it is stored outside the workspace.
* `missing`: its file does not exist.
* `damaged`: its file cannot be read, or has a wrong checksum.
* `too-large`: it is too large for kbtui to read.
* `encrypted`: it is encrypted.
"""


@dataclass(slots=True)
class ContentBlock:
    """One part of an event's content: text, an image, a question, or a resource such as a file.

    - `kind` is the type of the block: `text`, `resource`, `image`, `question` or another type.
    - `text` is the content. It is "" if the content is not text, or if `state` is not None.
    - `name` is a path or URI. `title` is a human-readable name. `media_type` is a MIME type such as
      `text/x-rust`.
    - `size` is the size of the content in bytes; None if the file does not state it.
    - `state` says why the content cannot be read; None if it can be read.
    - `recipients` are the people who can decrypt the content.
    """

    kind: str
    text: str = ""
    name: str | None = None
    title: str | None = None
    media_type: str | None = None
    size: int | None = None
    state: ContentState | None = None
    recipients: tuple[str, ...] = ()

    @property
    def is_plain_text(self) -> bool:
        """Whether the block is readable text."""
        return self.kind == "text" and self.state is None


def describe_content_block(block: ContentBlock) -> str:
    """Describe a block by its title, name, type, size and state, for example `image/png, 400 bytes`."""
    size = format_counted_noun(block.size, "byte") if block.size is not None else None
    parts = [block.title, block.name, block.media_type, size, _describe_content_block_state(block)]
    return ", ".join(part for part in parts if part)


def format_content_block_heading(block: ContentBlock) -> str:
    """Return the heading line of a block, such as `[image: image/png, 400 bytes]`."""
    details = describe_content_block(block)
    return f"[{block.kind}: {details}]" if details else f"[{block.kind}]"


def _describe_content_block_state(block: ContentBlock) -> str | None:
    if block.state == "encrypted" and block.recipients:
        return f"encrypted for {', '.join(block.recipients)}"
    return CONTENT_STATE_LABELS[block.state] if block.state else None


CONTENT_STATE_LABELS: dict[ContentState, str] = {
    "elsewhere": "stored elsewhere",
    "missing": "missing",
    "damaged": "damaged",
    "too-large": "too large to read",
    "encrypted": "encrypted",
}


def format_content_blocks(blocks: Iterable[ContentBlock]) -> str:
    """Return blocks as text. Each block except plain text begins with a heading line."""
    lines = []
    for block in blocks:
        if not block.is_plain_text:
            lines.append(format_content_block_heading(block))
        if block.text or block.is_plain_text:
            lines.append(block.text)
    return "\n".join(lines)


@dataclass(slots=True)
class ConversationEvent:
    """A decoded event of a turn: a message, tool call, result, question and so on.

    * `kind` is a key of `conversation_event_kinds.EVENT_KINDS`. `fields` contains the values of the fields that
      this table lists for the kind.
    * `text` is the content, such as the text of a message, result or question.
    * `name`, `arguments` and `call_id` belong to tool calls. `call` is the 1-based number of the
      call in its turn (`jp-c…:3.2`).
    * `author` is the person who wrote a request. In a conversation with several assistants, the
      `author` of an answer is the assistant that gave the answer.
    * An event of an unknown kind has its type in `name`, and the whole event as JSON in `text`.
    * `index` is the 0-based position of the event's first element in the file.
    * For a tool call or question, `result` is the event that answers it. For the answer, `request`
      is the call or question.
    * `is_error` says whether a call failed. It is None for events that are not results of calls.
    * `outcome` is the agent's one-line summary of a result, such as `Received 268KB (200 OK)`.
    * `data` is the JSON value of a structured response, or of an answer to a question.
    * `event_id` is the id of the event in the file. Only versions of JP that implement RFD 097
      write it.
    * `blocks` are the parts of `text`; None if `text` is not divided into parts.
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
    is_error: bool | None = None
    fields: dict[str, Any] | None = None
    data: Any = None
    metadata: dict[str, Any] | None = None
    problem: str | None = None
    outcome: str | None = None
    result: ConversationEvent | None = field(default=None, repr=False)
    request: ConversationEvent | None = field(default=None, repr=False)
    event_id: str | None = None
    blocks: list[ContentBlock] | None = None

    @property
    def arguments_or_fields(self) -> dict[str, Any] | None:
        """The arguments of a tool call, or the fields of any other event.

        None if the event has only text.
        """
        values = self.fields if self.arguments is None else self.arguments
        return None if self.text and not values else values


def format_values_as_lines(values: dict[str, Any]) -> str:
    """Format named values as text, each on its own line."""
    lines = (f"{key}: {format_json_value_on_one_line(value)}" for key, value in values.items())
    return "\n".join(lines)


def format_event_text(
    event: ConversationEvent,
    format_values: Callable[[dict[str, Any]], str] = format_values_as_lines,
) -> str:
    """Return an event as text: the name of the called tool, the event's text, and its arguments or fields."""
    if event.arguments is None and not event.fields and event.text:
        return event.text
    parts = [event.text]
    if event.arguments is not None:
        parts.insert(0, event.name or "")
    if (values := event.arguments_or_fields) is not None:
        parts.append(format_values(values))
    return "\n".join(filter(None, parts))


def get_subagent_id_of_result(event: ConversationEvent, conversation: str) -> str | None:
    """Return the id of the subagent that produced the result `event`; None if none did.

    `conversation` is the id of the conversation that contains the result.
    """
    subagent = (event.metadata or {}).get("subagent")
    if event.kind != "tool_call_response" or type(subagent) is not str:
        return None
    return f"{conversation.partition('~')[0]}~{subagent}"


class TokenUsage(NamedTuple):
    """The token counts of a conversation or a turn; None stands for an unknown count.

    `input_tokens` excludes tokens that were read from or written to the provider's cache.
    `is_estimate` says whether the agent only estimated the numbers.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None
    is_estimate: bool = False


def sum_token_usage(usages: Iterable[TokenUsage]) -> TokenUsage | None:
    """Return the sum of `usages`, or None if `usages` is empty.

    The sum is an estimate if any of `usages` is an estimate.
    """
    found = list(usages)
    if not found:
        return None

    def sum_known_counts(values: Iterable[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    *counts, are_estimates = zip(*found, strict=True)
    return TokenUsage._make([*map(sum_known_counts, counts), any(are_estimates)])


def sum_token_usage_by_model(
    usages: Iterable[tuple[str | None, TokenUsage]],
) -> dict[str | None, TokenUsage]:
    """Map each model to the sum of its usages."""
    by_model: dict[str | None, list[TokenUsage]] = {}
    for model, usage in usages:
        by_model.setdefault(model, []).append(usage)
    sums = {model: sum_token_usage(usages) for model, usages in by_model.items()}
    return {model: usage for model, usage in sums.items() if usage is not None}


@dataclass(slots=True)
class Turn:
    """One turn, numbered from 1 as in JP. A turn may have no events.

    `model` is the model that was configured when the turn started; None if no model was configured.
    """

    number: int
    events: list[ConversationEvent]
    model: str | None = None
    started_at: datetime | None = None
    is_rewound: bool = False
    """Whether the user left the turn behind by going back to an earlier turn."""
    usage: dict[str | None, TokenUsage] = field(default_factory=dict)
    """Maps each model (None if unknown) to the tokens that the turn used with this model.

    Empty if the file contains no token counts.
    """
    event_id: str | None = None
    """The id of the element that starts the turn in JP's file.

    Only versions of JP that implement RFD 097 write it.
    """

    @property
    def attachment_count(self) -> int:
        """The number of attachments of the turn's requests."""
        return sum(event.kind == "attachment" for event in self.events)

    def find_jp_event_id_of_turn_or_call(self, call: int | None = None) -> str | None:
        """Return the id of this turn in JP's file or, if `call` is given, the id of the turn's call with this number.

        Returns None if the file has no such id.
        """
        if call is None:
            ids = (self.event_id, *(event.event_id for event in self.events))
        else:
            calls = (one for one in self.events if one.arguments is not None and one.call == call)
            ids = tuple(event.event_id for event in calls)
        return next(filter(None, ids), None)


def count_unrewound_turns(turns: Iterable[Turn]) -> int:
    """Return the number of turns that are not rewound."""
    return sum(not turn.is_rewound for turn in turns)


class ConversationCompaction(NamedTuple):
    """A compaction of the turns `first` to `last`: the model no longer sees the complete turns.

    Both numbers count from 1 and are inclusive. If there is a `summary`, the model sees it instead
    of these turns. `reasoning` says whether reasoning is removed. `tool_calls` says what is removed
    from tool calls:

    - `omit`: the whole calls
    - `strip`: arguments and results
    - `strip-request`: arguments
    - `strip-response`: results
    - None: nothing
    """

    first: int
    last: int
    timestamp: datetime | None
    summary: str | None = None
    reasoning: bool = False
    tool_calls: str | None = None


@dataclass
class Conversation:
    """A whole conversation: its metadata, turns and compactions.

    Each line of `problems` describes one problem. After the first 100 problems, further ones are
    only counted; their number is in `more_problems` and in the last line. `leading` contains the
    events of unknown kinds before the first turn.
    """

    info: ConversationInfo
    turns: list[Turn]
    compactions: list[ConversationCompaction] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    assistant: str | None = None
    model: str | None = None
    attachments: list[str] = field(default_factory=list)
    leading: list[ConversationEvent] = field(default_factory=list)
    more_problems: int = 0

    @property
    def unknown_events(self) -> list[ConversationEvent]:
        """All events of unknown kinds, including the events before the first turn."""
        events = (event for turn in self.turns for event in turn.events)
        return [*self.leading, *(event for event in events if event.kind == "unknown")]

    def find_turn(self, number: int) -> Turn | None:
        """Return turn `number` (1-based), or None if the conversation has no such turn."""
        return self.turns[number - 1] if 1 <= number <= len(self.turns) else None

    def describe_problems(self) -> str | None:
        """Return the problems of metadata and events as one line; None if there are none."""
        own = self.info.problem
        new = [problem for problem in self.problems if not self.info.already_lists_problem(problem)]
        named = [*([own] if own else []), *new[:MAX_NAMED_PROBLEMS]]
        if (left := len(new) - MAX_NAMED_PROBLEMS) > 0:
            # One of the lines only counts further damaged elements, so it is not a separate problem.
            left += max(0, self.more_problems - 1)
            named.append(format_counted_noun(left, "more problem"))
        return "; ".join(named) or None

    def describe_unknown_events(self) -> str | None:
        """Return a phrase that counts the events of unknown kinds; None if there are none."""
        unknown = self.unknown_events
        if not unknown:
            return None
        kinds = Counter(event.name for event in unknown)
        named = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(MAX_NAMED_KINDS))
        left = len(kinds) - MAX_NAMED_KINDS
        more = f", {format_counted_noun(left, 'more kind')}" if left > 0 else ""
        where = f", {len(self.leading)} of them before the first turn" if self.leading else ""
        events = format_counted_noun(
            len(unknown), "event of an unknown kind", "events of unknown kinds"
        )
        return f"{events} ({named}{more}){where}"


class ConversationToolsAndModels(NamedTuple):
    """The names of the tools and models that a conversation used, as its file spells them.

    * `models` are the models that answered. If no model has answered yet, `models` contains the
      configured model.
    * `turns` is the number of turns that are not rewound.
    * `problem` describes the conversation's problems, as `Conversation.describe_problems` returns
      them.
    """

    tools: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    turns: int = 0
    problem: str | None = None


class ParsingResumePoint(NamedTuple):
    """A position in a conversation's file at which reading can resume.

    `offset` is the position in bytes. It is at the beginning of a turn or within a turn. The other
    attributes describe the file before this position:

    - `digest`: the SHA-256 of the bytes, in hexadecimal
    - `turns`: the number of complete turns
    - `elements`: the number of elements
    - `configured`: whether the first element is a configuration
    - `problem`: the first problem
    - `waiting`: the ids of the unanswered calls in complete turns
    """

    offset: int
    digest: str
    turns: int
    elements: int
    configured: bool = False
    problem: str | None = None
    waiting: tuple[str, ...] = ()
    state: Mapping[str, object] | None = None
    """More values, as JSON, that the format needs to resume reading at this position."""
    open_turn: Mapping[str, Any] | None = None
    """The state of the turn as JSON if the position is within a turn, else None."""


class ConversationSegment(NamedTuple):
    """Consecutive turns of a conversation, with their numbers in the whole conversation.

    `start` is the position in the file at which this segment begins; None means the beginning of
    the file. `resume_point` is the last position in this segment at which reading can resume; None
    means that there is no such position. If `start` is within a turn, the first turn lacks the events
    before `start`, but its usage is that of the whole turn.
    """

    conversation: Conversation
    start: ParsingResumePoint | None
    resume_point: ParsingResumePoint | None
    is_last: bool


class AgentCommand(NamedTuple):
    """An agent's command, and the directory in which it must run.

    If `directory` is None, the command runs in the root of the workspace.
    """

    words: tuple[str, ...]
    directory: str | None


def make_event_json(event: ConversationEvent, conversation: str) -> ConversationEventJson:
    """Return an event of a conversation as JSON.

    Keys that do not apply to the event are left out.
    """
    shape: ConversationEventJson = {
        "event_kind": event.kind,
        "timestamp": format_time_as_rfc3339_utc(event.timestamp),
        "event_id": event.event_id,
        "author": event.author,
        "name": event.name,
        "call": event.call,
        "is_error": event.is_error,
        "arguments": event.arguments,
        "fields": event.fields,
        "outcome": event.outcome,
        "subagent": get_subagent_id_of_result(event, conversation),
        "problem": event.problem,
        "blocks": [_make_block_json(block) for block in event.blocks] if event.blocks else None,
        "content": event.text if event.text or event.arguments is None else None,
    }
    always = ("timestamp", "content")
    kept = {name: value for name, value in shape.items() if value is not None or name in always}
    return cast("ConversationEventJson", kept)


def _make_block_json(block: ContentBlock) -> dict[str, Any]:
    """Return a block of an event's content as JSON.

    The text of the block is left out, because the event's key `content` contains it.
    """
    shape = {
        "kind": block.kind,
        "name": block.name,
        "title": block.title,
        "media_type": block.media_type,
        "bytes": block.size,
        "state": block.state,
        "recipients": list(block.recipients) or None,
    }
    return {name: value for name, value in shape.items() if value is not None}
