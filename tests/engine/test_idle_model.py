"""The model is loaded only when a query or a passage needs it."""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import Builder, kill_engine

from kbtui.engine import EngineClient, connect_or_start_engine
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings


@pytest.fixture
def empty(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    yield builder
    kill_engine(builder)


def has_loaded(engine: EngineClient) -> bool:
    maps = {Path(one.path).name for one in psutil.Process(engine.pid).memory_maps()}
    return any(name.startswith(("libtorch", "onnxruntime", "lancedb", "_lancedb")) for name in maps)


def test_with_nothing_to_embed_neither_model_nor_vectors_are_loaded(empty: Builder) -> None:
    engine = connect_or_start_engine(empty.workspace)
    end = time.monotonic() + 60
    while not engine.send_request("settle", wait=1.0)["done"]:
        assert time.monotonic() < end
    state = engine.send_request("status")
    assert (state["semantic"], state["keywords_only"], state["left"]) == (True, None, 0)
    assert not has_loaded(engine)
    engine.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_who_asks_wakes_it(empty: Builder) -> None:
    engine = connect_or_start_engine(empty.workspace)
    while not engine.send_request("settle", wait=1.0)["done"]:
        pass
    library = Library(empty.workspace, Settings())
    assert library.search(SearchRequest("badger"), wait=120).degraded is None
    assert has_loaded(engine)
    # Once it is loaded, saved subjects are embedded immediately.
    empty.subject("guide/one.md", "# One\n\nThe badger is in its sett.\n")
    end = time.monotonic() + 120
    while not library.search(SearchRequest("an animal's burrow", mode="semantic"), wait=60).hits:
        assert time.monotonic() < end
        time.sleep(0.1)
    library.close()
