"""What commands print: results on stdout, everything else on stderr; progress, questions and the pager."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import Any, Self

    from kbtui.errors import KbtuiError
    from kbtui.workspace import Workspace


def is_plain(stream: Any = None) -> bool:
    """Whether to print without colours: `NO_COLOR`, `TERM=dumb` or no terminal."""
    stream = stream or sys.stdout
    return (
        bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    )


def terminal_width() -> int:
    """The terminal's width as `shutil` tells it, whose compression modules no short command needs."""
    try:
        width = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        width = 0
    if width <= 0:
        try:
            width = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            width = 0
    return width or 80


def emit(text: str) -> None:
    """Print a result: safe and ended by a newline on a terminal, as it is on a pipe."""
    if sys.stdout.isatty():
        from kbtui.text import sanitize

        sys.stdout.write(sanitize(text).rstrip("\n") + "\n")
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()


def apply_text_policy() -> None:
    """Make text safe for a terminal as the person wants it (the setting `terminal_text`).

    Settings that cannot be read mean the default here; the commands that need them say so.
    """
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        return
    from kbtui.errors import ConfigError
    from kbtui.workspace.paths import config_home

    if os.path.isfile(config_home() + "/config.toml"):  # noqa: PTH113
        from kbtui.text import set_policy
        from kbtui.workspace.settings import load_settings

        try:
            set_policy(load_settings().terminal_text)
        except ConfigError:
            return


def decode_argument(text: str) -> str:
    """An argument as text that every library takes: bytes that are no UTF-8 become U+FFFD."""
    return os.fsencode(text).decode("utf-8", "replace")


def emit_json(value: Any) -> None:
    """Print a result as one JSON document; ASCII escapes keep it safe anywhere."""
    import json

    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=sys.stdout.isatty()) + "\n")


def write_output(workspace: Workspace, target: str, text: str) -> None:
    """Write a result to the file that `-o` names; raises `UsageError`."""
    from pathlib import Path

    from kbtui.errors import KbtuiError, UsageError
    from kbtui.workspace.workspace import write_export

    try:
        write_export(workspace, Path(target), text)
    except KbtuiError as error:
        raise UsageError(error.message, where=target, hint=error.hint) from error


def note(text: str) -> None:
    """Say something that is not the result, on stderr."""
    from kbtui.text import sanitize

    sys.stderr.write(sanitize(f"kbtui: {text}") + "\n")


def print_error(error: KbtuiError) -> None:
    """Say what went wrong, where, and what to do."""
    note(f"{error.where}: {error.message}" if error.where else error.message)
    if error.hint:
        from kbtui.text import sanitize

        sys.stderr.write(sanitize(f"  hint: {error.hint}") + "\n")


def confirm(question: str) -> bool:
    """Ask on the terminal; returns whether the answer is yes. Raises `UsageError` without a terminal."""
    from kbtui.errors import UsageError
    from kbtui.text import one_line

    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on", hint="add --yes to confirm")
    sys.stderr.write(f"{one_line(question, 'visualize')} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


SILENT_SECONDS = 0.5
"""What is done sooner says nothing."""
REFRESH_SECONDS = 0.1


class ProgressLine:
    """A line that is written over; `with Progress() as progress` takes it away at the end."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Say this, when it is time to."""
        now = time.monotonic()
        if now - self._began < SILENT_SECONDS or now - self._last < REFRESH_SECONDS * self._shown:
            return
        if not sys.stderr.isatty():
            return
        from kbtui.text import cut_to_width, one_line

        self._last, self._shown = now, True
        sys.stderr.write(f"\r\x1b[K{cut_to_width(one_line(text), terminal_width() - 1)}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def format_time_left(seconds: float) -> str:
    """How long it will take, as exactly as that can be known."""
    if seconds < 10:
        return "some seconds left"
    if seconds < 90:
        return f"about {round(seconds / 10) * 10} s left"
    return f"about {round(seconds / 60)} min left"


class ActivityLine:
    """Says on standard error what is being waited for, and for how long already.

    Nothing is said in the first half second, nor where standard error is no terminal.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            import threading

            self._ended = threading.Event()
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def _tell(self) -> None:
        began = time.monotonic()
        with ProgressLine() as progress:
            while not self._ended.wait(SILENT_SECONDS):
                progress.show(f"{self._what} … {time.monotonic() - began:.0f} s")


def print_paged(text: str) -> None:
    """Write text that is safe already, through `$PAGER`, else `less`, where stdout is a terminal.

    An empty `PAGER`, or one that cannot be started, means straight to the terminal.
    """
    command = _find_pager() if sys.stdout.isatty() and sys.stdin.isatty() else None
    if command is None or not _run_pager(command, text):
        sys.stdout.write(text)
        sys.stdout.flush()


def _find_pager() -> list[str] | None:
    if os.environ.get("TERM") == "dumb":
        return None
    chosen = os.environ.get("PAGER")
    if chosen is not None:
        import shlex

        try:
            return shlex.split(chosen) or None
        except ValueError:
            return None
    import shutil

    less = shutil.which("less")
    return [less, "-R"] if less else None


def _run_pager(command: list[str], text: str) -> bool:
    from subprocess import PIPE, Popen

    # As git does: colours pass, and what fits on the screen needs no key to leave.
    environment = {**os.environ, "LESS": os.environ.get("LESS", "FRX")}
    try:
        pager = Popen(command, stdin=PIPE, env=environment)
    except OSError:
        return False
    try:
        pager.communicate(text.encode("utf-8", "replace"))
    except KeyboardInterrupt:
        # The key was meant for the pager, which is still on the screen.
        pager.wait()
    return pager.returncode != 127
