"""Embedding in bulk: the processor time of our process against the library's defaults on the same texts."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import workspaces
from tests.bench.measure import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.index.embedding_model import EmbeddingModelKeyAndSource

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

    The long texts have as many tokens as the model reads. On a processor with instructions for 16-bit numbers, they
    are also embedded with the best method that needs none.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    from kbtui.index.embedding_model import export_model_to_onnx, find_embedding_model
    from kbtui.index.embedding_process import (
        get_path_of_stored_fastest_embedding_method,
        store_fastest_embedding_method,
    )

    random_, slices = random.Random(3), max(2, times // 4)
    long = [workspaces.prose(random_, 60 + random_.randint(0, 60)) for _ in range(CHUNKS * slices)]
    model = find_embedding_model("")
    export_model_to_onnx(model)
    plain = SentenceTransformer(model.source, device="cpu")
    plain.encode(long[:8])
    kinds = {"paragraphs": read_paragraphs(), "long texts": long}
    flags = Path("/proc/cpuinfo").read_text().split() if sys.platform == "linux" else []
    has_bfloat16 = bool({"avx512_bf16", "amx_bf16"} & set(flags))
    target = "<= 0.40" if has_bfloat16 else "<= 0.83"
    yield from _against_encode(model, plain, kinds, slices, target)
    path = get_path_of_stored_fastest_embedding_method(model)
    if has_bfloat16:
        seconds = json.loads(path.read_bytes())["seconds"]
        seconds.pop("torch, 16 bits", None)
        store_fastest_embedding_method(model, min(seconds, key=seconds.__getitem__), seconds)
        yield from _against_encode(model, plain, {"long texts": long}, slices, "<= 0.83")
    path.unlink()  # other benchmarks choose the method themselves


def _against_encode(
    model: EmbeddingModelKeyAndSource,
    plain: Any,
    kinds: dict[str, list[str]],
    slices: int,
    target: str,
) -> Iterator[Row]:
    import numpy as np
    import psutil

    from kbtui.index.embedding_process import EmbeddingProcess, read_stored_fastest_embedding_method

    ours = EmbeddingProcess(model, print)
    ours.embed_texts(kinds["long texts"][:CHUNKS])  # chooses the method, unless it is stored
    (process,) = psutil.Process().children()
    for what, all_texts in kinds.items():
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
            f"embed {CHUNKS} {what}, processor time", first, "encode() with its defaults", second, target,
            remark=f"least cosine {min(cosines):.5f}; {read_stored_fastest_embedding_method(model)}; {process.memory_info().rss >> 20} MB",
        )  # fmt: skip
    ours.close()
    process.wait()


BENCHES = {"embed": embed}
