"""Moves through, sorts and filters the library in the TUI and measures stalls: `python -m … WORKSPACE`. It prints JSON."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.events import Key

from kbtui.errors import EngineUnavailableError
from kbtui.library import Library
from kbtui.tui.app import KbtuiApp, TuiStartOptions
from kbtui.tui.main.main_screen import MainScreen
from kbtui.workspace import Settings, open_workspace_at_root


class WithoutEngine(Library):
    def connect_engine(self, *, start: bool = True) -> Any:
        raise EngineUnavailableError("not for this bench")


async def main(workspace: str) -> None:
    library = WithoutEngine(open_workspace_at_root(Path(workspace)), Settings(model="off"))
    app = KbtuiApp(library, start=TuiStartOptions(fresh=True))
    app.animation_level = "none"
    worst: dict[str, float] = {}
    busiest: dict[str, float] = {}
    over: dict[str, int] = {}
    phase = "starting"

    async def tick() -> None:
        before, used = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.002)
            now, busy = time.perf_counter(), time.thread_time()
            worst[phase] = max(worst.get(phase, 0), now - before - 0.002)
            busiest[phase] = max(busiest.get(phase, 0), busy - used)
            over[phase] = over.get(phase, 0) + (now - before > 0.052)
            before, used = now, busy

    async with app.run_test(size=(120, 40)):
        screen = app.screen
        assert isinstance(screen, MainScreen)
        pane = screen.library_pane

        async def until(condition: Callable[[], object]) -> None:
            end = time.perf_counter() + 120
            while not condition():
                assert time.perf_counter() < end, phase
                await asyncio.sleep(0.002)

        async def press(*keys: str) -> None:
            for key in keys:
                app.post_message(Key(key, key if len(key) == 1 else None))
                await asyncio.sleep(0.03)

        loop = asyncio.create_task(tick())
        began = time.perf_counter()
        phase = "lists"
        await until(lambda: pane.contents is not None and pane.list.rows)
        listed = time.perf_counter() - began
        phase = "reading what was used"
        await until(lambda: pane.contents and not pane.contents.unread)
        read = time.perf_counter() - began
        await asyncio.sleep(1)
        screen.action_focus_pane("library")
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
        screen.change_listener.read_library_lists()
        await asyncio.sleep(2)
        loop.cancel()
    print(
        json.dumps({"worst": worst, "busy": busiest, "over": over, "listed": listed, "read": read})
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
