"""Decodes the elements of `events.json` into turns of events.

Elements are decoded one by one, so that a damaged element does not affect the others. Some elements
are changes to the configuration; `MergedJpConversationConfig` applies them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from kbtui.conversations.conversation_data_types import (
    ConversationCompaction,
    ConversationEvent,
    Turn,
    format_content_blocks,
)
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.conversations.formats.damage_tolerant_file_reader import DAMAGED
from kbtui.conversations.formats.jp.jp_content_decoder import (
    JpContentBlockDecoder,
    decode_base64_strings,
    decode_if_base64,
    decode_tool_result_text,
)
from kbtui.conversations.formats.turn_builder import ConversationProblemCollector, get_text_or_none
from kbtui.dates import parse_timestamp
from kbtui.terminal_text import format_json_unless_text, format_readable_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from kbtui.conversations.conversation_data_types import ContentBlock
    from kbtui.conversations.formats.jp.jp_content_decoder import JpBlobReader


class MergedJpConversationConfig:
    """The assistant, model and attachments that result from the configurations applied so far."""

    def __init__(self) -> None:
        self.assistant: str | None = None
        self.model: str | None = None
        self.attachments: list[str] = []

    def apply_config(self, config: Any) -> None:
        """Apply a base configuration, or a change to it. Values of the wrong type are ignored."""
        if not isinstance(config, dict):
            return
        assistant = config.get("assistant")
        if isinstance(assistant, dict):
            if isinstance(name := assistant.get("name"), str):
                self.assistant = name
            if isinstance(model := assistant.get("model"), dict):
                self.model = _parse_model_name(model.get("id")) or self.model
        conversation = config.get("conversation")
        if isinstance(conversation, dict):
            self._update_attachments(conversation.get("attachments"))

    def _update_attachments(self, value: Any) -> None:
        """Add the attachments in a list or in an object `{value, strategy}`.

        If the strategy is "replace", the earlier attachments are removed first.
        """
        kept = self.attachments
        if isinstance(value, dict):
            kept = [] if value.get("strategy") == "replace" else kept
            value = value.get("value")
        if isinstance(value, list):
            named = [name for item in value if (name := _convert_attachment_to_url(item))]
            self.attachments = list(dict.fromkeys([*kept, *named]))


def _parse_model_name(value: Any) -> str | None:
    """Return a model's name.

    JP stores the name as an alias, or as an object with a provider and a name.
    """
    if isinstance(value, str):
        return value or None
    if isinstance(value, dict):
        parts = [part for key in ("provider", "name") if isinstance(part := value.get(key), str)]
        return "/".join(parts) or None
    return None


def _convert_attachment_to_url(item: Any) -> str | None:
    """Return an attachment as a URL.

    JP stores an attachment as a URL or as an object `{type, path, params}`.
    """
    if isinstance(item, str):
        return item or None
    if not isinstance(item, dict) or not isinstance(kind := item.get("type"), str):
        return None
    path = item.get("path")
    params = item.get("params")
    url = f"{kind}://{path if isinstance(path, str) else ''}"
    arguments = params.get("args") if isinstance(params, dict) else None
    if not arguments or not isinstance(arguments, list):
        return url
    pairs = [("arg", str(argument)) for argument in arguments]
    return f"{url}?{urlencode(pairs, quote_via=quote, safe='')}"


_Element = dict[str, Any]
_OpenRequests = dict[str, list[ConversationEvent]]
"""Maps an id to the tool calls or questions with this id that have no response yet, oldest first."""

_new_object = object.__new__


class JpEventParser(ConversationProblemCollector):
    """Parses the elements of `events.json` in order.

    * If the parser starts in the middle of a file, the arguments `turns` and `count` are the numbers of
      turns and elements before the start.
    * `last_time` is the time of the last element that was parsed.
    * `is_configured` says whether the file's first element is a configuration.
    * `answering_models` contains the models that were configured when the responses so far were given.
    * `blobs` reads the content that is stored outside the file.
    """

    def __init__(
        self,
        config: MergedJpConversationConfig | None = None,
        blobs: JpBlobReader | None = None,
        *,
        turns: int = 0,
        count: int = 0,
    ) -> None:
        super().__init__("element", first_number=0)
        self.config = config or MergedJpConversationConfig()
        self._decoder = JpContentBlockDecoder(blobs)
        self.turns_before = turns
        self._turns: list[Turn] = []
        self._split_messages: dict[int, tuple[ConversationEvent, list[str]]] = {}
        """The messages that JP has split into several elements.

        Maps the index of a message's first element to the message and the pieces of its text.
        """
        self.compactions: list[ConversationCompaction] = []
        self.leading: list[ConversationEvent] = []
        self.count = count
        self.is_configured = False
        self.answering_models: set[str] = set()
        self.last_time: datetime | None = None
        self._turn: Turn | None = None
        self._calls = 0
        self._open_calls: _OpenRequests = {}
        self._open_questions: _OpenRequests = {}
        self._open_message: ConversationEvent | None = None
        """The last event if the next element can continue its text. Otherwise None."""

    @property
    def turns(self) -> list[Turn]:
        """All turns so far. Reading this property also joins the pieces of split messages."""
        for message, texts in self._split_messages.values():
            message.text = "".join(texts)
        self._split_messages.clear()
        return self._turns

    def parse_elements(self, elements: list[Any]) -> None:
        """Parse the next elements."""
        parsers = _PARSERS
        for index, element in enumerate(elements, self.count):
            try:
                parse = parsers[element["type"]]
            except (KeyError, TypeError):
                self._parse_unknown_element(index, element)
            else:
                parse(self, index, element)
        self.count += len(elements)
        if elements:
            last = elements[-1]
            self.last_time = parse_timestamp(last.get("timestamp")) if type(last) is dict else None

    def find_unanswered_call_ids(self) -> set[str]:
        """Return the ids of the calls and questions that have no response so far."""
        return {*self._open_calls, *self._open_questions}

    def _parse_unknown_element(self, index: int, element: Any) -> None:
        """Parse an element that is not in `_PARSERS`."""
        if element is DAMAGED:
            return
        if type(element) is not dict:
            self.add_problem(f"element {index} is not an object")
        elif type(kind := element.get("type")) is not str:
            self.add_problem(f"element {index} has no type")
        elif kind in EVENT_KINDS and kind != "unknown":
            self._parse_text_event(index, element, kind)
        else:
            # A newer version of JP wrote this element. It is shown as JSON, and neither starts a turn
            # nor ends a message that is split into several elements.
            time = self._parse_element_timestamp(index, kind, element)
            event = ConversationEvent(
                "unknown", time, format_readable_json(element), index, name=kind
            )
            (self._turn.events if self._turn else self.leading).append(event)

    # one method for each type of element

    def _parse_text_event(self, index: int, element: _Element, kind: str) -> ConversationEvent:
        """Parse an event with a text and the fields that `EVENT_KINDS` lists for its kind."""
        event = self._append_event(kind, index, element, element.get("content"), "content")
        if names := EVENT_KINDS[kind].fields:
            event.fields = {name: element[name] for name in names if name in element}
        return event

    def _parse_turn_start(self, index: int, element: _Element) -> None:
        self._open_message = None
        time = self._parse_element_timestamp(index, "turn_start", element)
        turn = self._start_turn()
        turn.started_at = time
        turn.event_id = get_text_or_none(element.get("event_id"))

    def _parse_chat_request(self, index: int, element: _Element) -> None:
        event = self._parse_text_event(index, element, "chat_request")
        if (author := element.get("author")) is not None:
            if type(author) is str:
                event.author = author
            else:
                self.add_event_problem(event, "the author is not a string")
        if resources := element.get("resources"):
            self._add_attachment_events(
                event, resources if type(resources) is list else [resources]
            )

    def _add_attachment_events(self, request: ConversationEvent, resources: list[Any]) -> None:
        """Add an event for each resource that is attached to a request."""
        for resource in resources:
            try:
                block = self._decoder.decode_resource(resource)
            except RecursionError:
                self.add_event_problem(request, "the resources are nested too deeply")
                return
            event = ConversationEvent("attachment", request.timestamp, "", request.index)
            self._set_event_blocks_and_text(event, [block])
            assert self._turn is not None
            self._turn.events.append(event)

    def _parse_chat_response(self, index: int, element: _Element) -> None:
        """Parse a response.

        Its first key among `message`, `reasoning` and `data` decides the kind of the event. For `data`,
        the kind is `structured`.
        """
        if self.config.model:
            self.answering_models.add(self.config.model)
        if "message" in element:
            kind = "message"
        elif "reasoning" in element:
            kind = "reasoning"
        else:
            self._parse_structured_answer(index, element)
            return
        text, message = element[kind], self._open_message
        author = (
            _get_answering_assistant(element)
            if kind == "message" and "participant" in element
            else None
        )
        if (
            message is not None
            and message.kind == kind
            and message.author == author
            and type(text) is str
        ):
            # JP may split one message into several elements.
            split = self._split_messages.setdefault(message.index, (message, [message.text]))
            split[1].append(text)
            if type(metadata := element.get("metadata")) is dict:
                more = self._decode_metadata(message, metadata)
                message.metadata = {**(message.metadata or {}), **more}
            return
        event = self._append_event(kind, index, element, text, kind)
        event.author = author
        if event.problem is None:
            self._open_message = event

    def _parse_structured_answer(self, index: int, element: _Element) -> None:
        if "data" in element:
            data = element["data"]
            text = format_json_unless_text(data)
            event = self._append_event("structured", index, element, text, "data")
            event.data = data
            event.author = _get_answering_assistant(element)
        else:
            event = self._append_event("message", index, element, "", "message")
            self.add_event_problem(event, "the response has neither message nor reasoning nor data")

    def _parse_tool_request(self, index: int, element: _Element) -> None:
        arguments = element.get("arguments", {})
        name = element.get("name")
        event = self._append_event("tool_call_request", index, element, "", "arguments")
        self._calls += 1
        event.call = self._calls
        if type(name) is str:
            event.name = name
        else:
            self.add_event_problem(event, "the call has no name")
        if type(arguments) is dict:
            try:
                event.arguments = decode_base64_strings(arguments)
            except RecursionError:
                event.arguments = {}
                self.add_event_problem(event, "the arguments are nested too deeply")
        else:
            event.arguments = {}
            event.text = format_readable_json(arguments)
            self.add_event_problem(event, "the arguments are not an object")
        self._remember_open_request(event, element, self._open_calls)

    def _parse_tool_response(self, index: int, element: _Element) -> None:
        content = element.get("content")
        if type(content) is str:
            content = decode_tool_result_text(content)
        event = self._append_event("tool_call_response", index, element, content, "content")
        # Typed content has `isError`, as in the Model Context Protocol.
        error = element.get("is_error", element.get("isError"))
        event.is_error = error is True
        if type(error) is not bool:
            self.add_event_problem(event, "the field is_error is missing or not a boolean")
        self._pair_response_with_request(event, element, self._open_calls)

    def _parse_inquiry_request(self, index: int, element: _Element) -> None:
        question = element.get("question")
        text = question.get("text") if type(question) is dict else None
        event = self._append_event("inquiry_request", index, element, text, "question")
        if type(source := element.get("source")) is dict:
            name = source.get("name") or source.get("source")
            event.name = name if type(name) is str else None
        else:
            self.add_event_problem(event, "the inquiry has no source")
        self._remember_open_request(event, element, self._open_questions)

    def _parse_inquiry_response(self, index: int, element: _Element) -> None:
        answer = element.get("answer")
        # If JP did not store the answer, the element has an outcome instead (RFD 082).
        unanswered = None if "answer" in element else _describe_unanswered_inquiry(element)
        text = unanswered or format_json_unless_text(answer)
        event = self._append_event("inquiry_response", index, element, text, "answer")
        event.data = answer
        if "answer" not in element and unanswered is None:
            self.add_event_problem(event, "the response has no answer")
        self._pair_response_with_request(event, element, self._open_questions)

    def _parse_config_delta(self, index: int, element: _Element) -> None:
        if index == 0:
            self.is_configured = True
        self._parse_element_timestamp(index, "config_delta", element)
        # In the oldest files the configuration's keys are in the element itself.
        delta = element.get("delta", element)
        if type(delta) is not dict:
            self.add_problem(f"element {index} (config_delta): the delta is not an object")
        self.config.apply_config(delta)

    def _parse_compaction(self, index: int, element: _Element) -> None:
        first, last = element.get("from_turn"), element.get("to_turn")
        if type(first) is not int or type(last) is not int or first < 0 or last < first:
            self.add_problem(f"element {index} (compaction): from_turn or to_turn is invalid")
            return
        time = self._parse_element_timestamp(index, "compaction", element)
        summary = element.get("summary")
        text = summary.get("summary") if type(summary) is dict else None
        self.compactions.append(
            ConversationCompaction(
                first + 1,
                last + 1,
                time,
                summary=text if type(text) is str else None,
                reasoning=element.get("reasoning") == "strip",
                tool_calls=_parse_compaction_tool_policy(element.get("tool_calls")),
            )
        )

    # shared by the methods above

    def _append_event(
        self, kind: str, index: int, element: _Element, text: Any, field: str
    ) -> ConversationEvent:
        """Append a new event to the current turn, and return the event.

        After this, no element can continue an earlier message.
        """
        self._open_message = None
        turn = self._turn or self._start_turn()
        time = parse_timestamp(element.get("timestamp"))
        if turn.started_at is None:
            turn.started_at = time
        # The same as `ConversationEvent(kind, time, text, index)`, in a third of the time.
        event = _new_object(ConversationEvent)
        event.kind, event.timestamp, event.text, event.index = kind, time, text, index
        event.author = event.name = event.arguments = event.call_id = event.call = None
        event.data = event.metadata = event.problem = event.result = event.request = None
        event.outcome = event.is_error = event.fields = event.blocks = None
        event_id = element.get("event_id")
        event.event_id = event_id if type(event_id) is str and event_id else None
        if type(text) is not str:
            self._set_event_text_from_value(event, element, text, field)
        turn.events.append(event)
        if time is None:
            self.add_event_problem(event, "the timestamp cannot be read")
        if "metadata" in element:
            if type(metadata := element["metadata"]) is dict:
                event.metadata = self._decode_metadata(event, metadata)
            else:
                self.add_event_problem(event, "the metadata is not an object")
        return event

    def _set_event_text_from_value(
        self, event: ConversationEvent, element: _Element, value: Any, field: str
    ) -> None:
        """Set the text of an event from a value that is not a string.

        If the value is typed content, it becomes the event's blocks. Any other value becomes JSON,
        and is reported as a problem.
        """
        try:
            blocks = self._decoder.decode_content_blocks(value)
        except RecursionError:
            blocks = None
        if blocks is None:
            event.text = format_readable_json(value)
            what = f"the field {field} is {'not a string' if field in element else 'missing'}"
            self.add_event_problem(event, what)
        else:
            self._set_event_blocks_and_text(event, blocks)

    def _set_event_blocks_and_text(
        self, event: ConversationEvent, blocks: list[ContentBlock]
    ) -> None:
        """Set the blocks of an event, and its text. Report the blobs that cannot be read."""
        event.text = format_content_blocks(blocks)
        if not all(block.is_plain_text for block in blocks):
            event.blocks = blocks
        for problem in self._decoder.problems:
            self.add_event_problem(event, problem)
        self._decoder.problems.clear()

    def _parse_element_timestamp(self, index: int, kind: str, element: _Element) -> datetime | None:
        """Return the time of an element. Report an element whose time is missing or invalid."""
        time = parse_timestamp(element.get("timestamp"))
        if time is None:
            self.add_problem(f"element {index} ({kind}): the timestamp cannot be read")
        return time

    def _start_turn(self) -> Turn:
        self._turn = turn = Turn(self.turns_before + len(self._turns) + 1, [], self.config.model)
        self._turns.append(turn)
        self._calls = 0
        return turn

    def _decode_metadata(
        self, event: ConversationEvent, metadata: dict[str, Any]
    ) -> dict[str, Any]:
        """Decode the values of an event's metadata.

        Signatures are not decoded, because they do not encode text.
        """
        try:
            decoded = {
                key: value if key.endswith("_signature") else decode_base64_strings(value)
                for key, value in metadata.items()
            }
        except RecursionError:
            self.add_event_problem(event, "the metadata is nested too deeply")
            return {}
        # JP stores these arguments in base64, and encodes them a second time in the file.
        if type(rendered := decoded.get("rendered_arguments")) is str:
            decoded["rendered_arguments"] = decode_if_base64(rendered)
        return decoded

    def _remember_open_request(
        self, event: ConversationEvent, element: _Element, waiting: _OpenRequests
    ) -> None:
        """Remember a call or question until its response is found."""
        if (call_id := self._read_and_set_call_id(event, element)) is not None:
            waiting.setdefault(call_id, []).append(event)

    def _pair_response_with_request(
        self, event: ConversationEvent, element: _Element, waiting: _OpenRequests
    ) -> None:
        """Pair a response with the oldest open call or question that has the same id.

        Several calls or questions can have the same id.
        """
        if (call_id := self._read_and_set_call_id(event, element)) is None:
            return
        if call_id not in waiting:
            self.add_event_problem(event, "no earlier event has the same id")
            return
        request = waiting[call_id].pop(0)
        if not waiting[call_id]:
            del waiting[call_id]
        request.result, event.request = event, request
        event.name = request.name
        if request.index >= self._turns[-1].events[0].index:
            event.call = request.call

    def _read_and_set_call_id(self, event: ConversationEvent, element: _Element) -> str | None:
        call_id = element.get("id")
        if type(call_id) is not str:
            self.add_event_problem(event, "the event has no id")
            return None
        event.call_id = call_id
        return call_id


_PARSERS: dict[str, Callable[[JpEventParser, int, _Element], None]] = {
    "turn_start": JpEventParser._parse_turn_start,
    "chat_request": JpEventParser._parse_chat_request,
    "chat_response": JpEventParser._parse_chat_response,
    "tool_call_request": JpEventParser._parse_tool_request,
    "tool_call_response": JpEventParser._parse_tool_response,
    "inquiry_request": JpEventParser._parse_inquiry_request,
    "inquiry_response": JpEventParser._parse_inquiry_response,
    "config_delta": JpEventParser._parse_config_delta,
    "compaction": JpEventParser._parse_compaction,
}


def _describe_unanswered_inquiry(element: _Element) -> str | None:
    """Return the reason why an inquiry has no answer; None if the file contains no reason."""
    outcome, reason = element.get("outcome"), get_text_or_none(element.get("reason"))
    if outcome == "cancelled":
        # The reasons are codes, and later versions of JP may add some.
        return f"Cancelled ({(reason or 'user').replace('_', ' ')})"
    return "Redacted" if outcome == "redacted" else None


def _get_answering_assistant(element: _Element) -> str | None:
    """Return the name of the assistant that answered, in a conversation with several assistants.

    Returns None if there is only one assistant. JP's draft D58 describes such conversations.
    """
    participant = get_text_or_none(element.get("participant"))
    return None if participant == "assistant" else participant


def _parse_compaction_tool_policy(value: Any) -> str | None:
    """Return how a compaction treats tool calls, or None if the element does not say.

    The result is `omit`, `strip`, `strip-request` or `strip-response`.
    """
    if type(value) is not dict or type(policy := value.get("policy")) is not str:
        return None
    halves = [half for half in ("request", "response") if value.get(half) is True]
    return f"{policy}-{halves[0]}" if policy == "strip" and len(halves) == 1 else policy
