"""What matches: a literal within one line, found by its first place (decisions B3)."""

import re
from collections.abc import Iterator

from kbtui.errors import UsageError

LINE_LENGTH = 400
"""Characters: a longer line is cut around its match."""


class Needle:
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

    def finder(self, text: str) -> "Finder":
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


class Finder:
    """Finds the next place of the pattern in a text."""

    def find(self, start: int) -> int:
        """The first place at or after `start`, -1 where there is none."""
        return -1


_NONE = Finder()


class _Exact(Finder):
    def __init__(self, text: str, pattern: str) -> None:
        self._text, self._pattern = text, pattern

    def find(self, start: int) -> int:
        return self._text.find(self._pattern, start)


class _Folded(Finder):
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
