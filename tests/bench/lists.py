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
    command = [sys.executable, "-m", "tests.bench.lists_process", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


BENCHES = {"lists": lists}
