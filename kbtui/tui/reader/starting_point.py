"""Where in a document to begin to read: the passage, turn or line that a place names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kbtui.tui.reader.blocks import TextBlock
from kbtui.tui.reader.document import finder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.reader.document import Document


def find_start(document: Document, place: NavigationTarget) -> tuple[int, int] | None:
    """Where to begin reading: the block, and which of the marked words in it; None for the top.

    The second is -1 when nothing in the block is marked.
    """
    ref = place.ref
    if ref is None or not document.blocks:
        return None
    if ref.turn is not None:
        first = document.block_of_turn(ref.turn, ref.call)
        if first is None:
            return None
        turn = _turn_blocks(document, first, ref.turn)
        span: Iterator[int] = (
            number for number in turn if ref.call in (None, document.blocks[number].call)
        )
    elif ref.lines is not None:
        first = document.block_of_line(ref.lines[0])
        span = iter(range(first, document.block_of_line(ref.lines[1]) + 1))
    elif place.text and not place.words:
        return _passage_block(document, place.text), -1
    else:
        first, span = 0, iter(range(len(document.blocks))) if place.words else iter(())
    pattern = finder(list(place.words))
    if pattern is None:
        return first, -1
    return _best_block(document, list(span), pattern, place.text) or (first, -1)


def _turn_blocks(document: Document, first: int, turn: int) -> Iterator[int]:
    number = first
    while number < len(document.blocks) and document.blocks[number].turn == turn:
        yield number
        number += 1


def _best_block(
    document: Document, span: list[int], pattern: re.Pattern[str], passage: str
) -> tuple[int, int] | None:
    """The block that shares most with the passage that was found."""
    probe = _probe(passage)
    best: tuple[int, int, int] | None = None
    for number in span:
        block = document.blocks[number]
        text = block.search_text()
        found = {match[0].lower() for match in pattern.finditer(text)}
        if not found:
            continue
        near = probe.search(text) if probe and isinstance(block, TextBlock) else None
        score = len(found) + (1000 if near else 0)
        if best is None or score > best[0]:
            count = len(pattern.findall(text, 0, near.start())) if near else 0
            best = (score, number, count)
    return (best[1], best[2]) if best else None


def _passage_block(document: Document, passage: str) -> int:
    """The block in which a passage begins, by its first line that stands anywhere; else the first."""
    for line in passage.split("\n"):
        probe = _probe(line)
        if probe is None:
            continue
        for number, block in enumerate(document.blocks):
            if isinstance(block, TextBlock) and probe.search(block.search_text()):
                return number
    return 0


def _probe(passage: str) -> re.Pattern[str] | None:
    """A pattern for the passage's first words, whatever the white space between them."""
    words = [word for word in passage.split() if any(map(str.isalnum, word))][:8]
    return re.compile(r"\W+".join(map(re.escape, words))) if len(words) > 2 else None


def has_start(document: Document, place: NavigationTarget) -> bool:
    """Whether a document of which only the beginning was read has the place to begin at."""
    if place.mark is not None:
        return document.index_of(place.mark.key) is not None
    if place.ref is not None and place.ref.turn is not None:
        # The last turn may not be whole.
        return place.ref.turn < document.turns_total
    return not place.words
