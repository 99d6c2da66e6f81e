"""Starts programs in forks of one process that has imported what they need, so that none of them imports it again.

usage: program_server.py DESCRIPTOR  (of a listening socket)

A client sends the three streams of the program, then a line of JSON, and gets the exit code when the program ends.
The server ends with its standard input.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import socket
import sys
import termios
import time
import types
import warnings
from typing import Any, NoReturn

IMPORTED = (
    "kbtui.cli.main",
    "kbtui.engine.engine_main",
    "kbtui.engine.engine_workspace",
    "kbtui.engine.file_watcher",
    "kbtui.search.search_pipeline",
    "kbtui.index.indexer",
)
"""What most programs import. The server imports the rest when a program has imported it."""
# The library of the trash looks up the user's when it is imported; the others start threads, which a fork lacks.
NEVER_IMPORTED = ("send2trash", "lancedb", "pyarrow", "torch", "onnxruntime", "tests")
ENGINE = ["-P", "-m", "kbtui.engine"]


def serve_programs(listener: socket.socket) -> NoReturn:
    """Fork a program for each client until standard input ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    own, names = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.setblocking(False)
    while True:
        gc.collect()
        gc.freeze()
        ready = select.select([listener, own, 0], [], [])[0]
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if 0 in ready:
            os._exit(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                _import_modules(own.recv(1 << 17).decode().split())
        if listener not in ready:
            continue
        client, _ = listener.accept()
        # A process for each client, because its program may run for long.
        if os.fork() == 0:
            try:
                _answer_client(client, names)
            finally:
                os._exit(0)
        client.close()


def _import_modules(names: list[str]) -> None:
    for name in names:
        if not name.startswith(NEVER_IMPORTED):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _answer_client(client: socket.socket, names: socket.socket) -> None:
    _, descriptors, _, _ = socket.recv_fds(client, 1, 3)
    with client.makefile("rw") as messages:
        asked = json.loads(messages.readline())
        silence = os.open(os.devnull, os.O_RDWR)
        pid = os.fork()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor if pid == 0 else silence, target)
            os.close(descriptor)
        if pid == 0:
            client.detach()
            _run_program(asked, names)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=messages, flush=True)


def _run_program(asked: dict[str, Any], names: socket.socket) -> NoReturn:
    """Become the program, and at its end name the modules it imported."""
    code = 70
    known = set(sys.modules)
    words = asked["words"]
    try:
        if asked["is_on_terminal"]:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        time.tzset()
        for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
            setattr(sys, f"__{name}__", getattr(sys, name))
        if words[:3] == ENGINE:
            os.setsid()
            sys.argv = ["kbtui.engine", *words[3:]]
            runpy.run_module("kbtui.engine", run_name="__main__")
        from kbtui.cli.main import main
        from kbtui.engine import engine_launcher

        # A program of kbtui has no warnings, as in the tests' own process.
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="lancedb")
        if asked["engine_python"]:
            engine_launcher.sys = types.SimpleNamespace(executable=asked["engine_python"])  # type: ignore[assignment]
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
        with contextlib.suppress(Exception):
            if new := set(sys.modules) - known:
                names.send("\n".join(new).encode())
        os._exit(code)


if __name__ == "__main__":
    serve_programs(socket.socket(fileno=int(sys.argv[1])))
