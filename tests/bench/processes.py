"""Whole processes: the search command, the engine's start, the TUI's first paint."""

import fcntl
import os
import pty
import signal
import statistics
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import tantivy

from kbtui.index import index_generations
from kbtui.index.embedding_model import export_model_to_onnx, find_embedding_model
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings, open_workspace_at_root
from tests.bench import workspaces
from tests.bench.backlog import settled
from tests.bench.measure import Row, process, side_by_side, timed

BARE = """
import sys, tantivy
index = tantivy.Index.open(sys.argv[1])
words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
words = words.filter(tantivy.Filter.lowercase()).filter(tantivy.Filter.stemmer("english")).build()
index.register_tokenizer("kb_stemmed", words)
index.register_tokenizer("kb_code", words)
terms = [term for word in sys.argv[2:] for term in words.analyze(word)]
query = tantivy.Query.boolean_query(
    [(tantivy.Occur.Should, tantivy.Query.term_query(index.schema, "body", term)) for term in terms]
)
print(len(index.searcher().search(query, 20).hits))
"""
"""A bare Python process that opens the same index and asks the same question."""


def search(base: Path, times: int) -> Iterator[Row]:
    """`kbtui search` with every kind of option, while an engine runs and without one, against the bare process.

    Bytecode must have been written (unset PYTHONDONTWRITEBYTECODE).
    """
    workspaces.subjects(base, 300, 30)
    workspaces.conversations(base, 30, 50)
    library = Library(open_workspace_at_root(base), Settings())
    engine = settled(library.connect_engine())
    folder = index_generations.find_current_index_generation(library.workspace.cache_dir)
    assert folder, "the engine has made no index"
    words = ["gasto", "subject"]
    bare = process([sys.executable, "-c", BARE, str(folder) + "/lexical", *words])
    command = [str(Path(sys.executable).with_name("kbtui")), "search", "-w", str(base)]

    def compare(
        what: str, target: str, *options: str, environment: Mapping[str, str] | None = None
    ) -> Row:
        call = process([*command, *options, *words], environment, ok=(0, 1))
        ours, theirs = side_by_side(call, bare, times)
        name = f"kbtui search {' '.join(options)}{what}, whole process"
        return Row(name, ours, "bare tantivy process", theirs, target)

    yield compare("", "<= 3.5")
    yield from saved(library, base, times)
    engine.send_request("stop")
    off = {"KBTUI_MODEL": "off"}
    process([*command, *words], off)()
    for options in (
        [],
        ["--mode", "lexical"],
        ["--since", "2020-01-01"],
        ["--topic", "bulk"],
        ["--explain"],
        ["--json"],
    ):
        yield compare(", model off", "<= 2", *options, environment=off)
    process([*command[:1], "engine", "stop", "-w", str(base)], off)()
    # No engine can start where its log cannot be written.
    yield compare(", no engine", "<= 4", environment=off | {"XDG_STATE_HOME": "/dev/null"})


def saved(library: Library, base: Path, times: int) -> Iterator[Row]:
    """From a save to the moment that a keyword search finds it.

    The floor is a commit of one document in a bare tantivy index on the same disk, between the saves.
    """
    took, floor = [], []
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name="en_stem")
    (base / "floor").mkdir(exist_ok=True)
    bare = tantivy.Index(builder.build(), path=str(base / "floor"))
    writer = bare.writer(64_000_000, num_threads=1)

    def commit() -> None:
        writer.add_document(tantivy.Document(body="a word or two"))
        writer.commit()
        bare.reload()

    for number in range(max(20, times)):
        word = f"zyxw{number}q"
        (base / "docs/d0001" / f"fresh{number}.md").write_text(f"# Fresh\n\n{word}\n")
        began = time.perf_counter()
        while not library.search_by_keywords(SearchRequest(word, mode="lexical")).hits:
            time.sleep(0.001)
        took.append(time.perf_counter() - began)
        time.sleep(0.3)
        floor.append(timed(commit))
    median, p95 = _median_and_p95(took)
    floor_median, floor_p95 = _median_and_p95(floor)
    print(
        f"save to searchable: median {median:.0f} ms, p95 {p95:.0f} ms (target p95 75 ms);"
        f" a bare tantivy commit: median {floor_median:.0f} ms, p95 {floor_p95:.0f} ms,"
        f" ratios {median / floor_median:.2f} and {p95 / floor_p95:.2f}"
    )
    yield from ()


def _median_and_p95(seconds: Sequence[float]) -> tuple[float, float]:
    """In milliseconds; p95 of twenty is the last but one."""
    held = sorted(seconds)
    return statistics.median(held) * 1000, held[int(len(held) * 0.95) - 1] * 1000


LOAD = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
from sentence_transformers import SentenceTransformer
from kbtui.index.embedding_model import find_embedding_model
SentenceTransformer(find_embedding_model("").source, device="cpu").encode(["one"])
"""


def cold(base: Path, times: int) -> Iterator[Row]:
    """A cold engine to its first semantic answer against importing the library and loading."""
    workspaces.subjects(base, 20, 2)
    # The first start of all has no export of the model, and passages to embed.
    first = _first_answer(base)
    export_model_to_onnx(find_embedding_model(""))
    ours, load = [], []
    for _ in range(max(3, times // 5)):
        load.append(timed(process([sys.executable, "-c", LOAD])))
        ours.append(_first_answer(base))
    yield Row(
        "cold engine to its first semantic answer",
        ours,
        "import and load the model",
        load,
        "<= 0.35",
        remark=f"the very first, before the model was exported: {first:.1f} s",
    )


def _first_answer(base: Path) -> float:
    """Seconds from starting an engine to its first semantic answer; the engine is ended again."""
    library = Library(open_workspace_at_root(base), Settings())
    began = time.perf_counter()
    while library.search(SearchRequest("gasto", mode="semantic"), wait=60).degraded:
        pass
    took = time.perf_counter() - began
    library.connect_engine().send_request("stop")
    time.sleep(2)
    return took


PAINT = """
from textual.app import App
from textual.widgets import Label
class Bare(App):
    def compose(self):
        yield Label("bare")
Bare().run()
"""


def painted(words: Sequence[str], sign: str, spent: list[float]) -> Callable[[], object]:
    """A call that runs a program in a terminal until this text is on the screen, and ends it.

    Each call appends the seconds of processor time to `spent`, which say more on a busy machine.
    """

    def call() -> object:
        child, terminal = pty.fork()
        if child == 0:
            os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
            os.execv(words[0], list(words))
        try:
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            seen = b""
            while sign.encode() not in seen:
                seen += os.read(terminal, 65536)
                if b"\x1b[c" in seen:  # Asked what it is, a terminal answers at once.
                    seen = seen.replace(b"\x1b[c", b"")
                    os.write(terminal, b"\x1b]11;rgb:1616/1818/1d1d\x1b\\\x1b[?62;22c")
        finally:
            os.kill(child, signal.SIGKILL)
            _, _, usage = os.wait4(child, 0)
            spent.append(usage.ru_utime + usage.ru_stime)
            os.close(terminal)
        return None

    return call


def paint(base: Path, times: int) -> Iterator[Row]:
    """First paint of the TUI against that of a bare Textual application, in a terminal."""
    workspaces.subjects(base, 60, 10)
    workspaces.conversations(base, 20, 10)
    library = Library(open_workspace_at_root(base), Settings())
    for _ in range(12):  # What is being embedded would take its part of the processor.
        if library.connect_engine().send_request("settle", wait=5.0)["done"]:
            break
    spent: tuple[list[float], list[float]] = [], []
    command = [str(Path(sys.executable).with_name("kbtui")), "-w", str(base)]
    ours, bare = side_by_side(
        painted(command, "Search topics", spent[0]),
        painted([sys.executable, "-c", PAINT], "bare", spent[1]),
        times,
    )
    least = min(ours) / min(bare)
    busy = statistics.median(spent[0]) / statistics.median(spent[1])
    yield Row(
        "from the command to the first paint of the TUI",
        ours,
        "bare Textual application",
        bare,
        "<= 1.3",
        remark=f"the quickest of each: {least:.2f}x; processor time {busy:.2f}x",
    )
    library.connect_engine().send_request("stop")


BENCHES = {"search": search, "cold": cold, "paint": paint}
