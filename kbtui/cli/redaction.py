"""Leaving private text out of a log, so that it can go into a report.

The unit is a record, not a line: an exception's message may quote a whole passage, whose lines
look like anything. Of a record the report keeps the time, the first line up to the first quoted
text, and the frames of a traceback. All other lines are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

from kbtui.workspace import path_strings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[\d+\] ")
"""How `engine.process.log` begins a record; it indents the other lines."""
_INDENT = "  "
_TRACEBACK = "Traceback (most recent call last):"
_CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_FRAME = re.compile(
    r' *File "/(?:[^/\s\'"]+/)*?(?:site-packages|lib/python[\d.]+|kbtui)/(?P<file>[\w./<>-]+)"'
    r", line (?P<line>\d+)(?:, in (?P<name>[\w<>.]+)$)?",
    re.ASCII,
)
"""A frame in a program: what follows these directories is code, nothing of a person's."""
_EXCEPTION = re.compile(
    r"(?:kbtui\.[\w.]+|[\w.]*(?:Error|Exception|Exit|Group|Interrupt|Warning))(?=:|$)", re.ASCII
)
_QUOTE = re.compile(
    r"\b[bBrRuUfF]{1,2}'(?=\W)|(?<!\w)'|'(?!\w)|(?<!\w)[bBrRuUfF]{1,2}'|[\"`‘“”„«»]"
)
"""A quotation mark, which an apostrophe between letters is not. What follows it is left out to the
end of the record: the quoted text may itself have quotation marks."""
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+")
_PLACE = re.compile(r"(?<![\w…])(WORKSPACE|~)?/(?!…)[^:;,)]*")
_ID = re.compile(r"\bjp-c\d+|\b\d{10,12}\b")
_SOURCE = re.compile(r"\bsource (?!…)[^\s:]+(?=:)")
_REFERENCE = re.compile(r"(?<![\w/~.])(?!WORKSPACE/)[\w.-]+/[^\s:,;)]+")
_LEFT_OUT = "…"


class Redaction:
    """What is left out for one workspace; kept is what says where the program went wrong."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._home = path_strings.user_home()

    def lines(self, lines: Iterable[str]) -> list[str]:
        """The lines of a log without names of files, quoted text, ids and addresses."""
        return list(self._lines(lines))

    def _lines(self, lines: Iterable[str]) -> Iterator[str]:
        # `frames`: in a traceback, before its exception. `text`: in somebody's text, where only
        # a new record is trusted. `between`: after the last line of either that is kept.
        state, indented, is_traceback = "between", False, False
        for line in lines:
            if header := _HEADER.match(line):
                message = line[header.end() :]
                indented, is_traceback = True, message.endswith(_TRACEBACK)
                state = "frames" if is_traceback else "between"
                yield header[0] + self._text(message)
                continue
            if indented and line and not line.startswith(_INDENT):
                # Not of the record that was logged: Python wrote this to the same file.
                indented = is_traceback = False
                state = "between"
            if indented:
                line = line.removeprefix(_INDENT)
            if state == "text":
                continue
            if state == "frames" and (not line or line.startswith(" ")):
                if frame := _frame(line):
                    yield frame
            elif state == "frames" and _EXCEPTION.match(line):
                state = "between"
                yield self._text(line)
            elif line in _CHAINS and is_traceback:
                yield line
            elif line == _TRACEBACK and (is_traceback or not indented):
                state, is_traceback = "frames", True
                yield line
            elif line and not line.startswith("Exception in thread "):
                state = "text"
                yield _LEFT_OUT

    def _text(self, text: str) -> str:
        """A message up to the first quoted text, without names."""
        quote = _QUOTE.search(text)
        if quote:
            text = f"{text[: quote.start()]}'…'"
        text = text.replace(self._root, "WORKSPACE")
        if self._home:
            text = text.replace(self._home, "~")
        text = _ADDRESS.sub("…://…", text)
        text = _PLACE.sub(_place, text)
        text = _SOURCE.sub("source …", text)
        text = _REFERENCE.sub("…/…", text)
        return _ID.sub("…", text)


def _frame(line: str) -> str | None:
    """A frame, without the path to the program; nothing of the source below it."""
    if found := _FRAME.match(line):
        name = f", in {found['name']}" if found["name"] else ""
        return f'  File "…/{found["file"]}", line {found["line"]}{name}'
    return '  File "…"' if line.lstrip().startswith('File "') else None


def _place(match: re.Match[str]) -> str:
    """Which kind of place, and the kind of file, but no name."""
    ending = Path(match[0]).suffix
    return f"{match[1] or ''}/…{ending if re.fullmatch(r'[.][a-z0-9]{1,6}', ending) else ''}"
