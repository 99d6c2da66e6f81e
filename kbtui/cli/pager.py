"""Showing a long result on a terminal through the user's pager."""

import os
import shlex
import shutil
import sys


def page(text: str) -> None:
    """Write text that is safe already, through `$PAGER`, else `less`, where stdout is a terminal.

    An empty `PAGER`, or one that cannot be started, means straight to the terminal.
    """
    command = _command() if sys.stdout.isatty() and sys.stdin.isatty() else None
    if command is None or not _run(command, text):
        sys.stdout.write(text)
        sys.stdout.flush()


def _command() -> list[str] | None:
    if os.environ.get("TERM") == "dumb":
        return None
    chosen = os.environ.get("PAGER")
    if chosen is not None:
        try:
            return shlex.split(chosen) or None
        except ValueError:
            return None
    less = shutil.which("less")
    return [less, "-R"] if less else None


def _run(command: list[str], text: str) -> bool:
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
