"""A million chunks: how long questions take, how near the vectors' index is to exact, what memory it takes.

Long, and so only run when it is named: `make bench ARGS="million --size 50000"` tries it small.
Subjects are real files, indexed as any; their vectors are made up, in clusters as those of texts.
"""

import itertools
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kbtui.engine import connect
from kbtui.index import Index, IndexReader
from kbtui.index.backlog import _row
from kbtui.index.embedding import Embedder, ModelUnavailable, find_model
from kbtui.index.onnx import FastEmbedder, export
from kbtui.index.standing import StandingWriter
from kbtui.index.vectors import LEAN_ON, VectorStore, condition, leaning
from kbtui.search import Question
from kbtui.search.answer import answer
from kbtui.search.records import Ranking
from kbtui.workspace import Settings, open_root
from tests.bench.measure import Row, timed

SECTIONS = 50
QUESTIONS = 200
size = 1_000_000


def million(base: Path, times: int) -> Iterator[Row]:
    """Keywords, fusion, recall and memory at `size` chunks."""
    words = write_subjects(base, size // SECTIONS)
    settings = Settings(model="off")
    index = Index(open_root(base), settings)
    print(f"  keyword index: {timed(index.refresh):.0f} s")
    folder, made = index.folder, Vectors(index, base / "vectors.f32")
    index.close()
    reader = IndexReader(open_root(base).cache_dir)
    print(f"  {reader.counts()['chunks']:,} chunks; vectors: {made.seconds:.0f} s")
    questions = [" ".join(one) for one in words]
    workspace = open_root(base)

    def ask(mode: str, leg: Any = None) -> list[float]:
        asked = [Question(text, mode=mode) for text in questions]  # type: ignore[arg-type]
        for question in asked[:5]:
            answer(workspace, reader, question, leg)
        began = time.process_time()
        took = [
            timed(lambda one=question: answer(workspace, reader, one, leg))  # type: ignore[misc]
            for question in asked
        ]
        used = (time.process_time() - began) / len(asked) * 1000
        print(f"  {mode}: {used:.1f} ms of processor time a question")
        return took

    say("keywords, in process", ask("lexical"), 25)
    say("hybrid, in process, the question embedded too", ask("hybrid", made.leg(embedder())), 80)
    print(f"  {made.recall()}")
    reader.close()
    StandingWriter(folder).begin(reader_seq(folder), find_model("").key, [])
    yield from ()
    memory(base)


def write_subjects(base: Path, count: int) -> list[list[str]]:
    """Subjects of fifty sections; returns what to ask for."""
    made = random.Random(1)
    lines = natural_lines(made, 20_000)
    (base / ".jp").mkdir(parents=True, exist_ok=True)
    (base / ".jp/kb.toml").write_text('[kb.topic.bulk]\nsubjects = "docs"\n')
    for number in range(count):
        folder = base / "docs" / f"d{number // 100:04}"
        folder.mkdir(parents=True, exist_ok=True)
        parts = [f"# Subject {number}\n"]
        for section in range(SECTIONS):
            text = "\n".join(made.choices(lines, k=2))
            parts.append(f"## Part {section} of {number}\n\n{text}\n")
        (folder / f"s{number:06}.md").write_text("\n".join(parts))
    return [made.sample(made.choice(lines).split(), made.randint(2, 4)) for _ in range(QUESTIONS)]


def natural_lines(made: random.Random, count: int) -> list[str]:
    """Lines of twelve words, each word as often as its rank in a language has it (Zipf)."""
    words = ["".join(made.choices("aeioubcdfglmnprst", k=3 + rank % 7)) for rank in range(50_000)]
    often = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    return [" ".join(made.choices(words, cum_weights=often, k=12)) for _ in range(count)]


def say(name: str, seconds: list[float], target: int) -> None:
    """A row without a baseline: median and p95."""
    held = sorted(seconds)
    p95 = held[int(len(held) * 0.95) - 1] * 1000
    print(
        f"{name:<52} median {statistics.median(held) * 1000:6.1f} ms, p95 {p95:6.1f} ms"
        f"   (target p95 {target} ms)",
        flush=True,
    )


def embedder() -> Embedder | FastEmbedder:
    """The model that an engine would have."""
    model = find_model("")
    try:
        export(model)
        return FastEmbedder(model)
    except ModelUnavailable:
        return Embedder(model)


def reader_seq(folder: Path) -> int:
    from kbtui.index.catalog import Catalog

    catalog = Catalog(folder / "catalog.sqlite")
    try:
        return catalog.seq()
    finally:
        catalog.close()


class Vectors:
    """Made-up vectors of all chunks, in the table and, for exact search, in a file."""

    def __init__(self, index: Index, path: Path) -> None:
        began = time.monotonic()
        self._random = np.random.default_rng(1)
        wanted = list(index.catalog.wanted_vectors())
        self._centres = self._random.standard_normal((max(20, len(wanted) // 500), 384))
        self.numbers = np.array([number for number, _, _ in wanted])
        self.held = np.memmap(path, np.float32, "w+", shape=(len(wanted), 384))
        self.store = VectorStore(index.folder / "vectors", find_model("").key, 384)
        owners: dict[str, Any] = {}
        for at in range(0, len(wanted), 20_000):
            part = wanted[at : at + 20_000]
            vectors = self.some(len(part))
            self.held[at : at + len(part)] = vectors
            rows = []
            for number, name, mark in part:
                if name not in owners:
                    owners[name] = index.catalog.entry(name)
                row = _row(owners[name], _Chunk(number, mark))  # type: ignore[arg-type]
                rows.append(row)
            self.store.add(rows, vectors)
        self.store.tidy(force=True)
        self.seconds = time.monotonic() - began

    def some(self, count: int) -> Any:
        """Unit vectors, each near the centre of a cluster."""
        found = self._centres[self._random.integers(0, len(self._centres), count)]
        found = found / np.linalg.norm(found, axis=1, keepdims=True)
        found = found + 0.06 * self._random.standard_normal((count, 384))
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

    def leg(self, model: Embedder | FastEmbedder) -> Callable[..., Ranking]:
        """The semantic leg as the engine has it; the text is embedded, and a made-up vector asked."""

        def ask(text: str, question: Question, generation: str) -> Ranking:
            model.encode_query(text)
            vector = leaning(
                self.some(1)[0].tolist(), self.store.vector(list(question.worded[:LEAN_ON]))
            )
            return Ranking(
                self.store.search(vector, condition(), question.depth, question.per_entry)
            )

        return ask

    def recall(self) -> str:
        """Recall@10 of the table's index against exact search."""
        asked = self.some(50)
        found = 0
        for vector in asked:
            near = self.held @ vector
            exact = set(self.numbers[np.argpartition(-near, 10)[:10]].tolist())
            ranked = self.store.search(vector.tolist(), condition(), 10, 1000)
            found += len(exact & {number for number, _ in ranked})
        parts = self.store._partitions
        return f"recall@10 against exact search {found / 500:.3f} ({parts} partitions)"


class _Chunk:
    """What a row needs of a chunk."""

    role, timestamp = None, None

    def __init__(self, number: int, mark: bytes) -> None:
        self.number, self.vector_hash = number, mark


PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""

TUI = """
import sys
from pathlib import Path
from kbtui.library import open_workspace
from kbtui.tui import app
class First(app.KbApp):
    CSS_PATH = Path(app.__file__).with_name(app.KbApp.CSS_PATH)
    def on_ready(self):
        self.set_timer(8, self.exit)
First(open_workspace(sys.argv[1])).run(headless=True, size=(120, 40))
"""


def memory(base: Path) -> None:
    """Peak memory of the keyword command, of the TUI, and of engines without and with a model."""
    python = sys.executable
    search = [python, "-m", "kbtui.cli.main", "search", "-w", str(base), "--mode", "lexical"]
    os.environ["KBTUI_MODEL"] = "off"
    engine = connect(open_root(base))
    engine.request("refresh", wait=600, timeout=700)
    for _ in range(20):
        subprocess.run([*search, "subject", "part"], stdout=subprocess.DEVNULL, check=True)
    # --wait is what the short way through the engine does not know.
    for name, words, target in (
        ("keyword command, by itself", [*search, "--wait", "5", "subject"], 60),
        ("keyword command, by the engine", [*search, "subject"], 60),
        ("TUI", [python, "-c", TUI, str(base)], 150),
    ):
        said = subprocess.run(
            [python, "-c", PEAK, *words], capture_output=True, text=True, check=True
        )
        print(f"peak memory of {name:<38} {said.stdout.strip():>5} MB   (target {target} MB)")
    print(
        f"peak memory of {'engine, model switched off':<38} {peak(engine.pid):>5} MB   (target 700 MB)"
    )
    engine.end()
    del os.environ["KBTUI_MODEL"]
    engine = connect(open_root(base))
    engine.request("refresh", meaning=True, wait=600, timeout=700)
    while not engine.request("settle", wait=5.0, timeout=60)["done"]:
        pass
    for _ in range(20):
        subprocess.run([*search[:-1], "hybrid", "subject"], stdout=subprocess.DEVNULL, check=True)
    print(f"peak memory of {'engine with model and vectors':<38} {peak(engine.pid):>5} MB")
    engine.end()


def peak(pid: int) -> int:
    """Megabytes, from the kernel."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1024


BENCHES = {"million": million}
