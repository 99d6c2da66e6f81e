"""A query is embedded once, in parallel to the keyword search."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Builder

from kbtui.engine.embedding_worker import MODEL_LOADING, EmbeddingWorker, WorkspaceEmbeddingModel
from kbtui.engine.engine_protocol import MAX_WAIT_SECONDS, WAIT_SECONDS, validate_wait_seconds
from kbtui.engine.search_service import SearchService
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.notices import make_keywords_only_notice
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings, open_workspace_at_root


class CountingModel(WorkspaceEmbeddingModel):
    """Counts the queries that it embeds; waits for `go` while it embeds "slow"."""

    is_model_loaded = True
    vector_dimension = 4

    def __init__(self) -> None:
        super().__init__("", print)
        self.queries: list[str] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def find_embedding_model_key(self) -> str:
        return "counting"

    def get_or_start_passage_embedder(self, is_bulk: bool) -> Any:
        return self

    def embed_texts(self, texts: Sequence[str]) -> Any:
        return np.full((len(texts), 4), 0.5, dtype=np.float32)

    def embed_query(self, text: str) -> Any:
        self.queries.append(text)
        self.begun.set()
        if text == "slow":
            assert self.go.wait(30)
        if text == "bad":
            raise ValueError(text)
        return self.embed_texts([text])


@pytest.fixture
def model() -> CountingModel:
    return CountingModel()


@pytest.fixture
def worker(workspace_root: Path, model: CountingModel) -> Iterator[EmbeddingWorker]:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/one.md", "# One\n\nOtters swim.\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    found = EmbeddingWorker(
        Settings(), builder.workspace.cache_dir, lambda _: None, lambda: None, print, model
    )
    found.set_index_generation_to_embed(index.folder)
    found.request_model_loading()
    found.start_thread()
    assert found.caught_up.wait(60)
    yield found
    found.stop_thread_without_waiting()


def test_a_query_is_embedded_once_before_its_search(
    worker: EmbeddingWorker, model: CountingModel
) -> None:
    pending = worker.start_computing_query_vector("otter")
    assert pending is not None
    pending.result(30)
    ranking = worker.rank_chunks_by_meaning("otter", pending, SearchRequest())
    assert ranking.ranked is not None
    assert len(ranking.ranked) == 1
    assert model.queries == ["otter"]


def test_a_query_that_has_not_begun_is_embedded_by_its_own_thread(
    worker: EmbeddingWorker, model: CountingModel
) -> None:
    worker.start_computing_query_vector("slow")
    assert model.begun.wait(30)
    pending = worker.start_computing_query_vector("otter")
    assert worker.rank_chunks_by_meaning("otter", pending, SearchRequest()).ranked
    assert model.queries == ["slow", "otter"]
    model.go.set()


def test_a_query_that_cannot_be_embedded_has_no_ranking(worker: EmbeddingWorker) -> None:
    pending = worker.start_computing_query_vector("bad")
    ranking = worker.rank_chunks_by_meaning("bad", pending, SearchRequest())
    assert ranking == (None, make_keywords_only_notice("vectors_replaced"), 1.0, frozenset())


def test_a_search_waits_for_the_model_as_long_as_it_may_ask(
    workspace_root: Path, worker: EmbeddingWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(worker, "keywords_only_notice", MODEL_LOADING)
    monkeypatch.setattr(worker.model_ready, "wait", waited.append)
    workspace = open_workspace_at_root(workspace_root)
    service = SearchService(workspace, Settings(), worker, lambda: True)
    validate_wait_seconds(MAX_WAIT_SECONDS, "wait")
    question = SearchRequest("otter").as_json()
    for wait in (3600.0, MAX_WAIT_SECONDS, 10**400, float("nan")):
        service.answer_client_search({"question": question, "wait": wait}, {"done": True})
    service.answer_client_search({"question": question}, {"done": True})
    assert waited == [3600.0, *[MAX_WAIT_SECONDS] * 3, WAIT_SECONDS]
