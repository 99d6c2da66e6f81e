"""Opens web addresses and files in other programs, runs programs in the terminal, and copies text."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

from textual.app import App, SuspendNotSupported

from kbtui.errors import KbtuiError, UsageError
from kbtui.terminal_text import format_counted_noun, sanitize

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")


def run_in_terminal(
    app: App[None],
    work: Callable[[], T],
    on_done: Callable[[T], object],
    on_error: Callable[[Exception], object],
    program: str = "an editor",
    hint: str | None = None,
) -> None:
    """Suspend the TUI, and run `work` in the terminal. Then call `on_done` with the result.

    If `work` raises an error, call `on_error` with the error. If the TUI cannot be suspended, call
    `on_error` with an error that mentions `program` and contains `hint`.
    """
    try:
        with app.suspend():
            result = work()
    except SuspendNotSupported:
        on_error(UsageError(f"{program} cannot be started in this terminal", hint=hint))
    except (KbtuiError, OSError, ValueError) as error:
        on_error(error)
    else:
        on_done(result)


def open_web_address_in_browser(app: App[None], url: str) -> bool:
    """Open a web address in the user's browser. Return whether a browser could be started."""
    if not url.startswith(("https://", "http://")) or any(map(str.isspace, url)):
        return False
    if app.is_web:
        # Use `open_url` only here: in a terminal, it may start a text browser, which would draw over the TUI.
        app.open_url(url)
        return True
    has_desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(sys.platform == "darwin" or has_desktop) and open_in_default_program(url)


def open_in_default_program(target: str) -> bool:
    """Open a file or web address with the system's default program. Return whether that was possible."""
    program = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if program is None:
        return False
    null = subprocess.DEVNULL
    command = [program, target]
    try:
        subprocess.Popen(
            command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/"
        )
    except OSError:
        return False
    return True


MAX_TERMINAL_BYTES = 74_000
"""A text of more bytes is not sent to the terminal's clipboard, because common terminals reject it."""
COMMAND_TIMEOUT_SECONDS = 2.0


def copy_text_to_clipboards(app: App[None], text: str) -> str | None:
    """Sanitize a text and copy it to the clipboards of the terminal and of this machine.

    If neither clipboard can store the text, return a warning, otherwise None.
    """
    # The text may be pasted into a shell.
    text = sanitize(text, "strip")
    fits = len(text.encode("utf-8", "replace")) <= MAX_TERMINAL_BYTES
    if fits:
        app.copy_to_clipboard(text)
    command = find_clipboard_command()
    if command is not None:
        # Run it in a thread, because some clipboard programs keep running to serve the text.
        threading.Thread(target=_run_clipboard_command, args=(command, text), daemon=True).start()
    elif not fits:
        return "too long for the terminal's clipboard"
    return None


def find_clipboard_command() -> list[str] | None:
    """Return the command that copies to this machine's clipboard.

    Return None in an SSH session, or if no such command is installed.
    """
    if os.environ.get("SSH_CONNECTION"):
        return None
    wayland, x11 = os.environ.get("WAYLAND_DISPLAY"), os.environ.get("DISPLAY")
    candidates = (
        (sys.platform == "darwin", ["pbcopy"]),
        (wayland, ["wl-copy"]),
        (x11, ["xclip", "-selection", "clipboard"]),
        (x11, ["xsel", "--clipboard", "--input"]),
    )
    usable = (command for applies, command in candidates if applies and shutil.which(command[0]))
    return next(usable, None)


def _run_clipboard_command(command: list[str], text: str) -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )


def format_copied_size(text: str) -> str:
    """Return the size of a text, such as "12 lines", or "40 characters" for a single line."""
    if "\n" in text:
        return format_counted_noun(text.count("\n") + 1, "line")
    return format_counted_noun(len(text), "character")
