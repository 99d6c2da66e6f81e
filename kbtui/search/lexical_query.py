"""Builds the tantivy query for a question."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import tantivy

from kbtui.index.tokenizer import cjk_pairs, forms, is_unspaced, plain
from kbtui.search.analysis import begun_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kbtui.search.analysis import Language, QueryWord


LARGE = 50_000
"""From so many chunks on, parts that tell nothing are left out."""
LEAST = 0.02
"""A part whose weight and rarity are below this share of the best part's is left out."""


class QueryTerm(NamedTuple):
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


def telling(parts: Sequence[QueryTerm], searcher: Any) -> list[QueryTerm]:
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


def _worth(part: QueryTerm, searcher: Any) -> float | None:
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


WEIGHTS = {"body": 1.0, "context": 1.0, "title": 0.5}
CODE_WEIGHT = 1.0
"""Of a compound as a whole, and of a pair of characters of a script without spaces."""
PART_WEIGHT = 0.5
"""Of a word that stands as a part of a camelCase one, on either side."""
GUESS_WEIGHT = 0.8
"""Of what a word may have been meant as, or may become."""
PAIR_WEIGHT = 0.1
"""Of two words that stand next to each other, in question and text."""


class QueryTermBuilder:
    """Makes the parts of a question for one index."""

    def __init__(self, schema: Any, searcher: Any, language: Language) -> None:
        self._schema, self._searcher, self._language = schema, searcher, language

    def of_word(self, word: QueryWord) -> Iterable[QueryTerm]:
        """What a word is looked for as."""
        for token in word.tokens:
            body = [("body", token.stem), *token.others]
            yield self._part(token.plain, WEIGHTS["body"] * token.weight, *body)
            for field in ("context", "title"):
                yield self._part(token.plain, WEIGHTS[field] * token.weight, (field, token.stem))
            if token.weight == 1.0:
                yield self._part(token.plain, PART_WEIGHT, ("code", token.plain))
            if token.corrected:
                places = [(field, stem) for stem in token.corrected for field in ("body", "title")]
                yield self._part(token.plain, GUESS_WEIGHT, *places)
        wholes = [("code", whole) for whole in word.forms.wholes]
        if wholes:
            # Squeezed, `utf-8` may stand as the word `utf8`.
            squeezed = [("body", stem) for stem in self._language.stems(word.forms.wholes[-1])[:1]]
            joined = squeezed if word.forms.wholes[-1].isalnum() else []
            yield self._part(word.text, CODE_WEIGHT, *wholes, *joined)
        for part in word.forms.parts:
            stems = [("body", stem) for stem in self._language.stems(part)[:1]]
            yield self._part(part, PART_WEIGHT, ("code", part), *stems)
        for pair in word.forms.pairs:
            pairs = [pair] if len(pair) > 1 else begun_with(self._searcher, pair) or [pair]
            yield self._part(pair, CODE_WEIGHT, *[("code", term) for term in pairs])
        begun = [("body", stem) for stem in word.begun] + [("code", w) for w in word.begun_code]
        if begun:
            yield self._part(f"{word.text}…", GUESS_WEIGHT, *begun)

    def of_pairs(self, words: Sequence[QueryWord]) -> Iterable[QueryTerm]:
        """Words that stand next to each other in the question count a little more where they do so
        in the text."""
        tokens = [token for word in words for token in word.tokens]
        for first, second in pairwise(tokens):
            if PAIR_WEIGHT and max(first.weight, second.weight) == 1.0:
                terms = [first.stem, second.stem]
                query = tantivy.Query.phrase_query(self._schema, "body", list(terms))
                query = tantivy.Query.boost_query(query, PAIR_WEIGHT)
                said = f"{first.plain} {second.plain}"
                yield QueryTerm(said, "body", " ".join(terms), PAIR_WEIGHT, query)

    def phrase(self, text: str) -> Any:
        """A query for all of a phrase, in order where the script has spaces."""
        text = plain(text)
        needed: list[Any] = []
        stems = self._language.stems(text)
        if is_unspaced(text):
            needed += [self._term("code", pair) for pair in dict.fromkeys(cjk_pairs(text))]
            stems = [stem for stem in stems if not is_unspaced(stem)]
            needed += [self._anywhere([stem]) for stem in stems]
        elif stems:
            needed.append(self._anywhere(stems))
        # `C++` and `C#` are a mere `c` to the tokenizer.
        for word in text.split():
            if word.endswith(("+", "#")):
                needed += [self._term("code", whole) for whole in marked(word)]
        if not needed:
            return tantivy.Query.empty_query()
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, part) for part in needed])

    def _term(self, field: str, term: str) -> Any:
        return tantivy.Query.term_query(self._schema, field, term, "freq")

    def _part(self, word: str, weight: float, *places: tuple[str, str]) -> QueryTerm:
        """A term, or the best of several."""
        terms = [self._term(field, term) for field, term in dict.fromkeys(places)]
        query = terms[0] if len(terms) == 1 else tantivy.Query.disjunction_max_query(terms)
        if weight != 1.0:
            query = tantivy.Query.boost_query(query, weight)
        shown = " | ".join(dict.fromkeys(term for _, term in places))
        return QueryTerm(word, places[0][0], shown, weight, query)

    def _anywhere(self, stems: list[str]) -> Any:
        if len(stems) == 1:
            found = [self._term(field, stems[0]) for field in ("body", "title")]
        else:
            found = [
                tantivy.Query.phrase_query(self._schema, field, list(stems))
                for field in ("body", "title")
            ]
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, part) for part in found])


def marked(word: str) -> list[str]:
    """A word as it is written, where it ends in a sign that is no letter: `c++`, `c#`."""
    return [whole for whole in forms(word).wholes if whole.endswith(("+", "#"))]
