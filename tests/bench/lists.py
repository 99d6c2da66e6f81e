"""The library's lists with five thousand conversations: stalls of the interface.

Beside each stall stands that of five conversations, because a busy machine stalls both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.bench import workspaces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.measure import Row

MANY = 5_000

CHILD = """
import asyncio, json, sys, time

from textual.events import Key

from kbtui.errors import EngineUnavailable
from kbtui.library import Library
from kbtui.tui.app import KbtuiApp, TuiStartOptions
from kbtui.workspace import Settings, open_workspace_at_root
from pathlib import Path


class WithoutEngine(Library):
    def connect_engine(self, *, start=True):
        raise EngineUnavailable("not for this bench")


async def main():
    app = KbtuiApp(WithoutEngine(open_workspace_at_root(Path(sys.argv[1])), Settings(model="off")), start=TuiStartOptions(fresh=True))
    app.animation_level = "none"
    worst, busiest, over, phase = {}, {}, {}, "starting"

    async def tick():
        before, used = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.002)
            now, busy = time.perf_counter(), time.thread_time()
            worst[phase] = max(worst.get(phase, 0), now - before - 0.002)
            busiest[phase] = max(busiest.get(phase, 0), busy - used)
            over[phase] = over.get(phase, 0) + (now - before > 0.052)
            before, used = now, busy

    async with app.run_test(size=(120, 40)) as pilot:
        pane = app.screen.library_pane
        async def until(condition):
            end = time.perf_counter() + 120
            while not condition():
                assert time.perf_counter() < end, phase
                await asyncio.sleep(0.002)
        async def press(*keys):
            for key in keys:
                app.post_message(Key(key, key if len(key) == 1 else None))
                await asyncio.sleep(0.03)
        loop = asyncio.create_task(tick())
        began = time.perf_counter()
        phase = "lists"
        await until(lambda: pane.contents is not None and pane.list.rows)
        listed = time.perf_counter() - began
        phase = "reading what was used"
        await until(lambda: not pane.contents.unread)
        read = time.perf_counter() - began
        await asyncio.sleep(1)
        app.screen.go("#library-list")
        phase = "moving"
        await press(*["pagedown"] * 30, "G", "g", *["j"] * 30)
        phase = "sorting"
        for _ in range(5):
            await press("m")
            await asyncio.sleep(0.3)
        phase = "filtering"
        for text in ("talk", "tool:fs_read", "after:2026-01-01 7", "model:opus"):
            await press("f")
            pane.filter.input.value = ""
            for letter in text:
                pane.filter.input.value += letter
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
            await press("escape")
            await asyncio.sleep(0.3)
        phase = "lists again"
        app.screen.change_listener.read_library_lists()
        await asyncio.sleep(2)
        loop.cancel()
    print(json.dumps({"worst": worst, "busy": busiest, "over": over, "listed": listed, "read": read}))

asyncio.run(main())
"""


def lists(base: Path, times: int) -> Iterator[Row]:
    """Start, move, sort and filter with 5,000 conversations, and with 5."""
    many = _measured(base / "many", MANY)
    few = _measured(base / "few", 5)
    print(
        f"{MANY:,} conversations: listed after {many['listed']:.2f} s (5: {few['listed']:.2f} s),"
        f" all read after {many['read']:.2f} s"
    )
    print("  longest stall of the event loop in ms (at work), times over 50 ms; the same for 5")
    for phase in many["worst"]:
        print(f"  {phase:<22} {_stall(many, phase)}  |  {_stall(few, phase)}")
    yield from ()


def _stall(said: dict[str, Any], phase: str) -> str:
    worst, busy = said["worst"].get(phase, 0) * 1000, said["busy"].get(phase, 0) * 1000
    return f"{worst:6.0f} ({busy:4.0f}) {said['over'].get(phase, 0):3}"


def _measured(root: Path, count: int) -> dict[str, Any]:
    (root / ".jp").mkdir(parents=True)
    workspaces.conversations(root, count, 10)
    command = [sys.executable, "-c", CHILD, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


BENCHES = {"lists": lists}
