"""Made-up vectors for every chunk of an index, in clusters as those of texts; and exact search among them."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kbtui.index.chunk_embedder import make_vector_table_row_without_vector
from kbtui.index.embedding_model import find_embedding_model
from kbtui.index.index_reader import IndexReader
from kbtui.index.vector_store import (
    LEAN_CANDIDATES,
    VectorStore,
    make_vector_filter_sql,
    move_vector_towards,
)
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_request_and_answer import SearchRequest, SemanticRanking

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.search.search_pipeline import SemanticRanker, SemanticSearchStarter


DIMENSION = 384
OF_A_CLUSTER = 500
APART = 0.06
"""How far vectors are from the centre of their cluster, in each dimension: two of one cluster
have a cosine of .42."""


class Clusters:
    """Unit vectors, each near the centre of one of the clusters for `count` chunks."""

    def __init__(self, count: int, seed: int) -> None:
        centres = np.random.default_rng(1).standard_normal(
            (max(20, count // OF_A_CLUSTER), DIMENSION)
        )
        self._centres = centres / np.linalg.norm(centres, axis=1, keepdims=True)
        self._random = np.random.default_rng(seed)

    def some(self, count: int) -> Any:
        """So many, in rows."""
        found = self._centres[self._random.integers(0, len(self._centres), count)]
        found = found + APART * self._random.standard_normal((count, DIMENSION))
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def fill(index: WorkspaceIndexWriter, place: Path) -> float:
    """Put a vector of each chunk into the table, and for exact search into `place`; gives seconds."""
    began = time.monotonic()
    wanted = list(index.catalog.iterate_chunks_to_embed())
    np.save(place / "numbers.npy", np.array([number for number, _, _ in wanted]))
    held = np.lib.format.open_memmap(
        place / "vectors.npy", "w+", np.float32, (len(wanted), DIMENSION)
    )
    made = Clusters(len(wanted), 2)
    store = VectorStore(index.folder / "vectors", find_embedding_model("").key, DIMENSION)
    owners: dict[str, Any] = {}
    for at in range(0, len(wanted), 20_000):
        part = wanted[at : at + 20_000]
        vectors = held[at : at + len(part)] = made.some(len(part))
        rows = []
        for number, name, mark in part:
            if name not in owners:
                owners[name] = index.catalog.get_entry(name)
            rows.append(make_vector_table_row_without_vector(owners[name], _Chunk(number, mark)))  # type: ignore[arg-type]
        store.add_vectors(rows, vectors)
    store.compact_vector_table(force=True)
    return time.monotonic() - began


class _Chunk:
    """What a row needs of a chunk."""

    role, timestamp = None, None

    def __init__(self, number: int, mark: bytes) -> None:
        self.number, self.vector_hash = number, mark
        self.id = f"{number:016x}"


class Near:
    """The table of a reader's index, asked for what is near made-up vectors."""

    def __init__(self, reader: IndexReader, place: Path) -> None:
        self._numbers = np.load(place / "numbers.npy")
        self._held = np.load(place / "vectors.npy", mmap_mode="r")
        self._asked = Clusters(len(self._numbers), 3)
        self._store = VectorStore(
            reader.folder / "vectors", find_embedding_model("").key, DIMENSION
        )

    def leg(self, encode: "Callable[[str], Any]" = lambda text: None) -> "SemanticSearchStarter":
        """Return the semantic leg as the engine has it, searching for made-up vectors; `encode` only takes time."""
        pool = ThreadPoolExecutor(1)

        def begin(text: str) -> "SemanticRanker":
            return partial(ask, pool.submit(encode, text))

        def ask(pending: Future[Any], question: SearchRequest, generation: str) -> SemanticRanking:
            pending.result()
            towards = self._store.get_vector_of_first_given_chunk_with_vector(
                list(question.worded[:LEAN_CANDIDATES])
            )
            vector = move_vector_towards(self._asked.some(1)[0].tolist(), towards)
            return SemanticRanking(
                self._store.search_nearest_chunks(vector, make_vector_filter_sql(), question.depth)
            )

        return begin

    def recall(self, questions: int = 100, best: int = 10) -> str:
        """Which share of the truly nearest the table's index finds."""
        asked = self._asked.some(questions)
        near = np.concatenate(
            [asked @ self._held[at : at + 50_000].T for at in range(0, len(self._held), 50_000)],
            axis=1,
        )
        found = 0
        for vector, likeness in zip(asked, near, strict=True):
            exact = set(self._numbers[np.argpartition(-likeness, best)[:best]].tolist())
            ranked = self._store.search_nearest_chunks(
                vector.tolist(), make_vector_filter_sql(), best
            )
            found += len(exact & {number for number, _ in ranked})
        return (
            f"recall@{best} against exact search: {found / questions / best:.3f}"
            f" ({questions} questions, {self._store._partitions} partitions)"
        )
