"""Embedding in bulk: the processor time of our process against the library's defaults on the same texts."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import workspaces
from tests.bench.measure import Row

CHUNKS = 64


def read_paragraphs() -> list[str]:
    """The paragraphs of this project's documentation, in an order that is the same each time."""
    texts = [
        paragraph.strip()[:1200]
        for path in sorted(Path("docs").rglob("*.md"))
        for paragraph in path.read_text("utf-8").split("\n\n")
        if len(paragraph) > 20
    ]
    random.Random(1).shuffle(texts)
    return texts


def embed(base: Path, times: int) -> Iterator[Row]:
    """Processor time of each, in turns, and how near the vectors are to those in full precision.

    The long texts have as many tokens as the model reads.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    import numpy as np
    import psutil
    from sentence_transformers import SentenceTransformer

    from kbtui.index.embedding_model import export_model_to_onnx, find_embedding_model
    from kbtui.index.embedding_process import EmbeddingProcess, read_embedding_method

    random_, slices = random.Random(3), max(2, times // 4)
    long = [workspaces.prose(random_, 60 + random_.randint(0, 60)) for _ in range(CHUNKS * slices)]
    model = find_embedding_model("")
    export_model_to_onnx(model)
    ours, plain = EmbeddingProcess(model, print), SentenceTransformer(model.source, device="cpu")
    ours.embed_texts(long[:CHUNKS]), plain.encode(long[:8])  # chooses the method; warms up
    (process,) = psutil.Process().children()

    for what, all_texts in (("paragraphs", read_paragraphs()), ("long texts", long)):
        first, second, cosines = [], [], []
        for at in range(slices):
            texts = all_texts[at * CHUNKS : (at + 1) * CHUNKS]
            began = time.process_time()
            exact = plain.encode(texts, normalize_embeddings=True)
            second.append(time.process_time() - began)
            began = sum(process.cpu_times()[:2])
            vectors = ours.embed_texts(texts)
            first.append(sum(process.cpu_times()[:2]) - began)
            cosines.append(float(np.sum(vectors * exact, axis=1).min()))
        yield Row(
            f"embed {CHUNKS} {what}, processor time", first, "encode() with its defaults", second, "<= 0.40",
            remark=f"least cosine {min(cosines):.5f}; {read_embedding_method(model)}; {process.memory_info().rss >> 20} MB",
        )  # fmt: skip
    ours.close()


BENCHES = {"embed": embed}
