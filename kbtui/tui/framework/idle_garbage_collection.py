"""Keeps garbage collection and the freeing of large documents from delaying keys.

A full collection stops all threads and visits every object. With 20,000 subjects, this takes a
fifth of a second. Therefore, long-lived objects are frozen, so that collections do not visit them.
If a full collection takes a long time nevertheless, the next one runs only while the user is idle.
"""

from __future__ import annotations

import gc
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import App
    from textual.timer import Timer

MIN_NEW_ENTRIES = 5_000
"""When the library has at least this many new entries, all existing objects are excluded from garbage collection."""
YOUNG_THRESHOLD = 2_000
"""The number of new objects that triggers a collection of young objects.

A repaint creates 20,000 objects, so it triggers up to ten collections.
"""
FULL_THRESHOLD = 500
"""The number of collections of Python's middle generation that triggers a full collection."""
IDLE_SECONDS = 1.0
"""After this many seconds without a key or mouse event, the user counts as idle."""
SHORT_COLLECTION_SECONDS = 0.008
"""If a full collection took longer than this time in seconds, the next one waits until the user is idle."""
FREED_PER_STEP = 100
"""The number of blocks or turns of a closed document that are freed in one step."""

_frozen_count = 0


def freeze_gc_if_many_new_entries(count: int) -> None:
    """Exclude all existing objects from garbage collection if there are many new entries.

    `count` is the number of all entries. The objects are excluded (`gc.freeze`) if this number has
    grown by at least `MIN_NEW_ENTRIES` since this function last excluded objects.
    """
    global _frozen_count
    # Freezing must be rare, because it keeps all current garbage in memory forever.
    if count >= _frozen_count + MIN_NEW_ENTRIES:
        _frozen_count = count
        gc.freeze()


def enable_garbage_collection_after_startup() -> None:
    """Enable garbage collection, which is disabled during startup.

    Objects that exist already, such as those of the first screen, are excluded from collections.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, 10, FULL_THRESHOLD)
    gc.enable()


class IdleGarbageCollector:
    """Runs full garbage collections. Slow ones wait until the user is idle.

    A key or mouse event schedules a collection for `IDLE_SECONDS` later. If the user is not idle
    then, the collection starts anyway, unless the last one took more than
    `SHORT_COLLECTION_SECONDS`. While a large document is loading, no collection starts.
    """

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._last_activity = self._last_duration = 0.0
        self._timer: Timer | None = None

    def record_activity_and_schedule_collection(self) -> None:
        """Record a key or mouse event and schedule a collection."""
        self._last_activity = time.monotonic()
        if self._timer is None:
            self._schedule_garbage_collection(IDLE_SECONDS)

    def _schedule_garbage_collection(self, seconds: float) -> None:
        self._timer = self._app.set_timer(seconds, self._collect_garbage_or_postpone)

    def _collect_garbage_or_postpone(self) -> None:
        left = self._last_activity + IDLE_SECONDS - time.monotonic()
        # While something large is loading, its objects are not frozen yet, so a collection would be slow.
        if _pause_lock.locked() or (left > 0 and self._last_duration > SHORT_COLLECTION_SECONDS):
            self._schedule_garbage_collection(left if left > 0 else IDLE_SECONDS)
            return
        began = time.thread_time()
        gc.collect()  # Only a full collection frees the reference cycles of painted strips.
        self._last_duration = time.thread_time() - began
        self._timer = None
        if left > 0:
            self._schedule_garbage_collection(IDLE_SECONDS)


_pause_lock = threading.Lock()


@contextmanager
def pause_garbage_collection_then_freeze_objects() -> Iterator[None]:
    """Disable the garbage collector during a `with` block that loads a large document.

    After the block, all existing objects are frozen, so the collector never frees them. To free the
    document, call `free_document_in_background`.
    """
    with _pause_lock:
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            gc.enable()


def free_document_in_background(document: Any) -> None:
    """Free the memory of a large document in a thread, in small steps, so that no key is delayed."""
    threading.Thread(
        target=_free_document_in_steps, args=(document,), name="kbtui-free", daemon=True
    ).start()


def _free_document_in_steps(document: Any) -> None:
    record, document.record = document.record, None
    for pieces in (document.blocks, getattr(record, "turns", [])):
        while pieces:
            for piece in pieces[-FREED_PER_STEP:]:
                # A tool call and its result refer to each other, so break this reference cycle.
                for event in getattr(piece, "events", ()):
                    event.request = event.result = None
            del pieces[-FREED_PER_STEP:]
            time.sleep(0.001)
