"""Runs commands as a shell does, each in a process of its own, but a forked one: nothing is imported again."""

import contextlib
import json
import os
import pty
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO
from unittest import mock

TESTS = Path(__file__).parent
SECONDS = 600.0
_socket = _engine_python = ""
_forks_engines = False


@contextlib.contextmanager
def program_server() -> Iterator[list[str]]:
    """Run `program_server.py`; gives the words that start a program through it, before the program's own."""
    global _socket, _engine_python
    with tempfile.TemporaryDirectory(prefix="kb-", dir="/tmp") as directory:
        path = f"{directory}/programs"
        # Python as `engine_launcher` calls it.
        python = Path(directory, "python")
        stand_in = [sys.executable, "-IS", str(TESTS / "stand_in.py"), path, str(python)]
        python.write_text(f'#!/bin/sh\nexec {shlex.join(stand_in)} "$@"\n')
        python.chmod(0o700)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen()
            process = subprocess.Popen(
                [sys.executable, str(TESTS / "program_server.py"), str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=(listener.fileno(),),
            )
        _socket, _engine_python = path, str(python)
        yield stand_in
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


@contextlib.contextmanager
def forked_engines() -> Iterator[None]:
    """Let engines be forks too: one that is started anew imports for a third of a second."""
    global _forks_engines
    with mock.patch("kbtui.engine.engine_launcher.sys", SimpleNamespace(executable=_engine_python)):
        _forks_engines = True
        yield
        _forks_engines = False


def on_terminal(words: Sequence[str], typed: bytes = b"") -> tuple[bytes, int]:
    """What a command sends to its terminal, and its exit code; `typed` is there to be read."""
    terminal, other_side = pty.openpty()
    answers = _start_program(words, [other_side] * 3, is_on_terminal=True)
    os.close(other_side)
    if typed:
        os.write(terminal, typed)
    raw = _until_the_end([terminal])[terminal]
    return raw, _read_code(answers)


def on_pipe(
    words: Sequence[str],
    typed: bytes = b"",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[bytes, bytes, int]:
    """What a command sends to standard output and standard error, and its exit code."""
    out, out_write = os.pipe()
    err, err_write = os.pipe()
    with tempfile.TemporaryFile() as given:
        given.write(typed)
        given.seek(0)
        streams = [given.fileno(), out_write, err_write]
        answers = _start_program(words, streams, cwd, environment)
    os.close(out_write)
    os.close(err_write)
    found = _until_the_end([out, err])
    return found[out], found[err], _read_code(answers)


def _start_program(
    words: Sequence[str],
    streams: list[int],
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    is_on_terminal: bool = False,
) -> IO[str]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect(_socket)
        socket.send_fds(server, [b"."], streams)
        answers = server.makefile("rw")
    asked = {
        "words": list(words),
        "cwd": str(cwd or Path.cwd()),
        "environment": dict(os.environ if environment is None else environment),
        "engine_python": _engine_python if _forks_engines else "",
        "is_on_terminal": is_on_terminal,
    }
    print(json.dumps(asked), file=answers, flush=True)
    return answers


def _read_code(answers: IO[str]) -> int:
    with answers:
        return int(answers.readline())


def run_command(
    *words: str,
    cwd: Path | None = None,
    typed: str = "",
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run `kbtui WORDS`; the result is that of `subprocess.run`."""
    out, err, code = on_pipe(words, typed.encode(), cwd, environment)
    return subprocess.CompletedProcess(words, code, out.decode(), err.decode())


def completion_environment(line: str, shell: str, breaks: str = "") -> dict[str, str]:
    """The environment by which a shell asks what TAB offers at the end of a line."""
    return os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout",
        "_ARGCOMPLETE_SHELL": shell,
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_DFS": "\t",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_COMP_WORDBREAKS": breaks,
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }


def complete_line(
    line: str,
    shell: str = "fish",
    breaks: str = "",
    cwd: Path | None = None,
    program: Sequence[str] = (),
) -> str:
    """What one TAB offers: a word a line, with a tab and its description; fish quotes by itself.

    `program` is a Python file and its words, in place of the command.
    """
    environment = completion_environment(line, shell, breaks)
    done = run_command(*program, cwd=cwd, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _until_the_end(descriptors: list[int]) -> dict[int, bytes]:
    found = dict.fromkeys(descriptors, b"")
    left = set(descriptors)
    end = time.monotonic() + SECONDS
    while left:
        ready, _, _ = select.select(list(left), [], [], max(0.0, end - time.monotonic()))
        assert ready, f"still running; so far: {found}"
        for descriptor in ready:
            try:
                part = os.read(descriptor, 65536)
            except OSError:  # a terminal whose other side is closed
                part = b""
            found[descriptor] += part
            if not part:
                left.discard(descriptor)
                os.close(descriptor)
    return found
