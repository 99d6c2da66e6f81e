"""nDCG, recall and reciprocal rank of a ranking, given the relevant items."""

from __future__ import annotations

import random
from math import log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METRICS = ("ndcg@10", "recall@10", "recall@50", "mrr@10")


def measure(ranking: Sequence[str], gains: Mapping[str, float]) -> dict[str, float]:
    """Return the four metrics of a ranking without repeats. `gains` has the positive gain of each relevant item."""
    return {
        "ndcg@10": ndcg(ranking, gains, 10),
        "recall@10": recall(ranking, gains, 10),
        "recall@50": recall(ranking, gains, 50),
        "mrr@10": reciprocal_rank(ranking, gains, 10),
    }


def ndcg(ranking: Sequence[str], gains: Mapping[str, float], depth: int) -> float:
    """Return the discounted gain divided by the best possible one; gains are linear."""
    found = _discounted_gain([gains.get(item, 0.0) for item in ranking[:depth]])
    best = _discounted_gain(sorted(gains.values(), reverse=True)[:depth])
    return found / best if best else 0.0


def _discounted_gain(gains: Sequence[float]) -> float:
    return sum(gain / log2(at + 1) for at, gain in enumerate(gains, 1))


def recall(ranking: Sequence[str], gains: Mapping[str, float], depth: int) -> float:
    """Return the share of relevant items among the first `depth`."""
    return len(set(ranking[:depth]) & gains.keys()) / len(gains) if gains else 0.0


def reciprocal_rank(ranking: Sequence[str], gains: Mapping[str, float], depth: int) -> float:
    """Return one divided by the rank of the first relevant item, or 0 if it is beyond `depth`."""
    for at, item in enumerate(ranking[:depth], 1):
        if item in gains:
            return 1.0 / at
    return 0.0


def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over questions."""
    return {name: sum(row[name] for row in rows) / max(1, len(rows)) for name in METRICS}


RESAMPLES = 2000
"""The bootstrap draws the questions this many times, with replacement."""


def compare_by_bootstrap(
    figures: Sequence[float], others: Sequence[float]
) -> tuple[float, float, float]:
    """Return the mean difference of paired figures, and its 95 % interval by the bootstrap.

    The drawing is the same each time, so the same figures give the same interval.
    """
    differences = [mine - other for mine, other in zip(figures, others, strict=True)]
    count = len(differences)
    draw = random.Random(17)
    means = sorted(sum(draw.choices(differences, k=count)) / count for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return sum(differences) / count, low, high
