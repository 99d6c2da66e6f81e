"""The model is loaded only when a query or a passage needs it."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import Builder, kill_engine

from kbtui.engine.embedding_worker import ReferenceCountedObjects
from kbtui.engine.engine_client import EngineClient
from kbtui.engine.engine_launcher import connect_or_start_engine, read_engine_lock_file
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


def test_what_is_shared_is_made_once_and_given_back_by_its_last_user() -> None:
    shared: ReferenceCountedObjects[object] = ReferenceCountedObjects()
    made = []

    def make() -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    threads = [
        threading.Thread(target=shared.acquire, args=("model", user, make)) for user in "abc"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert shared.acquire("another", "a", make) is made[1]
    assert [shared.release_and_return_if_unused("model", user) for user in "aabc"] == [
        None,
        None,
        None,
        made[0],
    ]
    assert shared.release_and_return_if_unused("another", "a") is made[1]
    assert shared.is_empty
    assert shared.acquire("model", "a", make) is made[2]


IMPATIENT = """
from kbtui.engine import workspace_pool
workspace_pool.MODEL_IDLE_SECONDS = 2.0
from kbtui.engine.__main__ import run_engine
run_engine()
"""
"""An engine that frees the memory of the model two seconds after it was last used."""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says about memory")
def test_workspaces_share_one_model_whose_memory_is_freed_when_nobody_uses_it(
    empty: Builder, tmp_path: Path, with_export: Path
) -> None:
    builders = [empty, Builder(tmp_path / "second")]
    builders[1].topics(guide={})
    for builder in builders:
        builder.subject("guide/one.md", "# One\n\nThe badger is in its sett.\n")
    with subprocess.Popen([sys.executable, "-c", IMPATIENT], stderr=subprocess.DEVNULL) as process:
        while read_engine_lock_file() is None:
            time.sleep(0.05)
        libraries = [Library(builder.workspace, Settings()) for builder in builders]
        heard: list[str] = []
        stop = libraries[0].listen_to_engine_events(lambda event: heard.append(event["event"]))
        memory = []
        for library in libraries:
            query = SearchRequest("an animal's burrow", mode="semantic")
            while not library.search(query, wait=60).hits:
                time.sleep(0.05)
            memory.append(psutil.Process(process.pid).memory_info().rss)
        # The model takes more than 100 MB.
        assert memory[1] - memory[0] < 60_000_000
        engine = connect_or_start_engine(empty.workspace)
        assert has_loaded(engine)
        engine.close()
        end = time.monotonic() + 60
        while "gone" not in heard or heard[-1] == "gone":
            assert time.monotonic() < end
            time.sleep(0.1)
        # It is the same process, and the client that listens does not make it load the model.
        assert read_engine_lock_file()["pid"] == process.pid  # type: ignore[index]
        engine = connect_or_start_engine(empty.workspace)
        while not engine.send_request("settle", wait=1.0)["done"]:
            pass
        assert not has_loaded(engine)
        assert psutil.Process(process.pid).memory_info().rss < 120_000_000
        assert libraries[1].search(query, wait=60).hits
        with contextlib.closing(engine):
            assert has_loaded(engine)
        stop()
        for library in libraries:
            library.close()
        process.terminate()
