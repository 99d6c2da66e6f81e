"""The packaged model under onnxruntime: warm in a second instead of several, from an export made once.

sentence-transformers makes the export and serves every other model. The export
lies in the cache beside a note of its own checksum and of the weights that it
was made from; it is checked before use, and made in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.files import write_file
from kbtui.index.embedding_model import CHECKSUMS, Embedder, Model, ModelUnavailable
from kbtui.workspace.paths import cache_home, make_private

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.index.embedding_model import Matrix

VERSION = 1
TOKENS_MOST = 256
"""What the packaged model reads of a text."""
AGREEMENT = 0.9999
"""The least cosine to the original's vectors with which an export is kept."""

_SAMPLE = (
    "a question",
    "The engine watches the files and keeps the index.",
    "def main(): pass\n" * 30,
)


def export_path(model: Model) -> Path:
    """Where the export of a model lies."""
    return Path(cache_home(), "models", f"{model.key}-{VERSION}.onnx")


def _note_path(path: Path) -> Path:
    return path.with_suffix(".json")


class FastEmbedder:
    """The packaged model, loaded from its export. `encode` may be called from several threads.

    With one thread it computes in the thread that calls, so that a niced thread stays niced. Further
    threads have the priority of the one that loads the model.
    """

    def __init__(self, model: Model, *, threads: int = 1) -> None:
        """Check and load; raises `ModelUnavailable` when there is no export, or not a sound one."""
        path = export_path(model)
        self._check(model, path)
        import onnxruntime
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(Path(model.source) / "tokenizer.json"))
        self._tokenizer.enable_truncation(TOKENS_MOST)
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's own kinds, all alike to us
            raise ModelUnavailable(f"the model's export cannot be loaded: {error}") from error
        self.model = model
        self.dimension = int(self.encode(["size"]).shape[1])

    @staticmethod
    def _check(model: Model, path: Path) -> None:
        try:
            note = json.loads(_note_path(path).read_text("utf-8"))
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            tokenizer = Path(model.source) / "tokenizer.json"
            with tokenizer.open("rb") as file:
                words = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError) as error:
            raise ModelUnavailable(
                "there is no export of the model yet", where=str(path)
            ) from error
        wanted = {"sha256": found, "weights": CHECKSUMS["model.safetensors"]}
        if note != wanted or words != CHECKSUMS["tokenizer.json"]:
            raise ModelUnavailable("the export of the model is not the one noted", where=str(path))

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors of documents, one row a text."""
        import numpy as np

        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        read = self._tokenizer.encode_batch(clean)
        mask = np.array([item.attention_mask for item in read], dtype=np.int64)
        ids = np.array([item.ids for item in read], dtype=np.int64)
        (states,) = self._session.run(None, {"input_ids": ids, "attention_mask": mask})
        pooled = (states * mask[..., None]).sum(axis=1)
        lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
        return np.asarray(pooled / np.maximum(lengths, 1e-12), dtype=np.float32)

    def encode_query(self, text: str) -> Matrix:
        """The unit vector of a question, as one row; this model has no prompt for questions."""
        return self.encode([text])


def export_in_background(model: Model) -> subprocess.Popen[bytes] | None:
    """Begin the export in a process of lowest priority; None where there is nothing to do.

    `KBTUI_EXPORT=off` in the environment forbids it.
    """
    if not model.packaged or os.environ.get("KBTUI_EXPORT") == "off":
        return None
    if _note_path(export_path(model)).exists():
        return None
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kbtui.index.onnx_model"],
        stdin=subprocess.DEVNULL,
        cwd="/",
        close_fds=True,
    )


def export(model: Model) -> Path:
    """Make the export and its note; raises `ModelUnavailable` when its vectors are not the same."""
    path = export_path(model)
    make_private(path.parent)
    original = Embedder(model)
    fresh = path.with_suffix(f".{os.getpid()}.new")
    try:
        original.write_onnx(fresh)
        with fresh.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    note: dict[str, Any] = {"sha256": found, "weights": CHECKSUMS["model.safetensors"]}
    write_file(_note_path(path), json.dumps(note).encode())
    near = (FastEmbedder(model).encode(_SAMPLE) * original.encode(_SAMPLE)).sum(axis=1).min()
    if near < AGREEMENT:
        _note_path(path).unlink()
        path.unlink()
        raise ModelUnavailable(f"the export's vectors are not the model's (cosine {near:.5f})")
    return path


def main() -> int:
    """The export's process."""
    from kbtui.index.embedding_model import find_model

    os.nice(19)
    try:
        export(find_model(""))
    except (ModelUnavailable, OSError) as error:
        print(f"no export of the model: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
