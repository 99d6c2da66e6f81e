"""Reading files: resolving topics, indexing."""

import gc
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import tantivy

from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.knowledge import load_knowledge
from kbtui.workspace import Settings, open_workspace_at_root
from tests.bench import workspaces
from tests.bench.measure import Row, side_by_side, timed


def resolve(base: Path, times: int) -> Iterator[Row]:
    """`**` over 20,000 subjects in 2,000 directories against a bare walk."""
    workspaces.subjects(base, 20_000, 2_000, words=5)
    workspace = open_workspace_at_root(base)

    def ours() -> None:
        found = load_knowledge(workspace).list_subject_slugs("bulk", ["**"])
        assert len(found) == 20_000

    ours_, walk = side_by_side(ours, lambda: bare_walk(base / "docs"), times)
    yield Row("resolve ** over 20,000 subjects", ours_, "os.scandir walk", walk, "<= 2")


def bare_walk(folder: Path) -> int:
    """Walking and stat-ing a tree, and nothing else."""
    count, todo = 0, [str(folder)]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    entry.stat()
                    count += 1
    return count


def refresh(base: Path, times: int) -> Iterator[Row]:
    """Nothing changed in 5,000 subjects and 1,000 conversations; and the first index of them."""
    workspaces.subjects(base, 5_000, 500)
    workspaces.conversations(base, 1000, 50)
    index = WorkspaceIndexWriter(open_workspace_at_root(base), Settings(model="off"))
    index.refresh_index()
    ours, walk = side_by_side(
        index.refresh_index, lambda: (bare_walk(base / "docs"), bare_walk(base / ".jp")), times
    )
    index.close()
    yield Row("refresh, nothing changed, 6,000 entries", ours, "walk and stat", walk, "<= 3")
    gc.set_threshold(50_000)  # as in the engine and in `kbtui index`
    rounds = [_first(base, base / f"first{number}") for number in range(max(1, times // 3))]
    first, raw = zip(*rounds, strict=True)
    busy = Row("", [spent.cpu for spent in first], "", [spent.cpu for spent in raw], "")
    main = Row("", [spent.main for spent in first], "", [spent.main for spent in raw], "")
    yield Row(
        "first keyword index of the same, 50,000 messages",
        [spent.wall for spent in first],
        "tantivy, from the same files",
        [spent.wall for spent in raw],
        "<= 3",
        remark=f"processor time {busy.ratio:.2f}x; of the main thread {main.ratio:.2f}x",
    )
    seconds = _first_searchable(base, base / "newest")
    print(
        f"the newest of the same are searchable after {seconds:.1f} s of a first index (target 2 s)"
    )


class _Spent(NamedTuple):
    """The seconds of a call: on the clock, of processor time in all threads and processes, and of it in this thread."""

    wall: float
    cpu: float
    main: float


def _spent(call: Callable[[], object]) -> _Spent:
    cpu, main = _processor_time(), time.thread_time()
    wall = timed(call)
    return _Spent(wall, _processor_time() - cpu, time.thread_time() - main)


def _processor_time() -> float:
    """Return the processor time of this process and of the child processes that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _first(base: Path, folder: Path) -> tuple[_Spent, _Spent]:
    """A first index, and tantivy on the same text from the same files, with one writer thread."""
    index = WorkspaceIndexWriter(
        open_workspace_at_root(base), Settings(model="off"), cache_dir=folder / "ours"
    )
    ours = _spent(index.refresh_index)
    index.close()
    (folder / "raw").mkdir()
    return ours, _spent(lambda: raw_tantivy(base, folder / "raw"))


def _first_searchable(base: Path, cache: Path) -> float:
    """Seconds from the start of a first index until a reader finds something in it."""
    index = WorkspaceIndexWriter(
        open_workspace_at_root(base), Settings(model="off"), cache_dir=cache
    )
    reader, found = IndexReader(cache), list[float]()
    began = time.perf_counter()

    def watch() -> None:
        words = tantivy.Query.all_query()
        while len(reader.open_keyword_index().searcher().search(words, 2).hits) < 2:
            time.sleep(0.02)  # one document is the watermark
        found.append(time.perf_counter() - began)

    watcher = threading.Thread(target=watch)
    watcher.start()
    index.refresh_index()
    watcher.join()
    reader.close()
    index.close()
    return found[0]


def raw_tantivy(base: Path, folder: Path) -> int:
    """Reading, parsing and decoding the files, and a title and a body of each subject and event."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("title", tokenizer_name="en_stem")
    builder.add_text_field("body", tokenizer_name="en_stem")
    writer = tantivy.Index(builder.build(), path=str(folder)).writer(64_000_000, num_threads=1)
    count = 0
    for title, body in _read_all(base):
        writer.add_document(tantivy.Document(title=title, body=body))
        count += 1
    writer.commit()
    writer.wait_merging_threads()
    return count


def _read_all(base: Path) -> Iterator[tuple[str, str]]:
    """The title and the text of each subject and of each event of a conversation."""
    for file in (base / "docs").glob("*/*.md"):
        title, _, body = file.read_text().partition("\n")
        yield title.removeprefix("# "), body
    for folder in (base / ".jp/conversations").iterdir():
        title = orjson.loads((folder / "metadata.json").read_bytes())["title"]
        for event in orjson.loads((folder / "events.json").read_bytes()):
            if path := event.get("arguments", {}).get("path"):
                yield title, f"{event['name']} {workspaces.decoded(path)}"
            elif event["type"] == "tool_call_response":
                yield title, workspaces.decoded(event["content"])
            elif body := event.get("content") or event.get("reasoning") or event.get("message"):
                yield title, body


BENCHES = {"resolve": resolve, "refresh": refresh}
