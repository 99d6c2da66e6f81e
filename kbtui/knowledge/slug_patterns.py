"""Glob patterns over slugs: `*` one level, `**` any depth, `?` and `[…]`."""

import re
from collections.abc import Callable

PATTERN_MOST = 4096
"""Characters of the longest pattern that is tried: no path is longer."""

_CACHE: dict[str, Callable[[str], object]] = {}


def has_magic(pattern: str) -> bool:
    """Whether the pattern has a sign that a glob reads as more than itself."""
    return any(sign in pattern for sign in "*?[")


def unclosed(pattern: str) -> bool:
    """Whether a `[` has no `]`, and so stands for itself."""
    position = pattern.find("[")
    while position >= 0:
        end = _class_end(pattern, position + 1)
        if end is None:
            return True
        position = pattern.find("[", end)
    return False


def matcher(pattern: str) -> Callable[[str], object]:
    """A test of whether a slug matches; its truth is the answer.

    Case counts. `**` is a whole component that stands for any number of them
    (at the end: for at least one); within a component it is two `*`. A `[`
    without its `]` is itself. The test takes time in proportion to pattern
    times slug, whatever the pattern.
    """
    if pattern == "**":
        return bool
    found = _CACHE.get(pattern)
    if found is None:
        if len(pattern) > PATTERN_MOST or not pattern:
            return _never
        found = re.compile(_translate(pattern), re.DOTALL).fullmatch
        if len(_CACHE) > 256:
            _CACHE.clear()
        _CACHE[pattern] = found
    return found


def _never(slug: str) -> bool:
    return False


def _translate(pattern: str) -> str:
    """A regular expression without backtracking into what has matched.

    Blocks of fixed components stand between the `**`. The earliest place of a
    block leaves the most for the rest, so each may be atomic.
    """
    components = pattern.split("/")
    blocks: list[list[str]] = [[]]
    for component in components:
        if component != "**":
            blocks[-1].append(_component(component))
        elif len(blocks) == 1 or blocks[-1]:
            blocks.append([])
    if len(blocks) == 1:
        return "/".join(blocks[0])
    head = "".join(f"{part}/" for part in blocks[0])
    middle = "".join(
        "(?>(?:[^/]+/)*?" + "".join(f"{part}/" for part in block) + ")" for block in blocks[1:-1]
    )
    last = blocks[-1]
    if not last:
        return head + middle + ".+"
    # The last block is as long in components as it is, and stands at the end.
    return head + middle + "(?:[^/]+/)*" + "/".join(last)


def _component(text: str) -> str:
    """One component; between `*` every piece has a fixed length, so the same holds."""
    pieces = [""]
    position = 0
    while position < len(text):
        sign = text[position]
        position += 1
        if sign == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif sign == "?":
            pieces[-1] += "[^/]"
        elif sign == "[" and (end := _class_end(text, position)) is not None:
            pieces[-1] += _class(text[position:end])
            position = end + 1
        else:
            pieces[-1] += re.escape(sign)
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1])
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}"


def _class_end(text: str, start: int) -> int | None:
    position = start
    if text[position : position + 1] in ("!", "^"):
        position += 1
    if text[position : position + 1] == "]":
        position += 1
    end = text.find("]", position)
    return None if end < 0 else end


def _class(inner: str) -> str:
    negated = inner[:1] in ("!", "^")
    if negated:
        inner = inner[1:]
    parts, position = [], 0
    while position < len(inner):
        first = inner[position]
        if inner[position + 1 : position + 2] == "-" and position + 2 < len(inner):
            last = inner[position + 2]
            position += 3
            if first <= last:
                parts.append(f"{re.escape(first)}-{re.escape(last)}")
        else:
            position += 1
            parts.append(re.escape(first))
    if not parts:
        return "[^/]" if negated else r"(?!)[^/]"
    return f"(?!/)[{'^' if negated else ''}{''.join(parts)}]"
