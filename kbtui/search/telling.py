"""Which parts of a query tell one chunk from another, in a large index.

A word that nearly every chunk has adds next to nothing to any score, but tantivy looks at every
chunk that has it (CONTRIBUTING, "Scale").
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGE = 50_000
"""From so many chunks on, parts that tell nothing are left out."""
LEAST = 0.02
"""A part whose weight and rarity are below this share of the best part's is left out."""


class Part(NamedTuple):
    """One term of a query: the word it is for, where it is looked for, and what it weighs.

    Of several terms the best counts; they stand in `term` with bars between them. A pair of
    words has two, with a space.
    """

    word: str
    field: str
    term: str
    weight: float
    query: Any

    @property
    def is_pair(self) -> bool:
        """Whether it is for two words that stand together."""
        return " " in self.term and "|" not in self.term


def telling(parts: Sequence[Part], searcher: Any) -> list[Part]:
    """The parts that a query is asked with; for a small index all of them."""
    if searcher.num_docs < LARGE:
        return list(parts)
    worths = [_worth(part, searcher) for part in parts]
    best = max((worth for worth in worths if worth is not None), default=0.0)
    return [
        part
        for part, worth in zip(parts, worths, strict=True)
        if worth is None or worth >= LEAST * best
    ]


def _worth(part: Part, searcher: Any) -> float | None:
    """Weight and rarity of a part; None for one that costs nothing, and for one of several terms."""
    if "|" in part.term:
        return None
    total = 0.0
    for term in part.term.split():
        chunks = searcher.doc_freq(part.field, term)
        if not chunks:
            return None
        # As BM25 has it.
        total += math.log1p(max(0.0, searcher.num_docs - chunks + 0.5) / (chunks + 0.5))
    return part.weight * total
