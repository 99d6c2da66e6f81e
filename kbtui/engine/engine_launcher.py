"""Finds the engine of this user, and starts one if none is running."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kbtui.engine.engine_client import (
    EngineClient,
    EngineOwnedByOtherUserError,
    UnresponsiveEngineError,
)
from kbtui.errors import EngineUnavailableError, WorkspaceError
from kbtui.index.index_generations import compute_index_schema_hash
from kbtui.version import __version__
from kbtui.workspace import paths

LOCK_FILE = "engine.lock"
"""The name of the lock files.

The engine's lock file is in the cache directory, and each index has one in its own directory.
"""

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypedDict

    from kbtui.workspace import Workspace

    class EngineLockContent(TypedDict, total=False):
        """The content of the files that a running engine locks."""

        pid: int
        version: str
        host: str
        socket: str


def get_engine_lock_path() -> Path:
    """Return the path of the file that the running engine locks."""
    return Path(paths.get_kbtui_cache_directory(), LOCK_FILE)


def get_index_lock_path(workspace: Workspace) -> Path:
    """Return the path of the file that an engine locks while it has the workspace open.

    Engines of older versions, which serve one workspace each, lock the same file.
    """
    return workspace.cache_dir / LOCK_FILE


def get_engine_socket_path() -> Path:
    """Return the path of the engine's socket according to this process's environment variables.

    Creates the socket's directory, which only this user can enter. Raises `WorkspaceError` if that
    fails.
    """
    paths.make_runtime_directory()
    return Path(paths.make_engine_socket_path())


def read_engine_lock_file() -> EngineLockContent | None:
    """Return the content of the running engine's lock file; None if there is no readable lock file.

    The lock file contains the path of the engine's socket. This path depends on XDG_RUNTIME_DIR, which
    can differ between the engine and a client, for example under ssh or cron.
    """
    return read_engine_or_index_lock_file(get_engine_lock_path())


def read_engine_or_index_lock_file(path: Path) -> EngineLockContent | None:
    """Return the content of an engine's or an index's lock file; None if no valid content can be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("socket"), str):
        return None
    found["socket"] = paths.convert_utf8_path_to_process_encoding(found["socket"])
    return cast("EngineLockContent", found)


def is_workspace_open_in_engine(workspace: Workspace) -> bool:
    """Return whether an engine has a workspace open, and therefore keeps the workspace's index up to date."""
    found = read_engine_or_index_lock_file(get_index_lock_path(workspace))
    if found is None or "pid" not in found:
        return False
    if found.get("host") != os.uname().nodename:
        return True
    try:
        os.kill(found["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class FileLock:
    """A lock (`flock`) that this process holds on a file.

    The system releases the lock when the process exits.
    """

    def __init__(self, path: Path, file: Any) -> None:
        """Wrap a file that `try_to_lock_file` has locked."""
        self._path, self._file = path, file

    def is_locked_file_in_place(self) -> bool:
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
            "socket": paths.convert_path_to_utf8(str(socket_path)),
        }
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps(facts).encode("utf-8"))
        self._file.flush()

    def duplicate_descriptor(self) -> int:
        """Return another file descriptor that holds the lock. A program that replaces this one inherits it."""
        descriptor = os.dup(self._file.fileno())
        os.set_inheritable(descriptor, True)
        return descriptor

    def release(self) -> None:
        """Empty the file and unlock it."""
        with contextlib.suppress(OSError):
            self._file.seek(0)
            self._file.truncate()
        self._file.close()


def try_to_lock_file(path: Path) -> FileLock | None:
    """Lock a file, creating it if necessary; return None if another process has locked it.

    Raises `OSError` if the file cannot be opened.
    """
    for _ in range(10):
        paths.make_private_directory(path.parent)
        file = path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        # If the directory was deleted in the meantime, the lock would not stop a second engine.
        lock = FileLock(path, file)
        if lock.is_locked_file_in_place():
            return lock
        file.close()
    return None


MOUNT_TABLE = Path("/proc/self/mountinfo")
_NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gfs2",
    "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs",
})  # fmt: skip


def find_network_file_system_type(path: Path) -> str | None:
    """Return the type of the network file system that contains `path`, such as `nfs4`.

    Returns None for a local file system, and on systems other than Linux.
    """
    try:
        # Mount points can contain any bytes, and characters that `str.splitlines` takes for line ends.
        lines = MOUNT_TABLE.read_bytes().split(b"\n")
    except OSError:
        return None
    place = f"{os.path.realpath(path)}/"
    longest, kind = -1, ""
    for line in lines:
        fields, _, rest = line.partition(b" - ")
        if not rest:
            continue
        # The mount table escapes spaces and other special characters in octal.
        mounted = os.fsdecode(fields.split(b" ")[4].decode("unicode_escape").encode("latin-1"))
        if place.startswith(mounted.rstrip("/") + "/") and len(mounted) >= longest:
            longest, kind = len(mounted), os.fsdecode(rest.split(b" ")[0])
    return kind if kind in _NETWORK_FILE_SYSTEMS else None


START_SECONDS = 20.0
"""A client waits at most this many seconds for the first answer from an engine that it started."""
SILENT_SECONDS = 5.0
"""A client waits at most this many seconds for an engine that listens but does not answer."""

# An engine inherits only these environment variables from the client that starts it. It answers
# each client in the environment that the client sends. The engine does not inherit TZ: its own time
# zone is the system's, which a client without TZ expects.
_KEPT_VARIABLES = (
    *("PATH", "LANG", "USER", "LOGNAME", "TMPDIR", "SSL_CERT_FILE"),
    *paths.AGENT_DIRECTORY_VARIABLES,
)
_KEPT_PREFIXES = (
    *("LC_", "XDG_", "JP_", "KBTUI_", "OMP_", "MKL_"),
    *paths.STORE_VARIABLE_PREFIXES,
)


class EngineNotRunningError(EngineUnavailableError):
    """No engine is running, and the caller asked not to start one."""


def connect_or_start_engine(
    workspace: Workspace,
    *,
    start: bool = True,
    wait: float = START_SECONDS,
    check: Callable[[], object] = lambda: None,
) -> EngineClient:
    """Connect to the engine on behalf of a workspace.

    If `start` is true:

    * If no engine is running, this function starts one.
    * If the running engine's index has a different format, a new engine replaces the running one.
    * The engine opens the workspace.

    The function waits at most `wait` seconds for the engine. During the wait, it calls `check`
    repeatedly; `check` can raise an exception to cancel. Raises `EngineNotRunningError` if no engine is
    running and `start` is false. Raises `EngineUnavailableError` if the connection fails for another reason.
    """
    client = _connect_to_running_engine(workspace, min(wait, SILENT_SECONDS), check, opens=start)
    if client is not None and start and client.hello.get("schema") != compute_index_schema_hash():
        _stop_incompatible_engine(client)
        client = None
    if client is not None:
        return client
    if not start:
        raise EngineNotRunningError("no engine is running", hint="run `kbtui index` to start one")
    started, is_killed = _start_engine_process(workspace), False
    lost_at, patience = math.inf, 0.2
    end = time.monotonic() + wait
    pause = 0.02
    while time.monotonic() < end:
        time.sleep(pause)
        check()
        pause = min(pause * 1.3, 0.2)
        client = _connect_to_running_engine(workspace, end - time.monotonic(), check)
        if client is not None:
            return client
        code = started.poll()
        if code == 0:
            # Another engine holds the lock. Wait for it, but not for long, because it may be about
            # to exit.
            lost_at = min(lost_at, time.monotonic())
            if time.monotonic() - lost_at > patience:
                started, lost_at, patience = (
                    _start_engine_process(workspace),
                    math.inf,
                    patience * 2,
                )
        elif code is not None and code < 0 and not is_killed:
            started, is_killed = _start_engine_process(workspace), True
        elif code is not None:
            break
    raise EngineUnavailableError(
        "the engine did not start",
        where=str(workspace.engine_log_file),
        hint="the log says why; keyword search works without an engine",
    )


def _connect_to_running_engine(
    workspace: Workspace, wait: float, check: Callable[[], object], *, opens: bool = True
) -> EngineClient | None:
    """Connect to a running engine; return None if none is running.

    Raises `UnresponsiveEngineError` if the engine does not answer within `wait` seconds.
    """
    end = time.monotonic() + wait
    while True:
        try:
            return _try_connect_to_engine(workspace, opens=opens)
        except UnresponsiveEngineError as silent:
            if time.monotonic() > end:
                found = read_engine_lock_file()
                pid = found.get("pid") if found else None
                raise UnresponsiveEngineError(
                    "an engine is running, but does not answer",
                    where=f"process {pid}" if pid else silent.where,
                    hint=f"end it with `kill -9 {pid or 'its process id'}`; the next search starts a new one",
                ) from silent
        check()
        time.sleep(0.05)


def list_differing_agent_directory_variables(client: EngineClient) -> list[str]:
    """Return the agents' directory variables that have different values in the engine and in this client.

    Values can differ only if another client opened the workspace and is still using it.
    """
    own = paths.read_agent_directory_variables()
    known = client.hello.get("agent_variables", own)
    return [name for name, value in own.items() if known.get(name) != value]


def _stop_incompatible_engine(client: EngineClient) -> None:
    """Stop an engine whose index has a different format. Raises `EngineUnavailableError` if the engine is newer."""
    if _parse_version_numbers(str(client.hello.get("version"))) > _parse_version_numbers(
        __version__
    ):
        client.close()
        raise EngineUnavailableError(
            f"the running engine (version {client.hello.get('version')}) is newer than this kbtui",
            hint="run `kbtui engine stop` with that version",
        )
    client.stop_engine()


def _parse_version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _try_connect_to_engine(workspace: Workspace, *, opens: bool) -> EngineClient | None:
    """Connect to the socket listed in the lock file or, if that fails, to the default socket.

    Returns None if both attempts fail. Raises `UnresponsiveEngineError` or `EngineOwnedByOtherUserError`.
    """
    found = read_engine_lock_file()
    socket_paths: list[str] = []
    if found and found.get("host") == os.uname().nodename:
        socket_paths.append(found["socket"])
    with contextlib.suppress(Exception):
        socket_paths.append(str(get_engine_socket_path()))
    for socket_path in dict.fromkeys(socket_paths):
        try:
            client = EngineClient(socket_path, str(workspace.root), opens=opens)
        except (UnresponsiveEngineError, EngineOwnedByOtherUserError):
            raise
        except EngineUnavailableError:
            continue
        # In a copied cache directory, the lock file still refers to the engine of the original
        # directory.
        cache = client.hello.get("cache")
        if cache is None or cache == paths.convert_path_to_utf8(
            os.path.realpath(paths.get_kbtui_cache_directory())
        ):
            return client
        client.close()
    return None


def _start_engine_process(workspace: Workspace) -> Any:
    """Start the engine's process. Raises `EngineUnavailableError` if that fails."""
    if kind := find_network_file_system_type(workspace.cache_dir):
        # On a network file system, locks and shared memory are unreliable: two engines could write
        # the same index.
        raise EngineUnavailableError(
            f"the cache directory is on a network file system ({kind})",
            where=str(workspace.cache_dir),
            hint="set XDG_CACHE_HOME to a directory on a local disk",
        )
    try:
        paths.make_private_directory(workspace.cache_dir)
        if not os.access(workspace.cache_dir, os.W_OK):
            raise PermissionError(13, "Permission denied")
        paths.make_private_directory(workspace.engine_log_file.parent)
        get_engine_socket_path()
        log = _open_engine_log(workspace.engine_log_file)
    except WorkspaceError as error:
        raise EngineUnavailableError(
            f"the engine cannot be started: {error.message}", where=error.where, hint=error.hint
        ) from error
    except OSError as error:
        raise EngineUnavailableError(
            "the engine cannot be started, because this directory or file cannot be written "
            f"({(error.strerror or str(error)).lower()})",
            where=str(error.filename or workspace.cache_dir),
            hint="set XDG_CACHE_HOME and XDG_STATE_HOME to writable directories",
        ) from error
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_VARIABLES
        or (name.startswith(_KEPT_PREFIXES) and name != paths.PUBLISH_KEY_VARIABLE)
    }
    import subprocess

    with log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kbtui.engine", paths.get_kbtui_cache_directory()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment,
            close_fds=True,
            start_new_session=True,
        )


def _open_engine_log(path: Path) -> Any:
    """Open the engine's log for appending. A log larger than a megabyte is renamed first."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > 1 << 20:
            path.replace(path.with_suffix(".old.log"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
