"""A query is embedded once, in parallel to the keyword search."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbtui.engine.embedding_worker import EmbeddingWorker, EngineModel
from kbtui.workspace import Settings


class CountingModel(EngineModel):
    """Counts the texts that it embeds; waits for `go` while it embeds "slow"."""

    def __init__(self) -> None:
        super().__init__("", print)
        self.texts: list[str] = []
        self.begun, self.go = threading.Event(), threading.Event()

    is_loaded = True

    def encode_query(self, text: str) -> Any:
        self.texts.append(text)
        self.begun.set()
        if text == "slow":
            assert self.go.wait(30)
        if text == "bad":
            raise ValueError(text)
        return np.full((1, 4), len(text), dtype=np.float32)


class LastVector:
    """In place of the table: notes the vector that it is searched for."""

    def __init__(self) -> None:
        self.searched: Any = None

    def get_vector(self, numbers: Any) -> None:
        return None

    def search(self, vector: Any, *_: Any) -> list[Any]:
        self.searched = vector
        return []


@pytest.fixture
def worker(tmp_path: Path) -> EmbeddingWorker:
    nothing = lambda *_: None  # noqa: E731
    found = EmbeddingWorker(Settings(), tmp_path, nothing, nothing, nothing, CountingModel())
    found._store = LastVector()  # type: ignore[assignment]
    return found


def test_a_query_is_embedded_once_before_its_search(worker: EmbeddingWorker) -> None:
    pending = worker.start_query("four")
    assert pending is not None
    assert pending.result(30)[0][0] == 4
    assert worker.search("four", pending, {}, 5, 3)["ranked"] == []
    assert worker._model.texts == ["four"]  # type: ignore[attr-defined]


def test_a_query_that_has_not_begun_is_embedded_by_its_own_thread(worker: EmbeddingWorker) -> None:
    model: Any = worker._model
    worker.start_query("slow")
    assert model.begun.wait(30)
    pending = worker.start_query("other")
    worker.search("other", pending, {}, 5, 3)
    assert model.texts == ["slow", "other"]
    model.go.set()


def test_a_query_that_cannot_be_embedded_has_no_ranking(worker: EmbeddingWorker) -> None:
    pending = worker.start_query("bad")
    assert worker.search("bad", pending, {}, 5, 3) == {"cause": "vectors_replaced"}
