"""What a request of a client says, checked; and waiting for what it asked for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kbtui.engine import protocol

if TYPE_CHECKING:
    import threading

_NARROWING = {
    "hidden",
    "archived",
    "kinds",
    "topics",
    "types",
    "roles",
    "since",
    "until",
    "exclude",
    "entries",
}


def narrowing_of(value: object) -> dict[str, Any]:
    """What a question leaves of the vectors; raises `BadFrame` for what is none."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not set(value) <= _NARROWING:
        raise protocol.BadFrame("not a narrowing")
    return value


def seconds_of(value: object, usual: float) -> float:
    """How long to wait: at most ten minutes, `usual` where nothing is said."""
    return min(float(value), 600.0) if isinstance(value, int | float) else usual


async def happened(event: threading.Event, seconds: float) -> bool:
    """Whether a thread's event comes in time; no thread is held for it."""
    end = time.monotonic() + seconds
    pause = 0.002
    while not event.is_set():
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return True
