"""Explains the rank of a hit, or why a subject, turn or passage is not a hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.index.entry_and_chunk_data_types import (
    compute_passage_place_number,
    compute_place_number_of_first_passage_in_entry,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import Notice
from kbtui.search.outdated_hits_and_turns import HitFreshnessChecker
from kbtui.search.rule_based_passage_reranker import RankBonuses
from kbtui.search.search_pipeline import SearchRun, run_search_and_build_answer
from kbtui.search.search_request_and_answer import (
    SCORE_DIGITS,
    ChunkRankAndScoreInOneRanking,
    QueryTermScore,
    RankExplanation,
    WeightedEmbeddingTexts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
    from kbtui.index.index_reader import IndexReader
    from kbtui.notices import NoticeValues
    from kbtui.references import Ref
    from kbtui.search.keyword_search import ChunkRanking, TermScores
    from kbtui.search.nearby_passage_scoring import WeightedQueryStem
    from kbtui.search.search_pipeline import SemanticSearchStarter
    from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest
    from kbtui.workspace import Workspace


DEEP_RANKS = 1000
"""To find the rank of a chunk that is not a hit, this many chunks are ranked by meaning, and ten times as many by keywords."""


class _TermScoresOfExplainedChunks(NamedTuple):
    """The scores of the query's terms in one keyword index.

    * `chunks` are the chunks being explained that this index contains.
    * `own` contains the score of each term in each of `chunks`.
    * `around` maps the place of each chunk to the scores of `around_terms` in the text around the
      chunk.
    """

    chunks: set[int]
    own: list[TermScores]
    around_terms: list[WeightedQueryStem]
    around: dict[int, list[float]]


class SearchExplainer:
    """Runs a search and explains its answer."""

    def __init__(
        self,
        workspace: Workspace,
        reader: IndexReader,
        request: SearchRequest,
        semantic: SemanticSearchStarter | None = None,
    ) -> None:
        self._workspace, self._reader, self._semantic = workspace, reader, semantic
        self._run = SearchRun(workspace, reader, request)
        self.answer: SearchAnswer = run_search_and_build_answer(self._run, semantic)
        order = enumerate(self._run.visible_chunks, 1)
        self._ranks = {number: rank for rank, number in order}
        self._leg_ranks = {
            leg: {number: (rank, score) for rank, (number, score) in enumerate(ranked, 1)}
            for leg, ranked in self._run.legs.items()
        }
        self._deep: dict[str, dict[int, tuple[int, float]]] = {}
        self._term_scores: list[_TermScoresOfExplainedChunks] = []
        self._places: dict[int, int] = {}
        self._hit_ids = {hit.chunk_id for hit in self.answer.hits}

    def explain_hits(self) -> list[RankExplanation]:
        """Explain each hit of the answer, in the order of the hits."""
        numbers = {chunk_id: number for number, (chunk_id, _) in self._run.visible_chunks.items()}
        shown = [numbers[hit.chunk_id] for hit in self.answer.hits]
        explained = [
            (loaded, hit.ref)
            for number, hit in zip(shown, self.answer.hits, strict=True)
            if (loaded := self._run.load_entry_and_chunk(number))
        ]
        self._store_term_scores([loaded for loaded, _ in explained])
        return [self._explain_chunk_rank(*loaded, ref) for loaded, ref in explained]

    def explain_missing_hit(self, ref: Ref) -> RankExplanation:
        """Explain why a subject, turn or chunk is not a hit.

        If the reference covers several chunks, only the one with the best rank is explained.
        """
        entry, chunks = find_passages_of_reference(self._reader, ref)
        if entry is None:
            reason = explain_entry_missing_from_index(self._workspace, ref)
            return RankExplanation(str(ref), "", None, kept_out=[reason])
        if not chunks:
            reason = _make_entry_error_notice(entry.error) if entry.error else Notice("no_text")
            return RankExplanation(str(ref), entry.title, None, kept_out=[reason])
        self._store_term_scores([(entry, chunk) for chunk in chunks])
        explained = [self._explain_chunk_rank(entry, chunk, str(ref)) for chunk in chunks]
        return min(explained, key=_make_hits_first_sort_key_of_explanation)

    def _store_term_scores(self, explained: Sequence[tuple[CatalogEntry, Chunk]]) -> None:
        """Store the score that each term of the query adds to each explained chunk."""
        self._places = {
            chunk.number: compute_passage_place_number(
                compute_place_number_of_first_passage_in_entry(entry.id), chunk.ordinal
            )
            for entry, chunk in explained
        }
        self._term_scores = [
            _TermScoresOfExplainedChunks(
                side.select_chunk_numbers_found_in_index(self._places),
                side.score_terms(self._places),
                side.surroundings.terms,
                # The text around passages that are not near the best ones does not count.
                side.surroundings.score_terms_in_text_around_passages(
                    side.places_with_surroundings.intersection(self._places.values())
                ),
            )
            for side in self._run.keyword_search.sides
        ]

    def _explain_chunk_rank(self, entry: CatalogEntry, chunk: Chunk, ref: str) -> RankExplanation:
        run = self._run
        number = chunk.number
        matches, missing = self._match_query_terms(chunk)
        bonuses = run.bonuses.get(number, RankBonuses())
        explained = RankExplanation(
            ref=ref,
            title=entry.title,
            chunk_id=chunk.id,
            rank=self._ranks.get(number),
            score=run.scores.get(number, 0.0),
            lexical=self._find_chunk_rank_in_ranking(
                "lexical", number, Notice("words_but_excluded" if matches else "no_words")
            ),
            semantic=self._find_chunk_rank_in_ranking(
                "semantic", number, self._explain_missing_semantic_rank(chunk)
            ),
            title_gives=bonuses.title,
            length_gives=bonuses.length,
            words_gives=bonuses.words,
            reply_gives=bonuses.reply,
            conversation_gives=bonuses.conversation,
            role_gives=bonuses.role,
            place_gives=bonuses.place,
            matches=matches,
            missing=missing,
            embedded=self._describe_embedded_texts(entry, chunk),
        )
        if chunk.id in self._hit_ids:
            return explained
        reasons = list_reasons_for_exclusion(self._workspace, self._reader, run, entry, chunk)
        if not reasons:
            reasons = self._explain_cut_by_limits(explained, entry)
        return explained._replace(kept_out=reasons)

    # the legs

    def _find_chunk_rank_in_ranking(
        self, leg: str, number: int, absent: Notice
    ) -> ChunkRankAndScoreInOneRanking:
        run = self._run
        if leg not in run.legs:
            return ChunkRankAndScoreInOneRanking(reason=Notice("leg_not_asked"))
        ranks = self._leg_ranks[leg]
        part = round(run.fusion.score_chunk_in_ranking(leg, number), SCORE_DIGITS)
        if number not in ranks:
            ranks = self._rank_many_chunks_again(leg)
        if number not in ranks:
            return ChunkRankAndScoreInOneRanking(gives=part, reason=absent)
        rank, score = ranks[number]
        return ChunkRankAndScoreInOneRanking(rank, round(score, 6), part)

    def _rank_many_chunks_again(self, leg: str) -> dict[int, tuple[int, float]]:
        """Rank more chunks than a search does; map the number of each chunk to its rank and score.

        `leg` is "lexical" for a ranking by keywords, or "semantic" for a ranking by meaning.
        """
        if leg not in self._deep:
            ranked: ChunkRanking | None = []
            if leg == "lexical":
                ranked = self._run.rank_chunks_by_keywords(DEEP_RANKS * 10)
            elif self._semantic is not None and self._run.legs.get(leg):
                request = self._run.request._replace(depth=DEEP_RANKS)
                begun = self._semantic(self._run.query.spoken)
                ranked = begun(request, self._reader.index_generation_name).ranked
            self._deep[leg] = {
                number: (at, score) for at, (number, score) in enumerate(ranked or [], 1)
            }
        return self._deep[leg]

    def _explain_missing_semantic_rank(self, chunk: Chunk) -> Notice:
        if not chunk.embed:
            return Notice("never_embedded")
        if chunk.number in self._run.pending:
            return Notice("not_embedded_yet")
        return Notice("not_ranked", {"limit": DEEP_RANKS})

    def _explain_cut_by_limits(
        self, explained: RankExplanation, entry: CatalogEntry
    ) -> list[Notice]:
        """Return the notices that say why a chunk's rank is too low.

        Call this only if nothing else excludes the chunk.
        """
        run = self._run
        others = [number for number in self._ranks if run.visible_chunks[number][1] == entry.id]
        most = run.request.per_entry
        if 0 < most <= len(others) and explained.chunk_id not in {
            run.visible_chunks[number][0] for number in others[:most]
        }:
            return [Notice("below_best_passages", {"limit": most})]
        if explained.rank is not None:
            shown = len(self.answer.hits)
            return [Notice("below_limit", {"rank": explained.rank, "limit": shown})]
        reasons = []
        for name, leg in (("lexical", explained.lexical), ("semantic", explained.semantic)):
            if leg.rank is not None:
                values: NoticeValues = {"leg": name, "rank": leg.rank, "limit": run.request.depth}
                reasons.append(Notice("below_depth", values))
            elif leg.reason is not None and leg.reason.code != "leg_not_asked":
                reasons.append(leg.reason._replace(values={**leg.reason.values, "leg": name}))
        return reasons

    # the terms

    def _match_query_terms(self, chunk: Chunk) -> tuple[list[QueryTermScore], list[str]]:
        """Return the query's terms that match a chunk or the passages around it, best first.

        Also returns the query's words that match nothing.
        """
        found: list[QueryTermScore] = []
        words: dict[str, bool] = {}
        for side in self._term_scores:
            if chunk.number not in side.chunks:
                continue
            scores = [
                (part.word, part.field, part.term, part.weight, of.get(chunk.number, 0.0))
                for part, of in side.own
            ]
            around = side.around.get(self._places[chunk.number], ())
            scores += [
                (term.word, "around", term.stem, term.weight, score)
                for term, score in zip(side.around_terms, around, strict=False)
            ]
            for word, field, stem, weight, score in scores:
                words[word] = words.get(word, False) or score > 0
                if score > 0:
                    found.append(QueryTermScore(word, field, stem, weight, round(score, 4)))
        found.sort(key=lambda match: (-match.score, match.word, match.field))
        return found, [word for word, matched in words.items() if not matched]

    def _describe_embedded_texts(
        self, entry: CatalogEntry, chunk: Chunk
    ) -> WeightedEmbeddingTexts | None:
        is_compared = "semantic" in self._run.legs and chunk.number not in self._run.pending
        if not chunk.embed or not is_compared:
            return None
        from kbtui.index.chunk_embedder import NEIGHBOUR_WEIGHTS, TITLE_WEIGHT
        from kbtui.index.indexable_entry_reader import (
            NEIGHBOURS,
            find_neighbours_embedded_with_chunk,
        )

        first, end = max(0, chunk.ordinal - NEIGHBOURS), chunk.ordinal + NEIGHBOURS + 1
        chunks = self._reader.list_entry_chunks(entry.id, first, end)
        position = next((at for at, other in enumerate(chunks) if other.id == chunk.id), None)
        around = (
            find_neighbours_embedded_with_chunk(chunks, position) if position is not None else []
        )
        return WeightedEmbeddingTexts(
            chunk.text,
            entry.title,
            TITLE_WEIGHT,
            [other.text for other in around],
            NEIGHBOUR_WEIGHTS[entry.kind],
        )


def find_passages_of_reference(
    reader: IndexReader, ref: Ref
) -> tuple[CatalogEntry | None, list[Chunk]]:
    """Return the indexed entry of a reference, or None, and the chunks that the reference covers."""
    from kbtui.index.entry_and_chunk_data_types import make_subject_id

    if ref.kind == "chunk":
        found = reader.get_chunk_by_id(ref.chunk or "")
        return (
            (reader.get_entries_by_id({found[1]}).get(found[1]), [found[0]])
            if found
            else (None, [])
        )
    if ref.kind == "conversation":
        entry_id = ref.conversation or ""
    else:
        entry_id = make_subject_id(ref.topic or "", ref.slug or "")
    chunks = reader.list_entry_chunks(entry_id)
    if ref.turn is not None:
        chunks = [chunk for chunk in chunks if chunk.turn == ref.turn]
    if ref.call is not None:
        chunks = [chunk for chunk in chunks if chunk.call == ref.call]
    if ref.lines is not None:
        first, last = ref.lines
        chunks = [c for c in chunks if c.lines and c.lines[0] <= last and c.lines[1] >= first]
    return reader.get_entries_by_id({entry_id}).get(entry_id), chunks


def _make_hits_first_sort_key_of_explanation(
    explained: RankExplanation,
) -> tuple[bool, int, int, float]:
    """Return a sort key: hits come first, then the other chunks by their ranks."""
    lexical, semantic = explained.lexical.rank, explained.semantic.rank
    ranks = [rank for rank in (lexical, semantic) if rank is not None]
    return (
        bool(explained.kept_out),
        explained.rank or 1_000_000,
        min(ranks, default=1_000_000),
        -sum(match.score for match in explained.matches),
    )


def _make_entry_error_notice(detail: str) -> Notice:
    return Notice("entry_error", {"detail": detail})


def explain_entry_missing_from_index(workspace: Workspace, ref: Ref) -> Notice:
    """Explain why the index has no entry for a reference."""
    from kbtui.errors import NothingFound
    from kbtui.knowledge import load_knowledge

    if ref.kind == "chunk":
        return Notice("passage_gone")
    if ref.kind == "conversation":
        from kbtui.conversations.conversation_repository import find_conversation

        try:
            problem = find_conversation(workspace, ref.conversation or "").problem
        except NothingFound as error:
            return _make_entry_error_notice(error.message)
        return _make_entry_error_notice(problem) if problem else Notice("not_indexed_yet")
    knowledge = load_knowledge(workspace)
    topic = knowledge.topics.get(ref.topic or "")
    if topic is None:
        return Notice("unknown_topic", {"topic": ref.topic or ""})
    if not topic.enable:
        return Notice("topic_disabled", {"topic": topic.id})
    if ref.slug is None:
        return Notice("topic_has_no_text")
    subject = knowledge.find_subject(topic.id, ref.slug)
    if subject is None:
        return Notice("unknown_subject", {"topic": topic.id, "slug": ref.slug})
    if subject.disabled:
        return Notice("subject_disabled")
    return Notice("not_indexed_yet")


def list_reasons_for_exclusion(
    workspace: Workspace, reader: IndexReader, run: SearchRun, entry: CatalogEntry, chunk: Chunk
) -> list[Notice]:
    """Return the reasons why a chunk cannot be a hit, whatever its rank is."""
    if run.mistakes:
        return [Notice("query_invalid", {"detail": str(run.mistakes[0])})]
    found = list(_explain_failed_filters(run.request, entry, chunk))
    if not run.narrowing.allows_chunk(entry, chunk):
        found.append(Notice("filter_excludes"))
    says = run.keyword_search.make_phrase_matcher(f"{chunk.text}\n{entry.title}")
    found += [
        Notice("missing_phrase", {"word": text}) for text in run.query.phrases if not says(text)
    ]
    found += [Notice("excluded_word", {"word": text}) for text in run.query.excluded if says(text)]
    if (
        not found
        and HitFreshnessChecker(workspace, reader).check_hit_freshness_and_find_lines(entry, chunk)
        is None
    ):
        found.append(Notice("text_changed"))
    return found


def _explain_failed_filters(
    request: SearchRequest, entry: CatalogEntry, chunk: Chunk
) -> list[Notice]:
    found = []
    if entry.hidden and not request.hidden:
        found.append(Notice("hidden"))
    if entry.archived and not request.archived:
        found.append(Notice("archived"))
    if request.exclude is not None and entry.conversation == request.exclude:
        found.append(Notice("current_conversation"))
    for name, value, wanted in (
        ("kind", entry.kind, request.kinds),
        ("topic", entry.topic, request.topics),
        ("type", entry.type or entry.kind, request.types),
        ("role", chunk.role, request.roles),
        ("tool", chunk.tool, request.tools),
        ("agent", entry.agent, request.agents),
    ):
        if wanted and value not in wanted:
            values: NoticeValues = {"field": name, "value": value, "wanted": list(wanted)}
            found.append(Notice("field_differs", values))
    if request.entries and entry.id not in request.entries:
        found.append(Notice("title_differs"))
    time = chunk.timestamp or entry.changed
    if request.since and time < request.since.timestamp():
        found.append(Notice("too_old"))
    if request.until and time >= request.until.timestamp():
        found.append(Notice("too_new"))
    return found
