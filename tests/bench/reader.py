"""The reader on a conversation of a hundred megabytes: work of the event loop, frames, and memory.

`KBTUI_BENCH_MB` is the size, 100 by default. What a person notices is no ratio, so figures are in
milliseconds, of processor time, because others on the machine take their part of any other;
those of a small conversation stand beside them. A frame is missed when what was done from one
paint to the next, with the paint, takes longer than the time between two keys.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from tests.bench import workspaces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.measure import Row

MEGABYTES = int(os.environ.get("KBTUI_BENCH_MB", "100"))
STAMP = "2026-05-01 10:00:00.0"
IDENTITY = 17_500_000_000


def write_conversation(root: Path, megabytes: int) -> Path:
    """A conversation as JP writes one, in proportions as real ones have them."""
    random_ = random.Random(3)
    prose = [workspaces.prose(random_, 40 + 7 * n) for n in range(60)]
    code = [
        "\n".join(
            f"    let {word} = {number}; // {word}" for number, word in enumerate(text.split())
        )
        for text in prose
    ]
    folder = root / ".jp/conversations" / str(IDENTITY)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.json").write_text(
        json.dumps({"title": "A hundred megabytes", "last_activated_at": STAMP})
    )
    (folder / "base_config.json").write_text("{}")
    number = 0
    with (folder / "events.json").open("w") as file:
        file.write("[")
        while file.tell() < megabytes * 1_000_000:
            for event in _turn(number, random_, prose, code):
                text = json.dumps({"timestamp": STAMP, **event}, indent=2).replace("\n", "\n  ")
                file.write(("," if number else "") + "\n  " + text)
                number += 1
        file.write("\n]\n")
    return folder / "events.json"


def _turn(
    number: int, random_: random.Random, prose: list[str], code: list[str]
) -> Iterator[dict[str, object]]:
    yield {"type": "turn_start"}
    yield {"type": "chat_request", "content": random_.choice(prose)}
    for step in range(random_.randint(5, 30)):
        if step % 8 == 0:
            yield {"type": "chat_response", "reasoning": "\n\n".join(random_.choices(prose, k=20))}
        else:
            words = random_.choice(prose)
            yield {"type": "chat_response", "message": f"## Step {step}\n\n{words}\n"}
        call = f"c{number}.{step}"
        yield {
            "type": "tool_call_request",
            "id": call,
            "name": "fs_read_file",
            "arguments": {"path": b64encode(f"src/{step}.rs".encode()).decode()},
        }
        most = 60 if random_.random() < 0.02 else 3
        text = "\n".join(random_.choices(code, k=random_.randint(1, most)))
        yield {
            "type": "tool_call_response",
            "id": call,
            "is_error": random_.random() < 0.02,
            "content": b64encode(text.encode()).decode(),
        }


CHILD = '''
import asyncio, json, sys, threading, time
from textual._compositor import CompositorUpdate
from textual.events import Key

from kbtui.library import open_workspace
from kbtui.tui.app import KbtuiApp, TuiStartOptions

workspace, identity = sys.argv[1:3]
KEYS = 0.03

def memory():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024

peak = [0]
started = time.perf_counter()
def watch():
    while True:
        peak[0] = max(peak[0], memory())
        time.sleep(0.005)

class Work:
    """Processor time of the longest piece of the loop's work, and of frames, by phase."""
    def __init__(self):
        self.worst, self.what, self.over = {}, {}, {}
        self.keys, self.frames, self.missed, self.slowest = {}, {}, {}, {}
        self.real = asyncio.Handle._run
        self.begin("start")
    def begin(self, phase):
        self.phase = phase
        self.used, self.pressed = time.thread_time(), 0
        for counts in (self.worst, self.over, self.keys, self.frames, self.missed, self.slowest):
            counts.setdefault(phase, 0)
        print(f"{time.perf_counter() - started:7.2f} s  {phase}", file=sys.stderr, flush=True)
    def install(self, app):
        def run(handle):
            used, phase = time.thread_time(), self.phase
            what = handle._callback
            self.real(handle)
            spent = time.thread_time() - used
            self.over[phase] += spent > 0.05
            if spent > self.worst[phase]:
                task = getattr(what, "__self__", None)
                name = getattr(task, "get_name", lambda: "")()
                self.worst[phase], self.what[phase] = spent, f"{name} {what!r}"[:200]
        asyncio.Handle._run = run
        display = app._display
        def painted(screen, renderable):
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
        app._display = painted

async def main():
    library = open_workspace(workspace)
    app = KbtuiApp(library, start=TuiStartOptions(fresh=True))
    app.animation_level = "none"
    work = Work()
    said = {}
    async with app.run_test(size=(120, 40)) as pilot:
        screen = app.screen
        controller, port = screen.document_controller, screen.reader_pane.document_view.viewport
        async def until(condition, seconds=300):
            end = time.perf_counter() + seconds
            while not condition():
                assert time.perf_counter() < end, "never"
                await asyncio.sleep(0.002)
        await until(lambda: screen.library_pane.contents is not None and controller.shown is not None)
        await until(lambda: not screen.library_pane.contents.unread)
        await asyncio.sleep(1)
        threading.Thread(target=watch, daemon=True).start()
        work.install(app)
        work.begin("idle")
        await asyncio.sleep(2)
        said["before"] = memory()
        peak[0] = 0
        from kbtui.tui.navigation_target import make_navigation_target as make_target
        from kbtui.references import make_conversation_ref as conversation_ref
        place = make_target(conversation_ref(f"jp-c{identity}"))
        document = lambda: screen.reader_pane.document_view.document
        work.begin("opening")
        began = time.perf_counter()
        screen.open_target_in_reader(place)
        await until(lambda: document().key == place.key and port.rows)
        said["first screen"] = time.perf_counter() - began
        work.begin("reading on")
        await until(lambda: not document().partial)
        said["whole"] = time.perf_counter() - began
        await asyncio.sleep(1)
        said["peak opening"] = peak[0]
        said["blocks"], said["turns"] = len(document().blocks), document().turns_total
        async def press(key, times):
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
        with open(sys.argv[3], "r+b") as file:
            file.seek(-3, 2)
            file.write(f",{json.dumps(more, indent=2)[1:]}\\n".encode())
        controller.reload_shown_document()
        old = document()
        await until(lambda: document() is not old)
        await asyncio.sleep(2)
        del old
        said["peak reading again"] = peak[0]
        work.begin("closing")
        from kbtui.tui.navigation_target import HOME
        screen.open_target_in_reader(HOME)
        await until(lambda: document().key == "home")
        await asyncio.sleep(3)
        said["after"] = memory()
        asyncio.Handle._run = work.real
    for name in ("worst", "what", "over", "keys", "frames", "missed", "slowest"):
        said[name] = getattr(work, name)
    print(json.dumps(said))

asyncio.run(main())
'''
SCROLLED = ("scrolling", "end and back", "turns", "all tools", "all reasoning")


def reader(base: Path, times: int) -> Iterator[Row]:
    """Open, read, scroll, find in, reload and close one big conversation, beside a small one."""
    small = _measured(base / "small", 1)
    big = _measured(base / "big", MEGABYTES)
    size = big["size"]
    print(
        f"a conversation of {size / 1e6:.0f} MB: {big['turns']:,} turns, {big['blocks']:,} blocks"
    )
    print(f"  first screen after {big['first screen']:.2f} s, the whole after {big['whole']:.2f} s")
    print("  processor time of the event loop's longest piece of work in ms, pieces over 50 ms;")
    print("  the same for 1 MB; what the longest was")
    for phase, what in big["what"].items():
        print(f"  {phase:<14} {_work(big, phase)}  |  {_work(small, phase)}  {what}")
    print("  a key every 30 ms: keys, frames, of which missed, the slowest frame in ms; for 1 MB")
    for phase in SCROLLED:
        print(f"  {phase:<14} {_frames(big, phase)}  |  {_frames(small, phase)}")
    before = big["before"]
    for name in ("peak opening", "peak", "peak reading again", "after"):
        print(
            f"  memory {name}: {big[name] / 1e6:.0f} MB, {big[name] / size:.2f} times the file"
            f" ({(big[name] - before) / size:.2f} beyond the {before / 1e6:.0f} MB of before)"
        )
    yield from ()


def _work(said: dict[str, Any], phase: str) -> str:
    return f"{said['worst'].get(phase, 0) * 1000:6.1f} {said['over'].get(phase, 0):3}"


def _frames(said: dict[str, Any], phase: str) -> str:
    keys, frames, missed = (said[name][phase] for name in ("keys", "frames", "missed"))
    return f"{keys:4} {frames:4} {missed:3} {said['slowest'][phase] * 1000:6.1f}"


def _measured(root: Path, megabytes: int) -> dict[str, Any]:
    """What a process of its own says of itself while it reads such a conversation."""
    from kbtui.library import Library
    from kbtui.workspace import Settings, open_workspace_at_root

    (root / ".jp").mkdir(parents=True)
    events = write_conversation(root, megabytes)
    os.environ["KBTUI_MODEL"] = "off"
    engine = Library(open_workspace_at_root(root), Settings(model="off")).connect_engine()
    try:
        while not engine.send_request("settle", wait=5.0, timeout=60.0)["done"]:
            pass
        command = [sys.executable, "-c", CHILD, str(root), str(IDENTITY), str(events)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    finally:
        engine.send_request("stop")
    return {**json.loads(done.stdout.splitlines()[-1]), "size": events.stat().st_size}


BENCHES = {"reader": reader}
