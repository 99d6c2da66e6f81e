"""A workspace with its index and vectors in this process, searched without an engine."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.chunk_embedder import ChunkEmbedder
from kbtui.index.embedding_cache import EmbeddingCache
from kbtui.index.embedding_model import TorchEmbeddingModel, find_embedding_model
from kbtui.index.entry_and_chunk_data_types import hash_embedded_text
from kbtui.index.index_reader import IndexReader
from kbtui.index.vector_store import (
    LEAN_CANDIDATES,
    VectorStore,
    make_vector_filter_sql,
    move_vector_towards,
)
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SemanticRanking
from kbtui.workspace import Settings, Workspace, open_workspace_at_root

if TYPE_CHECKING:
    from kbtui.search.search_pipeline import SemanticRanker
    from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest


def cache_folder() -> Path:
    """Return the directory that keeps workspaces, indexes and embeddings between runs."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return home / "kbtui-eval"


class Vectors:
    """The packaged model, loaded only to embed a text for the first time."""

    def __init__(self) -> None:
        self.model = find_embedding_model("")
        cache_folder().mkdir(parents=True, exist_ok=True)
        self.cache = EmbeddingCache(cache_folder() / "embeddings.sqlite", self.model.key)

    @cached_property
    def embedder(self) -> TorchEmbeddingModel:
        """The loaded model."""
        return TorchEmbeddingModel(self.model)

    def embed_question(self, text: str) -> list[float]:
        """Return the vector of a question."""
        key = hash_embedded_text(f"question\0{text}")
        if key not in self.cache.get_cached_vectors([key]):
            self.cache.store_cached_vectors({key: self.embedder.embed_query(text)[0]})
        return np.frombuffer(self.cache.get_cached_vectors([key])[key], dtype=np.float32).tolist()  # type: ignore[no-any-return]


@dataclass
class IndexedCorpus:
    """A workspace, indexed and embedded."""

    workspace: Workspace
    reader: IndexReader
    store: VectorStore
    vectors: Vectors

    def search(self, question: SearchRequest) -> SearchAnswer:
        """Return the answer that every front end gives, with vectors searched in this process."""
        return search_index(self.workspace, self.reader, question, self.semantic)

    def semantic(self, text: str) -> SemanticRanker:
        """Start the semantic ranking of a query, like the engine."""
        return partial(self._rank_chunks_by_meaning, text)

    def _rank_chunks_by_meaning(
        self, text: str, question: SearchRequest, generation: str
    ) -> SemanticRanking:
        where = make_vector_filter_sql(
            hidden=question.hidden,
            archived=question.archived,
            kinds=[] if len(question.kinds) == 2 else list(question.kinds),
            topics=list(question.topics),
            types=list(question.types),
            roles=list(question.roles),
            entries=list(question.entries),
        )
        vector = move_vector_towards(
            self.vectors.embed_question(text),
            self.store.get_vector_of_first_given_chunk_with_vector(
                question.worded[:LEAN_CANDIDATES]
            ),
        )
        return SemanticRanking(self.store.search_nearest_chunks(vector, where, question.depth))

    def close(self) -> None:
        """Close the index."""
        self.reader.close()


def index_corpus(
    root: Path, vectors: Vectors, settings: Settings | None = None, *, embeds: bool = True
) -> IndexedCorpus:
    """Build the index of the workspace at `root`, with cached embeddings if `embeds` is true.

    The index is new each time: in an updated one, deleted texts still affect how rare a word is,
    and the figures would differ between runs.
    """
    workspace = open_workspace_at_root(root)
    cache = cache_folder() / f"{root.name}-index"
    shutil.rmtree(cache, ignore_errors=True)
    index = WorkspaceIndexWriter(workspace, settings or Settings(), cache_dir=cache)
    index.refresh_index()
    index.close()
    reader = IndexReader(cache)
    catalog = CatalogDatabase(reader.folder / "catalog.sqlite")
    store = VectorStore(reader.folder / "vectors", vectors.model.key, 384)
    if embeds:
        backlog: Any = ChunkEmbedder(catalog, store, vectors.cache)
        left = backlog.embed_missing_chunks(lambda is_bulk: vectors.embedder)
        assert left == 0, f"{left} chunks have no vector"
    catalog.close()
    return IndexedCorpus(workspace, reader, store, vectors)
