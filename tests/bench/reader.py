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
    variables = os.environ | {"KBTUI_MODEL": "off"}
    engine = Library(open_workspace_at_root(root), Settings(model="off")).connect_engine()
    try:
        while not engine.send_request("settle", wait=5.0)["done"]:
            pass
        words = ["-m", "tests.bench.reader_process", str(root), str(IDENTITY), str(events)]
        command = [sys.executable, *words]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    finally:
        engine.send_request("stop")
    return {**json.loads(done.stdout.splitlines()[-1]), "size": events.stat().st_size}


BENCHES = {"reader": reader}
