"""Copying: to the terminal (OSC 52), which may be far away, and to the clipboard of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from kbtui.text import safe

if TYPE_CHECKING:
    from textual.app import App

TERMINAL_MOST = 74_000
"""Bytes that terminals are known to take in one sequence."""
SECONDS = 2.0


def copy(app: App[None], text: str) -> str | None:
    """Copy a text both ways; gives a warning where neither can be expected to have all of it.

    It may be pasted into a shell: what hides or commands is taken out, whatever is shown here.
    """
    text = safe(text, "strip")
    whole = len(text.encode("utf-8", "replace")) <= TERMINAL_MOST
    if whole:
        app.copy_to_clipboard(text)
    else:
        app._clipboard = text
    command = local_command()
    if command is not None:
        # A program that goes on to offer what was copied must not hold the screen.
        import threading

        threading.Thread(target=_give, args=(command, text), daemon=True).start()
    elif not whole:
        return "too much for the terminal's clipboard"
    return None


def local_command() -> list[str] | None:
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


def _give(command: list[str], text: str) -> None:
    """Called in a thread."""
    import contextlib

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )


def size_of(text: str) -> str:
    """How much was copied, for people."""
    lines = text.count("\n") + 1
    return f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
