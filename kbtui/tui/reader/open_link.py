"""Where a link of what is being read leads: a subject here, a file of the workspace, a page on the web.

Another program gets nothing before a person has seen what it is.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kbtui.tui.framework.dialogs import DialogOption, OptionsDialog
from kbtui.tui.navigation import place_of
from kbtui.tui.reader.links import subject_behind

if TYPE_CHECKING:
    from kbtui.tui.main.item_actions import ActingScreen
    from kbtui.tui.reader.links import Link

SHOWN = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".avif", ".tif", ".tiff", ".pdf"}
"""Endings of files that the system's own program is asked to show; no others, which it might run."""


def follow(screen: ActingScreen, link: Link) -> None:
    """Open a subject that a link names; anything else after showing where it leads."""
    if link.is_web:
        _ask(screen, link.href, "open it in the browser", "given to the browser")
        return
    # A picture beside a topic's subjects looks like one of them, and cannot be read.
    path = file_behind(link.href, _folder(screen), screen.library.workspace.root)
    if path is not None:
        _ask(screen, str(path), "open it with the system's program", "given to the system", path)
        return
    here = screen.navigator.shown.ref if screen.navigator.shown else None
    ref = None
    if here is not None and here.kind == "subject":
        ref = subject_behind(link.href, here.topic or "", here.slug or "")
    contents = screen.navigator.contents
    if ref and contents and contents.subject(ref.topic or "", ref.slug or ""):
        screen.open(place_of(ref))
        return
    screen.status.flash(
        f"{link.href} is no subject, no page on the web, and no image or PDF of this workspace",
        "warning",
    )


def _folder(screen: ActingScreen) -> Path:
    """The directory that relative addresses start from."""
    path = getattr(screen.reader_pane.reader.document.record, "path", None)
    return path.parent if isinstance(path, Path) else screen.library.workspace.root


def file_behind(href: str, folder: Path, root: Path) -> Path | None:
    """The image or PDF within `root` that an address names; None for everything else."""
    written = unquote(href.removeprefix("file://").partition("#")[0].partition("?")[0])
    if not written or "\0" in written:
        return None
    try:
        path = (folder / written).resolve()
        inside = path.is_relative_to(root.resolve())
        return path if inside and path.suffix.lower() in SHOWN and path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _ask(screen: ActingScreen, what: str, offer: str, said: str, path: Path | None = None) -> None:
    def chosen(choice: str | None) -> None:
        if choice == "copy":
            screen.copy(what, what)
        elif choice == "open" and path is None:
            screen.app.open_url(what)
            screen.status.flash(f"{said}: {what}")
        elif choice == "open" and path is not None:
            problem = open_file(path)
            screen.status.flash(problem or f"{said}: {what}", "warning" if problem else "strong")

    name = "address" if path is None else "path"
    options = [
        DialogOption("o", offer, "", "open"),
        DialogOption("y", f"copy the {name}", "", "copy"),
    ]
    screen.app.push_screen(OptionsDialog(what, options), chosen)


def open_file(path: Path) -> str:
    """Have the system's own program show a file; gives what was wrong, "" when nothing was."""
    program = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if program is None:
        return "there is no xdg-open here to open it with"
    command = [program, str(path)]
    # It may stay until the file is closed.
    threading.Thread(target=_run, args=(command,), daemon=True).start()
    return ""


def _run(command: list[str]) -> None:
    """Called in a thread."""
    with contextlib.suppress(OSError):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
