"""Runs the engine's process: takes the lock, listens, serves clients and cleans up.

The process takes the lock (`flock`) before it binds the socket. An engine that does not get the
lock exits at once, and its client connects to the engine that has it. Only the holder of the lock
unlinks the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from kbtui.engine.engine_launcher import get_engine_lock_path, get_engine_socket_path
from kbtui.errors import KbtuiError
from kbtui.text import sanitize
from kbtui.version import __version__
from kbtui.workspace import load_settings, open_workspace_at_root, paths
from kbtui.workspace.paths import make_private_directory

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.engine.engine_launcher import EngineLock
    from kbtui.workspace import Workspace


def run_engine(root: Path) -> int:
    """Run the engine of the workspace at `root` until it is idle or stopped; return the exit code.

    The exit code is 0 if the engine ended normally, or if another engine holds the lock. After an
    error, it is 3.
    """
    # Only this user can read the files that the index's libraries create. Sources write into the
    # workspace, so they use the user's own umask.
    umask = os.umask(0o077)
    workspace = open_workspace_at_root(root)
    try:
        settings = load_settings()
        lock = _take_engine_lock(workspace)
    except (KbtuiError, OSError) as error:
        write_engine_log_record(f"cannot start: {error}")
        return 3
    if lock is None:
        return 0
    with contextlib.suppress(OSError):
        os.nice(5)
    socket_path = inode = None
    try:
        socket_path = get_engine_socket_path(workspace)
        listener = _open_engine_socket(socket_path)
        inode = _get_inode_number(socket_path)
        _write_engine_lock_file(lock, socket_path)
        write_engine_log_record(f"engine {__version__} for {workspace.root} on {socket_path}")
        from kbtui.engine.engine_server import EngineServer

        def still_holds_lock_and_socket() -> bool:
            return (
                is_lock_file_still_ours(lock, workspace) and _get_inode_number(socket_path) == inode
            )

        asyncio.run(
            EngineServer(
                workspace,
                settings,
                listener,
                still_holds_lock_and_socket,
                umask,
                write_engine_log_record,
            ).serve_clients()
        )
    except KbtuiError as error:
        write_engine_log_record(f"stopped: {error}")
        return 3
    finally:
        _release_engine_lock(lock, socket_path, inode)
        write_engine_log_record("ended")
    return 0


def _take_engine_lock(workspace: Workspace) -> Any:
    """Lock and return the open lock file; return None if another engine has locked it."""
    path = get_engine_lock_path(workspace)
    for _ in range(10):
        make_private_directory(path.parent)
        file = path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        # If the cache directory was deleted in the meantime, the lock would not stop a second engine.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        file.close()
    return None


def _get_inode_number(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def is_lock_file_still_ours(lock: Any, workspace: Workspace) -> bool:
    """Return whether the lock file is still the file that this engine locked."""
    try:
        return os.fstat(lock.fileno()).st_ino == get_engine_lock_path(workspace).stat().st_ino
    except OSError:
        return False


def _open_engine_socket(socket_path: Path) -> socket.socket:
    socket_path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(socket_path))
    socket_path.chmod(0o600)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def _write_engine_lock_file(lock: Any, socket_path: Path) -> None:
    facts: EngineLock = {
        "pid": os.getpid(),
        "version": __version__,
        "host": os.uname().nodename,
        "socket": paths.convert_path_to_utf8(str(socket_path)),
    }
    lock.seek(0)
    lock.truncate()
    lock.write(json.dumps(facts).encode("utf-8"))
    lock.flush()


def _release_engine_lock(lock: Any, socket_path: Path | None, inode: int | None) -> None:
    """Release the lock. Also delete the socket, unless the next engine has already replaced it."""
    with contextlib.suppress(OSError):
        lock.seek(0)
        lock.truncate()
        if (
            socket_path is not None
            and inode is not None
            and _get_inode_number(socket_path) == inode
        ):
            socket_path.unlink()
    lock.close()


def write_engine_log_record(text: str) -> None:
    """Write a record to the engine's log, which is its standard error.

    Removes control characters, because people read the log in terminals. Indents all lines but the
    first, so that `cli.diagnostics.LogRedactor` can tell where a record begins. Ignores errors such as
    a full disk.
    """
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    record = "\n  ".join(sanitize(text, "strip").splitlines())
    with contextlib.suppress(OSError):
        print(f"{stamp} [{os.getpid()}] {record}", file=sys.stderr, flush=True)
