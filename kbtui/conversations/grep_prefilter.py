"""What bytes must contain to hold a match: tells most of them apart in one look.

Never no where there is a match. Where case counts the pattern itself is looked for; without,
letters of ASCII in small ones; and for any other pattern everything that folding may exchange for
another is taken for the same byte, in pattern and text, which asks a little less than a match does.
"""

import re
from functools import cached_property

_RARE = "qzj"
"""Letters that texts have least of, in most languages and in code."""


class Prefilter:
    """Made for one pattern, without lines in it, and a way to read its case."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._exact = None if ignore_case else pattern
        self._table: bytes | None = None
        self._ends: list[list[int]] = []
        self._small = ignore_case and pattern.isascii()
        self._rare: tuple[int, tuple[bytes, bytes]] | None = None
        if self._small:
            pattern = pattern.lower()
            letter = next((letter for letter in _RARE if letter in pattern), "")
            if letter:
                forms = letter.encode(), letter.upper().encode()
                self._rare = pattern.index(letter), forms
        self.literal = _encoded(pattern)
        if ignore_case and not self._small:
            self._table, self.literal, self._ends = _folding(pattern)

    def may(self, data: bytes) -> bool:
        """Whether a text that these bytes encode in UTF-8 may match."""
        if self._small:
            found = self._at_rare(*self._rare, data) if self._rare else None
            return self.literal in data.lower() if found is None else found
        if self._table is not None:
            for ends in self._ends:
                if not any(end in data for end in ends):
                    return False
            data = data.translate(self._table)
        return self.literal in data

    def _at_rare(self, place: int, forms: tuple[bytes, bytes], data: bytes) -> bool | None:
        """A look only where the pattern's rare letter stands; None where that is too often.

        A processor finds one byte twenty times as fast as it makes small letters of all.
        """
        literal, left = self.literal, 8 + (len(data) >> 9)
        for form in forms:
            at = data.find(form)
            while at >= 0:
                start = at - place
                if start >= 0 and data[start : start + len(literal)].lower() == literal:
                    return True
                left -= 1
                if not left:
                    return None
                at = data.find(form, at + 1)
        return False

    def may_text(self, text: str) -> bool:
        """The same for a text."""
        if self._exact is not None:
            return self._exact in text
        # Small letters of other scripts take ten times as long as bytes, for nothing.
        return self.may(_encoded(text))

    def may_be_base64(self, encoded: str) -> bool:
        """Whether this base64 could match, were it left as it is: a look at most, no search."""
        signs = self._signs
        return signs is not None and all(sign in encoded for sign in signs)

    @cached_property
    def _signs(self) -> set[str] | None:
        """What of the pattern is rare in base64; None for a pattern that cannot be in it."""
        literal = self.literal.decode("ascii", "replace")
        if not re.fullmatch("[A-Za-z0-9+/=_-]*", literal):
            return None
        return set(literal) & set("+/=_-")


def _encoded(text: str) -> bytes:
    # An unpaired surrogate becomes the same sign here and there.
    return text.encode("utf-8", "replace")


def _folding(pattern: str) -> tuple[bytes, bytes, list[list[int]]]:
    """A table that makes one of all bytes that folding exchanges, and the pattern's longest part in it.

    What folds into a letter of another length ends a part: `k` is also the Kelvin sign. Third, for
    letters beyond ASCII the bytes that they end with: of each, one must be there, which is known at once.
    """
    near = "".join(re.findall(f"[{re.escape(pattern)}]", _letters(), re.IGNORECASE))
    parts: list[list[list[bytes]]] = [[]]
    ends: list[list[int]] = []
    for letter in pattern:
        same = [letter, *re.findall(re.escape(letter), near, re.IGNORECASE)]
        forms = [_encoded(form) for form in same]
        last = sorted({form[-1] for form in forms})
        if last[0] > 127 and len(last) <= 2 and last not in ends:
            ends.append(last)
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
    return folded, b"".join(forms[0] for forms in part).translate(folded), ends


def _letters() -> str:
    """Every character of the planes that have letters of two cases."""
    size = 0x20000
    codes = bytearray(4 * size)
    codes[0::4] = bytes(range(256)) * (size >> 8)
    codes[1::4] = b"".join(bytes([high]) * 256 for high in range(256)) * 2
    codes[2::4] = bytes(1 << 16) + b"\1" * (1 << 16)
    # Surrogates are no characters.
    del codes[4 * 0xD800 : 4 * 0xE000]
    return codes.decode("utf-32-le")
