"""Keeps garbage collection, and freeing large documents, from delaying keys.

A full collection stops all threads and visits every object: with twenty thousand subjects
that takes a fifth of a second, which is noticed while typing. What was read and stays is
therefore frozen; full collections of the rest run between keys while they are short,
and otherwise while no key is pressed.
"""

from __future__ import annotations

import gc
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import App
    from textual.timer import Timer

MIN_NEW_OBJECTS = 5_000
"""Objects from which freezing is worth it."""
YOUNG_THRESHOLD = 2_000
"""Allocations before a collection of the youngest; Python's default is 700, and a paint makes 20,000."""
FULL_THRESHOLD = 500
"""Younger collections before a full one; Python's default is 10."""
IDLE_SECONDS = 1.0
"""After this long without a key a full collection is not noticed."""
SHORT_COLLECTION_SECONDS = 0.008
"""Seconds that a full collection may take between two keys."""

_frozen_count = 0


def freeze_if_grown(count: int) -> None:
    """Set aside what lives now, if since the last time `count` things became many more.

    Not more often, because whatever is garbage at this moment stays too.
    """
    global _frozen_count
    if count >= _frozen_count + MIN_NEW_OBJECTS:
        _frozen_count = count
        gc.freeze()


def start_gc() -> None:
    """The first screen is there: set aside what it is made of, and let the collector begin.

    Whoever starts the TUI may have held it off, because nothing that is loaded is garbage.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, 10, FULL_THRESHOLD)
    gc.enable()


class IdleCollector:
    """Has everything collected each second that somebody does something, as long as that is short.

    Otherwise it waits until nobody has touched a key or the mouse for a while. What was
    painted is garbage that only the collector finds, so little at a time is best.
    """

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._last_activity = 0.0
        self._timer: Timer | None = None
        self._last_duration = 0.0

    def note_activity(self) -> None:
        """Somebody did something, and will do more at once."""
        self._last_activity = time.monotonic()
        if self._timer is None:
            self._schedule_collection(IDLE_SECONDS)

    def _schedule_collection(self, seconds: float) -> None:
        self._timer = self._app.set_timer(seconds, self._collect_if_idle)

    def _collect_if_idle(self) -> None:
        left = self._last_activity + IDLE_SECONDS - time.monotonic()
        # What is just being read is not set aside yet.
        if _pause_lock.locked() or (left > 0 and self._last_duration > SHORT_COLLECTION_SECONDS):
            self._schedule_collection(left if left > 0 else IDLE_SECONDS)
            return
        began = time.thread_time()
        gc.collect()
        self._last_duration = time.thread_time() - began
        self._timer = None
        if left > 0:
            self._schedule_collection(IDLE_SECONDS)


_pause_lock = threading.Lock()


@contextmanager
def pause_gc() -> Iterator[None]:
    """While something big is read the collector does not look at it; afterwards it never does.

    What is read so must not depend on the collector to go: see `let_go`.
    """
    with _pause_lock:
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            gc.enable()


class FreeableDocument(Protocol):
    """What is shown: a record, and blocks made of its turns."""

    record: Any
    blocks: list[Any]


def free_in_background(document: FreeableDocument) -> None:
    """Give back a big document that is shown no more, in a thread and bit by bit.

    Dropped at once, the event loop would stand still until all of it was given back.
    """
    threading.Thread(
        target=_free_in_steps, args=(document,), name="kbtui-let-go", daemon=True
    ).start()


def _free_in_steps(document: FreeableDocument) -> None:
    record, document.record = document.record, None
    for pieces in (document.blocks, getattr(record, "turns", [])):
        while pieces:
            for piece in pieces[-FREE_STEP:]:
                # A call and its result know each other: only the collector would part them.
                for event in getattr(piece, "events", ()):
                    event.request = event.result = None
            del pieces[-FREE_STEP:]
            time.sleep(0.001)


FREE_STEP = 100
"""Blocks or turns that are given back at once."""
