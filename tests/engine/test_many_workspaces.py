"""One engine serves all workspaces of a user, and what happens in one does not affect the others."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import Builder, kill_engine

from kbtui.cli.main import main
from kbtui.engine import engine_protocol
from kbtui.engine.engine_launcher import (
    connect_or_start_engine,
    get_index_lock_path,
    read_engine_lock_file,
    read_engine_or_index_lock_file,
    try_to_lock_file,
)
from kbtui.engine.engine_protocol import make_engine_search_arguments
from kbtui.errors import EngineUnavailableError
from kbtui.library import Library
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import load_settings
from kbtui.workspace.paths import get_kbtui_cache_directory


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return value


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Builder]]:
    """Return a function that makes a workspace with one subject, which contains its name."""
    monkeypatch.setenv("KBTUI_MODEL", "off")
    made = []

    def make_workspace(name: str) -> Builder:
        builder = Builder(tmp_path / name)
        builder.topics(guide={})
        builder.subject("guide/one.md", f"# One\n\nThe {name} is awake.\n")
        made.append(builder)
        return builder

    yield make_workspace
    kill_engine(made[0])


def find(builder: Builder, words: str) -> list[str]:
    with Library(builder.workspace, load_settings()) as library:
        answer = library.search(SearchRequest(words, mode="lexical"))
        assert not answer.degraded
        return [hit.text for hit in answer.hits]


def list_engine_processes() -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"]
        if line and line[-1] == get_kbtui_cache_directory() and process.info["status"] != "zombie":
            found.append(process.pid)
    return found


def test_clients_of_several_workspaces_get_one_engine_and_their_own_answers(
    make: Callable[[str], Builder],
) -> None:
    animals = ("aardvark", "badger", "capybara")
    builders = [make(animal) for animal in animals]
    with ThreadPoolExecutor(6) as pool:
        clients = list(
            pool.map(
                lambda number: connect_or_start_engine(builders[number % 3].workspace), range(6)
            )
        )
    assert len({client.pid for client in clients}) == 1
    for animal, builder in zip(animals, builders, strict=True):
        assert len(find(builder, "awake")) == 1
        assert f"The {animal} is awake." in find(builder, "awake")[0]
        # The index says which engine writes it.
        assert (read_engine_or_index_lock_file(get_index_lock_path(builder.workspace)) or {})[
            "pid"
        ] == clients[0].pid
    for client in clients:
        client.close()


CLIENT = """
import json, sys
from pathlib import Path
from kbtui.library import open_workspace
from kbtui.search.search_request_and_answer import SearchRequest

with open_workspace(sys.argv[1]) as library:
    engine = library.connect_engine()
    answer = library.search(SearchRequest("awake", mode="lexical"), wait=60)
    print(json.dumps([engine.pid, [hit.text for hit in answer.hits]]))
    sys.stdout.flush()
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fifty_processes_for_ten_workspaces_at_once_get_one_engine(
    make: Callable[[str], Builder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builders = [make(f"animal{number}") for number in range(10)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(builders[number % 10].root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(50)
    ]
    pids = set()
    for number, process in enumerate(processes):
        assert process.stdout
        pid, texts = json.loads(process.stdout.readline())
        pids.add(pid)
        assert [f"animal{number % 10}" in text for text in texts] == [True]
    assert len(pids) == 1
    assert list_engine_processes() == list(pids)
    for process in processes:
        process.communicate("")


def test_a_workspace_without_clients_is_closed_and_opened_again_on_demand(
    make: Callable[[str], Builder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "0.3")
    idle, used = make("aardvark"), make("badger")
    client = connect_or_start_engine(used.workspace)
    assert find(idle, "aardvark")
    until(lambda: [one["root"] for one in status(used)["workspaces"]] == [str(used.root)])
    until(lambda: not read_engine_or_index_lock_file(get_index_lock_path(idle.workspace)))
    assert find(idle, "aardvark")
    assert client.send_request("status")["clients"] == 1
    client.close()


def status(builder: Builder) -> Any:
    with contextlib.closing(connect_or_start_engine(builder.workspace, start=False)) as client:
        return client.send_request("engine_status")


def test_the_time_zone_of_the_first_client_is_not_that_of_the_others(
    make: Callable[[str], Builder], monkeypatch: pytest.MonkeyPatch
) -> None:
    for animal, zone in (
        ("aardvark", "Europe/Berlin"),
        ("badger", None),
        ("capybara", "Asia/Tokyo"),
    ):
        builder = make(animal)
        monkeypatch.setenv("TZ", zone) if zone else monkeypatch.delenv("TZ", raising=False)
        with contextlib.closing(connect_or_start_engine(builder.workspace)) as client:
            question = SearchRequest(animal, mode="lexical").as_json()
            request = make_engine_search_arguments({"question": question, "wait": 5})
            # Otherwise, the client would have to search itself, by keywords only.
            assert client.send_request("search", **request)["answer"]["hits"]


def test_the_state_of_the_engine_names_memory_workspaces_and_clients(
    make: Callable[[str], Builder], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, closed = make("aardvark"), make("badger"), make("capybara")
    clients = [connect_or_start_engine(one.workspace) for one in (first, first, second)]
    for client in clients:
        assert client.send_request("refresh", wait=60)["done"]
    # This command does not open its workspace.
    assert main(["-w", str(closed.root), "engine", "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"engine: process {clients[0].pid}, version ")
    assert lines[0].endswith(" MB of memory") or sys.platform != "linux"
    assert lines[1:] == [
        f"workspace: {first.root}, 2 clients",
        "  keywords: ready",
        '  vectors: the model is switched off (setting model = "off")',
        f"workspace: {second.root}, 1 client",
        "  keywords: ready",
        '  vectors: the model is switched off (setting model = "off")',
    ]
    # Doctor does not open it either, and says so.
    main(["-w", str(closed.root), "doctor", "--json"])
    told = [one for one in json.loads(capsys.readouterr().out) if one["area"] == "engine"]
    assert [one["code"] for one in told] == ["engine_without_workspace"]
    # The engine is the same for all workspaces, and so is its end.
    assert main(["-w", str(closed.root), "engine", "stop"]) == 0
    with pytest.raises(EngineUnavailableError):
        clients[0].send_request("status")


class OldEngine:
    """An engine of version 3 of the protocol: it serves one workspace, and makes way for a newer one."""

    def __init__(self, builder: Builder, directory: Path) -> None:
        lock = try_to_lock_file(get_index_lock_path(builder.workspace))
        assert lock
        self._lock = lock
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / "old.sock"))
        self._listener.listen()
        lock.write_engine_pid_and_socket_path(directory / "old.sock")
        facts = json.loads(get_index_lock_path(builder.workspace).read_text())
        facts["pid"] = os.getppid()
        get_index_lock_path(builder.workspace).write_text(json.dumps(facts))
        self.greetings: list[Any] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client, client.makefile("rb") as frames:
            size = engine_protocol.parse_frame_length(frames.read(4), 1 << 20)
            self.greetings.append(engine_protocol.decode_frame_body(frames.read(size)))
            hello = {"hello": "kbtui", "protocol": 3, "version": "0.1"}
            client.sendall(engine_protocol.encode_message_as_frame(hello))
        self._listener.close()
        self._lock.release()


def test_an_engine_of_one_workspace_makes_way(
    make: Callable[[str], Builder], short_dir: Path
) -> None:
    builder = make("aardvark")
    old = OldEngine(builder, short_dir)
    assert find(builder, "aardvark")
    assert old.greetings[0]["protocol"] > 3


SABOTAGED = """
import os, time

scan = os.scandir

class Unexpected(BaseException):
    pass

def scan_or_fail(path="."):
    if "/slow/docs/guide" in os.fspath(path):
        time.sleep(3600)
    if "/broken/docs/guide" in os.fspath(path):
        raise Unexpected
    return scan(path)

os.scandir = scan_or_fail
from kbtui.engine.__main__ import run_engine
run_engine()
os._exit(0)
"""
"""An engine in which one workspace is on a disk that does not answer, and another one causes an error."""


def test_a_blocked_and_a_broken_workspace_leave_the_others_alone(
    make: Callable[[str], Builder], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, broken, sound = make("slow"), make("broken"), make("sound")
    with subprocess.Popen([sys.executable, "-c", SABOTAGED], stderr=subprocess.PIPE) as engine:
        try:
            until(read_engine_lock_file)
            waiting = connect_or_start_engine(slow.workspace)
            assert not waiting.send_request("refresh", wait=0.1)["done"]
            failing = connect_or_start_engine(broken.workspace)
            # The thread that writes this index has ended. The engine closes the workspace.
            with pytest.raises(EngineUnavailableError):
                failing.send_request("refresh", wait=30)
            assert find(sound, "awake")
            roots = [one["root"] for one in status(sound)["workspaces"]]
            assert str(slow.root) in roots
            assert str(sound.root) in roots
            assert waiting.send_request("status")["pid"] == engine.pid
        finally:
            engine.kill()
