"""Matches slugs with glob patterns."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PATTERN_CHARACTERS = 4096
"""The maximum number of characters of a pattern. A longer pattern matches nothing."""


def is_glob_pattern(pattern: str) -> bool:
    """Return whether a pattern contains a glob character: `*`, `?` or `[`."""
    return not {"*", "?", "["}.isdisjoint(pattern)


def has_unclosed_glob_bracket(pattern: str) -> bool:
    """Return whether a glob pattern contains a `[` without a `]`.

    Such a `[` matches only itself.
    """
    end: int | None = 0
    while end is not None and (start := pattern.find("[", end)) >= 0:
        end = _find_bracket_end(pattern, start + 1)
    return end is None


@lru_cache(256)
def compile_slug_pattern(pattern: str) -> Callable[[str], object]:
    """Return a function that tests whether a slug matches a pattern.

    Patterns and slugs consist of components, separated by `/`. The component `**` matches any
    number of components; at the end of a pattern, it matches at least one. Inside a component, `**`
    means `*`. A `[` without `]` matches only itself. No pattern makes the test slow.
    """
    if pattern == "**":
        return bool
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        pattern = ""
    return re.compile(_convert_pattern_to_regex(pattern), re.DOTALL).fullmatch


def _convert_pattern_to_regex(pattern: str) -> str:
    """Convert a pattern to a regular expression; atomic groups prevent slow backtracking."""
    blocks: list[list[str]] = [[]]
    for component in pattern.split("/"):
        if component != "**":
            blocks[-1].append(_convert_path_component_to_regex(component) + "/")
        elif len(blocks) == 1 or blocks[-1]:
            blocks.append([])
    head, *rest = ["".join(block) for block in blocks]
    if not rest:
        return head[:-1]
    # It is safe to take the first match of each block, because that leaves the longest rest for later blocks.
    middle = "".join(f"(?>(?:[^/]+/)*?{block})" for block in rest[:-1])
    # The last block is anchored at the end: it has a fixed number of components.
    return head + middle + (f"(?:[^/]+/)*{rest[-1][:-1]}" if rest[-1] else ".+")


def _convert_path_component_to_regex(text: str) -> str:
    """Convert a component of a pattern to a regular expression."""
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
        elif sign == "[" and (end := _find_bracket_end(text, position)) is not None:
            pieces[-1] += _convert_bracket_to_regex(text[position:end])
            position = end + 1
        else:
            pieces[-1] += re.escape(sign)
    if len(pieces) == 1:
        return pieces[0]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1])
    return f"{pieces[0]}{middle}[^/]*{pieces[-1]}"


def _find_bracket_end(text: str, start: int) -> int | None:
    position = start
    if text[position : position + 1] in ("!", "^"):
        position += 1
    if text[position : position + 1] == "]":
        position += 1
    end = text.find("]", position)
    return None if end < 0 else end


def _convert_bracket_to_regex(inner: str) -> str:
    standard = f"[!{inner[1:]}]" if inner[:1] == "^" else f"[{inner}]"
    regex = fnmatch.translate(standard).removeprefix("(?s:")
    return f"(?!/){regex[: regex.rindex(')')]}"
