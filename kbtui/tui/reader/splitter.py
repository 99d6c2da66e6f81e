"""Cutting a long text into pieces that can be laid out one by one.

Layout time grows with a piece's length, and only pieces in sight are laid out:
so no piece is long, and in Markdown none ends where a block goes on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 6_000
"""Characters that a piece should have; a single Markdown block may have twice as many."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)")
_LIST_ITEM = re.compile(r"(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)")


@dataclass(slots=True)
class TextSection:
    """A stretch of a text: its characters, the number of its first line, and whether it is code.

    `language` is the fence's word when the piece lies inside a fenced block that
    was too long for one piece; `continued` says that the piece before it is the
    same block.
    """

    start: int
    end: int
    first_line: int
    code: bool = False
    language: str = ""
    continued: bool = False


def split_source(text: str, most: int = PIECE) -> Iterator[TextSection]:
    """Pieces of a text without structure, cut between lines; a longer line at a space."""
    start, line = 0, 1
    while start < len(text):
        end = start + most
        if end < len(text):
            newline = text.rfind("\n", start, end)
            space = text.rfind(" ", start + most // 2, end)
            end = newline + 1 if newline >= start else space + 1 if space > start else end
        else:
            end = len(text)
        yield TextSection(start, end, line)
        line += text.count("\n", start, end)
        start = end


def split_markdown(text: str, most: int = PIECE) -> Iterator[TextSection]:
    """Pieces of a Markdown text, cut at blank lines outside fences and lists.

    A fence that is longer than a piece is cut into pieces of code.
    """
    if len(text) <= most:
        if text.strip():
            yield TextSection(0, len(text), 1)
        return
    for piece in _at_blank_lines(text, most):
        if piece.end - piece.start <= 2 * most:
            piece.code = False
            yield piece
        elif piece.code:
            yield from _inside_fence(text, piece, most)
        else:
            for part in split_source(text[piece.start : piece.end], most):
                yield TextSection(
                    piece.start + part.start,
                    piece.start + part.end,
                    piece.first_line + part.first_line - 1,
                    continued=part.start > 0,
                )


def _at_blank_lines(text: str, most: int) -> Iterator[TextSection]:
    start = position = 0
    line = first_line = 1
    fence = ""
    whole_fence = blank = list_open = False
    while position < len(text):
        after = text.find("\n", position) + 1 or len(text)
        row = text[position:after]
        opening = _FENCE.match(row)
        if fence:
            if opening and opening[1].startswith(fence) and not opening[2].strip():
                fence = ""
                if whole_fence:
                    yield TextSection(start, after, first_line, code=True)
                    start, first_line, whole_fence = after, line + 1, False
        else:
            item = bool(_LIST_ITEM.match(row))
            # After a blank line a new block begins, unless it is indented (part of
            # a list item) or the next item of a list that is still short enough.
            new = (
                blank
                and not row[0].isspace()
                and not (item and list_open and position - start < 2 * most)
            )
            long_enough = position - start >= most // 2
            if (
                start < position
                and new
                and (long_enough or (opening and _fence_size(text, after, opening[1]) > most))
            ):
                yield TextSection(start, position, first_line)
                start, first_line = position, line
            if opening:
                fence = opening[1]
                whole_fence = start == position
            if row.strip() and not row[0].isspace():
                list_open = item
        blank = not row.strip()
        position = after
        line += 1
    if start < len(text):
        yield TextSection(start, len(text), first_line, code=whole_fence)


def _fence_size(text: str, start: int, fence: str) -> int:
    end = text.find("\n" + fence, start)
    return (end if end >= 0 else len(text)) - start


def _inside_fence(text: str, piece: TextSection, most: int) -> Iterator[TextSection]:
    opening = _FENCE.match(text, piece.start)
    language = (opening[2].split() or [""])[0] if opening else ""
    start = text.find("\n", piece.start) + 1
    end = text.rfind("\n", start, piece.end - 1) + 1
    if end <= start or not _FENCE.match(text[end : piece.end]):
        end = piece.end
    for part in split_source(text[start:end], most):
        yield TextSection(
            start + part.start,
            start + part.end,
            piece.first_line + part.first_line,
            code=True,
            language=language,
            continued=part.start > 0,
        )
