"""What a list of conversations can be narrowed and sorted by: tools, models, turns.

A light pass over the elements: nothing is decoded, no text is kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbtui.conversations.formats.jp.config_state import ConversationFacts
from kbtui.conversations.formats.jp.event_parser import is_event
from kbtui.conversations.formats.jp.json_reader import (
    LARGEST_CONFIG,
    read_events,
    read_file,
    read_object,
)
from kbtui.errors import WorkspaceError

if TYPE_CHECKING:
    from kbtui.conversations.models import ConversationInfo


@dataclass(frozen=True)
class ConversationSummary:
    """What was used in a conversation. `tools` and `models` are names, as JP writes them.

    A model counts when it answered; where nothing was answered, the one that would have.
    `turns` counts as `load_conversation` does. `problem` says what of the events is damaged.
    """

    tools: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    turns: int = 0
    problem: str | None = None


def conversation_traits(info: ConversationInfo) -> ConversationSummary:
    """Read a conversation's traits from its files; never raises for what is wrong with them."""
    facts = ConversationFacts()
    if info.base_config_path is not None:
        # What is wrong with it, the conversation's own page tells.
        with suppress(WorkspaceError, ValueError):
            facts.apply(read_object(read_file(str(info.base_config_path), LARGEST_CONFIG), []))
    passed = _Pass(facts)
    problems: list[str] = []
    if info.events_path is not None:
        try:
            for batch in read_events(str(info.events_path), problems):
                passed.take(batch)
        except WorkspaceError as error:
            problems.append(error.message)
    models = passed.models or ({facts.model} if facts.model else set())
    problem = f"events.json: {'; '.join(problems)}" if problems else None
    return ConversationSummary(frozenset(passed.tools), frozenset(models), passed.turns, problem)


class _Pass:
    def __init__(self, facts: ConversationFacts) -> None:
        self.facts = facts
        self.tools: set[str] = set()
        self.models: set[str] = set()
        self.turns = 0
        self._seen = False

    def take(self, elements: list[Any]) -> None:
        for element in elements:
            if type(element) is not dict:
                continue
            kind = element.get("type")
            if kind == "turn_start":
                self.turns += self._seen or not self.turns
                self._seen = True
            elif kind == "config_delta":
                self.facts.apply(element.get("delta", element))
            elif type(kind) is str and is_event(kind):
                self._event(kind, element)

    def _event(self, kind: str, element: dict[str, Any]) -> None:
        self.turns = self.turns or 1
        self._seen = True
        if kind == "tool_call_request" and type(name := element.get("name")) is str:
            self.tools.add(name)
        elif kind == "chat_response" and self.facts.model:
            self.models.add(self.facts.model)
