"""Tests that every call ends, whatever the engine does: with an answer, a private index, or cancelled."""

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import Builder, kill_engine

from kbtui.engine.engine_launcher import read_engine_lock_file
from kbtui.errors import CallCancelledError, EngineUnavailableError, KbtuiError
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.library import CallCancellation, Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import load_settings

QUESTION = SearchRequest("aardvark", mode="lexical")


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(150):
        builder.subject(f"guide/s{number}.md", f"# S{number}\n\nThe aardvark {number} is awake.\n")
    yield builder
    kill_engine(builder)


class Call:
    """A call in a thread of its own; `end` waits and returns its result or error."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.found: Any = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.found = self._work()
        except KbtuiError as error:
            self.found = error

    def end(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive(), "the call never ended"
        return self.found


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return value


def test_an_engine_killed_while_it_makes_the_first_index_is_replaced(built: Builder) -> None:
    library = Library(built.workspace, load_settings())
    call = Call(lambda: library.search(QUESTION))
    pid = until(lambda: read_engine_lock_file())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert len(call.end().hits) == 20
    assert library.index_notices_text is None
    library.close()


def test_a_connection_that_was_closed_after_its_answer_came_is_no_error(built: Builder) -> None:
    library = Library(built.workspace, load_settings())
    clients = []
    connect = library.connect_engine

    def record(**options: Any) -> Any:
        clients.append(connect(**options))
        return clients[-1]

    library.connect_engine = record  # type: ignore[method-assign]
    library.request_index_update_and_wait()
    # A call that is cancelled in the moment in which it ends does this.
    [client] = clients
    client.close()
    assert library.search(QUESTION).hits
    library.close()


@pytest.mark.slow
def test_a_call_that_waits_for_a_stuck_engine_can_be_given_up(built: Builder) -> None:
    library = Library(built.workspace, load_settings())
    assert library.search(QUESTION).hits
    engine = psutil.Process(library.connect_engine().pid)
    engine.suspend()
    try:
        given_up = CallCancellation()

        def search() -> Any:
            with given_up:
                return library.search(QUESTION)

        call = Call(search)
        until(lambda: given_up.client is not None)
        # Meanwhile another thread reads, and closing is not held up either.
        assert library.search_by_keywords(QUESTION).hits
        given_up.cancel()
        assert isinstance(call.end(), CallCancelledError)
        assert isinstance(Call(search).end(), CallCancelledError), "cancelled before it began"
    finally:
        engine.resume()
    assert library.search(QUESTION).hits, "the next call is not cancelled"
    library.close()


@pytest.fixture
def no_engine(built: Builder, monkeypatch: pytest.MonkeyPatch) -> Builder:
    def unavailable(*args: Any, **more: Any) -> Any:
        raise EngineUnavailableError("the engine cannot be started")

    monkeypatch.setattr("kbtui.engine.engine_launcher.connect_or_start_engine", unavailable)
    return built


def test_a_private_index_is_made_behind_and_says_what_it_is(
    no_engine: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    refresh = WorkspaceIndexWriter.refresh_index

    def slowly(self: WorkspaceIndexWriter, **more: Any) -> Any:
        may_go_on.wait(60)
        return refresh(self, **more)

    monkeypatch.setattr(WorkspaceIndexWriter, "refresh_index", slowly)
    library = Library(no_engine.workspace, load_settings())
    call = Call(lambda: library.search(QUESTION))
    until(lambda: library.is_index_unfinished)
    assert "still being built" in (library.index_notices_text or "")
    # Who would rather not wait does not have to.
    until(lambda: not isinstance(Call(lambda: library.open_index_reader(0.0)).end(), KbtuiError))
    may_go_on.set()
    answer = call.end()
    assert len(answer.hits) == 20
    assert answer.degraded == "a temporary index; keywords only: the engine cannot be started"
    folder = library.open_index_reader().folder
    library.close()
    assert not folder.exists()


def test_nobody_is_answered_from_the_beginning_of_a_private_index(
    no_engine: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = WorkspaceIndexWriter.refresh_index

    def slowly(self: WorkspaceIndexWriter, **more: Any) -> Any:
        time.sleep(0.5)
        return refresh(self, **more)

    monkeypatch.setattr(WorkspaceIndexWriter, "refresh_index", slowly)
    library = Library(no_engine.workspace, load_settings())
    first = Call(lambda: library.search_by_keywords(QUESTION))
    until(lambda: library.is_index_unfinished)
    second = Call(lambda: library.search_by_keywords(QUESTION))
    assert library.is_index_unfinished
    assert len(second.end().hits) == len(first.end().hits) == 20
    assert not library.is_index_unfinished
    library.close()


def test_a_private_index_follows_the_files(no_engine: Builder) -> None:
    library = Library(no_engine.workspace, load_settings())
    question = SearchRequest("pangolin", mode="lexical")
    assert not library.search(question).hits
    no_engine.subject("guide/new.md", "# New\n\nA pangolin came.\n")
    assert [hit.ref for hit in library.search(question).hits] == ["guide/new:1-3"]
    next(no_engine.root.rglob("new.md")).unlink()
    assert not library.search(question).hits
    library.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_private_index_goes_on_when_its_files_were_taken_away_while_it_was_written(
    no_engine: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh, swept = WorkspaceIndexWriter.refresh_index, threading.Event()

    def and_swept(self: WorkspaceIndexWriter, **more: Any) -> Any:
        # As by what keeps the directory for temporary files tidy.
        if not swept.is_set():
            swept.set()
            shutil.rmtree(self.folder / "lexical")
        return refresh(self, **more)

    monkeypatch.setattr(WorkspaceIndexWriter, "refresh_index", and_swept)
    library = Library(no_engine.workspace, load_settings())
    until(lambda: not isinstance(Call(lambda: library.search(QUESTION)).end(), KbtuiError))
    assert swept.is_set()
    assert len(library.search(QUESTION).hits) == 20
    no_engine.subject("guide/new.md", "# New\n\nA pangolin came.\n")
    found = library.search(SearchRequest("pangolin", mode="lexical")).hits
    assert [hit.ref for hit in found] == ["guide/new:1-3"]
    library.close()


def test_closing_a_private_index_does_not_update_it_again(
    no_engine: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh, refreshed = WorkspaceIndexWriter.refresh_index, []

    def counted(self: WorkspaceIndexWriter, **more: Any) -> Any:
        refreshed.append(self.folder)
        return refresh(self, **more)

    monkeypatch.setattr(WorkspaceIndexWriter, "refresh_index", counted)
    library = Library(no_engine.workspace, load_settings())
    assert library.search(QUESTION).hits
    before = len(refreshed)
    library.close()
    assert len(refreshed) == before


def test_making_a_private_index_can_be_given_up_and_closed(
    no_engine: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(
        WorkspaceIndexWriter, "refresh_index", lambda self, **more: self._stop.wait(60)
    )
    library = Library(no_engine.workspace, load_settings())
    given_up = CallCancellation()

    def search() -> Any:
        with given_up:
            return library.search(QUESTION)

    call = Call(search)
    [folder] = until(lambda: list(tmp_path.glob("kbtui-index-*")))
    given_up.cancel()
    assert isinstance(call.end(), CallCancelledError)
    library.close()
    until(lambda: not folder.exists())
