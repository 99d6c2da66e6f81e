"""Searching all conversations line by line, from their files (D39, `conversation_grep`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.encoding import pretty
from kbtui.conversations.files import Mended, read_array, read_file
from kbtui.conversations.matching import Needle, cut_line
from kbtui.conversations.records import SCOPE_OF
from kbtui.conversations.scanning import Piece, Unexpected, scan
from kbtui.conversations.sieve import Sieve
from kbtui.conversations.times import parse_time, show_time
from kbtui.errors import UsageError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kbtui.conversations.records import Event

GROUPS: dict[str, tuple[str, ...]] = {
    "chat": ("user", "assistant", "reasoning", "structured"),
    "tool": ("tool-call", "tool-result"),
}
SCOPES: tuple[str, ...] = ("title", *dict.fromkeys(SCOPE_OF.values()))
_SHORT, _SHORT_MOST = 64, 1024
FEW = 2
"""Matches kept of a file in the first round: which are given is known when all are searched."""


@dataclass(frozen=True)
class Query:
    """What to look for in events. `limit` bounds the matches that are kept, not those counted.

    With `masked` secrets are replaced first, so that no line of one is found or shown.
    """

    pattern: str
    ignore_case: bool = True
    scopes: frozenset[str] = frozenset(SCOPES)
    context: int = 0
    limit: int = 50
    masked: bool = False


@dataclass(slots=True)
class Line:
    """One line of a hit, or beside one; `block` tells runs of adjoining lines apart."""

    scope: str
    turn: int | None
    timestamp: str | None
    text: str
    is_match: bool
    block: int = 0


@dataclass(slots=True)
class Found:
    """What one conversation has: the number of matching lines, and the first of them.

    `last` is the timestamp of its last element as it is written.
    """

    count: int = 0
    lines: list[Line] = field(default_factory=list)
    problem: str | None = None
    last: Any = None


def resolve_scopes(names: Iterable[str] | None) -> frozenset[str]:
    """The concrete scopes behind `chat`, `tool`, `all` and concrete names; raises `UsageError`."""
    if names is None:
        return frozenset(SCOPES)
    found: set[str] = set()
    for name in names:
        if name == "all":
            found.update(SCOPES)
        elif name in GROUPS:
            found.update(GROUPS[name])
        elif name in SCOPES:
            found.add(name)
        else:
            known = ", ".join(("all", *GROUPS, *SCOPES))
            raise UsageError(f"unknown scope {name!r}", where="scopes", hint=f"scopes are {known}")
    return frozenset(found or SCOPES)


def searched_text(event: Event) -> str:
    """What is searched of an event: a tool call as its name and its arguments as JSON."""
    if event.kind == "tool_call_request":
        arguments = event.text or pretty(event.arguments or {})
        return f"{event.name}\n{arguments}" if event.name else arguments
    # JP does not search answers; free text given as one is worth finding.
    if event.kind == "inquiry_response" and not isinstance(event.data, str):
        return ""
    return event.text


class Search:
    """One query, ready to be put to file after file; made once for all of them."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.needle = Needle(query.pattern, query.ignore_case)
        self._sieve = Sieve(query.pattern, query.ignore_case)
        self._counts: dict[str, int] = {}

    def file(self, path: str, room: int = FEW) -> Found:
        """Search one `events.json`; keeps the first `room` matches and counts all."""
        found = Found()
        try:
            data = read_file(path)
        except WorkspaceError as error:
            found.problem = error.message
            return found
        problems: list[str] = []
        try:
            batches = read_array(data, problems)
            around = self.query.context > 0 or self.query.masked
            pieces, last = scan(batches, self._sieve, self.query.scopes, around)
        except Unexpected:
            problems.clear()
            pieces, last = self._made(data, problems)
        lost = [problem for problem in problems if not isinstance(problem, Mended)]
        found.problem = "; ".join(lost) or None
        found.last = last.get("timestamp") if isinstance(last, dict) else None
        for piece in pieces:
            if found.count < room:
                if self.query.masked:
                    piece = piece._replace(text=_masked_text(piece))
                _search_piece(piece, self.needle, self.query.context, room, found)
            else:
                found.count += self._count(piece.text)
        return found

    def _count(self, text: str) -> int:
        """How many lines match; names of tools come again and again."""
        if len(text) > _SHORT:
            return self.needle.count(text)
        count = self._counts.get(text)
        if count is None:
            if len(self._counts) > _SHORT_MOST:
                self._counts.clear()
            count = self._counts[text] = self.needle.count(text)
        return count

    def _made(self, data: bytes, problems: list[str]) -> tuple[list[Piece], Any]:
        """Every piece, from the events themselves."""
        from kbtui.conversations.events import Builder

        builder = Builder()
        last = None
        for batch in read_array(data, problems):
            builder.add(batch)
            last = batch[-1] if batch else last
        builder.finish()
        pieces = [
            Piece(turn.number, SCOPE_OF[event.kind], event.timestamp, searched_text(event))
            for turn in builder.turns
            for event in turn.events
            if SCOPE_OF[event.kind] in self.query.scopes
        ]
        return pieces, last


def _masked_text(piece: Piece) -> str:
    """The text without secrets: of a tool call, those in its values before JSON escapes them."""
    from kbtui.secrets import mask, mask_values

    name, line_end, arguments = piece.text.partition("\n")
    if piece.scope == "tool-call" and line_end:
        try:
            return mask(f"{name}\n{pretty(mask_values(orjson.loads(arguments)))}")
        except orjson.JSONDecodeError:
            pass
    return str(mask_values(piece.text))


def _search_piece(piece: Piece, needle: Needle, context: int, room: int, found: Found) -> None:
    kept: list[tuple[int, int, int]] = []
    matches = 0
    for span in needle.lines(piece.text):
        if found.count + matches < room:
            kept.append(span)
        matches += 1
    found.count += matches
    if not kept:
        return
    time = piece.time if isinstance(piece.time, datetime) else parse_time(piece.time)
    block = found.lines[-1].block if found.lines else 0
    for number, (line, match) in enumerate(_with_context(piece.text, kept, context)):
        if number == 0 or line is None:
            block += 1
        if line is not None:
            shown = cut_line(line, match)
            found.lines.append(
                Line(piece.scope, piece.turn, show_time(time), shown, match is not None, block)
            )


def _with_context(
    text: str, spans: Sequence[tuple[int, int, int]], context: int
) -> Iterator[tuple[str | None, int | None]]:
    """Lines with the offset of their match, None for those around; None between two blocks."""
    if not context:
        for number, (start, end, match) in enumerate(spans):
            if number:
                yield None, None
            yield text[start:end].removesuffix("\r"), match - start
        return
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    matches = {}
    number = place = 0
    for start, _, match in spans:
        number += text.count("\n", place, start)
        place = start
        matches[number] = match - start
    previous = -1
    for number in _around(matches, context, len(lines)):
        if previous >= 0 and number > previous + 1:
            yield None, None
        previous = number
        yield lines[number].removesuffix("\r"), matches.get(number)


def _around(matches: Iterable[int], context: int, count: int) -> Iterator[int]:
    last = -1
    for number in matches:
        for near in range(max(last + 1, number - context), min(count, number + context + 1)):
            yield near
            last = near


def as_row(found: Found) -> list[Any]:
    """A form that goes through JSON."""
    lines = [
        [line.scope, line.turn, line.timestamp, line.text, line.is_match, line.block]
        for line in found.lines
    ]
    return [found.count, lines, found.problem, found.last]


def from_row(row: list[Any]) -> Found:
    """The reverse of `as_row`."""
    return Found(row[0], [Line(*line) for line in row[1]], *row[2:])
