"""Searches the indexes of all projects of the user as if they were one index.

The rules of each workspace still apply: a subject that the workspace hides or disables is not
found. The keyword rankings of all indexes are merged into one, and so are the rankings by meaning.
Only then are the two merged rankings fused, so each hit has the same rank as in a single index. A
passage that is in several workspaces has the same chunk id in all of them. It becomes a single hit, from
the first of these workspaces.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kbtui.index.entry_and_chunk_data_types import (
    SCORE_TOLERANCE,
    RankedChunk,
    select_best_chunks_and_best_of_further_entries,
    sort_ranked_chunks,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import Notice
from kbtui.search.keyword_search import (
    CombinedTermStatistics,
    append_near_spelling_chunks_to_ranking,
)
from kbtui.search.query_stemming_and_matching import FEW_KEYWORD_HITS
from kbtui.search.rule_based_passage_reranker import RERANKED_PASSAGES, PassageToRerank
from kbtui.search.search_pipeline import (
    HybridScoreFusion,
    SearchRun,
    add_answers_later_turns_and_outdated_subjects_to_hits,
    format_filters_in_effect_in_query_syntax,
    make_hits_up_to_limit,
    make_match_notices,
)
from kbtui.search.search_request_and_answer import SCORE_DIGITS, Hit, SearchAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kbtui.index.index_reader import IndexReader
    from kbtui.search.keyword_search import ChunkRanking
    from kbtui.search.search_request_and_answer import QueryMistake, SearchRequest
    from kbtui.workspace import Workspace


MAX_PROJECTS_IN_HINT = 5
"""For a mistake in a query, the hints of at most this many projects are shown."""


class SearchedIndex(NamedTuple):
    """An index to search, with its workspace.

    * `project` is the human-readable name of the project.
    * `project_key` is the same for all workspaces of a project.
    * `marked` is `SearchRequest.marked` for this workspace.
    """

    workspace: Workspace
    reader: IndexReader
    project: str
    project_key: str
    marked: tuple[str, ...] = ()


class QueryVectorOrNotice(NamedTuple):
    """The vector of a query. If `vector` is None, `notice` says why."""

    vector: list[float] | None
    notice: Notice | None = None


class VectorSearch(Protocol):
    """Searches the vectors of several indexes with one model. An index may have no vectors yet."""

    def start_computing_query_vector(self, text: str) -> Callable[[], QueryVectorOrNotice]:
        """Start embedding a query, and return a function that waits for the query's vector."""

    def get_vector_of_first_given_chunk_with_vector_in_index(
        self, index: SearchedIndex, numbers: Sequence[int]
    ) -> list[float] | None:
        """Return the vector of the first chunk in `numbers` that has a vector, or None."""

    def search_nearest_chunks_in_index(
        self, index: SearchedIndex, vector: list[float], request: SearchRequest
    ) -> ChunkRanking:
        """Return the numbers of the chunks nearest to `vector`, best first, with similarities."""

    def count_missing_and_required_vectors_of_index(
        self, index: SearchedIndex, *, hidden: bool
    ) -> tuple[int, int]:
        """Return how many chunks still lack a vector, and how many chunks should have one."""

    def select_chunks_without_vector_in_index(
        self, index: SearchedIndex, numbers: Sequence[int]
    ) -> list[int]:
        """Return the chunk numbers in `numbers` whose chunks have no vector."""


class IndexSearchFailedError(Exception):
    """The index at `position` cannot be searched. The cause is the exception's `__cause__`."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def search_indexes(
    indexes: Sequence[SearchedIndex], request: SearchRequest, vectors: VectorSearch | None = None
) -> SearchAnswer:
    """Search several indexes, and return the same answer as one index with all entries would.

    If several workspaces contain the same passage, the hit is from the first of them. If a filter has a
    value that a workspace does not know, such as the name of a topic, the workspace is excluded. If all
    workspaces are excluded, the answer lists the mistakes that the first workspace found in the query.
    Without `vectors`, the answer has only keyword hits. Raises `IndexSearchFailedError`.
    """
    return _MultiIndexSearch(indexes, request).search_and_answer(vectors)


class _PassageLocationInIndex(NamedTuple):
    """Where a passage is: the position of an index among the searched indexes, and the passage's chunk number
    and entry id in this index.
    """

    position: int
    number: int
    entry_id: str


class _MultiIndexSearch:
    """One search of several indexes. A passage is identified by its chunk id, converted to a number."""

    def __init__(self, indexes: Sequence[SearchedIndex], request: SearchRequest) -> None:
        self._indexes, self._request = indexes, request
        self._runs: dict[int, SearchRun] = {}
        """The search of each index that can have hits, by the position of the index."""
        self._places: dict[int, dict[int, _PassageLocationInIndex]] = {}
        """For each ranked passage, its place in each index that contains it, by the position of the index."""
        self._legs: dict[str, ChunkRanking] = {}
        self._exact_hit_count = 0

    def search_and_answer(self, vectors: VectorSearch | None) -> SearchAnswer:
        """Search, and return the answer."""
        request = self._request
        runs = []
        for position, index in enumerate(self._indexes):
            with self._convert_index_errors(position):
                own = request._replace(marked=index.marked, project_name=index.project)
                run = SearchRun(index.workspace, index.reader, own)
            runs.append(run)
            if not run.mistakes:
                self._runs[position] = run
        first = next(iter(self._runs.values()), runs[0])
        notices = first.notices
        answer = SearchAnswer(
            first.query.text, request.mode, [], notices=notices, partial=request.partial
        )
        if not self._runs:
            return answer._replace(mistakes=self._merge_hints_of_query_mistakes(runs))
        self._use_summed_statistics()
        # The query is embedded while the keyword leg runs.
        text = first.query.spoken if request.mode != "lexical" else ""
        embedding = vectors.start_computing_query_vector(text) if vectors and text else None
        by_keywords = self._rank_by_keywords()
        coverage, pending = 1.0, frozenset[int]()
        if vectors is not None and embedding is not None:
            query_vector = embedding()
            if query_vector.notice:
                notices.insert(0, query_vector.notice)
            if query_vector.vector is not None:
                words = [] if request.mode == "semantic" else by_keywords
                self._legs["semantic"] = self._rank_by_meaning(vectors, query_vector.vector, words)
                coverage, pending = self._find_vector_coverage_and_pending_hits(
                    vectors, words, notices
                )
        if request.mode != "semantic" or not self._legs:
            self._legs["lexical"] = by_keywords
            notices += first.make_notices_about_wordless_query(by_keywords)
        fusion = HybridScoreFusion(
            self._legs, depth=request.depth, coverage=coverage, pending=pending
        )
        scores = self._fuse_rankings(fusion)
        order = sorted(scores, key=lambda chunk: (-scores[chunk], chunk))
        entries = {chunk: self._make_project_wide_entry_key(chunk) for chunk in order}
        hits, counts = make_hits_up_to_limit(entries, scores, fusion.ranks, request, self._make_hit)
        hits = self._add_answers_later_turns_and_outdated_subjects_per_index(hits, fusion)
        runs_in_use = [*self._runs.values()]
        exact = self._exact_hit_count if "lexical" in self._legs else None
        notices[:0] = make_match_notices(runs_in_use, hits, exact)
        return answer._replace(
            hits=hits,
            total=counts.total,
            omitted=counts.omitted,
            left_out=counts.left_out,
            empty=not scores
            and all(run.reader.is_catalog_empty(hidden=request.hidden) for run in runs),
            filters=format_filters_in_effect_in_query_syntax(request, first.query),
            is_gap=not hits,
            short_refs=self._map_references_of_hits_to_short_forms(hits),
        )

    def _merge_hints_of_query_mistakes(self, runs: list[SearchRun]) -> tuple[QueryMistake, ...]:
        """Return the mistakes in the query, as the search of the first index reports them.

        If the projects' hints for a mistake differ, the returned mistake has a hint that combines
        them.
        """
        merged = []
        for mistake in runs[0].mistakes:
            hints = {
                index.project: other.hint
                for index, run in zip(self._indexes, runs, strict=True)
                for other in run.mistakes
                if other._replace(hint="") == mistake._replace(hint="")
            }
            if len(set(hints.values())) > 1:
                shown = [f"in {project}: {hint}" for project, hint in hints.items()]
                more = ["…"] if len(shown) > MAX_PROJECTS_IN_HINT else []
                mistake = mistake._replace(hint="; ".join(shown[:MAX_PROJECTS_IN_HINT] + more))
            merged.append(mistake)
        return tuple(merged)

    def _use_summed_statistics(self) -> None:
        """Make every index score its chunks with the summed statistics of all indexes."""
        statistics = {}
        for hidden in (False, True) if self._request.hidden else (False,):
            indexes = []
            for position, run in self._runs.items():
                with self._convert_index_errors(position):
                    indexes.append(run.reader.open_keyword_index(hidden=hidden))
            statistics[hidden] = CombinedTermStatistics(
                [index.searcher() for index in indexes], indexes[0].schema
            )
        for run in self._runs.values():
            run.statistics = statistics

    def _rank_by_keywords(self) -> ChunkRanking:
        rows: list[RankedChunk] = []
        exact_numbers: set[int] = set()
        score_tolerance = SCORE_TOLERANCE
        for position, run in self._runs.items():
            with self._convert_index_errors(position):
                found = run.keyword_search.rank_chunks(self._request.depth)
                score_tolerance = run.keyword_search.score_tolerance
                ranking = [(row.number, row.score) for row in found]
                rows += self._replace_numbers_of_visible_chunks_by_ids(position, run, ranking)
                exact = run.keyword_search.select_chunks_with_query_words(ranking)
                exact_numbers |= {
                    row.number
                    for row in self._replace_numbers_of_visible_chunks_by_ids(position, run, exact)
                }
        ranked = self._merge_rows_of_indexes(rows, score_tolerance=score_tolerance)
        self._exact_hit_count = len(ranked)
        exact = [row for row in ranked if row[0] in exact_numbers]
        if len(exact) >= FEW_KEYWORD_HITS:
            return ranked
        near: list[RankedChunk] = []
        for position, run in self._runs.items():
            with self._convert_index_errors(position):
                found = run.keyword_search.rank_chunks_with_near_spellings(self._request.depth)
                ranking = [(row.number, row.score) for row in found]
                near += self._replace_numbers_of_visible_chunks_by_ids(position, run, ranking)
        if not near:
            return ranked
        return append_near_spelling_chunks_to_ranking(
            exact, self._merge_rows_of_indexes(near, score_tolerance=score_tolerance)
        )

    def _rank_by_meaning(
        self, vectors: VectorSearch, vector: list[float], words: ChunkRanking
    ) -> ChunkRanking:
        """Move `vector` towards one of the best keyword hits; rank all indexes' chunks by similarity to the moved vector."""
        from kbtui.index.vector_store import LEAN_CANDIDATES, move_vector_towards

        goal = None
        for chunk, _ in words[:LEAN_CANDIDATES]:
            for place in self._list_places_of_passage(chunk):
                with self._convert_index_errors(place.position):
                    goal = goal or vectors.get_vector_of_first_given_chunk_with_vector_in_index(
                        self._indexes[place.position], [place.number]
                    )
            if goal is not None:
                break
        vector = move_vector_towards(vector, goal)
        rows: list[RankedChunk] = []
        for position, run in self._runs.items():
            if run.asks_for_tool_calls:
                continue
            with self._convert_index_errors(position):
                found = vectors.search_nearest_chunks_in_index(
                    self._indexes[position], vector, run.request
                )
                rows += self._replace_numbers_of_visible_chunks_by_ids(
                    position, run, run.filter_semantic_ranking(found)
                )
        return self._merge_rows_of_indexes(rows, score_tolerance=SCORE_TOLERANCE, least=1.0)

    def _find_vector_coverage_and_pending_hits(
        self, vectors: VectorSearch, words: ChunkRanking, notices: list[Notice]
    ) -> tuple[float, frozenset[int]]:
        """Return the fraction of chunks that have a vector, and the keyword hits without a vector."""
        left = total = 0
        incomplete = set()
        for position in self._runs:
            with self._convert_index_errors(position):
                missing, count = vectors.count_missing_and_required_vectors_of_index(
                    self._indexes[position], hidden=self._request.hidden
                )
            left, total = left + missing, total + count
            if missing:
                incomplete.add(position)
        if not left:
            return 1.0, frozenset()
        notices.insert(0, Notice("passages_pending", {"total": left}))
        pending = set()
        for position in incomplete:
            numbers = {
                place.number: chunk
                for chunk, _ in words
                for place in self._list_places_of_passage(chunk)
                if place.position == position
            }
            with self._convert_index_errors(position):
                chunks = self._runs[position].reader.get_chunks_by_number(list(numbers))
                wanted = [number for number, (chunk, _) in chunks.items() if chunk.embed]
                pending |= {
                    numbers[number]
                    for number in vectors.select_chunks_without_vector_in_index(
                        self._indexes[position], wanted
                    )
                }
        return max(1, total - left) / max(1, total), frozenset(pending)

    def _replace_numbers_of_visible_chunks_by_ids(
        self, position: int, run: SearchRun, ranking: ChunkRanking
    ) -> list[RankedChunk]:
        """Return the visible chunks of a ranking, with chunk ids instead of chunk numbers."""
        visible = run.reader.map_visible_chunks_to_chunk_and_entry_ids(
            [number for number, _ in ranking],
            hidden=run.request.hidden,
            archived=run.request.archived,
        )
        rows = []
        for number, score in ranking:
            if number not in visible:
                continue
            chunk_id, entry_id = visible[number]
            chunk = int(chunk_id, 16)
            self._places.setdefault(chunk, {})[position] = _PassageLocationInIndex(
                position, number, entry_id
            )
            rows.append(RankedChunk(chunk, score, entry_id, chunk))
        return rows

    def _merge_rows_of_indexes(
        self, rows: list[RankedChunk], *, score_tolerance: float, least: float = 0.0
    ) -> ChunkRanking:
        """Return the best rows of all indexes, each passage once."""
        merged: dict[int, RankedChunk] = {}
        for row in sort_ranked_chunks(rows, score_tolerance=score_tolerance, least=least):
            merged.setdefault(
                row.number, row._replace(owner=self._make_project_wide_entry_key(row.number))
            )
        best = select_best_chunks_and_best_of_further_entries(
            list(merged.values()), self._request.depth
        )
        return [(row.number, row.score) for row in best]

    def _fuse_rankings(self, fusion: HybridScoreFusion) -> dict[int, float]:
        """Return the score of each passage. The best passages are reranked."""
        scores = fusion.fuse_ranking_scores()
        for position, run in self._runs.items():
            run.scores = {
                self._places[chunk][position].number: score
                for chunk, score in scores.items()
                if position in self._places[chunk]
            }
        if fusion.has_two_rankings:
            best = sorted(scores, key=lambda chunk: (-scores[chunk], chunk))
            passages = []
            for chunk in best[:RERANKED_PASSAGES]:
                place = self._list_places_of_passage(chunk)[0]
                with self._convert_index_errors(place.position):
                    loaded = self._runs[place.position].load_entry_and_chunk(place.number)
                if loaded:
                    owner = self._make_project_wide_entry_key(chunk)
                    passages.append(PassageToRerank(chunk, scores[chunk], owner, *loaded))
            # The statistics are shared, so the rerankers of all indexes compute the same bonuses.
            first = next(iter(self._runs))
            with self._convert_index_errors(first):
                bonuses = self._runs[first].bonus_calculator.compute_bonuses(passages)
            for chunk, of_chunk in bonuses.items():
                scores[chunk] = round(scores[chunk] + of_chunk.total, SCORE_DIGITS)
        return scores

    def _make_project_wide_entry_key(self, chunk: int) -> tuple[str, str]:
        """Return a key that identifies the entry of a chunk in all workspaces of its project."""
        place = self._list_places_of_passage(chunk)[0]
        return self._indexes[place.position].project_key, place.entry_id

    def _list_places_of_passage(self, chunk: int) -> list[_PassageLocationInIndex]:
        return [place for _, place in sorted(self._places[chunk].items())]

    def _add_answers_later_turns_and_outdated_subjects_per_index(
        self, hits: list[Hit], fusion: HybridScoreFusion
    ) -> list[Hit]:
        """Add answers, later turns and outdated subjects to the hits, from the index of each hit."""
        found: dict[str, Hit] = {}
        for position, run in self._runs.items():
            root = str(self._indexes[position].workspace.root)
            own = [hit for hit in hits if hit.workspace == root]
            chunks = run.visible_chunks

            def measure_match_of_chunk_number(
                number: int, chunks: dict[int, tuple[str, str]] = chunks
            ) -> float:
                return fusion.measure_chunk_match(int(chunks[number][0], 16))

            with self._convert_index_errors(position):
                own = add_answers_later_turns_and_outdated_subjects_to_hits(
                    run, own, measure_match_of_chunk_number
                )
            found |= {hit.chunk_id: hit for hit in own}
        return [found[hit.chunk_id] for hit in hits]

    def _make_hit(self, chunk: int) -> Hit | None:
        """Return the hit from the first workspace in which the file still contains the passage."""
        places = self._list_places_of_passage(chunk)
        for at, place in enumerate(places):
            with self._convert_index_errors(place.position):
                hit = self._runs[place.position].make_hit(place.number)
            if hit is not None:
                index = self._indexes[place.position]
                also_in = [self._indexes[other.position].workspace for other in places[at + 1 :]]
                return hit._replace(
                    project=index.project,
                    workspace=str(index.workspace.root),
                    also_in=tuple(str(workspace.root) for workspace in also_in),
                )
        return None

    def _map_references_of_hits_to_short_forms(self, hits: list[Hit]) -> dict[str, str]:
        """Map the reference of each hit to its short form, which is valid in the hit's workspace."""
        found: dict[str, str] = {}
        positions = {str(index.workspace.root): at for at, index in enumerate(self._indexes)}
        for position in sorted({positions[hit.workspace or ""] for hit in hits}):
            root = str(self._indexes[position].workspace.root)
            with self._convert_index_errors(position):
                refs = (hit.ref for hit in hits if hit.workspace == root)
                found = self._runs[position].reader.map_references_to_short_forms(refs) | found
        return found

    @contextmanager
    def _convert_index_errors(self, position: int) -> Iterator[None]:
        """Convert an error to `IndexSearchFailedError`, which says which index caused it."""
        from kbtui.errors import CallCancelledError
        from kbtui.index.index_generations import is_rust_panic

        try:
            yield
        except BaseException as error:
            if isinstance(error, CallCancelledError) or not (
                isinstance(error, Exception) or is_rust_panic(error)
            ):
                raise
            raise IndexSearchFailedError(position) from error
