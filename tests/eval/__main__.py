"""`make eval`: measure every ranking and the fusion, print tables, compare with saved figures.

    python -m tests.eval [--write] [--misses] [--collections DIRECTORY] [SET…]

Sets are `cranfield`, `qmsum`, `turns`, `utterances`, `exchanges`, `workspace`, `demo` and `sealed`. The first two
are public collections. `turns` and `utterances` have other questions about the meetings of `qmsum`, each about
a single turn. Those of `exchanges` are about one to five turns. `workspace` has questions about the conversations of a public JP workspace. All but the last two are skipped
if `--collections`, or `KBTUI_EVAL_COLLECTIONS`, does not name a directory with `cranfield`, `qmsum` and
`jp-workspace`.

Beside each difference stands its interval of 95 % (paired bootstrap over the questions). The exit code
is 1 if the fusion is below its better ranking or below plain RRF, or if it is significantly below the saved
figures of the same questions. `--write` saves the new figures and rankings.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.assistant.assistant_tools import format_search_answer_for_assistant
from kbtui.search.search_pipeline import SearchRun, run_search_and_build_answer
from kbtui.search.search_request_and_answer import SearchRequest
from tests.arguments import make_name_parser
from tests.eval import cranfield, qmsum
from tests.eval.indexed_corpus import IndexedCorpus, Vectors, cache_folder, index_corpus
from tests.eval.indexing_costs import format_indexing_costs
from tests.eval.labelled_questions import CORPUS, read_decisions, read_questions, squeeze_space
from tests.eval.metrics import METRICS, compare_by_bootstrap, mean, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kbtui.search.search_pipeline import SemanticRanker, SemanticSearchStarter
    from kbtui.search.search_request_and_answer import Hit

GOLDEN = Path(__file__).parent / "golden"
COLLECTIONS: dict[
    str, tuple[Any, str, Callable[[Path], list[tuple[str, str, dict[str, float]]]]]
] = {
    "cranfield": (cranfield, "cranfield", cranfield.read_questions),
    "qmsum": (qmsum, "qmsum", qmsum.read_questions),
    "turns": (qmsum, "qmsum", partial(qmsum.read_turn_questions, "turns")),
    "utterances": (qmsum, "qmsum", partial(qmsum.read_turn_questions, "utterances")),
    "exchanges": (qmsum, "qmsum", partial(qmsum.read_turn_questions, "exchanges")),
}
"""The module of each set that uses a public collection, its directory, and the function that reads its questions."""
LABELLED_SETS = {"workspace": "workspace", "demo": "questions", "sealed": "sealed"}
"""The name of the file of questions of each set that is judged by passage."""
SETS = (*COLLECTIONS, *LABELLED_SETS)
GUARDED = ("ndcg@10", "recall@10")
"""The metrics in which the fusion must not be below its rankings or below plain RRF."""
SAVED_RANKS = 10
"""The number of ranks that are saved for each question."""

Task = tuple[str, str, "Callable[[list[Hit]], list[str]]", "Mapping[str, float]"]
"""Name and text of a question, the function that turns hits into a ranking, and the gains."""


class PlainFusion(SearchRun):
    """The baseline: reciprocal rank fusion with k = 60 and equal weights."""

    def rank_by_keywords_and_meaning(self, semantic: SemanticSearchStarter | None) -> None:
        """Run the legs without moving the query's vector."""
        assert semantic is not None

        def begin(text: str) -> SemanticRanker:
            begun = semantic(text)
            return lambda question, mark: begun(question._replace(worded=()), mark)

        super().rank_by_keywords_and_meaning(begin)

    def fuse_rankings(self) -> None:
        """Add 1 / (60 + rank) of both legs."""
        for ranks in self.fusion.ranks.values():
            for number, rank in ranks.items():
                self.scores[number] = self.scores.get(number, 0.0) + 1 / (60 + rank)


def search_each_way(corpus: IndexedCorpus, text: str) -> Iterator[tuple[str, list[Hit]]]:
    """Yield the name and the hits of each way to search."""
    for name, mode in (("keywords", "lexical"), ("meaning", "semantic"), ("fusion", "hybrid")):
        yield name, corpus.search(SearchRequest(text, mode=mode, limit=100)).hits  # type: ignore[arg-type]
    asked = PlainFusion(corpus.workspace, corpus.reader, SearchRequest(text, limit=100))
    yield "plain RRF", run_search_and_build_answer(asked, corpus.semantic).hits


def load_set(
    name: str, vectors: Vectors, collections: Path | None
) -> tuple[IndexedCorpus, list[Task]] | None:
    """Return a set's indexed workspace and its questions, or None if it is missing."""
    if name in COLLECTIONS:
        module, directory, read = COLLECTIONS[name]
        folder = collections / directory if collections else None
        if folder is None or not (folder / module.FILE).is_file():
            return None
        root = cache_folder() / directory
        module.write_workspace(folder, root)
        rank = _list_slugs if name == "cranfield" else _list_turns
        return _index_once(root, vectors), [
            (number, text, rank, gains) for number, text, gains in read(folder)
        ]
    source = CORPUS
    if name == "workspace":
        if collections is None or not (collections / "jp-workspace").is_dir():
            return None
        source = collections / "jp-workspace"
    questions = read_questions(LABELLED_SETS[name])
    return _index_once(_copy_once(source), vectors), [
        (f"{one.kind}/{one.text}", one.text, one.rank_answers, one.gains) for one in questions
    ]


@cache
def _copy_once(source: Path) -> Path:
    root = cache_folder() / (source.name if source != CORPUS else "demo")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root)
    return root


@lru_cache(maxsize=2)
def _index_once(root: Path, vectors: Vectors) -> IndexedCorpus:
    """Index a workspace. Sets that follow each other often have the same one."""
    return index_corpus(root, vectors)


def _list_turns(hits: list[Hit]) -> list[str]:
    """Return the turns of hits, without repeats."""
    return list(dict.fromkeys(hit.ref.partition(".")[0] for hit in hits))


def _list_slugs(hits: list[Hit]) -> list[str]:
    """Return the documents of hits, without repeats."""
    return list(dict.fromkeys(hit.slug or "" for hit in hits))


def measure_set(
    name: str, vectors: Vectors, collections: Path | None
) -> tuple[dict[str, list[dict[str, float]]], list[str], list[str]]:
    """Return the figures of each way and question, the fusion's rankings in TREC's format, and remarks."""
    found = load_set(name, vectors, collections)
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
    notes.append(f"answers beyond the keywords' first ten: {beyond} of {len(questions)}")
    return rows, lines, notes


def compare_fusion(
    name: str, rows: dict[str, list[dict[str, float]]], kept: list[list[float]]
) -> tuple[list[str], list[str]]:
    """Compare the fusion with the other ways and with the saved figures of each question.

    Returns a line for each difference with its interval, and a sentence for each failure.
    """
    lines, wrong = [], []
    fusion = rows["fusion"]
    if not kept:
        lines.append("  no figures of this set are saved yet; save them with --write")
    elif len(kept) != len(fusion):
        wrong.append(
            f"{name}: {len(kept)} of {len(fusion)} questions have saved figures; save them with --write"
        )
    for metric in GUARDED:
        mine = [row[metric] for row in fusion]
        others = {
            way: [row[metric] for row in figures]
            for way, figures in rows.items()
            if way != "fusion"
        }
        if len(kept) == len(mine):
            others["saved fusion"] = [row[METRICS.index(metric)] for row in kept]
        for way, figures in others.items():
            mean_of, low, high = compare_by_bootstrap(mine, figures)
            lines.append(
                f"  fusion - {way:<13}{metric:<10} {mean_of:+.4f} [{low:+.4f}, {high:+.4f}]"
            )
            if way == "saved fusion":
                if high < 0:
                    wrong.append(f"{name}: {metric} fell significantly, by {-mean_of:.4f}")
            elif round(mean_of, 4) < 0:
                wrong.append(f"{name}: {metric} of the fusion is below {way}")
    return lines, wrong


DECISION_CHARACTERS = 1500
"""Of an answer to a question about a decision, only this many characters are looked at."""


def count_returned_decisions(vectors: Vectors) -> dict[str, int]:
    """Count how often the decision stands in what an assistant gets within `DECISION_CHARACTERS`.

    The keys say what is returned: hits without answers, or hits with the answers in their turns.
    """
    found = load_set("demo", vectors, None)
    assert found is not None
    corpus, _ = found
    counts = {"without answers": 0, "with answers": 0}
    for text, words in read_decisions().items():
        answer = corpus.search(SearchRequest(text, kinds=("conversation",)))
        plain = answer._replace(
            hits=[hit._replace(answer=None, later_turn=None) for hit in answer.hits]
        )
        for name, one in (("without answers", plain), ("with answers", answer)):
            returned = squeeze_space(format_search_answer_for_assistant(one, DECISION_CHARACTERS))
            counts[name] += squeeze_space(words) in returned
    return counts


def measure_indexing_costs(vectors: Vectors, collections: Path | None) -> list[str]:
    """Return lines about the words that are indexed and the documents that edits rewrite."""
    indexed = {"demo": Path(_index_once(_copy_once(CORPUS), vectors).reader.folder)}
    meetings = (
        cache_folder() / "qmsum" if collections and (collections / "qmsum").is_dir() else None
    )
    if meetings:
        indexed["qmsum"] = Path(_index_once(meetings, vectors).reader.folder)
    return format_indexing_costs(indexed, meetings)


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
    parser.add_argument(
        "--collections",
        type=Path,
        default=os.environ.get("KBTUI_EVAL_COLLECTIONS") or None,
        metavar="DIRECTORY",
        help="the directory with cranfield, qmsum and jp-workspace",
    )
    args = parser.parse_args()
    collections = Path(args.collections) if args.collections else None
    kept_file = GOLDEN / "metrics.json"
    kept = json.loads(kept_file.read_text()) if kept_file.exists() else {}
    vectors = Vectors()
    wrong: list[str] = []
    for name in args.sets or SETS:
        rows, lines, notes = measure_set(name, vectors, collections)
        if not rows:
            print(f"{name}: skipped: no directory with this collection is given (--collections)")
            continue
        figures = {way: mean(of_questions) for way, of_questions in rows.items()}
        print(f"\n{name:<12}" + "".join(f"{metric:>11}" for metric in METRICS))
        for way, row in figures.items():
            print(f"  {way:<10}" + "".join(f"{row[metric]:>11.4f}" for metric in METRICS))
        saved = GOLDEN / f"{name}.json"
        differences, failures = compare_fusion(
            name, rows, json.loads(saved.read_text()) if saved.exists() else []
        )
        print("\n".join(differences))
        wrong += failures
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
            of_questions = [[round(row[m], 4) for m in METRICS] for row in rows["fusion"]]
            (GOLDEN / f"{name}.json").write_text(json.dumps(of_questions) + "\n")
    if not args.sets:
        total = len(read_decisions())
        print(f"\ndecisions within {DECISION_CHARACTERS:,} characters, of {total} questions")
        for what, count in count_returned_decisions(vectors).items():
            print(f"  hits {what:<16} {count:>3}  ({count / total:.0%})")
        print("\npassages alone; neighbours with each passage; the share of these costs")
        print("\n".join(measure_indexing_costs(vectors, collections)))
    print("\n".join(["", *wrong]) if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
