"""Opening an address outside of the terminal, where there is something to open it with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


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
