"""Prepares the terminal: detects the background colour, redirects standard error, and handles signals."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kbtui.workspace.paths import make_private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_LOG_BYTES = 1_000_000
"""The maximum size in bytes of the log. When kbtui starts, it empties a larger log."""
ANSWER_SECONDS = 0.3
"""A terminal on this machine has this many seconds to report its background colour."""
REMOTE_ANSWER_SECONDS = 1.0
"""Over SSH, a terminal has this many seconds to report its background colour."""
SILENT_TERMINALS = {"", "dumb", "linux", "unknown"}
"""The values of TERM for which kbtui does not ask the terminal for its background colour."""

# OSC 11 asks for the background colour. A request for the device attributes follows. Every terminal
# answers this request, so reading can stop even if the terminal ignores OSC 11.
_QUERY = b"\x1b]11;?\x1b\\\x1b[c"
_COLOR_ANSWER = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F/]+)(?:\x07|\x1b\\)")
_ATTRIBUTES_ANSWER = re.compile(rb"\x1b\[\?[0-9;]*c")


class StderrRedirect:
    """Redirects standard error to a log file.

    The output that native libraries write to descriptor 2 would garble the screen. Textual draws on
    a copy of the original descriptor.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._terminal: int | None = None

    def redirect_stderr(self) -> None:
        """Point descriptor 2 at the log file."""
        if self._terminal is not None:
            return
        # With `kbtui 2>log`, leave standard error as it is, and draw on standard output.
        if not os.isatty(2):
            self._set_textual_output_descriptor(1)
            return
        try:
            make_private_directory(self._log.parent)
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if os.fstat(log).st_size > MAX_LOG_BYTES:
                os.ftruncate(log, 0)
        except OSError:
            log = os.open(os.devnull, os.O_WRONLY)
        self._terminal = os.dup(2)
        self._set_textual_output_descriptor(2)
        os.dup2(log, 2)
        os.close(log)

    def _set_textual_output_descriptor(self, descriptor: int) -> None:
        sys.__stderr__ = os.fdopen(  # type: ignore[misc]
            os.dup(descriptor), "w", encoding="utf-8", errors="replace", buffering=1
        )

    def restore_stderr(self) -> None:
        """Point descriptor 2 at the terminal again."""
        if self._terminal is not None:
            os.dup2(self._terminal, 2)
            os.close(self._terminal)
            self._terminal = None

    @contextmanager
    def restore_stderr_temporarily(self) -> Iterator[None]:
        """Send standard error to the terminal while another program uses the terminal."""
        was_started = self._terminal is not None
        self.restore_stderr()
        try:
            yield
        finally:
            if was_started:
                self.redirect_stderr()


def exit_on_sigterm(leave: Callable[[], object]) -> None:
    """Make SIGTERM call `leave` in the running event loop, so that the app restores the terminal."""
    import asyncio

    with suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)


def exit_when_terminal_closes() -> None:
    """End the process when the terminal is closed.

    Without this function, kbtui would end only if it received SIGHUP.
    """
    if sys.__stdin__ is not None and sys.__stdin__.isatty():
        terminal = sys.__stdin__.fileno()
        threading.Thread(
            target=_wait_for_terminal_hangup_and_exit, args=(terminal,), daemon=True
        ).start()


def _wait_for_terminal_hangup_and_exit(terminal: int) -> None:
    poll = select.poll()
    poll.register(terminal, 0)
    while not any(state & select.POLLHUP for _, state in poll.poll()):
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(1.0)
    os._exit(128 + signal.SIGHUP)  # Under `nohup`, the process ignores SIGHUP.


class TerminalBackgroundQuery:
    """Asks the terminal for its background colour when constructed, and reads the answer later.

    Meanwhile, kbtui imports modules instead of waiting for a distant terminal. `read_answer` also returns
    what the user has typed in the meantime.
    """

    def __init__(self) -> None:
        self._deadline = 0.0
        self._former_mode: list[Any] | None = None
        """The mode of the terminal before the query; None if the terminal was not asked."""
        if os.environ.get("TERM", "") not in SILENT_TERMINALS:
            with suppress(ImportError, OSError, ValueError):
                self._send_query()

    def _send_query(self) -> None:
        import termios
        import tty

        source, target = sys.stdin.fileno(), sys.stdout.fileno()
        if not (os.isatty(source) and os.isatty(target)):
            return
        self._former_mode = termios.tcgetattr(source)
        tty.setcbreak(source, termios.TCSANOW)
        os.write(target, _QUERY)
        is_remote = os.environ.get("SSH_CONNECTION")
        self._deadline = time.monotonic() + (REMOTE_ANSWER_SECONDS if is_remote else ANSWER_SECONDS)

    def read_answer(self) -> tuple[bool | None, str]:
        """Wait for the answer, and restore the mode of the terminal.

        Return whether the background is dark (None if this is unknown), and the text that the user
        has typed since the query. If the terminal does not answer the query (OSC 11), use the
        environment variable `COLORFGBG` instead.
        """
        answer = b""
        if self._former_mode is not None:
            with suppress(OSError, ValueError):
                answer = self._read_until_answer_or_deadline(self._former_mode)
        color = _COLOR_ANSWER.search(answer)
        typed = _ATTRIBUTES_ANSWER.sub(b"", _COLOR_ANSWER.sub(b"", answer))
        dark = is_terminal_color_dark(color[1].decode()) if color else None
        last = os.environ.get("COLORFGBG", "").split(";")[-1]  # as in `15;0` or `0;default;15`
        if dark is None and last.isdigit():
            dark = int(last) in {0, 1, 2, 3, 4, 5, 6, 8}
        return dark, typed.decode("utf-8", "ignore")

    def _read_until_answer_or_deadline(self, former_mode: list[Any]) -> bytes:
        import termios

        source, answer = sys.stdin.fileno(), b""
        try:
            while not _ATTRIBUTES_ANSWER.search(answer):
                # Even after the deadline, read what has arrived: the imports may have taken longer.
                left = max(0.0, self._deadline - time.monotonic())
                if not select.select([source], [], [], left)[0]:
                    break
                if not (received := os.read(source, 1024)):
                    break
                answer += received
        finally:
            termios.tcsetattr(source, termios.TCSANOW, former_mode)
        return answer


def is_terminal_color_dark(color: str) -> bool | None:
    """Return whether the colour `RRRR/GGGG/BBBB` is dark, or None if the colour is invalid.

    Each of the three numbers has one to four hex digits.
    """
    parts = color.split("/")[:3]
    try:
        red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in parts)
    except (ValueError, ZeroDivisionError):
        return None
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)
