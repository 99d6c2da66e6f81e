"""`Estimate`: how long a piece of work still takes."""

from __future__ import annotations

import time


class Estimate:
    """How many seconds a phase has left, from its pace so far."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, int]] = {}
        self._idle: dict[str, int] = {}

    def left(self, phase: str, done: int, total: int) -> float | None:
        """Seconds; None while nothing can be said."""
        now = time.monotonic()
        began, first = self._began.get(phase, (now, done))
        if done >= total:
            self._began.pop(phase, None)
            return None
        # The pace is counted from the first thing done: what came before was loading.
        if phase not in self._began or done < first or done == self._idle.get(phase):
            self._began[phase] = (now, done)
            self._idle[phase] = done
            return None
        self._idle.pop(phase, None)
        if now - began < 1.0 or done == first:
            return None
        return round((total - done) * (now - began) / (done - first), 1)
