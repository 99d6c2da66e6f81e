"""Reads one conversation from its files: whole, its beginning, or a summary of what it uses."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbtui.conversations.formats.jp.event_parser import ConversationFacts, EventParser, is_event
from kbtui.conversations.formats.jp.json_reader import (
    LARGEST_CONFIG,
    read_array,
    read_events,
    read_file,
    read_head,
    read_object,
    whole_elements,
)
from kbtui.conversations.formats.jp.locations import BASE_CONFIG, EVENTS
from kbtui.conversations.models import Conversation, ConversationInfo
from kbtui.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable

PROBLEMS_NAMED = 10
"""Problems of one conversation that a list names; its own page names a hundred."""
KINDS_MOST = 5
"""Unknown kinds of event that are named."""


def load_conversation(
    info: ConversationInfo, progress: Callable[[Conversation], None] | None = None
) -> Conversation:
    """Read a conversation; never raises for what is wrong with it, which is in `problems`.

    A big one is read in batches of about a megabyte; `progress` is called after
    each with the conversation so far, whose last turn may still grow. The
    result's `info` has the count and the time of the last element.
    """
    problems: list[str] = []
    facts = ConversationFacts()
    if info.base_config_path is not None:
        read_base(str(info.base_config_path), facts, problems)
    builder = EventParser(facts)
    conversation = Conversation(
        info,
        builder.turns,
        compactions=builder.compactions,
        problems=problems,
        leading=builder.leading,
    )
    if info.events_path is None:
        problems.append(f"there is no {EVENTS}")
        return conversation
    damage: list[str] = []
    try:
        for batch in read_events(str(info.events_path), damage):
            builder.add(batch)
            if progress is not None:
                builder.finish()
                _settle(conversation, builder)
                progress(conversation)
        builder.finish()
        conversation.info = info.counted(builder.count, builder.last_time)
    except WorkspaceError as error:
        damage.append(error.message)
    if info.base_config_path is None and not builder.configured and not damage:
        problems.append("there is no base configuration: JP itself refuses this conversation")
    problems += [f"{EVENTS}: {text}" for text in (*damage, *builder.problems)]
    if builder.more_problems:
        problems.append(f"{EVENTS}: {builder.more_problems} more damaged elements")
    _settle(conversation, builder)
    return conversation


def problems_of(conversation: Conversation) -> str | None:
    """What is wrong with a conversation, each thing once; None for a sound one."""
    own = conversation.info.problem
    new = [problem for problem in conversation.problems if problem not in (own or "")]
    named = [*([own] if own else []), *new[:PROBLEMS_NAMED]]
    if (left := len(new) - PROBLEMS_NAMED) > 0:
        # The line that counts the rest is no problem of its own.
        left += max(0, conversation.more_problems - 1)
        named.append(f"{left} more problems")
    return "; ".join(named) or None


def name_extras(conversation: Conversation) -> list[str]:
    """What a conversation has besides JP's kinds of event, each counted."""
    extras = []
    if unknown := conversation.unknown:
        kinds = Counter(event.name for event in unknown)
        named = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(KINDS_MOST))
        more = f", {len(kinds) - KINDS_MOST} more kinds" if len(kinds) > KINDS_MOST else ""
        before = len(conversation.leading)
        place = f", {before} of them before the first turn" if before else ""
        events = (
            "1 event of an unknown kind"
            if len(unknown) == 1
            else (f"{len(unknown)} events of unknown kinds")
        )
        extras.append(f"{events} ({named}{more}){place}")
    if count := conversation.resources:
        extras.append("1 resource" if count == 1 else f"{count} resources")
    return extras


def load_beginning(info: ConversationInfo, length: int = 1 << 20) -> Conversation | None:
    """A conversation as far as the first `length` bytes of its events go.

    For showing a big one before it is read. None where that is not possible, or where
    it takes all of the file.
    """
    if info.events_path is None or info.size <= length:
        return None
    facts = ConversationFacts()
    builder = EventParser(facts)
    try:
        if info.base_config_path is not None:
            read_base(str(info.base_config_path), facts, [])
        data = whole_elements(read_head(str(info.events_path), length))
        for batch in read_array(data, []) if data else ():
            builder.add(batch)
    except WorkspaceError:
        return None
    builder.finish()
    if not builder.turns:
        return None
    conversation = Conversation(
        info, builder.turns, compactions=builder.compactions, leading=builder.leading
    )
    _settle(conversation, builder)
    return conversation


def _settle(conversation: Conversation, builder: EventParser) -> None:
    conversation.assistant = builder.facts.assistant
    conversation.model = builder.facts.model
    conversation.attachments = builder.facts.attachments
    conversation.resources = builder.resources
    conversation.more_problems = builder.more_problems


def read_base(path: str, facts: ConversationFacts, problems: list[str]) -> None:
    """Take in a base configuration; what is wrong with it goes to `problems`."""
    found: list[str] = []
    try:
        facts.apply(read_object(read_file(path, LARGEST_CONFIG), found))
    except (WorkspaceError, ValueError) as error:
        found.append(getattr(error, "message", str(error)))
    problems += [f"{BASE_CONFIG}: {problem}" for problem in found]


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
