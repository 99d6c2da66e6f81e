"""Tests that equal files give equal answers, whatever happened to them before."""

import functools
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from support import Builder, asked, content_of, kill_engine, said

from kbtui.engine import index_refresh_worker
from kbtui.engine.embedding_worker import make_vector_filter_of_request
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.chunk_embedder import ChunkEmbedder
from kbtui.index.embedding_cache import EmbeddingCache
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.library import Library
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchRequest, SemanticRanking
from kbtui.workspace import Settings, load_settings

WORDS = [
    "otter",
    "badger",
    "heron",
    "beaver",
    "marten",
    "weasel",
    "river",
    "burrow",
    "dusk",
    "reed",
    "night",
    "bank",
]
QUERIES = [
    "otter", "badger burrow", "the heron at dusk", "river bank reed", '"otter badger"', "beevers",
    "in:subjects", "topic:zoo otter", "title:heron", "night -otter",
]  # fmt: skip
DIMENSION = 16


@functools.cache
def make_direction(word: str) -> Any:
    """Return the random direction of a word, which is the same in every run."""
    return np.random.default_rng(crc32(word.encode())).standard_normal(DIMENSION)


class WordVectors:
    """An embedding model for tests in which each word has a random direction of its own."""

    def embed_texts(self, texts: Sequence[str]) -> Any:
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Any:
        total = np.ones(DIMENSION) * 1e-3
        for word in text.lower().replace(".", " ").split():
            total = total + make_direction(word)
        return (total / np.linalg.norm(total)).astype(np.float32)


class Bed:
    """An index with vectors in its own directory that is updated from a workspace."""

    def __init__(self, builder: Builder, cache: Path) -> None:
        self._builder, self._cache = builder, cache
        self._index = WorkspaceIndexWriter(
            builder.workspace, Settings(model="off"), cache_dir=cache
        )
        self.refresh()

    def refresh(self) -> None:
        from kbtui.index.vector_store import VectorStore

        self._index.refresh_index()
        self._index.rewrite_indexes_with_many_replaced_documents()
        folder = self._index.folder
        catalog = CatalogDatabase(folder / "catalog.sqlite")
        remembered = EmbeddingCache(self._cache / "embeddings.sqlite", "m")
        self._store = VectorStore(folder / "vectors", "m", DIMENSION)
        assert (
            ChunkEmbedder(catalog, self._store, remembered).embed_missing_chunks(
                lambda is_bulk: WordVectors()
            )
            == 0
        )
        catalog.close()
        remembered.close()

    def answers(self, mode: str) -> list[Any]:
        reader = IndexReader(self._cache)
        found = [
            search_index(
                self._builder.workspace,
                reader,
                SearchRequest(query, mode=mode, hidden=hidden, limit=100),  # type: ignore[arg-type]
                self._semantic,
            )
            for query in QUERIES
            for hidden in (False, True)
        ]
        reader.close()
        return [
            (one.query, [(hit.chunk_id, hit.ref, hit.score, hit.legs) for hit in one.hits])
            for one in found
        ]

    def _semantic(self, text: str) -> Any:
        from kbtui.index.vector_store import move_vector_towards

        vector = WordVectors().embed_texts([text])[0].tolist()

        def ranked(question: SearchRequest, generation: str) -> SemanticRanking:
            towards = move_vector_towards(
                vector, self._store.get_vector_of_first_given_chunk_with_vector(question.worded[:3])
            )
            where = make_vector_filter_of_request(question)
            return SemanticRanking(
                self._store.search_nearest_chunks(towards, where, question.depth)
            )

        return ranked

    def close(self) -> None:
        self._index.close()


class History:
    """A workspace that changes at random."""

    def __init__(self, builder: Builder, seed: int) -> None:
        self.builder, self._random = builder, random.Random(seed)
        builder.topics(zoo={}, farm={})
        for number in range(25):
            self._write(number)
        for number in range(4):
            self._talk(number)

    def happen(self) -> None:
        """Make a random change: edit, touch, copy, removal, hiding, showing, or a new turn."""
        number = self._random.randrange(25)
        paths = [
            path for path in self.builder.root.glob("docs/*/*.md") if f"s{number}." in path.name
        ]
        match self._random.choice(["write", "write", "touch", "copy", "remove", "hide", "talk"]):
            case "touch" if paths:
                status = paths[0].stat()
                os.utime(paths[0], (status.st_atime, status.st_mtime - 1000))
            case "copy" if paths:
                # A passage word for word the same, which ties with the first.
                self.builder.subject(f"farm/s{number}.md", paths[0].read_text())
            case "remove" if paths:
                paths[0].unlink()
            case "hide" if paths:
                name = paths[0].name
                other = name[1:] if name.startswith(".") else f".{name}"
                paths[0].rename(paths[0].with_name(other))
            case "talk":
                self._talk(self._random.randrange(4))
            case _:
                self._write(number)

    def _text(self) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.choice([4, 12, 60])))

    def _write(self, number: int) -> None:
        passages = "\n\n".join(self._text() for _ in range(self._random.randint(1, 4)))
        self.builder.subject(f"zoo/s{number}.md", f"# {self._text()[:12]}\n\n{passages}\n")

    def _talk(self, number: int) -> None:
        turns = [
            [asked(self._text()), said(self._text())] for _ in range(self._random.randint(1, 5))
        ]
        self.builder.conversation(number, turns, title=self._text()[:20])


@pytest.fixture(params=range(3))
def history(workspace_root: Path, request: pytest.FixtureRequest) -> History:
    return History(Builder(workspace_root), request.param)


@pytest.fixture
def followed(history: History, tmp_path: Path) -> Iterator[Bed]:
    bed = Bed(history.builder, tmp_path / "followed")
    yield bed
    bed.close()


def test_an_index_that_followed_answers_as_one_that_is_new(
    history: History, followed: Bed, tmp_path: Path
) -> None:
    for _ in range(4):
        for _ in range(8):
            history.happen()
        followed.refresh()
    new = Bed(history.builder, tmp_path / "new")
    try:
        for mode in ("lexical", "semantic", "hybrid"):
            expected = new.answers(mode)
            assert followed.answers(mode) == expected
            assert any(hits for _, hits in expected)
    finally:
        new.close()


def test_compacting_that_makes_way_loses_nothing(history: History, tmp_path: Path) -> None:
    somebody_waits = False
    cache = tmp_path / "cache"
    index = WorkspaceIndexWriter(
        history.builder.workspace,
        Settings(model="off"),
        cache_dir=cache,
        should_yield=lambda: somebody_waits,
    )
    index.refresh_index()
    for _ in range(6):
        history.happen()
    index.refresh_index()
    before = content_of(cache)
    somebody_waits = True
    assert index.rewrite_indexes_with_many_replaced_documents() > 0, "it did not make way"
    assert content_of(cache) == before
    somebody_waits = False
    assert index.rewrite_indexes_with_many_replaced_documents() == 0
    assert content_of(cache) == before
    index.close()


def test_a_large_index_is_compacted_when_nothing_changes_for_a_while(
    workspace_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_refresh_worker, "COMPACT_AT_ONCE_MAX", 1)
    history = History(Builder(workspace_root), 7)
    said: list[str] = []
    held = index_refresh_worker.IndexRefreshWorker(
        history.builder.workspace, Settings(model="off"), lambda progress: None,
        lambda changes: None, said.append,
    )  # fmt: skip

    def answers(cache: Path) -> list[Any]:
        reader = IndexReader(cache)
        found = [
            search_index(
                history.builder.workspace, reader, SearchRequest(query, mode="lexical", limit=100)
            )
            for query in QUERIES
        ]
        reader.close()
        return [[hit.chunk_id for hit in one.hits] for one in found]

    held.start_thread()
    try:
        assert held.request_index_refresh().wait(60)
        for _ in range(20):
            history.happen()
        assert held.request_index_refresh().wait(60)
        with closing(
            WorkspaceIndexWriter(history.builder.workspace, Settings(), cache_dir=tmp_path)
        ) as new:
            new.refresh_index()
        end = time.monotonic() + 60
        while answers(history.builder.workspace.cache_dir) != answers(tmp_path):
            assert time.monotonic() < end, "it was not compacted"
            time.sleep(0.1)
    finally:
        held.stop_thread()
    assert said == []


def test_the_engine_answers_as_after_a_rebuild(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    history = History(Builder(workspace_root), 5)
    library = Library(history.builder.workspace, load_settings())

    def answers(**how: bool) -> list[Any]:
        with closing(library.connect_engine()) as engine:
            assert engine.send_request("refresh", wait=60, timeout=90, **how)["done"]
        asked_for = [SearchRequest(query, mode="lexical", limit=100) for query in QUERIES]
        return [[hit.chunk_id for hit in library.search(one).hits] for one in asked_for]

    try:
        answers()
        for path in (history.builder.root / "docs").rglob("*.md"):
            os.utime(path, (1e9, 1e9))
        answers()
        for _ in range(5):
            history.happen()
        assert answers() == answers(rebuild=True)
    finally:
        library.close()
        kill_engine(history.builder)
