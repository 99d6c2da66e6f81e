"""Vectors whose files were damaged are made anew from what is remembered, with no hand laid on them."""

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Builder, hurt_file

from kbtui.engine.embedding_worker import EmbeddingWorker
from kbtui.index import Index
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
        # A file that only a search reads is found to be damaged then.
        end = time.monotonic() + 60
        while "ranked" not in (found := semantic.reply("otter kkkkkkkkk", {}, 5, 3)):
            assert time.monotonic() < end, semantic.logged
            time.sleep(0.05)
        store = semantic._store
        assert store is not None
        table = store._table.to_arrow()
        vectors = {
            row["number"]: (row["hash"], row["entry"], tuple(np.round(row["vector"], 6)))
            for row in table.to_pylist()
        }
        assert len(vectors) == table.num_rows
        return vectors, [number for number, _ in found["ranked"]], semantic.logged
    finally:
        semantic.stop()
        semantic._thread.join(30)


def files(folder: Path) -> list[Path]:
    """The files of the vectors."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [8, pytest.param(80, marks=pytest.mark.slow)])
def test_whatever_is_damaged_is_noticed_and_made_again(
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
        targets.append(cache / "embeddings.sqlite")
        path = random_.choice(targets)
        done = hurt_file(path, random_)
        vectors, ranked, _ = held(builder, folder)
        if done.startswith("flip"):
            # Lance has no checksums: a bit of one number may stay wrong until vectors are made again.
            assert vectors.keys() == good[0].keys(), (number, done)
        else:
            assert [vectors, ranked] == good, (number, done)


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
