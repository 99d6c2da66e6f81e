"""Scores the text around a passage: which words of the query occur in it and in the passages near it.

A passage is often too short to contain all words of a query; its neighbours may contain the rest. The
passage, four passages before it and four after it are therefore scored like one text, by a formula
like BM25. A word counts once for each passage that contains it, and nearer passages count more.
Everything is computed when a search runs, so the index has only the passages themselves.

Tool calls and their results do not count, because they would outweigh the words of the user and the
assistant.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tantivy import Occur, Query

from kbtui.index.entry_and_chunk_data_types import BLOCK_PASSAGES, get_passage_block_of_place
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kbtui.search.query_stemming_and_matching import QueryWord

# The values of these constants were measured: docs/search-quality.md.
DISTANCE_WEIGHTS = (1.0, 0.8, 0.6, 0.4, 0.2)
"""How much a passage counts in the text around another one, by the distance between them."""
SURROUNDINGS_WEIGHT = 1.5
"""The weight of the text around a passage. The passage's own text has the weight 1."""
TYPICAL_LENGTH = 1400.0
"""The length, in weighted characters, at which the text around a passage counts as neither short nor long."""
_SATURATION, _LENGTH_SHARE = 1.2, 0.75
"""The parameters k1 and b of BM25, with the values that tantivy uses."""

MAX_SURROUNDING_TERMS = 24
"""At most this many stems of a query are looked for around passages.

A score in tantivy has 24 bits, and each stem takes one of them (see
`_find_passages_around_places`).
"""

REACH = len(DISTANCE_WEIGHTS) - 1
"""The greatest distance at which a passage counts in the text around another one."""
_STEPS = tuple((step, DISTANCE_WEIGHTS[abs(step)]) for step in range(-REACH, REACH + 1))


class WeightedQueryStem(NamedTuple):
    """A stem that is looked for around passages, with its weight and the highest possible score."""

    word: str
    stem: str
    weight: float
    highest: float


class _NearbyPassage(NamedTuple):
    """A passage near other passages: its length in characters, and the positions of the terms that it contains."""

    length: int
    terms: tuple[int, ...]


class TextAroundPassageScorer:
    """Scores the text around passages of a keyword index by the query words in that text."""

    def __init__(
        self, searcher: Any, schema: Any, words: Iterable[QueryWord], statistics: Any
    ) -> None:
        """Prepare to score passages in the index of `searcher`.

        The rarity of each term is computed from `statistics`, which is a searcher or `CombinedTermStatistics`.
        """
        self._searcher, self._schema = searcher, schema
        found: dict[str, WeightedQueryStem] = {}
        for token in (token for word in words for token in word.tokens):
            weight = token.weight * SURROUNDINGS_WEIGHT
            weight += found[token.stem].weight if token.stem in found else 0.0
            highest = (
                weight
                * (_SATURATION + 1)
                * _estimate_rarity_of_stem_around_passages(statistics, token.stem)
            )
            if highest:
                found[token.stem] = WeightedQueryStem(token.plain, token.stem, weight, highest)
        best = sorted(found.values(), key=lambda term: (-term.highest, term.stem))
        self.terms = best[:MAX_SURROUNDING_TERMS]

    def score_text_around_passages(self, places: Iterable[int]) -> dict[int, float]:
        """Map the place of each passage at or near `places` to the score of the text around this passage."""
        near = {place + step for place in places for step, _ in _STEPS}
        return {
            place: sum(scores)
            for place, scores in self.score_terms_in_text_around_passages(near).items()
        }

    def score_terms_in_text_around_passages(
        self, places: Collection[int]
    ) -> dict[int, list[float]]:
        """Return the score that each term in `terms` adds to the passage at each place.

        Places without a passage are left out.
        """
        members = self._find_passages_around_places(places) if self.terms and places else {}
        highest = [term.highest for term in self.terms]
        found = {}
        for place in places:
            if place not in members:
                continue
            counts, length = [0.0] * len(highest), 0.0
            for step, weight in _STEPS:
                member = members.get(place + step)
                if member is not None:
                    length += weight * member.length
                    for at in member.terms:
                        counts[at] += weight
            middle = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length / TYPICAL_LENGTH)
            found[place] = [
                most * count / (count + middle) if count else 0.0
                for most, count in zip(highest, counts, strict=True)
            ]
        return found

    def _find_passages_around_places(self, places: Collection[int]) -> Mapping[int, _NearbyPassage]:
        """Map each place at and around `places` to the passage there."""
        blocks = {
            get_passage_block_of_place(place + step)
            for place in places
            for step in (-REACH, 0, REACH)
        }
        among = make_any_number_query(self._schema, "block", blocks)
        # One search finds all terms of each passage: term N adds 2 to the power of N to the score.
        wanted = [
            (Occur.Should, Query.const_score_query(self._make_term_query(term.stem), 2.0**at))
            for at, term in enumerate(self.terms)
        ]
        query = Query.boolean_query([(Occur.Must, among), *wanted])
        limit = len(blocks) * BLOCK_PASSAGES
        hits = self._searcher.search(query, limit=limit, count=False).hits
        addresses = [address for _, address in hits]
        numbers = self._searcher.fast_field_values("place", addresses)
        lengths = self._searcher.fast_field_values("prose_length", addresses)
        positions: dict[float, tuple[int, ...]] = {}
        found = {}
        for place, length, (score, _) in zip(numbers, lengths, hits, strict=True):
            if score not in positions:
                bits = int(score)
                positions[score] = tuple(at for at in range(len(wanted)) if bits >> at & 1)
            found[place] = _NearbyPassage(length, positions[score] if length else ())
        return found

    def _make_term_query(self, stem: str) -> Any:
        return Query.term_query(self._schema, "body", stem, "basic")


def make_any_number_query(schema: Any, field: str, numbers: Iterable[int]) -> Any:
    """Return a query for the documents with one of these numbers in `field`. The query does not compute scores."""
    # Make one query for each term: for a set of terms, tantivy reads all term dictionaries.
    terms = [Query.term_query(schema, field, one, "basic") for one in sorted(numbers)]
    return Query.const_score_query(
        Query.boolean_query([(Occur.Should, term) for term in terms]), 0.0
    )


def _estimate_rarity_of_stem_around_passages(statistics: Any, stem: str) -> float:
    """Return the inverse document frequency of a stem in texts around passages; 0 if no passage contains the stem.

    How many of these texts contain the stem is estimated from the number of passages that contain it.
    """
    passages = statistics.doc_freq("body", stem)
    if not passages:
        return 0.0
    share = min(passages / max(1, statistics.num_docs), 0.999)
    # The text around a passage counts as much as `others` additional passages.
    others = sum(weight for _, weight in _STEPS) - 1
    return -math.log(1 - (1 - share) ** others)
