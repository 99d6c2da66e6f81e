"""The process that embeds texts: same vectors, no text lost when it is killed, no process left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from kbtui.index.embedding_model import (
    BATCH_TOKENS,
    CHARACTERS_PER_TOKEN,
    MAX_TOKENS,
    EmbeddingModelKeyAndSource,
    EmbeddingModelUnavailableError,
    LoadedEmbeddingModel,
    OnnxEmbeddingModel,
    find_embedding_model,
    split_texts_into_batches,
)
from kbtui.index.embedding_process import (
    SAMPLE_TEXTS,
    EmbeddingProcess,
    EmbeddingProcessEndedError,
    EmbeddingProcessServer,
    get_path_of_stored_fastest_embedding_method,
    measure_embedding_methods,
    read_stored_fastest_embedding_method,
    store_fastest_embedding_method,
)

TEXTS = [
    "a short one",
    "The quick brown fox. " * 60,
    "日本語のテキスト",
    "",
    "\ud800 alone",
    "x" * 9,
]


@pytest.fixture
def model(with_export: Path) -> EmbeddingModelKeyAndSource:
    """The packaged model, for which onnxruntime was measured as best: it loads in a second."""
    found = find_embedding_model("")
    store_fastest_embedding_method(found, "onnxruntime", {})
    return found


@pytest.fixture
def process(model: EmbeddingModelKeyAndSource) -> Iterator[EmbeddingProcess]:
    found = EmbeddingProcess(model, print)
    yield found
    found.close()


def child() -> psutil.Process:
    """The process that embeds texts; waits until it is there."""
    return until(
        lambda: next(
            (
                one
                for one in psutil.Process().children()
                if one.status() != "zombie" and "kbtui.index.embedding_process" in one.cmdline()
            ),
            None,
        )
    )


def until(find: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (found := find()):
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
    return found


def test_it_gives_the_vectors_of_the_texts_in_their_order(
    process: EmbeddingProcess, model: EmbeddingModelKeyAndSource
) -> None:
    here = OnnxEmbeddingModel(model)
    vectors = process.embed_texts(TEXTS)
    alone = np.vstack([here.embed_batch([text]) for text in TEXTS])
    assert (vectors * alone).sum(axis=1).min() > 0.9999
    assert np.allclose(process.embed_query(TEXTS[1]), alone[1], atol=1e-4)
    first = child()
    assert process.embed_texts([]).shape == (0, 384)
    assert child() == first, "it is one process"


def test_killed_while_it_embeds_it_starts_again_and_nothing_is_lost(
    process: EmbeddingProcess,
) -> None:
    expected = process.embed_texts(TEXTS)
    first = child()
    first.suspend()  # so that it cannot answer before it is killed
    threading.Timer(0.2, first.kill).start()
    assert np.allclose(process.embed_texts(TEXTS), expected, atol=1e-5)
    assert not process.has_failed
    assert child() != first


def test_killed_again_and_again_it_gives_up(process: EmbeddingProcess) -> None:
    done = threading.Event()

    def kill_always() -> None:
        while not done.is_set():
            for one in psutil.Process().children():
                one.kill()
            time.sleep(0.01)

    killer = threading.Thread(target=kill_always)
    killer.start()
    try:
        with pytest.raises(EmbeddingProcessEndedError, match="exited 2 times"):
            process.embed_texts(TEXTS)
    finally:
        done.set()
        killer.join()
    assert process.has_failed


def test_closed_it_answers_nobody_and_is_gone(process: EmbeddingProcess) -> None:
    process.embed_query("one")
    running = child()
    running.suspend()
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            process.embed_texts(TEXTS)
        except EmbeddingProcessEndedError as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.1)
    began = time.monotonic()
    process.close()
    assert time.monotonic() - began < 0.5, "it waited"
    asking.join(10)
    assert failed
    assert not running.is_running() or running.status() == "zombie"
    with pytest.raises(EmbeddingProcessEndedError, match="stopped"):
        process.embed_query("two")


ENGINE = """
import sys, time
from kbtui.index.embedding_model import find_embedding_model
from kbtui.index.embedding_process import EmbeddingProcess
process = EmbeddingProcess(find_embedding_model(""), print)
process.embed_query("one")
print(process._process.pid, flush=True)
time.sleep(60)
"""


def test_it_ends_when_the_engine_is_killed(model: EmbeddingModelKeyAndSource) -> None:
    with subprocess.Popen([sys.executable, "-c", ENGINE], stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        pid = int(engine.stdout.readline())
        assert psutil.pid_exists(pid)
        os.kill(engine.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")


def test_a_model_that_cannot_be_loaded_is_said_to_every_request(tmp_path: Path) -> None:
    process = EmbeddingProcess(EmbeddingModelKeyAndSource("x", str(tmp_path), packaged=True), print)
    try:
        for _ in range(2):
            with pytest.raises(EmbeddingModelUnavailableError, match="cannot be read") as caught:
                process.embed_query("one")
            assert "reinstall" in (caught.value.hint or "")
            assert (caught.value.where or "").startswith(str(tmp_path))
    finally:
        process.close()


class Model(LoadedEmbeddingModel):
    """A model that takes some processor time for each batch, and may be inaccurate."""

    dimension = 2

    def __init__(self, seconds: float, error: float = 0.0) -> None:
        self._seconds, self._row = seconds, [1.0, error]

    def embed_batch(self, texts: Sequence[str]) -> Any:
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        return np.array([self._row] * len(texts)) / np.linalg.norm(self._row)

    def embed_query(self, text: str) -> Any:
        return self.embed_batch([text])


def best(**models: Model) -> str:
    found = measure_embedding_methods(dict(models), ["some text"] * SAMPLE_TEXTS)
    return min(found, key=found.__getitem__)


def test_the_method_that_takes_the_least_is_chosen_unless_it_is_inaccurate() -> None:
    exact, other = Model(0.02), Model(0.01)
    assert best(exact=exact, other=other, quick=Model(0.002)) == "quick"
    assert best(exact=exact, other=other, quick=Model(0.002, error=0.05)) == "other"
    assert best(exact=Model(0.004), other=other, quick=Model(0.002, error=0.05)) == "exact"


def test_the_choice_is_remembered_for_this_computer_alone(with_export: Path) -> None:
    model = find_embedding_model("")
    assert read_stored_fastest_embedding_method(model) is None
    store_fastest_embedding_method(model, "onnxruntime", {"onnxruntime": 0.02})
    assert read_stored_fastest_embedding_method(model) == "onnxruntime"
    path = get_path_of_stored_fastest_embedding_method(model)
    found = json.loads(path.read_bytes())
    found["computer"]["cores"] = "1000"
    path.write_text(json.dumps(found))
    assert read_stored_fastest_embedding_method(model) is None
    store_fastest_embedding_method(model, "onnxruntime", {})
    with_export.unlink()
    assert read_stored_fastest_embedding_method(model) is None, (
        "without the export, torch is the only choice"
    )
    for damaged in (b"", b"[]", b'{"computer": 1}'):
        path.write_bytes(damaged)
        assert read_stored_fastest_embedding_method(model) is None


def test_few_texts_do_not_decide(with_export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = find_embedding_model("")
    monkeypatch.setattr(
        "kbtui.index.embedding_process.METHODS", {"onnxruntime": OnnxEmbeddingModel}
    )
    service = EmbeddingProcessServer(model, None)
    service.load_model_for_fastest_method()
    service.embed_passages(["one"] * (SAMPLE_TEXTS - 1))
    assert not get_path_of_stored_fastest_embedding_method(model).exists()
    service.embed_passages(["one"] * SAMPLE_TEXTS)
    assert read_stored_fastest_embedding_method(model) == "onnxruntime"


def test_batches_have_each_text_once_and_little_padding() -> None:
    texts = ["w" * (number * 7 % 3000) for number in range(500)]
    batches = split_texts_into_batches(texts)
    assert sorted(at for batch in batches for at in batch) == list(range(500))
    for batch in batches:
        tokens = max(len(texts[at]) for at in batch) // CHARACTERS_PER_TOKEN
        assert len(batch) == 1 or len(batch) * min(tokens, MAX_TOKENS) <= BATCH_TOKENS
    padded = sum(len(batch) * max(len(texts[at]) for at in batch) for batch in batches)
    assert padded < 1.2 * sum(map(len, texts))
    assert split_texts_into_batches([]) == []
