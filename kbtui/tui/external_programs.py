"""Start other programs: the user's editor, the web browser, a viewer for images and PDFs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError

if TYPE_CHECKING:
    from textual.app import App

# Editors, grouped by how their command line takes a line number: `+12 FILE`, `FILE:12`, `--goto FILE:12`.
_PLUS = {"vi", "vim", "nvim", "view", "nano", "pico", "micro", "emacs", "emacsclient", "kak", "joe", "jed", "mg", "ne", "gedit"}  # fmt: skip
_COLON = {"hx", "helix", "subl", "sublime_text", "zed"}
_GOTO = {"code", "code-insiders", "codium", "cursor"}


def build_editor_command(editor: list[str], path: Path, line: int) -> list[str]:
    """Return the command that opens `path` at `line` (1-based), or at the top if the editor is unknown."""
    name = Path(editor[0]).name.partition(".")[0]
    if line >= 2:
        if name in _PLUS:
            return [*editor, f"+{line}", str(path)]
        if name in _COLON:
            return [*editor, f"{path}:{line}"]
        if name in _GOTO:
            return [*editor, "--goto", f"{path}:{line}"]
    return [*editor, str(path)]


def edit_file(app: App[None], path: Path, line: int) -> None:
    """Suspend the TUI, run the user's editor in the terminal, and wait until it ends.

    Raises `KbtuiError` if there is no editor or no terminal, or if the editor fails.
    """
    from textual.app import SuspendNotSupported

    from kbtui.knowledge.authoring import find_editor_command, run_editor

    command = build_editor_command(find_editor_command(), path, line)
    # Textual removes NO_COLOR from the environment; the editor should still see it.
    environment = {**os.environ, **({"NO_COLOR": "1"} if app.no_color else {})}
    try:
        with app.suspend():
            run_editor(command, environment)
    except SuspendNotSupported as error:
        raise KbtuiError("cannot start an editor: this session has no terminal") from error


def open_web_address(app: App[None], url: str) -> bool:
    """Open a web address in the user's browser; return False if there is no browser to start.

    Use Textual's `App.open_url` only if the TUI itself runs in a browser: in a terminal, that
    method may start a text browser, which would draw over the TUI.
    """
    if not url.startswith(("https://", "http://")) or any(map(str.isspace, url)):
        return False
    if app.is_web:
        app.open_url(url)
        return True
    has_desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(sys.platform == "darwin" or has_desktop) and _start_default_program(url)


def open_file(path: Path) -> bool:
    """Open a file with the system's default program; return False if there is none."""
    return _start_default_program(str(path))


def _start_default_program(target: str) -> bool:
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
