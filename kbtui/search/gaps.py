"""What the gap list of the insights wants to know of an answer: what narrowed it, and whether it fits.

Search by meaning has a nearest passage for everything, and nearly every passage has a common word
of the question. So an answer fits when its best hit has one of the rare words, or is much like it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbtui.search.filters import list_filters
from kbtui.search.highlight import Highlighter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.search.analysis import QueryWord
    from kbtui.search.lexical import LexicalSearch
    from kbtui.search.models import Hit, Question
    from kbtui.search.query_parser import ParsedQuery

RARE = 0.05
"""A word that at most this share of all passages has is rare."""
ALIKE = 0.4
"""The least similarity (cosine) of a passage that is about what was asked for (docs/search-quality.md)."""


def filters_of(question: Question, query: ParsedQuery) -> str:
    """What narrowed the search, by its query or its options, as a query spells it."""
    return " ".join(_filters(question, query))


def _filters(question: Question, query: ParsedQuery) -> Iterator[str]:
    fields = {row.key: getattr(question, row.search, None) for row in list_filters("search")}
    for key, value in fields.items():
        if isinstance(value, datetime):
            yield f"{key}:{value.isoformat()}"
        elif value and not (key == "in" and len(value) > 1):
            yield f"{key}:{','.join(map(_quoted, value))}"
    for part in query.filters:
        if part.excluded or fields.get(part.key) is None:
            yield query.text[part.start : part.end]
    yield from (f"-{_quoted(text)}" for text in query.excluded)


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text or "," in text else text


def is_gap(query: ParsedQuery, lexical: LexicalSearch, best: Hit | None, similarity: float) -> bool:
    """Whether what was asked for seems to be missing, by the best hit and its similarity."""
    if best is None:
        return True
    rare = _rare_words(query, lexical)
    if not rare or Highlighter(rare, (), lexical.language).find(f"{best.title}\n{best.text}"):
        return False
    return similarity < ALIKE


def _rare_words(query: ParsedQuery, lexical: LexicalSearch) -> list[QueryWord]:
    """The rare words of the question, function words aside; where none is rare, all of them.

    None of a question with a phrase: its hits have that.
    """
    if query.phrases:
        return []
    # Hidden subjects have an index of their own, too small to say what is rare.
    side = lexical.sides[0]
    words = [word for word in side.words if _tells(word)]
    most = max(1, RARE * side.searcher.num_docs)
    return [word for word in words if _passages(word, side.searcher) <= most] or words


def _tells(word: QueryWord) -> bool:
    return not word.tokens or any(token.weight == 1.0 for token in word.tokens)


def _passages(word: QueryWord, searcher: Any) -> int:
    """How many passages have the word, by the rarest of its parts that tell something."""
    return min(
        (
            max(
                searcher.doc_freq(field, term)
                for field, term in (
                    ("body", token.stem),
                    ("title", token.stem),
                    ("code", token.plain),
                    *token.others,
                )
            )
            for token in word.tokens
            if token.weight == 1.0
        ),
        default=0,
    )
