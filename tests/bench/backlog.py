"""While the engine has work: how long questions take, how soon it stops, and whether the TUI stutters."""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kbtui.engine.engine_client import EngineClient
from kbtui.engine.engine_launcher import connect_or_start_engine, read_engine_lock_file
from kbtui.engine.engine_protocol import make_engine_search_arguments
from kbtui.index.embedding_model import (
    EmbeddingModelUnavailableError,
    export_model_to_onnx,
    find_embedding_model,
)
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings, Workspace, open_workspace_at_root
from tests.bench import workspaces
from tests.bench.measure import Row, process, timed

QUESTIONS = 40


def busy(base: Path, times: int) -> Iterator[Row]:
    """Questions beside a backlog against the same of an idle engine; then stopping it."""
    try:
        export_model_to_onnx(find_embedding_model(""))
    except EmbeddingModelUnavailableError as error:
        print(f"  {error}")
    workspaces.subjects(base, 300, 30)
    workspaces.conversations(base, 20, 50)
    library = Library(open_workspace_at_root(base), Settings())
    engine = settled(library.connect_engine())
    command = [sys.executable, "-m", "kbtui.cli.main", "search", "-w", str(base)]
    idle, idle_command = ask(library, command)
    _more(base, 1500)
    while not engine.send_request("status")["left"]:
        time.sleep(0.05)
    working, working_command = ask(library, command)
    left = engine.send_request("status")["left"]
    print(f"  {left} chunks were still left")
    yield Row("a question while a backlog is embedded", working, "idle engine", idle, "<= 2")
    yield Row(
        "kbtui search while a backlog is embedded",
        working_command,
        "idle engine",
        idle_command,
        "<= 2",
    )
    free, gone = [], []
    for _ in range(9):
        engine = connect_or_start_engine(open_workspace_at_root(base))
        load_model(engine)
        engine.send_request("refresh", wait=60)
        wait = time.monotonic() + 60
        while not engine.send_request("status")["left"] and time.monotonic() < wait:
            time.sleep(0.05)
        time.sleep(random.random())
        first, last = stopped(engine, open_workspace_at_root(base))
        free.append(first)
        gone.append(last)
    for what, took in (("work ended, lock free", free), ("process gone", gone)):
        took.sort()
        print(
            f"told to stop while embedding, {what + ':':<23} median {took[4] * 1000:.0f} ms,"
            f" most {took[-1] * 1000:.0f} ms   (target 200 ms)"
        )


def stopped(engine: EngineClient, workspace: Workspace) -> tuple[float, float]:
    """Stop an engine; seconds until another could begin, and until its memory was given back."""
    began = time.perf_counter()
    engine.send_request("stop")
    while read_engine_lock_file():
        time.sleep(0.001)
    free = time.perf_counter() - began
    engine.stop_engine()
    return free, time.perf_counter() - began


def load_model(engine: EngineClient) -> None:
    """Have the engine load its model, as every search by meaning does; does not wait for it."""
    question = SearchRequest("subject").as_json()
    engine.send_request("search", **make_engine_search_arguments({"question": question, "wait": 0}))


def settled(engine: EngineClient) -> EngineClient:
    """Wait until everything is indexed and embedded."""
    load_model(engine)
    engine.send_request("refresh", wait=120, timeout=150)
    while not engine.send_request("settle", wait=5.0)["done"]:
        pass
    return engine


def ask(library: Library, command: list[str]) -> tuple[list[float], list[float]]:
    """Seconds that hybrid questions take, in a client that runs already and as whole commands."""
    made = random.Random(7)
    words = [made.sample(workspaces.WORDS[:200], 3) for _ in range(QUESTIONS)]
    for one in words[:3]:
        library.search(SearchRequest(" ".join(one)), origin=None)
    client = [
        timed(lambda one=one: library.search(SearchRequest(" ".join(one)), origin=None))  # type: ignore[misc]
        for one in words
    ]
    return client, [timed(process([*command, *one], ok=(0, 1))) for one in words[:15]]


def _more(base: Path, count: int) -> None:
    made = random.Random(9)
    folder = base / "docs" / "more"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        text = f"# More {number}\n\n{workspaces.prose(made, 150)}\n"
        (folder / f"m{number:04}.md").write_text(text)


BEAT = """
import asyncio, json, sys, time
from kbtui.library import open_workspace
from kbtui.tui import app
from tests.bench.backlog import _more
from pathlib import Path

class Beating(app.KbtuiApp):
    CSS_PATH = Path(app.__file__).with_name(app.KbtuiApp.CSS_PATH)

    def on_ready(self):
        self.run_worker(self.beat())

    async def late(self, seconds):
        found, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            began, used = time.monotonic(), time.thread_time()
            await asyncio.sleep(0.01)
            found.append((time.monotonic() - began - 0.01, time.thread_time() - used))
        return found

    async def beat(self):
        await self.late(10.0)
        idle = await self.late(10.0)
        await asyncio.to_thread(_more, Path(sys.argv[1]), 600)
        working = await self.late(20.0)
        print(json.dumps([idle, working]), file=sys.__stdout__)
        self.exit()

Beating(open_workspace(sys.argv[1])).run(headless=True, size=(160, 50))
"""


def stall(base: Path, times: int) -> Iterator[Row]:
    """How late the TUI's event loop comes, idle and while 600 subjects are indexed and embedded."""
    try:
        export_model_to_onnx(find_embedding_model(""))
    except EmbeddingModelUnavailableError as error:
        print(f"  {error}")
    workspaces.subjects(base, 100, 10)
    workspaces.conversations(base, 5, 50)
    settled(connect_or_start_engine(open_workspace_at_root(base)))
    words = [sys.executable, "-c", BEAT, str(base)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ)
    idle, working = json.loads(done.stdout.splitlines()[-1])
    for at, what in enumerate(("late", "the loop's own processor time between beats")):
        first, then = (sorted(beat[at] for beat in held) for held in (idle, working))
        p99 = [held[int(len(held) * 0.99)] * 1000 for held in (first, then)]
        print(
            f"event loop of the TUI, {what}, p99: idle {p99[0]:.1f} ms, while indexing {p99[1]:.1f} ms"
            f" (median {statistics.median(then) * 1000:.1f}, most {then[-1] * 1000:.0f} ms)"
            f"{'   (target 30 ms more)' if what == 'late' else ''}"
        )
    connect_or_start_engine(open_workspace_at_root(base)).stop_engine()
    yield from ()


BENCHES = {"busy": busy, "stall": stall}
