"""Reading files: resolving topics, indexing."""

import os
from collections.abc import Iterator
from pathlib import Path

from kbtui.index import Index
from kbtui.knowledge import load_knowledge
from kbtui.workspace import Settings, open_root
from tests.bench import workspaces
from tests.bench.measure import Row, side_by_side, timed


def resolve(base: Path, times: int) -> Iterator[Row]:
    """`**` over 20,000 subjects in 2,000 directories against a bare walk."""
    workspaces.subjects(base, 20_000, 2_000, words=5)
    workspace = open_root(base)

    def ours() -> None:
        found = load_knowledge(workspace).slugs("bulk", ["**"])
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
    index = Index(open_root(base), Settings(model="off"))
    first = timed(index.refresh)
    ours, walk = side_by_side(
        index.refresh, lambda: (bare_walk(base / "docs"), bare_walk(base / ".jp")), times
    )
    yield Row("refresh, nothing changed, 6,000 entries", ours, "walk and stat", walk, "<= 3")
    raw = feed_tantivy(index, base / "raw")
    index.close()
    yield Row("first keyword index of the same", [first], "tantivy from memory", [raw], "<= 1.25")


def feed_tantivy(index: Index, folder: Path) -> float:
    """The same documents with the same fields, from memory, one writer thread an index."""
    from kbtui.index.lexical import LexicalWriter

    held = [(entry, index.catalog.chunks_of(entry.id)) for entry in index.catalog.all_entries()]
    writer = LexicalWriter(folder, "english")

    def feed() -> None:
        for entry, chunks in held:
            writer.replace(entry, chunks)
        writer.commit(1)

    return timed(feed)


BENCHES = {"resolve": resolve, "refresh": refresh}
