"""Runs commands as a shell does, each in a process of its own, but a forked one: nothing is imported again."""

import contextlib
import gc
import importlib
import json
import os
import pty
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

SECONDS = 600.0


def on_terminal(words: Sequence[str], typed: bytes = b"") -> tuple[bytes, int]:
    """What a command sends to its terminal, and its exit code; `typed` is there to be read."""
    names, names_write = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        _become(words, names_write)
    os.close(names_write)
    if typed:
        os.write(terminal, typed)
    raw = _until_the_end([terminal])[terminal]
    return raw, _code(pid, names)


def on_pipe(
    words: Sequence[str],
    typed: bytes = b"",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[bytes, bytes, int]:
    """What a command sends to standard output and standard error, and its exit code."""
    out, out_write = os.pipe()
    err, err_write = os.pipe()
    names, names_write = os.pipe()
    with tempfile.TemporaryFile() as given:
        given.write(typed)
        given.seek(0)
        pid = os.fork()
        if pid == 0:
            for descriptor, target in ((given.fileno(), 0), (out_write, 1), (err_write, 2)):
                os.dup2(descriptor, target)
            if cwd is not None:
                os.chdir(cwd)
            if environment is not None:
                os.environ.clear()
                os.environ.update(environment)
                time.tzset()
            _become(words, names_write)
    os.close(out_write)
    os.close(err_write)
    os.close(names_write)
    found = _until_the_end([out, err])
    return found[out], found[err], _code(pid, names)


def run_command(
    *words: str,
    cwd: Path | None = None,
    typed: str = "",
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run `kbtui WORDS`; the result is that of `subprocess.run`."""
    out, err, code = on_pipe(words, typed.encode(), cwd, environment)
    return subprocess.CompletedProcess(words, code, out.decode(), err.decode())


def serve_programs(listener: socket.socket, parent: int) -> NoReturn:
    """Fork a program for each `stand_in.py` that connects, until `parent` is closed by its writer."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    while parent not in select.select([listener, parent], [], [])[0]:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        guest, _ = listener.accept()
        # A process for each guest, because its program may run for long.
        if os.fork() == 0:
            try:
                _answer_stand_in(guest)
            finally:
                os._exit(0)
        guest.close()
    os._exit(0)


def _answer_stand_in(guest: socket.socket) -> None:
    _, descriptors, _, _ = socket.recv_fds(guest, 1, 3)
    with guest.makefile("rw") as messages:
        words, cwd, environment = json.loads(messages.readline())
        pid = os.fork()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor if pid == 0 else 0, target)
            os.close(descriptor)
        if pid == 0:
            guest.detach()
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(environment)
            _become(words, os.open(os.devnull, os.O_WRONLY))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=messages, flush=True)


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


def complete_line(line: str, shell: str = "fish", breaks: str = "", cwd: Path | None = None) -> str:
    """What one TAB offers: a word a line, with a tab and its description; fish quotes by itself."""
    done = run_command(cwd=cwd, environment=completion_environment(line, shell, breaks))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _become(words: Sequence[str], names: int) -> NoReturn:
    """Run a command in this forked process, and send the names of the modules it imported."""
    code = 70
    # That package looks up the trash of the user when it is imported, and an earlier test had another.
    for name in [one for one in sys.modules if one.startswith("send2trash")]:
        del sys.modules[name]
    known = set(sys.modules)
    # A collection would write to all objects of the worker, and so copy its memory.
    gc.freeze()
    try:
        for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
            setattr(sys, f"__{name}__", getattr(sys, name))
        from kbtui.cli.main import main

        if words and words[0].endswith(".py"):
            sys.argv = list(words)
            runpy.run_path(words[0], run_name="__main__")
            code = 0
        else:
            code = main(list(words))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(names, "\n".join(set(sys.modules) - known).encode())
        os._exit(code)


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


def _code(pid: int, names: int) -> int:
    """The exit code of a command; what it imported is imported here, so that no later one imports it again."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for name in os.read(names, 65536).decode().split():
        if not name.startswith("send2trash"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    os.close(names)
    return code
