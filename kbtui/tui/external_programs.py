"""Other programs: the user's editor, the browser, viewers."""

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


_PLUS = {"vi", "vim", "nvim", "view", "nano", "pico", "micro", "emacs", "emacsclient", "kak", "joe", "jed", "mg", "ne", "gedit"}  # fmt: skip
_COLON = {"hx", "helix", "subl", "sublime_text", "zed"}
_GOTO = {"code", "code-insiders", "codium", "cursor"}


def editor_command(editor: list[str], path: Path, line: int) -> list[str]:
    """The command that opens a file at a line, 1-based; at the top where nobody knows how."""
    name = Path(editor[0]).name.partition(".")[0]
    if line < 2:
        return [*editor, str(path)]
    if name in _PLUS:
        return [*editor, f"+{line}", str(path)]
    if name in _COLON:
        return [*editor, f"{path}:{line}"]
    if name in _GOTO:
        return [*editor, "--goto", f"{path}:{line}"]
    return [*editor, str(path)]


def edit(app: App[None], path: Path, line: int) -> None:
    """Have the editor open a file, and wait until it ends; raises `KbtuiError`."""
    from textual.app import SuspendNotSupported

    from kbtui.knowledge.authoring import find_editor, run_editor

    command = editor_command(find_editor(), path, line)
    # Textual takes it out of the environment; the editor is not ours to colour.
    environment = {**os.environ, **({"NO_COLOR": "1"} if app.no_color else {})}
    try:
        with app.suspend():
            run_editor(command, environment)
    except SuspendNotSupported as error:
        raise KbtuiError("there is no terminal to lend to an editor here") from error


def open_address(url: str) -> bool:
    """Hand a web address to the desktop; False where there is none, or it is no web address.

    Never a browser in this terminal, which the TUI has.
    """
    if not url.startswith(("https://", "http://")) or any(map(str.isspace, url)):
        return False
    if sys.platform == "darwin":
        program = "open"
    elif os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        program = "xdg-open"
    else:
        return False
    found = shutil.which(program)
    if found is None:
        return False
    null = subprocess.DEVNULL
    try:
        subprocess.Popen(
            [found, url], stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/"
        )
    except OSError:
        return False
    return True
