"""Markdown as plain words: which of its characters are marks, and the text without them.

Only what is surely a mark goes: in code, and where a pair is not closed, all stays. What sets
items of a list and cells of a table apart becomes a dot, so that they can be read in one line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Stretch = tuple[int, int]
"""Characters of a text, the end exclusive."""

_ANY = re.compile(r"[*_`~>#\[|]|---|^[ \t]*[-+] ", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
_LINE = re.compile(
    r"^(?:(?P<quote>(?: {0,3}>[ \t]?)+)(?:\[!(?P<note>\w+)\])?"
    r"|(?P<heading> {0,3}\#{1,6}[ \t]+)"
    r"|(?P<rule>[ \t|:]*-{3}[-|: \t]*|[ \t]*\*{3}[* \t]*|[ \t]*_{3}[_ \t]*)$"
    r"|(?P<item>[ \t]*[-*+][ \t]+)(?=\S)"
    r"|(?P<row>[ \t]*\|[^\n]*\|[ \t]*$))",
    re.MULTILINE,
)
_INLINE = re.compile(
    r"(?=[\\`!\[*_~])(?:"
    r"\\(?P<escaped>[!-/:-@\[-`{-~])|"
    r"(?P<code>`{1,2})(?!`)(?P<coded>(?:[^`\n]|\n(?!\n)){1,300})(?P=code)(?!`)"
    r"|!?\[(?P<linked>(?:[^\[\]\n]|\n(?!\n)){1,300})\]\([^()\s]{0,500}(?: \"[^\"\n]{0,200}\")?\)"
    r"|(?<![\w\])])!?\[(?P<referred>(?:[^\[\]\n]|\n(?!\n)){1,300})\]\[[^\[\]\n]{1,100}\](?!\()"
    r"|(?<![\w*])\*\*(?![\s*])(?P<bold>(?:[^*\n]|\n(?!\n)|\*(?!\*)){1,300})(?<!\s)\*\*(?![\w*])"
    r"|(?<![\w*])\*(?![\s*])(?P<star>(?:[^*\n]|\n(?!\n)){1,300})(?<!\s)\*(?![\w*])"
    # Two of these may be a name of Python's.
    r"|(?<!\w)_(?![\s_])(?P<low>(?:[^_\n]|\n(?!\n)){1,300})(?<!\s)_(?!\w)"
    r"|(?<!~)~~(?![\s~])(?P<struck>(?:[^~\n]|\n(?!\n)){1,300})(?<!\s)~~(?!~)"
    r")"
)
_BAR = re.compile(r"(?<!\\)\|")
_INSIDE = ("linked", "referred", "bold", "star", "low", "struck")
_DEEPEST = 3
"""Emphasis in a link in emphasis."""


def unmarked(
    text: str, matches: list[Stretch], reach: int | None = None
) -> tuple[str, list[Stretch]]:
    """The text without its marks, and where its matches are then.

    `matches` are ascending. A mark that reaches into a match stays, so that no match
    loses a character. Marks are looked for in the first `reach` characters only.
    """
    if not _ANY.search(text):
        return text, matches
    gone: list[Stretch] = []
    dots: list[int] = []
    for group in _marks(text, len(text) if reach is None else min(reach, len(text)), dots):
        if not any(start < b and a < end for start, end in group for a, b in matches):
            gone += group
    gone.sort()
    dots = [at for at in dots if not any(start <= at < end for start, end in matches)]
    if dots:
        signs = list(text)
        for at in dots:
            signs[at] = "·"
        text = "".join(signs)
    kept: list[str] = []
    moved: list[Stretch] = []
    waiting = iter(matches)
    match = next(waiting, None)
    position = lost = 0
    for start, end in [*gone, (len(text), len(text))]:
        while match is not None and match[1] <= start:
            moved.append((match[0] - lost, match[1] - lost))
            match = next(waiting, None)
        kept.append(text[position:start])
        position = max(position, end)
        lost += end - start
    return "".join(kept), moved


def _marks(text: str, reach: int, dots: list[int]) -> Iterator[list[Stretch]]:
    """What may go, in groups that go together; what becomes a dot is put into `dots`."""
    position = 0
    opened = ""
    for fence in _FENCE.finditer(text, 0, reach):
        sign, words = fence[1], fence[2].strip()
        if opened and (not sign.startswith(opened) or words):
            continue
        if not opened:
            yield from _prose(text, position, fence.start(), dots)
        yield [fence.span(1)]
        if words:
            yield [fence.span(2)]
        opened = "" if opened else sign
        position = fence.end()
    if not opened:
        yield from _prose(text, position, reach, dots)


def _prose(text: str, start: int, end: int, dots: list[int]) -> Iterator[list[Stretch]]:
    for line in _LINE.finditer(text, start, end):
        if line["item"]:
            dots.append(line.start("item") + len(line["item"]) - len(line["item"].lstrip()))
        elif line["row"]:
            first, *others = (bar.start() for bar in _BAR.finditer(text, line.start(), line.end()))
            # A row is set apart from the one above, its cells from each other.
            dots += [first, *others[:-1]]
            if others:
                yield [(others[-1], others[-1] + 1)]
        elif line["note"]:
            yield [line.span("quote")]
            at, after = line.span("note")
            yield [(at - 2, at), (after, after + 1)]
        elif line.end() > line.start():
            yield [line.span()]
    yield from _inline(text, start, end, _DEEPEST)


def _inline(text: str, start: int, end: int, depth: int) -> Iterator[list[Stretch]]:
    for found in _INLINE.finditer(text, start, end):
        name = found.lastgroup or ""
        at, after = found.span(name)
        yield [(found.start(), at), (after, found.end())]
        if name in _INSIDE and depth:
            yield from _inline(text, at, after, depth - 1)
