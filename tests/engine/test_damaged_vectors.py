"""Vectors whose files were damaged are made anew from what is remembered, with no hand laid on them."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Builder, hurt_file

from kbtui.engine.embedding_worker import EmbeddingWorker
from kbtui.index import Index
from kbtui.index.file_checksums import REWRITTEN, FileChecksums
from kbtui.index.vectors import VectorStore
from kbtui.workspace import Settings

SEED = 11


class Lettered:
    """In the model's place: a vector of how often each letter is in a text."""

    dimension = 26

    def encode(self, texts: Sequence[str]) -> Any:
        counts = [[text.count(chr(97 + at)) + 0.1 for at in range(26)] for text in texts]
        held = np.array(counts, dtype=np.float32)
        return held / np.linalg.norm(held, axis=1, keepdims=True)

    def encode_query(self, text: str) -> Any:
        return self.encode([text])


class Bench(EmbeddingWorker):
    """The engine's semantic side with such a model, and what it logged."""

    def __init__(self, builder: Builder) -> None:
        self.logged: list[str] = []
        cache = builder.workspace.cache_dir
        settings = Settings()
        super().__init__(settings, cache, lambda _: None, lambda: None, self.logged.append)

    def _load(self) -> None:
        self._embedder = Lettered()  # type: ignore[assignment]

    def _encoder(self, missing: int) -> Any:
        return self._embedder


@pytest.fixture
def folder(workspace_root: Path) -> Path:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(20):
        text = f"# S{number}\n\nOtter {'abcdefghijklmnopqrst'[number] * 9} number {number}.\n"
        builder.subject(f"guide/s{number}.md", text)
    index = Index(builder.workspace, Settings())
    index.refresh()
    index.close()
    # Edited in between, so that there are deletions and more than one fragment.
    held(builder, index.folder)
    for number in range(3):
        builder.subject(f"guide/s{number}.md", f"# S{number}\n\nHeron {number}.\n")
    index = Index(builder.workspace, Settings())
    index.refresh()
    index.close()
    held(builder, index.folder)
    return index.folder


def held(builder: Builder, folder: Path) -> tuple[Any, Any, list[str]]:
    """What a start of the engine makes of the vectors: the rows, what a question finds, its log."""
    semantic = Bench(builder)
    semantic.want()
    semantic.follow(folder)
    semantic.start()
    try:
        assert semantic.settled.wait(60)
        assert semantic.missing is None, semantic.logged
        store = semantic._store
        assert store is not None
        table = store._table.to_arrow()
        vectors = {
            row["number"]: (row["hash"], row["entry"], tuple(np.round(row["vector"], 6)))
            for row in table.to_pylist()
        }
        assert len(vectors) == table.num_rows
        found = semantic.reply("otter kkkkkkkkk", {}, 5, 3)
        assert "ranked" in found
        # Also found by an index or a deletion that was not needed so far.
        assert semantic.settled.wait(60)
        return vectors, [number for number, _ in found["ranked"]], semantic.logged
    finally:
        semantic.stop()
        semantic._thread.join(30)


def files(folder: Path) -> list[Path]:
    """The files that are written once."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(path for path in found if path.name not in REWRITTEN)


def test_every_flipped_bit_and_every_cut_of_a_file_is_noticed(folder: Path) -> None:
    vectors = folder / "vectors"
    random_ = random.Random(SEED)
    assert FileChecksums(vectors).damage() is None
    assert len(files(vectors)) > 5
    for path in [*files(vectors), folder / "vectors.sums"]:
        good = path.read_bytes()
        for _ in range(5):
            data = bytearray(good)
            data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
            path.write_bytes(data)
            assert FileChecksums(vectors).damage(), path
        path.write_bytes(good[: random_.randrange(len(good))])
        assert FileChecksums(vectors).damage(), path
        path.write_bytes(good)
    assert FileChecksums(vectors).damage() is None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [8, pytest.param(80, marks=pytest.mark.slow)])
def test_whatever_is_damaged_the_next_start_has_the_same_vectors(
    folder: Path, workspace_root: Path, tmp_path: Path, rounds: int
) -> None:
    builder = Builder(workspace_root)
    *good, logged = held(builder, folder)
    assert not any("anew" in line for line in logged)
    cache = builder.workspace.cache_dir
    shutil.copytree(cache, tmp_path / "good", symlinks=True)
    random_ = random.Random(SEED)
    for number in range(rounds):
        shutil.rmtree(cache)
        shutil.copytree(tmp_path / "good", cache, symlinks=True)
        targets = [path for path in (folder / "vectors").rglob("*") if path.is_file()]
        targets += [folder / "vectors.sums", cache / "embeddings.sqlite"]
        path = random_.choice(targets)
        done = hurt_file(path, random_)
        vectors, ranked, logged = held(builder, folder)
        assert [vectors, ranked] == good, (number, done)
        if not done.startswith("remove") and path.name not in {*REWRITTEN, "embeddings.sqlite"}:
            assert any("anew" in line for line in logged), (number, done)


def test_what_is_lost_while_it_runs_is_made_anew_when_it_is_asked(
    folder: Path, workspace_root: Path
) -> None:
    builder = Builder(workspace_root)
    good = held(builder, folder)[:2]
    semantic = Bench(builder)
    semantic.want()
    semantic.follow(folder)
    semantic.start()
    assert semantic.settled.wait(60)
    for path in files(folder / "vectors"):
        path.write_bytes(b"")
    semantic.settled.clear()
    # An answer from what Lance still has in memory is a right one; else it says what it does.
    answer = semantic.reply("otter kkkkkkkkk", {}, 5, 3)
    assert answer.get("cause") or [number for number, _ in answer["ranked"]] == good[1]
    semantic.stop()
    semantic._thread.join(30)
    assert held(builder, folder)[:2] == good


def test_an_edit_leaves_the_list_complete(folder: Path) -> None:
    store = VectorStore(folder / "vectors", "m", 26)
    store.tidy(force=True)
    ledger = FileChecksums(folder / "vectors")
    assert ledger.damage() is None
    known = {folder / "vectors" / name for name in ledger._known}
    assert set(files(folder / "vectors")) <= known
