"""A bash command line up to the cursor, as words; and a word as bash must read it there."""

from __future__ import annotations


class ParsedLine:
    """The words of a line: `words` before the cursor, and `current`, the one at it.

    `breaks` is where readline begins a word (`COMP_WORDBREAKS`): what stands before stays
    as it was typed. Nothing is expanded but a `~/` at the beginning of a word.
    """

    def __init__(self, text: str, breaks: str) -> None:
        self._breaks = breaks
        self.words: list[str] = []
        self.current = ""
        self._quote = ""
        self._kept = 0
        self._read(text)

    def _read(self, text: str) -> None:
        word: list[str] = []
        begun = escaped = False
        for sign in text:
            if escaped:
                # Inside double quotes a backslash is itself, but before these.
                if self._quote and sign not in '"\\$`':
                    word.append("\\")
                word.append(sign)
                begun, escaped = True, False
            elif sign == "\\" and self._quote != "'":
                escaped = begun = True
            elif self._quote:
                if sign == self._quote:
                    self._quote = ""
                else:
                    word.append(sign)
            elif sign in "'\"":
                self._quote = sign
                begun, self._kept = True, len(word)
            elif sign in " \t\n":
                if begun:
                    self.words.append(_home("".join(word)))
                word, begun, self._kept = [], False, 0
            else:
                word.append(sign)
                begun = True
                if sign in self._breaks:
                    self._kept = len(word)
        self.current = "".join(word)

    def completed(self, word: str) -> str:
        """What readline puts in place of its own idea of the current word."""
        rest = word[self._kept :]
        if self._quote == "'":
            return rest.replace("'", "'\\''")
        if self._quote:
            return "".join(f"\\{sign}" if sign in '"\\$`' else sign for sign in rest)
        plain = "".join(sign if _harmless(sign) else f"\\{sign}" for sign in rest)
        return f"\\{plain}" if plain.startswith("~") else plain


def _harmless(sign: str) -> bool:
    return sign.isalnum() or sign in "_-./,:@%+=~" or ord(sign) > 127


def _home(word: str) -> str:
    if not word.startswith("~/"):
        return word
    import os

    return os.path.expanduser(word)  # noqa: PTH111  (pathlib takes longer to load)
