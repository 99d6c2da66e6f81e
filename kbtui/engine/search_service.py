"""Answers search requests, in the engine or, if there is no engine, in a client."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kbtui.dates import parse_time_zone
from kbtui.engine import engine_protocol
from kbtui.errors import IndexUnavailable, KbtuiError
from kbtui.index.index_generations import find_index_damage_behind_error
from kbtui.notices import Notice, make_keywords_only_notice
from kbtui.search.search_request_and_answer import SemanticRanking, parse_search_request_json
from kbtui.userdata.turn_mark_lookup import (
    add_marks_to_hits,
    list_marked_turns_if_search_filters_by_marks,
)
from kbtui.workspace.paths import is_time_zone_of_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from kbtui.engine.all_projects_search import AllProjectsSearch
    from kbtui.engine.embedding_worker import EmbeddingWorker
    from kbtui.engine.engine_protocol import (
        EngineReadinessAfterWait,
        EngineSearchArguments,
        EngineSearchReply,
    )
    from kbtui.index.embedding_model import Matrix
    from kbtui.index.index_reader import IndexReader
    from kbtui.search.search_pipeline import SemanticRanker, SemanticSearchStarter
    from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest
    from kbtui.workspace import Settings, Workspace

CLOSE_READER_SECONDS = 5.0
"""The index is closed when no search has used it for this many seconds.

While an index is open, tantivy polls its files.
"""
MAX_DEPTH = 1000
"""The maximum `depth` of a client's search request. A greater value is reduced to this maximum."""


def answer_search_request(
    workspace: Workspace,
    reader: IndexReader,
    question: SearchRequest,
    semantic: SemanticSearchStarter | None = None,
) -> SearchAnswer:
    """Answer a search request.

    A request with a reference in `like` asks for passages similar to the text to which it refers. A
    request can also ask for explanations. Each hit includes the user's marks on its turn. Raises
    `NothingFound` if the text of `like` is not indexed. Raises `UsageError` for an invalid reference.
    """
    question = question._replace(
        marked=list_marked_turns_if_search_filters_by_marks(workspace, question)
    )
    answer = _answer_search_request_without_marks(workspace, reader, question, semantic)
    return add_marks_to_hits(answer, {None: workspace})


def _answer_search_request_without_marks(
    workspace: Workspace,
    reader: IndexReader,
    question: SearchRequest,
    semantic: SemanticSearchStarter | None,
) -> SearchAnswer:
    if question.like is not None:
        from kbtui.conversations.conversation_repository import parse_entered_reference
        from kbtui.search.similar_passages import find_similar_passages

        ref = parse_entered_reference(workspace, question.like)
        return find_similar_passages(workspace, reader, ref, question, semantic)
    if question.explain or question.why is not None:
        from kbtui.search.rank_explanation import SearchExplainer

        explainer = SearchExplainer(workspace, reader, question, semantic)
        answer = explainer.answer
        if question.explain:
            answer = answer._replace(explanations=explainer.explain_hits())
        if question.why is not None:
            from kbtui.conversations.conversation_repository import parse_entered_reference

            why = explainer.explain_missing_hit(parse_entered_reference(workspace, question.why))
            answer = answer._replace(why=why)
        return answer
    from kbtui.search.search_pipeline import search_index

    return search_index(workspace, reader, question, semantic)


def make_empty_semantic_search(notice: Notice | None) -> SemanticSearchStarter:
    """Return a search by meaning that finds nothing; `notice` says why."""
    return lambda text: lambda question, generation: SemanticRanking(None, notice)


def make_index_behind_notice(state: EngineReadinessAfterWait) -> Notice | None:
    """Return a notice if the index is not up to date with the files, else None.

    `state["done"]` is true after the engine has compared all files with the index for the first
    time.
    """
    if state.get("error"):
        return Notice("index_behind", {"cause": "error", "detail": str(state["error"])})
    if reading := state.get("reading"):
        done, total = reading["done"], reading["total"]
        return Notice("index_behind", {"cause": "changes_pending", "done": done, "total": total})
    if not state.get("done"):
        return Notice("index_behind", {"cause": "comparing"})
    return None


class SearchService:
    """Executes the engine's operation `search`. Any thread may call the methods."""

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        semantic: EmbeddingWorker,
        is_checked: Callable[[], bool],
    ) -> None:
        """Create the service.

        `is_checked` returns whether the index was recently checked for damage.
        """
        self._workspace, self._settings, self._embedding_worker = workspace, settings, semantic
        self._is_checked = is_checked
        self._lock = threading.Lock()
        self._reader: IndexReader | None = None
        self._active = 0
        self._last_used = 0.0

    @cached_property
    def _all_projects_search(self) -> AllProjectsSearch:
        from kbtui.engine.all_projects_search import AllProjectsSearch

        return AllProjectsSearch(self._workspace, self._settings)

    def answer_client_search(
        self, request: EngineSearchArguments, state: EngineReadinessAfterWait
    ) -> EngineSearchReply:
        """Answer a client's search request. `state` says whether the index is up to date.

        Raises `ValueError` for an invalid request.
        """
        began = time.perf_counter()
        try:
            question = _parse_search_request(request)
        except KbtuiError as error:
            return _make_failed_reply(error)
        wait = engine_protocol.get_max_wait_seconds_of_request(request)
        if question.zone is not None:
            try:
                if question.zone == "local":
                    raise ValueError("the engine's local time zone may differ from the client's")
                parse_time_zone(question.zone)
            except ValueError as error:
                return {"declined": "zone", "detail": str(error)}
        try:
            with self._borrow_index_reader() as reader:
                uses_model = request.get("uses_model", True)
                missing = make_empty_semantic_search(make_keywords_only_notice("model_off"))
                semantic = partial(self._start_semantic_ranking, wait) if uses_model else missing
                search = partial(answer_search_request, self._workspace, reader, question, semantic)
                if question.all_projects:
                    search = partial(
                        self._search_all_projects, reader, question, wait if uses_model else None
                    )
                try:
                    answered = search()
                except BaseException as error:
                    if damage := find_index_damage_behind_error(error, reader.folder):
                        return {"declined": "damaged", "detail": damage}
                    raise
        except IndexUnavailable as error:
            return {"declined": "no_index", "detail": error.message}
        except KbtuiError as error:
            return _make_failed_reply(error)
        if lag := make_index_behind_notice(state):
            answered = answered.prepend_notices(lag)
        if problem := state.get("configuration_problem"):
            notice = Notice("configuration_invalid", {"detail": problem})
            answered = answered.prepend_notices(notice)
        is_empty = not answered.hits and not answered.mistakes and not answered.empty
        is_suspect = is_empty and not self._is_checked()
        origin = request.get("origin")
        if origin is not None and not is_suspect:
            from kbtui.userdata.query_log import log_search_answer

            milliseconds = (time.perf_counter() - began) * 1000
            caller = request.get("caller")
            unlogged = log_search_answer(
                self._workspace, self._settings, answered, origin, caller, milliseconds
            )
            if unlogged is not None:
                answered = answered._replace(notices=[*answered.notices, unlogged])
        return {"answer": answered.as_engine_message(), "suspect": is_suspect}

    def _search_all_projects(
        self, reader: IndexReader, question: SearchRequest, wait: float | None
    ) -> SearchAnswer:
        """Search all projects. Waits at most `wait` seconds for the model; None means keywords only."""
        if wait is not None and question.mode != "lexical":
            from kbtui.engine.all_projects_search import AllProjectsVectorSearch

            vectors = AllProjectsVectorSearch(
                self._all_projects_search, self._embedding_worker, wait
            )
            return self._all_projects_search.search_all_projects(reader, question, vectors)
        answered = self._all_projects_search.search_all_projects(reader, question)
        if question.mode == "lexical":
            return answered
        return answered.prepend_notices(make_keywords_only_notice("model_off"))

    def _start_semantic_ranking(self, wait: float, text: str) -> SemanticRanker:
        # The query is embedded while the keyword search runs.
        return partial(
            self._rank_chunks_by_meaning,
            text,
            self._embedding_worker.start_computing_query_vector(text),
            wait,
        )

    def _rank_chunks_by_meaning(
        self,
        text: str,
        pending: Future[Matrix] | None,
        wait: float,
        question: SearchRequest,
        generation: str,
    ) -> SemanticRanking:
        """Rank chunks by meaning. Waits at most `wait` seconds for the model."""
        if self._embedding_worker.keywords_only_notice is not None and wait:
            self._embedding_worker.model_ready.wait(wait)
        if self._embedding_worker.keywords_only_notice is not None:
            return SemanticRanking(None, self._embedding_worker.keywords_only_notice)
        if generation != self._embedding_worker.name_of_generation_with_open_vectors:
            return SemanticRanking(None, make_keywords_only_notice("index_replaced"))
        return self._embedding_worker.rank_chunks_by_meaning(text, pending, question)

    def close_index_if_idle(self, seconds: float = CLOSE_READER_SECONDS) -> None:
        """Close the index if no search has used it for `seconds` seconds."""
        with self._lock:
            is_idle = not self._active and time.monotonic() - self._last_used > seconds
            if self._reader is not None and is_idle:
                self._reader.close()
                self._reader = None
                if "_all_projects_search" in vars(self):
                    self._all_projects_search.close()

    @contextmanager
    def _borrow_index_reader(self) -> Iterator[IndexReader]:
        """Yield a reader of the current index generation.

        The reader stays open for later searches.
        """
        from kbtui.index.index_reader import IndexReader

        with self._lock:
            if self._reader is None or self._reader.is_generation_replaced():
                self._reader = IndexReader(self._workspace.cache_dir)
            reader = self._reader
            self._active += 1
        try:
            yield reader
        finally:
            with self._lock:
                self._active -= 1
                self._last_used = time.monotonic()


def _make_failed_reply(error: KbtuiError) -> EngineSearchReply:
    return {"failed": (type(error).__name__, error.message, error.where, error.hint)}


def _parse_search_request(request: EngineSearchArguments) -> SearchRequest:
    """Parse a client's search request, and limit the number of hits to rank (`depth`).

    Raises `ValueError` or `UsageError` for an invalid request.
    """
    question = parse_search_request_json(request["question"])
    is_local = question.zone is not None and is_time_zone_of_process(question.zone)
    return question._replace(
        depth=max(1, min(MAX_DEPTH, question.depth)),
        per_entry=max(0, question.per_entry),
        zone=None if is_local else question.zone,
    )
