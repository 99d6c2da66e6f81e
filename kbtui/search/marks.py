"""Where the words of a question stand in a text: what is highlighted."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbtui.search.query import Query

_WORD = re.compile(r"\w+")
_SUFFIX = re.compile(r"(?:ingly|edly|ings|ing|edly|ed|ies|ied|ers|er|es|s|ly|ion|ions)$")


def find_marks(query: Query, text: str) -> list[tuple[int, int]]:
    """Character offsets of phrases and of words with the same stem, without overlaps.

    The stems are rough on purpose: this only highlights. Ranking has its own.
    """
    from kbtui.search.lexical import FUNCTION_WORDS

    spans: list[tuple[int, int]] = []
    for phrase in query.phrases:
        pattern = r"\W+".join(re.escape(word) for word in _WORD.findall(phrase)) or re.escape(
            phrase
        )
        spans += [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]
    stems: set[str] = set()
    for word in query.words:
        for part in _WORD.findall(word):
            if part.lower() not in FUNCTION_WORDS:
                stems.add(_stem(part))
    if stems:
        spans += [match.span() for match in _WORD.finditer(text) if _stem(match[0]) in stems]
        for part in query.words:
            if not part.isascii():
                spans += [match.span() for match in re.finditer(re.escape(part), text)]
    return _merged(spans)


def _stem(word: str) -> str:
    if not word.isascii():
        word = "".join(
            char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char)
        )
    word = word.lower()
    cut = _SUFFIX.sub("", word)
    return cut if len(cut) >= 3 else word


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif end > start:
            result.append((start, end))
    return result
