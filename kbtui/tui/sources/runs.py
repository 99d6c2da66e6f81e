"""Runs of sources that were started from the screen: how far each is, and ending one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump

    from kbtui.library import Library
    from kbtui.sources.models import SourceProgress
    from kbtui.userdata.models import Run

    Ended = Callable[[str, "Run | Exception"], None]


@dataclass
class _Job:
    stop: threading.Event = field(default_factory=threading.Event)
    progress: SourceProgress | None = None


class Runs:
    """Runs each source in a thread of its own; `moved` and `ended` are called on the owner's loop."""

    def __init__(
        self, owner: MessagePump, library: Library, moved: Callable[[], None], ended: Ended
    ) -> None:
        self._owner, self._library = owner, library
        self._moved, self._ended = moved, ended
        self._jobs: dict[str, _Job] = {}

    @property
    def progress(self) -> dict[str, SourceProgress | None]:
        """The sources that run, and how far each is."""
        return {name: job.progress for name, job in self._jobs.items()}

    def start(self, name: str) -> bool:
        """Run a source; False when it runs already."""
        if name in self._jobs:
            return False
        job = self._jobs[name] = _Job()
        thread = threading.Thread(
            target=self._run, args=(name, job), name=f"source-{name}", daemon=True
        )
        thread.start()
        return True

    def stop(self, name: str) -> bool:
        """End a run; False where there is none."""
        job = self._jobs.get(name)
        if job is not None:
            job.stop.set()
        return job is not None

    def stop_all(self) -> None:
        """End every run."""
        for job in self._jobs.values():
            job.stop.set()

    def _run(self, name: str, job: _Job) -> None:
        from kbtui.sources import run_source

        def say(progress: SourceProgress) -> None:
            job.progress = progress
            self._owner.call_later(self._moved)

        try:
            outcome: Run | Exception = run_source(
                self._library.workspace, name, say=say, stopped=job.stop.is_set
            )
        except Exception as error:
            outcome = error
        self._owner.call_later(self._end, name, outcome)

    def _end(self, name: str, outcome: Run | Exception) -> None:
        self._jobs.pop(name, None)
        self._ended(name, outcome)
