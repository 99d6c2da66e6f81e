"""Embeds texts in a separate process, on all cores. When the process exits, its memory is released.

A process that has imported torch holds hundreds of megabytes of memory. An engine therefore never
imports torch. The engine starts `python -m kbtui.index.embedding_process`, and sends texts to this
process. The process has no files open, so it can be killed at any time. It exits by itself when the
engine has exited.

A request is one line of JSON. An answer is one line of JSON, and then the vectors as bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from kbtui.file_reading_and_writing import write_file_atomically
from kbtui.index.embedding_model import (
    MIN_EXPORT_COSINE,
    EmbeddingModelKeyAndSource,
    EmbeddingModelUnavailableError,
    LoadedEmbeddingModel,
    OnnxEmbeddingModel,
    TorchEmbeddingModel,
    get_onnx_export_path,
)
from kbtui.workspace.paths import get_kbtui_cache_directory, make_private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kbtui.index.embedding_model import Matrix

    Request = dict[str, Any]

STARTS_MAX = 2
"""At most this many processes are started, one after another, to embed the same texts."""
SAMPLE_TEXTS = 32
"""The methods are compared by embedding this many texts with each of them."""
METHODS: dict[str, Callable[[EmbeddingModelKeyAndSource], LoadedEmbeddingModel]] = {
    "torch, 32 bits": TorchEmbeddingModel,
    "torch, 16 bits": partial(TorchEmbeddingModel, is_bfloat16=True),
    "onnxruntime": OnnxEmbeddingModel,
}
"""Maps the name of each embedding method to the function that loads the model for this method.

The first method is exact; the others are compared with it.
"""


class EmbeddingProcessEndedError(Exception):
    """The embedding process exited before it had embedded all requested texts."""


def lower_thread_priority() -> None:
    """Give this thread the lowest priority. Does nothing except on Linux."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


class EmbeddingProcess:
    """An embedding model in a separate process. Several threads may use it at the same time.

    The process starts at the first request. `has_failed` is true if the process has exited
    `STARTS_MAX` times while embedding the same texts.
    """

    def __init__(self, model: EmbeddingModelKeyAndSource, log: Callable[[str], None]) -> None:
        self._model, self._log = model, log
        self._lock, self._write_lock = threading.Lock(), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: dict[int, Future[Matrix]] = {}
        self._request_numbers = itertools.count(1)
        self._is_closed = False
        self.has_failed = False

    def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Return the unit vectors of texts, one row for each text.

        Raises `EmbeddingModelUnavailableError`, or `EmbeddingProcessEndedError`.
        """
        return self._request_vectors("passages", texts)

    def embed_query(self, text: str) -> Matrix:
        """Return the unit vector of a query, as one row. Raises the same errors as `embed_texts`."""
        return self._request_vectors("query", [text])

    def close(self) -> None:
        """Kill the process. Requested vectors that the process has not returned yet are lost."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()

    def _request_vectors(self, kind: str, texts: Sequence[str]) -> Matrix:
        for _ in range(STARTS_MAX):
            answer = self._send_request(kind, texts)
            try:
                return answer.result()
            except EmbeddingProcessEndedError:
                if self._is_closed:
                    raise
        self.has_failed = True
        raise EmbeddingProcessEndedError(f"the process that embeds texts exited {STARTS_MAX} times")

    def _send_request(self, kind: str, texts: Sequence[str]) -> Future[Matrix]:
        answer: Future[Matrix] = Future()
        with self._lock:
            if self._is_closed:
                raise EmbeddingProcessEndedError("the process that embeds texts was stopped")
            process = self._process or self._start_process()
            number = next(self._request_numbers)
            self._pending[number] = answer
        line = json.dumps({"id": number, "kind": kind, "texts": list(texts)}).encode()
        assert process.stdin is not None
        # If the process has exited, `_deliver_answers_to_callers` reports it.
        with self._write_lock, contextlib.suppress(OSError):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
        return answer

    def _start_process(self) -> subprocess.Popen[bytes]:
        # Batches are computed in parallel, each in one thread. This takes half the processor time of
        # computing one batch at a time in several threads.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "kbtui.index.embedding_process"),
                json.dumps(asdict(self._model)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=environment,
        )
        threading.Thread(
            target=self._deliver_answers_to_callers,
            args=(self._process,),
            name="embedded",
            daemon=True,
        ).start()
        return self._process

    def _deliver_answers_to_callers(self, process: subprocess.Popen[bytes]) -> None:
        """Pass each answer to the caller that waits for it, until the process exits."""
        import numpy as np

        assert process.stdout is not None
        while line := process.stdout.readline():
            answer = json.loads(line)
            size = answer.get("rows", 0) * answer.get("dimension", 0) * 4
            body = process.stdout.read(size)
            if len(body) < size:
                break
            with self._lock:
                waiting = self._pending.pop(answer["id"])
            if "rows" in answer:
                numbers = np.frombuffer(body, dtype=np.float32)
                waiting.set_result(numbers.reshape(answer["rows"], answer["dimension"]))
            else:
                waiting.set_exception(_make_error_from_answer(answer))
        code = process.wait()
        with self._lock:
            self._process = None
            pending, self._pending = self._pending, {}
            is_closed = self._is_closed
        if not is_closed:
            self._log(f"the process that embeds texts exited unexpectedly (exit code {code})")
        for waiting in pending.values():
            waiting.set_exception(EmbeddingProcessEndedError(f"exit code {code}"))


def _make_error_from_answer(answer: Request) -> Exception:
    if answer["is_model_unavailable"]:
        return EmbeddingModelUnavailableError(
            answer["error"], where=answer["where"], hint=answer["hint"]
        )
    return RuntimeError(answer["error"])


class EmbeddingProcessServer:
    """Answers requests in the process that embeds texts."""

    def __init__(self, model: EmbeddingModelKeyAndSource, answers: Any) -> None:
        self._model, self._answers = model, answers
        self._write_lock = threading.Lock()
        self._embedder: LoadedEmbeddingModel | None = None
        self._load_error: EmbeddingModelUnavailableError | None = None
        self._method = read_stored_fastest_embedding_method(model)
        self._batch_pool = ThreadPoolExecutor(
            os.cpu_count() or 1, initializer=lower_thread_priority
        )

    def load_model_for_fastest_method(self) -> None:
        """Load the model for the best method. If that fails, load it for another method."""
        for method in sorted(METHODS, key=lambda method: method != self._method):
            if embedder := self._load_model_for_embedding_method(method):
                self._embedder = embedder
                return

    def _load_model_for_embedding_method(self, method: str) -> LoadedEmbeddingModel | None:
        """Load the model for a method. If that fails, return None; the first error is stored."""
        try:
            return METHODS[method](self._model)
        except (EmbeddingModelUnavailableError, ImportError) as error:
            if not isinstance(error, EmbeddingModelUnavailableError):
                error = EmbeddingModelUnavailableError(f"{type(error).__name__}: {error}")
            self._load_error = self._load_error or error
            return None

    def answer_requests(
        self, requests: SimpleQueue[Request], embed: Callable[[list[str]], Matrix]
    ) -> None:
        """Answer requests until the process ends."""
        while True:
            request = requests.get()
            body = b""
            answer: Request
            try:
                if self._embedder is None:
                    assert self._load_error is not None
                    raise self._load_error
                vectors = embed(request["texts"])
                answer = {"rows": vectors.shape[0], "dimension": vectors.shape[1]}
                body = vectors.tobytes()
            except EmbeddingModelUnavailableError as error:
                answer = {"error": error.message, "where": error.where, "hint": error.hint}
                answer["is_model_unavailable"] = True
            except Exception as error:  # a model can raise anything
                answer = {"error": f"{type(error).__name__}: {error}"}
                answer["is_model_unavailable"] = False
            with self._write_lock:
                self._answers.write(json.dumps({"id": request["id"], **answer}).encode() + b"\n")
                self._answers.write(body)
                self._answers.flush()

    def embed_query(self, texts: list[str]) -> Matrix:
        """Return the vector of a query. `texts` contains only this query."""
        assert self._embedder is not None
        return self._embedder.embed_query(texts[0])

    def embed_passages(self, texts: list[str]) -> Matrix:
        """Return the vectors of passages, computed with the best method, on all cores."""
        assert self._embedder is not None
        if self._method is None and len(texts) >= SAMPLE_TEXTS:
            self._choose_fastest_embedding_method(
                texts[:: len(texts) // SAMPLE_TEXTS][:SAMPLE_TEXTS]
            )
        return self._embedder.embed_texts(texts, self._batch_pool.map)

    def _choose_fastest_embedding_method(self, sample: list[str]) -> None:
        loaded = {method: self._load_model_for_embedding_method(method) for method in METHODS}
        embedders = {method: one for method, one in loaded.items() if one is not None}
        seconds = measure_embedding_methods(embedders, sample)
        self._method = min(seconds, key=seconds.__getitem__)
        self._embedder = embedders[self._method]
        with contextlib.suppress(OSError):
            store_fastest_embedding_method(self._model, self._method, seconds)


def measure_embedding_methods(
    embedders: dict[str, LoadedEmbeddingModel], sample: Sequence[str]
) -> dict[str, float]:
    """Map each accurate method to the processor time that it needs for a text, in seconds.

    The first method is exact. Another method is accurate if its vectors are nearly equal to those of
    the first. Processor time is measured because it hardly depends on other programs.
    """
    exact = next(iter(embedders.values())).embed_texts(sample)
    seconds: dict[str, float] = {}
    for _ in range(2):
        for method, embedder in embedders.items():
            began = time.thread_time()
            vectors = embedder.embed_texts(sample)
            took = (time.thread_time() - began) / len(sample)
            if (vectors * exact).sum(axis=1).min() >= MIN_EXPORT_COSINE:
                seconds[method] = min(took, seconds.get(method, took))
    return seconds


def get_path_of_stored_fastest_embedding_method(model: EmbeddingModelKeyAndSource) -> Path:
    """Return the path of the file that stores the best method for a model on this computer."""
    return Path(get_kbtui_cache_directory(), "models", f"{model.key}-method.json")


def list_facts_determining_fastest_embedding_method(
    model: EmbeddingModelKeyAndSource,
) -> dict[str, str]:
    """Return the facts that determine the best method: the processor, the libraries and the ONNX export."""
    from importlib.metadata import PackageNotFoundError, version

    processor = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        facts = [line for line in lines if line.startswith(("model name", "flags"))]
        processor = "\n".join(sorted(set(facts))) or processor
    found = {"processor": processor, "cores": str(os.cpu_count())}
    for package in ("torch", "sentence-transformers", "onnxruntime"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    is_exported = model.packaged and get_onnx_export_path(model).exists()
    return found | {"export": "yes" if is_exported else "no"}


def store_fastest_embedding_method(
    model: EmbeddingModelKeyAndSource, method: str, seconds: dict[str, float]
) -> None:
    """Store the best method, and the processor time that each method needs for a text, in seconds."""
    path = get_path_of_stored_fastest_embedding_method(model)
    make_private_directory(path.parent)
    found = {
        "computer": list_facts_determining_fastest_embedding_method(model),
        "method": method,
        "seconds": seconds,
    }
    write_file_atomically(path, json.dumps(found, indent=1).encode())


def read_stored_fastest_embedding_method(model: EmbeddingModelKeyAndSource) -> str | None:
    """Return the stored method; None if there is none, or if it was measured in another environment."""
    try:
        found = json.loads(get_path_of_stored_fastest_embedding_method(model).read_bytes())
        if (
            found["computer"] == list_facts_determining_fastest_embedding_method(model)
            and found["method"] in METHODS
        ):
            return str(found["method"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def serve_embedding_requests() -> None:
    """Embed the texts of requests from standard input, until standard input is closed."""
    passages: SimpleQueue[Request] = SimpleQueue()
    queries: SimpleQueue[Request] = SimpleQueue()

    def queue_requests_from_stdin() -> None:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            (queries if request["kind"] == "query" else passages).put(request)
        # The engine has exited, so nobody is waiting for an answer.
        os._exit(0)

    def answer_passage_requests() -> None:
        lower_thread_priority()
        service.answer_requests(passages, service.embed_passages)

    # The output of libraries goes to the log, not between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=queue_requests_from_stdin, daemon=True).start()
    service = EmbeddingProcessServer(EmbeddingModelKeyAndSource(**json.loads(sys.argv[1])), answers)
    service.load_model_for_fastest_method()
    threading.Thread(target=answer_passage_requests, daemon=True).start()
    service.answer_requests(queries, service.embed_query)


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        # If memory runs short, Linux should end this process, because it can be started again.
        Path("/proc/self/oom_score_adj").write_text("500")
    serve_embedding_requests()
