"""nDCG, recall and reciprocal rank of one ranking against its judgements."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METRICS = ("ndcg@10", "recall@10", "recall@50", "mrr@10")


def measure(ranking: Sequence[str], gains: Mapping[str, float]) -> dict[str, float]:
    """The four figures of a ranking without repeats; `gains` has what is relevant, over 0."""
    return {
        "ndcg@10": ndcg(ranking, gains, 10),
        "recall@10": recall(ranking, gains, 10),
        "recall@50": recall(ranking, gains, 50),
        "mrr@10": reciprocal_rank(ranking, gains, 10),
    }


def ndcg(ranking: Sequence[str], gains: Mapping[str, float], depth: int) -> float:
    """Discounted gain over the best possible one; gains are linear."""
    found = _discounted([gains.get(item, 0.0) for item in ranking[:depth]])
    best = _discounted(sorted(gains.values(), reverse=True)[:depth])
    return found / best if best else 0.0


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / log2(at + 1) for at, gain in enumerate(gains, 1))


def recall(ranking: Sequence[str], gains: Mapping[str, float], depth: int) -> float:
    """The part of what is relevant that stands in the first `depth`."""
    return len(set(ranking[:depth]) & gains.keys()) / len(gains) if gains else 0.0


def reciprocal_rank(ranking: Sequence[str], gains: Mapping[str, float], depth: int) -> float:
    """One over the place of the first relevant item, 0 when it is not in the first `depth`."""
    for at, item in enumerate(ranking[:depth], 1):
        if item in gains:
            return 1.0 / at
    return 0.0


def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each figure over questions."""
    return {name: sum(row[name] for row in rows) / max(1, len(rows)) for name in METRICS}
