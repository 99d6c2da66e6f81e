"""Searches all conversations line by line for a literal."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.formats.jp.base64_fields import pretty
from kbtui.conversations.formats.jp.json_reader import Mended, read_array, read_file
from kbtui.conversations.grep_prefilter import Prefilter
from kbtui.conversations.grep_scanner import GrepText, Unexpected, scan
from kbtui.conversations.models import SCOPE_OF
from kbtui.conversations.timestamps import parse_time, show_time
from kbtui.errors import UsageError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kbtui.conversations.models import Event


LINE_LENGTH = 400
"""Characters: a longer line is cut around its match."""


class LinePattern:
    """A pattern, literal, never spanning lines.

    Without case, letters of ASCII match letters of ASCII when the pattern has
    no others, which is what can be searched in bytes; any other pattern follows
    Unicode's simple folding. Raises `UsageError` for what cannot match.
    """

    def __init__(self, pattern: str, ignore_case: bool = True) -> None:
        if not pattern:
            raise UsageError("the pattern is empty", where="pattern")
        if "\n" in pattern:
            raise UsageError(
                "the pattern spans lines",
                where="pattern",
                hint="conversations are searched line by line: give one line of it",
            )
        self.pattern = pattern
        self.ignore_case = ignore_case
        self._lower = pattern.lower() if ignore_case and pattern.isascii() else None
        flags, expression = 0, re.escape(pattern)
        if ignore_case and pattern.isascii():
            flags = re.IGNORECASE | re.ASCII
        elif ignore_case:
            flags, expression = re.IGNORECASE, "".join(map(_folding, pattern))
        self._regex = re.compile(expression, flags)

    def finder(self, text: str) -> PatternFinder:
        """Searches within one text."""
        if not self.ignore_case:
            return _Exact(text, self.pattern)
        if self._lower is not None:
            lower = text.lower()
            if self._lower not in lower:
                return _NONE
            if text.isascii():
                return _Exact(lower, self._lower)
            # One letter becomes longer in small letters; then places differ.
            if len(lower) == len(text):
                return _Folded(text, self._regex, lower, self._lower)
        return _Folded(text, self._regex)

    def lines(self, text: str) -> Iterator[tuple[int, int, int]]:
        """First and last offset of each line that matches, and the offset of its first match."""
        finder = self.finder(text)
        place = finder.find(0)
        while place >= 0:
            start = text.rfind("\n", 0, place) + 1
            end = text.find("\n", place)
            if end < 0:
                end = len(text)
            yield start, end, place
            place = finder.find(end + 1)

    def count(self, text: str) -> int:
        """How many lines match."""
        return sum(1 for _ in self.lines(text))

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Where the pattern stands in a line, without overlaps."""
        return [match.span() for match in self._regex.finditer(line)]


def _folding(letter: str) -> str:
    """The expression for one letter of a pattern, by Unicode's simple folding.

    Python takes i, I, ı and İ for one letter. Unicode folds i and I only; ı and İ stay themselves.
    """
    if letter in "iI":
        return "(?-i:[iI])"
    return f"(?-i:{letter})" if letter in "ıİ" else re.escape(letter)


class PatternFinder:
    """Finds the next place of the pattern in a text."""

    def find(self, start: int) -> int:
        """The first place at or after `start`, -1 where there is none."""
        return -1


_NONE = PatternFinder()


class _Exact(PatternFinder):
    def __init__(self, text: str, pattern: str) -> None:
        self._text, self._pattern = text, pattern

    def find(self, start: int) -> int:
        return self._text.find(self._pattern, start)


class _Folded(PatternFinder):
    def __init__(
        self, text: str, regex: re.Pattern[str], lower: str | None = None, pattern: str = ""
    ) -> None:
        self._text, self._regex, self._lower, self._pattern = text, regex, lower, pattern

    def find(self, start: int) -> int:
        if self._lower is None:
            match = self._regex.search(self._text, start)
            return match.start() if match else -1
        place = self._lower.find(self._pattern, start)
        # `lower` makes a K of the Kelvin sign: the expression has the last word.
        while place >= 0 and not self._regex.match(self._text, place):
            place = self._lower.find(self._pattern, place + 1)
        return place


def cut_line(line: str, match: int | None = None, length: int = LINE_LENGTH) -> str:
    """A line in at most `length` characters around `match`, with `…` where something is left out.

    Never between a letter and the marks over it.
    """
    if len(line) <= length:
        return line
    centre = match or 0
    # A third before the match: what follows says more.
    start = max(0, min(centre - length // 3, len(line) - length))
    end = start + length
    if start > 0:
        start = _boundary(line, start + 1, 1)
    if end < len(line):
        end = _boundary(line, end - 1, -1)
    head, tail = "…" if start > 0 else "", "…" if end < len(line) else ""
    return f"{head}{line[start:end]}{tail}"


def _boundary(line: str, place: int, step: int) -> int:
    """The nearest place at or after (before) `place` that begins a character."""
    from unicodedata import category

    for _ in range(32):
        if not 0 < place < len(line):
            break
        joined = line[place] in "\u200d\ufe0f" or line[place - 1] == "\u200d"
        if not joined and category(line[place]) not in ("Mn", "Me", "Mc", "Sk"):
            break
        place += step
    return place


GROUPS: dict[str, tuple[str, ...]] = {
    "chat": ("user", "assistant", "reasoning", "structured"),
    "tool": ("tool-call", "tool-result"),
}
SCOPES: tuple[str, ...] = ("title", *dict.fromkeys(SCOPE_OF.values()))
_SHORT, _SHORT_MOST = 64, 1024
FEW = 2
"""Matches kept of a file in the first round: which are given is known when all are searched."""


@dataclass(frozen=True)
class GrepQuery:
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
class GrepLine:
    """One line of a hit, or beside one; `block` tells runs of adjoining lines apart."""

    scope: str
    turn: int | None
    timestamp: str | None
    text: str
    is_match: bool
    block: int = 0


@dataclass(slots=True)
class ConversationMatches:
    """What one conversation has: the number of matching lines, and the first of them.

    `last` is the timestamp of its last element as it is written.
    """

    count: int = 0
    lines: list[GrepLine] = field(default_factory=list)
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


class GrepSearch:
    """One query, ready to be put to file after file; made once for all of them."""

    def __init__(self, query: GrepQuery) -> None:
        self.query = query
        self.needle = LinePattern(query.pattern, query.ignore_case)
        self._sieve = Prefilter(query.pattern, query.ignore_case)
        self._counts: dict[str, int] = {}

    def file(self, path: str, room: int = FEW) -> ConversationMatches:
        """Search one `events.json`; keeps the first `room` matches and counts all."""
        found = ConversationMatches()
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

    def _made(self, data: bytes, problems: list[str]) -> tuple[list[GrepText], Any]:
        """Every piece, from the events themselves."""
        from kbtui.conversations.formats.jp.event_parser import EventParser

        builder = EventParser()
        last = None
        for batch in read_array(data, problems):
            builder.add(batch)
            last = batch[-1] if batch else last
        builder.finish()
        pieces = [
            GrepText(turn.number, SCOPE_OF[event.kind], event.timestamp, searched_text(event))
            for turn in builder.turns
            for event in turn.events
            if SCOPE_OF[event.kind] in self.query.scopes
        ]
        return pieces, last


def _masked_text(piece: GrepText) -> str:
    """The text without secrets: of a tool call, those in its values before JSON escapes them."""
    from kbtui.secrets import mask, mask_values

    name, line_end, arguments = piece.text.partition("\n")
    if piece.scope == "tool-call" and line_end:
        try:
            return mask(f"{name}\n{pretty(mask_values(orjson.loads(arguments)))}")
        except orjson.JSONDecodeError:
            pass
    return str(mask_values(piece.text))


def _search_piece(
    piece: GrepText, needle: LinePattern, context: int, room: int, found: ConversationMatches
) -> None:
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
                GrepLine(piece.scope, piece.turn, show_time(time), shown, match is not None, block)
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


def as_row(found: ConversationMatches) -> list[Any]:
    """A form that goes through JSON."""
    lines = [
        [line.scope, line.turn, line.timestamp, line.text, line.is_match, line.block]
        for line in found.lines
    ]
    return [found.count, lines, found.problem, found.last]


def from_row(row: list[Any]) -> ConversationMatches:
    """The reverse of `as_row`."""
    return ConversationMatches(row[0], [GrepLine(*line) for line in row[1]], *row[2:])
