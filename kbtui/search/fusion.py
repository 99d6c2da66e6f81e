"""Fusing the legs: reciprocal rank fusion, deterministic (decisions C, "search API").

A hit's score is the sum over legs of weight / (k + rank), ranks from 1; a hit
that one leg lacks counts there as standing just after that leg's last, when the
leg was filled to its depth. Ties go by chunk id, which the caller sorts by.
"""

from collections.abc import Mapping, Sequence

from kbtui.search.records import DEPTH

K = 15
WEIGHTS = {"lexical": 1.0, "semantic": 1.0}
"""Measured (CONTRIBUTING, "Search quality"); the documented baseline is k = 60."""


def gives(
    leg: str,
    rank: int | None,
    length: int,
    *,
    k: float = K,
    weights: Mapping[str, float] = WEIGHTS,
    depth: int = DEPTH,
) -> float:
    """What a leg of `length` gives to the score of a hit at `rank`, or to one that it lacks."""
    if rank is None or rank > length:
        if length < depth:
            return 0.0
        rank = length + 1
    return weights.get(leg, 1.0) / (k + rank)


def fuse(
    legs: Mapping[str, Sequence[int]],
    *,
    k: float = K,
    weights: Mapping[str, float] = WEIGHTS,
    depth: int = DEPTH,
) -> dict[int, float]:
    """The score of every chunk number that a leg ranked."""
    held = {
        name: {number: at for at, number in enumerate(ranked, 1)} for name, ranked in legs.items()
    }
    return {
        number: sum(
            gives(name, ranks.get(number), len(ranks), k=k, weights=weights, depth=depth)
            for name, ranks in held.items()
        )
        for number in {number for ranked in legs.values() for number in ranked}
    }
