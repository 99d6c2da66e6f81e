"""Told to stop, the engine waits for nothing that takes long."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Builder

from kbtui.engine.embedding_worker import EmbeddingWorker
from kbtui.index import Index
from kbtui.workspace import Settings


class Slow:
    """In the model's place: its first batch takes until `go`."""

    dimension = 4

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.batches = 0

    def encode(self, texts: Sequence[str]) -> Any:
        self.batches += 1
        self.begun.set()
        assert self.go.wait(60)
        return np.full((len(texts), 4), 0.5, dtype=np.float32)


class Bench(EmbeddingWorker):
    """The engine's semantic side with such a model."""

    model = Slow()

    def _load(self) -> None:
        self._embedder = self.model  # type: ignore[assignment]

    def _encoder(self, missing: int) -> Any:
        return self._embedder


def test_the_batch_at_hand_is_not_waited_for_and_is_the_last(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(40):
        builder.subject(f"guide/s{number}.md", f"# S{number}\n\nOtter {number} swims.\n")
    index = Index(builder.workspace, Settings())
    index.refresh()
    index.close()
    logged: list[str] = []
    cache = builder.workspace.cache_dir
    semantic = Bench(Settings(), cache, lambda _: None, lambda: None, logged.append)
    semantic.want()
    semantic.follow(index.folder)
    semantic.start()
    model = semantic.model
    assert model.begun.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", lambda *_: pytest.fail("it waits for a thread"))
        semantic.stop()
    assert semantic._thread.is_alive(), "the batch is still at hand"
    model.go.set()
    semantic._thread.join(60)
    assert not semantic._thread.is_alive()
    assert (model.batches, logged) == (1, [])
