"""The lexical leg: a question as a tantivy query over the fields of a chunk.

A score is a sum over `QueryTerm`s, each a word in a field with its weight. They are kept, so that an
explanation can name them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import tantivy

from kbtui.index.models import SCORE_TOLERANCE, RankedChunk, sort_ranked_chunks
from kbtui.index.tokenizer import (
    extract_cjk_pairs,
    extract_code_words,
    get_word_forms,
    has_unspaced_script,
    normalize_text,
)
from kbtui.search.analysis import Language, QueryWord, analyze_words, list_pairs_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kbtui.index import IndexReader
    from kbtui.search.models import Question
    from kbtui.search.query_parser import ExtraFilters, ParsedQuery


LARGE_INDEX_CHUNKS = 50_000
"""From this many chunks on, terms that hardly change a ranking are left out (docs/performance.md)."""
MIN_WORTH_SHARE = 0.02
"""A term is left out if weight times rarity is below this share of the best term's."""


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


def select_terms(parts: Sequence[QueryTerm], searcher: Any) -> list[QueryTerm]:
    """Return the terms that a query is made of; for a small index all of them."""
    if searcher.num_docs < LARGE_INDEX_CHUNKS:
        return list(parts)
    worths = [_estimate_worth(part, searcher) for part in parts]
    best = max((worth for worth in worths if worth is not None), default=0.0)
    return [
        part
        for part, worth in zip(parts, worths, strict=True)
        if worth is None or worth >= MIN_WORTH_SHARE * best
    ]


def _estimate_worth(part: QueryTerm, searcher: Any) -> float | None:
    """Weight times rarity of a term; None if it is in no chunk, or has alternatives."""
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


FIELD_WEIGHTS = {"body": 1.0, "context": 1.0, "title": 0.5}
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
            yield self._part(token.plain, FIELD_WEIGHTS["body"] * token.weight, *body)
            for field in ("context", "title"):
                yield self._part(
                    token.plain, FIELD_WEIGHTS[field] * token.weight, (field, token.stem)
                )
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
            pairs = [pair] if len(pair) > 1 else list_pairs_from(self._searcher, pair) or [pair]
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
        text = normalize_text(text)
        needed: list[Any] = []
        stems = self._language.stems(text)
        if has_unspaced_script(text):
            needed += [self._term("code", pair) for pair in dict.fromkeys(extract_cjk_pairs(text))]
            stems = [stem for stem in stems if not has_unspaced_script(stem)]
            needed += [self._anywhere([stem]) for stem in stems]
        elif stems:
            needed.append(self._anywhere(stems))
        # `C++` and `C#` are a mere `c` to the tokenizer.
        for word in text.split():
            if word.endswith(("+", "#")):
                needed += [self._term("code", whole) for whole in extract_marked_words(word)]
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


def extract_marked_words(word: str) -> list[str]:
    """A word as it is written, where it ends in a sign that is no letter: `c++`, `c#`."""
    return [whole for whole in get_word_forms(word).wholes if whole.endswith(("+", "#"))]


OVERFETCH_FACTOR = 5
"""How many times the limit is looked at before an entry's surplus chunks are left out."""
MAX_FETCHED_CHUNKS = 20_000
MAX_PAIRED_CHUNKS = 200
"""Among so many of the best chunks pairs are looked for: each costs a look into the index."""

Ranked = list[tuple[int, float]]
"""Chunk numbers with their scores, best first."""


class LexicalSearch:
    """A question, ready to be asked of the lexical index, and of the hidden one when it may be."""

    def __init__(
        self, reader: IndexReader, query: ParsedQuery, question: Question, narrowing: ExtraFilters
    ) -> None:
        self._question = question
        self.language = Language(reader.language)
        self.sides = [
            _IndexQuery(
                reader.open_keyword_index(hidden=hidden), query, question, narrowing, self.language
            )
            for hidden in ((False, True) if question.hidden else (False,))
        ]

    @property
    def words(self) -> list[QueryWord]:
        """The query's words as each index reads them; corrections can differ."""
        return [word for side in self.sides for word in side.words]

    def saying(self, text: str) -> Callable[[str], bool]:
        """Whether a phrase or a word, as it is typed, stands in a text, by the rules of the index."""
        stems, code = self.language.stems(text), set(extract_code_words(normalize_text(text)))

        def says(wanted: str) -> bool:
            phrase = [stem for stem in self.language.stems(wanted) if not has_unspaced_script(stem)]
            pairs = set(extract_cjk_pairs(normalize_text(wanted)))
            last = len(stems) - len(phrase)
            return (
                bool(phrase or pairs)
                and pairs | set(extract_marked_words(wanted)) <= code
                and any(stems[at : at + len(phrase)] == phrase for at in range(last + 1))
            )

        return says

    def ranked(self, limit: int, per_entry: int | None = None) -> Ranked:
        """The best chunks by keywords; ties by chunk id.

        At most `per_entry` chunks of one entry, so that a long one does not fill
        the leg. A question of filters alone has the newest first.
        """
        per_entry = per_entry or self._question.per_entry
        found = [row for side in self.sides for row in side.ranked(limit, per_entry)]
        tolerance = self.sides[0].tolerance
        return [
            (row.number, row.score)
            for row in sort_ranked_chunks(found, tolerance=tolerance)[:limit]
        ]


class _IndexQuery:
    """One of the two indexes."""

    def __init__(
        self,
        index: Any,
        query: ParsedQuery,
        question: Question,
        narrowing: ExtraFilters,
        language: Language,
    ) -> None:
        self.searcher = index.searcher()
        self._schema = index.schema
        self.words = analyze_words(
            query.words, self.searcher, language, completes_last=question.partial and query.open
        )
        made = QueryTermBuilder(self._schema, self.searcher, language)
        words = [part for word in self.words for part in made.of_word(word)]
        self.parts = select_terms([*words, *made.of_pairs(self.words)], self.searcher)
        self._terms = [part for part in self.parts if not part.is_pair]
        self._nearby = [part for part in self.parts if part.is_pair]
        self.phrases = [(text, made.phrase(text)) for text in query.phrases]
        self.excluded = [(text, made.phrase(text)) for text in query.excluded]
        self.limits = list(self._limits(question, narrowing))
        self.asks = bool(self.parts or self.phrases)
        self.query = self._whole()

    # asking

    @property
    def tolerance(self) -> float:
        """The share by which scores may differ and still be equal; times are exact."""
        return SCORE_TOLERANCE if self.asks else 0.0

    def ranked(self, limit: int, per_entry: int) -> list[RankedChunk]:
        """The best `limit` of this index."""
        if self.query is None or not self.searcher.num_docs:
            return []
        looked_at = limit * OVERFETCH_FACTOR
        filled: dict[object, list[RankedChunk]] = {}
        while True:
            last = looked_at >= MAX_FETCHED_CHUNKS
            rows, all_found = self.rows(looked_at, without=filled, whole_ties=not last)
            seen: dict[object, list[RankedChunk]] = {}
            for row in rows:
                if len(held := seen.setdefault(row.owner, [])) < per_entry:
                    held.append(row)
            kept = [row for held in (*filled.values(), *seen.values()) for row in held]
            if len(kept) >= limit or all_found or last:
                return sort_ranked_chunks(kept, tolerance=self.tolerance)[:limit]
            # Long entries filled all that was looked at: the next look is past them.
            filled |= {owner: held for owner, held in seen.items() if len(held) >= per_entry}
            looked_at *= 2

    def rows(
        self, limit: int, *, without: Iterable[object], whole_ties: bool
    ) -> tuple[list[RankedChunk], bool]:
        """The first `limit` chunks, best first, none of some owners'; and whether these are all.

        With `whole_ties` those are left out of whose equals only some are among the first.
        """
        query = self._past(without)
        order = {} if self.asks else {"order_by_field": "time"}
        hits = self.searcher.search(query, limit=limit, count=False, **order).hits
        addresses = [address for _, address in hits]
        columns = [
            self.searcher.fast_field_values(name, addresses) for name in ("chunk", "owner", "tie")
        ]
        found = [
            RankedChunk(int(number), float(score), owner, int(tie))
            for number, owner, tie, (score, _) in zip(*columns, hits, strict=True)
            if number is not None
        ]
        all_found = len(hits) < limit
        cut = whole_ties and not all_found
        found = sort_ranked_chunks(found, tolerance=self.tolerance, cut=cut)
        more = self._pair_scores([row.number for row in found[:MAX_PAIRED_CHUNKS]])
        paired = [
            row._replace(score=row.score + more[row.number]) if row.number in more else row
            for row in found
        ]
        return sort_ranked_chunks(paired, tolerance=self.tolerance), all_found

    def _past(self, owners: Iterable[Any]) -> Any:
        """The whole query, past the chunks of some owners."""
        left_out = [
            (
                tantivy.Occur.MustNot,
                tantivy.Query.range_query(
                    self._schema, "owner", tantivy.FieldType.Unsigned, owner, owner
                ),
            )
            for owner in owners
        ]
        if not left_out:
            return self.query
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, self.query), *left_out])

    def _pair_scores(self, numbers: list[int]) -> dict[int, float]:
        """What pairs of words add to the scores of these chunks.

        Asked of them alone: within the whole query, pairs would keep tantivy from leaving out what
        cannot be among the best, which is most of a large index (docs/performance.md).
        """
        if not numbers or not self._nearby:
            return {}
        should = tantivy.Occur.Should
        # A term each: a set of terms is looked for by walking the dictionary of every segment.
        terms = [
            tantivy.Query.term_query(self._schema, "chunk", number, "basic") for number in numbers
        ]
        query = _without_score(tantivy.Query.boolean_query([(should, term) for term in terms]))
        for pair in self._nearby:
            # One within the other: beside each other they would be asked of whole stretches.
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (should, pair.query)])
        hits = self.searcher.search(query, limit=len(numbers), count=False).hits
        found = self.searcher.fast_field_values("chunk", [address for _, address in hits])
        return {int(n): float(score) for n, (score, _) in zip(found, hits, strict=True)}

    def address(self, entry_id: str, number: int) -> Any:
        """Where this index has a chunk, None where it has not; for explanations."""
        entry = tantivy.Query.term_query(self._schema, "entry", entry_id, "basic")
        hits = self.searcher.search(entry, limit=MAX_FETCHED_CHUNKS, count=False).hits
        addresses = [address for _, address in hits]
        numbers = self.searcher.fast_field_values("chunk", addresses)
        return next((at for at, n in zip(addresses, numbers, strict=True) if n == number), None)

    # building

    def _whole(self) -> Any:
        """The whole query, None when nothing is asked for."""
        wanted = [(tantivy.Occur.Should, part.query) for part in self._terms]
        wanted += [(tantivy.Occur.Must, phrase) for _, phrase in self.phrases]
        limits = [(tantivy.Occur.MustNot, phrase) for _, phrase in self.excluded]
        limits += [(occur, part) for _, occur, part in self.limits]
        narrowed = any(name != "archived" for name, _, _ in self.limits)
        if not wanted and not narrowed:
            return None
        if wanted and all(occur == tantivy.Occur.MustNot for occur, _ in limits):
            # In one piece it is answered without looking at every chunk that has a word of it.
            return tantivy.Query.boolean_query([*wanted, *limits])
        asked = tantivy.Query.boolean_query(wanted) if wanted else tantivy.Query.all_query()
        if not wanted:
            # The mark of the last commit is no chunk.
            limits.append((tantivy.Occur.Must, self._any("archived", ("yes", "no"))))
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, asked), *limits])

    # narrowing

    def _limits(
        self, question: Question, narrowing: ExtraFilters
    ) -> Iterable[tuple[str, Any, Any]]:
        """What narrows before ranking, without a say in the score; each with its name."""
        wanted: dict[str, tuple[str, ...]] = {
            "topic": question.topics,
            "type": question.types,
            "role": question.roles,
            "tool": question.tools,
            "entry": question.entries,
        }
        if set(question.kinds) != {"subject", "conversation"}:
            wanted["kind"] = question.kinds
        if not question.archived:
            archived = tantivy.Query.term_query(self._schema, "archived", "yes", "basic")
            yield "archived", tantivy.Occur.MustNot, archived
        for field, values in wanted.items():
            if values:
                yield field, tantivy.Occur.Must, _without_score(self._any(field, values))
        for terms in narrowing.args:
            yield "arg", tantivy.Occur.Must, _without_score(self._any("arg", terms))
        for field, values in narrowing.without:
            if values:
                yield f"-{field}", tantivy.Occur.MustNot, self._any(field, values)
        if question.exclude is not None:
            entry = self._any("entry", (question.exclude,))
            yield "exclude", tantivy.Occur.MustNot, entry
        if question.since or question.until:
            between = tantivy.Query.range_query(
                self._schema,
                "time",
                tantivy.FieldType.Integer,
                lower_bound=int(question.since.timestamp()) if question.since else None,
                upper_bound=int(question.until.timestamp()) if question.until else None,
                include_upper=question.until is None,
            )
            yield "time", tantivy.Occur.Must, _without_score(between)

    def _any(self, field: str, values: Iterable[str]) -> Any:
        return tantivy.Query.term_set_query(
            self._schema, field, [normalize_text(value) for value in values]
        )


def _without_score(query: Any) -> Any:
    return tantivy.Query.const_score_query(query, 0.0)
