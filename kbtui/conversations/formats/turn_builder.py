"""Builds the turns of a conversation from the records of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.conversations.models import ConversationEvent, ConversationUsage, Turn, add_up_usage
from kbtui.text import format_json

if TYPE_CHECKING:
    from datetime import datetime

PROBLEMS_NAMED = 100
"""The maximum number of problems that are kept as text; further ones are only counted."""


class TurnBuilder:
    """Collects events into turns, numbers tool calls, and pairs them with their results.

    A builder that starts in the middle of a conversation must be told how many turns and records
    come before.
    """

    def __init__(self, *, turns: int = 0, count: int = 0) -> None:
        self.turns_before = turns
        self.count = count
        """The number of records so far, including those before the first turn of this builder."""
        self.turns: list[Turn] = []
        self.leading: list[ConversationEvent] = []
        self.problems: list[str] = []
        self.more_problems = 0
        self.model: str | None = None
        self.last_time: datetime | None = None
        self._early_usage: list[tuple[ConversationUsage, str | None]] = []
        self._calls = 0
        self._open_calls: dict[str, ConversationEvent] = {}
        self._calls_in_turn: set[str] = set()

    @property
    def turn_count(self) -> int:
        """The number of turns so far, including those before this builder's first."""
        return self.turns_before + len(self.turns)

    @property
    def open_call_ids(self) -> tuple[str, ...]:
        """The ids of the calls without a result, sorted."""
        return tuple(sorted(self._open_calls))

    def start_turn(self, time: datetime | None = None) -> Turn:
        """Start the next turn."""
        turn = Turn(self.turn_count + 1, [], self.model, time)
        self.turns.append(turn)
        self._calls = 0
        self._calls_in_turn.clear()
        early, self._early_usage = self._early_usage, []
        for usage, model in early:
            self.add_usage(usage, model)
        return turn

    def set_model(self, model: str) -> None:
        """Set the model that answers from here on."""
        self.model = model
        if self.turns:
            self.turns[-1].model = self.turns[-1].model or model

    def add_usage(self, usage: ConversationUsage, model: str | None = None) -> None:
        """Add tokens to those of the current turn, for the model that answers or the given one.

        Tokens before the first turn count for that turn.
        """
        if self.turns:
            known = self.turns[-1].usage.get(model or self.model)
            total = add_up_usage([known, usage] if known else [usage])
            self.turns[-1].usage[model or self.model] = total or usage
        else:
            self._early_usage.append((usage, model or self.model))

    def add_event(
        self, kind: str, text: str, time: datetime | None = None, **fields: Any
    ) -> ConversationEvent:
        """Add an event to the current turn; start the first turn if there is none."""
        if not self.turns:
            self.start_turn(time)
        event = ConversationEvent(kind, time, text, self.count, **fields)
        turn = self.turns[-1]
        turn.events.append(event)
        turn.started_at = turn.started_at or time
        self.last_time = time or self.last_time
        return event

    def add_unknown_event(
        self, name: str, record: Any, time: datetime | None = None
    ) -> ConversationEvent:
        """Add a record that this version does not know. It is shown as JSON and starts no turn."""
        event = ConversationEvent("unknown", time, format_json(record), self.count, name=name)
        (self.turns[-1].events if self.turns else self.leading).append(event)
        self.last_time = time or self.last_time
        return event

    def add_call(
        self,
        name: str | None,
        arguments: Any,
        call_id: str | None,
        time: datetime | None = None,
        **fields: Any,
    ) -> ConversationEvent:
        """Add a tool call; arguments that are not an object become its text."""
        is_object = type(arguments) is dict
        text = "" if is_object or arguments is None else _format_arguments(arguments)
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
            self._open_calls[call_id] = event
            self._calls_in_turn.add(call_id)
        return event

    def add_result(
        self,
        call_id: str | None,
        text: str,
        time: datetime | None = None,
        *,
        is_error: bool = False,
        **fields: Any,
    ) -> ConversationEvent:
        """Add the result of a tool call, and pair the two."""
        event = self.add_event(
            "tool_call_response", text, time, call_id=call_id, is_error=is_error, **fields
        )
        request = self._open_calls.pop(call_id, None) if call_id is not None else None
        if request is None:
            self.add_event_problem(event, "no call has its id")
            return event
        request.result, event.request = event, request
        event.name = request.name
        if call_id in self._calls_in_turn:
            event.call = request.call
        return event

    def add_event_problem(self, event: ConversationEvent, problem: str) -> None:
        """Record what is wrong with an event."""
        event.problem = f"{event.problem}; {problem}" if event.problem else problem
        self.add_problem(f"record {event.index} ({event.kind}): {problem}")

    def add_problem(self, problem: str) -> None:
        """Record what is wrong with the conversation."""
        if len(self.problems) < PROBLEMS_NAMED:
            self.problems.append(problem)
        else:
            self.more_problems += 1


def _format_arguments(arguments: Any) -> str:
    return arguments if type(arguments) is str else format_json(arguments)
