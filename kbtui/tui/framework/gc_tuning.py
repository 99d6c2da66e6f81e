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

MANY = 5_000
"""Objects from which freezing is worth it."""
YOUNG = 2_000
"""Allocations before a collection of the youngest; Python's default is 700, and a paint makes 20,000."""
SELDOM = 500
"""Younger collections before a full one; Python's default is 10."""
REST_SECONDS = 1.0
"""After this long without a key a full collection is not noticed."""
SHORT = 0.008
"""Seconds that a full collection may take between two keys."""

_settled = 0


def settle(count: int) -> None:
    """Set aside what lives now, if since the last time `count` things became many more.

    Not more often, because whatever is garbage at this moment stays too.
    """
    global _settled
    if count >= _settled + MANY:
        _settled = count
        gc.freeze()


def begun() -> None:
    """The first screen is there: set aside what it is made of, and let the collector begin.

    Whoever starts the TUI may have held it off, because nothing that is loaded is garbage.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, 10, SELDOM)
    gc.enable()


class IdleCollector:
    """Has everything collected each second that somebody does something, as long as that is short.

    Otherwise it waits until nobody has touched a key or the mouse for a while. What was
    painted is garbage that only the collector finds, so little at a time is best.
    """

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._touched = 0.0
        self._timer: Timer | None = None
        self._took = 0.0

    def touched(self) -> None:
        """Somebody did something, and will do more at once."""
        self._touched = time.monotonic()
        if self._timer is None:
            self._wait(REST_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._timer = self._app.set_timer(seconds, self._look)

    def _look(self) -> None:
        left = self._touched + REST_SECONDS - time.monotonic()
        # What is just being read is not set aside yet.
        if _calm.locked() or (left > 0 and self._took > SHORT):
            self._wait(left if left > 0 else REST_SECONDS)
            return
        began = time.thread_time()
        gc.collect()
        self._took = time.thread_time() - began
        self._timer = None
        if left > 0:
            self._wait(REST_SECONDS)


_calm = threading.Lock()


@contextmanager
def undisturbed() -> Iterator[None]:
    """While something big is read the collector does not look at it; afterwards it never does.

    What is read so must not depend on the collector to go: see `let_go`.
    """
    with _calm:
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            gc.enable()


class BigDocument(Protocol):
    """What is shown: a record, and blocks made of its turns."""

    record: Any
    blocks: list[Any]


def let_go(document: BigDocument) -> None:
    """Give back a big document that is shown no more, in a thread and bit by bit.

    Dropped at once, the event loop would stand still until all of it was given back.
    """
    threading.Thread(target=_let_go, args=(document,), name="kbtui-let-go", daemon=True).start()


def _let_go(document: BigDocument) -> None:
    record, document.record = document.record, None
    for pieces in (document.blocks, getattr(record, "turns", [])):
        while pieces:
            for piece in pieces[-BIT:]:
                # A call and its result know each other: only the collector would part them.
                for event in getattr(piece, "events", ()):
                    event.request = event.result = None
            del pieces[-BIT:]
            time.sleep(0.001)


BIT = 100
"""Blocks or turns that are given back at once."""
