"""Reads a long conversation in parts of whole turns, and goes on where it has grown."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.formats.jp.event_parser import ConversationFacts, EventParser
from kbtui.conversations.formats.jp.json_reader import (
    LARGEST,
    SEPARATOR,
    Opened,
    ends_well,
)
from kbtui.conversations.formats.jp.loader import read_base
from kbtui.conversations.formats.jp.locations import EVENTS
from kbtui.conversations.models import Conversation
from kbtui.errors import WorkspaceError

if TYPE_CHECKING:
    from kbtui.conversations.models import ConversationInfo


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
