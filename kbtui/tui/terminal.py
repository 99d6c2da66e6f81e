"""The terminal: its background colour, standard error while the TUI runs, hang-ups."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

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


WAIT_SECONDS = 0.3
"""How long a terminal may take; `FAR_SECONDS` over ssh. Those that answer anything do at once."""
FAR_SECONDS = 1.0
MUTE = {"", "dumb", "linux", "unknown"}
"""Values of TERM whose terminals would print the question, or never answer."""

_QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
# The second question is one that every terminal answers: whoever has answered it will say no more.
_COLOR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F/]+)(?:\x07|\x1b\\)")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[0-9;]*c")


class TerminalBackground(NamedTuple):
    """What was learnt: whether it is dark, None if unknown; and what was typed meanwhile."""

    dark: bool | None
    typed: str = ""


def ask_background() -> TerminalBackground:
    """Ask the terminal (OSC 11), else the environment (`COLORFGBG`)."""
    if os.environ.get("TERM", "") in MUTE:
        return TerminalBackground(_from_environment())
    try:
        answer = _asked()
    except (ImportError, OSError, ValueError):
        return TerminalBackground(_from_environment())
    found = _COLOR.search(answer)
    typed = _ATTRIBUTES.sub(b"", _COLOR.sub(b"", answer)).decode("utf-8", "ignore")
    dark = is_dark(found[1].decode()) if found else None
    return TerminalBackground(_from_environment() if dark is None else dark, typed)


def _asked() -> bytes:
    """The terminal's answers, with whatever else came in."""
    import select
    import termios
    import tty
    from time import monotonic

    source, target = sys.stdin.fileno(), sys.stdout.fileno()
    if not (os.isatty(source) and os.isatty(target)):
        return b""
    before = termios.tcgetattr(source)
    answer = b""
    try:
        tty.setcbreak(source, termios.TCSANOW)
        os.write(target, _QUESTION)
        end = monotonic() + (FAR_SECONDS if os.environ.get("SSH_CONNECTION") else WAIT_SECONDS)
        while not _ATTRIBUTES.search(answer) and (left := end - monotonic()) > 0:
            if not select.select([source], [], [], left)[0]:
                break
            answer += os.read(source, 1024)
    finally:
        termios.tcsetattr(source, termios.TCSANOW, before)
    return answer


def is_dark(color: str) -> bool | None:
    """Whether `RRRR/GGGG/BBBB`, of one to four hexadecimal digits each, is a dark colour."""
    parts = color.split("/")[:3]
    try:
        red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in parts)
    except (ValueError, ZeroDivisionError):
        return None
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)


def _from_environment() -> bool | None:
    """What `COLORFGBG` says, as `15;0` or `0;default;15`; None when it says nothing."""
    last = os.environ.get("COLORFGBG", "").split(";")[-1]
    return None if not last.isdigit() else int(last) in {0, 1, 2, 3, 4, 5, 6, 8}
