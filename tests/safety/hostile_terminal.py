"""What a terminal may have been sent, and what is typed and pasted into it, in tests with hostile text."""

import json

from hostile import CANARY, COLOUR, COPIED, ONE_LINE
from terminal_grammar import parse


def check(raw: bytes, *, stripped: bool) -> None:
    # Before anything of a file is read, the terminal is asked for its background.
    tokens = list(parse(raw.removeprefix(ASKED), screen=True))
    assert sum(kind == "text" for kind, _ in tokens) > 1000
    assert not [text for kind, text in tokens if kind == "colour" and COLOUR in text]
    # JSON keeps the text of files as it is, with each control character escaped.
    shown = "".join(
        text
        for kind, text in tokens
        if kind == "text" or (kind == "copied" and not is_json_object(text))
    )
    if stripped:
        for canary in (CANARY, COPIED):
            at = shown.find(canary)
            assert at < 0, shown[max(0, at - 60) : at + 60]


def is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


ASKED = b"\x1b]11;?\x1b\\\x1b[c"
ESCAPE = "\x1b[27u"
"""Escape as terminals with the keyboard protocol send it: no key after it can join it."""
# Terminals take ESC out of what is pasted; its canary would then be plain text.
_TYPED = ONE_LINE.translate({27: None, 7: None, 9: None}).replace(CANARY, "pasted")
PASTED = f"\x1b[200~{_TYPED.replace(COPIED, 'pasted')}\x1b[201~"
