"""The MCP server as a process, called by the SDK's client and by hand-written messages."""

import asyncio
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import psutil
import pytest
from assistant_support import LIVE, MIXED
from support import Builder, end_engine, tree_hash

from kbtui.assistant.assistant_tools import TOOLS, answer_tool_call, list_offered_tools
from kbtui.assistant.jp_local_tools import answer_jp_tool_call
from kbtui.engine.engine_launcher import get_engine_socket_path
from kbtui.knowledge import load_knowledge
from kbtui.library import Library
from kbtui.workspace import open_workspace_at_root

if TYPE_CHECKING:
    from mcp import Client

COMMAND = [sys.executable, "-m", "kbtui.cli.main"]


@asynccontextmanager
async def connected(
    command: list[str], root: Path, *words: str, mode: str = "auto"
) -> AsyncIterator["Client"]:
    """Connect the SDK's client to a server."""
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(
        command=command[0],
        args=[*command[1:], "mcp", "-w", str(root), *words],
        env=dict(os.environ),
    )
    async with Client(parameters, mode=mode, read_timeout_seconds=60) as client:
        yield client


def text_of(result: Any) -> str:
    [content] = result.content
    assert content.type == "text"
    return str(content.text)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_it_says_who_it_is_and_lists_the_one_definition(
    built: Builder, stand_in: list[str], mode: str
) -> None:
    async with connected(stand_in, built.root, mode=mode) as client:
        assert client.server_info.name == "kbtui"
        assert "not instructions" in (client.instructions or "")
        listed = (await client.list_tools()).tools
    expected = list_offered_tools(load_knowledge(built.workspace))
    assert [tool.name for tool in listed] == [tool.name for tool in expected] == list(TOOLS)
    for tool, one in zip(listed, expected, strict=True):
        assert tool.description == one.description
        assert tool.input_schema == one.make_arguments_schema()
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True


async def test_learn_is_not_listed_when_there_is_nothing_to_learn(
    built: Builder, stand_in: list[str]
) -> None:
    async with connected(stand_in, built.root) as client:
        assert "learn" in [tool.name for tool in (await client.list_tools()).tools]
        # The files are read for each call, without a restart.
        built.topics(guide={"enable": False})
        assert "learn" not in [tool.name for tool in (await client.list_tools()).tools]


async def test_a_client_that_listens_is_told_when_the_list_changes(
    built: Builder, stand_in: list[str]
) -> None:
    async with connected(stand_in, built.root) as client:
        assert client.server_capabilities.tools
        assert client.server_capabilities.tools.list_changed is True
        await client.list_tools()
        async with client.listen(tools_list_changed=True) as changes:
            built.topics(guide={"title": "Renamed"}, off={"enable": False})
            await client.call_tool("conversation_list", {})
            with anyio.fail_after(60):
                await anext(aiter(changes))


async def test_learn_tells_what_no_prompt_has_told(built: Builder, stand_in: list[str]) -> None:
    built.topics(
        guide={"title": "User Guide", "introduction": "how to feed them", "learned": ["**"]},
        off={"enable": False},
    )
    async with connected(stand_in, built.root) as client:
        learn = (await client.list_tools()).tools[0]
        assert "- guide (User Guide): how to feed them" in (learn.description or "")
        text = text_of(await client.call_tool("learn", {"topic": "guide", "subjects": "basics"}))
        assert text == "# Basics\n\nAn aardvark is not a badger.\n"
    context = json.dumps({"action": "run", "root": str(built.root)})
    arguments = {"topic": "guide", "subjects": "basics"}
    local = answer_jp_tool_call(context, json.dumps({"name": "learn", "arguments": arguments}))
    assert local == {"type": "success", "content": text}


async def test_each_tool_answers_with_the_bytes_that_jp_gets(
    built: Builder, stand_in: list[str], library: Library
) -> None:
    calls = {
        "learn": {"topic": "guide", "subjects": ["*"]},
        "knowledge_search": {"query": "badger"},
        "conversation_list": {},
        "conversation_grep": {"pattern": "badger"},
        "conversation_read": {"id": f"jp-c{LIVE}"},
    }
    before = tree_hash(built.root)
    async with connected(stand_in, built.root) as client:
        for name, arguments in calls.items():
            result = await client.call_tool(name, arguments)
            context = json.dumps({"action": "run", "root": str(built.root)})
            local = answer_jp_tool_call(context, json.dumps({"name": name, "arguments": arguments}))
            assert not result.is_error
            assert (
                text_of(result)
                == local["content"]
                == answer_tool_call(name, arguments, library).text
            )
    assert tree_hash(built.root) == before


async def test_bad_arguments_are_the_tools_error_and_an_unknown_tool_the_protocols(
    built: Builder,
    stand_in: list[str],
) -> None:
    from mcp.shared.exceptions import MCPError

    async with connected(stand_in, built.root) as client:
        result = await client.call_tool("conversation_list", {"limit": "many"})
        assert result.is_error
        assert text_of(result).startswith('`limit` must be a whole number, not "many"')
        result = await client.call_tool("conversation_read", {"id": "jp-c1"})
        assert result.is_error
        assert "Traceback" not in text_of(result)
        with pytest.raises(MCPError, match="no tool 'forget'") as raised:
            await client.call_tool("forget", {})
        assert raised.value.code == -32602
        # The server continues.
        assert not (await client.call_tool("learn", {"topic": "guide"})).is_error


async def test_the_conversation_that_asks_can_be_named(built: Builder, stand_in: list[str]) -> None:
    async with connected(stand_in, built.root, "--current", f"jp-c{LIVE}") as client:
        found = text_of(await client.call_tool("conversation_grep", {"pattern": "badger"}))
        assert f"jp-c{LIVE}<" not in found
        assert (await client.call_tool("conversation_read", {"id": str(LIVE)})).is_error


async def test_secrets_are_masked_unless_the_setting_says_never(
    built: Builder, stand_in: list[str], home: Path
) -> None:
    built.subject("guide/keys.md", "API_KEY=9f86d081884c7d65\n")
    with (built.root / ".jp/kb.toml").open("a") as file:
        file.write('[kb.topic.keys]\nsubjects = "docs/guide"\n')
        file.write('title = "token: 9f86d081884c7d65"\n')
    arguments = {"topic": "guide", "subjects": "keys"}
    async with connected(stand_in, built.root) as client:
        found = text_of(await client.call_tool("learn", arguments))
        assert found == "API_KEY=[masked: secret]\n"
        listed = [tool.description or "" for tool in (await client.list_tools()).tools]
        assert "token: [masked: secret]" in "\n".join(listed)
    settings = home / "config" / "kbtui" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('mask_secrets = "never"\n')
    async with connected(stand_in, built.root) as client:
        found = text_of(await client.call_tool("learn", arguments))
        assert found == "API_KEY=9f86d081884c7d65\n"


def test_a_workspace_that_is_none_is_said_at_once_on_stderr(tmp_path: Path) -> None:
    for words, code in [([str(tmp_path / "no")], 3), ([str(tmp_path), "--current", "x"], 2)]:
        ended = subprocess.run(
            [*COMMAND, "mcp", "-w", *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == code
        assert ended.stdout == ""
        assert ended.stderr.startswith("kbtui: ")


class Wire:
    """A server process whose messages are sent and received line by line."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.said = ""
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def send(self, message: dict[str, Any] | str) -> None:
        line = message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message})
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Return the next message; fail if a line is not a message."""
        message = json.loads(self._lines.get(timeout=60))
        assert message["jsonrpc"] == "2.0"
        self.seen.append(message)
        return dict(message)

    def greet(self) -> None:
        parameters = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        self.send({"id": 0, "method": "initialize", "params": parameters})
        assert self.receive()["result"]["serverInfo"]["name"] == "kbtui"
        self.send({"method": "notifications/initialized"})

    def call(self, number: int, name: str, arguments: dict[str, Any]) -> None:
        parameters = {"name": name, "arguments": arguments}
        self.send({"id": number, "method": "tools/call", "params": parameters})

    def end_of_input(self, seconds: float = 60) -> int:
        """Close the input and wait for the exit; all remaining lines must be messages."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(seconds)
        self._reading.join(seconds)
        self._listening.join(seconds)
        while not self._lines.empty():
            self.receive()
        return code


@pytest.fixture
def wire(built: Builder, stand_in: list[str]) -> Iterator[Wire]:
    opened = Wire([*stand_in, "mcp", "-w", str(built.root)])
    yield opened
    stop(opened)


@pytest.fixture
def own_process(built: Builder) -> Iterator[Wire]:
    """A server in a process that was not forked, for tests of how it ends."""
    opened = Wire([*COMMAND, "mcp", "-w", str(built.root)])
    yield opened
    stop(opened)


def stop(opened: Wire) -> None:
    """End a server; one that `stand_in` had forked ends with its input."""
    opened.process.kill()
    opened.process.wait()
    assert opened.process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        opened.process.stdin.close()
    for thread in (opened._reading, opened._listening):
        thread.join(60)
    for pipe in (opened.process.stdout, opened.process.stderr):
        assert pipe is not None
        pipe.close()


def test_the_end_of_input_ends_the_process(own_process: Wire) -> None:
    own_process.greet()
    own_process.call(1, "learn", {"topic": "guide"})
    assert own_process.receive()["id"] == 1
    assert own_process.end_of_input() == 0
    assert own_process.said == ""


def test_the_end_of_input_before_anything_was_said_ends_it_too(wire: Wire) -> None:
    assert wire.end_of_input() == 0
    assert wire.seen == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_waits_for_input(
    own_process: Wire, number: signal.Signals
) -> None:
    own_process.greet()
    own_process.process.send_signal(number)
    assert own_process.process.wait(60) == 128 + number
    assert own_process.end_of_input() == 128 + number
    assert own_process.said == ""


def test_lines_that_are_no_protocol_hurt_nobody(wire: Wire) -> None:
    wire.greet()
    for line in ("", "{", "[]", "null", '{"jsonrpc": "2.0"}', "\x00\x1b[31m", "[" * 50_000):
        wire.send(line)
    wire.send({"id": 5, "method": "tools/call", "params": {"name": 7}})
    answers = [wire.receive()]
    while answers[-1].get("id") != 5:
        answers.append(wire.receive())
    assert "error" in answers[-1]
    wire.call(6, "learn", {"topic": "guide"})
    assert wire.receive()["id"] == 6
    assert wire.end_of_input() == 0


def test_requests_that_cannot_be_read_are_answered(wire: Wire) -> None:
    wire.greet()
    wire.send({"id": 1, "method": "tools/call", "params": []})
    answer = wire.receive()
    assert (answer["id"], answer["error"]["code"]) == (1, -32602)
    wire.send('{"jsonrpc": "2.0", "id": 2, "method":')
    answer = wire.receive()
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    wire.send({"id": 3, "method": 7})
    answer = wire.receive()
    assert (answer["id"], answer["error"]["code"]) == (3, -32600)
    # Blank lines, notifications and answers are not answered.
    wire.send("")
    wire.send({"method": "notifications/cancelled", "params": []})
    wire.send({"id": 4, "result": []})
    wire.send({"id": 5, "method": "ping"})
    assert wire.receive()["id"] == 5
    assert wire.end_of_input() == 0


def test_secrets_in_wrong_requests_are_not_echoed(wire: Wire) -> None:
    key = "gh" + "p_" + MIXED[:36]
    wire.greet()
    wire.call(1, key, {})
    wire.send({"id": 2, "method": key})
    wire.send({"id": 3, "method": "tools/call", "params": {"name": {"token": key}}})
    wire.send({"id": 4, "method": "tools/call", "params": [key]})
    answers = [wire.receive() for _ in range(4)]
    assert all("error" in answer for answer in answers)
    assert key not in json.dumps(answers)
    [unknown] = [answer for answer in answers if answer["id"] == 1]
    assert "there is no tool '[masked: GitHub token]'" in unknown["error"]["message"]


def test_a_text_that_was_cut_in_the_middle_of_a_character_is_answered(wire: Wire) -> None:
    wire.greet()
    wire.call(1, "learn", {"topic": "whole \U0001f9a6, half \ud83e"})
    wire.send({"id": 2, "method": "ping"})
    answers = {
        answer_tool_call["id"]: answer_tool_call
        for answer_tool_call in (wire.receive(), wire.receive())
    }
    [content] = answers[1]["result"]["content"]
    assert 'Unknown topic "whole \U0001f9a6, half \ufffd"' in content["text"]
    wire.send('{"half": "\\ud83e"')
    wire.send('{"half": "\\ud83e"}')
    wire.send({"id": 3, "method": "ping"})
    assert [wire.receive()["id"] for _ in range(3)] == [None, None, 3]
    assert wire.end_of_input() == 0


NOISY = """
    import os, subprocess, sys
    import kbtui.assistant.mcp_server as server
    quiet = server.answer_tool_call

    def noisy(*words, **more):
        print("stray print")
        os.write(1, b"stray write\\n")
        subprocess.run(["echo", "stray child"])
        return quiet(*words, **more)

    server.answer_tool_call = noisy
    from kbtui.cli.main import main
    sys.exit(main(["mcp", "-w", sys.argv[1]]))
"""


def test_stdout_carries_the_protocol_only_whatever_is_printed(built: Builder) -> None:
    wire = Wire([sys.executable, "-c", textwrap.dedent(NOISY), str(built.root)])
    try:
        wire.greet()
        for number in range(1, 4):
            wire.call(number, "learn", {"topic": "guide"})
            assert wire.receive()["id"] == number
        assert wire.end_of_input() == 0
        assert [message["id"] for message in wire.seen] == [0, 1, 2, 3]
        for stray in ("stray print", "stray write", "stray child"):
            assert wire.said.count(stray) == 3
    finally:
        stop(wire)


class HungEngine:
    """An engine that hangs: it sends its greeting and nothing more."""

    def __init__(self, builder: Builder) -> None:
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(str(get_engine_socket_path()))
        self._door.listen()
        self.asked = queue.Queue[bytes]()
        self._guests: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                guest, _ = self._door.accept()
            except OSError:
                return
            self._guests.append(guest)
            # Reply to the client's greeting with its own version; the client may disconnect meanwhile.
            with contextlib.suppress(OSError):
                guest.sendall(guest.recv(1 << 16))
                self.asked.put(guest.recv(1 << 16))

    def close(self) -> None:
        self._door.close()
        for guest in self._guests:
            guest.close()


@pytest.fixture
def hung(built: Builder) -> Iterator[HungEngine]:
    engine = HungEngine(built)
    yield engine
    engine.close()


def test_a_cancelled_call_is_not_answered_and_holds_up_nothing(
    wire: Wire, hung: HungEngine
) -> None:
    wire.greet()
    wire.call(1, "knowledge_search", {"query": "badger"})
    assert hung.asked.get(timeout=60)  # it is under way, in its thread
    wire.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
    wire.call(2, "learn", {"topic": "guide"})
    assert wire.receive()["id"] == 2
    # A thread still waits for the engine; the process does not wait for it.
    assert wire.end_of_input(10) == 0
    assert [message["id"] for message in wire.seen] == [0, 2]


def test_the_end_of_input_in_the_middle_of_a_call_ends_the_process(
    own_process: Wire, hung: HungEngine
) -> None:
    own_process.greet()
    own_process.call(1, "knowledge_search", {"query": "badger"})
    assert hung.asked.get(timeout=60)
    assert own_process.end_of_input(10) == 0


async def test_the_sdks_client_can_cancel(
    built: Builder, stand_in: list[str], hung: HungEngine
) -> None:
    async with connected(stand_in, built.root, mode="legacy") as client:
        with anyio.CancelScope() as scope:

            async def cancel_when_asked() -> None:
                await asyncio.to_thread(hung.asked.get, timeout=60)
                scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(cancel_when_asked)
                await client.call_tool("knowledge_search", {"query": "badger"})
        assert scope.cancelled_caught
        assert not (await client.call_tool("learn", {"topic": "guide"})).is_error


def test_calls_run_side_by_side(wire: Wire, hung: HungEngine) -> None:
    wire.greet()
    for number in (1, 2, 3):
        wire.call(number, "knowledge_search", {"query": "badger"})
    for _ in range(3):
        assert hung.asked.get(timeout=60)
    wire.call(4, "conversation_list", {})
    assert wire.receive()["id"] == 4


async def test_after_a_rest_the_index_and_the_engine_are_let_go(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbtui.assistant import mcp_server as server

    monkeypatch.setattr(server, "IDLE_SECONDS", 0.05)
    closed = asyncio.Event()
    close = library.close

    def closing() -> None:
        close()
        closed.set()

    monkeypatch.setattr(library, "close", closing)
    calls = server._ThreadedMcpToolProvider(library, None, masked=False)

    class Parameters:
        name, arguments = "knowledge_search", {"query": "badger"}

    first = await calls.call_tool(None, Parameters)  # type: ignore[arg-type]
    await asyncio.wait_for(closed.wait(), 20)
    cache = str(library.workspace.cache_dir)
    assert not [file for file in psutil.Process().open_files() if file.path.startswith(cache)]
    again = await calls.call_tool(None, Parameters)  # type: ignore[arg-type]
    assert text_of(again) == text_of(first)


@pytest.mark.slow
async def test_once_the_model_is_warm_the_meaning_is_found_too(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KBTUI_MODEL", raising=False)
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/cars.md", "# Automobiles\n\nThe vehicle needs petrol to drive.\n")
    builder.subject("guide/cake.md", "# Cake\n\nFlour, eggs and sugar.\n")
    question = {"query": "what fuel does a car take?"}
    try:
        async with connected(COMMAND, workspace_root) as client:
            found = text_of(await client.call_tool("knowledge_search", question))
            assert found.startswith("Found by keywords only: the model is still loading.\n")
            with anyio.fail_after(100):
                # When the model is loaded, the passages are still to be embedded.
                while "keywords only" in found or "not searchable by meaning yet" in found:
                    await anyio.sleep(0.5)
                    found = text_of(await client.call_tool("knowledge_search", question))
        assert "Sources: guide/cars" in found
    finally:
        end_engine(builder)


def test_the_demo_can_be_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: list[str]
) -> None:
    import shutil

    monkeypatch.setenv("KBTUI_MODEL", "off")
    root = tmp_path / "demo"
    shutil.copytree(Path(__file__).parents[2] / "assets" / "demo", root)
    wire = Wire([*stand_in, "mcp", "-w", str(root)])
    try:
        wire.greet()
        wire.call(1, "learn", {"topic": "engineering", "subjects": "chunking"})
        assert "# " in wire.receive()["result"]["content"][0]["text"]
        assert wire.end_of_input() == 0
    finally:
        stop(wire)
    assert open_workspace_at_root(root).id is not None


def test_a_client_is_told_when_the_list_of_tools_changes(wire: Wire, built: Builder) -> None:
    wire.greet()
    capabilities = wire.seen[0]["result"]["capabilities"]
    assert capabilities["tools"]["listChanged"] is True
    wire.send({"id": 1, "method": "tools/list"})
    assert wire.receive()["id"] == 1
    wire.call(2, "conversation_list", {})
    assert wire.receive()["id"] == 2
    built.topics(guide={"title": "Renamed"}, off={"enable": False})
    wire.call(3, "conversation_list", {})
    # The server compares the lists after a call while it takes the next one, so either may come first.
    expected = {3, "notifications/tools/list_changed"}
    while expected:
        message = wire.receive()
        expected.discard(message.get("id", message.get("method")))
    assert wire.end_of_input() == 0
