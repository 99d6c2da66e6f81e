"""The server does not hang if its client stops reading and the pipe is full."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support import Builder, asked, said

pytestmark = pytest.mark.slow

ANSWERS = 12
"""Answers of 50,000 characters each, many times the size of a pipe."""


class Unread:
    """A server whose output is read only on request."""

    def __init__(self, builder: Builder) -> None:
        builder.conversation(9, [[asked("long?"), said("x" * 50_000)]], title="Long")
        command = [sys.executable, "-m", "kbtui.cli.main", "mcp", "-w", str(builder.root)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        client = {"clientInfo": {"name": "test", "version": "1"}}
        self.send({"id": 0, "method": "initialize", "params": {**hello, **client}})
        assert self.receive()["id"] == 0
        self.send({"method": "notifications/initialized"})
        arguments = {"id": "jp-c17800000009"}
        for number in range(1, ANSWERS + 1):
            parameters = {"name": "conversation_read", "arguments": arguments}
            self.send({"id": number, "method": "tools/call", "params": parameters})
        # After the first character of the first answer, the pipe fills up.
        assert self.process.stdout is not None
        self.begun = self.process.stdout.read(1)

    def send(self, message: dict[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, begun: bytes = b"") -> dict[str, object]:
        assert self.process.stdout is not None
        return dict(json.loads(begun + self.process.stdout.readline()))


@pytest.fixture
def unread(built: Builder) -> Iterator[Unread]:
    opened = Unread(built)
    yield opened
    opened.process.kill()
    opened.process.wait()
    for pipe in (opened.process.stdin, opened.process.stdout):
        if pipe is not None and not pipe.closed:
            pipe.close()


def test_who_reads_later_gets_every_answer(unread: Unread) -> None:
    found = [unread.receive(unread.begun), *(unread.receive() for _ in range(ANSWERS - 1))]
    assert {answer["id"] for answer in found} == set(range(1, ANSWERS + 1))
    for answer in found:
        result = answer["result"]
        assert isinstance(result, dict)
        assert "x" * 50_000 in result["content"][0]["text"]


def test_the_end_of_input_ends_the_process_though_nobody_reads(unread: Unread) -> None:
    assert unread.process.stdin is not None
    unread.process.stdin.close()
    assert unread.process.wait(60) == 0


def test_an_output_that_nobody_can_read_any_more_ends_the_process(unread: Unread) -> None:
    assert unread.process.stdout is not None
    unread.process.stdout.close()
    assert unread.process.wait(60) == 0
