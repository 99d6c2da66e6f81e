"""Compare vectors of 32 and of 16 bits: `python -m tests.eval.vector_precision [--collections DIRECTORY] [SET…]`.

A published library has vectors of 16 bits, and so has the index of a reader that mirrors it. Both indexes
have the same texts; one has its vectors from the model, the other from the mirror of a library.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.chunk_embedder import ChunkEmbedder
from kbtui.index.embedding_cache import (
    VECTORS_TABLE,
    EmbeddingCache,
    PulledVectorLookup,
    write_pulled_vectors_to_mirror_database,
)
from kbtui.index.vector_store import VectorStore
from kbtui.search.search_request_and_answer import SearchRequest
from tests.eval.__main__ import load_set
from tests.eval.indexed_corpus import IndexedCorpus, Vectors
from tests.eval.metrics import compare_by_bootstrap, ndcg

if TYPE_CHECKING:
    from collections.abc import Sequence

SETS = ("cranfield", "qmsum", "demo")


def make_corpus_with_published_vectors(corpus: IndexedCorpus, directory: Path) -> IndexedCorpus:
    """Return the corpus with a table of vectors that comes from a mirror of 16-bit vectors."""
    vectors, database = corpus.vectors, directory / "mirror.sqlite"
    catalog = CatalogDatabase(corpus.reader.folder / "catalog.sqlite")
    with closing(sqlite3.connect(database)) as db:
        db.execute(VECTORS_TABLE)

        class PublishingVectors(PulledVectorLookup):
            """Writes each vector that the chunk embedder asks for into the mirror first."""

            def get_vectors(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
                found = vectors.cache.get_cached_vectors(hashes)
                halves = [np.frombuffer(one, np.float32).astype("<f2") for one in found.values()]
                write_pulled_vectors_to_mirror_database(
                    db, model, found, [half.tobytes() for half in halves]
                )
                db.commit()
                return super().get_vectors(model, hashes)

        published = PublishingVectors(lambda: database)
        cache = EmbeddingCache(directory / "embeddings.sqlite", vectors.model.key, published)
        store = VectorStore(directory / "vectors", vectors.model.key, 384)

        def refuse(is_bulk: bool) -> Any:
            raise AssertionError("the model was needed")

        assert ChunkEmbedder(catalog, store, cache).embed_missing_chunks(refuse) == 0
        cache.close()
    catalog.close()
    return replace(corpus, store=store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument(
        "--collections", type=Path, default=os.environ.get("KBTUI_EVAL_COLLECTIONS") or None
    )
    args = parser.parse_args()
    vectors = Vectors()
    for name in args.sets:
        found = load_set(name, vectors, args.collections)
        if found is None:
            print(f"{name}: skipped")
            continue
        corpus, questions = found
        with tempfile.TemporaryDirectory() as directory:
            half = make_corpus_with_published_vectors(corpus, Path(directory))
            for mode in ("semantic", "hybrid"):
                shared, same, figures = [], 0, ([], [])  # type: ignore[var-annotated]
                for _, text, rank, gains in questions:
                    request = SearchRequest(text, mode=mode, limit=100)  # type: ignore[arg-type]
                    both = [one.search(request).hits for one in (corpus, half)]
                    first, second = ([hit.ref for hit in hits[:10]] for hits in both)
                    shared.append(len({*first} & {*second}) / max(1, len({*first})))
                    same += first == second
                    for of_width, hits in zip(figures, both, strict=True):
                        of_width.append(ndcg(rank(hits), gains, 10))
                mean, low, high = compare_by_bootstrap(figures[1], figures[0])
                print(
                    f"{name:<10} {mode:<9} {len(questions)} questions: first ten shared {statistics.mean(shared):.4f},"
                    f" the same ten in the same order {same}, nDCG@10 {statistics.mean(figures[0]):.4f}"
                    f" and {statistics.mean(figures[1]):.4f}, difference {mean:+.5f} [{low:+.5f}, {high:+.5f}]",
                    flush=True,
                )


if __name__ == "__main__":
    main()
