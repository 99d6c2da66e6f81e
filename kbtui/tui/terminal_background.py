"""Whether the terminal's background is dark, asked of the terminal itself before the screen is ours."""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

WAIT_SECONDS = 0.3
"""How long a terminal may take; `FAR_SECONDS` over ssh. Those that answer anything do at once."""
FAR_SECONDS = 1.0
MUTE = {"", "dumb", "linux", "unknown"}
"""Values of TERM whose terminals would print the question, or never answer."""

_QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
# The second question is one that every terminal answers: whoever has answered it will say no more.
_COLOR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F/]+)(?:\x07|\x1b\\)")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[0-9;]*c")


class TerminalBackground(NamedTuple):
    """What was learnt: whether it is dark, None if unknown; and what was typed meanwhile."""

    dark: bool | None
    typed: str = ""


def ask_background() -> TerminalBackground:
    """Ask the terminal (OSC 11), else the environment (`COLORFGBG`)."""
    if os.environ.get("TERM", "") in MUTE:
        return TerminalBackground(_from_environment())
    try:
        answer = _asked()
    except (ImportError, OSError, ValueError):
        return TerminalBackground(_from_environment())
    found = _COLOR.search(answer)
    typed = _ATTRIBUTES.sub(b"", _COLOR.sub(b"", answer)).decode("utf-8", "ignore")
    dark = is_dark(found[1].decode()) if found else None
    return TerminalBackground(_from_environment() if dark is None else dark, typed)


def _asked() -> bytes:
    """The terminal's answers, with whatever else came in."""
    import select
    import termios
    import tty
    from time import monotonic

    source, target = sys.stdin.fileno(), sys.stdout.fileno()
    if not (os.isatty(source) and os.isatty(target)):
        return b""
    before = termios.tcgetattr(source)
    answer = b""
    try:
        tty.setcbreak(source, termios.TCSANOW)
        os.write(target, _QUESTION)
        end = monotonic() + (FAR_SECONDS if os.environ.get("SSH_CONNECTION") else WAIT_SECONDS)
        while not _ATTRIBUTES.search(answer) and (left := end - monotonic()) > 0:
            if not select.select([source], [], [], left)[0]:
                break
            answer += os.read(source, 1024)
    finally:
        termios.tcsetattr(source, termios.TCSANOW, before)
    return answer


def is_dark(color: str) -> bool | None:
    """Whether `RRRR/GGGG/BBBB`, of one to four hexadecimal digits each, is a dark colour."""
    parts = color.split("/")[:3]
    try:
        red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in parts)
    except (ValueError, ZeroDivisionError):
        return None
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)


def _from_environment() -> bool | None:
    """What `COLORFGBG` says, as `15;0` or `0;default;15`; None when it says nothing."""
    last = os.environ.get("COLORFGBG", "").split(";")[-1]
    return None if not last.isdigit() else int(last) in {0, 1, 2, 3, 4, 5, 6, 8}
