"""Embedding: ours against the library's defaults on the same chunks."""

from collections.abc import Iterator
from pathlib import Path

from tests.bench import workspaces
from tests.bench.measure import Row, timed

CHUNKS = 64


def embed(base: Path, times: int) -> Iterator[Row]:
    """Throughput, and how near the vectors are to those in full precision."""
    import os
    import random

    os.environ["HF_HUB_OFFLINE"] = "1"
    import numpy as np
    from sentence_transformers import SentenceTransformer

    from kbtui.index.embedding_model import EMBEDDING_BATCH, TorchEmbedder, find_embedding_model

    random_ = random.Random(3)
    chunks = [workspaces.prose(random_, 60 + random_.randint(0, 60)) for _ in range(CHUNKS)]
    model = find_embedding_model("")
    ours, plain = TorchEmbedder(model), SentenceTransformer(model.source, device="cpu")
    ours.encode(chunks[:EMBEDDING_BATCH]), plain.encode(chunks[:8])

    def batches() -> np.ndarray:
        return np.vstack(
            [
                ours.encode(chunks[at : at + EMBEDDING_BATCH])
                for at in range(0, len(chunks), EMBEDDING_BATCH)
            ]
        )

    first, second = [], []
    for _ in range(max(2, times // 4)):
        second.append(timed(lambda: plain.encode(chunks)))
        first.append(timed(batches))
    near = float(
        np.mean(np.sum(batches() * plain.encode(chunks, normalize_embeddings=True), axis=1))
    )
    yield Row(
        f"embed {CHUNKS} chunks", first, "encode() with its defaults", second, "<= 0.33",
        remark=f"mean cosine to fp32 {near:.5f}",
    )  # fmt: skip


BENCHES = {"embed": embed}
