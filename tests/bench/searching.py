"""Embedding in bulk: the processor time of our process against the library's defaults on the same texts."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import workspaces
from tests.bench.measure import Row

CHUNKS = 64


def embed(base: Path, times: int) -> Iterator[Row]:
    """Processor time of each, in turns, and how near the vectors are to those in full precision."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import numpy as np
    import psutil
    from sentence_transformers import SentenceTransformer

    from kbtui.index.embedding_model import export_model_to_onnx, find_embedding_model
    from kbtui.index.embedding_process import EmbeddingProcess, read_embedding_method

    random_ = random.Random(3)
    slices = [
        [workspaces.prose(random_, 60 + random_.randint(0, 60)) for _ in range(CHUNKS)]
        for _ in range(max(2, times // 4))
    ]
    model = find_embedding_model("")
    export_model_to_onnx(model)
    ours, plain = EmbeddingProcess(model, print), SentenceTransformer(model.source, device="cpu")
    ours.embed_texts(slices[0]), plain.encode(slices[0][:8])  # chooses the method; warms up
    (process,) = psutil.Process().children()

    first, second, cosines = [], [], []
    for texts in slices:
        began = time.process_time()
        exact = plain.encode(texts, normalize_embeddings=True)
        second.append(time.process_time() - began)
        began = sum(process.cpu_times()[:2])
        vectors = ours.embed_texts(texts)
        first.append(sum(process.cpu_times()[:2]) - began)
        cosines.append(float(np.sum(vectors * exact, axis=1).min()))
    memory = process.memory_info().rss >> 20
    ours.close()
    yield Row(
        f"embed {CHUNKS} chunks, processor time", first, "encode() with its defaults", second, "<= 0.40",
        remark=f"least cosine to fp32 {min(cosines):.5f}; {read_embedding_method(model)}; {memory} MB",
    )  # fmt: skip


BENCHES = {"embed": embed}
