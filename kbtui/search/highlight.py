"""Where the words of a question stand in a text: what is highlighted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kbtui.search.analysis import Language, QueryWord

Span = tuple[int, int]


class Highlighter:
    """Finds what a query matched, by the same stems as the ranking."""

    def __init__(
        self, words: Sequence[QueryWord], phrases: Sequence[str], language: Language
    ) -> None:
        tokens = [token for word in words for token in word.tokens]
        telling = [token for token in tokens if token.weight == 1.0]
        self._stems = {token.stem for token in telling or tokens}
        self._stems.update(stem for token in telling for stem in token.corrected)
        self._stems.update(stem for word in words for stem in word.begun)
        parts = {part for word in words for part in word.forms.parts}
        self._stems.update(stem for part in parts for stem in language.stems(part))
        self._phrases = [stems for phrase in phrases if (stems := language.stems(phrase))]
        literal = {pair for word in words for pair in word.forms.pairs}
        literal |= {whole for word in words for whole in word.forms.wholes if not whole.isalnum()}
        literal |= {phrase for phrase in phrases if not phrase.isascii() or not phrase.isalnum()}
        parts |= {token.plain for token in telling}
        self._literal = _any_of(literal, flags=re.IGNORECASE)
        # `subject` within `readSubject`.
        humps = (part.capitalize() for part in parts if len(part) > 2)
        self._humps = _any_of(humps, "(?<=[a-z0-9])(?:{})(?![a-z])")
        self._language = language

    def find(self, text: str) -> list[Span]:
        """Character offsets, in order and without overlaps."""
        tokens = self._language.spans(text)
        spans = [(first, last) for stem, first, last in tokens if stem in self._stems]
        for phrase in self._phrases:
            spans += [
                (tokens[at][1], tokens[at + len(phrase) - 1][2])
                for at in range(len(tokens) - len(phrase) + 1)
                if all(tokens[at + step][0] == stem for step, stem in enumerate(phrase))
            ]
        if self._literal:
            spans += [match.span() for match in self._literal.finditer(text)]
        if self._humps:
            spans += [match.span() for match in self._humps.finditer(text)]
        return merged(spans)


def _any_of(words: Iterable[str], around: str = "{}", flags: int = 0) -> re.Pattern[str] | None:
    """A pattern for any of the words, the longest first; None for none."""
    held = sorted({word for word in words if word}, key=lambda word: (-len(word), word))
    if not held:
        return None
    return re.compile(around.replace("{}", "|".join(map(re.escape, held))), flags)


def merged(spans: list[Span]) -> list[Span]:
    """Spans in order, those that touch or overlap as one."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif end > start:
            result.append((start, end))
    return result
