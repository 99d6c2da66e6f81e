"""Five TUIs, three MCP servers and twenty commands on one workspace while files change."""

import json
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pty_support import COMMAND, Terminal
from support import Builder, asked, content_of, kill_engine, said

from kbtui.engine.engine_launcher import connect_or_start_engine, read_engine_lock_file
from kbtui.errors import EngineUnavailableError
from kbtui.index.index_generations import find_catalog_or_keyword_index_damage
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings
from kbtui.workspace.paths import get_kbtui_cache_directory

COMMANDS = [
    ["search", "otters"], ["search", "rivers", "--json"], ["topics"], ["learn", "guide", "**"], ["prompt"],
    ["c", "ls"], ["c", "grep", "answer"], ["c", "read", "jp-c17800000001"], ["show", "guide/s1"],
    ["entries"], ["insights"], ["doctor"], ["engine"], ["paths"], ["cites", "guide/s1"], ["index"],
    ["search", "--like", "guide/s1"], ["index", "--no-vectors"], ["entry", "show", "guide/s1"], ["source", "ls"],
]  # fmt: skip


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for number in range(30):
        builder.subject(f"guide/s{number}.md", f"# S{number}\n\nOtters of river {number}.\n")
    for number in range(10):
        builder.conversation(
            number, [[asked(f"q {number}"), said(f"answer {number}")]], title=f"T{number}"
        )
    yield builder
    kill_engine(builder)


def change(builder: Builder, random_: random.Random, number: int) -> None:
    """Apply one random change that keeps subject s1 and conversation 1."""
    kind = random_.randrange(5)
    name = f"guide/s{random_.randrange(2, 40)}.md"
    if kind < 2:
        builder.subject(name, f"# Changed {number}\n\nRivers and otters, {number} times.\n")
    elif kind == 2:
        (builder.root / "docs" / name).unlink(missing_ok=True)
    elif kind == 3:
        turns = [[asked(f"more {number}"), said(f"answer {number}")]] * random_.randint(1, 4)
        builder.conversation(10 + random_.randrange(10), turns, title=f"Grown {number}")
    else:
        # Like an editor, which replaces the whole file.
        fresh = builder.root / ".jp/kb.toml.new"
        disabled = f"s{random_.randrange(30, 40)}"
        fresh.write_text(f'[kb.topic.guide]\nsubjects = "docs/guide"\ndisabled = ["{disabled}"]\n')
        fresh.replace(builder.root / ".jp/kb.toml")


class Assistant:
    """An MCP server and a client that sends it lines."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "mcp", "-w", str(root)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.number = 0
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        self.ask("initialize", hello)
        self._say({"method": "notifications/initialized"})

    def _say(self, message: dict[str, object]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, object]) -> dict[str, object]:
        self.number += 1
        self._say({"id": self.number, "method": method, "params": params})
        assert self.process.stdout
        while line := self.process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return dict(answer["result"])
        raise AssertionError(f"the server ended: {self.process.stderr.read()}")  # type: ignore[union-attr]

    def call(self, name: str, **arguments: object) -> None:
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        assert not result.get("isError"), result

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nobody_sees_an_error_and_nothing_is_lost(built: Builder, tmp_path: Path) -> None:
    random_ = random.Random(8)
    stop = threading.Event()
    failed: list[str] = []

    def changing() -> None:
        number = 0
        while not stop.wait(0.2):
            number += 1
            change(built, random_, number)

    def asking() -> None:
        try:
            one = Assistant(built.root)
            while not stop.is_set():
                one.call("knowledge_search", query="otters")
                one.call("learn", topic="guide", subjects="s1")
                one.call("conversation_list")
            one.close()
        except Exception as error:
            failed.append(f"MCP: {error!r}")

    def commanding(words: list[str]) -> None:
        done = subprocess.run(
            [COMMAND, words[0], "-w", str(built.root), *words[1:]], capture_output=True, text=True, check=False, timeout=300
        )  # fmt: skip
        if done.returncode not in {0, 1} or "Traceback" in done.stderr:
            failed.append(f"{words}: {done.returncode} {done.stdout[-300:]} {done.stderr[-500:]}")

    threads = [
        threading.Thread(target=changing),
        *(threading.Thread(target=asking) for _ in range(3)),
    ]
    for thread in threads:
        thread.start()
    screens = [Terminal(["-w", str(built.root)], 100, 30) for _ in range(5)]
    try:
        for screen in screens:
            screen.until("index ready", 120)
        for screen in screens:
            screen.keys("/otters")
        group = [threading.Thread(target=commanding, args=(words,)) for words in COMMANDS]
        for thread in group:
            thread.start()
        while any(thread.is_alive() for thread in group):
            for screen in screens:
                screen.read()
                screen.keys("\x1b[B")
        pids = engines(built)
        assert len(pids) == 1, pids
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
    for screen in screens:
        shown = screen.settle()
        assert "Traceback" not in shown
        assert "failed" not in shown.lower(), shown
        screen.keys("\x11")
        assert screen.leave() == 0
    assert failed == []
    # After all changes.
    engine = connect_or_start_engine(built.workspace)
    assert engine.send_request("refresh", wait=60, timeout=90)["done"]
    index = WorkspaceIndexWriter(
        built.workspace, Settings(model="off"), cache_dir=tmp_path / "fresh"
    )
    index.refresh_index()
    index.close()
    assert content_of(built.workspace.cache_dir) == content_of(tmp_path / "fresh")
    found = read_engine_lock_file()
    assert found
    engine.close()


def refreshed(builder: Builder) -> None:
    """Wait for a refresh; an engine whose cache was just removed closes the connection."""
    end = time.monotonic() + 120
    while True:
        try:
            engine = connect_or_start_engine(builder.workspace, wait=60)
            assert engine.send_request("refresh", wait=60, timeout=90)["done"]
            engine.close()
            return
        except EngineUnavailableError:
            assert time.monotonic() < end
            time.sleep(0.2)


def engines(builder: Builder) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"]
        mine = line and line[-1] == get_kbtui_cache_directory() and "kbtui.engine" in line
        if mine and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_engines_that_are_ended_and_caches_that_go_while_many_ask(
    built: Builder, tmp_path: Path
) -> None:
    random_ = random.Random(9)
    for round_ in range(12):
        change(built, random_, round_)
        try:
            client = connect_or_start_engine(built.workspace, wait=60)
        except EngineUnavailableError:
            time.sleep(0.5)
            client = connect_or_start_engine(built.workspace, wait=60)
        if round_ % 3 == 0:
            psutil.Process(client.pid).kill()
        elif round_ % 3 == 1:
            shutil.rmtree(built.workspace.cache_dir, ignore_errors=True)
        client.close()
    refreshed(built)
    index = WorkspaceIndexWriter(
        built.workspace, Settings(model="off"), cache_dir=tmp_path / "fresh"
    )
    index.refresh_index()
    index.close()
    from kbtui.index import index_generations

    folder = index_generations.find_current_index_generation(built.workspace.cache_dir)
    assert folder is not None
    assert find_catalog_or_keyword_index_damage(folder) is None
    assert content_of(built.workspace.cache_dir) == content_of(tmp_path / "fresh")
