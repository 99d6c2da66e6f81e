"""The terminal below the screen: file descriptor 2 while the screen is ours, and a hang-up.

Textual draws on standard error. Native libraries write there too, past Python,
and would tear the screen: so their descriptor 2 is a log file meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kbtui.workspace.paths import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


LOG_MOST = 1_000_000
"""A longer log (bytes) begins anew; a shorter one may say why the last screen ended."""


class StderrRedirect:
    """Keeps descriptor 2 apart from the terminal; `aside` gives it back for a while."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._terminal: int | None = None

    def set(self) -> None:
        """Draw on a descriptor of our own, and let 2 be the log file."""
        if self._terminal is not None:
            return
        # `kbtui 2>log`: standard error is kept as it is, and the screen is standard output.
        if not os.isatty(2):
            self._draw_on(1)
            return
        try:
            make_private(self._log.parent)
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if os.fstat(log).st_size > LOG_MOST:
                os.ftruncate(log, 0)
        except OSError:
            log = os.open(os.devnull, os.O_WRONLY)
        self._terminal = os.dup(2)
        self._draw_on(2)
        os.dup2(log, 2)
        os.close(log)

    def _draw_on(self, descriptor: int) -> None:
        """Give Textual a copy of a descriptor to draw on."""
        sys.__stderr__ = os.fdopen(  # type: ignore[misc]
            os.dup(descriptor), "w", encoding="utf-8", errors="replace", buffering=1
        )

    def lift(self) -> None:
        """Make descriptor 2 the terminal again."""
        if self._terminal is not None:
            os.dup2(self._terminal, 2)
            os.close(self._terminal)
            self._terminal = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """For as long as another program has the terminal."""
        was_set = self._terminal is not None
        self.lift()
        try:
            yield
        finally:
            if was_set:
                self.set()


def leave_when_told(leave: Callable[[], object]) -> None:
    """Call `leave` on SIGTERM, in the running loop: the terminal must be given back as it was."""
    import asyncio

    with suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)


def end_with_terminal() -> None:
    """From now on, end as by SIGHUP when the terminal is closed, also where nobody sends that.

    Without its terminal Textual would wait for ever: for a thread that can write no more, while
    another reads the end of the input over and over.
    """
    if sys.__stdin__ is None or not sys.__stdin__.isatty():
        return
    threading.Thread(target=_wait_for_hangup, args=(sys.__stdin__.fileno(),), daemon=True).start()


def _wait_for_hangup(terminal: int) -> None:
    poll = select.poll()
    poll.register(terminal, 0)
    while not any(state & select.POLLHUP for _, state in poll.poll()):
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(1.0)
    os._exit(128 + signal.SIGHUP)  # it is ignored, as below `nohup`: without a screen none the less
