"""An entry that cannot be embedded keeps its error and can be retried; the others are embedded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_without_engine import indexed
from support import Builder

from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.catalog_query import EntryFilter, query_entry_page
from kbtui.index.chunk_embedder import ChunkEmbedder
from kbtui.index.embedding_cache import EmbeddingCache
from kbtui.index.index_reader import IndexReader


class Choking:
    """An encoder that fails for some texts."""

    def __init__(self, on: str) -> None:
        self.on = on

    def embed_texts(self, texts: Sequence[str]) -> Any:
        if self.on and any(self.on in text for text in texts):
            raise RuntimeError("it choked")
        return np.stack([np.eye(4, dtype=np.float32)[len(text) % 4] for text in texts])


def embed(builder: Builder, reader: IndexReader, encoder: Choking) -> int:
    from kbtui.index.vector_store import VectorStore

    catalog = CatalogDatabase(reader.folder / "catalog.sqlite")
    remembered = EmbeddingCache(builder.workspace.cache_dir / "embeddings.sqlite", "model-1")
    store = VectorStore(reader.folder / "vectors", "model-1", 4)
    try:
        return ChunkEmbedder(catalog, store, remembered).embed_missing_chunks(
            lambda is_bulk: encoder
        )
    finally:
        catalog.close()
        remembered.close()


def statuses(builder: Builder, reader: IndexReader) -> dict[str, tuple[str, str | None]]:
    found = query_entry_page(builder.workspace, reader, EntryFilter())
    return {row.ref: (row.status, row.error) for row in found.entries}


def test_one_that_chokes_is_marked_and_retried(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for name in ("one", "two", "three"):
        builder.subject(f"guide/{name}.md", f"# About {name}\n\nAll there is to say of {name}.\n")
    with indexed(builder) as reader:
        assert {status for status, _ in statuses(builder, reader).values()} == {"pending"}
        assert embed(builder, reader, Choking("two")) > 0
        assert statuses(builder, reader) == {
            "guide/one": ("ready", None),
            "guide/two": ("error", "not embedded: RuntimeError: it choked"),
            "guide/three": ("ready", None),
        }
        assert embed(builder, reader, Choking("")) == 0
        assert {status for status, _ in statuses(builder, reader).values()} == {"ready"}


def test_a_model_that_fails_always_is_not_blamed_on_the_entries_for_long(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(6):
        builder.subject(f"guide/{number}.md", f"# About {number}\n\nSaid of {number}.\n")
    with indexed(builder) as reader:
        with pytest.raises(RuntimeError, match="choked"):
            embed(builder, reader, Choking("About"))
        found = [status for status, _ in statuses(builder, reader).values()]
        assert sorted(found) == ["error"] * 3 + ["pending"] * 3
