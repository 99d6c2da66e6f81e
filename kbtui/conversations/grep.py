"""Searches conversations line by line for a literal."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kbtui.conversations import event_kinds
from kbtui.conversations.formats.jp import EventParser, Mended, read_events
from kbtui.dates import format_timestamp
from kbtui.errors import UsageError, WorkspaceError
from kbtui.text import pretty_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from kbtui.conversations.models import Event, Turn


LINE_LENGTH = 400
"""Characters: a longer line is cut around its match."""


class LinePattern:
    """A literal pattern that never spans lines.

    Without regard to case, an ASCII pattern matches ASCII letters only; any other pattern
    follows Unicode's simple case folding. Raises `UsageError` for what cannot match.
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
        flags, expression = 0, re.escape(pattern)
        if ignore_case and pattern.isascii():
            flags = re.IGNORECASE | re.ASCII
        elif ignore_case:
            flags, expression = re.IGNORECASE, "".join(map(_folding, pattern))
        self._regex = re.compile(expression, flags)
        self._required = _forms(pattern) if ignore_case and not pattern.isascii() else ()

    def _finder(self, text: str) -> Callable[[int], int]:
        """A function that gives the first match at or after an offset, -1 where there is none."""
        if not self.ignore_case:
            return partial(text.find, self.pattern)
        if self.pattern.isascii():
            if text.isascii():
                return partial(text.lower().find, self.pattern.lower())
            # Bytes become small letters ten times as fast as text beyond ASCII.
            if self.pattern.lower().encode() not in text.encode("utf-8", "replace").lower():
                return lambda _: -1
        elif not any(form in text for form in self._required):
            return lambda _: -1
        return lambda start: match.start() if (match := self._regex.search(text, start)) else -1

    def lines(self, text: str) -> Iterator[tuple[int, int, int]]:
        """First and last offset of each line that matches, and the offset of its first match."""
        find = self._finder(text)
        place = find(0)
        while place >= 0:
            start = text.rfind("\n", 0, place) + 1
            end = text.find("\n", place)
            if end < 0:
                end = len(text)
            yield start, end, place
            place = find(end + 1)

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


def _forms(pattern: str) -> tuple[str, ...]:
    """All that the first letter beyond ASCII may match: a text without any of them has no match.

    Looking for one letter is ten times as fast as the expression.
    """
    letter = next(letter for letter in pattern if not letter.isascii())
    letters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000))))
    return (letter, *set(re.findall(_folding(letter), letters, re.IGNORECASE)))


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


GROUPS = event_kinds.scope_groups()
SCOPES = event_kinds.scopes()


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

    `last_event_at` is the time of its last element.
    """

    count: int = 0
    lines: list[GrepLine] = field(default_factory=list)
    problem: str | None = None
    last_event_at: datetime | None = None


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
        arguments = event.text or pretty_json(event.arguments or {})
        return f"{event.name}\n{arguments}" if event.name else arguments
    # JP does not search answers; free text given as one is worth finding.
    if event.kind == "inquiry_response" and not isinstance(event.data, str):
        return ""
    return event.text


class GrepSearch:
    """One query, compiled once for all files that it is put to."""

    def __init__(self, query: GrepQuery) -> None:
        self.query = query
        self.pattern = LinePattern(query.pattern, query.ignore_case)

    def search_file(self, path: str) -> ConversationMatches:
        """Search one `events.json`; counts all matches and keeps the first `query.limit`."""
        found = ConversationMatches()
        problems: list[str] = []
        parser = EventParser()
        try:
            for batch in read_events(path, problems):
                parser.add(batch)
        except WorkspaceError as error:
            found.problem = error.message
            return found
        parser.finish()
        lost = [problem for problem in problems if not isinstance(problem, Mended)]
        found.problem = "; ".join(lost) or None
        found.last_event_at = parser.last_time
        scopes = self.query.scopes
        for turn in parser.turns:
            for event in turn.events:
                if event_kinds.role_of(event.kind) in scopes and (text := searched_text(event)):
                    self._search_event(turn, event, text, found)
        return found

    def _search_event(
        self, turn: Turn, event: Event, text: str, found: ConversationMatches
    ) -> None:
        if found.count >= self.query.limit:
            found.count += self.pattern.count(text)
            return
        spans = list(self.pattern.lines(text))
        if spans and self.query.masked:
            text = _masked_text(event, text)
            spans = list(self.pattern.lines(text))
        if not spans:
            return
        kept = spans[: self.query.limit - found.count]
        found.count += len(spans)
        scope, time = event_kinds.role_of(event.kind), format_timestamp(event.timestamp)
        block = found.lines[-1].block if found.lines else 0
        for number, (line, match) in enumerate(_with_context(text, kept, self.query.context)):
            if number == 0 or line is None:
                block += 1
            if line is not None:
                shown = cut_line(line, match)
                found.lines.append(
                    GrepLine(scope, turn.number, time, shown, match is not None, block)
                )


def _masked_text(event: Event, text: str) -> str:
    """The text without secrets: of a tool call, those in its values before JSON escapes them."""
    from kbtui.secrets import mask, mask_values

    if event.kind == "tool_call_request" and event.arguments and not event.text:
        arguments = pretty_json(mask_values(event.arguments))
        return mask(f"{event.name}\n{arguments}" if event.name else arguments)
    return str(mask_values(text))


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
