"""Terminal-safe text: sanitising, widths, cutting.

Text from files, transcripts and queries is somebody else's. Before it goes to
a terminal or a pane it passes `safe`, which follows JP's policy for
terminals: printable text, newline and tab stay; escape sequences,
other C0 controls, DEL, C1 controls and bidirectional overrides do not. Colour
sequences (SGR) are dropped too, because nothing of ours shows foreign colours.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Policy = Literal["strip", "visualize", "off"]

# Patterns that are seldom needed are compiled when they are: `re` keeps them.
# One alternative each: OSC and the other strings up to their terminator (or the
# end of the line: an unterminated one must not swallow the rest), CSI, charset and two-byte escapes, a lone ESC.
_SEQUENCES = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\n]*?(?:\x1b\\|\x07|\x9c|(?=\n)|\Z)"
    r"|\x1bk[^\n\x1b]*\x1b\\"  # the title of a window in screen and tmux
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_INTRODUCERS = r"[\x90\x98\x9b\x9d-\x9f]"
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Overrides and isolates reorder what is read; zero-width and other invisible
# format characters and fillers hide what is there. ZWJ and ZWNJ stay: scripts need them.
_INVISIBLE_RANGES = (
    r"\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_INVISIBLE = f"[{_INVISIBLE_RANGES}]"
_SURROGATES = r"[\ud800-\udfff]"
_SUSPECT = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE_RANGES}]"
# Scripts and symbols that have marks at all: looking for these first is twenty times as fast.
_MAY_HAVE_MARKS = (
    r"[\u0300-\u036f\u0483-\u0489\u0591-\u1dff\u200c\u200d\u20d0-\u20f0\u2cef-\u2cf1\u2d7f\u2de0-\u2dff\u302a-\u302f\u3099\u309a"
    r"\ua66f-\ua6f1\ua802-\uabff\ud7b0-\ud7ff\ufb1e\ufe00-\ufe2f\U000101fd-\U0001efff\U000e0100-\U000e01ef]"
)
# Where a flood of them may be: no letters, no common punctuation; and the vowels and
# finals of old Hangul, which take no room of their own.
_MARK_RUN = (
    r"[^\w\s\x21-\x7e\u2010-\u205e\u2190-\u2bff\u3001-\u303f]{5,}|[\u1161-\u11ff\ud7b0-\ud7ff]{5,}"
)
MARKS_PER_CHARACTER = 4
"""Marks without a width of their own that one character may carry: more climb over other lines."""

_current_policy: Policy = "strip"


def set_policy(policy: str) -> None:
    """Set what `safe` and `one_line` do in this process unless told otherwise; raises `ValueError`."""
    global _current_policy
    if policy not in {"strip", "visualize", "off"}:
        raise ValueError(f"no policy: {policy!r}")
    _current_policy = policy  # type: ignore[assignment]


def sanitize(text: str, policy: Policy | None = None) -> str:
    r"""Text that a terminal shows and never obeys; `\r\n` becomes `\n`.

    `strip` removes what is dangerous, `visualize` shows it (`␛`, `<U+202E>`), `off` leaves all
    but what cannot be encoded. None is the person's choice (the setting `terminal_text`); what
    goes elsewhere than to a person's terminal says `strip`.
    """
    policy = policy or _current_policy
    if policy == "off":
        return re.sub(_SURROGATES, "\ufffd", text)
    if text.isascii():
        if not _CONTROLS.search(text):
            return text
    elif not re.search(_SUSPECT, text):
        return _limit_marks(text)
    text = text.replace("\r\n", "\n")
    if policy == "visualize":
        text = _CONTROLS.sub(_visualize_control, text)
        text = re.sub(_INVISIBLE, lambda match: f"<U+{ord(match[0]):04X}>", text)
    else:
        text = re.sub(_SEQUENCES, "", text)
        text = _CONTROLS.sub("", text)
        text = re.sub(_INVISIBLE, "", text)
    return re.sub(_SURROGATES, "\ufffd", _limit_marks(text))


def strip_escape_sequences(text: str) -> str:
    """`text` without escape sequences, and otherwise as it is: for what is searched.

    Of a colour in a tool's output nothing must be left to be found, such as `31m`.
    """
    if "\x1b" not in text and (text.isascii() or not re.search(_INTRODUCERS, text)):
        return text
    return re.sub(_SEQUENCES, "", text)


def strip_before_cutting(text: str) -> str:
    """A long text that is to be cut into pieces for `safe`: no sequence must be cut in two."""
    return strip_escape_sequences(text) if _current_policy == "strip" else text


def sanitize_marked(text: str, marks: list[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """`safe(text)` with stretches of it, in characters, where they are then.

    What is shown in pieces is made safe before it is cut: half a sequence looks like text.
    """
    clean = sanitize(text)
    if clean == text:
        return text, marks
    moved = [(len(sanitize(text[:start])), len(sanitize(text[:end]))) for start, end in marks]
    return clean, [(start, min(end, len(clean))) for start, end in moved if start < end]


def _limit_marks(text: str) -> str:
    return re.sub(_MARK_RUN, _drop_excess_marks, text) if re.search(_MAY_HAVE_MARKS, text) else text


def _drop_excess_marks(match: re.Match[str]) -> str:
    """A run of marks and symbols without the marks that are too many for one character."""
    from unicodedata import category

    kept, marks = [], 0
    for character in match[0]:
        mark = (
            category(character) in _MARK_CATEGORIES
            or character in "\u200c\u200d"
            or "\u1161" <= character <= "\u11ff"
            or "\ud7b0" <= character <= "\ud7ff"
        )
        marks = marks + 1 if mark else 0
        if marks <= MARKS_PER_CHARACTER:
            kept.append(character)
    return "".join(kept)


_MARK_CATEGORIES = frozenset({"Mn", "Me", "Mc"})


def _visualize_control(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def one_line(text: str, policy: Policy | None = None) -> str:
    """Safe text on one line: every run of white space is one space."""
    return " ".join(sanitize(text, policy).split())


def count_columns(text: str) -> int:
    """Columns that `text` takes in a terminal."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    width = wcswidth(text)
    return width if width >= 0 else len(text)


def cut_to_width(text: str, width: int) -> str:
    """`text` in at most `width` columns, ending in `…` where something is left out."""
    if count_columns(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    from wcwidth import iter_graphemes

    kept, used = [], 0
    for grapheme in iter_graphemes(text):
        used += count_columns(grapheme)
        if used > width - 1:
            break
        kept.append(grapheme)
    return "".join(kept) + "…"


def format_json(value: object) -> str:
    """A JSON value as people read it: two spaces, one line a member."""
    import orjson

    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except (TypeError, RecursionError):
        # orjson refuses what JSON allows: integers over 64 bits, nesting over 254.
        return _format_json_slowly(value)


def _format_json_slowly(value: object) -> str:
    from json import dumps

    try:
        return dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to show)"
