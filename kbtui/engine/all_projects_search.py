"""Searches the indexes of all workspaces that the user has opened. The search runs in the engine or in a client.

Nothing is written into other workspaces or their indexes. The engine updates an index only while the
index's workspace is open.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING

from kbtui.engine.engine_launcher import is_workspace_open_in_engine
from kbtui.errors import IndexUnavailable, KbtuiError, UsageError
from kbtui.index.index_generations import is_rust_panic
from kbtui.index.index_reader import IndexReader
from kbtui.notices import Notice, make_keywords_only_notice
from kbtui.search.multi_index_search import (
    IndexSearchFailedError,
    QueryVectorOrNotice,
    SearchedIndex,
    search_indexes,
)
from kbtui.userdata.turn_mark_lookup import (
    add_marks_to_hits,
    list_marked_turns_if_search_filters_by_marks,
)
from kbtui.userdata.workspace_registry import list_registered_workspaces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kbtui.engine.embedding_worker import EmbeddingWorker
    from kbtui.index.vector_store import VectorStore
    from kbtui.search.keyword_search import ChunkRanking
    from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest
    from kbtui.userdata.workspace_registry import RegisteredWorkspace
    from kbtui.workspace import Settings, Workspace


class AllProjectsSearch:
    """A search of the indexes of all projects, started in one workspace. The indexes stay open until `close`."""

    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        self._workspace, self._settings = workspace, settings
        self._lock = threading.Lock()
        self._readers: dict[Path, IndexReader] = {}
        self._stores: dict[Path, VectorStore | None] = {}
        """Maps the directory of each index generation to its vectors, or to None if it has no vectors from the model."""

    def close(self) -> None:
        """Close the indexes. A later search opens them again."""
        with self._lock:
            readers, self._readers = self._readers, {}
            self._stores = {}
        for reader in readers.values():
            reader.close()

    def open_vector_store_of_generation(
        self, index: SearchedIndex, worker: EmbeddingWorker
    ) -> VectorStore | None:
        """Return the current vectors of an index, or None if the index has no vectors."""
        folder = index.reader.folder
        with self._lock:
            store = self._stores.get(folder)
        if store is None:
            store = worker.open_vector_store_of_generation(folder)
            with self._lock:
                self._stores[folder] = store
        elif index.workspace.root != self._workspace.root:
            store.reload()
        return store

    def search_all_projects(
        self,
        here: IndexReader,
        request: SearchRequest,
        vectors: AllProjectsVectorSearch | None = None,
    ) -> SearchAnswer:
        """Search the index `here` of this workspace and the indexes of all other workspaces.

        Without `vectors`, the answer contains only keyword hits.

        The answer contains a notice for every other workspace that cannot be searched. If this
        workspace cannot be searched, the method raises the error. Raises `UsageError` if the
        request asks for explanations or for similar passages.
        """
        if request.like is not None or request.why is not None or request.explain:
            hint = "leave out --all, or name the workspace with -w"
            message = "explanations and similar passages work only in a search of one workspace"
            raise UsageError(message, where="--all", hint=hint)
        notices: list[Notice] = []
        indexes: list[SearchedIndex] = []
        registered = list_registered_workspaces(self._settings, self._workspace)
        for one in registered:
            try:
                reader = self._get_or_open_index_reader(one, here)
            except (KbtuiError, OSError) as error:
                notices.append(_make_omitted_workspace_notice(one.workspace, error))
                continue
            marked = list_marked_turns_if_search_filters_by_marks(one.workspace, request)
            indexes.append(
                SearchedIndex(one.workspace, reader, one.project, one.project_key, marked)
            )
        folders = {index.reader.folder for index in indexes}
        with self._lock:
            # Release the vectors of generations that were replaced.
            self._stores = {
                folder: store for folder, store in self._stores.items() if folder in folders
            }
        if len(registered) == 1 and indexes:
            notices.append(Notice("no_other_workspaces"))
        if not any(one.workspace.root == self._workspace.root for one in registered):
            excluded = KbtuiError("it is excluded by the setting `exclude` in [workspaces]")
            notices.append(_make_omitted_workspace_notice(self._workspace, excluded))
        answered = None
        while answered is None and indexes:
            try:
                answered = search_indexes(indexes, request, vectors)
            except IndexSearchFailedError as failed:
                cause, index = failed.__cause__, indexes.pop(failed.position)
                if cause is not None and index.workspace.root == self._workspace.root:
                    raise cause from None
                self._close_index(index.workspace.root)
                notices.append(_make_omitted_workspace_notice(index.workspace, cause))
        if answered is None:
            raise IndexUnavailable(
                "no workspace can be searched", hint="`kbtui workspaces` lists all workspaces"
            )
        workspaces: dict[str | None, Workspace] = {
            str(index.workspace.root): index.workspace for index in indexes
        }
        answered = add_marks_to_hits(answered, workspaces)
        unwatched = [
            index.project
            for index in indexes
            if index.workspace.root != self._workspace.root
            and not is_workspace_open_in_engine(index.workspace)
        ]
        if unwatched:
            names = sorted(set(unwatched))
            notices.append(Notice("workspaces_unwatched", {"workspaces": names}))
        return answered._replace(notices=[*answered.notices, *notices])

    def _get_or_open_index_reader(self, one: RegisteredWorkspace, here: IndexReader) -> IndexReader:
        """Return a reader of a workspace's index. Raises `IndexUnavailable` or `OSError`."""
        root = one.workspace.root
        if root == self._workspace.root:
            return here
        if one.is_missing:
            hint = "`kbtui workspaces forget --missing` forgets such workspaces"
            raise IndexUnavailable("the directory does not exist", hint=hint)
        folder = one.workspace.cache_dir
        if folder.exists() and not os.access(folder, os.R_OK | os.X_OK):
            hint = f"make this directory readable: {folder}"
            raise IndexUnavailable("its index cannot be read: permission denied", hint=hint)
        with self._lock:
            reader = self._readers.get(root)
            if reader is None or reader.is_generation_replaced():
                reader = IndexReader(one.workspace.cache_dir)
                self._readers[root] = reader
        return reader

    def _close_index(self, root: Path) -> None:
        with self._lock:
            reader = self._readers.pop(root, None)
        if reader is not None:
            with suppress(KbtuiError):
                reader.close()


class AllProjectsVectorSearch:
    """A `VectorSearch` that uses the engine's model, for one search of all projects.

    The search waits at most `wait` seconds for the model. If the vectors of a workspace cannot be opened or searched, its passages count as not embedded yet.
    """

    def __init__(self, projects: AllProjectsSearch, worker: EmbeddingWorker, wait: float) -> None:
        self._projects, self._worker, self._wait = projects, worker, wait
        self._stores: dict[Path, VectorStore | None] = {}

    def start_computing_query_vector(self, text: str) -> Callable[[], QueryVectorOrNotice]:
        """Start embedding a query, and return a function that waits for the query's vector."""
        pending = self._worker.start_computing_query_vector(text)

        def wait_for_query_vector() -> QueryVectorOrNotice:
            if self._worker.keywords_only_notice is not None and self._wait:
                self._worker.model_ready.wait(self._wait)
            if self._worker.keywords_only_notice is not None:
                return QueryVectorOrNotice(None, self._worker.keywords_only_notice)
            try:
                return QueryVectorOrNotice(
                    self._worker.wait_for_or_compute_query_vector(text, pending)
                )
            except Exception as error:
                return QueryVectorOrNotice(None, make_keywords_only_notice("error", str(error)))

        return wait_for_query_vector

    def get_vector_of_first_given_chunk_with_vector_in_index(
        self, index: SearchedIndex, numbers: Sequence[int]
    ) -> list[float] | None:
        """Return the vector of the first chunk in `numbers` that has a vector, or None."""
        store = self._open_vector_store(index)
        return store.get_vector_of_first_given_chunk_with_vector(numbers) if store else None

    def search_nearest_chunks_in_index(
        self, index: SearchedIndex, vector: list[float], request: SearchRequest
    ) -> ChunkRanking:
        """Return the chunks nearest to `vector`, best first, as pairs of chunk number and similarity."""
        store = self._open_vector_store(index)
        if store is None:
            return []
        from kbtui.engine.embedding_worker import make_vector_filter_of_request

        where = make_vector_filter_of_request(request)
        try:
            return store.search_nearest_chunks(vector, where, request.depth)
        except BaseException as error:
            if not isinstance(error, Exception) and not is_rust_panic(error):
                raise
            self._stores[index.reader.folder] = None
            return []

    def count_missing_and_required_vectors_of_index(
        self, index: SearchedIndex, *, hidden: bool
    ) -> tuple[int, int]:
        """Return how many chunks still lack a vector, and how many chunks should have one."""
        store = self._open_vector_store(index)
        total = index.reader.count_embeddable_chunks(hidden=hidden)
        found = store.count_vector_rows(None if hidden else "hidden = false") if store else 0
        return max(0, total - found), total

    def select_chunks_without_vector_in_index(
        self, index: SearchedIndex, numbers: Sequence[int]
    ) -> list[int]:
        """Return those of the chunk numbers in `numbers` whose chunks have no vector."""
        store = self._open_vector_store(index)
        return store.select_chunks_without_vector(numbers) if store else list(numbers)

    def _open_vector_store(self, index: SearchedIndex) -> VectorStore | None:
        folder = index.reader.folder
        if folder not in self._stores:
            try:
                self._stores[folder] = self._projects.open_vector_store_of_generation(
                    index, self._worker
                )
            except BaseException as error:
                if not isinstance(error, Exception) and not is_rust_panic(error):
                    raise
                self._stores[folder] = None
        return self._stores[folder]


def _make_omitted_workspace_notice(workspace: Workspace, error: BaseException | None) -> Notice:
    root, hint = str(workspace.root), None
    if isinstance(error, KbtuiError):
        detail = error.message
        # The hint is for the workspace that was not searched.
        hint = (error.hint or "").replace(
            "`kbtui index`", f"`kbtui -w {quote(root)} index`"
        ) or None
    elif isinstance(error, OSError):
        detail = f"its index cannot be read: {(error.strerror or str(error)).lower()}"
    else:
        detail = f"its index is damaged ({type(error).__name__})"
    values = {"workspace": root, "detail": detail, "hint": hint}
    return Notice("workspace_left_out", values)  # type: ignore[arg-type]
