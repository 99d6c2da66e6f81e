"""Single turns of a conversation, read from where they lie in `events.json`.

A turn's place is found by what JP writes where one begins, so that a long conversation costs a
look over its bytes, and memory for the one turn that is asked for.
"""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, Any

from kbtui.conversations.events import Builder
from kbtui.conversations.files import LARGEST, Opened, read_array
from kbtui.conversations.parts import FOLLOWED_FROM, OPENING, read_bytes
from kbtui.conversations.reading import load_conversation

if TYPE_CHECKING:
    from kbtui.conversations.records import Conversation, ConversationInfo, Turn

_BEGINS = b'\n    "type": "turn_start"'
"""In JP's layout this is a turn's first element: within a string a line break is escaped, and
nothing but an element's own key stands so far to the left."""
_PIECE = 256 << 10
"""Bytes looked through at once: what a processor's cache holds."""
_BEFORE_TYPE = 4 << 10
"""Bytes: so far before its type an element begins at most; JP has only the time there."""


class _NotInPlace(Exception):
    """The file is not as JP writes it, or damaged: only reading it whole can tell its turns."""


class Turns:
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

    def _head(self, file: int, size: int) -> Builder:
        """What stands before the first turn that is said to begin: configuration, or a turn."""
        self._look(file, 1)
        end = self._start(file, self._places[0]) if self._places else size
        return _built(_elements(read_bytes(file, 1, end - 1), last=end == size), 1)

    def _after(self, file: int, size: int, number: int) -> Builder:
        at = number - (2 if self._headed else 1)
        self._look(file, at + 2)
        if at >= len(self._places):
            return Builder()
        start = self._start(file, self._places[at])
        last = at + 1 == len(self._places)
        end = size if last else self._start(file, self._places[at + 1])
        elements = _elements(read_bytes(file, start, end - start), last=last)
        if not elements or type(elements[0]) is not dict or elements[0].get("type") != "turn_start":
            raise _NotInPlace
        return _built(elements, number)

    def _look(self, file: int, count: int) -> None:
        """Find where turns begin until so many are known, or the file ends."""
        keep = len(_BEGINS) - 1
        piece = bytearray(_PIECE)
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


def _built(elements: list[Any], number: int) -> Builder:
    builder = Builder(turns=number - 1)
    builder.add(elements)
    builder.finish()
    return builder
