"""`make eval`: measure every ranking and the fusion, print a table, compare with saved figures.

    python -m tests.eval [--write] [--misses] [SET…]

Sets are `cranfield` (skipped if the collection is missing), `demo` and `sealed`. The exit code
is 1 if a figure of the fusion is more than .01 below `golden/metrics.json`, or if the fusion is
below its better ranking or below plain RRF. `--write` saves the new figures and rankings.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.search.search_pipeline import SearchRun, fuse_rankings, run_search_and_build_answer
from kbtui.search.search_request_and_answer import SearchRequest
from tests.arguments import make_name_parser
from tests.eval import cranfield
from tests.eval.indexed_corpus import IndexedCorpus, Vectors, cache_folder, index_corpus
from tests.eval.labelled_questions import CORPUS, read_questions
from tests.eval.metrics import METRICS, mean, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kbtui.search.search_pipeline import SemanticLeg, SemanticRanker
    from kbtui.search.search_request_and_answer import Hit

GOLDEN = Path(__file__).parent / "golden"
SETS = ("cranfield", "demo", "sealed")
LARGEST_LOSS = 0.01
SAVED_RANKS = 10
"""The number of ranks that are saved for each question."""

Task = tuple[str, str, "Callable[[list[Hit]], list[str]]", "Mapping[str, float]"]
"""Name and text of a question, the function that turns hits into a ranking, and the gains."""


class PlainFusion(SearchRun):
    """The baseline: reciprocal rank fusion with k = 60 and equal weights."""

    def run_search_legs(self, semantic: SemanticLeg | None) -> None:
        """Fuse both rankings without kbtui's additions."""
        assert semantic is not None

        def begin(text: str) -> SemanticRanker:
            begun = semantic(text)
            return lambda question, mark: begun(question._replace(worded=()), mark)

        super().run_search_legs(begin)
        legs = {name: [number for number, _ in ranked] for name, ranked in self.legs.items()}
        self.scores = fuse_rankings(legs, k=60, depth=1_000_000)


def search_each_way(corpus: IndexedCorpus, text: str) -> Iterator[tuple[str, list[Hit]]]:
    """Yield the name and the hits of each way to search."""
    for name, mode in (("keywords", "lexical"), ("meaning", "semantic"), ("fusion", "hybrid")):
        yield name, corpus.search(SearchRequest(text, mode=mode, limit=100)).hits  # type: ignore[arg-type]
    asked = PlainFusion(corpus.workspace, corpus.reader, SearchRequest(text, limit=100))
    yield "plain RRF", run_search_and_build_answer(asked, corpus.semantic).hits


def load_set(name: str, vectors: Vectors) -> tuple[IndexedCorpus, list[Task]] | None:
    """Return a set's indexed workspace and its questions, or None if it is missing."""
    if name == "cranfield":
        folder = cranfield.find_collection()
        if folder is None:
            return None
        root = cache_folder() / "cranfield"
        cranfield.write_workspace(folder, root)
        return index_corpus(root, vectors), [
            (number, text, _list_slugs, gains)
            for number, text, gains in cranfield.read_questions(folder)
        ]
    root = cache_folder() / "demo"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(CORPUS, root)
    questions = read_questions("questions" if name == "demo" else "sealed")
    return index_corpus(root, vectors), [
        (f"{one.kind}/{one.text}", one.text, one.rank_answers, one.gains) for one in questions
    ]


def _list_slugs(hits: list[Hit]) -> list[str]:
    """Return the documents of hits, without repeats."""
    return list(dict.fromkeys(hit.slug or "" for hit in hits))


def measure_set(
    name: str, vectors: Vectors
) -> tuple[dict[str, dict[str, float]], list[str], list[str]]:
    """Return the figures of each way, the fusion's rankings in TREC's format, and remarks."""
    found = load_set(name, vectors)
    if found is None:
        return {}, [], []
    corpus, questions = found
    rows: dict[str, list[dict[str, float]]] = {}
    lines: list[str] = []
    notes: list[str] = []
    beyond = 0
    for number, (title, text, ranked, gains) in enumerate(questions, 1):
        first = {}
        for way, hits in search_each_way(corpus, text):
            ranking = ranked(hits)
            rows.setdefault(way, []).append(measure(ranking, gains))
            places = [at for at, item in enumerate(ranking, 1) if item in gains]
            first[way] = places[0] if places else None
            if way == "fusion":
                lines += [
                    f"{number} Q0 {item.replace(' ', '_')} {at} {1 / at:.6f} kbtui"
                    for at, item in enumerate(ranking[:SAVED_RANKS], 1)
                ]
        beyond += not (first["keywords"] and first["keywords"] <= 10)
        notes.append(
            f"{first['keywords']!s:>5} {first['meaning']!s:>5} {first['fusion']!s:>5}  {title}"
        )
    corpus.close()
    notes.append(f"answers beyond the keywords' first ten: {beyond} of {len(questions)}")
    return {way: mean(figures) for way, figures in rows.items()}, lines, notes


def list_regressions(
    name: str, figures: dict[str, dict[str, float]], kept: dict[str, float]
) -> list[str]:
    """Return a sentence for each figure that is too low."""
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
        if metric in kept and fusion[metric] < kept[metric] - LARGEST_LOSS
    ]
    return wrong


def main() -> int:
    """Measure the sets; return 1 if a figure is too low."""
    parser = argparse.ArgumentParser(prog="python -m tests.eval")
    parser.add_argument(
        "sets", nargs="*", type=make_name_parser(SETS), metavar="SET", help=", ".join(SETS)
    )
    parser.add_argument("--write", action="store_true", help="save these figures and rankings")
    parser.add_argument(
        "--misses", action="store_true", help="print the rank of each question's first answer"
    )
    args = parser.parse_args()
    kept_file = GOLDEN / "metrics.json"
    kept = json.loads(kept_file.read_text()) if kept_file.exists() else {}
    vectors = Vectors()
    wrong: list[str] = []
    for name in args.sets or SETS:
        figures, lines, notes = measure_set(name, vectors)
        if not figures:
            print(f"{name}: skipped: KBTUI_CRANFIELD does not name the collection")
            continue
        print(f"\n{name:<12}" + "".join(f"{metric:>11}" for metric in METRICS))
        for way, row in figures.items():
            print(f"  {way:<10}" + "".join(f"{row[metric]:>11.4f}" for metric in METRICS))
        # Tuning must not see which of the sealed questions fail.
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
        wrong += list_regressions(name, figures, kept.get(name, {}).get("fusion", {}))
    print("\n".join(["", *wrong]) if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
