"""A parser of what may reach a terminal: an allow-list, everything else is a finding."""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator

MARKS_MOST = 4

# Private modes that Textual sets and resets: cursor, wrapping, mouse, focus, alternate screen,
# bracketed paste, synchronised output, resizes in band.
_MODES = "7|25|1000|1002|1003|1004|1006|1015|1016|1049|2004|2026|2031|2048"
_SCREEN = re.compile(
    rf"\x1b\[\?(?:{_MODES})[hl]"  # modes
    r"|\x1b\[\?(?:2026|2048)\$p"  # is a mode known?
    r"|\x1b\[(?:>\d+|=?\d+;\d+|<)?u|\x1b\[\?u"  # keyboard protocol
    r"|\x1b\[\d{0,5}(?:;\d{0,5})?H"  # go to
    r"|\x1b\[2J|\r\n"  # erase, the next line
    r"|\x1b\]22;[a-z-]+\x07"  # the pointer's shape
)
_COLOURS = re.compile(r"\x1b\[(?P<codes>[\d;]*)m")
_COPIED = re.compile(r"\x1b\]52;c;(?P<data>[A-Za-z0-9+/=]*)(?:\x07|\x1b\\)")
_PROGRESS = re.compile(r"\r\x1b\[K")
_LINE = re.compile(r"\r?\n|\t")
# Format characters that scripts need, and those that are drawn.
_SHOWN_FORMATS = frozenset("\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2")


class Forbidden(AssertionError):
    """Bytes that are not of the grammar."""


def parse(raw: bytes, *, screen: bool) -> Iterator[tuple[str, str]]:
    """The tokens of a terminal's input as (kind, text); raises `Forbidden`.

    `screen` is the TUI, which moves the cursor; without it lines follow each other,
    as a command prints them.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Forbidden(f"not UTF-8: {raw[error.start - 40 : error.end + 40]!r}") from error
    at = marks = 0
    patterns = _patterns(screen)
    while at < len(text):
        for kind, pattern in patterns:
            if found := pattern.match(text, at):
                yield kind, _checked(kind, found)
                at = found.end()
                marks = 0
                break
        else:
            marks = _printable(text, at, marks)
            yield "text", text[at]
            at += 1


def _patterns(screen: bool) -> list[tuple[str, re.Pattern[str]]]:
    if screen:
        return [("screen", _SCREEN), ("colour", _COLOURS), ("copied", _COPIED)]
    return [("progress", _PROGRESS), ("line", _LINE), ("colour", _COLOURS)]


def _checked(kind: str, found: re.Match[str]) -> str:
    if kind == "copied":
        try:
            copied = base64.b64decode(found["data"], validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Forbidden(f"copies what is no text: {found[0]!r}") from error
        for number, character in enumerate(copied):
            # Several lines may be copied; a terminal puts them nowhere by itself.
            if character not in "\n\t":
                _printable(copied, number, 0)
        return copied
    if kind == "colour":
        codes = [int(code) for code in found["codes"].split(";") if code]
        # Concealed text is invisible; the numbers of a colour are not the code that conceals.
        while codes:
            code = codes.pop(0)
            if code in {38, 48, 58} and codes:
                codes = codes[4:] if codes[0] == 2 else codes[2:]
            elif code == 8:
                raise Forbidden(f"conceals: {found[0]!r}")
    return found[0]


def _printable(text: str, at: int, marks: int) -> int:
    """Raises `Forbidden` unless the character is seen where it stands; counts marks in a row."""
    character = text[at]
    category = unicodedata.category(character)
    around = text[max(0, at - 60) : at + 30]
    if category in {"Cc", "Cs", "Zl", "Zp"} or (
        category == "Cf" and character not in _SHOWN_FORMATS
    ):
        raise Forbidden(f"U+{ord(character):04X} in {around!r}")
    if character in "\u115f\u1160\u3164\uffa0":
        raise Forbidden(f"a filler in {around!r}")
    if category[0] == "M" or character in "\u200c\u200d":
        if marks >= MARKS_MOST:
            raise Forbidden(f"a flood of marks in {around!r}")
        return marks + 1
    return 0
