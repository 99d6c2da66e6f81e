"""Copying to the terminal (OSC 52), which may be remote, and to the clipboard of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from kbtui.text import sanitize

if TYPE_CHECKING:
    from textual.app import App

MAX_TERMINAL_BYTES = 74_000
"""Bytes that terminals are known to take in one sequence."""
COMMAND_TIMEOUT_SECONDS = 2.0


def copy_text(app: App[None], text: str) -> str | None:
    """Copy a text to the terminal and to this machine; returns a warning if neither can take it.

    The text may be pasted into a shell, so control sequences and hidden characters are removed.
    """
    text = sanitize(text, "strip")
    fits = len(text.encode("utf-8", "replace")) <= MAX_TERMINAL_BYTES
    if fits:
        app.copy_to_clipboard(text)
    command = find_clipboard_command()
    if command is not None:
        # In a thread: a program that stays to serve the clipboard would block the screen.
        threading.Thread(target=_run_clipboard_command, args=(command, text), daemon=True).start()
    elif not fits:
        return "too much for the terminal's clipboard"
    return None


def find_clipboard_command() -> list[str] | None:
    """The program that fills this machine's clipboard; None where there is none, or over ssh."""
    if os.environ.get("SSH_CONNECTION"):
        return None
    candidates: list[list[str]] = []
    if sys.platform == "darwin":
        candidates.append(["pbcopy"])
    if os.environ.get("WAYLAND_DISPLAY"):
        candidates.append(["wl-copy"])
    if os.environ.get("DISPLAY"):
        candidates += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    return next((command for command in candidates if shutil.which(command[0])), None)


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
    """How much was copied, for people."""
    lines = text.count("\n") + 1
    return f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
