"""Reads a big conversation in the TUI and measures itself: `python -m … WORKSPACE ID EVENTS_FILE`. It prints JSON."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from textual._compositor import CompositorUpdate
from textual.events import Key

from kbtui.library import open_workspace
from kbtui.references import make_conversation_ref
from kbtui.tui.app import KbtuiApp, TuiStartOptions
from kbtui.tui.main.main_screen import MainScreen
from kbtui.tui.navigation_target import HOME, make_navigation_target
from kbtui.tui.reader.reader_document import ReaderDocument

KEYS = 0.03


def memory() -> int:
    return int(psutil.Process().memory_info().rss)


peak = [0]
started = time.perf_counter()


def watch() -> None:
    while True:
        peak[0] = max(peak[0], memory())
        time.sleep(0.005)


class Work:
    """Processor time of the longest piece of the loop's work, and of frames, by phase."""

    def __init__(self) -> None:
        self.worst: dict[str, float] = {}
        self.what: dict[str, str] = {}
        self.over: dict[str, int] = {}
        self.keys: dict[str, int] = {}
        self.frames: dict[str, int] = {}
        self.missed: dict[str, int] = {}
        self.slowest: dict[str, float] = {}
        self.real: Any = asyncio.Handle._run
        self.begin("start")

    def begin(self, phase: str) -> None:
        self.phase = phase
        self.used, self.pressed = time.thread_time(), 0
        for counts in (self.worst, self.over, self.keys, self.frames, self.missed, self.slowest):
            counts.setdefault(phase, 0)
        print(f"{time.perf_counter() - started:7.2f} s  {phase}", file=sys.stderr, flush=True)

    def install(self, app: KbtuiApp) -> None:
        def run(handle: Any) -> None:
            used, phase = time.thread_time(), self.phase
            what = handle._callback
            self.real(handle)
            spent = time.thread_time() - used
            self.over[phase] += spent > 0.05
            if spent > self.worst[phase]:
                task = getattr(what, "__self__", None)
                name = getattr(task, "get_name", lambda: "")()
                self.worst[phase], self.what[phase] = spent, f"{name} {what!r}"[:200]

        asyncio.Handle._run = run  # type: ignore
        display = app._display

        def painted(screen: Any, renderable: Any) -> None:
            display(screen, renderable)
            if isinstance(renderable, CompositorUpdate):
                # Without a terminal Textual leaves this out.
                renderable.render_segments(app.console)
                now = time.thread_time()
                spent, self.used = now - self.used, now
                phase = self.phase
                self.frames[phase] += 1
                self.missed[phase] += spent > KEYS
                self.slowest[phase] = max(self.slowest[phase], spent)

        app._display = painted  # type: ignore[method-assign]


async def main(workspace: str, identity: str, events: str) -> None:
    library = open_workspace(workspace)
    app = KbtuiApp(library, start=TuiStartOptions(fresh=True))
    app.animation_level = "none"
    work = Work()
    said: dict[str, Any] = {}
    async with app.run_test(size=(120, 40)) as pilot:
        screen = app.screen
        assert isinstance(screen, MainScreen)
        controller, port = screen.document_controller, screen.reader_pane.document_view.viewport

        async def until(condition: Callable[[], object], seconds: float = 300) -> None:
            end = time.perf_counter() + seconds
            while not condition():
                assert time.perf_counter() < end, "never"
                await asyncio.sleep(0.002)

        await until(
            lambda: screen.library_pane.contents is not None and controller.shown is not None
        )
        await until(
            lambda: screen.library_pane.contents and not screen.library_pane.contents.unread
        )
        await asyncio.sleep(1)
        threading.Thread(target=watch, daemon=True).start()
        work.install(app)
        work.begin("idle")
        await asyncio.sleep(2)
        said["before"] = memory()
        peak[0] = 0
        place = make_navigation_target(make_conversation_ref(f"jp-c{identity}"))

        def document() -> ReaderDocument:
            return screen.reader_pane.document_view.document

        work.begin("opening")
        began = time.perf_counter()
        screen.open_target_in_reader(place)
        await until(lambda: document().key == place.key and port.rows)
        said["first screen"] = time.perf_counter() - began
        work.begin("reading on")
        await until(lambda: not document().is_partial)
        said["whole"] = time.perf_counter() - began
        await asyncio.sleep(1)
        said["peak opening"] = peak[0]
        said["blocks"], said["turns"] = len(document().blocks), document().turns_total

        async def press(key: str, times: int) -> None:
            for _ in range(times):
                work.keys[work.phase] += 1
                app.post_message(Key(key, key if len(key) == 1 else None))
                await asyncio.sleep(KEYS)
            await pilot.pause()

        for phase, keys in (
            ("scrolling", [("pagedown", 60), ("j", 60), ("ctrl+d", 30), ("k", 60)]),
            ("end and back", [("G", 1), ("pageup", 40), ("g", 1)]),
            ("turns", [("n", 40), ("w", 20), ("u", 20)]),
            ("all tools", [("t", 1), ("pagedown", 30)]),
            ("all reasoning", [("r", 1), ("pagedown", 30), ("t", 1), ("r", 1)]),
        ):
            work.begin(phase)
            for key, times in keys:
                await press(key, times)
        work.begin("resizing")
        for size in ((90, 30), (150, 50), (120, 40)):
            await pilot.resize_terminal(*size)
            await asyncio.sleep(0.3)
        work.begin("finding")
        pane = screen.reader_pane
        pane.action_open_find_bar()
        pane.find_bar.input.value = "let"
        await until(lambda: pane.matches)
        await asyncio.sleep(1)
        await press("enter", 1)
        await press("n", 20)
        pane.action_end_find_and_clear_matches()
        said["peak"] = peak[0]
        work.begin("reading again")
        more = [{"type": "turn_start", "timestamp": "2026-05-02 10:00:00.0"}]
        with Path(events).open("r+b") as file:
            file.seek(-3, 2)
            file.write(f",{json.dumps(more, indent=2)[1:]}\n".encode())
        controller.reload_shown_document()
        await until(lambda: document().turns_total > said["turns"])
        await asyncio.sleep(2)
        said["peak reading again"] = peak[0]
        work.begin("closing")
        screen.open_target_in_reader(HOME)
        await until(lambda: document().key == "home")
        await asyncio.sleep(3)
        said["after"] = memory()
        asyncio.Handle._run = work.real  # type: ignore[method-assign]
    for name in ("worst", "what", "over", "keys", "frames", "missed", "slowest"):
        said[name] = getattr(work, name)
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
