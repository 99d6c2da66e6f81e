"""Keep garbage collection, and the freeing of large documents, from delaying keys.

A full collection stops all threads and visits every object: with 20,000 subjects it takes a fifth of a
second, which is noticeable while typing. So long-lived objects are frozen; full collections of the rest
run once a second while they are short, otherwise only while the user is idle.
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
"""New objects that make freezing worthwhile."""
YOUNG_THRESHOLD = 2_000
"""Allocations before a young collection; Python's default is 700, and one paint makes 20,000."""
FULL_THRESHOLD = 500
"""Middle collections before a full one; Python's default is 10."""
IDLE_SECONDS = 1.0
"""The user is idle after this time without a key."""
SHORT_COLLECTION_SECONDS = 0.008
"""A full collection up to this long may run between two keys."""

_frozen_count = 0


def freeze_objects_if_grown(count: int) -> None:
    """Freeze all objects if `count` has grown by at least `MIN_NEW_OBJECTS` since the last time.

    Freezing more often would keep more garbage, because current garbage is frozen too.
    """
    global _frozen_count
    if count >= _frozen_count + MIN_NEW_OBJECTS:
        _frozen_count = count
        gc.freeze()


def configure_garbage_collector() -> None:
    """Freeze the objects of the first screen and start the collector.

    The caller may have disabled it for a faster start, because loading makes hardly any garbage.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, 10, FULL_THRESHOLD)
    gc.enable()


class IdleGarbageCollector:
    """Runs a full collection once a second after user input, as long as that is quick.

    If it is not, it waits until the user is idle. Painted strips form cycles that only a full collection
    frees, so frequent short collections are best.
    """

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._last_activity = 0.0
        self._timer: Timer | None = None
        self._last_duration = 0.0

    def record_user_activity(self) -> None:
        """Record a key or mouse event and schedule a collection."""
        self._last_activity = time.monotonic()
        if self._timer is None:
            self._schedule_collection(IDLE_SECONDS)

    def _schedule_collection(self, seconds: float) -> None:
        self._timer = self._app.set_timer(seconds, self._collect_if_idle)

    def _collect_if_idle(self) -> None:
        left = self._last_activity + IDLE_SECONDS - time.monotonic()
        # What is being loaded is not frozen yet.
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
def pause_garbage_collection() -> Iterator[None]:
    """Disable the collector while something large is loaded, then freeze what was loaded.

    Frozen objects are never collected, so what is loaded must be freed by reference counts: see
    `free_document_in_background`.
    """
    with _pause_lock:
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            gc.enable()


class FreeableDocument(Protocol):
    """A document with a record and the blocks made from it."""

    record: Any
    blocks: list[Any]


def free_document_in_background(document: FreeableDocument) -> None:
    """Free a large document in a thread, in small steps.

    Dropping it at once would block the event loop until all of it is freed.
    """
    threading.Thread(
        target=_free_document_in_steps, args=(document,), name="kbtui-free", daemon=True
    ).start()


def _free_document_in_steps(document: FreeableDocument) -> None:
    record, document.record = document.record, None
    for pieces in (document.blocks, getattr(record, "turns", [])):
        while pieces:
            for piece in pieces[-FREE_STEP:]:
                # A call and its result refer to each other; break the cycle.
                for event in getattr(piece, "events", ()):
                    event.request = event.result = None
            del pieces[-FREE_STEP:]
            time.sleep(0.001)


FREE_STEP = 100
"""Blocks or turns freed per step."""
