"""A lock on a file that contains the id of the locking process and the path of the engine's socket."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

from kbtui.version import __version__
from kbtui.workspace.paths import convert_path_to_utf8, make_private_directory

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.engine.engine_launcher import EngineLockContent


class FileLock:
    """A lock (`flock`) that this process holds on a file.

    The system releases the lock when the process exits.
    """

    def __init__(self, path: Path, file: Any) -> None:
        """Wrap a file that `take_file_lock` has locked."""
        self._path, self._file = path, file

    def is_lock_held(self) -> bool:
        """Return whether the file at the path is still the one that was locked."""
        try:
            return os.fstat(self._file.fileno()).st_ino == os.stat(self._path).st_ino  # noqa: PTH116
        except OSError:
            return False

    def write_engine_pid_and_socket_path(self, socket_path: Path) -> None:
        """Write the id of this process and the path of the engine's socket into the file."""
        facts: EngineLockContent = {
            "pid": os.getpid(),
            "version": __version__,
            "host": os.uname().nodename,
            "socket": convert_path_to_utf8(str(socket_path)),
        }
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps(facts).encode("utf-8"))
        self._file.flush()

    def duplicate_descriptor(self) -> int:
        """Return a file descriptor that also holds the lock, and that a new program image inherits."""
        descriptor = os.dup(self._file.fileno())
        os.set_inheritable(descriptor, True)
        return descriptor

    def release(self) -> None:
        """Empty the file and unlock it."""
        with contextlib.suppress(OSError):
            self._file.seek(0)
            self._file.truncate()
        self._file.close()


def take_file_lock(path: Path) -> FileLock | None:
    """Lock a file, which is created if necessary; return None if another process has locked it.

    Raises `OSError` if the file cannot be opened.
    """
    for _ in range(10):
        make_private_directory(path.parent)
        file = path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        # If the directory was deleted in the meantime, the lock would not stop a second engine.
        lock = FileLock(path, file)
        if lock.is_lock_held():
            return lock
        file.close()
    return None
