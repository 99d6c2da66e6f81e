"""A client waits once for an engine that does not answer, and reports it."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder, end_engine

from kbtui.cli.main import main
from kbtui.engine import engine_launcher
from kbtui.engine.engine_client import UnresponsiveEngineError
from kbtui.engine.engine_launcher import EngineNotRunningError, connect_or_start_engine
from kbtui.library import Library
from kbtui.library.diagnostics import run_diagnostics
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings


@pytest.fixture
def stopped(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """A workspace whose engine is suspended and whose socket's queue is full."""
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    monkeypatch.setattr(engine_launcher, "SILENT_SECONDS", 0.2)
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/one.md", "# One\n\nThe badger is in its sett.\n")
    with contextlib.closing(connect_or_start_engine(builder.workspace)) as engine:
        while not engine.send_request("status")["lexical"]:
            time.sleep(0.02)
        pid = engine.pid
    place = engine_launcher.read_engine_lock_file()["socket"]  # type: ignore[index]
    os.kill(pid, signal.SIGSTOP)
    waiting: list[socket.socket] = []
    try:
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(place)
        yield builder
    finally:
        for one in waiting:
            one.close()
        os.kill(pid, signal.SIGCONT)
        end_engine(builder)


def test_it_is_not_called_no_engine_and_a_search_goes_on_without_it(
    stopped: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    for start in (False, True):
        with pytest.raises(UnresponsiveEngineError) as raised:
            connect_or_start_engine(stopped.workspace, start=start)
        assert raised.value.message == "an engine is running, but does not answer"
        assert str(raised.value.where).startswith("process ")
        assert "kill -9" in str(raised.value.hint)
    assert main(["-w", str(stopped.root), "engine", "status"]) == 3
    assert "an engine is running, but does not answer" in capsys.readouterr().err
    library = Library(stopped.workspace, Settings())
    found = [one for one in run_diagnostics(library) if one.area == "engine"]
    assert [(one.state, "does not answer" in one.message) for one in found] == [("wrong", True)]
    answer = library.search(SearchRequest("badger"), wait=5.0)
    assert [hit.ref for hit in answer.hits] == ["guide/one:1-3"]
    reason = "the index may be out of date: an engine is running, but does not answer"
    assert answer.degraded == f"{reason}; keywords only"
    library.close()
    capsys.readouterr()
    # The command names the process, and says what to do.
    pid = (engine_launcher.read_engine_lock_file() or {})["pid"]
    assert main(["-w", str(stopped.root), "search", "badger"]) == 0
    said = capsys.readouterr().err
    assert reason in said
    assert f"process {pid}: end it with `kill -9 {pid}`" in said


def test_where_there_is_none_that_is_said(workspace_root: Path) -> None:
    with pytest.raises(EngineNotRunningError):
        connect_or_start_engine(Builder(workspace_root).workspace, start=False)
