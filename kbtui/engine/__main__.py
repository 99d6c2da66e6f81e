"""Runs the engine's process: takes the lock, listens, serves clients and cleans up.

Clients start it with `python -P -m kbtui.engine CACHE`. The argument CACHE serves only to identify
the engine in a process list. The engine and its clients find the cache directory through
environment variables. An engine that restarts itself adds the fields of `EngineRestartHandover` as
arguments.

The process takes the lock (`flock`) before it binds the socket. An engine without the lock exits at
once, and its client connects to the engine that holds the lock. Only the holder of the lock unlinks the
socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from kbtui.engine.engine_launcher import (
    FileLock,
    get_engine_lock_path,
    get_engine_socket_path,
    try_to_lock_file,
)
from kbtui.errors import KbtuiError
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import sanitize
from kbtui.version import __version__
from kbtui.workspace import paths

if TYPE_CHECKING:
    from pathlib import Path


class EngineRestartHandover(NamedTuple):
    """The values that a restarting engine passes to the new program: descriptors of its lock and socket, and the umask."""

    lock: int
    listener: int
    umask: int


def run_engine(inherited: EngineRestartHandover | None = None) -> int:
    """Run this user's engine until it is idle or stopped; return the exit code.

    The exit code is 0 if the engine exited normally, or if another engine holds the lock. After an
    error, it is 3.
    """
    # With this umask, only this user can read the files that the index's libraries create. Sources
    # write into the workspace, so they use the user's own umask.
    umask = os.umask(0o077)
    path = get_engine_lock_path()
    try:
        if inherited is None:
            lock = try_to_lock_file(path)
        else:
            umask = inherited.umask
            for descriptor in (inherited.lock, inherited.listener):
                os.set_inheritable(descriptor, False)
            # Reap the processes that embedded texts for the earlier program.
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            lock = FileLock(path, os.fdopen(inherited.lock, "a+b"))
    except (KbtuiError, OSError) as error:
        write_engine_log_record(f"cannot start: {error}")
        return 3
    if lock is None:
        return 0
    if inherited is None:
        with contextlib.suppress(OSError):
            os.nice(5)
    socket_path = inode = None
    try:
        socket_path = get_engine_socket_path()
        if inherited is None:
            listener = _open_engine_socket(socket_path)
        else:
            listener = socket.socket(fileno=inherited.listener)
        inode = _get_inode_number(socket_path)
        lock.write_engine_pid_and_socket_path(socket_path)
        cache = paths.get_kbtui_cache_directory()
        write_engine_log_record(f"engine {__version__} for {cache} on {socket_path}")
        # The event loop closes the listener. This copy keeps the socket open, so that clients wait
        # until the engine has restarted.
        waiting = os.dup(listener.fileno())
        from kbtui.engine.engine_server import EngineServer

        def still_holds_lock_and_socket() -> bool:
            return lock.is_locked_file_in_place() and _get_inode_number(socket_path) == inode

        server = EngineServer(
            listener,
            socket_path,
            still_holds_lock_and_socket,
            umask,
            write_engine_log_record,
            has_restarted=inherited is not None,
        )
        asyncio.run(server.serve_clients())
        if server.should_restart and still_holds_lock_and_socket():
            _restart_in_same_process_to_free_memory(
                EngineRestartHandover(lock.duplicate_descriptor(), waiting, umask)
            )
    except (KbtuiError, OSError) as error:
        write_engine_log_record(f"stopped: {error}")
        return 3
    finally:
        # The next engine may have replaced the socket already.
        if socket_path is not None and inode is not None:
            with contextlib.suppress(OSError):
                if _get_inode_number(socket_path) == inode:
                    socket_path.unlink()
        lock.release()
        write_engine_log_record("ended")
    return 0


def _restart_in_same_process_to_free_memory(state: EngineRestartHandover) -> NoReturn:
    """Replace the program of this process with a new engine. The process id, the lock and the socket stay the same.

    Replacing the program is the only way to free the hundreds of megabytes that the libraries for
    the model and the vectors keep.
    """
    os.set_inheritable(state.listener, True)
    sys.stderr.flush()
    arguments = [paths.get_kbtui_cache_directory(), *map(str, state)]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "kbtui.engine", *arguments])


def _get_inode_number(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _open_engine_socket(socket_path: Path) -> socket.socket:
    socket_path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(socket_path))
    socket_path.chmod(0o600)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def write_engine_log_record(text: str) -> None:
    """Write a record to the engine's log, which is its standard error.

    Removes control characters, because people read the log in terminals. Indents all lines but the
    first, so that a reader of the log can tell where a record begins. Ignores errors such as a full
    disk.
    """
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    record = "\n  ".join(sanitize(text, "strip").splitlines())
    with contextlib.suppress(OSError):
        print(f"{stamp} [{os.getpid()}] {record}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Indexing makes many objects but few cycles, so most collections find nothing. With Python's default
    # threshold, a first index takes 4 % longer.
    gc.set_threshold(50_000)
    state = sys.argv[2:]
    code = run_engine(EngineRestartHandover(*map(int, state)) if state else None)
    sys.stderr.flush()
    # `sys.exit` would wait for a thread that may still be loading the model.
    os._exit(code)
