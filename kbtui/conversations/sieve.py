"""What bytes must contain to hold a match: tells most of them apart in one look.

Never no where there is a match. Where case counts the pattern itself is looked for; without,
letters of ASCII in small ones; and for any other pattern everything that folding may exchange for
another is taken for the same byte, in pattern and text, which asks a little less than a match does.
"""

import re
import sys
from array import array
from functools import cached_property


class Sieve:
    """Made for one pattern, without lines in it, and a way to read its case."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._exact = None if ignore_case else pattern
        self._table: bytes | None = None
        self._small = ignore_case and pattern.isascii()
        if self._small:
            pattern = pattern.lower()
        self.literal = _encoded(pattern)
        if ignore_case and not self._small:
            self._table, self.literal = _folding(pattern)

    def may(self, data: bytes) -> bool:
        """Whether a text that these bytes encode in UTF-8 may match."""
        if self._small:
            return self.literal in data.lower()
        if self._table is not None:
            data = data.translate(self._table)
        return self.literal in data

    def may_text(self, text: str) -> bool:
        """The same for a text."""
        if self._exact is not None:
            return self._exact in text
        # Small letters of other scripts take ten times as long as bytes, for nothing.
        return self.may(_encoded(text))

    @cached_property
    def may_be_base64(self) -> bool:
        """Whether base64 that was left as it is could match."""
        return not self.literal or bool(re.fullmatch(rb"[A-Za-z0-9+/=_-]*", self.literal))


def _encoded(text: str) -> bytes:
    # An unpaired surrogate becomes the same sign here and there.
    return text.encode("utf-8", "replace")


def _folding(pattern: str) -> tuple[bytes, bytes]:
    """A table that makes one of all bytes that folding exchanges, and the pattern's longest part in it.

    What folds into a letter of another length ends a part: `k` is also the Kelvin sign.
    """
    # All planes that have letters of two cases.
    codes = array("I", (*range(0xD800), *range(0xE000, 0x20000)))
    everything = codes.tobytes().decode(f"utf-32-{sys.byteorder[0]}e")
    near = "".join(re.findall(f"[{re.escape(pattern)}]", everything, re.IGNORECASE))
    parts: list[list[list[bytes]]] = [[]]
    for letter in pattern:
        same = [letter, *re.findall(re.escape(letter), near, re.IGNORECASE)]
        forms = [_encoded(form) for form in same]
        if len({len(form) for form in forms}) == 1:
            parts[-1].append(forms)
        else:
            parts.append([])
    part = max(parts, key=lambda part: sum(len(forms[0]) for forms in part))
    table = list(range(256))
    for forms in part:
        for bytes_ in zip(*forms, strict=True):
            merged = {table[byte] for byte in bytes_}
            table = [min(merged) if into in merged else into for into in table]
    folded = bytes(table)
    return folded, b"".join(forms[0] for forms in part).translate(folded)
