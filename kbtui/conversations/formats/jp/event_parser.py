"""From the elements of `events.json` to turns of decoded events.

One pass, element by element: what is wrong with one never reaches another. The configuration's
deltas stand between the events, and what they say of assistant and model is taken in here too.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbtui.conversations.event_kinds import EVENT_KINDS
from kbtui.conversations.formats.jp.content import (
    content_text,
    decode_content,
    decode_metadata,
    decode_value,
    resources_text,
)
from kbtui.conversations.formats.jp.json_reader import DAMAGED
from kbtui.conversations.models import Compaction, Event, Turn
from kbtui.dates import parse_timestamp
from kbtui.text import pretty_json

if TYPE_CHECKING:
    from collections.abc import Callable


class ConversationFacts:
    """The facts in force after the configurations applied so far."""

    def __init__(self) -> None:
        self.assistant: str | None = None
        self.model: str | None = None
        self.attachments: list[str] = []

    def apply(self, config: Any) -> None:
        """Merge a base configuration or a delta; whatever has another form is passed over."""
        if not isinstance(config, dict):
            return
        assistant = config.get("assistant")
        if isinstance(assistant, dict):
            if isinstance(name := assistant.get("name"), str):
                self.assistant = name
            if isinstance(model := assistant.get("model"), dict):
                self.model = _model(model.get("id")) or self.model
        conversation = config.get("conversation")
        if isinstance(conversation, dict):
            self._attach(conversation.get("attachments"))

    def _attach(self, value: Any) -> None:
        """A list, or `{value, strategy}`; only "replace" drops what was attached before."""
        replace = False
        if isinstance(value, dict):
            replace = value.get("strategy") == "replace"
            value = value.get("value")
        if not isinstance(value, list):
            return
        kept = [] if replace else self.attachments
        named = [name for item in value if (name := _attachment(item))]
        self.attachments = list(dict.fromkeys([*kept, *named]))


def _model(value: Any) -> str | None:
    """An alias as it stands, or `provider/name`."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, dict):
        parts = [part for key in ("provider", "name") if isinstance(part := value.get(key), str)]
        return "/".join(parts) or None
    return None


def _attachment(item: Any) -> str | None:
    """One attachment as a URL; JP writes URLs and `{type, path, params}`."""
    if isinstance(item, str):
        return item or None
    if not isinstance(item, dict) or not isinstance(kind := item.get("type"), str):
        return None
    path = item.get("path")
    params = item.get("params")
    arguments = params.get("args") if isinstance(params, dict) else None
    url = f"{kind}://{path if isinstance(path, str) else ''}"
    if isinstance(arguments, list):
        from urllib.parse import quote

        url += "".join(
            f"{'&' if number else '?'}arg={quote(str(argument), safe='')}"
            for number, argument in enumerate(arguments)
        )
    return url


_Element = dict[str, Any]
_Open = dict[str, "Event | deque[Event]"]
"""Requests without an answer by id; several of one id in their order."""

_bare = object.__new__
_read_time = datetime.fromisoformat

PROBLEMS_MOST = 100
"""Damaged elements that are named; the others are counted."""


class EventParser:
    """Takes elements in order; `turns` and the rest are whole after `finish`.

    `turns` and `count` say how many turns and elements were taken before, by another.
    """

    def __init__(
        self, facts: ConversationFacts | None = None, *, turns: int = 0, count: int = 0
    ) -> None:
        self.facts = facts or ConversationFacts()
        self.turns_before = turns
        self.turns: list[Turn] = []
        self.compactions: list[Compaction] = []
        self.problems: list[str] = []
        self.more_problems = 0
        self.leading: list[Event] = []
        self.resources = 0
        self.count = count
        self.configured = False
        self.last_time: datetime | None = None
        self._turn: Turn | None = None
        self._calls = 0
        self._tools: _Open = {}
        self._inquiries: _Open = {}
        self._run: Event | None = None
        self._pieces: list[str] = []

    def add(self, elements: list[Any]) -> None:
        """Take the next elements."""
        takers = _TAKERS
        for index, element in enumerate(elements, self.count):
            try:
                taker = takers[element["type"]]
            except (KeyError, TypeError):
                self._other(index, element)
            else:
                taker(self, index, element)
        self.count += len(elements)
        if elements:
            last = elements[-1]
            self.last_time = parse_timestamp(last.get("timestamp")) if type(last) is dict else None

    def finish(self) -> None:
        """Close what is open at the end; safe to call between two `add`, and again."""
        if self._run is not None and self._pieces:
            self._run.text = "".join((self._run.text, *self._pieces))
            self._pieces.clear()

    @property
    def waiting(self) -> set[str]:
        """The ids of calls and questions without an answer so far."""
        return {*self._tools, *self._inquiries}

    def _other(self, index: int, element: Any) -> None:
        """What is of no type that is known."""
        if element is DAMAGED:
            return
        if type(element) is not dict:
            self._note(f"element {index} is not an object")
        elif (kind := element.get("type")) in EVENT_KINDS and kind != "unknown":
            self._simple_event(index, element, kind)
        elif type(kind) is str:
            # Of a later JP: shown as it is. It opens no turn, and ends no run of pieces.
            self._timed(index, kind, element)
            time = parse_timestamp(element.get("timestamp"))
            event = Event("unknown", time, pretty_json(element), index, name=kind)
            (self._turn.events if self._turn else self.leading).append(event)
        else:
            self._note(f"element {index} has no type")

    # one taker an event type

    def _simple_event(self, index: int, element: _Element, kind: str) -> None:
        """An event of a kind that needs no more than a row in the table: its content is its text."""
        self._event(kind, index, element, element.get("content"), "content")

    def _turn_start(self, index: int, element: _Element) -> None:
        self.finish()
        self._run = None
        self._timed(index, "turn_start", element)
        # The first opens the first turn, unless something stood before it.
        self._new_turn().started_at = parse_timestamp(element.get("timestamp"))

    def _chat_request(self, index: int, element: _Element) -> None:
        event = self._event("chat_request", index, element, element.get("content"), "content")
        if (author := element.get("author")) is not None:
            if type(author) is str:
                event.author = author
            else:
                self._blame(event, "its author is no text")
        if "schema" in element:
            event.data = element["schema"]
        if resources := element.get("resources"):
            self._take_resources(event, resources)

    def _take_resources(self, event: Event, resources: Any) -> None:
        """What a request brings with it is a part of what it says."""
        try:
            count, text = resources_text(resources)
        except RecursionError:
            self._blame(event, "its resources are nested too deeply")
            return
        self.resources += count
        event.text = f"{event.text}\n\n{text}" if event.text else text

    def _chat_response(self, index: int, element: _Element) -> None:
        """`message`, `reasoning` or `data`, whichever comes first in this order."""
        if "message" in element:
            kind = "message"
        elif "reasoning" in element:
            kind = "reasoning"
        else:
            self._structured(index, element)
            return
        text, run = element[kind], self._run
        if run is not None and run.kind == kind and type(text) is str:
            # JP may have split one over several events.
            self._pieces.append(text)
            if type(metadata := element.get("metadata")) is dict:
                run.metadata = {**(run.metadata or {}), **self._metadata(run, metadata)}
            return
        event = self._event(kind, index, element, text, kind)
        if event.problem is None:
            self._run = event

    def _structured(self, index: int, element: _Element) -> None:
        if "data" in element:
            data = element["data"]
            text = data if type(data) is str else pretty_json(data)
            event = self._event("structured", index, element, text, "data")
            event.data = data
        else:
            event = self._event("message", index, element, "", "message")
            self._blame(event, "it has neither message nor reasoning nor data")

    def _tool_request(self, index: int, element: _Element) -> None:
        arguments = element.get("arguments", {})
        name = element.get("name")
        event = self._event("tool_call_request", index, element, "", "arguments")
        self._calls += 1
        event.call = self._calls
        if type(name) is str:
            event.name = name
        else:
            self._blame(event, "it has no name")
        if type(arguments) is dict:
            try:
                event.arguments = decode_value(arguments)
            except RecursionError:
                event.arguments = {}
                self._blame(event, "its arguments are nested too deeply")
        else:
            event.arguments = {}
            event.text = pretty_json(arguments)
            self._blame(event, "its arguments are not an object")
        self._await(event, element, self._tools)

    def _tool_response(self, index: int, element: _Element) -> None:
        content = element.get("content")
        if type(content) is str:
            content = decode_content(content)
        event = self._event("tool_call_response", index, element, content, "content")
        # With typed content comes the name that the Model Context Protocol has for it.
        error = element.get("is_error", element.get("isError"))
        event.is_error = error is True
        if type(error) is not bool:
            self._blame(event, "it does not say whether it is an error")
        self._answer(event, element, self._tools)

    def _inquiry_request(self, index: int, element: _Element) -> None:
        question = element.get("question")
        text = question.get("text") if type(question) is dict else None
        event = self._event("inquiry_request", index, element, text, "question")
        event.data = question
        if type(source := element.get("source")) is dict:
            name = source.get("name") or source.get("source")
            event.name = name if type(name) is str else None
        else:
            self._blame(event, "it does not say who asks")
        self._await(event, element, self._inquiries)

    def _inquiry_response(self, index: int, element: _Element) -> None:
        answer = element.get("answer")
        text = answer if type(answer) is str else pretty_json(answer)
        event = self._event("inquiry_response", index, element, text, "answer")
        event.data = answer
        if "answer" not in element:
            self._blame(event, "it has no answer")
        self._answer(event, element, self._inquiries)

    def _config_delta(self, index: int, element: _Element) -> None:
        if index == 0:
            self.configured = True
        self._timed(index, "config_delta", element)
        # The oldest files have the configuration's keys beside the type.
        delta = element.get("delta", element)
        if type(delta) is not dict:
            self._note(f"element {index} (config_delta): its delta is not an object")
        self.facts.apply(delta)

    def _compaction(self, index: int, element: _Element) -> None:
        first, last = element.get("from_turn"), element.get("to_turn")
        if type(first) is not int or type(last) is not int or first < 0 or last < first:
            self._note(f"element {index}: a compaction that names no turns")
            return
        self._timed(index, "compaction", element)
        summary = element.get("summary")
        text = summary.get("summary") if type(summary) is dict else None
        self.compactions.append(
            Compaction(
                first + 1,
                last + 1,
                parse_timestamp(element.get("timestamp")),
                summary=text if type(text) is str else None,
                reasoning=element.get("reasoning") == "strip",
                tool_calls=_tool_policy(element.get("tool_calls")),
            )
        )

    # what they share

    def _event(self, kind: str, index: int, element: _Element, text: Any, field: str) -> Event:
        """A new event at the end of the turn; every one ends a run of pieces."""
        if self._run is not None:
            if self._pieces:
                self.finish()
            self._run = None
        turn = self._turn or self._new_turn()
        try:
            # As `parse_timestamp` does, without the call: one for each event is noticed.
            time: datetime | None = _read_time(element["timestamp"] + "+00:00")
            if time is None or time.tzinfo is None:
                time = parse_timestamp(element["timestamp"])
        except (KeyError, TypeError, ValueError):
            time = parse_timestamp(element.get("timestamp"))
        if turn.started_at is None:
            turn.started_at = time
        # What `Event(kind, time, text, index)` does, in a third of the time.
        event = _bare(Event)
        event.kind, event.timestamp, event.text, event.index = kind, time, text, index
        event.author = event.name = event.arguments = event.call_id = event.call = None
        event.data = event.metadata = event.problem = event.result = event.request = None
        event.is_error = False
        if type(text) is not str:
            self._untext(event, element, text, field)
        turn.events.append(event)
        if time is None:
            self._blame(event, "its timestamp cannot be read")
        if "metadata" in element:
            if type(metadata := element["metadata"]) is dict:
                event.metadata = self._metadata(event, metadata)
            else:
                self._blame(event, "its metadata is not an object")
        return event

    def _untext(self, event: Event, element: _Element, value: Any, field: str) -> None:
        """Give an event the text of what is no string: typed content, or damage."""
        try:
            text = content_text(value)
        except RecursionError:
            text = None
        if text is None:
            event.text = pretty_json(value)
            what = f"its {field} is no text" if field in element else f"it has no {field}"
            self._blame(event, what)
        else:
            event.text = text

    def _timed(self, index: int, kind: str, element: _Element) -> None:
        """Note an element without a time, where no event is made that would say so."""
        if parse_timestamp(element.get("timestamp")) is None:
            self._note(f"element {index} ({kind}): its timestamp cannot be read")

    def _new_turn(self) -> Turn:
        self._turn = turn = Turn(self.turns_before + len(self.turns) + 1, [], self.facts.model)
        self.turns.append(turn)
        self._calls = 0
        return turn

    def _blame(self, event: Event, what: str) -> None:
        event.problem = f"{event.problem}; {what}" if event.problem else what
        self._note(f"element {event.index} ({event.kind}): {what}")

    def _note(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MOST:
            self.problems.append(problem)
        else:
            self.more_problems += 1

    def _metadata(self, event: Event, metadata: dict[str, Any]) -> dict[str, Any]:
        try:
            return decode_metadata(metadata)
        except RecursionError:
            self._blame(event, "its metadata is nested too deeply")
            return {}

    def _await(self, event: Event, element: _Element, waiting: _Open) -> None:
        """Remember a request until its answer comes."""
        identity = element.get("id")
        if type(identity) is not str:
            self._blame(event, "it has no id")
            return
        event.call_id = identity
        if identity not in waiting:
            waiting[identity] = event
        elif type(row := waiting[identity]) is deque:
            row.append(event)
        else:
            waiting[identity] = deque((row, event))  # type: ignore[arg-type]

    def _answer(self, event: Event, element: _Element, waiting: _Open) -> None:
        """Pair with the oldest request of that id without an answer: ids repeat."""
        identity = element.get("id")
        if type(identity) is not str:
            self._blame(event, "it has no id")
            return
        event.call_id = identity
        request = waiting.pop(identity, None)
        if type(request) is deque:
            if len(request) > 1:
                waiting[identity] = request
            request = request.popleft()
        if type(request) is not Event:
            self._blame(event, "nothing asked for it")
            return
        request.result, event.request = event, request
        event.name = request.name
        if request.index >= self.turns[-1].events[0].index:
            event.call = request.call


_TAKERS: dict[str, Callable[[EventParser, int, _Element], None]] = {
    "turn_start": EventParser._turn_start,
    "chat_request": EventParser._chat_request,
    "chat_response": EventParser._chat_response,
    "tool_call_request": EventParser._tool_request,
    "tool_call_response": EventParser._tool_response,
    "inquiry_request": EventParser._inquiry_request,
    "inquiry_response": EventParser._inquiry_response,
    "config_delta": EventParser._config_delta,
    "compaction": EventParser._compaction,
}


_NO_EVENTS = frozenset({"turn_start", "config_delta", "compaction"})


def is_event(element_type: str) -> bool:
    """Whether elements of this type are events of a known kind."""
    if element_type in _TAKERS:
        return element_type not in _NO_EVENTS
    return element_type in EVENT_KINDS and element_type != "unknown"


def _tool_policy(value: Any) -> str | None:
    """`omit`, `strip`, or which half is stripped: `strip-request`, `strip-response`."""
    if type(value) is not dict or type(policy := value.get("policy")) is not str:
        return None
    halves = [half for half in ("request", "response") if value.get(half) is True]
    return f"{policy}-{halves[0]}" if policy == "strip" and len(halves) == 1 else policy
