"""Tests that an answer from an outdated index says so, and why, in every front end."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from running import run_command
from support import Builder, kill_engine

from kbtui.assistant.assistant_tools import answer_tool_call as reply_of
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import load_settings

OTTER = SearchRequest("otter", mode="lexical")


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/start.md", "# Start\n\nThe otter is awake.\n")
    yield builder
    kill_engine(builder)


@pytest.fixture
def library(built: Builder) -> Iterator[Library]:
    held = Library(built.workspace, load_settings())
    yield held
    held.close()


@pytest.fixture
def full(built: Builder, library: Library) -> Iterator[None]:
    """Add a subject that the running engine cannot index, because its disk is full."""
    with closing(library.connect_engine()) as engine:
        engine.send_request("refresh", wait=30)
        held = resource.prlimit(engine.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (1, held[1]))
        built.subject("guide/new.md", "# New\n\nThe stork.\n")
        end = time.monotonic() + 60
        while not engine.send_request("refresh", wait=5).get("error"):
            assert time.monotonic() < end, "it did not fail"
        yield


def test_while_the_first_index_is_made_an_answer_says_what_is_in_it(
    built: Builder, library: Library
) -> None:
    for number in range(2000):
        (built.root / f"docs/guide/s{number}.md").write_text(f"# S{number}\n\nOtter {number}.\n")
    library.request_index_update_and_wait(wait=0.0)
    assert "not up to date" in (library.search_by_keywords(OTTER).degraded or "")
    library.request_index_update_and_wait(wait=60.0)
    assert library.search_by_keywords(OTTER).degraded is None


def test_while_many_files_are_taken_in_an_answer_says_how_many(
    built: Builder, library: Library
) -> None:
    assert library.search(OTTER).degraded is None
    with closing(library.connect_engine()) as engine:
        end = time.monotonic() + 60
        degraded = ""
        # The engine may have indexed all of them before it answers, so they may change again.
        while "changed entries are indexed" not in degraded:
            assert time.monotonic() < end, degraded
            for number in range(2000):
                text = f"# S{number}\n\nOtter {number}, {end - time.monotonic()}\n"
                (built.root / f"docs/guide/s{number}.md").write_text(text)
            written = time.monotonic()
            while not engine.send_request("status")["progress"] and time.monotonic() < written + 10:
                pass
            degraded = library.search(OTTER).degraded or ""
        assert engine.send_request("refresh", wait=60)["done"]
    assert library.search(OTTER).degraded is None


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_an_answer_says_that_the_last_refresh_failed(library: Library, mode: str) -> None:
    answer = library.search(SearchRequest("stork", mode=mode))  # type: ignore[arg-type]
    assert answer.hits == []
    assert (answer.degraded or "").count("the index is not up to date: ") == 1


@pytest.mark.usefixtures("full")
def test_each_command_says_that_the_last_refresh_failed(built: Builder) -> None:
    for words in (
        ["search", "stork"], ["search", "stork", "--explain"], ["search", "--like", "guide/start"],
        ["cites", "guide/start"], ["entries"], ["entry", "show", "guide/start"], ["insights"],
    ):  # fmt: skip
        done = run_command("-w", str(built.root), *words)
        assert done.stderr.count("the index is not up to date: ") == 1, words


@pytest.mark.usefixtures("full")
def test_an_assistant_is_told_that_the_index_may_be_behind(library: Library) -> None:
    reply = reply_of("knowledge_search", {"query": "stork"}, library)
    assert "The index may be out of date." in reply.text


@pytest.mark.parametrize("room", [0, 8])
def test_a_private_index_that_cannot_be_made_is_no_empty_answer(built: Builder, room: int) -> None:
    cache = built.workspace.cache_dir
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text("in the way of an index that all share")
    search = [sys.executable, "-m", "kbtui.cli.main", "-w", str(built.root), "search", "otter"]
    # As on a full disk: next to nothing can be written.
    done = subprocess.run(
        ["sh", "-c", f'ulimit -f {room}; exec "$@"', "sh", *search],
        capture_output=True, text=True, check=False, env=os.environ.copy(),
    )  # fmt: skip
    cache.unlink()
    assert done.returncode == 3, done.stdout
    assert "cannot build an index: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "nothing found" not in done.stderr
