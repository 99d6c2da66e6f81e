"""Leaving private text out of a line of a log, so that it can go into a report."""

from __future__ import annotations

import re
from pathlib import Path

_SHOWN = r"/(?:[^/\s'\"]+/)*?(?:site-packages|lib/python[\d.]+|kbtui)/"
"""The beginning of paths to programs: what follows names code, not anything of a person's."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|‘[^’]*’|“[^”]*”")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+")
_ID = re.compile(r"\bjp-c\d+|\b\d{10,12}\b")
_SOURCE = re.compile(r"\bsource (?!…)[^\s:]+(?=:)")
_REFERENCE = re.compile(r"(?<![\w/~.])(?!WORKSPACE/)[\w.-]+/[^\s:,;)]+")
_CODE = re.compile(
    rf'^\s*File "{_SHOWN}(?P<rest>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?'
)


class Redaction:
    """What is left out for one workspace; `line` keeps what says where the program went wrong."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._home = str(Path.home())

    def line(self, text: str) -> str:
        """The line without names of files, quoted text, ids and addresses."""
        code = _CODE.match(text)
        if code:
            where = f'  File "…/{code["rest"]}", line {code["line"]}'
            return f"{where}, in {code['name']}" if code["name"] else where
        if text.lstrip().startswith('File "'):
            return '  File "…"'
        text = text.replace(self._root, "WORKSPACE").replace(self._home, "~")
        text = _ADDRESS.sub("…://…", text)
        text = _QUOTED.sub("'…'", text)
        text = re.sub(r"(?<![\w…])(WORKSPACE|~)?/(?!…)[^\s:;,)]*", _place, text)
        text = _SOURCE.sub("source …", text)
        text = _REFERENCE.sub("…/…", text)
        return _ID.sub("…", text)


def _place(match: re.Match[str]) -> str:
    """Which kind of place, and the kind of file, but no name."""
    ending = Path(match[0]).suffix
    return f"{match[1] or ''}/…{ending if re.fullmatch(r'[.][a-z0-9]{1,6}', ending) else ''}"
