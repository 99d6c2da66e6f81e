"""Reads the events of one conversation: all of them, a part of them, or only facts about them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import Any

import orjson

from kbtui.conversations.conversation_data_types import (
    Conversation,
    ConversationInfo,
    ConversationSegment,
    ConversationToolsAndModels,
    ParsingResumePoint,
)
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.conversations.formats.conversation_format import (
    BEGINNING_BYTES,
    MIN_BYTES_FOR_SEGMENTS,
    TurnsForSearching,
)
from kbtui.conversations.formats.damage_tolerant_file_reader import (
    ARRAY_START,
    BLOCK_BYTES,
    MAX_CONFIG_BYTES,
    MAX_EVENTS_BYTES,
    SEPARATOR,
    FileProblemWithoutDataLoss,
    drop_incomplete_array_end,
    has_jp_array_ending,
    hash_file_until_resume_point,
    open_regular_file,
    parse_json_array_and_mark_damaged_elements,
    parse_json_object_leniently,
    read_event_batches,
    read_file,
    read_file_head,
    read_file_tail,
)
from kbtui.conversations.formats.jp.jp_content_decoder import JpBlobReader
from kbtui.conversations.formats.jp.jp_conversation_finder import BASE_CONFIG, EVENTS
from kbtui.conversations.formats.jp.jp_event_parser import (
    JpEventParser,
    MergedJpConversationConfig,
)
from kbtui.dates import parse_timestamp
from kbtui.errors import WorkspaceError
from kbtui.light_named_tuple import NamedTuple

_TAIL_BYTES = 16 << 10
_RESPONSE_TYPES = frozenset(kind.name for kind in EVENT_KINDS.values() if kind.is_response)
_NO_CONFIG = "there is no base configuration, so JP cannot open this conversation"


def load_jp_conversation(info: ConversationInfo) -> Conversation:
    """Load a conversation. Never raises; errors are in `problems` of the result.

    The `info` of the result contains the number of events and the time of the last event.
    """
    parser = JpEventParser(MergedJpConversationConfig(), JpBlobReader(info.blob_directories))
    return _load_jp_conversation_with_parser(info, parser)


def _load_jp_conversation_with_parser(
    info: ConversationInfo, parser: JpEventParser
) -> Conversation:
    problems = _apply_base_config(info, parser.config)
    if info.events_path is None:
        return _make_conversation(info, parser, [*problems, f"there is no {EVENTS}"])
    damage: list[str] = []
    try:
        for batch in read_event_batches(str(info.events_path), damage):
            parser.parse_elements(batch)
        info = replace(info, events_count=parser.count, last_event_at=parser.last_time)
    except WorkspaceError as error:
        damage.append(error.message)
    if info.base_config_path is None and not parser.is_configured and not damage:
        problems.append(_NO_CONFIG)
    problems += [f"{EVENTS}: {text}" for text in (*damage, *parser.problems)]
    if parser.more_problems:
        noun = "element" if parser.more_problems == 1 else "elements"
        problems.append(f"{EVENTS}: {parser.more_problems} more damaged {noun}")
    return _make_conversation(info, parser, problems)


def load_jp_conversation_beginning(info: ConversationInfo) -> Conversation | None:
    """Load the turns in the first `BEGINNING_BYTES`, to show a long conversation before it is loaded.

    Returns None if the file is not larger than that, or if its beginning cannot be read separately.
    """
    if info.events_path is None or info.size <= BEGINNING_BYTES:
        return None
    config = MergedJpConversationConfig()
    parser = JpEventParser(config, JpBlobReader(info.blob_directories))
    _apply_base_config(info, config)
    try:
        data = drop_incomplete_array_end(read_file_head(str(info.events_path), BEGINNING_BYTES))
    except WorkspaceError:
        return None
    if data:
        parser.parse_elements(parse_json_array_and_mark_damaged_elements(data, []))
    return _make_conversation(info, parser, []) if parser.turns else None


def load_turns_of_jp_conversation_for_searching(info: ConversationInfo) -> TurnsForSearching:
    """Load all turns for searching, without metadata and configuration. Never raises."""
    if info.events_path is None:
        return TurnsForSearching([])
    problems: list[str] = []
    parser = JpEventParser(blobs=JpBlobReader(info.blob_directories))
    try:
        for batch in read_event_batches(str(info.events_path), problems):
            parser.parse_elements(batch)
    except WorkspaceError as error:
        return TurnsForSearching([], problem=error.message)
    lost = [problem for problem in problems if not isinstance(problem, FileProblemWithoutDataLoss)]
    return TurnsForSearching(parser.turns, parser.last_time, "; ".join(lost) or None)


def _make_conversation(
    info: ConversationInfo, parser: JpEventParser, problems: list[str]
) -> Conversation:
    """Return a conversation with everything that `parser` has parsed so far."""
    return Conversation(
        info,
        parser.turns,
        compactions=parser.compactions,
        problems=problems,
        assistant=parser.config.assistant,
        model=parser.config.model,
        attachments=parser.config.attachments,
        leading=parser.leading,
        more_problems=parser.more_problems,
    )


def _apply_base_config(info: ConversationInfo, config: MergedJpConversationConfig) -> list[str]:
    """Apply the conversation's base configuration to `config`.

    Returns the problems of the file that contains the base configuration.
    """
    if info.base_config_path is None:
        return []
    problems: list[str] = []
    try:
        data = read_file(str(info.base_config_path), MAX_CONFIG_BYTES)
        config.apply_config(parse_json_object_leniently(data, problems))
    except (WorkspaceError, ValueError) as error:
        problems.append(getattr(error, "message", str(error)))
    return [f"{BASE_CONFIG}: {problem}" for problem in problems]


# the number of events, and the time of the last one


def add_last_event_time_of_jp_conversation(info: ConversationInfo) -> ConversationInfo:
    """Return `info` with `last_event_at`.

    If the end of the file has the form that JP writes, only the end is read. Otherwise, the whole
    file is parsed.
    """
    if info.events_path is None or info.last_event_at is not None:
        return info
    try:
        element = _read_last_json_array_element(str(info.events_path))
    except WorkspaceError as error:
        return info.copy_with_problem(f"{EVENTS}: {error.message}")
    if element is None:
        return add_event_count_of_jp_conversation(info)
    return replace(info, last_event_at=parse_timestamp(element.get("timestamp")))


def add_event_count_of_jp_conversation(info: ConversationInfo) -> ConversationInfo:
    """Return `info` with `events_count` and `last_event_at`. The whole file is parsed."""
    if info.events_path is None:
        return info
    problems: list[str] = []
    count, last = 0, None
    try:
        for batch in read_event_batches(str(info.events_path), problems):
            count += len(batch)
            last = batch[-1] if batch else last
    except WorkspaceError as error:
        return info.copy_with_problem(f"{EVENTS}: {error.message}")
    time = parse_timestamp(last.get("timestamp")) if isinstance(last, dict) else None
    info = replace(info, events_count=count, last_event_at=time)
    for problem in problems:
        info = info.copy_with_problem(f"{EVENTS}: {problem}")
    return info


def _read_last_json_array_element(path: str) -> dict[str, Any] | None:
    """Return the last element of the array in a file.

    Returns None if the end of the file does not have the form that JP writes.
    """
    tail = read_file_tail(path, _TAIL_BYTES).rstrip()
    start = tail.rfind(b"\n  {")
    if start < 0 or not tail.endswith(b"\n  }\n]"):
        return None
    try:
        element = orjson.loads(tail[start:-1])
    except orjson.JSONDecodeError:
        return None
    return element if isinstance(element, dict) else None


# tools and models


def read_tools_and_models_of_jp_conversation(info: ConversationInfo) -> ConversationToolsAndModels:
    """Return a conversation's tools, models and problems. Never raises."""
    parser = JpEventParser(MergedJpConversationConfig(), JpBlobReader(info.blob_directories))
    conversation = _load_jp_conversation_with_parser(info, parser)
    events = (event for turn in conversation.turns for event in turn.events)
    tools = {event.name for event in events if event.kind == "tool_call_request" and event.name}
    models = parser.answering_models or ({conversation.model} if conversation.model else set())
    return ConversationToolsAndModels(
        frozenset(tools),
        frozenset(models),
        len(conversation.turns),
        conversation.describe_problems(),
    )


# segments


def should_load_jp_conversation_in_segments(info: ConversationInfo) -> bool:
    """Return whether a conversation is large enough, and not too large, to load in segments."""
    return info.events_path is not None and MIN_BYTES_FOR_SEGMENTS <= info.size <= MAX_EVENTS_BYTES


def load_jp_conversation_segment(
    info: ConversationInfo, resume_point: ParsingResumePoint | None, size: int
) -> ConversationSegment | None:
    """Load the turns after `resume_point`: about `size` bytes, but at least one turn.

    If `resume_point` is None, or if the bytes before it have changed, the segment starts at the
    beginning of the file. Returns None if the conversation must be loaded as a whole, for one of these
    reasons:

    * The conversation is short or damaged.
    * No turn begins at `resume_point` any more.
    * A tool result belongs to a call before `resume_point`.
    """
    if info.events_path is None or not should_load_jp_conversation_in_segments(info):
        return None
    try:
        with open_regular_file(str(info.events_path)) as (file, file_size):
            digest = hash_file_until_resume_point(file, resume_point) if resume_point else None
            if digest is None:
                resume_point, digest = None, hashlib.sha256(b"[")
            if os.pread(file, len(ARRAY_START), 0) != ARRAY_START:
                return None
            while (
                found := _read_whole_turns_from_offset(
                    file, resume_point.offset if resume_point else 1, file_size, size
                )
            ) is None:
                size *= 4
    except WorkspaceError:
        return None
    span, is_last = found
    return (
        _parse_turns_of_conversation_segment(info, resume_point, digest, span, is_last)
        if span
        else None
    )


class _JsonElementBatch(NamedTuple):
    """Consecutive elements of the array in `events.json`.

    `data` contains the bytes of the elements, `starts` the offset of each element in `data`, and
    `elements` the parsed values.
    """

    data: bytes
    starts: list[int]
    elements: list[Any]

    def find_last_turn_start(self) -> int:
        """Return the index of the last element that begins a turn, or 0 if none does."""
        last = len(self.elements) - 1
        return next((index for index in range(last, 0, -1) if self.has_turn_start_at(index)), 0)

    def has_turn_start_at(self, index: int) -> bool:
        """Return whether the element at `index` begins a turn."""
        element = self.elements[index]
        return type(element) is dict and element.get("type") == "turn_start"


def _read_whole_turns_from_offset(
    file: int, start: int, file_size: int, size: int
) -> tuple[_JsonElementBatch | None, bool] | None:
    """Read whole turns from byte `start` on. Also return whether they reach the end of the file.

    If the bytes do not have the form that JP writes, the turns in the result are None. If `size`
    bytes contain no whole turn, the whole result is None.
    """
    is_last = file_size - start <= size + BLOCK_BYTES
    data = os.pread(file, file_size - start if is_last else size, start)
    if is_last:
        if not has_jp_array_ending(data):
            return None, is_last
        data = data[: data.rindex(b"]")]
    starts = [0]
    while (index := data.find(SEPARATOR, starts[-1])) >= 0:
        starts.append(index + len(b"\n  },"))
    if not is_last:
        # The element after the last separator is incomplete.
        data = data[: starts.pop()]
        if not starts:
            return None
    try:
        elements = orjson.loads(b"[%b]" % data.removesuffix(b","))
    except orjson.JSONDecodeError:
        return None, is_last
    if len(elements) != len(starts):
        return None, is_last
    span = _JsonElementBatch(data, starts, elements)
    if not is_last:
        cut = span.find_last_turn_start()
        if not cut:
            return None
        span = _JsonElementBatch(data[: starts[cut]], starts[:cut], elements[:cut])
    return span, is_last


def _parse_turns_of_conversation_segment(
    info: ConversationInfo,
    start: ParsingResumePoint | None,
    digest: Any,
    span: _JsonElementBatch,
    is_last: bool,
) -> ConversationSegment | None:
    """Parse the turns in `span`, a segment of a conversation.

    Returns None if `span` begins within a turn, or if a tool result in `span` belongs to a call
    before `span`.
    """
    if start and not span.has_turn_start_at(0):
        return None
    before = start or ParsingResumePoint(1, "", 0, 0)
    waiting = set(before.waiting)
    if waiting and any(
        type(element) is dict
        and element.get("type") in _RESPONSE_TYPES
        and type(call_id := element.get("id")) is str
        and call_id in waiting
        for element in span.elements
    ):
        return None
    problems = _apply_base_config(info, MergedJpConversationConfig())
    blobs = JpBlobReader(info.blob_directories)
    parser = JpEventParser(blobs=blobs, turns=before.turns, count=before.elements)
    parser.is_configured = before.configured
    parser.problems += [before.problem] if before.problem else []
    cut = span.find_last_turn_start() if is_last else len(span.elements)
    parser.parse_elements(span.elements[:cut])
    resume_point = start
    if cut:
        end = span.starts[cut] if is_last else len(span.data)
        digest.update(span.data[:end])
        resume_point = ParsingResumePoint(
            before.offset + end,
            digest.hexdigest(),
            parser.turns_before + len(parser.turns),
            parser.count,
            parser.is_configured,
            next(iter(parser.problems), None),
            tuple(sorted(waiting | parser.find_unanswered_call_ids())),
        )
    parser.parse_elements(span.elements[cut:])
    if is_last and info.base_config_path is None and not parser.is_configured:
        problems.append(_NO_CONFIG)
    problems += [f"{EVENTS}: {text}" for text in parser.problems]
    conversation = Conversation(info, parser.turns, problems=problems)
    return ConversationSegment(conversation, start, resume_point, is_last)
