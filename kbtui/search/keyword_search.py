"""Search by keywords: makes tantivy queries from a search request, and ranks chunks.

A `QueryTerm` is a term in a field of the index, with a weight. The score of a chunk is the sum of
the scores of the query terms that match the chunk, and of those that match the text around it (see
`nearby_passage_scoring`). Rank explanations use the query terms, too. Several indexes are scored with
their summed statistics.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tantivy import FieldType, Occur, Query

from kbtui.index.entry_and_chunk_data_types import (
    BLOCK_PASSAGES,
    MIN_LEG_ENTRIES,
    SCORE_TOLERANCE,
    RankedChunk,
    drop_last_row_and_ties,
    extract_entry_number_from_place_number,
    get_passage_block_of_place,
    get_place_number_range_of_entry,
    select_best_chunks_and_best_of_further_entries,
    sort_ranked_chunks,
)
from kbtui.index.identifier_and_cjk_tokenizer import (
    extract_cjk_character_pairs,
    extract_code_words,
    get_code_word_forms,
    has_unspaced_script,
    normalize_unicode,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.search.nearby_passage_scoring import TextAroundPassageScorer, make_any_number_query
from kbtui.search.query_stemming_and_matching import (
    QueryWord,
    StemmedQueryWordPart,
    StemmingAnalyzer,
    add_near_spellings_to_rare_token,
    analyze_and_correct_query_words,
    compute_rarity,
    list_terms_with_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kbtui.index.entry_and_chunk_data_types import Chunk
    from kbtui.index.index_reader import IndexReader
    from kbtui.search.query_parsing_and_filter_application import (
        ParsedQuery,
        ToolArgumentAndExclusionFilters,
    )
    from kbtui.search.search_request_and_answer import SearchRequest


LARGE_INDEX_CHUNKS = 50_000
"""An index with at least this many chunks counts as large.

A search of a large index leaves out some terms: see `MIN_WORTH_SHARE` and docs/performance.md.
"""
MIN_WORTH_SHARE = 0.02
"""In a large index, a term is searched only if its worth is at least this share of the best term's worth.

The worth of a term is its weight times its rarity.
"""


class QueryTerm(NamedTuple):
    """A term of a query, with the word that it comes from, its index field and its weight.

    `term` can contain several alternatives separated by `|`. The alternative with the best score
    counts. `term` can also be two adjacent words separated by a space.
    """

    word: str
    field: str
    term: str
    weight: float
    query: Any

    @property
    def is_adjacent_word_pair(self) -> bool:
        """Whether the term stands for two adjacent words."""
        return " " in self.term and "|" not in self.term


def drop_query_terms_of_little_worth(parts: Sequence[QueryTerm], searcher: Any) -> list[QueryTerm]:
    """Return `parts`; if the index is large, leave out terms that contribute little (see `MIN_WORTH_SHARE`)."""
    if searcher.num_docs < LARGE_INDEX_CHUNKS:
        return list(parts)
    worths = [_estimate_term_worth(part, searcher) for part in parts]
    best = max((worth for worth in worths if worth is not None), default=0.0)
    return [
        part
        for part, worth in zip(parts, worths, strict=True)
        if worth is None or worth >= MIN_WORTH_SHARE * best
    ]


def _estimate_term_worth(part: QueryTerm, searcher: Any) -> float | None:
    """Return a term's weight times its rarity.

    Returns None if the term has alternatives, or if no chunk contains the term.
    """
    if "|" in part.term:
        return None
    counts = [searcher.doc_freq(part.field, term) for term in part.term.split()]
    if not all(counts):
        return None
    return part.weight * sum(compute_rarity(count, searcher.num_docs) for count in counts)


class CombinedTermStatistics:
    """The summed statistics of several keyword indexes, which make the scores from these indexes comparable.

    tantivy scores each index by the statistics of that index alone. A word that is rare in one
    workspace but common elsewhere would therefore raise the scores of that workspace's hits too much.
    With the summed statistics, each index scores its chunks as a single index with all entries would.

    `num_docs`, `doc_freq` and `terms_with_prefix` return what a tantivy searcher would return for one
    index with all entries. Do not change the indexes while this object is in use.
    """

    def __init__(self, searchers: Sequence[Any], schema: Any) -> None:
        """Sum the statistics of `searchers`, whose indexes have the same `schema`."""
        self._searchers, self._schema = searchers, schema
        self.doc_freq = lru_cache(maxsize=None)(self._sum_document_frequencies)

    @cached_property
    def num_docs(self) -> int:
        """The number of documents."""
        return sum(searcher.num_docs for searcher in self._searchers)

    def _sum_document_frequencies(self, field: str, term: str) -> int:
        """Return how many documents contain a term in a field."""
        return sum(searcher.doc_freq(field, term) for searcher in self._searchers)

    def terms_with_prefix(
        self, field: str, prefix: str, *, limit: int | None = None
    ) -> list[tuple[str, int]]:
        """Return the `limit` most common terms that begin with `prefix`, each with its frequency."""
        counts: Counter[str] = Counter()
        for searcher in self._searchers:
            counts.update(dict(searcher.terms_with_prefix(field, prefix)))
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]

    @cached_property
    def _scored_document_count(self) -> int:
        """The number of documents that tantivy counts for its scores.

        This number includes replaced documents.
        """
        return sum(_read_document_count_behind_scores(one, self._schema) for one in self._searchers)

    def sum_rarities_of_terms(self, *field_terms: tuple[str, str]) -> float:
        """Return the sum of the BM25 inverse document frequencies of terms, given as pairs `(field, term)`."""
        counts = (self.doc_freq(field, term) for field, term in field_terms)
        return sum(compute_rarity(count, self._scored_document_count) for count in counts)


def _read_document_count_behind_scores(searcher: Any, schema: Any) -> int:
    """Return how many documents tantivy counts for its scores.

    tantivy reveals this number only in the explanation of a score.
    """
    # `num_docs` does not count replaced documents, but `doc_freq` and scores do.
    for value in ("no", "yes"):
        query = Query.term_query(schema, "archived", value, "basic")
        hits = searcher.search(query, limit=1, count=False).hits
        if hits:
            found = _find_value_in_explanation(
                json.loads(query.explain(searcher, hits[0][1]).to_json()), "N, "
            )
            return int(found or searcher.num_docs)
    return int(searcher.num_docs)


def _find_value_in_explanation(explained: dict[str, Any], description: str) -> float | None:
    """Return the value of the first part of `explained` whose description begins with `description`."""
    if explained["description"].startswith(description):
        return float(explained["value"])
    parts = (
        _find_value_in_explanation(part, description) for part in explained.get("details") or ()
    )
    return next((value for value in parts if value is not None), None)


FIELD_WEIGHTS = {"body": 1.0, "title": 0.25}
CODE_WEIGHT = 1.0
"""The weight of a match with a whole compound word such as `utf-8`.

A match with two adjacent characters of a language that is written without spaces has the same weight.
"""
PART_WEIGHT = 0.5
"""The weight of a match with part of a camelCase word in the query or in the text."""
GUESS_WEIGHT = 0.8
"""The weight of a match with a correction or completion of a word in the query."""
PAIR_WEIGHT = 0.1
"""The weight of a match with two words that are adjacent both in the query and in the text."""


class QueryTermBuilder:
    """Builds the terms of a query for one index."""

    def __init__(
        self,
        schema: Any,
        searcher: Any,
        language: StemmingAnalyzer,
        statistics: CombinedTermStatistics | None = None,
    ) -> None:
        self._schema, self._language = schema, language
        self._own_statistics = CombinedTermStatistics([searcher], schema) if statistics else None
        self._summed_statistics = statistics
        self._searcher = statistics or searcher

    def build_word_terms(self, word: QueryWord) -> Iterable[QueryTerm]:
        """Yield a word's search terms: stems, spellings in source code, corrections and completions."""
        for token in word.tokens:
            for field, others in (("body", token.others), ("title", ())):
                weight = FIELD_WEIGHTS[field] * token.weight
                yield self._build_query_term(token.plain, weight, (field, token.stem), *others)
            if token.weight == 1.0:
                yield self._build_query_term(token.plain, PART_WEIGHT, ("code", token.plain))
            if token.corrected:
                yield self._build_near_spellings_term(token)
        if wholes := word.forms.wholes:
            # If the query has `utf-8`, a text with `utf8` also matches.
            joined = self._list_first_stem_as_body_term(wholes[-1]) if wholes[-1].isalnum() else []
            field_terms = [("code", whole) for whole in wholes]
            yield self._build_query_term(word.text, CODE_WEIGHT, *field_terms, *joined)
        for part in word.forms.parts:
            yield self._build_query_term(
                part, PART_WEIGHT, ("code", part), *self._list_first_stem_as_body_term(part)
            )
        for pair in word.forms.pairs:
            found = list_terms_with_prefix(self._searcher, "code", pair) if len(pair) == 1 else []
            yield self._build_query_term(pair, CODE_WEIGHT, *(found or [("code", pair)]))
        if word.completions:
            yield self._build_query_term(f"{word.text}…", GUESS_WEIGHT, *word.completions)

    def _list_first_stem_as_body_term(self, text: str) -> list[tuple[str, str]]:
        return [("body", stem) for stem in self._language.list_stems_of_text(text)[:1]]

    def build_word_pair_terms(self, words: Sequence[QueryWord]) -> Iterable[QueryTerm]:
        """Yield a term for each pair of adjacent words. A text with the pair ranks higher."""
        tokens = [token for word in words for token in word.tokens]
        for first, second in pairwise(tokens):
            if max(first.weight, second.weight) == 1.0:
                query = self._make_phrase_query("body", [first.stem, second.stem])
                query = Query.boost_query(query, PAIR_WEIGHT)
                said, term = f"{first.plain} {second.plain}", f"{first.stem} {second.stem}"
                yield QueryTerm(said, "body", term, PAIR_WEIGHT, query)

    def build_phrase_query(self, text: str) -> Any:
        """Build the query for a phrase.

        The words of the phrase must be adjacent and in order. In a script without spaces, a text
        matches if it contains every pair of adjacent characters of the phrase, in any order.
        """
        text = normalize_unicode(text)
        stems = self._language.list_stems_of_text(text)
        groups = [stems] if stems else []
        if pairs := dict.fromkeys(extract_cjk_character_pairs(text)):
            groups = [[stem] for stem in stems if not has_unspaced_script(stem)]
        needed = [self._make_term_query("code", pair) for pair in pairs]
        needed += [self._build_title_or_body_query(group) for group in groups]
        # The tokenizer reduces `C++` and `C#` to `c`.
        needed += [
            self._make_term_query("code", whole)
            for word in text.split()
            if word.endswith(("+", "#"))
            for whole in extract_words_ending_in_symbols(word)
        ]
        if not needed:
            return Query.empty_query()
        return Query.boolean_query([(Occur.Must, part) for part in needed])

    def _make_term_query(self, field: str, term: str) -> Any:
        query = Query.term_query(self._schema, field, term, "freq")
        return self._scale_to_summed_statistics(query, (field, term))

    def _make_phrase_query(self, field: str, stems: list[str]) -> Any:
        query = Query.phrase_query(self._schema, field, list(stems))
        return self._scale_to_summed_statistics(query, *((field, stem) for stem in stems))

    def _scale_to_summed_statistics(self, query: Any, *field_terms: tuple[str, str]) -> Any:
        """Boost a query so that it scores as if all entries were in a single index.

        tantivy multiplies a score by the rarity of the query's terms in this index. The boost
        replaces that rarity by the rarity of the terms in all indexes. Without summed statistics,
        the query is returned unchanged.
        """
        if self._summed_statistics is None or self._own_statistics is None:
            return query
        own = self._own_statistics.sum_rarities_of_terms(*field_terms)
        summed = self._summed_statistics.sum_rarities_of_terms(*field_terms)
        return Query.boost_query(query, summed / own) if own and own != summed else query

    def _build_query_term(
        self, word: str, weight: float, *field_terms: tuple[str, str]
    ) -> QueryTerm:
        """Build a term that matches any of `field_terms`: pairs of a field and a term in it."""
        terms = [self._make_term_query(field, term) for field, term in dict.fromkeys(field_terms)]
        query = terms[0] if len(terms) == 1 else Query.disjunction_max_query(terms)
        if weight != 1.0:
            query = Query.boost_query(query, weight)
        shown = " | ".join(dict.fromkeys(term for _, term in field_terms))
        return QueryTerm(word, field_terms[0][0], shown, weight, query)

    def _build_near_spellings_term(self, token: StemmedQueryWordPart) -> QueryTerm:
        """Build a term that matches any near spelling of a token.

        With BM25 alone, a rare spelling could count more than the likeliest spelling. The weights
        prevent this.
        """
        counts = [self._searcher.doc_freq("body", near.stem) for near in token.corrected]
        rarities = [compute_rarity(count, self._searcher.num_docs) for count in counts]
        queries = []
        for near, rarity in zip(token.corrected, rarities, strict=True):
            weight = near.weight * (min(1.0, rarities[0] / rarity) if rarity else 1.0)
            for field in ("body", "title"):
                query = self._make_term_query(field, near.stem)
                queries.append(Query.boost_query(query, weight) if weight != 1.0 else query)
        query = Query.boost_query(Query.disjunction_max_query(queries), GUESS_WEIGHT)
        shown = " | ".join(near.stem for near in token.corrected)
        return QueryTerm(token.plain, "body", shown, GUESS_WEIGHT, query)

    def _build_title_or_body_query(self, stems: list[str]) -> Any:
        if len(stems) == 1:
            found = [self._make_term_query(field, stems[0]) for field in ("body", "title")]
        else:
            found = [self._make_phrase_query(field, stems) for field in ("body", "title")]
        return Query.boolean_query([(Occur.Should, query) for query in found])


def extract_words_ending_in_symbols(word: str) -> list[str]:
    """Return the names in a word that end in `+` or `#`, such as `c++` or `c#`."""
    return [whole for whole in get_code_word_forms(word).wholes if whole.endswith(("+", "#"))]


OVERFETCH_FACTOR = 3
"""A search for N results first fetches `OVERFETCH_FACTOR` × N rows, to find chunks of more entries."""
FURTHER_FACTOR = 2
"""A second fetch gets `FURTHER_FACTOR` × N rows, without the entries of the first fetch."""
MAX_FETCHED_CHUNKS = 20_000
MAX_PAIRED_CHUNKS = 200
"""Pairs of adjacent query words are looked for only in this many of the best chunks."""

NEAR_SHARE = 0.9
"""A chunk that matches only near spellings gets at most this share of the lowest score of the other chunks."""

BEST_PASSAGES = 50
"""The text around this many of the best passages is scored.

The text around the passages near them is scored, too, and these nearby passages are ranked even if they
contain no word of the query.
"""

ChunkRanking = list[tuple[int, float]]
"""A ranking: the numbers of chunks with their scores, best first."""
_ChunkRow = tuple[int, float, int, int]
"""The values of a `RankedChunk`. A search makes hundreds of such rows, and making a `RankedChunk` takes six times as long."""
TermScores = tuple[QueryTerm, dict[int, float]]
"""A term, and the score that the term adds to each matching chunk, by chunk number."""


class KeywordSearch:
    """A search by keywords. If the request includes hidden subjects, their index is searched, too."""

    def __init__(
        self,
        reader: IndexReader,
        query: ParsedQuery,
        request: SearchRequest,
        narrowing: ToolArgumentAndExclusionFilters,
        statistics: Mapping[bool, CombinedTermStatistics] | None = None,
    ) -> None:
        """Prepare to search the keyword indexes of `reader`.

        `statistics` contains the summed statistics of all indexes that are searched together: True maps to
        those of hidden subjects, and False to those of visible entries. It is None if only the indexes of
        `reader` are searched.
        """
        self.language = StemmingAnalyzer(reader.language)
        self.sides = [
            _QueryOfOneKeywordIndex(
                reader.open_keyword_index(hidden=hidden),
                query,
                request,
                narrowing,
                self.language,
                statistics[hidden] if statistics else None,
                reader.get_chunks_by_number,
            )
            for hidden in ((False, True) if request.hidden else (False,))
        ]

    @property
    def analyzed_words(self) -> list[QueryWord]:
        """The analyzed words of the query. Each index has its own list, because the corrections differ."""
        return [word for side in self.sides for word in side.words]

    def make_phrase_matcher(self, text: str) -> Callable[[str], bool]:
        """Return a function that checks whether `text` contains a phrase. Stems are compared."""
        stems, code = (
            self.language.list_stems_of_text(text),
            set(extract_code_words(normalize_unicode(text))),
        )

        def text_contains_phrase(wanted: str) -> bool:
            phrase = [
                stem
                for stem in self.language.list_stems_of_text(wanted)
                if not has_unspaced_script(stem)
            ]
            pairs = set(extract_cjk_character_pairs(normalize_unicode(wanted)))
            last = len(stems) - len(phrase)
            return (
                bool(phrase or pairs)
                and pairs | set(extract_words_ending_in_symbols(wanted)) <= code
                and any(stems[at : at + len(phrase)] == phrase for at in range(last + 1))
            )

        return text_contains_phrase

    def rank_chunks(self, limit: int) -> list[RankedChunk]:
        """Return the best `limit` chunks by keywords.

        If these chunks belong to few entries, the best chunks of other entries follow (see
        `select_best_chunks_and_best_of_further_entries`). If the query has only filters, the newest chunks come
        first.
        """
        return self._merge_rows_of_visible_and_hidden_index(
            [side.rank_chunks_of_index(limit) for side in self.sides], limit
        )

    def select_chunks_with_query_words(self, found: ChunkRanking) -> ChunkRanking:
        """Return the rows of `found` whose chunks contain a word of the query.

        `found` is a ranking by `rank_chunks`. It also contains chunks that match only because the
        passages around them contain the words; these chunks are left out.
        """
        if any(side.chunks_with_words is None for side in self.sides):
            return found
        numbers = {number for side in self.sides for number in side.chunks_with_words or ()}
        return [row for row in found if row[0] in numbers]

    def rank_chunks_with_near_spellings(self, limit: int) -> list[RankedChunk]:
        """Return the best chunks for a wider query, in which rare words also match their near spellings.

        Returns no chunks if no word has near spellings. The result of `rank_chunks` does not change,
        but `analyzed_words` then contain the near spellings, so that they are highlighted.
        """
        wider = [query for side in self.sides if (query := side.add_near_spellings_to_query())]
        if not wider:
            return []
        rows = [
            side.rank_chunks_of_index(limit, side.near_query or side.query) for side in self.sides
        ]
        return self._merge_rows_of_visible_and_hidden_index(rows, limit)

    def _merge_rows_of_visible_and_hidden_index(
        self, sides: list[list[RankedChunk]], limit: int
    ) -> list[RankedChunk]:
        found, *more = sides
        for rows in more:
            found = sort_ranked_chunks([*found, *rows], score_tolerance=self.score_tolerance)
        return select_best_chunks_and_best_of_further_entries(found, limit)

    def count_matching_chunks(self) -> int:
        """Return how many chunks contain a word of the query and pass its filters."""
        return sum(side.count_matching_chunks() for side in self.sides)

    def list_one_chunk_per_entry(self) -> list[int]:
        """For each entry that has matching chunks, return the chunk number of one match."""
        return [
            number for side in self.sides for number in side.list_one_chunk_per_entry_of_index()
        ]

    @property
    def score_tolerance(self) -> float:
        """Two scores count as equal if their relative difference is at most this."""
        return self.sides[0].score_tolerance


def append_near_spelling_chunks_to_ranking(found: ChunkRanking, near: ChunkRanking) -> ChunkRanking:
    """Append the chunks that occur only in the ranking `near` to the ranking `found`.

    They get lower scores than all chunks in `found`.
    """
    known = {number for number, _ in found}
    more = [row for row in near if row[0] not in known]
    if not found or not more:
        return [*found, *more]
    factor = min(1.0, NEAR_SHARE * found[-1][1] / max(more[0][1], 1e-9))
    return [*found, *((number, score * factor) for number, score in more)]


class _QueryOfOneKeywordIndex:
    """The query for one keyword index: the index of visible entries, or the index of hidden subjects."""

    def __init__(
        self,
        index: Any,
        query: ParsedQuery,
        request: SearchRequest,
        narrowing: ToolArgumentAndExclusionFilters,
        language: StemmingAnalyzer,
        statistics: CombinedTermStatistics | None,
        get_chunks: Callable[[Collection[int]], Mapping[int, tuple[Chunk, str]]],
    ) -> None:
        self.searcher = index.searcher()
        self._schema = index.schema
        self._get_chunks = get_chunks
        self._counted: Any = statistics or self.searcher
        self._language = language
        self.words = analyze_and_correct_query_words(
            query.words,
            self._counted,
            language,
            self._read_passage_texts_with_stem,
            completes_last=request.partial and query.open,
        )
        self._builder = builder = QueryTermBuilder(
            self._schema, self.searcher, language, statistics
        )
        self.parts = self._build_query_terms()
        self._word_pairs = [part for part in self.parts if part.is_adjacent_word_pair]
        self.ranks_by_score = bool(self.parts or query.phrases)
        self.score_tolerance = SCORE_TOLERANCE if self.ranks_by_score else 0.0
        """Two scores count as equal if their relative difference is at most this.

        If chunks are sorted by time, the tolerance is 0.
        """
        self._phrases = [(Occur.Must, builder.build_phrase_query(text)) for text in query.phrases]
        self._limits = [
            (Occur.MustNot, builder.build_phrase_query(text)) for text in query.excluded
        ]
        filters = self._build_filter_queries(request, narrowing)
        self._has_filters = bool(filters)
        self._limits += filters
        if not request.archived:
            is_archived = Query.term_query(self._schema, "archived", "yes", "basic")
            self._limits.append((Occur.MustNot, is_archived))
        self._wanted = self._list_word_and_phrase_queries()
        self.query = self._build_tantivy_query(self._wanted)
        self.near_query: Any = None
        """The query with the near spellings of its rare words; see `add_near_spellings_to_query`."""
        self._near_wanted: list[tuple[Any, Any]] = []
        self.chunks_with_words: frozenset[int] | None = None
        """The numbers of the chunks whose own texts match `query`; None if there are too many to fetch."""
        self.places_with_surroundings: set[int] = set()
        """The places of the chunks whose scores include the score of the text around them."""
        self.surroundings = TextAroundPassageScorer(
            self.searcher, self._schema, self.words, self._counted
        )

    def _read_passage_texts_with_stem(self, stem: str, limit: int) -> list[str]:
        """Return the texts of up to `limit` passages of this index that contain a stem."""
        query = Query.term_query(self._schema, "body", stem, "basic")
        hits = self.searcher.search(query, limit=limit, count=False).hits
        numbers = self.searcher.fast_field_values("chunk", [address for _, address in hits])
        return [chunk.text for chunk, _ in self._get_chunks(numbers).values()] if numbers else []

    def _build_query_terms(self) -> list[QueryTerm]:
        words = [part for word in self.words for part in self._builder.build_word_terms(word)]
        pairs = self._builder.build_word_pair_terms(self.words)
        return drop_query_terms_of_little_worth([*words, *pairs], self._counted)

    def _list_word_and_phrase_queries(self) -> list[tuple[Any, Any]]:
        """Return a query for each word and phrase; `Occur` says whether a hit must match it."""
        parts = [part for part in self.parts if not part.is_adjacent_word_pair]
        return [*((Occur.Should, part.query) for part in parts), *self._phrases]

    def add_near_spellings_to_query(self) -> bool:
        """Set `near_query`, and return whether any word has near spellings.

        Near spellings are not looked up for a word that has completions.
        """
        if self.near_query is None and self.query is not None and self.ranks_by_score:
            words = [
                word
                if word.completions
                else word._replace(
                    tokens=tuple(
                        add_near_spellings_to_rare_token(
                            token, self._counted, self._language, self._read_passage_texts_with_stem
                        )
                        for token in word.tokens
                    )
                )
                for word in self.words
            ]
            if words != self.words:
                self.words = words
                self.parts = self._build_query_terms()
                self._near_wanted = self._list_word_and_phrase_queries()
                self.near_query = self._build_tantivy_query(self._near_wanted)
        return self.near_query is not None

    def count_matching_chunks(self) -> int:
        """Return how many chunks of this index match the query. Without a query, all chunks match."""
        query = self.query or self._build_tantivy_query([], selects_all=True)
        return int(self.searcher.search(query, limit=1, count=True).count)

    def list_one_chunk_per_entry_of_index(self) -> list[int]:
        """For each entry in this index that has matching chunks, return the chunk number of one match."""
        if not self.searcher.num_docs:
            return []
        query = self.query or self._build_tantivy_query([], selects_all=True)
        hits = self.searcher.search(query, limit=self.searcher.num_docs, count=False).hits
        addresses = [address for _, address in hits]
        numbers = self.searcher.fast_field_values("chunk", addresses)
        places = self.searcher.fast_field_values("place", addresses)
        found = {
            extract_entry_number_from_place_number(place): number
            for number, place in zip(numbers, places, strict=True)
            if number is not None
        }
        return [*found.values()]

    def rank_chunks_of_index(self, limit: int, query: Any = None) -> list[RankedChunk]:
        """Return the best `limit` chunks of this index.

        If these chunks belong to few entries, chunks of other entries are added. If `query` is not
        None, it replaces the query of the request.
        """
        query = self.query if query is None else query
        if query is None or not self.searcher.num_docs:
            return []
        fetched = limit * OVERFETCH_FACTOR
        held: list[RankedChunk] = []
        while True:
            last = fetched >= MAX_FETCHED_CHUNKS
            owners = {row.owner for row in held}
            rows, all_found = self.fetch_best_keyword_chunks(
                fetched, query, without=owners, whole_ties=not last
            )
            rows = (
                sort_ranked_chunks([*held, *rows], score_tolerance=self.score_tolerance)
                if held
                else rows
            )
            owners |= {row.owner for row in rows}
            is_enough = len(rows) >= limit and len(owners) >= min(limit, MIN_LEG_ENTRIES)
            if is_enough or all_found or last:
                return select_best_chunks_and_best_of_further_entries(rows, limit)
            # Entries with many chunks crowded out others. Fetch again without these entries, so that few
            # chunks of other entries are missing.
            fetched = fetched * 2 if held or len(rows) < limit else limit * FURTHER_FACTOR
            if len(rows) >= limit:
                held = rows

    def fetch_best_keyword_chunks(
        self, limit: int, query: Any, *, without: Collection[Any], whole_ties: bool
    ) -> tuple[list[RankedChunk], bool]:
        """Return chunks for a query, best first, and whether fewer than `limit` chunks match.

        The result contains the best `limit` chunks by their own texts. If the index ranks by score, the
        chunks near the best of them are added. `without` contains the numbers of the entries to exclude.
        If `whole_ties` is true, and the limit would split a group of chunks with equal scores, the whole
        group is left out of the best chunks.
        """
        wanted = self._wanted if query is self.query else self._near_wanted
        if without:
            others = _make_query_for_entries(self._schema, without)
            query = Query.boolean_query([(Occur.Must, query), (Occur.MustNot, others)])
        order = {} if self.ranks_by_score else {"order_by_field": "time"}
        found, places = self._search_chunks(query, limit, **order)
        all_found = len(found) < limit
        cut = whole_ties and not all_found
        if not self.ranks_by_score:
            ranked = map(RankedChunk._make, found)
            return sort_ranked_chunks(
                ranked, score_tolerance=self.score_tolerance, cut=cut
            ), all_found
        if all_found and wanted is self._wanted and not without:
            self.chunks_with_words = frozenset([row[0] for row in found])
        found = drop_last_row_and_ties(found) if cut else found
        best = found[: BEST_PASSAGES + 1]
        best = drop_last_row_and_ties(best) if len(best) > BEST_PASSAGES else best
        around = self.surroundings.score_text_around_passages(places[row[0]] for row in best)
        self.places_with_surroundings |= around.keys()
        near, more_places = self._search_chunks_at_places(around, wanted)
        places |= more_places
        held = {row[0] for row in found}
        found += [row for row in near if row[0] not in held]
        rows = [
            RankedChunk(number, score + around.get(places[number], 0.0), owner, tie)
            for number, score, owner, tie in found
        ]
        rows = sort_ranked_chunks(rows, score_tolerance=self.score_tolerance)
        if of_pairs := self._score_word_pairs([row.number for row in rows[:MAX_PAIRED_CHUNKS]]):
            rows = sort_ranked_chunks(
                [
                    RankedChunk(row[0], row[1] + of_pairs[row[0]], row[2], row[3])
                    if row[0] in of_pairs
                    else row
                    for row in rows
                ],
                score_tolerance=self.score_tolerance,
            )
        return rows, all_found

    def _search_chunks(
        self, query: Any, limit: int, **order: str
    ) -> tuple[list[_ChunkRow], dict[int, int]]:
        """Return the best chunks that match a query, and a mapping from chunk numbers to places.

        A place is a number that identifies a passage: its entry, and its position in the entry.
        """
        hits = self.searcher.search(query, limit=limit, count=False, **order).hits
        addresses = [address for _, address in hits]
        numbers, places, ties = (
            self.searcher.fast_field_values(name, addresses) for name in ("chunk", "place", "tie")
        )
        owners = [place and extract_entry_number_from_place_number(place) for place in places]
        rows = zip(numbers, (score for score, _ in hits), owners, ties, strict=True)
        # The watermark, a document that is not a chunk, has no number.
        return [row for row in rows if row[0] is not None], dict(zip(numbers, places, strict=True))

    def _search_chunks_at_places(
        self, wanted_places: Collection[int], wanted: list[tuple[Any, Any]]
    ) -> tuple[list[_ChunkRow], dict[int, int]]:
        """Return the chunks at `wanted_places` that match the filters, scored by their own texts.

        Also returns a mapping from chunk numbers to places, as `_search_chunks` does.
        """
        if not wanted_places:
            return [], {}
        blocks = {get_passage_block_of_place(place) for place in wanted_places}
        among = (Occur.Must, make_any_number_query(self._schema, "block", blocks))
        query = Query.boolean_query([among, *wanted, *self._limits])
        rows, places = self._search_chunks(query, len(blocks) * BLOCK_PASSAGES)
        return [row for row in rows if places[row[0]] in wanted_places], places

    def _score_word_pairs(self, numbers: list[int]) -> dict[int, float]:
        """Map the chunk numbers in `numbers` to the scores that word pairs add to these chunks.

        Word pairs are not part of the main query, because they would make tantivy score every chunk
        (docs/performance.md).
        """
        if not numbers or not self._word_pairs:
            return {}
        query = make_any_number_query(self._schema, "chunk", numbers)
        for pair in self._word_pairs:
            # Nest the queries: with one flat query, tantivy would score many more chunks.
            query = Query.boolean_query([(Occur.Must, query), (Occur.Should, pair.query)])
        return self._map_best_chunks_of_query_to_scores(query, len(numbers))

    def _map_best_chunks_of_query_to_scores(self, query: Any, count: int) -> dict[int, float]:
        """Map the numbers of the best `count` chunks for a query to the chunks' scores, best first."""
        hits = self.searcher.search(query, limit=max(1, count), count=False).hits
        addresses = [address for _, address in hits]
        numbers = self.searcher.fast_field_values("chunk", addresses) if hits else ()
        return {number: score for number, (score, _) in zip(numbers, hits, strict=True)}

    def select_chunk_numbers_found_in_index(self, numbers: Collection[int]) -> set[int]:
        """Return the chunk numbers in `numbers` whose chunks are in this index."""
        query = make_any_number_query(self._schema, "chunk", numbers)
        return set(self._map_best_chunks_of_query_to_scores(query, len(numbers)))

    def score_terms(self, numbers: Collection[int]) -> list[TermScores]:
        """Return the score that each term of the query adds to each of the chunks `numbers`."""
        # One search per term takes less than half the time of tantivy's `explain` for each term and
        # chunk, which also composes the formula of the score as JSON.
        among = (Occur.Must, make_any_number_query(self._schema, "chunk", numbers))
        scores = []
        for part in self.parts:
            query = Query.boolean_query([among, (Occur.Must, part.query)])
            scores.append((part, self._map_best_chunks_of_query_to_scores(query, len(numbers))))
        return scores

    def _build_tantivy_query(
        self, wanted: list[tuple[Any, Any]], *, selects_all: bool = False
    ) -> Any:
        """Return a query that combines the queries `wanted` with the filters of the request.

        If there are no words, phrases or filters, return a query for all chunks if `selects_all` is
        true, else None.
        """
        if not (wanted or self._has_filters or selects_all):
            return None
        limits: list[tuple[Any, Any]] = self._limits
        if wanted and all(occur == Occur.MustNot for occur, _ in limits):
            # Do not nest these queries, so that tantivy can skip chunks that cannot be among the best.
            return Query.boolean_query([*wanted, *limits])
        if not wanted:
            # Exclude the watermark, a document that is not a chunk.
            is_chunk = _make_any_value_query(self._schema, "archived", ("yes", "no"))
            limits = [*limits, (Occur.Must, is_chunk)]
        asked: Any = Query.boolean_query(wanted) if wanted else Query.all_query()
        return Query.boolean_query([(Occur.Must, asked), *limits])

    def _build_filter_queries(
        self, request: SearchRequest, narrowing: ToolArgumentAndExclusionFilters
    ) -> list[tuple[Any, Any]]:
        """Return a query for each filter; `Occur` says whether hits must match it or must not.

        Filters do not change scores.
        """
        queries = _build_field_filters(self._schema, request, narrowing)
        if request.chunks:
            queries.append(
                (Occur.Must, make_any_number_query(self._schema, "chunk", request.chunks))
            )
        if narrowing.without_chunks:
            numbers = make_any_number_query(self._schema, "chunk", narrowing.without_chunks)
            queries.append((Occur.MustNot, numbers))
        if request.since or request.until:
            between = Query.range_query(
                self._schema,
                "time",
                FieldType.Integer,
                lower_bound=int(request.since.timestamp()) if request.since else None,
                upper_bound=int(request.until.timestamp()) if request.until else None,
                include_upper=request.until is None,
            )
            queries.append((Occur.Must, _make_query_without_score(between)))
        return queries


def _build_field_filters(
    schema: Any,
    request: SearchRequest,
    narrowing: ToolArgumentAndExclusionFilters,
) -> list[tuple[Any, Any]]:
    """Return a query for each filter on a text field."""
    wanted = [
        ("topic", request.topics),
        ("type", request.types),
        ("role", request.roles),
        ("tool", request.tools),
        ("agent", request.agents),
        ("entry", request.entries),
        ("kind", request.kinds if len(set(request.kinds)) == 1 else ()),
        *(("arg", terms) for terms in narrowing.args),
    ]
    unwanted = [*narrowing.without, ("entry", (request.exclude,) if request.exclude else ())]
    queries = [
        (Occur.Must, _make_query_without_score(_make_any_value_query(schema, field, values)))
        for field, values in wanted
        if values
    ]
    queries += [
        (Occur.MustNot, _make_any_value_query(schema, field, values))
        for field, values in unwanted
        if values
    ]
    return queries


def _make_query_for_entries(schema: Any, owners: Collection[int]) -> Any:
    """Return a query for all chunks of the entries `owners`.

    Excluding this one query is four times as fast as excluding one query for each entry.
    """
    ranges = [
        Query.range_query(
            schema, "place", FieldType.Unsigned, *get_place_number_range_of_entry(owner)
        )
        for owner in owners
    ]
    return Query.boolean_query([(Occur.Should, one) for one in ranges])


def _make_any_value_query(schema: Any, field: str, values: Iterable[str]) -> Any:
    terms = [normalize_unicode(value) for value in values]
    return Query.term_set_query(schema, field, terms)


def _make_query_without_score(query: Any) -> Any:
    return Query.const_score_query(query, 0.0)
