"""Damaged vectors are rebuilt from cached embeddings without the user's help."""

import random
import shutil
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Builder, hurt_file

from kbtui.engine.embedding_worker import EmbeddingWorker, WorkspaceEmbeddingModel
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings

SEED = 11


class LetterModel(WorkspaceEmbeddingModel):
    """A model that counts the letters of a text."""

    is_model_loaded = True
    vector_dimension = 26

    def find_embedding_model_key(self) -> str:
        return "letters"

    def get_or_start_passage_embedder(self, is_bulk: bool) -> Any:
        return self

    def embed_texts(self, texts: Sequence[str]) -> Any:
        counts = [[text.count(chr(97 + at)) + 0.1 for at in range(26)] for text in texts]
        held = np.array(counts, dtype=np.float32)
        return held / np.linalg.norm(held, axis=1, keepdims=True)

    def embed_query(self, text: str) -> Any:
        return self.embed_texts([text])


def make_worker(builder: Builder, log: list[str]) -> EmbeddingWorker:
    """An engine's embedding worker with such a model; it logs to `log`."""
    return EmbeddingWorker(
        Settings(), builder.workspace.cache_dir, lambda _: None, lambda: None, log.append,
        LetterModel("", log.append),
    )  # fmt: skip


def join_worker() -> None:
    """Wait until the worker's thread has ended."""
    for thread in threading.enumerate():
        if thread.name == "embedding":
            thread.join(30)


@pytest.fixture
def folder(workspace_root: Path) -> Path:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(20):
        text = f"# S{number}\n\nOtter {'abcdefghijklmnopqrst'[number] * 9} number {number}.\n"
        builder.subject(f"guide/s{number}.md", text)
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    # Edited in between, so that there are deletions and more than one fragment.
    held(builder, index.folder)
    for number in range(3):
        builder.subject(f"guide/s{number}.md", f"# S{number}\n\nHeron {number}.\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    held(builder, index.folder)
    return index.folder


def held(builder: Builder, folder: Path) -> tuple[Any, Any, list[str]]:
    """Start a worker; return the vector table's rows, the numbers that a query finds, and the log."""
    import lancedb

    from kbtui.index.vector_store import VECTORS_VERSION

    logged: list[str] = []
    semantic = make_worker(builder, logged)
    semantic.request_model_loading()
    semantic.set_index_generation_to_embed(folder)
    semantic.start_thread()
    try:
        assert semantic.caught_up.wait(60)
        assert semantic.keywords_only_notice is None, logged
        # Damage in a file that only searches read is noticed by the first search.
        end = time.monotonic() + 60
        # A column of a filter is read only by searches with this filter.
        every_filter = SearchRequest(
            depth=5, kinds=("subject",), topics=("guide",), types=("none",), agents=("none",),
            roles=("none",), since=datetime(2000, 1, 1, tzinfo=UTC), exclude="none",
        )  # fmt: skip
        for question in (every_filter, SearchRequest(depth=5)):
            while (
                found := semantic.rank_chunks_by_meaning("otter kkkkkkkkk", None, question)
            ).ranked is None:
                assert time.monotonic() < end, logged
                time.sleep(0.05)
        database = lancedb.connect(folder / "vectors")
        table = database.open_table(f"chunks_{VECTORS_VERSION}_letters").to_arrow()
        vectors = {
            row["number"]: (row["hash"], row["entry"], tuple(np.round(row["vector"], 6)))
            for row in table.to_pylist()
        }
        assert len(vectors) == table.num_rows
        return vectors, [number for number, _ in found.ranked], logged
    finally:
        semantic.stop_thread_without_waiting()
        join_worker()


def files(folder: Path) -> list[Path]:
    """Return the files of the vectors."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [8, pytest.param(80, marks=pytest.mark.slow)])
def test_whatever_is_damaged_is_noticed_and_made_again(
    folder: Path, workspace_root: Path, tmp_path: Path, rounds: int
) -> None:
    builder = Builder(workspace_root)
    *good, logged = held(builder, folder)
    assert not any("rebuilding" in line for line in logged)
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
            # Lance has no checksums, so a flipped bit in one number remains until the vectors are rebuilt.
            assert vectors.keys() == good[0].keys(), (number, done)
        else:
            assert [vectors, ranked] == good, (number, done)


def test_what_is_lost_while_it_runs_is_made_anew_when_it_is_asked(
    folder: Path, workspace_root: Path
) -> None:
    builder = Builder(workspace_root)
    good = held(builder, folder)[:2]
    logged: list[str] = []
    semantic = make_worker(builder, logged)
    semantic.request_model_loading()
    semantic.set_index_generation_to_embed(folder)
    semantic.start_thread()
    assert semantic.caught_up.wait(60)
    for path in files(folder / "vectors"):
        path.write_bytes(b"")
    semantic.caught_up.clear()
    # Lance may still answer from memory, correctly; otherwise the reply names the cause.
    answer = semantic.rank_chunks_by_meaning("otter kkkkkkkkk", None, SearchRequest(depth=5))
    assert answer.ranked is None or [number for number, _ in answer.ranked] == good[1]
    semantic.stop_thread_without_waiting()
    join_worker()
    assert held(builder, folder)[:2] == good
