"""Computes the vectors of the texts to publish, except those that are already on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.index.embedding_cache import EmbeddingCache, PulledVectorLookup
from kbtui.workspace.paths import make_private_directory
from kbtui.workspace.published_library_settings import find_existing_mirror_of_subscribed_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from kbtui.index.embedding_model import EmbeddingModelKeyAndSource
    from kbtui.workspace import Workspace

VECTORS_AT_ONCE = 16_384
EMBEDDED_BATCH = 256


class CachingTextEmbedder:
    """Returns the vectors of texts. Computes only those that are in neither the embedding cache nor the mirror."""

    def __init__(
        self, workspace: Workspace, model: EmbeddingModelKeyAndSource, log: Callable[[str], None]
    ) -> None:
        from kbtui.index.embedding_process import EmbeddingProcess

        self.model = model
        make_private_directory(workspace.cache_dir)

        published = PulledVectorLookup(
            lambda: (
                mirror.database
                if (mirror := find_existing_mirror_of_subscribed_library(workspace))
                else None
            )
        )
        self._cache = EmbeddingCache(
            workspace.cache_dir / "embeddings.sqlite", model.key, published
        )
        self._process = EmbeddingProcess(model, log)
        self.computed = 0
        """The number of texts that the model has embedded."""

    def close(self) -> None:
        """End the model's process, and close the cache."""
        self._process.close()
        self._cache.close()

    def embed_texts_in_batches(
        self, texts: dict[bytes, str], on_progress: Callable[[int], None] = lambda done: None
    ) -> Iterator[tuple[list[bytes], np.ndarray]]:
        """Yield the hashes in `texts`, sorted, with the vectors of their texts.

        Each batch contains at most `VECTORS_AT_ONCE` hashes and a matrix with a row for each hash.
        """
        import numpy as np

        hashes = sorted(texts)
        for start in range(0, len(hashes), VECTORS_AT_ONCE):
            some = hashes[start : start + VECTORS_AT_ONCE]
            known = self._cache.get_cached_vectors(some)
            found = {key: np.frombuffer(one, np.float32) for key, one in known.items()}
            missing = sorted(some - found.keys(), key=lambda key: len(texts[key]))
            for at in range(0, len(missing), EMBEDDED_BATCH):
                keys = missing[at : at + EMBEDDED_BATCH]
                vectors = self._process.embed_texts([texts[key] for key in keys])
                fresh = dict(zip(keys, vectors, strict=True))
                self._cache.store_cached_vectors(fresh)
                found |= fresh
                self.computed += len(keys)
                on_progress(start + len(found))
            on_progress(start + len(some))
            yield some, np.vstack([found[key] for key in some])

    def embed_texts_by_hash(self, texts: dict[bytes, str]) -> dict[bytes, np.ndarray]:
        """Return the vector of each text, keyed by the text's hash. `texts` maps hashes to texts."""
        parts = self.embed_texts_in_batches(texts)
        return {key: row for keys, rows in parts for key, row in zip(keys, rows, strict=True)}
