"""Reads a long conversation in parts of whole turns, and goes on where it has grown."""

from __future__ import annotations

import hashlib
import os
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.formats.jp.config_state import ConversationFacts
from kbtui.conversations.formats.jp.event_parser import EventParser
from kbtui.conversations.formats.jp.json_reader import (
    LARGEST,
    SEPARATOR,
    Opened,
    ends_well,
    read_array,
)
from kbtui.conversations.formats.jp.loader import load_conversation, read_base
from kbtui.conversations.formats.jp.locations import EVENTS
from kbtui.conversations.models import Conversation
from kbtui.errors import WorkspaceError

if TYPE_CHECKING:
    from kbtui.conversations.models import ConversationInfo, Turn


FOLLOWED_FROM = 128 << 10
"""Bytes: a shorter one is read whole in less time than is worth saving."""
_PIECE = 1 << 20
OPENING = b"[\n  {"
_ANSWERS = frozenset({"tool_call_response", "inquiry_response"})


@dataclass(frozen=True)
class TurnMark:
    """The beginning of a turn: at byte `offset`, with `digest` (SHA-256, hex) of all before it.

    `turns` and `elements` count what is before, `configured` says whether its first element
    is a configuration, `problem` what was wrong first, `waiting` which calls have no answer.
    """

    offset: int
    digest: str
    turns: int
    elements: int
    configured: bool = False
    problem: str | None = None
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConversationPart:
    """Some turns of a conversation, whose numbers are those in the whole one.

    `began` is the mark that it begins at, None for the beginning; `mark` the last one that
    reading can go on from, which in the `last` part is where the last turn begins: that one
    may still grow. None where there is no such place.
    """

    conversation: Conversation
    began: TurnMark | None
    mark: TurnMark | None
    last: bool


def comes_in_parts(info: ConversationInfo) -> bool:
    """Whether a conversation is long enough to be read in parts."""
    return info.events_path is not None and FOLLOWED_FROM <= info.size <= LARGEST


def read_part(info: ConversationInfo, mark: TurnMark | None, most: int) -> ConversationPart | None:
    """The turns from `mark` on, about `most` bytes of them, at least one.

    From the beginning where what is before the mark has changed. None where the conversation
    is short, or cannot be read in parts.
    """
    if info.events_path is None or not comes_in_parts(info):
        return None
    problems: list[str] = []
    if info.base_config_path is not None:
        read_base(str(info.base_config_path), ConversationFacts(), problems)
    try:
        with Opened(str(info.events_path)) as (file, size):
            before = _before(file, mark)
            if before is None:
                mark, before = None, hashlib.sha256(b"[")
            if os.pread(file, len(OPENING), 0) != OPENING:
                return None
            found = None
            while found is None:
                found = _span(file, mark.offset if mark else 1, size, most)
                most *= 4
    except WorkspaceError:
        return None
    span, last = found
    return _built(info, mark, before, span, last, problems) if span else None


def _before(file: int, mark: TurnMark | None) -> Any:
    """The digest so far when the file begins as it did at the mark, else None."""
    if mark is None:
        return None
    digest, at = hashlib.sha256(), 0
    while at < mark.offset:
        piece = os.pread(file, min(_PIECE, mark.offset - at), at)
        if not piece:
            return None
        digest.update(piece)
        at += len(piece)
    return digest if digest.hexdigest() == mark.digest else None


@dataclass(frozen=True)
class _Span:
    data: bytes
    starts: list[int]
    elements: list[Any]

    def cut(self) -> int:
        """The last element that begins a turn, 0 when none does after the first."""
        return next(
            (at for at in range(len(self.elements) - 1, 0, -1) if _opens(self.elements[at])), 0
        )


def _span(file: int, start: int, size: int, most: int) -> tuple[_Span | None, bool] | None:
    """Elements from `start` on, and whether they are the last; None when `most` has no whole turn."""
    last = size - start <= most + _PIECE
    data = read_bytes(file, start, size - start if last else most)
    if last:
        if not ends_well(data):
            return None, last
        data = data[: data.rindex(b"]")]
    starts = [0]
    while (at := data.find(SEPARATOR, starts[-1])) >= 0:
        starts.append(at + len(b"\n  },"))
    if not last:
        # What the last separator opens is cut off somewhere.
        data = data[: starts.pop()]
        if not starts:
            return None
    try:
        elements = orjson.loads(b"[%b]" % data.removesuffix(b","))
    except orjson.JSONDecodeError:
        return None, last
    if len(elements) != len(starts):
        return None, last
    span = _Span(data, starts, elements)
    if not last:
        cut = span.cut()
        if not cut:
            return None
        span = _Span(data[: starts[cut]], starts[:cut], elements[:cut])
    return span, last


def read_bytes(file: int, start: int, length: int) -> bytes:
    """So many bytes of an open file from `start` on, or as many as it has."""
    parts = []
    while length > 0 and (piece := os.pread(file, length, start)):
        parts.append(piece)
        start, length = start + len(piece), length - len(piece)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _opens(element: Any) -> bool:
    return type(element) is dict and element.get("type") == "turn_start"


def _built(
    info: ConversationInfo,
    began: TurnMark | None,
    before: Any,
    span: _Span,
    last: bool,
    problems: list[str],
) -> ConversationPart | None:
    waiting = set(began.waiting) if began else set()
    if waiting and any(
        type(element) is dict
        and element.get("type") in _ANSWERS
        and type(identity := element.get("id")) is str
        and identity in waiting
        for element in span.elements
    ):
        return None
    builder = EventParser(
        ConversationFacts(), turns=began.turns if began else 0, count=began.elements if began else 0
    )
    cut = span.cut() if last else len(span.elements)
    builder.add(span.elements[:cut])
    mark = began
    if cut:
        end = span.starts[cut] if last else len(span.data)
        before.update(span.data[:end])
        mark = TurnMark(
            (began.offset if began else 1) + end,
            before.hexdigest(),
            builder.turns_before + len(builder.turns),
            builder.count,
            began.configured if began else builder.configured,
            began.problem if began and began.problem else next(iter(builder.problems), None),
            tuple(sorted(waiting.union(builder.waiting))),
        )
    builder.add(span.elements[cut:])
    builder.finish()
    configured = began.configured if began else builder.configured
    if last and info.base_config_path is None and not configured:
        problems.append("there is no base configuration: JP itself refuses this conversation")
    earlier = [began.problem] if began and began.problem else []
    problems += [f"{EVENTS}: {text}" for text in (*earlier, *builder.problems)]
    return ConversationPart(Conversation(info, builder.turns, problems=problems), began, mark, last)


_BEGINS = b'\n    "type": "turn_start"'
"""In JP's layout this is a turn's first element: within a string a line break is escaped, and
nothing but an element's own key stands so far to the left."""
_READ_SIZE = 256 << 10
"""Bytes looked through at once: what a processor's cache holds."""
_BEFORE_TYPE = 4 << 10
"""Bytes: so far before its type an element begins at most; JP has only the time there."""


class _NotInPlace(Exception):
    """The file is not as JP writes it, or damaged: only reading it whole can tell its turns."""


class TurnReader:
    """The turns of one conversation, each read when it is asked for.

    Where they lie is remembered, as far as was looked, until the file is another. Text and
    numbers are those of the whole conversation; what a turn has from earlier ones (the model,
    the request that a late result answers) is missing.
    """

    def __init__(self, info: ConversationInfo) -> None:
        self._info = info
        self._whole: Conversation | None = None
        self._forget(None)

    def _forget(self, state: tuple[int, ...] | None) -> None:
        self._state = state
        self._places = array("Q")
        self._looked = 0
        self._ended = False
        self._headed: bool | None = None

    def turn(self, number: int) -> Turn | None:
        """Turn `number`, 1-based; None where there is none.

        Raises `WorkspaceError` where the file cannot be opened. Of a file that is short or not
        as JP writes it, all turns are read, and kept as long as this object.
        """
        if self._whole is None and self._info.size >= FOLLOWED_FROM and number > 0:
            try:
                return self._in_place(number)
            except _NotInPlace:
                pass
        if self._whole is None:
            self._whole = load_conversation(self._info)
        return self._whole.turn(number)

    def _in_place(self, number: int) -> Turn | None:
        with Opened(str(self._info.events_path)) as (file, size):
            status = os.fstat(file)
            state = (status.st_ino, size, status.st_mtime_ns)
            if state != self._state:
                self._forget(state)
            if size > LARGEST or os.pread(file, len(OPENING), 0) != OPENING:
                raise _NotInPlace
            head = None
            if self._headed is None or (self._headed and number == 1):
                head = self._head(file, size)
                self._headed = bool(head.turns)
            found = head if head and number == 1 and self._headed else None
            found = found or self._after(file, size, number)
        return next((turn for turn in found.turns if turn.number == number), None)

    def _head(self, file: int, size: int) -> EventParser:
        """What stands before the first turn that is said to begin: configuration, or a turn."""
        self._look(file, 1)
        end = self._start(file, self._places[0]) if self._places else size
        return _build_turn(_elements(read_bytes(file, 1, end - 1), last=end == size), 1)

    def _after(self, file: int, size: int, number: int) -> EventParser:
        at = number - (2 if self._headed else 1)
        self._look(file, at + 2)
        if at >= len(self._places):
            return EventParser()
        start = self._start(file, self._places[at])
        last = at + 1 == len(self._places)
        end = size if last else self._start(file, self._places[at + 1])
        elements = _elements(read_bytes(file, start, end - start), last=last)
        if not elements or type(elements[0]) is not dict or elements[0].get("type") != "turn_start":
            raise _NotInPlace
        return _build_turn(elements, number)

    def _look(self, file: int, count: int) -> None:
        """Find where turns begin until so many are known, or the file ends."""
        keep = len(_BEGINS) - 1
        piece = bytearray(_READ_SIZE)
        while len(self._places) < count and not self._ended:
            length = os.preadv(file, [piece], self._looked)
            at = piece.find(_BEGINS, 0, length)
            while at >= 0:
                self._places.append(self._looked + at)
                at = piece.find(_BEGINS, at + 1, length)
            self._ended = length <= keep
            self._looked += max(0, length - keep)

    def _start(self, file: int, place: int) -> int:
        """Where the element begins whose type stands at `place`."""
        first = max(0, place - _BEFORE_TYPE)
        at = os.pread(file, place - first, first).rfind(b"\n  {")
        if at < 0:
            raise _NotInPlace
        return first + at


def _elements(data: bytes, *, last: bool) -> list[Any]:
    """The elements of a piece of the array; the last one brings the array's own end."""
    end = b"" if last else b"\n]"
    return [
        element
        for batch in read_array(b"[%b%b" % (data if last else data.removesuffix(b","), end), [])
        for element in batch
    ]


def _build_turn(elements: list[Any], number: int) -> EventParser:
    builder = EventParser(turns=number - 1)
    builder.add(elements)
    builder.finish()
    return builder
