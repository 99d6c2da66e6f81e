"""Reads conversations that an agent appends to a file as JSON Lines, one record per line.

When such a file has grown, it is not read from its beginning. Reading resumes at the last point
from which a parser can continue. This point is near the old end of the file, and may be within a
turn.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.conversation_data_types import (
    Conversation,
    ConversationCompaction,
    ConversationInfo,
    ConversationSegment,
    ParsingResumePoint,
)
from kbtui.conversations.formats.conversation_format import (
    BEGINNING_BYTES,
    MIN_BYTES_FOR_SEGMENTS,
    ConversationFormat,
    TurnsForSearching,
)
from kbtui.conversations.formats.damage_tolerant_file_reader import (
    hash_file_until_resume_point,
    open_regular_file,
    update_hash_with_file_range,
)
from kbtui.conversations.formats.turn_builder import READ_ERRORS, TurnBuilder
from kbtui.errors import WorkspaceError
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LINE_BYTES_MAX = 32 << 20
"""The maximum size in bytes of a line. A longer line is skipped and reported as a problem."""
BLOCK_BYTES = 1 << 20
"""The maximum size of a block in bytes.

Each block of a file is twice as large as the one before it, up to this maximum.
"""
FIRST_BLOCK_BYTES = 16 << 10
"""The size of the first block, which is small because many callers need only the first records."""


ABANDONED_SECONDS = 3600.0
"""An incomplete last line is a problem if the file has not changed for this many seconds."""
RESUME_POINT_DISTANCE_BYTES = 64 << 10
"""Within a turn, points at which reading can resume are at least this many bytes apart."""
RECORDS_KEPT = 32
"""The saved state of a parser has at most this many items of each kind. Older items are dropped."""
_HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")


class JsonlRecord(NamedTuple):
    """A line of a file: its position, its bytes with the line end, and its value.

    If `problem` is not None, the line cannot be read, and `value` is None. `empty_lines` is the
    number of empty lines right before this line.
    """

    start: int
    end: int
    line: bytes
    value: Any
    problem: str | None = None
    empty_lines: int = 0


def iterate_jsonl_records(
    file: int, start: int = 0, end: int | None = None
) -> Iterator[JsonlRecord]:
    """Yield the records of an open file from byte `start` to byte `end` (exclusive).

    Empty lines are skipped. A line longer than `LINE_BYTES_MAX` is reported without its bytes,
    whether or not it has a line end.

    If the last line is shorter than that and has no line end, the agent may still be writing it.
    The line is yielded if it is a complete object. An incomplete line is reported if the file has not changed
    for `ABANDONED_SECONDS`, and left out otherwise.
    """
    rest, at, position = b"", start, start
    skipped = empty_lines = 0
    too_long = f"is longer than {LINE_BYTES_MAX >> 20} MB"
    block_size = FIRST_BLOCK_BYTES
    while True:
        wanted = block_size if end is None else min(block_size, end - position)
        block_size = min(2 * block_size, BLOCK_BYTES)
        block = os.pread(file, wanted, position) if wanted > 0 else b""
        if not block:
            break
        position += len(block)
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            size = skipped + len(line) + 1
            if skipped or len(line) > LINE_BYTES_MAX:
                yield JsonlRecord(at, at + size, b"", None, too_long, empty_lines)
                empty_lines = 0
            elif line.strip():
                yield _make_record_of_jsonl_line(at, line, b"\n", empty_lines)
                empty_lines = 0
            else:
                empty_lines += 1
            at += size
            skipped = 0
        if len(rest) > LINE_BYTES_MAX:
            skipped += len(rest)
            rest = b""
    if skipped:
        yield JsonlRecord(at, at + skipped + len(rest), b"", None, too_long, empty_lines)
    elif rest.strip():
        record = _make_record_of_jsonl_line(at, rest, b"", empty_lines)
        if record.problem is None and type(record.value) is dict:
            yield record
        elif position == (state := os.fstat(file)).st_size and (
            time.time() - state.st_mtime > ABANDONED_SECONDS
        ):
            yield record._replace(problem="is incomplete: the file ends in the middle of it")


def _make_record_of_jsonl_line(
    start: int, line: bytes, line_end: bytes, empty_lines: int
) -> JsonlRecord:
    end = start + len(line) + len(line_end)
    try:
        value = parse_json_with_bad_encoding(line)
    except ValueError as error:
        problem = f"is not JSON: {error}"
        return JsonlRecord(start, end, line + line_end, None, problem, empty_lines)
    return JsonlRecord(start, end, line + line_end, value, None, empty_lines)


def parse_json_with_bad_encoding(data: bytes) -> Any:
    """Parse JSON that may contain invalid UTF-8 or unpaired surrogates.

    U+FFFD replaces invalid bytes and unpaired surrogates. Agents that are written in JavaScript
    produce unpaired surrogates when they cut a string in the middle of a character. A byte order
    mark is ignored. Raises `ValueError` for invalid JSON.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        message = error.msg
    from json import dumps, loads

    try:
        value = loads(data.decode("utf-8", "replace"))
        return loads(_HALF_CHARACTER.sub("\ufffd", dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        raise ValueError(message) from None


def get_last_added_dictionary_items(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the items that were added to a dictionary last: at most `RECORDS_KEPT` items."""
    return dict(reversed(list(islice(reversed(values.items()), RECORDS_KEPT))))  # type: ignore[call-overload]


class JsonlConversationParser(ABC):
    """Parses the records of one conversation in order. Each format has a subclass."""

    def __init__(self, builder: TurnBuilder) -> None:
        self.builder = builder
        self.compactions: list[ConversationCompaction] = []
        self.needs_earlier_turns = False
        """Whether a record changes a turn before the parsed part, so that the whole file must be parsed."""

    @abstractmethod
    def starts_turn(self, record: dict[str, Any]) -> bool:
        """Return whether a record is a request that starts a new turn."""

    @abstractmethod
    def parse_record(self, record: dict[str, Any]) -> None:
        """Parse the next record.

        May raise any exception if a value in the record has the wrong type.
        """

    def make_parser_state(self) -> Mapping[str, object] | None:
        """Return the parser's state as JSON, so that another parser can continue from it.

        Returns None if parsing cannot be resumed from this state.
        """
        return None

    def can_resume_reading_in_turn(self) -> bool:
        """Return whether another parser can resume at this position, within a turn.

        Some later records may change earlier events. If the parser does not set
        `needs_earlier_turns` for such a record, this method must return false.
        """
        return False


class JsonlConversationFormat(ConversationFormat):
    """A format in which each conversation has its own JSON Lines file.

    The path of this file is `ConversationInfo.events_path`.
    """

    has_file_per_conversation = True
    _hashed: tuple[tuple[int, ...], str, Any] | None = None
    """The state of the last file that was read in segments, and the hash of its bytes before a resume point.

    The hash is stored twice: as hexadecimal digits, and as a hash object.
    """

    @abstractmethod
    def make_parser(self, builder: TurnBuilder, state: Any) -> JsonlConversationParser:
        """Return a parser that continues from `state`, or from the beginning if `state` is None."""

    def load_conversation(self, info: ConversationInfo) -> Conversation:
        """Load a conversation. Never raises; errors are in `problems` of the result."""
        parser, problem = self._parse_conversation_file(info)
        return _make_conversation(info, parser, [problem] if problem else [])

    def load_conversation_beginning(self, info: ConversationInfo) -> Conversation | None:
        """Load the first turns of a long conversation.

        Returns None if the conversation must be loaded as a whole.
        """
        if info.size <= BEGINNING_BYTES:
            return None
        parser, _ = self._parse_conversation_file(info, BEGINNING_BYTES)
        return _make_conversation(info, parser, []) if parser.builder.turns else None

    def add_event_count(self, info: ConversationInfo) -> ConversationInfo:
        """Return `info` with the number of lines in the file as `events_count`.

        The lines are not parsed.
        """
        if info.events_path is None:
            return info
        count, last = 0, b"\n"
        try:
            with open_regular_file(str(info.events_path)) as (file, _):
                at = 0
                while block := os.pread(file, BLOCK_BYTES, at):
                    count += block.count(b"\n")
                    at, last = at + len(block), block
        except WorkspaceError as error:
            return info.copy_with_problem(error.message)
        return replace(info, events_count=count + (not last.endswith(b"\n")))

    def load_turns_for_searching(self, info: ConversationInfo) -> TurnsForSearching:
        """Load all turns for searching. Never raises."""
        parser, problem = self._parse_conversation_file(info)
        builder = parser.builder
        problem = problem or next(iter(builder.problems), None)
        return TurnsForSearching(builder.turns, builder.last_time, problem)

    def should_load_conversation_in_segments(self, info: ConversationInfo) -> bool:
        """Return whether a conversation is large enough to be loaded in segments."""
        return info.events_path is not None and info.size >= MIN_BYTES_FOR_SEGMENTS

    def load_conversation_segment(
        self, info: ConversationInfo, resume_point: ParsingResumePoint | None, size: int
    ) -> ConversationSegment | None:
        """Load about `size` bytes of a conversation, but at least one record.

        The segment starts at `resume_point`. If `resume_point` is None, or if the bytes before it
        have changed, the segment starts at the beginning of the file. If one of the records changes
        a turn before `resume_point`, the whole file is loaded as one segment. Returns None for an
        unreadable file.
        """
        if info.events_path is None:
            return None
        try:
            with open_regular_file(str(info.events_path)) as (file, file_size):
                digest = (
                    self._get_hash_until_resume_point(file, resume_point) if resume_point else None
                )
                if digest is None:
                    resume_point, digest = None, hashlib.sha256()
                return self._read_conversation_segment(
                    info, file, file_size, resume_point, digest, size
                ) or self._read_conversation_segment(
                    info, file, file_size, None, hashlib.sha256(), file_size
                )
        except WorkspaceError:
            return None

    def _read_conversation_segment(
        self,
        info: ConversationInfo,
        file: int,
        file_size: int,
        start: ParsingResumePoint | None,
        digest: Any,
        size: int,
    ) -> ConversationSegment | None:
        before = start or ParsingResumePoint(0, "", 0, 0)
        builder = TurnBuilder(turns=before.turns, count=before.elements, record_noun="line")
        builder.problems += [before.problem] if before.problem else []
        parser = self.make_parser(builder, before.state)
        if before.open_turn is not None:
            builder.resume_turn(before.open_turn)
        file_state = _get_state_of_open_file(file)
        waiting = set(before.waiting)
        resume_point, is_last = start, True
        must_start_turn = start is not None and start.open_turn is None
        hashed = last_resume_offset = before.offset
        for record in iterate_jsonl_records(file, before.offset, file_size):
            builder.count += record.empty_lines
            # Empty lines, and lines that are too long, are hashed here.
            update_hash_with_file_range(digest, file, hashed, record.start)
            hashed = record.start + len(record.line)
            starts_turn = type(record.value) is dict and _starts_turn_unless_damaged(
                parser, record.value
            )
            if must_start_turn and not starts_turn:
                return None  # another record has replaced the request that began a turn at the resume point
            must_start_turn = False
            if starts_turn or (
                record.start - last_resume_offset >= min(RESUME_POINT_DISTANCE_BYTES, size)
                and _can_resume_reading_in_turn(parser)
            ):
                # Records before the first turn may belong to it.
                if record.start > before.offset and builder.turn_count:
                    last_resume_offset = record.start
                    resume_point = ParsingResumePoint(
                        record.start,
                        digest.hexdigest(),
                        builder.turn_count - (not starts_turn),
                        builder.count,
                        problem=next(iter(builder.problems), None),
                        waiting=tuple(sorted(waiting.union(builder.unanswered_call_ids))),
                        state=parser.make_parser_state(),
                        open_turn=None if starts_turn else builder.make_current_turn_state(),
                    )
                    self._hashed = (file_state, resume_point.digest, digest.copy())
                if record.start - before.offset >= size and builder.turns:
                    is_last = False
                    break
            _parse_record_and_report_damage(parser, record)
            digest.update(record.line)
        if parser.needs_earlier_turns or any(
            event.kind == "tool_call_response" and event.call_id in waiting
            for turn in builder.turns
            for event in turn.events
        ):
            return None
        conversation = _make_conversation(info, parser, [])
        return ConversationSegment(conversation, start, resume_point, is_last)

    def _get_hash_until_resume_point(self, file: int, resume_point: ParsingResumePoint) -> Any:
        """Return a SHA-256 hash object for the bytes before `resume_point`; None if they have changed."""
        if (known := self._hashed) and known[:2] == (
            _get_state_of_open_file(file),
            resume_point.digest,
        ):
            return known[2].copy()
        return hash_file_until_resume_point(file, resume_point)

    def _parse_conversation_file(
        self, info: ConversationInfo, size: int | None = None
    ) -> tuple[JsonlConversationParser, str | None]:
        """Parse the first `size` bytes of a conversation's file, or all of it if `size` is None.

        Returns the parser and, if the file cannot be read, the reason, otherwise None.
        """
        parser = self.make_parser(TurnBuilder(record_noun="line"), None)
        if info.events_path is None:
            return parser, None
        try:
            with open_regular_file(str(info.events_path)) as (file, _):
                for record in iterate_jsonl_records(file, 0, size):
                    parser.builder.count += record.empty_lines
                    _parse_record_and_report_damage(parser, record)
        except WorkspaceError as error:
            return parser, error.message
        return parser, None


def _starts_turn_unless_damaged(parser: JsonlConversationParser, record: dict[str, Any]) -> bool:
    try:
        return parser.starts_turn(record)
    except READ_ERRORS:
        return False


def _can_resume_reading_in_turn(parser: JsonlConversationParser) -> bool:
    """Return whether another parser can resume at this position, within a turn.

    This requires that all calls so far have results.
    """
    builder = parser.builder
    return (
        bool(builder.turns)
        and not builder.has_unanswered_calls_in_turn
        and parser.can_resume_reading_in_turn()
    )


def _parse_record_and_report_damage(parser: JsonlConversationParser, record: JsonlRecord) -> None:
    """Parse a record. A damaged record is reported as a problem.

    A damaged object also becomes an unknown event.
    """
    builder = parser.builder
    if record.problem is not None:
        builder.add_record_problem(f"it {record.problem}")
    elif type(record.value) is not dict:
        builder.add_record_problem("it is not an object")
    else:
        try:
            parser.parse_record(record.value)
        except READ_ERRORS:
            kind = record.value.get("type")
            name = kind if type(kind) is str else "record"
            builder.add_unreadable_record(name, record.value)
    builder.count += 1


def _make_conversation(
    info: ConversationInfo, parser: JsonlConversationParser, problems: list[str]
) -> Conversation:
    """Return a conversation with everything that `parser` has parsed so far."""
    builder = parser.builder
    return builder.make_conversation(info, problems, parser.compactions, builder.count)


def _get_state_of_open_file(file: int) -> tuple[int, ...]:
    """Return the device, inode, size and modification time of an open file."""
    status = os.fstat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
