"""Reading files: resolving topics, indexing."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kbtui.index.indexer import WorkspaceIndexWriter
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
    rounds = [_first(base, base / f"first{number}") for number in range(max(1, times // 3))]
    first, raw = zip(*rounds, strict=True)
    busy = Row("", [spent.cpu for spent in first], "", [spent.cpu for spent in raw], "")
    yield Row(
        "first keyword index of the same",
        [spent.wall for spent in first],
        "tantivy from memory",
        [spent.wall for spent in raw],
        "<= 1.25",
        remark=f"processor time {busy.ratio:.2f}x",
    )


class _Spent(NamedTuple):
    """Seconds of a call, and of processor time in all threads of this process."""

    wall: float
    cpu: float


def _spent(call: Callable[[], object]) -> _Spent:
    began = time.process_time()
    return _Spent(timed(call), time.process_time() - began)


def _first(base: Path, folder: Path) -> tuple[_Spent, _Spent]:
    """A first index, and the same documents with the same fields from memory: one writer thread
    an index each."""
    from kbtui.index.keyword_index import KeywordIndexWriter

    index = WorkspaceIndexWriter(
        open_workspace_at_root(base), Settings(model="off"), cache_dir=folder / "ours"
    )
    ours = _spent(index.refresh_index)
    held = [
        (entry, index.catalog.list_entry_chunks(entry.id))
        for entry in index.catalog.iterate_entries()
    ]
    index.close()
    writer = KeywordIndexWriter(folder / "raw", "english")

    def feed() -> None:
        for entry, chunks in held:
            writer.replace_entry_documents(entry, chunks)
        writer.commit_with_watermark(1)

    raw = _spent(feed)
    writer.close()
    return ours, raw


BENCHES = {"resolve": resolve, "refresh": refresh}
