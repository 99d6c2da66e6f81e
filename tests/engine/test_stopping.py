"""A stopping engine does not wait for the model."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Builder

from kbtui.engine.embedding_worker import EmbeddingWorker, WorkspaceEmbeddingModel
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings


class SlowModel(WorkspaceEmbeddingModel):
    """A model whose first batch waits for `go`."""

    is_model_loaded = True
    vector_dimension = 4

    def __init__(self) -> None:
        super().__init__("", print)
        self.begun, self.go = threading.Event(), threading.Event()
        self.batches = 0

    def find_embedding_model_key(self) -> str:
        return "slow"

    def get_or_start_passage_embedder(self, is_bulk: bool) -> Any:
        return self

    def embed_texts(self, texts: Sequence[str]) -> Any:
        self.batches += 1
        self.begun.set()
        assert self.go.wait(60)
        return np.full((len(texts), 4), 0.5, dtype=np.float32)


def test_the_batch_at_hand_is_not_waited_for_and_is_the_last(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(40):
        builder.subject(f"guide/s{number}.md", f"# S{number}\n\nOtter {number} swims.\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    logged: list[str] = []
    cache = builder.workspace.cache_dir
    model = SlowModel()
    semantic = EmbeddingWorker(
        Settings(), cache, lambda _: None, lambda: None, logged.append, model
    )
    semantic.request_model_loading()
    semantic.set_index_generation_to_embed(index.folder)
    semantic.start_thread()
    (thread,) = (one for one in threading.enumerate() if one.name == "embedding")
    assert model.begun.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", lambda *_: pytest.fail("it waits for a thread"))
        semantic.stop_thread_without_waiting()
    assert thread.is_alive(), "the batch is still at hand"
    model.go.set()
    thread.join(60)
    assert not thread.is_alive()
    assert (model.batches, logged) == (1, [])
