"""Listening to the engine for as long as a face is open."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kbtui.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kbtui.engine.protocol import EngineClient

AGAIN_SECONDS = (0.2, 1.0, 5.0, 15.0, 30.0)


class EventListener:
    """A thread that passes the engine's events on, and starts the engine again when it went."""

    def __init__(
        self, connect: Callable[[], EngineClient], hear: Callable[[dict[str, Any]], object]
    ) -> None:
        self._connect, self._hear = connect, hear
        self._client: EngineClient | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; nothing is heard afterwards."""
        self._stop.set()
        if self._client is not None:
            self._client.close()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            reason = "the engine went away"
            try:
                self._client = self._connect()
                for event in self._client.events():
                    if self._stop.is_set():
                        return
                    failures = 0
                    self._hear(event)
            except EngineUnavailable as error:
                reason = error.message
            if self._stop.is_set():
                return
            self._hear({"event": "gone", "reason": reason})
            self._stop.wait(AGAIN_SECONDS[min(failures, len(AGAIN_SECONDS) - 1)])
            failures += 1
