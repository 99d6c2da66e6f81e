"""A million chunks: how long questions take, how near the vectors' index is to exact, what memory it takes.

Long, and so only run when it is named: `make bench ARGS="million --size 50000"` tries it small, and
`--keep FOLDER` makes the index once. Subjects are real files, indexed as any; their vectors are made up.
"""

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbtui.engine.engine_client import EngineClient
from kbtui.engine.engine_launcher import connect_or_start_engine
from kbtui.index.embedding_model import (
    EmbeddingModelUnavailableError,
    OnnxEmbeddingModel,
    TorchEmbeddingModel,
    export_model_to_onnx,
    find_embedding_model,
)
from kbtui.index.index_reader import IndexReader
from kbtui.index.unembedded_entries_file import EntriesWithoutVectorsWriter
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings, open_workspace_at_root
from tests.bench import clusters
from tests.bench.backlog import load_model
from tests.bench.measure import Row, timed
from tests.bench.peaks import Peak, Watch, peak_of

SECTIONS = 50
QUESTIONS, PASSES = 200, 5
size = 1_000_000


def million(base: Path, times: int) -> Iterator[Row]:
    """Keywords, fusion, recall and memory at `size` chunks."""
    made = base / "made.json"
    if not made.exists():
        make(base, made)
    questions = [" ".join(words) for words in json.loads(made.read_text())]
    workspace = open_workspace_at_root(base)
    reader = IndexReader(workspace.cache_dir)
    near = clusters.Near(reader, base)
    print(f"  {reader.count_catalog_rows()['chunks']:,} chunks, {len(questions)} questions")

    def ask(what: str, target: int, mode: str, leg: Any = None) -> None:
        asked = [SearchRequest(text, mode=mode) for text in questions]  # type: ignore[arg-type]
        for question in asked[:20]:
            search_index(workspace, reader, question, leg)
        say(what, [[each(question, leg) for question in asked] for _ in range(PASSES)], target)

    def each(question: SearchRequest, leg: Any) -> tuple[float, float]:
        began = time.process_time()
        took = timed(lambda: search_index(workspace, reader, question, leg))
        return took, time.process_time() - began

    ask("keywords, in process", 25, "lexical")
    ask("hybrid, in process, the question's vector given", 80, "hybrid", near.leg())
    encode = embedder().embed_query
    ask("hybrid, in process, the question embedded too", 80, "hybrid", near.leg(encode))
    print(near.recall())
    reader.close()
    memory(base)
    yield from ()


def make(base: Path, made: Path) -> None:
    """The subjects, their index and vectors; at last `made`, with what to ask for."""
    words = write_subjects(base, size // SECTIONS)
    index = WorkspaceIndexWriter(open_workspace_at_root(base), Settings(model="off"))
    print(f"  keyword index: {timed(index.refresh_index):.0f} s", flush=True)
    print(f"  vectors and their index: {clusters.fill(index, base):.0f} s", flush=True)
    # The engine is told that every chunk has its vector, as it would know had it made them.
    standing = EntriesWithoutVectorsWriter(index.folder)
    standing.replace_entries_without_vectors_in_file(
        index.catalog.get_last_transaction_number(), find_embedding_model("").key, []
    )
    index.close()
    made.write_text(json.dumps(words))


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


def say(name: str, passes: list[list[tuple[float, float]]], target: int) -> None:
    """A row without a baseline: median and p95 of each pass, of time and of processor time.

    Of several passes their median, and the least and the most: machines are shared.
    """

    def spread(at: int, share: float) -> str:
        found = sorted(
            sorted(one[at] for one in asked)[int(len(asked) * share) - 1] * 1000 for asked in passes
        )
        return f"{statistics.median(found):.1f} ms [{found[0]:.1f}-{found[-1]:.1f}]"

    print(
        f"{name:<50} median {spread(0, 0.5)}, p95 {spread(0, 0.95)}   (target p95 {target} ms);"
        f" processor time median {spread(1, 0.5)}, p95 {spread(1, 0.95)}",
        flush=True,
    )


def embedder() -> TorchEmbeddingModel | OnnxEmbeddingModel:
    """The model that an engine would have."""
    model = find_embedding_model("")
    try:
        export_model_to_onnx(model)
        return OnnxEmbeddingModel(model)
    except EmbeddingModelUnavailableError:
        return TorchEmbeddingModel(model)


def reader_seq(folder: Path) -> int:
    from kbtui.index.catalog_database import CatalogDatabase

    catalog = CatalogDatabase(folder / "catalog.sqlite")
    try:
        return catalog.get_last_transaction_number()
    finally:
        catalog.close()


TUI = """
import sys
from pathlib import Path
from kbtui.library import open_workspace
from kbtui.tui import app
class First(app.KbtuiApp):
    CSS_PATH = Path(app.__file__).with_name(app.KbtuiApp.CSS_PATH)
    def on_ready(self):
        self.set_timer(8, self.exit)
First(open_workspace(sys.argv[1])).run(headless=True, size=(120, 40))
"""


def memory(base: Path) -> None:
    """Peak memory of the keyword command, of the TUI, and of engines without and with a model."""
    python = sys.executable
    search = [python, "-m", "kbtui.cli.main", "search", "-w", str(base), "--mode"]
    os.environ["KBTUI_MODEL"] = "off"
    engine, watch = started(base)
    for _ in range(20):
        subprocess.run(
            [*search, "lexical", "subject", "part"], stdout=subprocess.DEVNULL, check=True
        )
    # --wait is what the short way through the engine does not know.
    for name, words, target in (
        ("keyword command, by itself", [*search, "lexical", "--wait", "5", "subject"], 60),
        ("keyword command, by the engine", [*search, "lexical", "subject"], 60),
        ("TUI", [python, "-c", TUI, str(base)], 150),
    ):
        say_peak(name, peak_of(words), target)
    say_peak("engine, model switched off", watch.end(), 700)
    engine.stop_engine()
    del os.environ["KBTUI_MODEL"]
    engine, watch = started(base)
    load_model(engine)
    while not engine.send_request("settle", wait=5.0)["done"]:
        pass
    for _ in range(20):
        subprocess.run([*search, "hybrid", "subject"], stdout=subprocess.DEVNULL, check=True)
    say_peak("engine with model and vectors", watch.end())
    engine.stop_engine()


def started(base: Path) -> tuple[EngineClient, Watch]:
    """An engine that has compared all files, watched from its start."""
    engine = connect_or_start_engine(open_workspace_at_root(base))
    watch = Watch(engine.pid)
    engine.send_request("refresh", wait=600, timeout=700)
    return engine, watch


def say_peak(name: str, found: Peak, target: int | None = None) -> None:
    """A row of memory."""
    wanted = f"   (target {target} MB)" if target else ""
    print(f"peak memory of {name:<38} {found}{wanted}", flush=True)


BENCHES = {"million": million}
