"""The order of hits within a leg: best first, equal scores by chunk id.

Chunk numbers and the places of rows in an index depend on how a workspace came to be; scores and
chunk ids depend on its files alone. So equal files give equal answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TOLERANCE = 5e-6
"""Scores that differ by less than this share are equal. Both indexes add 32-bit floats in an order
that depends on where their rows lie."""


class Found(NamedTuple):
    """A chunk that a leg found, with its score and what it belongs to; `tie` orders equal scores."""

    number: int
    score: float
    owner: object
    tie: int


def tie_value(chunk_id: str) -> int:
    """A chunk's id as a 64-bit number; the order is the same."""
    return int(chunk_id, 16)


def best_first(
    rows: Iterable[Found], *, tolerance: float = TOLERANCE, least: float = 0.0, cut: bool = False
) -> list[Found]:
    """The rows by score, equal ones by chunk id.

    `tolerance` is a share of the score, or of `least` where the score is smaller. With `cut` the
    search stopped at a limit: the last group of equal scores may have more rows than were found,
    and is left out.
    """
    ordered = sorted(rows, key=lambda row: -row.score)
    result: list[Found] = []
    start = 0
    for at in range(1, len(ordered) + 1):
        if at < len(ordered):
            score = ordered[at].score
            if ordered[at - 1].score - score <= tolerance * max(least, abs(score)):
                continue
        elif cut:
            break
        result += sorted(ordered[start:at], key=lambda row: row.tie)
        start = at
    return result
