"""Runs commands as a shell does, each in a process of its own, but a forked one: nothing is imported again."""

import contextlib
import os
import pty
import select
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
    pid, terminal = pty.fork()
    if pid == 0:
        _become(words)
    if typed:
        os.write(terminal, typed)
    raw = _until_the_end([terminal])[terminal]
    return raw, _code(pid)


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
            _become(words)
    os.close(out_write)
    os.close(err_write)
    found = _until_the_end([out, err])
    return found[out], found[err], _code(pid)


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


def complete_line(line: str, shell: str = "fish", breaks: str = "", cwd: Path | None = None) -> str:
    """What one TAB offers: a word a line, with a tab and its description; fish quotes by itself."""
    done = run_command(cwd=cwd, environment=completion_environment(line, shell, breaks))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _become(words: Sequence[str]) -> NoReturn:
    code = 70
    try:
        for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
            setattr(sys, f"__{name}__", getattr(sys, name))
        from kbtui.cli.main import main

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


def _code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
