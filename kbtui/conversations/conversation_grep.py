"""Searches the events of conversations line by line, for a literal string or a regular expression."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kbtui.conversations import conversation_event_kinds
from kbtui.conversations.conversation_data_types import format_event_text
from kbtui.dates import format_time_as_rfc3339_utc
from kbtui.errors import UsageError
from kbtui.secret_detection import mask_secrets, mask_secrets_in_json
from kbtui.terminal_text import format_readable_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from kbtui.conversations.conversation_data_types import ConversationEvent, Turn


LINE_LENGTH = 400
"""In the results, a line with more than this many characters is cut to the text around its match."""


def make_grep_pattern(
    pattern: str,
    *,
    ignore_case: bool = True,
    is_regex: bool = False,
    deadline: float | None = None,
) -> GrepPattern:
    """Return a regular expression if `is_regex` is true, else a literal pattern.

    `deadline` applies only to a regular expression; `RegexGrepPattern` explains it. Raises
    `UsageError` if the pattern is invalid.
    """
    if is_regex:
        return RegexGrepPattern(pattern, ignore_case, deadline)
    return LiteralGrepPattern(pattern, ignore_case)


def _check_pattern_is_one_line(pattern: str) -> None:
    if not pattern:
        raise UsageError("the pattern is empty", where="pattern")
    if "\n" in pattern:
        raise UsageError(
            "the pattern contains a line break",
            where="pattern",
            hint="conversations are searched line by line; remove the line break",
        )


class LiteralGrepPattern:
    """A literal pattern that matches within single lines.

    If case is ignored, a pattern with only ASCII characters matches only ASCII characters. Any
    other pattern follows Unicode's simple case folding. Raises `UsageError` if the pattern is empty
    or contains a line break.
    """

    def __init__(self, pattern: str, ignore_case: bool = True) -> None:
        _check_pattern_is_one_line(pattern)
        self.pattern = pattern
        self.ignore_case = ignore_case
        flags, expression = 0, re.escape(pattern)
        self._required: tuple[str, ...] = ()
        if ignore_case and pattern.isascii():
            flags = re.IGNORECASE | re.ASCII
        elif ignore_case:
            flags, expression = re.IGNORECASE, "".join(map(_make_letter_regex, pattern))
            self._required = _list_variants_of_first_non_ascii_letter(pattern)
        self._regex = re.compile(expression, flags)

    def _make_match_finder(self, text: str) -> Callable[[int], int]:
        """Return a function `find(start)`, which returns the offset of the next match or -1."""
        if not self.ignore_case:
            return partial(text.find, self.pattern)
        if self.pattern.isascii():
            if text.isascii():
                return partial(text.lower().find, self.pattern.lower())
            # `lower` is several times as fast for bytes as for text that is not ASCII.
            if self.pattern.lower().encode() not in text.encode("utf-8", "replace").lower():
                return lambda _: -1
        elif not any(letter in text for letter in self._required):
            return lambda _: -1
        return lambda start: match.start() if (match := self._regex.search(text, start)) else -1

    def find_matching_lines(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yield the start and end of each matching line, and the start of its first match."""
        find = self._make_match_finder(text)
        offset = find(0)
        while offset >= 0:
            start = text.rfind("\n", 0, offset) + 1
            end = text.find("\n", offset)
            if end < 0:
                end = len(text)
            yield start, end, offset
            offset = find(end + 1)

    def find_match_spans(self, line: str) -> list[tuple[int, int]]:
        """Return the start and end of each match in a line, without overlaps."""
        return [match.span() for match in self._regex.finditer(line)]


_NEEDS_SINGLE_LINES = r"\\[AzQE]|\(\?[a-zA-Z]*-?[a-zA-Z]*m"
"""Matches a regular expression that can have other matches in a whole text than in its single lines."""


PIECE_BYTES = 16 * 1024
"""A text is searched for a regular expression in pieces of whole lines, each of about this size."""


class RegexGrepPattern:
    """A regular expression in RE2's syntax that matches within single lines.

    RE2 has no backreferences and no look-around. The time for a search is proportional to the
    length of the text. If the expression has a large repetition, such as `a.{900}b`, the search can
    take a minute for a megabyte. Therefore, a search ends at `deadline`, a value of
    `time.monotonic`; None means no deadline. A long text is searched in pieces of whole lines, and
    the time is checked after each piece. Raises `UsageError` if the expression is invalid.
    """

    def __init__(
        self, pattern: str, ignore_case: bool = True, deadline: float | None = None
    ) -> None:
        _check_pattern_is_one_line(pattern)
        self._deadline = deadline
        self._line_regex = self._compile_grep_expression(pattern, ignore_case)
        self._text_regex: Any = None
        if not re.search(_NEEDS_SINGLE_LINES, pattern):
            # Searching a whole text at once is many times as fast as searching line by line.
            self._text_regex = self._compile_grep_expression(f"(?m){pattern}", ignore_case)

    @staticmethod
    def _compile_grep_expression(pattern: str, ignore_case: bool) -> Any:
        import re2

        options = re2.Options()
        options.case_sensitive = not ignore_case
        # No part of the expression matches a line break, so no match extends over two lines.
        options.never_nl = True
        options.never_capture = True
        options.log_errors = False
        try:
            # An expression given as bytes still matches characters, because the option `encoding` is
            # UTF-8.
            return re2.compile(pattern.encode("utf-8", "replace"), options)
        except re2.error as error:
            reason = error.args[0]
            if isinstance(reason, bytes):
                reason = reason.decode("utf-8", "replace")
            raise UsageError(
                f"invalid regular expression: {reason}",
                where="pattern",
                hint="the syntax is RE2's (no backreferences or look-around); escape literal "
                "characters with a backslash, or search for a literal text",
            ) from error

    def find_matching_lines(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yield the start and end of each matching line, and the start of its first match."""
        data = text.encode("utf-8", "replace")
        lines = self._find_matching_lines_in_bytes(data)
        if len(data) == len(text):
            yield from lines
            return
        last_byte = start = 0
        for first_byte, end_byte, match_byte in lines:
            start += _count_characters_in_utf8(data[last_byte:first_byte])
            last_byte = first_byte
            length = _count_characters_in_utf8(data[first_byte:end_byte])
            yield (
                start,
                start + length,
                start + _count_characters_in_utf8(data[first_byte:match_byte]),
            )

    def _find_matching_lines_in_bytes(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        by_line = self._text_regex is None or b"\r\n" in data
        size = 0 if by_line else PIECE_BYTES
        # A line break at the end belongs to the last line.
        last = len(data) - data.endswith(b"\n")
        start = 0
        while start < len(data):
            if self._deadline is not None and time.monotonic() > self._deadline:
                return
            line_break = data.find(b"\n", start + size)
            end = line_break if line_break >= 0 else last
            if by_line:
                found = self._search_line(data[start:end], has_line_break=line_break >= 0)
            else:
                found = self._search_lines(data[start:end])
            for first, after, match in found:
                yield start + first, start + after, start + match
            start = end + 1

    def _search_line(self, line: bytes, *, has_line_break: bool) -> Iterator[tuple[int, int, int]]:
        # A carriage return belongs to the line break that follows it.
        if match := self._line_regex.search(line.removesuffix(b"\r") if has_line_break else line):
            yield 0, len(line), match.start()

    def _search_lines(self, lines: bytes) -> Iterator[tuple[int, int, int]]:
        start = 0
        while start <= len(lines) and (match := self._text_regex.search(lines, start)):
            start = lines.rfind(b"\n", 0, match.start()) + 1
            end = lines.find(b"\n", match.start())
            if end < 0:
                end = len(lines)
            yield start, end, match.start()
            start = end + 1

    def find_match_spans(self, line: str) -> list[tuple[int, int]]:
        """Return the start and end of each match in a line.

        Matches do not overlap, and empty matches are left out.
        """
        data = line.encode("utf-8", "replace")
        return [
            (_count_characters_in_utf8(data[:first]), _count_characters_in_utf8(data[:last]))
            for first, last in (match.span() for match in self._line_regex.finditer(data))
            if first < last
        ]


GrepPattern = LiteralGrepPattern | RegexGrepPattern
"""A pattern to search for. Each match is within a single line."""


def _count_characters_in_utf8(data: bytes) -> int:
    return len(data.decode("utf-8", "replace"))


def _make_letter_regex(letter: str) -> str:
    """Return a regular expression that matches a letter in upper and lower case.

    `re.IGNORECASE` alone would treat i, I, ı and İ as the same letter. According to Unicode, only i
    and I are the same letter.
    """
    if letter in "iI":
        return "(?-i:[iI])"
    return f"(?-i:{letter})" if letter in "ıİ" else re.escape(letter)


def _list_variants_of_first_non_ascii_letter(pattern: str) -> tuple[str, ...]:
    """Return the forms of a pattern's first non-ASCII letter in upper and lower case.

    Every match contains one of these forms.
    """
    letter = next(letter for letter in pattern if not letter.isascii())
    letters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000))))
    return (letter, *set(re.findall(_make_letter_regex(letter), letters, re.IGNORECASE)))


def cut_line_around_match(line: str, match: int | None = None, length: int = LINE_LENGTH) -> str:
    """Cut a line to at most `length` characters around the offset `match`.

    `…` replaces the removed text. A letter is never separated from its combining marks.
    """
    if len(line) <= length:
        return line
    # Show a third of the text before the match, because the text after the match says more.
    start = max(0, min((match or 0) - length // 3, len(line) - length))
    end = start + length
    if start > 0:
        start = _move_offset_to_grapheme_boundary(line, start + 1, 1)
    if end < len(line):
        end = _move_offset_to_grapheme_boundary(line, end - 1, -1)
    head, tail = "…" if start > 0 else "", "…" if end < len(line) else ""
    return f"{head}{line[start:end]}{tail}"


def _move_offset_to_grapheme_boundary(line: str, offset: int, step: int) -> int:
    """Move an offset to a place where it separates no letter from its combining marks; return the new offset.

    The offset moves forwards if `step` is 1, and backwards if it is -1.
    """
    from unicodedata import category

    for _ in range(32):
        if not 0 < offset < len(line):
            break
        joined = line[offset] in "\u200d\ufe0f" or line[offset - 1] == "\u200d"
        if not joined and category(line[offset]) not in ("Mn", "Me", "Mc", "Sk"):
            break
        offset += step
    return offset


SCOPES_BY_NAME = conversation_event_kinds.map_names_to_grep_scopes()
SCOPES = SCOPES_BY_NAME["all"]


@dataclass(frozen=True)
class GrepQuery:
    """A pattern to search for in events, and the limits of the search.

    At most `limit` matches are returned, but all are counted. `context` is the number of lines to
    return before and after a match. If `masked` is true, secrets are masked before the search, so
    the search cannot find them. The search ends at `deadline`, a value of `time.monotonic`; None
    means no deadline.
    """

    pattern: GrepPattern
    scopes: frozenset[str] = frozenset(SCOPES)
    context: int = 0
    limit: int = 50
    masked: bool = False
    deadline: float | None = None

    @property
    def is_out_of_time(self) -> bool:
        """Whether the search has reached its deadline."""
        return self.deadline is not None and time.monotonic() > self.deadline


@dataclass(slots=True)
class GrepLine:
    """A matching line, or a line of context.

    Adjacent lines have the same number in `block`. `is_rewound` says whether the line's turn is
    rewound.
    """

    scope: str
    turn: int | None
    timestamp: str | None
    text: str
    is_match: bool
    block: int = 0
    is_rewound: bool = False


@dataclass(slots=True)
class ConversationGrepMatches:
    """The matching lines of a conversation.

    * `count` is the number of all matching lines.
    * `lines` contains the first matching lines with their context, up to the limit of the search.
    * `is_complete` is False if the search stopped before the end of the conversation.
    """

    count: int = 0
    lines: list[GrepLine] = field(default_factory=list)
    is_complete: bool = True


def resolve_grep_scopes(names: Sequence[str] | None) -> frozenset[str]:
    """Return the set of scopes that `names` select.

    A name is `all`, a group of scopes or a single scope. If `names` is None or empty, all scopes
    are returned. Raises `UsageError` for an unknown name.
    """
    for name in names or ():
        if name not in SCOPES_BY_NAME:
            hint = f"the scopes are {', '.join(SCOPES_BY_NAME)}"
            raise UsageError(f"unknown scope {name!r}", where="scopes", hint=hint)
    return frozenset(scope for name in names or ("all",) for scope in SCOPES_BY_NAME[name])


def _is_event_searched(event: ConversationEvent, scopes: frozenset[str]) -> bool:
    """Return whether the search includes an event.

    The event's role must be in `scopes`, and the event must not be a JSON answer.
    """
    kind = conversation_event_kinds.EVENT_KINDS[event.kind]
    # JP does not search the answers to questions. kbtui searches the answers that are free text.
    is_json_answer = kind.is_response and event.data is not None and type(event.data) is not str
    return kind.role in scopes and not is_json_answer


def grep_conversation_title(title: str, query: GrepQuery) -> list[GrepLine]:
    """Return the matching lines of a conversation's title."""
    if query.masked and any(query.pattern.find_matching_lines(title)):
        title = mask_secrets(title)
    return [
        GrepLine("title", None, None, cut_line_around_match(title[start:end], match - start), True)
        for start, end, match in query.pattern.find_matching_lines(title)
    ]


def grep_turns(turns: Iterable[Turn], query: GrepQuery) -> ConversationGrepMatches:
    """Search the turns of one conversation.

    Count all matches, but return at most `query.limit` of them. Stop at the query's deadline.
    """
    found = ConversationGrepMatches()
    for turn in turns:
        for event in turn.events:
            if query.is_out_of_time:
                found.is_complete = False
                return found
            if _is_event_searched(event, query.scopes):
                _grep_event(turn, event, query, found)
    found.is_complete = not query.is_out_of_time
    return found


def _grep_event(
    turn: Turn, event: ConversationEvent, query: GrepQuery, found: ConversationGrepMatches
) -> None:
    # Values are searched as JSON, as in JP.
    text = format_event_text(event, format_readable_json)
    spans = list(query.pattern.find_matching_lines(text))
    kept = max(0, query.limit - found.count)
    if spans and kept and query.masked:
        text = _mask_event_text(event, text)
        spans = list(query.pattern.find_matching_lines(text))
    found.count += len(spans)
    if not (spans and kept):
        return
    role, time = (
        conversation_event_kinds.EVENT_KINDS[event.kind].role,
        format_time_as_rfc3339_utc(event.timestamp),
    )
    block = found.lines[-1].block + 1 if found.lines else 1
    for line, match in _add_context_lines(text, spans[:kept], query.context):
        if line is None:
            block += 1
        else:
            shown = cut_line_around_match(line, match)
            is_match = match is not None
            found.lines.append(
                GrepLine(role, turn.number, time, shown, is_match, block, turn.is_rewound)
            )


def _mask_event_text(event: ConversationEvent, text: str) -> str:
    """Return `text`, the text of an event, with its secrets masked."""
    if event.arguments_or_fields:
        text = format_event_text(
            event, lambda values: format_readable_json(mask_secrets_in_json(values))
        )
        return mask_secrets(text)
    return str(mask_secrets_in_json(text))


def _add_context_lines(
    text: str, spans: Sequence[tuple[int, int, int]], context: int
) -> Iterator[tuple[str | None, int | None]]:
    """Yield each matching line and its context lines, with the offset of the match in the line.

    For a line of context, the offset is None. Wherever lines between two matches are skipped,
    `(None, None)` is yielded.
    """
    lines = text.removesuffix("\n").split("\n")
    matches = {}
    number = offset = 0
    for start, _, match in spans:
        number += text.count("\n", offset, start)
        offset = start
        matches[number] = match - start
    last = -1
    for number in matches:
        first = max(last + 1, number - context)
        if 0 <= last < first - 1:
            yield None, None
        for last in range(first, min(len(lines), number + context + 1)):
            yield lines[last].removesuffix("\r"), matches.get(last)
