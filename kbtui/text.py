"""Terminal-safe text: sanitising, widths, cutting.

Text from files, transcripts and queries is somebody else's. Before it goes to
a terminal or a pane it passes `safe`, which follows RFD 096's policy
(jp-format, section 7): printable text, newline and tab stay; escape sequences,
other C0 controls, DEL, C1 controls and bidirectional overrides do not. Colour
sequences (SGR) are dropped too, because nothing of ours shows foreign colours.
"""

import re
from typing import Literal

Policy = Literal["strip", "visualize", "off"]

# One alternative each: OSC and the other strings up to their terminator (or the
# end of the line: an unterminated one must not swallow the rest), CSI, charset and two-byte escapes, a lone ESC.
_SEQUENCES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\n]*?(?:\x1b\\|\x07|\x9c|(?=\n)|\Z)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Overrides and isolates reorder what is read; zero-width and other invisible
# format characters hide what is there. ZWJ and ZWNJ stay: scripts need them.
_INVISIBLE = re.compile(
    r"[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATES = re.compile(r"[\ud800-\udfff]")
# A flood of combining marks climbs over the lines around it.
_COMBINING = re.compile(
    r"([\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
_SUSPECT = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u0300-\u036f\u180e\u1ab0-\u1aff\u1dc0-\u1dff\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u20d0-\u20ff\ud800-\udfff\ufe20-\ufe2f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def safe(text: str, policy: Policy = "strip") -> str:
    r"""Text that a terminal shows and never obeys; `\r\n` becomes `\n`.

    `strip` removes what is dangerous, `visualize` shows it (`␛`, `<U+202E>`),
    `off` leaves it.
    """
    if policy == "off" or not _SUSPECT.search(text):
        return text
    text = text.replace("\r\n", "\n")
    if policy == "visualize":
        text = _CONTROLS.sub(_picture, text)
        text = _INVISIBLE.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)
    else:
        text = _SEQUENCES.sub("", text)
        text = _CONTROLS.sub("", text)
        text = _INVISIBLE.sub("", text)
    text = _COMBINING.sub(r"\1", text)
    return _SURROGATES.sub("\ufffd", text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def one_line(text: str, policy: Policy = "strip") -> str:
    """Safe text on one line: every run of white space is one space."""
    return " ".join(safe(text, policy).split())


def cells(text: str) -> int:
    """Columns that `text` takes in a terminal."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    width = wcswidth(text)
    return width if width >= 0 else len(text)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, ending in `…` where something is left out."""
    if cells(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    from wcwidth import iter_graphemes

    kept, used = [], 0
    for grapheme in iter_graphemes(text):
        used += cells(grapheme)
        if used > width - 1:
            break
        kept.append(grapheme)
    return "".join(kept) + "…"
