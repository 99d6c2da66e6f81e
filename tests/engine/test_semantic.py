"""The semantic leg with the real model: finds by meaning, resumes after a kill, uses no network."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from support import Builder, asked, end_engine, kill_engine, said

from kbtui.cli.main import main
from kbtui.engine.engine_launcher import read_engine_lock_file
from kbtui.index.chunk_embedder import BULK_CHUNKS
from kbtui.index.embedding_model import (
    CHECKSUMS,
    EmbeddingModelKeyAndSource,
    EmbeddingModelUnavailableError,
    OnnxEmbeddingModel,
    TorchEmbeddingModel,
    find_embedding_model,
    get_onnx_export_path,
    verify_packaged_model,
)
from kbtui.index.embedding_process import store_fastest_embedding_method
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import load_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))
from tui_support import running


def ask(lib: Library, query: str, mode: str = "hybrid") -> list[str]:
    answer = lib.search(SearchRequest(query, mode=mode), wait=90)  # type: ignore[arg-type]
    return [hit.ref for hit in answer.hits]


@pytest.mark.timeout(240)
def test_found_by_meaning_kept_through_a_kill_and_told_honestly(
    workspace_root: Path, with_export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject(
        "notes/money.md",
        "# Salaries\n\nEmployees receive their wages on the last day of the month.\n",
    )
    builder.subject("notes/cat.md", "# Pets\n\nThe kitten sleeps on the sofa all afternoon.\n")
    builder.subject(
        "notes/net.md", "# Network\n\nRetries back off exponentially after a timeout.\n"
    )
    builder.subject("notes/.hidden.md", "# Feline\n\nA secret cat naps on a cushion.\n")
    builder.conversation(
        1, [[asked("My laptop will not boot"), said("Check the power supply first.")]]
    )
    lib = Library(builder.workspace, load_settings())
    engine = lib.connect_engine()
    while not engine.send_request("settle", wait=1.0)["done"]:
        pass
    assert ask(lib, "when do people get paid", "semantic")[0].startswith("notes/money")
    assert ask(lib, "a feline is napping on the couch", "semantic")[0].startswith("notes/cat")
    assert ask(lib, "the computer does not start", "semantic")[0].startswith("jp-c17800000001")
    assert ask(lib, "when do people get paid")[0].startswith("notes/money")
    answer = lib.search(SearchRequest("kitten"), wait=30)
    assert answer.degraded is None
    assert answer.hits[0].legs == {"lexical": 1, "semantic": 1}
    hidden = lib.search(SearchRequest("a secret cat naps", hidden=True), wait=30)
    assert any(hit.slug == "hidden" for hit in hidden.hits)
    assert not any("hidden" in ref for ref in ask(lib, "a secret cat naps"))

    # Killed while embedding: the next engine resumes and embeds nothing twice.
    embeddings = builder.workspace.cache_dir / "embeddings.sqlite"
    remembered = rows(embeddings)
    for number in range(30):
        builder.subject(
            f"notes/n{number}.md",
            f"# Note {number}\n\nThe {number}th train leaves at {number} o'clock.\n",
        )
    time.sleep(0.5)
    os.kill(engine.pid, signal.SIGKILL)
    lib.close()
    lib = Library(builder.workspace, load_settings())
    engine = lib.connect_engine()
    while not engine.send_request("settle", wait=1.0)["done"]:
        pass
    assert len(rows(embeddings)) >= len(remembered) + 60
    assert remembered <= rows(embeddings)
    assert any(
        ref.startswith("notes/n") for ref in ask(lib, "railway departure time", "semantic")[:3]
    )

    # Neither leg finds a removed subject.
    (builder.root / "docs/notes/money.md").unlink()
    assert not any(ref.startswith("notes/money") for ref in ask(lib, "when do people get paid"))
    found = read_engine_lock_file()
    assert found
    psutil.Process(found["pid"]).terminate()


@pytest.mark.timeout(240)
def test_the_first_search_by_meaning_in_a_cold_workspace_says_what_is_not_embedded_yet(
    workspace_root: Path,
    with_export: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    for number in range(30):
        builder.subject(f"notes/n{number}.md", f"# N{number}\n\nTrain {number} to the harbour.\n")
    request.addfinalizer(lambda: end_engine(builder))
    query = ("railway departure", "--mode", "semantic", "--wait", "90")
    code = main(["search", "-w", str(builder.root), *query])
    answer = capsys.readouterr()
    # On a slow machine, the passages have their vectors before the answer is there.
    assert code == 0 or "passages not searchable by meaning yet" in answer.err, answer


@pytest.mark.timeout(240)
def test_a_hidden_subject_that_is_being_embedded_changes_no_visible_answer(
    workspace_root: Path, with_export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    for number in range(8):
        builder.subject(f"notes/n{number}.md", f"# N{number}\n\nTrain {number} to the harbour.\n")
    lib = Library(builder.workspace, load_settings())
    engine = lib.connect_engine()

    def visible() -> list[object]:
        found = lib.search(SearchRequest("a train to the sea"), wait=90)
        return [found.degraded, *((hit.chunk_id, hit.score, hit.legs) for hit in found.hits)]

    try:
        while not engine.send_request("settle", wait=1.0)["done"]:
            pass
        before, during = visible(), 0
        passages = "\n\n".join(f"Secret {number}. " + f"w{number} " * 150 for number in range(12))
        builder.subject("notes/.hidden.md", f"# Hidden\n\n{passages}\n")
        assert engine.send_request("refresh", wait=60)["done"]
        while not engine.send_request("settle", wait=0.0)["done"]:
            everything = lib.search(
                SearchRequest("a train to the sea", hidden=True), wait=90
            ).degraded
            found = visible()
            during += "not searchable by meaning yet" in (everything or "")
            assert found == before
            time.sleep(0.02)  # Searches without a pause take the processor from embedding.
        assert during, "it was embedded before anybody asked"
    finally:
        lib.close()
        end_engine(builder)


@pytest.mark.timeout(240)
async def test_the_screen_says_when_no_text_has_the_words_and_lists_all_that_is_close(
    workspace_root: Path,
    with_export: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    for number in range(70):
        builder.subject(f"notes/cat{number:03}.md", f"# Cats\n\nThe kitten {number} sleeps.\n")
        builder.subject(f"notes/net{number:03}.md", f"# Nets\n\nPacket {number} is routed.\n")
    request.addfinalizer(lambda: end_engine(builder))
    lib = Library(builder.workspace, load_settings())
    engine = lib.connect_engine()
    while not engine.send_request("settle", wait=1.0)["done"]:
        pass
    remark = "No text contains these words; closest by meaning"
    async with running(builder.root, library=lib) as tui:
        pane = tui.main.results_pane

        async def ask(words: str) -> None:
            await tui.press("slash")
            await tui.type(words)
            await tui.until(lambda: pane.answer and pane.answer.query == words)
            await tui.until(
                lambda: not tui.main.search.is_opening_hit and "by meaning …" not in tui.text
            )
            await tui.press("escape")

        await ask("zzzqqqyyy")
        await tui.until(remark)
        assert tui.text.index(remark) < tui.text.index("▎ 1 ◆ ")  # the first hit
        # The incomplete word is in a text.
        await ask("kitt")
        assert remark not in tui.text
        assert "notes/cat" in tui.text
        await ask("kitten packet")
        assert remark not in tui.text
        # Two legs with a hundred hits each have more than a hundred together.
        answer = pane.answer
        assert answer
        assert answer.total > 100
        while (listed := len(pane.list.rows)) < answer.total:
            await tui.press("G")
            await tui.until(lambda listed=listed: len(pane.list.rows) > listed)
        await tui.until(f"{answer.total} hits")
        await tui.press("m")
        await tui.until(lambda: pane.answer and pane.answer.mode == "lexical")
        assert remark not in tui.text


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_pause_of_embedding_lasts_until_it_is_ended_and_is_shown_everywhere(
    workspace_root: Path,
    with_export: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/cat.md", "# Pets\n\nThe kitten sleeps.\n")
    request.addfinalizer(lambda: end_engine(builder))
    lib = Library(builder.workspace, load_settings())

    def command(*words: str) -> str:
        assert main([*words, "-w", str(builder.root)]) == 0
        return "".join(capsys.readouterr())

    command("index")
    async with running(builder.root, library=lib) as tui:
        await tui.until("keywords and meaning")
        await tui.press("V")
        await tui.until("index ready · embedding paused")
        await tui.until("V continue embedding")
        builder.subject("notes/net.md", "# Nets\n\nPackets are routed.\n")
        await tui.until("embedding paused, 1 passage left")
        # The next engine, which the TUI starts, remembers it.
        kill_engine(builder)
        await tui.until("keywords only: the engine stopped")
        await tui.until("embedding paused, 1 passage left")
    assert "1 of 2 passages not embedded yet" in (state := command("engine", "status"))
    assert "paused; `kbtui engine continue`" in state
    assert "1 passage not embedded yet; embedding is paused" in command("index")
    assert command("engine", "continue") == "embedding continues\n"
    assert "paused" not in command("index")
    assert ask(lib, "a router", "semantic")[0].startswith("notes/net")


def list_child_pids(pid: int) -> list[int]:
    """The children of a process that have not ended."""
    children = psutil.Process(pid).children()
    return [one.pid for one in children if one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.timeout(240)
def test_many_passages_are_embedded_by_a_process_that_ends_when_all_are(
    workspace_root: Path, with_export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    # Without torch, the process starts in a second.
    store_fastest_embedding_method(find_embedding_model(""), "onnxruntime", {})
    builder = Builder(workspace_root)
    builder.topics(notes={})
    for number in range(BULK_CHUNKS):
        builder.subject(f"notes/n{number}.md", f"{number} cats\n")
    lib = Library(builder.workspace, load_settings())
    engine = lib.connect_engine()
    try:
        seen: set[int] = set()
        while not engine.send_request("settle", wait=0.1)["done"]:
            pids = list_child_pids(engine.pid)
            if pids and not seen:
                os.kill(pids[0], signal.SIGKILL)  # Its texts are embedded by the next one.
            seen |= set(pids)
        assert len(seen) == 2
        # The engine kills the process before it answers; on a busy machine, the process takes a moment to die.
        end = time.monotonic() + 60
        while pids := list_child_pids(engine.pid):
            assert time.monotonic() < end, pids
            time.sleep(0.02)
        # What is embedded is found; a few more passages need no process.
        assert ask(lib, "7 cats", "semantic")[0].startswith("notes/n7")
        builder.subject("notes/dog.md", "# Dogs\n\nA puppy barks.\n")
        assert engine.send_request("refresh", wait=60)["done"]
        while not engine.send_request("settle", wait=0.05)["done"]:
            assert list_child_pids(engine.pid) == []
        assert ask(lib, "a barking puppy", "semantic")[0].startswith("notes/dog")
        assert engine.send_request("status")["left"] == 0
    finally:
        lib.close()
        end_engine(builder)


SLOW_IMPORTS = """
import importlib.machinery as machinery
import os, sys, time
from pathlib import Path

run = machinery.SourceFileLoader.exec_module

def run_slowly(self, module):
    name = module.__name__
    if name == "numpy":
        time.sleep(1.5)
    if name == "lancedb" and os.environ.get("KBTUI_TEST_FAULT"):
        del os.environ["KBTUI_TEST_FAULT"]
        raise ImportError("a fault that passes")
    run(self, module)

machinery.SourceFileLoader.exec_module = run_slowly
from kbtui.engine.__main__ import run_engine
run_engine()
"""
"""An engine on a machine where importing numpy takes long, and importing lancedb may fail once."""


@pytest.fixture
def slow_engine(
    workspace_root: Path, with_export: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Builder]]:
    """Return a function that starts such an engine for a workspace with one subject."""
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/cat.md", "# Pets\n\nThe kitten sleeps on the sofa all afternoon.\n")
    engines: list[subprocess.Popen[bytes]] = []

    def start() -> Builder:
        command = [sys.executable, "-c", SLOW_IMPORTS, str(workspace_root)]
        engines.append(subprocess.Popen(command))
        end = time.monotonic() + 60
        while read_engine_lock_file() is None:
            assert time.monotonic() < end, "the engine does not start"
            time.sleep(0.05)
        return builder

    yield start
    kill_engine(builder)
    for engine in engines:
        engine.wait(60)


@pytest.mark.timeout(240)
def test_meaning_is_there_although_its_parts_are_imported_at_once(
    slow_engine: Callable[[], Builder],
) -> None:
    builder = slow_engine()
    lib = Library(builder.workspace, load_settings())
    assert main(["-w", str(builder.root), "index"]) == 0
    answer = lib.search(SearchRequest("a feline is napping", mode="semantic"), wait=120)
    assert answer.degraded is None
    assert [hit.slug for hit in answer.hits] == ["cat"]
    lib.close()


@pytest.mark.timeout(240)
def test_a_model_that_failed_to_load_is_loaded_again(
    slow_engine: Callable[[], Builder],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KBTUI_TEST_FAULT", "once")
    builder = slow_engine()
    monkeypatch.delenv("KBTUI_TEST_FAULT")
    lib = Library(builder.workspace, load_settings())
    answer = lib.search(SearchRequest("kitten"), wait=120)
    assert [hit.slug for hit in answer.hits] == ["cat"]
    assert "ImportError" in (answer.degraded or ""), "the import did not fail"
    assert main(["-w", str(builder.root), "index"]) == 0
    assert "keywords only" not in capsys.readouterr().err
    assert ask(lib, "a feline is napping", "semantic")[0].startswith("notes/cat")
    lib.close()


def rows(path: Path) -> set[bytes]:
    import sqlite3

    with sqlite3.connect(path) as db:
        return {row[0] for row in db.execute("SELECT hash FROM embeddings")}


def test_the_packaged_model_is_what_it_should_be() -> None:
    verify_packaged_model(find_embedding_model(""))


def test_a_model_with_other_bytes_is_refused(tmp_path: Path) -> None:
    for name in CHECKSUMS:
        (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(EmbeddingModelUnavailableError, match="is damaged or was changed"):
        TorchEmbeddingModel(EmbeddingModelKeyAndSource("x", str(tmp_path), packaged=True))


def test_a_missing_model_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingModelUnavailableError, match="no such model directory"):
        find_embedding_model(str(tmp_path / "none"))
    with pytest.raises(EmbeddingModelUnavailableError, match="cannot be read"):
        verify_packaged_model(EmbeddingModelKeyAndSource("x", str(tmp_path), packaged=True))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """An existing directory that contains no model."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


def test_a_broken_model_directory_is_said(broken: Path) -> None:
    with pytest.raises(EmbeddingModelUnavailableError, match="the model cannot be loaded"):
        TorchEmbeddingModel(find_embedding_model(str(broken)))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("none", "no such model directory"),
        pytest.param("model", "the model cannot be loaded", marks=pytest.mark.slow),
    ],
)
def test_without_a_sound_model_there_are_keywords_and_a_reason(
    workspace_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Path,
    model: str,
    reason: str,
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", str(broken.parent / model))
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/a.md", "An albatross.\n")
    lib = Library(builder.workspace, load_settings())
    answer = lib.search(SearchRequest("albatross"), wait=90)
    assert [hit.slug for hit in answer.hits] == ["a"]
    assert reason in (answer.degraded or "")
    lib.connect_engine().send_request("stop")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_first_engine_makes_the_export_and_works_on_with_it(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    monkeypatch.delenv("KBTUI_EXPORT")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/cat.md", "# Pets\n\nThe kitten sleeps on the sofa.\n")
    lib = Library(builder.workspace, load_settings())
    engine = lib.connect_engine()
    try:
        while not engine.send_request("settle", wait=1.0)["done"]:
            pass
        assert ask(lib, "a feline naps", "semantic")[0].startswith("notes/cat")
        assert get_onnx_export_path(find_embedding_model("")).with_suffix(".json").exists()
        for number in range(600):
            builder.subject(f"notes/n{number}.md", f"# Note {number}\n\nTrain {number} leaves.\n")
        assert engine.send_request("refresh", wait=60, timeout=90)["done"]
        while not engine.send_request("settle", wait=1.0)["done"]:
            pass
        assert ask(lib, "a feline naps", "semantic")[0].startswith("notes/cat")
        assert ask(lib, "railway departure 77", "semantic")[0].startswith("notes/n")
        assert "exporting the model to ONNX" in builder.workspace.engine_log_file.read_text()
        assert "libtorch" not in Path(f"/proc/{engine.pid}/maps").read_text()
    finally:
        lib.close()
        end_engine(builder)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_an_export_another_process_runs_the_model(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/cat.md", "# Pets\n\nThe kitten sleeps on the sofa.\n")
    lib = Library(builder.workspace, load_settings())
    engine = lib.connect_engine()
    try:
        while not engine.send_request("settle", wait=1.0)["done"]:
            pass
        for _ in range(2):
            assert ask(lib, "a feline naps", "semantic")[0].startswith("notes/cat")
            assert "libtorch" not in Path(f"/proc/{engine.pid}/maps").read_text()
            (child,) = psutil.Process(engine.pid).children()
            child.kill()  # The next query starts it again.
    finally:
        lib.close()
        end_engine(builder)


def test_without_an_export_the_quick_embedder_says_so() -> None:
    with pytest.raises(EmbeddingModelUnavailableError, match="not been exported"):
        OnnxEmbeddingModel(find_embedding_model(""))


TEXTS = [
    "a short one",
    "The quick brown fox. " * 60,
    "日本語のテキスト",
    "",
    "\ud800 alone",
    "x" * 9,
]


@pytest.fixture(scope="module")
def exact_vectors() -> Any:
    """The vectors of `TEXTS` by the most exact method. Importing torch takes seconds."""
    return TorchEmbeddingModel(find_embedding_model("")).embed_texts(TEXTS)


def test_in_16_bits_torch_gives_the_same_vectors_up_to_rounding(exact_vectors: Any) -> None:
    rounded = TorchEmbeddingModel(find_embedding_model(""), is_bfloat16=True).embed_texts(TEXTS)
    assert not np.array_equal(rounded, exact_vectors)
    assert (rounded * exact_vectors).sum(axis=1).min() > 0.9998


def test_an_export_gives_the_same_vectors_and_a_changed_one_is_refused(
    with_export: Path, exact_vectors: Any
) -> None:
    model = find_embedding_model("")
    path = with_export
    near = (OnnxEmbeddingModel(model).embed_texts(TEXTS) * exact_vectors).sum(axis=1)
    assert near.min() > 0.9999
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(EmbeddingModelUnavailableError, match="does not match its checksums"):
        OnnxEmbeddingModel(model)
