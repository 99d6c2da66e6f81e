"""Runs a search: ranks chunks by keywords and by meaning, fuses the rankings, and makes hits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from kbtui.index.entry_and_chunk_data_types import SCORE_TOLERANCE, UserRequestChunkPlace
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import Notice
from kbtui.search.filter_definitions import list_filters_accepted_by_input_field, quote_filter_value
from kbtui.search.near_spellings import measure_spelling_distance
from kbtui.search.outdated_hits_and_turns import (
    HitFreshnessChecker,
    find_turns_with_outdated_citations,
)
from kbtui.search.query_parsing_and_filter_application import apply_query_filters, parse_query
from kbtui.search.query_stemming_and_matching import (
    FEW_KEYWORD_HITS,
    QueryMatchFinder,
    compute_rarity,
    count_passages_with_token,
    list_tokens_except_function_words,
)
from kbtui.search.rule_based_passage_reranker import (
    RERANKED_PASSAGES,
    PassageToRerank,
    RankBonusCalculator,
    RankBonuses,
)
from kbtui.search.search_request_and_answer import (
    LEG_DEPTH,
    MAX_HITS,
    MAX_QUERY_CHARACTERS,
    SCORE_DIGITS,
    EntriesMatchingFilter,
    Hit,
    SearchAnswer,
    SearchRequest,
    SemanticRanking,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
    from kbtui.index.index_reader import IndexReader
    from kbtui.search.keyword_search import ChunkRanking, CombinedTermStatistics, KeywordSearch
    from kbtui.search.query_parsing_and_filter_application import ParsedQuery
    from kbtui.search.query_stemming_and_matching import QueryWord
    from kbtui.workspace import Workspace


MAX_FURTHER_PASSAGES = 10_000
"""If a request has a high limit, up to about this many passages are ranked by keywords."""
CHUNKS_LOADED_AT_ONCE = 30
"""The number of ranked chunks that are loaded from the catalog at a time. Most ranked chunks are never needed."""

SemanticRanker = Callable[[SearchRequest, str], SemanticRanking]
"""A function that takes a request and the name of an index generation, and ranks chunks by their vectors."""
SemanticSearchStarter = Callable[[str], SemanticRanker]
"""A function that starts to embed the text of a query, and returns before the vector is ready.

Its result is a function that waits for the vector and then ranks chunks.
"""


def search_index(
    workspace: Workspace,
    reader: IndexReader,
    request: SearchRequest,
    semantic: SemanticSearchStarter | None = None,
) -> SearchAnswer:
    """Search by keywords, by meaning or both, as the request's mode says; fuse the rankings.

    If `semantic` is None or cannot rank chunks, the answer has only keyword hits. If the query has
    mistakes, nothing is searched, and `SearchAnswer.mistakes` lists them.
    """
    return run_search_and_build_answer(SearchRun(workspace, reader, request), semantic)


def run_search_and_build_answer(
    run: SearchRun, semantic: SemanticSearchStarter | None = None
) -> SearchAnswer:
    """Run a search and return its answer. The rankings are stored in `run`."""
    request = run.request
    mistakes = tuple(run.mistakes)
    answer = SearchAnswer(
        run.query.text,
        request.mode,
        [],
        notices=run.notices,
        partial=request.partial,
        mistakes=mistakes,
    )
    if mistakes:
        return answer
    run.rank_by_keywords_and_meaning(semantic)
    hits, counts = _make_hits_of_run_up_to_limit(run)
    if request.like is None:
        run.notices[:0] = make_match_notices([run], hits, run.exact_hit_count)
    return answer._replace(
        hits=hits,
        total=counts.total,
        omitted=counts.omitted,
        left_out=counts.left_out,
        has_more=run.has_further_hits,
        # The answer must not reveal that hidden subjects exist.
        empty=not run.scores and run.reader.is_catalog_empty(hidden=request.hidden),
        filters=format_filters_in_effect_in_query_syntax(request, run.query),
        is_gap=is_knowledge_gap(run, hits[0] if hits else None),
        short_refs=run.reader.map_references_to_short_forms(hit.ref for hit in hits),
    )


def make_match_notices(
    runs: Sequence[SearchRun], hits: Sequence[Hit], exact_hit_count: int | None
) -> list[Notice]:
    """Return the notices that say how well the hits match the words and the filters of the query.

    `runs` are the searches of all indexes that were searched together. `exact_hit_count` is the
    number of keyword hits, apart from those found by near spellings; None if there was no search by
    keywords.
    """
    notices = [] if exact_hit_count is None else _make_near_spelling_notices(runs, hits)
    if exact_hit_count or (exact_hit_count is None and hits):
        return notices
    if not notices and hits:
        notices = [Notice("meaning_only")]

    def count_matches_in_all_indexes(request: SearchRequest) -> int:
        # Each index has its own marked turns and its own project.
        wider = [
            SearchRun(
                run.workspace,
                run.reader,
                request._replace(
                    marked=run.given_request.marked, project_name=run.given_request.project_name
                ),
            )
            for run in runs
        ]
        return sum(
            # A search also finds, and counts, passages whose neighbours alone contain the words.
            max(
                run.keyword_search.count_matching_chunks(),
                len(run.keyword_search.rank_chunks(run.request.depth)),
            )
            for run in wider
            if not run.mistakes
        )

    excluding = find_excluding_filters(
        runs[0].query, runs[0].given_request, count_matches_in_all_indexes
    )
    return [*notices, excluding] if excluding else notices


def _make_near_spelling_notices(runs: Sequence[SearchRun], hits: Sequence[Hit]) -> list[Notice]:
    """Return a list with one notice, which lists the near spellings of query words found in the hits.

    Returns [] if the hits contain no near spellings.
    """
    words: dict[str, None] = {}
    spellings: dict[str, None] = {}
    count = 0
    for run in runs:
        search = run.keyword_search
        counted = run.statistics[False] if run.statistics else search.sides[0].searcher
        found: dict[str, dict[str, None]] = {}
        for token in {
            token: None
            for word in search.analyzed_words
            for token in word.tokens
            if token.corrected
        }:
            if not found:
                text = _join_matched_words_and_titles(hits)
                for stem, first, last in search.language.locate_stems(text):
                    found.setdefault(stem, {})[text[first:last].lower()] = None
            near = [
                min(found[one.stem], key=partial(measure_spelling_distance, token.plain))
                for one in token.corrected
                if one.stem in found
            ]
            if near:
                words[token.plain] = None
                spellings |= dict.fromkeys(near)
                count = max(count, count_passages_with_token(token, counted))
    if not words:
        return []
    return [Notice("near_spellings", {"words": [*words], "near": [*spellings], "total": count})]


def _join_matched_words_and_titles(hits: Sequence[Hit]) -> str:
    """Return the matched words of the hits, then their titles: one per line, without duplicates."""
    matched = (hit.text[first:last] for hit in hits for first, last in hit.matches)
    return "\n".join(dict.fromkeys((*matched, *(hit.title for hit in hits))))


class SearchRun:
    """A search of one index: its query, its rankings by keywords and by meaning, and the scores."""

    def __init__(self, workspace: Workspace, reader: IndexReader, request: SearchRequest) -> None:
        self.notices: list[Notice] = []
        self.given_request = request
        """The original request. In `request`, the filters from the query have been applied, too."""
        self.exact_hit_count: int | None = None
        """The number of keyword hits, apart from those found by near spellings; None before the search by keywords."""
        text = request.query
        if len(text) > MAX_QUERY_CHARACTERS:
            text = text[:MAX_QUERY_CHARACTERS]
            self.notices.append(Notice("query_cut", {"characters": MAX_QUERY_CHARACTERS}))
        self.query = parse_query(text, partial=request.partial)
        self.request, self.narrowing, self.mistakes = apply_query_filters(
            workspace, reader, self.query, request
        )
        self.notices += [mistake.as_notice for mistake in self.mistakes[:1]]
        self.notices += self.query.notices_about_filter_like_words
        self.workspace, self.reader = workspace, reader
        self.legs: dict[str, ChunkRanking] = {}
        self.coverage = 1.0
        self.pending: frozenset[int] = frozenset()
        self.scores: dict[int, float] = {}
        self.bonuses: dict[int, RankBonuses] = {}
        """The bonuses of the best chunks, by chunk number."""
        self.entries_by_id: dict[str, CatalogEntry] = {}
        self._chunks: dict[int, tuple[Chunk, str]] = {}
        self.has_further_hits = False
        """Whether there are more keyword hits, which were not ranked."""
        self.statistics: Mapping[bool, CombinedTermStatistics] | None = None
        """The statistics of the indexes that are searched together; see `KeywordSearch`."""
        self.requests: dict[str, UserRequestChunkPlace] = {}
        """The place of each hit on a request or on reasoning, by chunk id."""

    @cached_property
    def keyword_search(self) -> KeywordSearch:
        """The search by keywords. It also finds the words that are highlighted in hits."""
        from kbtui.search.keyword_search import KeywordSearch

        return KeywordSearch(self.reader, self.query, self.request, self.narrowing, self.statistics)

    @cached_property
    def visible_chunks(self) -> dict[int, tuple[str, str]]:
        """The chunk id and entry id of each ranked chunk that is visible, by chunk number, best first.

        Equal scores are sorted by chunk id. Because the vectors may be older than the catalog,
        chunks that were deleted or whose entries are now hidden or archived are left out.
        """
        found = self.reader.map_visible_chunks_to_chunk_and_entry_ids(
            self.scores, hidden=self.request.hidden, archived=self.request.archived
        )
        return self._sort_chunks_by_score(found)

    def _sort_chunks_by_score(
        self, chunks: dict[int, tuple[str, str]]
    ) -> dict[int, tuple[str, str]]:
        return dict(sorted(chunks.items(), key=lambda item: (-self.scores[item[0]], item[1])))

    def load_entry_and_chunk(self, number: int) -> tuple[CatalogEntry, Chunk] | None:
        """Return a visible chunk with its entry; None if the chunk has just been deleted.

        The next chunks of the ranking are loaded together with this chunk. Their entries, and the
        conversations to which the entries belong, are added to `entries_by_id`.
        """
        if number not in self._chunks:
            order = list(self.visible_chunks)
            at = order.index(number)
            chunks = self.reader.get_chunks_by_number(order[at : at + CHUNKS_LOADED_AT_ONCE])
            entries = self.reader.get_entries_by_id({entry_id for _, entry_id in chunks.values()})
            parents = {entry.parent for entry in entries.values() if entry.parent}
            self._chunks |= chunks
            self.entries_by_id |= entries | self.reader.get_entries_by_id(parents)
        chunk, entry_id = self._chunks.get(number, (None, ""))
        entry = self.entries_by_id.get(entry_id)
        return None if chunk is None or entry is None else (entry, chunk)

    def rank_by_keywords_and_meaning(self, semantic: SemanticSearchStarter | None) -> None:
        """Rank chunks by keywords, by meaning or both, as the request's mode requires.

        Sets `legs`, `scores` and `notices`.
        """
        request = self.request
        # The query is embedded while the keyword leg runs.
        begun = self._start_semantic_search(semantic)
        if request.mode != "semantic":
            self.legs["lexical"] = self.rank_chunks_by_keywords(request.depth)
        if begun is not None:
            self._finish_semantic_search(begun)
        if not self.legs:  # a semantic search without vectors
            self.legs["lexical"] = self.rank_chunks_by_keywords(request.depth)
        if "lexical" in self.legs:
            self.notices += self.make_notices_about_wordless_query(self.legs["lexical"])
        self.fuse_rankings()
        self._append_keyword_hits_beyond_depth()

    def _append_keyword_hits_beyond_depth(self) -> None:
        """Append more keyword hits if the request's limit is higher than the number of ranked hits.

        These hits keep the order of the keyword leg. They do not take part in the fusion: its scale
        depends on the depth of the legs, and the first hits must be the same for every limit.
        """
        self.has_further_hits = len(self.legs.get("lexical", ())) >= self.request.depth
        per_entry = self.request.per_entry or len(self.visible_chunks)
        counts = Counter(entry_id for _, entry_id in self.visible_chunks.values())
        ranked_hits = sum(min(count, per_entry) for count in counts.values())
        if not self.has_further_hits or self.request.limit <= ranked_hits:
            return
        lowest, ranks = min(self.scores.values()), self.fusion.ranks["lexical"]
        found = self.keyword_search.rank_chunks(MAX_FURTHER_PASSAGES)
        further = [row.number for row in found if row.number not in self.scores]
        for place, number in enumerate(further, 1):
            self.scores[number] = round(lowest - place / 10**SCORE_DIGITS, SCORE_DIGITS)
            ranks[number] = len(ranks) + 1
        del self.visible_chunks
        self.has_further_hits = False

    def make_notices_about_wordless_query(self, ranking: ChunkRanking) -> list[Notice]:
        """Return a notice about the keyword ranking of a query without words or phrases; [] for other queries."""
        if self.query.words or self.query.phrases:
            return []
        if self.keyword_search.sides[0].query is None:
            return [Notice("nothing_to_look_for")]
        return [Notice("newest_first")] if ranking else []

    def rank_chunks_by_keywords(self, limit: int) -> ChunkRanking:
        """Return the best chunks by keywords.

        If few chunks contain the words, chunks with near spellings follow.
        """
        from kbtui.search.keyword_search import append_near_spelling_chunks_to_ranking

        found = [(row.number, row.score) for row in self.keyword_search.rank_chunks(limit)]
        self.exact_hit_count = len(found)
        exact = self.keyword_search.select_chunks_with_query_words(found)
        if len(exact) >= FEW_KEYWORD_HITS:
            return found
        near = self.keyword_search.rank_chunks_with_near_spellings(limit)
        if not near:
            return found
        return append_near_spelling_chunks_to_ranking(
            exact, [(row.number, row.score) for row in near]
        )

    def fuse_rankings(self) -> None:
        """Set `scores` from the rankings by keywords and by meaning."""
        self.scores = self.fusion.fuse_ranking_scores()
        if self.fusion.has_two_rankings:
            passages = [
                PassageToRerank(number, self.scores[number], loaded[0].id, *loaded)
                for number in list(self.visible_chunks)[:RERANKED_PASSAGES]
                if (loaded := self.load_entry_and_chunk(number))
            ]
            self.bonuses = self.bonus_calculator.compute_bonuses(passages)
            for number, bonuses in self.bonuses.items():
                self.scores[number] = round(self.scores[number] + bonuses.total, SCORE_DIGITS)
            self.visible_chunks = self._sort_chunks_by_score(self.visible_chunks)

    @cached_property
    def fusion(self) -> HybridScoreFusion:
        """The object that computes how much each ranking adds to the score of a chunk."""
        return HybridScoreFusion(
            self.legs,
            depth=self.request.depth,
            coverage=self.coverage,
            pending=self.pending,
        )

    @property
    def asks_for_tool_calls(self) -> bool:
        """Whether a filter selects tool calls. By default, tool calls and their results have no vectors."""
        return bool(self.request.tools or self.narrowing.args)

    @cached_property
    def bonus_calculator(self) -> RankBonusCalculator:
        """The object that computes the bonuses of the best chunks."""
        side = self.keyword_search.sides[0]
        counted = self.statistics[False] if self.statistics else side.searcher
        total = counted.num_docs
        stems = {token.stem for word in side.words for token in word.tokens}
        rarities = {stem: compute_rarity(counted.doc_freq("body", stem), total) for stem in stems}
        return RankBonusCalculator(side.words, rarities, self.keyword_search.language)

    def _start_semantic_search(
        self, semantic: SemanticSearchStarter | None
    ) -> SemanticRanker | None:
        if self.request.mode == "lexical" or semantic is None or not self.query.spoken:
            return None
        if self.asks_for_tool_calls:
            return lambda request, generation: SemanticRanking([])
        return semantic(self.query.spoken)

    def _finish_semantic_search(self, begun: SemanticRanker) -> None:
        worded = tuple(number for number, _ in self.legs.get("lexical", ()))
        found = begun(self.request._replace(worded=worded), self.reader.index_generation_name)
        ranked = found.ranked
        if found.notice:
            self.notices.insert(0, found.notice)
        if ranked is not None:
            self.coverage, self.pending = found.coverage, found.pending
            self.legs["semantic"] = self.filter_semantic_ranking(ranked)

    def filter_semantic_ranking(self, ranked: ChunkRanking) -> ChunkRanking:
        """Return a ranking by meaning without the chunks that lack a phrase of the query or that the query excludes."""
        narrowing = self.narrowing
        exclusions = (self.query.excluded, narrowing.without, narrowing.without_turns)
        if not (self.query.phrases or any(exclusions)):
            return ranked
        chunks = self.reader.get_chunks_by_number([number for number, _ in ranked])
        entries = self.reader.get_entries_by_id({entry_id for _, entry_id in chunks.values()})
        kept = []
        for number, score in ranked:
            chunk, entry_id = chunks.get(number, (None, ""))
            entry = entries.get(entry_id)
            if chunk is None or entry is None or not self.narrowing.allows_chunk(entry, chunk):
                continue
            contains = self.keyword_search.make_phrase_matcher(f"{chunk.text}\n{entry.title}")
            if all(map(contains, self.query.phrases)) and not any(
                map(contains, self.query.excluded)
            ):
                kept.append((number, score))
        return kept

    @cached_property
    def _freshness_checker(self) -> HitFreshnessChecker:
        return HitFreshnessChecker(self.workspace, self.reader)

    @cached_property
    def _match_finder(self) -> QueryMatchFinder:
        search = self.keyword_search
        return QueryMatchFinder(search.analyzed_words, self.query.phrases, search.language)

    def make_hit(self, number: int) -> Hit | None:
        """Return the hit of a chunk, without score and ranks; None if its text no longer exists."""
        loaded = self.load_entry_and_chunk(number)
        if loaded is None:
            return None
        entry, chunk = loaded
        state = self._freshness_checker.check_hit_freshness_and_find_lines(entry, chunk)
        if state is None:
            return None
        if chunk.role in ROLES_BEFORE_ANSWERS and chunk.turn is not None:
            self.requests[chunk.id] = UserRequestChunkPlace(entry.id, chunk.turn, chunk.ordinal)
        freshness, lines = state
        parent = self.entries_by_id.get(entry.parent or "")
        return Hit(
            ref=str(entry.make_chunk_ref(chunk._replace(lines=lines))),
            kind=entry.kind,
            entry_id=entry.id,
            chunk_id=chunk.id,
            title=entry.title,
            text=chunk.text,
            score=0.0,
            matches=self._match_finder.find_matches(chunk.text),
            topic=entry.topic,
            slug=entry.slug,
            lines=lines,
            conversation_id=entry.id if entry.kind == "conversation" else None,
            turn=chunk.turn,
            role=chunk.role,
            timestamp=datetime.fromtimestamp(chunk.timestamp, UTC) if chunk.timestamp else None,
            agent=entry.agent,
            parent_id=entry.parent,
            parent_title=parent.title if parent else None,
            rewound=chunk.turn in entry.rewound,
            freshness=freshness,
        )


class HitAndOmissionCounts(NamedTuple):
    """The number of hits that a search without a limit would return, and two counts of passages left out.

    `omitted` counts the passages whose text no longer exists, `left_out` those beyond the limit per
    entry.
    """

    total: int
    omitted: int
    left_out: int


def _make_hits_of_run_up_to_limit(run: SearchRun) -> tuple[list[Hit], HitAndOmissionCounts]:
    """Return the best hits up to the requested limit, and the counts of hits and of passages left out."""
    entries = {number: entry_id for number, (_, entry_id) in run.visible_chunks.items()}
    hits, counts = make_hits_up_to_limit(
        entries, run.scores, run.fusion.ranks, run.request, run.make_hit
    )
    return add_answers_later_turns_and_outdated_subjects_to_hits(
        run, hits, run.fusion.measure_chunk_match
    ), counts


Entry = TypeVar("Entry")


def make_hits_up_to_limit(
    passages: Mapping[int, Entry],
    scores: Mapping[int, float],
    ranks: Mapping[str, Mapping[int, int]],
    request: SearchRequest,
    make_hit: Callable[[int], Hit | None],
) -> tuple[list[Hit], HitAndOmissionCounts]:
    """Return the hits of the best passages, and the counts of hits and of passages left out.

    `passages` maps each passage, best first, to a key of its entry. `make_hit` returns None for a
    passage whose text no longer exists.
    """
    limit = max(1, min(MAX_HITS, request.limit))
    found: list[tuple[Entry, Hit]] = []
    total = omitted = left_out = 0
    in_entry = Counter(passages.values())
    taken: Counter[Entry] = Counter()
    for passage, entry in passages.items():
        if 0 < request.per_entry <= taken[entry]:
            left_out += 1
            continue
        if len(found) < limit:
            hit = make_hit(passage)
            if hit is None:
                omitted += 1
                in_entry[entry] -= 1
                continue
            legs = {name: ranks.get(name, {}).get(passage) for name in ("lexical", "semantic")}
            found.append((entry, hit._replace(score=scores[passage], legs=legs)))
        taken[entry] += 1
        total += 1
    hits = [hit._replace(entry_passages=in_entry[entry]) for entry, hit in found]
    return hits, HitAndOmissionCounts(total, omitted, left_out)


def add_answers_later_turns_and_outdated_subjects_to_hits(
    run: SearchRun, hits: list[Hit], measure_chunk_match: Callable[[int], float]
) -> list[Hit]:
    """Add to the hits the answers to requests, later turns about the same matter, and outdated subjects.

    `measure_chunk_match` returns how well a chunk matches the query.
    """
    hits = _add_answers_to_hits(run, hits)
    hits = _add_later_matching_turns_to_hits(run, hits, measure_chunk_match)
    return _add_outdated_subjects_to_hits(run, hits)


ROLES_BEFORE_ANSWERS = ("user", "reasoning")
"""A hit on a passage with one of these roles (a request, or reasoning about it) includes the final answer to the request."""
ANSWER_CHARACTERS = 600
"""A hit on a request or on reasoning contains at most this many characters of the final answer."""
LATER_MATCH_SHARE = 0.5
"""A later turn counts as being about the same matter if its match is at least this share of the hit's match."""


def _add_answers_to_hits(run: SearchRun, hits: list[Hit]) -> list[Hit]:
    """Add the beginning of the final answer to each hit on a request or on reasoning; return all hits."""
    if not run.requests:
        return hits
    found = run.reader.map_requests_to_beginnings_of_final_answers(
        {*run.requests.values()}, ANSWER_CHARACTERS
    )
    cut = {place: _cut_at_word(text, ANSWER_CHARACTERS) for place, text in found.items()}
    return [
        hit._replace(answer=cut.get(place)) if (place := run.requests.get(hit.chunk_id)) else hit
        for hit in hits
    ]


def _cut_at_word(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    kept = text[: length - 2].rsplit(maxsplit=1)[0] if " " in text[:length] else text[: length - 2]
    return f"{kept} …"


def _add_later_matching_turns_to_hits(
    run: SearchRun, hits: list[Hit], measure_chunk_match: Callable[[int], float]
) -> list[Hit]:
    """Add to each hit in a turn the last later turn that matches the query well; return all hits."""
    entry_ids = {hit.entry_id for hit in hits if hit.turn}
    if not entry_ids:
        return hits
    numbers = {
        chunk_id: number
        for number, (chunk_id, entry_id) in run.visible_chunks.items()
        if entry_id in entry_ids
    }
    turns: dict[str, list[tuple[int, float]]] = {}
    spoken = run.reader.map_dialogue_chunks_to_turns(list(numbers.values()))
    for number, (entry_id, turn) in spoken.items():
        turns.setdefault(entry_id, []).append((turn, measure_chunk_match(number)))

    def find_later_turn(hit: Hit) -> int | None:
        least = LATER_MATCH_SHARE * measure_chunk_match(numbers[hit.chunk_id])
        later = (
            turn
            for turn, match in turns.get(hit.entry_id, ())
            if turn > (hit.turn or 0) and match >= least
        )
        return max(later, default=None) if least > 0 else None

    return [hit._replace(later_turn=find_later_turn(hit)) if hit.turn else hit for hit in hits]


def _add_outdated_subjects_to_hits(run: SearchRun, hits: list[Hit]) -> list[Hit]:
    """Add to each hit in a turn the subjects that the turn used and that have changed since.

    Returns all hits.
    """
    turns = {(hit.entry_id, hit.turn) for hit in hits if hit.conversation_id and hit.turn}
    rows = run.reader.find_subject_citations_in_turns(turns)
    if not rows:
        return hits
    outdated = find_turns_with_outdated_citations(
        run.workspace, run.reader, rows, hidden=run.request.hidden
    )
    found = {(one.conversation, one.turn): one.subjects for one in outdated}
    return [
        hit._replace(outdated_subjects=found.get((hit.entry_id, hit.turn or 0), ())) for hit in hits
    ]


# These values were measured: docs/search-quality.md.
LEG_WEIGHTS = {"lexical": 0.45, "semantic": 0.5}
"""The weight of each leg in the fused score."""


class RankingScoreScale:
    """Scales the scores of a leg, so that the scores of both legs can be added.

    A leg is the ranking by keywords or by meaning. A scaled score says how far a score is above the
    leg's lowest score. The unit is the standard deviation of the leg's first `depth` scores. Ranks are
    not used, because they do not show how much better the first hits are than the others.

    If a leg has fewer than `depth` hits, these are all its matches. In the ranking by keywords, all
    other passages then have the score 0, which is the lowest score, and zeros fill up the first `depth`
    scores. If a leg has at least `depth` hits, there may be further matches. A passage that is not among
    the hits then gets the score of the hit at `depth`, and the lowest score of the ranking by keywords is
    that of its last hit. In the ranking by meaning, the lowest score is always the lowest of the first
    `depth` scores.
    """

    def __init__(self, ranked: ChunkRanking, *, depth: int, is_lexical: bool) -> None:
        self._scores = dict(ranked)
        first = [score for _, score in ranked[:depth]]
        is_full = len(first) == depth
        if is_lexical:
            self._last = min(self._scores.values(), default=0.0) if is_full else 0.0
        else:
            # The chunks after `depth` belong to further entries. Their similarities would stretch the scale.
            self._last = first[-1] if first else 0.0
        missing = depth - len(first) if is_lexical else 0
        first += [self._last] * missing
        mean = sum(first) / max(1, len(first))
        variance = sum((score - mean) ** 2 for score in first) / max(1, len(first))
        self._deviation = math.sqrt(variance)
        self._absent = first[-1] if is_full else self._last

    def scale_score(self, number: int) -> float:
        """Return the scaled score of a chunk, 0 or more."""
        if self._deviation <= SCORE_TOLERANCE:
            return 0.0  # all scores are equal
        score = self._scores.get(number, self._absent) - self._last
        return max(0.0, score) / self._deviation


class HybridScoreFusion:
    """Adds up each chunk's scaled scores from the two legs: the rankings by keywords and by meaning."""

    def __init__(
        self,
        legs: Mapping[str, ChunkRanking],
        *,
        depth: int = LEG_DEPTH,
        coverage: float = 1.0,
        pending: Collection[int] = (),
    ) -> None:
        """Create the fusion. `legs` maps the name of each leg to its ranking.

        `coverage` is the fraction of chunks that have a vector, and `pending` are the keyword hits
        without one.
        """
        self._coverage, self._pending = coverage, pending
        self.ranks = {
            name: {number: at for at, (number, _) in enumerate(ranked, 1)}
            for name, ranked in legs.items()
        }
        self.has_two_rankings = sum(1 for ranked in legs.values() if ranked) > 1
        """Whether both legs have hits. If only one leg has hits, they keep the order of that leg."""
        self._scales = {
            name: RankingScoreScale(ranked, depth=depth, is_lexical=name == "lexical")
            for name, ranked in legs.items()
        }

    def score_chunk_in_ranking(self, leg: str, number: int) -> float:
        """Return the score that a leg ("lexical" or "semantic") adds to a chunk.

        If only one leg has hits, this score is 1 / rank. While some chunks have no vectors, the
        semantic leg has less weight. A keyword hit without a vector gets its keyword score in the
        semantic leg, too, so that chunks with a vector have no advantage.
        """
        if not self.has_two_rankings:
            rank = self.ranks[leg].get(number)
            return 1.0 / rank if rank else 0.0
        weight = LEG_WEIGHTS[leg] * (self._coverage if leg == "semantic" else 1.0)
        if leg == "semantic" and number in self._pending:
            leg = "lexical"
        return weight * self._scales[leg].scale_score(number)

    def measure_chunk_match(self, number: int) -> float:
        """Return how well a chunk matches: the sum of its scaled scores; 0 if all scores are equal."""
        return sum(
            self._scales[name].scale_score(number) for name, own in self.ranks.items() if own
        )

    def fuse_ranking_scores(self) -> dict[int, float]:
        """Map the number of each ranked chunk to the chunk's fused score."""
        if len(self.ranks) == 1:
            (ranks,) = self.ranks.values()
            return {number: round(1.0 / rank, SCORE_DIGITS) for number, rank in ranks.items()}
        return {
            number: round(
                sum(self.score_chunk_in_ranking(name, number) for name in self.ranks), SCORE_DIGITS
            )
            for number in {number for ranks in self.ranks.values() for number in ranks}
        }


def format_filters_in_effect_in_query_syntax(request: SearchRequest, query: ParsedQuery) -> str:
    """Return all filters of a search, from its query and from its options, as text in query syntax."""
    found = []
    fields = {
        row.key: getattr(request, row.search, None)
        for row in list_filters_accepted_by_input_field("search")
    }
    for key, value in fields.items():
        if isinstance(value, datetime):
            found.append(f"{key}:{value.isoformat()}")
        elif value and not (key == "in" and len(value) > 1):
            found.append(f"{key}:{','.join(map(quote_filter_value, value))}")
    found += [
        query.text[part.start : part.end]
        for part in query.filters
        if part.excluded or fields.get(part.key) is None
    ]
    found += [f"-{quote_filter_value(text)}" for text in query.excluded]
    return " ".join(found)


RARE_SHARE = 0.05
"""A word is rare if at most this share of the passages contain it."""
# This value was measured: docs/search-quality.md.
MIN_SIMILARITY = 0.4
"""If the best hit contains no rare word of the query, and is less similar to the query than this, the query is a gap."""


def is_knowledge_gap(run: SearchRun, best: Hit | None) -> bool:
    """Return whether the workspace seems to have nothing about a query; insights list such queries.

    Nearly every query has hits: semantic search returns the nearest passages, however distant, and
    keyword search returns passages that contain common words. A query is therefore a gap unless its
    best hit contains a rare word of the query or is similar to the query.
    """
    if best is None:
        return True
    rare = _find_rare_query_words(run)
    text = f"{best.title}\n{best.text}"
    if not rare or QueryMatchFinder(rare, (), run.keyword_search.language).find_matches(text):
        return False
    number = next(n for n, (id_, _) in run.visible_chunks.items() if id_ == best.chunk_id)
    return dict(run.legs.get("semantic", ())).get(number, 0.0) < MIN_SIMILARITY


def _find_rare_query_words(run: SearchRun) -> list[QueryWord]:
    """Return the rare words of a query; if no word is rare, return all words except function words.

    Returns an empty list for a query with a phrase, because every hit of such a query contains the
    phrase.
    """
    if run.query.phrases:
        return []
    # The index of hidden subjects is too small to tell which words are rare.
    side = run.keyword_search.sides[0]
    words = [
        word for word in side.words if not word.tokens or list_tokens_except_function_words(word)
    ]
    most = max(1, RARE_SHARE * side.searcher.num_docs)

    def is_rare(word: QueryWord) -> bool:
        tokens = list_tokens_except_function_words(word)
        counts = (count_passages_with_token(token, side.searcher) for token in tokens)
        return bool(min(counts, default=0) <= most)

    return [word for word in words if is_rare(word)] or words


class _LocatedFilter(NamedTuple):
    """A filter as users write it, and its location: its offsets in the query, or its field in the request."""

    text: str
    span: tuple[int, int] | None
    field: str | None


def find_excluding_filters(
    query: ParsedQuery, request: SearchRequest, count_matches: Callable[[SearchRequest], int]
) -> Notice | None:
    """Return a notice that names the filters that leave a query without hits.

    If removing a single filter gives hits, only this filter is named. Returns None if the search has
    no filters, or if it finds nothing even without them. `request` is the original request, and
    `count_matches` counts the keyword matches of a request.
    """
    filters = _list_filters_in_effect(query, request)
    for one in filters:
        if count := count_matches(_remove_filters(query, request, [one])):
            return _make_excluding_filters_notice([one], count)
    if len(filters) > 1 and (count := count_matches(_remove_filters(query, request, filters))):
        return _make_excluding_filters_notice(filters, count)
    return None


def _make_excluding_filters_notice(filters: Iterable[_LocatedFilter], count: int) -> Notice:
    return Notice(
        "filters_leave_nothing", {"filters": [one.text for one in filters], "total": count}
    )


def _list_filters_in_effect(query: ParsedQuery, request: SearchRequest) -> list[_LocatedFilter]:
    found = [
        _LocatedFilter(query.text[part.start : part.end], (part.start, part.end), None)
        for part in query.filters
    ]
    defaults = SearchRequest._field_defaults
    for row in list_filters_accepted_by_input_field("search"):
        value = getattr(request, row.search, None)
        if value in (None, (), defaults.get(row.search)):
            continue
        values = value if isinstance(value, tuple) else (value.date().isoformat(),)
        shown = ",".join(quote_filter_value(one) for one in values)
        found.append(_LocatedFilter(f"{row.key}:{shown}", None, row.search))
    return found


def _remove_filters(
    query: ParsedQuery, request: SearchRequest, filters: Sequence[_LocatedFilter]
) -> SearchRequest:
    changed: dict[str, Any] = {
        one.field: SearchRequest._field_defaults[one.field] for one in filters if one.field
    }
    text = query.text
    for start, end in sorted((one.span for one in filters if one.span), reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return request._replace(**changed, query=text)


def find_entries_of_filter(
    workspace: Workspace, reader: IndexReader, request: SearchRequest
) -> EntriesMatchingFilter:
    """Return the entries that have a passage selected by the filters in `request`."""
    run = SearchRun(workspace, reader, request)
    if run.mistakes:
        return EntriesMatchingFilter(mistakes=tuple(run.mistakes))
    chunks = reader.map_visible_chunks_to_chunk_and_entry_ids(
        run.keyword_search.list_one_chunk_per_entry(),
        hidden=request.hidden,
        archived=request.archived,
    )
    return EntriesMatchingFilter(frozenset(entry_id for _, entry_id in chunks.values()))
