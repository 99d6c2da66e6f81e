"""`make eval`: measure every leg and the fusion, print a table, compare with what was kept.

    python -m tests.eval [--write] [--misses] [SET…]

Sets are `cranfield` (left out where the collection is not there), `demo` and
`sealed`. A figure of the fusion that falls by more than .01 against
`golden/metrics.json`, a fusion below its better leg or below plain RRF, is exit
code 1; `--write` keeps the new figures and runs instead.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.search import Question
from kbtui.search.pipeline import SearchRun, build_answer, fuse_rankings
from tests.eval import cranfield, labelled
from tests.eval.bed import Bed, Vectors, cache_folder, open_bed
from tests.eval.metrics import METRICS, mean, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kbtui.search import Hit
    from kbtui.search.pipeline import SemanticLeg, SemanticRanker

GOLDEN = Path(__file__).parent / "golden"
FALL = 0.01
KEPT = 10
"""So many places of each ranking are kept as a run."""

Task = tuple[str, str, "Callable[[list[Hit]], list[str]]", "Mapping[str, float]"]
"""Name and text of a question, how its hits become a ranking, and its gains."""


class Plain(SearchRun):
    """The documented baseline: reciprocal rank fusion with k = 60 and equal weights, no more."""

    def ask(self, semantic: SemanticLeg | None) -> None:
        """Fuse the same legs the plain way."""
        assert semantic is not None

        def begin(text: str) -> SemanticRanker:
            begun = semantic(text)
            return lambda question, mark: begun(replace(question, worded=()), mark)

        super().ask(begin)
        legs = {name: [number for number, _ in ranked] for name, ranked in self.legs.items()}
        self.scores = fuse_rankings(legs, k=60, weights={}, depth=1_000_000)


def ways(bed: Bed, text: str) -> Iterator[tuple[str, list[Hit]]]:
    """The hits of a question by each way of asking."""
    for name, mode in (("keywords", "lexical"), ("meaning", "semantic"), ("fusion", "hybrid")):
        yield name, bed.ask(Question(text, mode=mode, limit=100)).hits  # type: ignore[arg-type]
    asked = Plain(bed.workspace, bed.reader, Question(text, limit=100))
    yield "plain RRF", build_answer(asked, bed.semantic).hits


def tasks(name: str, vectors: Vectors) -> tuple[Bed, list[Task]] | None:
    """A set's workspace and questions; None where it is not there."""
    if name == "cranfield":
        folder = cranfield.find()
        if folder is None:
            return None
        root = cache_folder() / "cranfield"
        cranfield.write_workspace(folder, root)
        return open_bed(root, vectors), [
            (number, text, _slugs, gains) for number, text, gains in cranfield.questions(folder)
        ]
    root = cache_folder() / "demo"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(labelled.CORPUS, root)
    questions = labelled.read("questions" if name == "demo" else "sealed")
    return open_bed(root, vectors), [
        (f"{one.kind}/{one.text}", one.text, one.ranking, one.gains) for one in questions
    ]


def _slugs(hits: list[Hit]) -> list[str]:
    """Documents instead of passages."""
    return list(dict.fromkeys(hit.slug or "" for hit in hits))


def run(name: str, vectors: Vectors) -> tuple[dict[str, dict[str, float]], list[str], list[str]]:
    """The figures of each way, the fusion's run in TREC's format, and notes for a person."""
    found = tasks(name, vectors)
    if found is None:
        return {}, [], []
    bed, questions = found
    rows: dict[str, list[dict[str, float]]] = {}
    lines: list[str] = []
    notes: list[str] = []
    beyond = 0
    for number, (title, text, ranked, gains) in enumerate(questions, 1):
        first = {}
        for way, hits in ways(bed, text):
            ranking = ranked(hits)
            rows.setdefault(way, []).append(measure(ranking, gains))
            places = [at for at, item in enumerate(ranking, 1) if item in gains]
            first[way] = places[0] if places else None
            if way == "fusion":
                lines += [
                    f"{number} Q0 {item.replace(' ', '_')} {at} {1 / at:.6f} kbtui"
                    for at, item in enumerate(ranking[:KEPT], 1)
                ]
        beyond += not (first["keywords"] and first["keywords"] <= 10)
        notes.append(
            f"{first['keywords']!s:>5} {first['meaning']!s:>5} {first['fusion']!s:>5}  {title}"
        )
    bed.close()
    notes.append(f"answers beyond the keywords' first ten: {beyond} of {len(questions)}")
    return {way: mean(figures) for way, figures in rows.items()}, lines, notes


def judge(name: str, figures: dict[str, dict[str, float]], kept: dict[str, float]) -> list[str]:
    """What is worse than it may be."""
    wrong = []
    fusion = figures["fusion"]
    for metric in ("ndcg@10", "recall@10"):
        best = max(figures[way][metric] for way in ("keywords", "meaning"))
        if round(fusion[metric], 4) < round(best, 4):
            wrong.append(f"{name}: {metric} of the fusion is below its better leg")
        if round(fusion[metric], 4) < round(figures["plain RRF"][metric], 4):
            wrong.append(f"{name}: {metric} of the fusion is below plain RRF")
    wrong += [
        f"{name}: {metric} fell from {kept[metric]:.4f} to {fusion[metric]:.4f}"
        for metric in METRICS
        if metric in kept and fusion[metric] < kept[metric] - FALL
    ]
    return wrong


def main() -> int:
    """Measure; 1 when something is worse than it may be."""
    parser = argparse.ArgumentParser(prog="python -m tests.eval")
    parser.add_argument("sets", nargs="*", metavar="SET", default=["cranfield", "demo", "sealed"])
    parser.add_argument("--write", action="store_true", help="keep these figures and runs")
    parser.add_argument("--misses", action="store_true", help="each question's first right place")
    args = parser.parse_args()
    kept_file = GOLDEN / "metrics.json"
    kept = json.loads(kept_file.read_text()) if kept_file.exists() else {}
    vectors = Vectors()
    wrong: list[str] = []
    for name in args.sets:
        figures, lines, notes = run(name, vectors)
        if not figures:
            print(f"{name}: not here (see KBTUI_CRANFIELD in tests/eval/cranfield.py)")
            continue
        print(f"\n{name:<12}" + "".join(f"{metric:>11}" for metric in METRICS))
        for way, row in figures.items():
            print(f"  {way:<10}" + "".join(f"{row[metric]:>11.4f}" for metric in METRICS))
        # Which of the sealed questions fail is not for tuning to see.
        print("\n".join(notes if args.misses and name != "sealed" else notes[-1:]))
        if args.write:
            rounded = {
                way: {metric: round(value, 4) for metric, value in row.items()}
                for way, row in figures.items()
            }
            kept[name] = rounded
            GOLDEN.mkdir(exist_ok=True)
            kept_file.write_text(json.dumps(kept, indent=2) + "\n")
            (GOLDEN / f"{name}.trec").write_text("\n".join(lines) + "\n")
        wrong += judge(name, figures, kept.get(name, {}).get("fusion", {}))
    print("\n".join(["", *wrong]) if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
