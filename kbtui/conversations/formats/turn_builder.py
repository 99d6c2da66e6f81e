"""Builds the turns of a conversation from an agent's records.

The module also has functions that read the values in records.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kbtui.conversations.conversation_data_types import (
    Conversation,
    ConversationCompaction,
    ConversationEvent,
    TokenUsage,
    Turn,
    sum_token_usage,
)
from kbtui.dates import parse_timestamp
from kbtui.terminal_text import format_counted_noun, format_json_unless_text, format_readable_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kbtui.conversations.conversation_data_types import ConversationInfo

READ_ERRORS = (
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    IndexError,
    RecursionError,
    OverflowError,
)
"""The exceptions that parsing a record may raise if the record has values of the wrong type."""
_TYPE_NAME = re.compile(r"[\w.:-][\w.: -]{0,59}")
PROBLEMS_NAMED = 100
"""At most this many problems of a conversation are stored as text.

Further problems are only counted.
"""


class ConversationProblemCollector:
    """Collects the problems of a conversation.

    The first `PROBLEMS_NAMED` problems are stored. Further problems are only counted. In the
    descriptions of problems, `record_noun` is the word for a record, and `first_number` is the
    number of the first record.
    """

    def __init__(self, record_noun: str, first_number: int = 1) -> None:
        self.problems: list[str] = []
        self.more_problems = 0
        self._record_noun = record_noun
        self._first_number = first_number

    def add_event_problem(self, event: ConversationEvent, problem: str) -> None:
        """Add a problem to an event and to the conversation."""
        event.problem = f"{event.problem}; {problem}" if event.problem else problem
        number = event.index + self._first_number
        self.add_problem(f"{self._record_noun} {number} ({event.kind}): {problem}")

    def add_problem(self, problem: str) -> None:
        """Add a problem to the conversation."""
        if len(self.problems) < PROBLEMS_NAMED:
            self.problems.append(problem)
        else:
            self.more_problems += 1


class TurnBuilder(ConversationProblemCollector):
    """Collects events into turns, numbers tool calls, and pairs them with their results.

    A builder can start in the middle of a conversation. Then `turns` and `count` are the numbers of
    turns and records before the builder's first record. `record_noun` is the word for a record in
    the descriptions of problems.

    If a value has the wrong type, a method that adds an event raises `TypeError`. The caller then
    adds the whole record with `add_unreadable_record`.
    """

    def __init__(self, *, turns: int = 0, count: int = 0, record_noun: str = "record") -> None:
        super().__init__(record_noun)
        self.turns_before = turns
        self.count = count
        """The number of records read so far, including the records before the first record of this builder."""
        self.turns: list[Turn] = []
        self.leading: list[ConversationEvent] = []
        self.model: str | None = None
        self.last_time: datetime | None = None
        self._early_summaries: list[ConversationEvent] = []
        self._early_usage: list[tuple[TokenUsage, str | None]] = []
        self._calls = 0
        self._open_calls: dict[str, list[tuple[int, ConversationEvent]]] = {}
        """Maps a call id to pairs: a call with this id that has no result yet, preceded by its turn's number."""

    @property
    def has_unanswered_calls_in_turn(self) -> bool:
        """Whether a call of the current turn has no result yet."""
        waiting = (turn for calls in self._open_calls.values() for turn, _ in calls)
        return any(turn == self.turn_count for turn in waiting)

    @property
    def turn_count(self) -> int:
        """The number of turns so far: `turns_before` plus the turns that this builder has built."""
        return self.turns_before + len(self.turns)

    @property
    def unanswered_call_ids(self) -> tuple[str, ...]:
        """The ids of the calls without a result, sorted."""
        return tuple(sorted(self._open_calls))

    def start_turn(self, time: datetime | None = None) -> Turn:
        """Start the next turn."""
        turn = Turn(self.turn_count + 1, [], self.model, time)
        self.turns.append(turn)
        self._calls = 0
        turn.events, self._early_summaries = self._early_summaries, []
        early, self._early_usage = self._early_usage, []
        for usage, model in early:
            self.add_token_usage(usage, model)
        return turn

    def make_current_turn_state(self) -> dict[str, Any]:
        """Return the state of the current turn as JSON.

        Another builder can continue the turn from this state.
        """
        turn = self.turns[-1]
        return {
            "started_at": turn.started_at.isoformat() if turn.started_at else None,
            "model": turn.model,
            "is_rewound": turn.is_rewound,
            "usage": [[model, used._asdict()] for model, used in turn.usage.items()],
            "calls": self._calls,
        }

    def resume_turn(self, state: Mapping[str, Any]) -> None:
        """Continue a turn whose earlier events are in another builder."""
        turn = self.start_turn(parse_timestamp(state["started_at"]))
        turn.model, turn.is_rewound = state["model"], state["is_rewound"]
        turn.usage = {model: TokenUsage(**used) for model, used in state["usage"]}
        self._calls = state["calls"]

    def set_model(self, model: str, *, is_before_answer: bool = False) -> None:
        """Set the model of the turns that start after this call.

        If the current turn has no model, its model is set, too. If `is_before_answer` is true, the
        current turn has no answer yet, and `model` replaces the turn's model.
        """
        _ensure_value_has_type("the model", model, str)
        self.model = model
        if self.turns and (is_before_answer or not self.turns[-1].model):
            self.turns[-1].model = model

    def add_token_usage(self, usage: TokenUsage, model: str | None = None) -> None:
        """Add tokens to the usage of the current turn.

        `model` is the model that used the tokens; None means the model that was set last. If there
        is no turn yet, the tokens are counted in the first turn.
        """
        _ensure_value_has_type("the model", model, str | None)
        if self.turns:
            known = self.turns[-1].usage.get(model or self.model)
            total = sum_token_usage([known, usage] if known else [usage])
            self.turns[-1].usage[model or self.model] = total or usage
        else:
            self._early_usage.append((usage, model or self.model))

    def add_event(
        self, kind: str, text: str, time: datetime | None = None, **fields: Any
    ) -> ConversationEvent:
        """Add an event to the current turn. If there is no turn yet, start the first one."""
        _ensure_event_values_have_declared_types(text, fields)
        if not self.turns:
            self.start_turn(time)
        event = ConversationEvent(kind, time, text, self.count, **fields)
        turn = self.turns[-1]
        turn.events.append(event)
        turn.started_at = turn.started_at or time
        self.last_time = time or self.last_time
        return event

    def add_compaction_summary(self, text: str, time: datetime | None = None) -> None:
        """Add a summary that the model sees instead of all earlier events.

        A summary that is added before the first turn becomes part of the first turn.
        """
        if self.turns:
            self.add_event("compaction", text, time)
        else:
            _ensure_event_values_have_declared_types(text, {})
            self._early_summaries.append(ConversationEvent("compaction", time, text, self.count))

    def add_unknown_event(
        self, name: str, record: Any, time: datetime | None = None
    ) -> ConversationEvent:
        """Add a record whose kind kbtui does not know. It is shown as JSON and starts no turn."""
        event = ConversationEvent(
            "unknown", time, format_readable_json(record), self.count, name=name
        )
        (self.turns[-1].events if self.turns else self.leading).append(event)
        self.last_time = time or self.last_time
        return event

    def add_unreadable_record(self, name: str, record: Any, time: datetime | None = None) -> None:
        """Add a record in which a value has the wrong type.

        The record becomes an event of an unknown kind. The problem is added to this event and to
        the conversation. `name` is the type of the record, or "record" if the record has no type.
        """
        event = self.add_unknown_event(name, record, time)
        event.problem = "the record has values of an unexpected type, so it is shown as JSON"
        has_type = name != "record" and _TYPE_NAME.fullmatch(name)
        known = f"the record of type {name}" if has_type else "the record"
        self.add_record_problem(f"{known} has values of an unexpected type, so it is shown as JSON")

    def add_tool_call(
        self,
        name: str | None,
        arguments: Any,
        call_id: str | None,
        time: datetime | None = None,
        **fields: Any,
    ) -> ConversationEvent:
        """Add a tool call. If `arguments` is not an object, it becomes the text of the event."""
        is_object = type(arguments) is dict
        text = "" if is_object or arguments is None else format_json_unless_text(arguments)
        event = self.add_event(
            "tool_call_request",
            text,
            time,
            name=name,
            arguments=arguments if is_object else {},
            call_id=call_id,
            **fields,
        )
        self._calls += 1
        event.call = self._calls
        if call_id is not None:
            self._open_calls.setdefault(call_id, []).append((self.turn_count, event))
        return event

    def add_tool_result(
        self,
        call_id: str | None,
        text: str,
        time: datetime | None = None,
        *,
        is_error: bool = False,
        **fields: Any,
    ) -> ConversationEvent:
        """Add the result of a tool call; pair it with the oldest open call that has the same id."""
        event = self.add_event(
            "tool_call_response", text, time, call_id=call_id, is_error=is_error, **fields
        )
        waiting = self._open_calls.get(call_id) if call_id is not None else None
        if call_id is None or waiting is None:
            self.add_event_problem(event, "no tool call has the same id")
            return event
        turn, request = waiting.pop(0)
        if not waiting:
            del self._open_calls[call_id]
        request.result, event.request = event, request
        event.name = request.name
        if turn == self.turn_count:
            event.call = request.call
        return event

    def find_first_user_request(self) -> str | None:
        """Return the text of the first request that is not blank; None if there is none."""
        events = (event for turn in self.turns for event in turn.events)
        requests = (event.text for event in events if event.kind == "chat_request")
        return next((text for text in requests if text.strip()), None)

    def make_conversation(
        self,
        info: ConversationInfo,
        problems: list[str],
        compactions: list[ConversationCompaction] | None = None,
        events_count: int | None = None,
    ) -> Conversation:
        """Return a conversation with everything added so far.

        Its `info` has the number of events and the time of the last event. If `events_count`
        is not None, it replaces the number of events. The conversation's problems are `problems`,
        followed by those of the builder.
        """
        problems = [*problems, *self.problems]
        if self.more_problems:
            noun = "problem" if self.more_problems == 1 else "problems"
            problems.append(f"{self.more_problems} more {noun}")
        if events_count is None:
            events_count = sum(len(turn.events) for turn in self.turns)
        last = self.last_time or info.last_event_at
        return Conversation(
            replace(info, events_count=events_count, last_event_at=last),
            self.turns,
            compactions=compactions or [],
            problems=problems,
            model=self.model,
            leading=self.leading,
            more_problems=self.more_problems,
        )

    def add_record_problem(self, problem: str) -> None:
        """Add a problem of the current record to the conversation.

        The description begins with the record's number.
        """
        self.add_problem(f"{self._record_noun} {self.count + 1}: {problem}")


def _ensure_event_values_have_declared_types(text: Any, fields: dict[str, Any]) -> None:
    """Raise `TypeError` if a value does not have the type that `ConversationEvent` declares."""
    _ensure_value_has_type("the text", text, str)
    for name in ("name", "call_id", "author", "problem", "outcome"):
        _ensure_value_has_type(name, fields.get(name), str | None)
    for name in ("arguments", "fields", "metadata"):
        values = fields.get(name)
        _ensure_value_has_type(name, values, dict | None)
        for key in values or ():
            _ensure_value_has_type(f"a key of {name}", key, str)


def _ensure_value_has_type(name: str, value: Any, wanted: Any) -> None:
    if not isinstance(value, wanted):
        raise TypeError(f"{name} is of type {type(value).__name__}")


def get_text_or_none(value: Any) -> str | None:
    """Return `value` if it is a non-empty string, otherwise None."""
    return value if type(value) is str and value else None


def get_count_or_none(value: Any) -> int | None:
    """Return `value` as a count of tokens or bytes; None if it is negative or not a number."""
    if type(value) is float and 0 <= value < 1 << 62:
        return int(value)
    return value if type(value) is int and value >= 0 else None


def count_base64_bytes(data: str) -> int:
    """Return the number of bytes that a base64 string encodes."""
    return len(data.rstrip("=")) * 3 // 4


def format_media_placeholder(name: str | None, media_type: str | None, size: int | None) -> str:
    """Return the line that stands for an image or another attached file."""
    noun = "image" if (media_type or "").startswith("image/") else "file"
    length = format_counted_noun(size, "byte") if size is not None else None
    parts = [name, media_type, length]
    return f"[{noun}: {', '.join(part for part in parts if part)}]"
