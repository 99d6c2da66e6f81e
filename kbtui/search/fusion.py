"""Fusing the legs: reciprocal rank fusion, deterministic.

A hit's score is the sum over legs of weight / (k + rank), ranks from 1; a hit
that one leg lacks counts there as standing just after that leg's last, when the
leg was filled to its depth. Ties go by chunk id, which the caller sorts by.

While vectors are being made, the semantic leg ranks a sample. A rank in it is
divided by the share that has vectors, which is the rank expected among all; and
a keyword hit without a vector yet counts as if it stood there where it stands by
keywords, so that what was embedded first gains nothing by that.
"""

from collections.abc import Collection, Mapping, Sequence

from kbtui.search.models import DEPTH

K = 15
WEIGHTS = {"lexical": 1.0, "semantic": 1.0}
"""Measured (docs/search-quality.md); the documented baseline is k = 60."""


def gives(
    leg: str,
    rank: int | None,
    length: int,
    *,
    k: float = K,
    weights: Mapping[str, float] = WEIGHTS,
    depth: int = DEPTH,
    coverage: float = 1.0,
) -> float:
    """What a leg of `length` gives to the score of a hit at `rank`, or to one that it lacks.

    `coverage` is the share of chunks, over 0 and up to 1, that the leg could rank at all.
    """
    if rank is None or rank > length:
        if length < depth:
            return 0.0
        rank = length + 1
    return weights.get(leg, 1.0) / (k + rank / coverage)


def fuse(
    legs: Mapping[str, Sequence[int]],
    *,
    k: float = K,
    weights: Mapping[str, float] = WEIGHTS,
    depth: int = DEPTH,
    coverage: float = 1.0,
    pending: Collection[int] = (),
) -> dict[int, float]:
    """The score of every chunk number that a leg ranked.

    `coverage` is the share of chunks that have a vector, `pending` are keyword hits without one.
    """
    held = {
        name: {number: at for at, number in enumerate(ranked, 1)} for name, ranked in legs.items()
    }

    def part(name: str, number: int) -> float:
        share = coverage if name == "semantic" else 1.0
        if name == "semantic" and number in pending:
            name, share = "lexical", 1.0
        ranks = held[name]
        return gives(
            name, ranks.get(number), len(ranks), k=k, weights=weights, depth=depth, coverage=share
        )

    return {
        number: sum(part(name, number) for name in held)
        for number in {number for ranked in legs.values() for number in ranked}
    }
