"""Prints the output of commands: results to stdout; messages, progress and questions to stderr."""

from __future__ import annotations

import os
import sys
import time

from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.terminal_text import (
    cut_to_width,
    sanitize,
    sanitize_to_one_line,
    set_sanitize_policy,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import Any, Self

    from kbtui.index.index_reader import IndexReader
    from kbtui.library import Library
    from kbtui.workspace import Workspace


def are_colors_off() -> bool:
    """Return whether standard output must be written without colours."""
    is_dumb = os.environ.get("TERM") == "dumb"
    return bool(os.environ.get("NO_COLOR")) or is_dumb or not sys.stdout.isatty()


def get_terminal_width() -> int:
    """Return the number of columns of the terminal, without the slow import of `shutil`."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


def print_result(text: str) -> None:
    """Print a result.

    For a terminal, the text is sanitized and ends with a newline. Otherwise, it is printed
    unchanged.
    """
    if sys.stdout.isatty():
        sys.stdout.write(sanitize(text).rstrip("\n") + "\n")
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()


def apply_terminal_text_setting() -> None:
    """Make `sanitize` follow the setting `terminal_text`.

    If the settings are invalid, keep the default; commands that need the settings report the error.
    """
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        return
    from kbtui.workspace.paths import get_kbtui_config_directory

    if os.path.isfile(get_kbtui_config_directory() + "/config.toml"):  # noqa: PTH113
        from contextlib import suppress

        from kbtui.workspace.user_settings import load_settings

        with suppress(ConfigError):
            set_sanitize_policy(load_settings().terminal_text)


def decode_command_argument(text: str) -> str:
    """Return an argument of the command line as valid Unicode; invalid bytes become U+FFFD."""
    return os.fsencode(text).decode("utf-8", "replace")


def print_json_result(value: Any) -> None:
    """Print a result as one JSON document; for a terminal, escape all characters outside ASCII."""
    sys.stdout.write(format_indented_json(value, ensure_ascii=sys.stdout.isatty()) + "\n")


def format_indented_json(value: Any, *, ensure_ascii: bool) -> str:
    """Return what `json.dumps` returns with `indent=2`.

    `json` is imported only for values that this function cannot format itself, because `json` imports
    `re`. This import would take a sixth of the time of `kbtui search --json`.
    """
    from _json import encode_basestring, encode_basestring_ascii

    encode_text = encode_basestring_ascii if ensure_ascii else encode_basestring

    def format_value(value: Any, line_break: str) -> str:
        kind, inner = type(value), f"{line_break}  "
        if kind is str:
            return encode_text(value)
        if kind is dict:
            parts = [f"{encode_text(key)}: {format_value(value[key], inner)}" for key in value]
            return f"{{{inner}{f',{inner}'.join(parts)}{line_break}}}" if parts else "{}"
        if kind is list:
            parts = [format_value(member, inner) for member in value]
            return f"[{inner}{f',{inner}'.join(parts)}{line_break}]" if parts else "[]"
        if value is None or kind is bool:
            return {None: "null", True: "true", False: "false"}[value]
        if kind is int or (kind is float and value - value == 0):
            return repr(value)
        raise TypeError

    try:
        return format_value(value, "\n")
    except TypeError:
        import json

        return json.dumps(value, indent=2, ensure_ascii=ensure_ascii)


def print_text_or_json(text: str, value: Any, as_json: bool) -> None:
    """Print a result as text or, if `as_json` is true, as one JSON document."""
    if as_json:
        print_json_result(value)
    else:
        print_result(text)


def write_output_file(workspace: Workspace, target: str, text: str) -> None:
    """Write a result to the file `target`, the value of the option `-o`.

    Raises `UsageError` if the path is empty. Also raises the errors of `write_text_to_export_file`.
    """
    from pathlib import Path

    from kbtui.workspace.workspace import write_text_to_export_file

    if not target:
        raise UsageError("the path is empty", where="-o", hint="write `-o FILE`, or omit `-o`")
    write_text_to_export_file(workspace, Path(target), text)


def print_to_stderr(text: str, prefix: str = "kbtui: ") -> None:
    """Print a message on stderr."""
    sys.stderr.write(sanitize(prefix + text) + "\n")


def print_error(error: KbtuiError) -> None:
    """Print an error on stderr: where it happened, the message, and the hint on a second line."""
    print_to_stderr(f"{error.where}: {error.message}" if error.where else error.message)
    if error.hint:
        print_to_stderr(error.hint, "  hint: ")


def ask_for_confirmation(question: str) -> bool:
    """Ask a yes-or-no question on the terminal. Raises `UsageError` if there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            "cannot ask for confirmation without a terminal", hint="add --yes to confirm"
        )
    sys.stderr.write(f"{sanitize_to_one_line(question, 'visualize')} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


SILENT_SECONDS = 0.5
"""How many seconds an activity runs before its progress is shown."""
REFRESH_SECONDS = 0.1


class ProgressLine:
    """A line on stderr that shows the latest progress text, and is cleared at the end of a `with` block."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear_line()

    def show_progress(self, text: str) -> None:
        """Show a progress text on a terminal.

        Shows nothing in the first `SILENT_SECONDS`. After that, shows at most one text every
        `REFRESH_SECONDS`.
        """
        now = time.monotonic()
        if now - self._began < SILENT_SECONDS or now - self._last < REFRESH_SECONDS * self._shown:
            return
        if not sys.stderr.isatty():
            return
        self._last, self._shown = now, True
        sys.stderr.write(
            f"\r\x1b[K{cut_to_width(sanitize_to_one_line(text), get_terminal_width() - 1)}"
        )
        sys.stderr.flush()

    def clear_line(self) -> None:
        """Remove the progress text from the terminal."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def format_time_left(seconds: float) -> str:
    """Format the estimated remaining time, rounded."""
    if seconds < 10:
        return "a few seconds left"
    if seconds < 90:
        return f"about {round(seconds / 10) * 10} s left"
    return f"about {round(seconds / 60)} min left"


class StderrWaitIndicator:
    """Shows on stderr what a command is waiting for, and the seconds since the wait began."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            import threading

            self._ended = threading.Event()
            self._thread = threading.Thread(target=self._show_elapsed_seconds, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def _show_elapsed_seconds(self) -> None:
        began = time.monotonic()
        with ProgressLine() as progress:
            while not self._ended.wait(SILENT_SECONDS):
                progress.show_progress(f"{self._what} … {time.monotonic() - began:.0f} s")


def update_and_open_index(library: Library) -> IndexReader:
    """Bring the index up to date, print its notices on stderr, and return a reader."""
    with StderrWaitIndicator("bringing the index up to date"):
        library.request_index_update_and_wait()
        reader = library.open_index_reader()
    if library.index_notices_text:
        print_to_stderr(library.index_notices_text)
    return reader


def print_through_pager(text: str) -> None:
    """Print text that is already sanitized. On a terminal, use the pager `$PAGER` or `less`."""
    command = _find_pager_command() if sys.stdout.isatty() and sys.stdin.isatty() else None
    if command is None or not _run_pager(command, text):
        sys.stdout.write(text)
        sys.stdout.flush()


def _find_pager_command() -> list[str] | None:
    if os.environ.get("TERM") == "dumb":
        return None
    import shlex
    import shutil

    chosen = os.environ.get("PAGER")
    if chosen is None:
        less = shutil.which("less")
        return [less, "-R"] if less else None
    try:
        return shlex.split(chosen) or None
    except ValueError:
        return None


def _run_pager(command: list[str], text: str) -> bool:
    from subprocess import PIPE, Popen

    # The options that git passes to `less`: keep colours, and exit if the text fits on one screen.
    environment = {**os.environ, "LESS": os.environ.get("LESS", "FRX")}
    try:
        pager = Popen(command, stdin=PIPE, env=environment)
    except OSError:
        return False
    try:
        pager.communicate(text.encode("utf-8", "replace"))
    except KeyboardInterrupt:
        # The user pressed Ctrl+C in the pager, which is still open.
        pager.wait()
    return pager.returncode != 127
