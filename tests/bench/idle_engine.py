"""What an engine costs that nobody uses, with five open workspaces: its memory, and how often it wakes."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from kbtui.engine.engine_protocol import make_engine_search_arguments
from kbtui.index.embedding_model import (
    EmbeddingModelUnavailableError,
    export_model_to_onnx,
    find_embedding_model,
)
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings, open_workspace_at_root
from tests.bench import workspaces
from tests.bench.measure import Row

WORKSPACES, PASSAGES = 5, 5000
IDLE_SECONDS, WAKE_SECONDS = 120.0, 60.0
RELEASE_SECONDS = 300.0 + 30.0
"""The engine frees the memory of an unused model after 300 seconds."""
ASLEEP_SECONDS = 400.0
"""Nearly so many seconds after it has freed the model, the engine looks for changes as rarely as ever."""


def idle_engine(base: Path, times: int) -> Iterator[Row]:
    """Print the memory after a backlog, when nobody asks and when the model is freed, and the wakes."""
    with contextlib.suppress(EmbeddingModelUnavailableError):
        export_model_to_onnx(find_embedding_model(""))
    libraries, stop_listening = [], []
    for number in range(WORKSPACES):
        root = base / f"workspace{number}"
        workspaces.subjects(root, PASSAGES if number == 0 else 20, 30)
        libraries.append(Library(open_workspace_at_root(root), Settings()))
    # An engine of earlier benchmarks holds memory for their workspaces.
    libraries[0].connect_engine().stop_engine()
    pid = 0
    question = make_engine_search_arguments(
        {"question": SearchRequest("subject").as_json(), "wait": 60}
    )
    for library in libraries:
        client = library.connect_engine()
        pid = client.pid
        client.send_request("refresh", wait=600, timeout=630)
        while not client.send_request("settle", wait=5.0)["done"]:
            pass
        client.send_request("search", **question)
        # From now on, the workspace has a client that only listens, like the TUI of an absent user.
        stop_listening.append(library.listen_to_engine_events(lambda event: None))
        client.close()
    engine = psutil.Process(pid)
    what = f"engine with {WORKSPACES} workspaces, {PASSAGES} passages"
    time.sleep(IDLE_SECONDS)
    print(f"{what}, after {IDLE_SECONDS:.0f} s: {_megabytes(engine)} MB   (target 450)", flush=True)
    for library in libraries:
        library.call_engine(lambda client: client.send_request("search", **question))
    print(f"{what}, model and vectors: {_megabytes(engine)} MB   (target 450)", flush=True)
    time.sleep(RELEASE_SECONDS)
    print(f"{what}, model freed: {_megabytes(engine)} MB   (target 120)", flush=True)
    time.sleep(ASLEEP_SECONDS)
    before = count_wakes(pid)
    time.sleep(WAKE_SECONDS)
    wakes = (count_wakes(pid) - before) / WAKE_SECONDS
    print(f"{what}, asleep: {wakes:.2f} wakes a second   (target .5)", flush=True)
    for stop in stop_listening:
        stop()  # a listener would start another engine
    libraries[0].connect_engine().stop_engine()
    for library in libraries:
        library.close()
    yield from ()


def _megabytes(process: psutil.Process) -> int:
    return int(process.memory_info().rss / 1e6)


def count_wakes(pid: int) -> int:
    """Return how often the threads of a process have woken up so far."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            _, _, rest = (task / "status").read_text().partition("\nvoluntary_ctxt_switches:")
            found += int(rest.split()[0])
    return found


BENCHES = {"idle-engine": idle_engine}
