"""Cross-validates the weights of the reranker: what they gain on questions that did not choose them.

    python -m tests.eval.cross_validation DIRECTORY

DIRECTORY has the public collections. The questions are split into five folds. For each fold, one factor
for each weight is chosen on the questions of the other folds, from a small grid, and measured on the fold.
The table has the gain over the bonuses for title and length alone, with a third of the weight for length.
"""

from __future__ import annotations

import argparse
import random
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kbtui.search.rule_based_passage_reranker import (
    RankBonuses,
    compute_score_changes_from_turn_reordering,
)
from kbtui.search.search_pipeline import SearchRun, run_search_and_build_answer
from kbtui.search.search_request_and_answer import SCORE_DIGITS, SearchRequest
from tests.eval.__main__ import GUARDED, load_set
from tests.eval.indexed_corpus import Vectors
from tests.eval.metrics import compare_by_bootstrap, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kbtui.search.search_request_and_answer import Hit
    from tests.eval.indexed_corpus import IndexedCorpus

FOLDS = 5
GRID = [
    RankBonuses(1.0, length, words, reply, conversation, role=1.0)
    for length, words, reply, conversation in product(
        (1 / 3, 1.0, 4 / 3), (0.0, 0.5, 1.0, 1.5), (0.0, 0.5, 1.0, 1.5), (0.0, 0.5, 1.0, 1.5)
    )
]
"""The factors by which the bonuses are multiplied. The bonuses are linear in their weights."""
IN_USE = GRID.index(RankBonuses(1.0, 1.0, 1.0, 1.0, 1.0, 1.0))
WITHOUT = GRID.index(RankBonuses(1.0, 1 / 3, 0.0, 0.0, 0.0, 1.0))
MAX_HITS_MEASURED = 40
"""Only this many of the first hits are turned into a ranking, of which ten are measured."""


class Candidates(NamedTuple):
    """The hits of a question, each with its score without bonuses and its bonuses."""

    rows: Sequence[tuple[Hit, float, RankBonuses]]
    rank: Callable[[list[Hit]], list[str]]
    gains: Mapping[str, float]

    def measure_with(self, factors: RankBonuses) -> tuple[float, float]:
        """Return nDCG@10 and recall@10 if the bonuses are multiplied by `factors`."""

        scaled = [
            RankBonuses(*(f * bonus for f, bonus in zip(factors, bonuses, strict=True)))
            for _, _, bonuses in self.rows
        ]
        places = compute_score_changes_from_turn_reordering(
            {
                at: (score, scaled[at])
                for at, (hit, score, _) in enumerate(self.rows)
                if hit.turn is not None
            }
        )
        scores = {
            at: round(score + bonuses._replace(place=places.get(at, 0.0)).total, SCORE_DIGITS)
            for at, ((_, score, _), bonuses) in enumerate(zip(self.rows, scaled, strict=True))
        }
        order = sorted(scores, key=lambda at: (-scores[at], self.rows[at][0].chunk_id))
        hits = [self.rows[at][0] for at in order[:MAX_HITS_MEASURED]]
        found = measure(self.rank(hits), self.gains)
        return found[GUARDED[0]], found[GUARDED[1]]


def find_candidates(
    corpus: IndexedCorpus,
    text: str,
    rank: Callable[[list[Hit]], list[str]],
    gains: Mapping[str, float],
) -> Candidates:
    """Search, and return the hits that were reranked."""
    run = SearchRun(corpus.workspace, corpus.reader, SearchRequest(text, limit=100))
    hits = run_search_and_build_answer(run, corpus.semantic).hits
    numbers = {chunk_id: number for number, (chunk_id, _) in run.visible_chunks.items()}
    rows = []
    for hit in hits:
        number = numbers[hit.chunk_id]
        bonuses = run.bonuses.get(number, RankBonuses())
        rows.append((hit, run.scores[number] - bonuses.total, bonuses))
    return Candidates(rows, rank, gains)


Figures = list[list[tuple[float, float]]]
"""For each element of `GRID`, the figures of each question of a set."""


def choose_factors(sets: Mapping[str, Figures], left_out: Mapping[str, set[int]]) -> int:
    """Return the position in `GRID` with the best mean gain over all sets. A loss in a set counts three times."""

    def judge(position: int) -> float:
        total = 0.0
        for name, figures in sets.items():
            chosen = [at for at in range(len(figures[0])) if at not in left_out[name]]
            without, mine = figures[WITHOUT], figures[position]
            gain = sum(
                0.7 * (mine[at][0] - without[at][0]) + 0.3 * (mine[at][1] - without[at][1])
                for at in chosen
            )
            gain /= sum(without[at][0] for at in chosen) ** 0.5 * len(chosen) ** 0.5
            total += gain if gain > 0 else 3 * gain
        return total

    return max(range(len(GRID)), key=judge)


def main() -> None:
    """Print the gain of each set with the weights in use, and with weights of other folds."""
    parser = argparse.ArgumentParser(prog="python -m tests.eval.cross_validation")
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    vectors = Vectors()
    sets: dict[str, Figures] = {}
    for name in ("cranfield", "qmsum", "turns", "utterances"):
        found = load_set(name, vectors, directory)
        assert found is not None, f"no {name} in {directory}"
        corpus, questions = found
        candidates = [find_candidates(corpus, *question[1:]) for question in questions]
        corpus.close()
        sets[name] = [[one.measure_with(factors) for one in candidates] for factors in GRID]
    draw = random.Random(17)
    folds = {name: [draw.randrange(FOLDS) for _ in figures[0]] for name, figures in sets.items()}
    crossed = {name: list(figures[WITHOUT]) for name, figures in sets.items()}
    for fold in range(FOLDS):
        own = {name: {at for at, n in enumerate(of) if n == fold} for name, of in folds.items()}
        position = choose_factors(sets, own)
        print(f"fold {fold}: factors {GRID[position]._asdict()}")
        for name, positions in own.items():
            for at in positions:
                crossed[name][at] = sets[name][position][at]
    for name, figures in sets.items():
        for label, mine in (("in use", figures[IN_USE]), ("other folds", crossed[name])):
            for column, metric in enumerate(GUARDED):
                gain, low, high = compare_by_bootstrap(
                    [row[column] for row in mine], [row[column] for row in figures[WITHOUT]]
                )
                print(f"{name:<10}{label:<12}{metric:<10}{gain:+.4f} [{low:+.4f}, {high:+.4f}]")


if __name__ == "__main__":
    main()
