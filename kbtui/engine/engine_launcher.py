"""Finds the engine of a workspace, and starts one if none is running."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kbtui.engine.engine_client import EngineClient, EngineOwnedByOtherUser, UnresponsiveEngine
from kbtui.errors import ConfigError, EngineUnavailable, WorkspaceError
from kbtui.index.index_generations import compute_index_schema_hash
from kbtui.version import __version__
from kbtui.workspace import load_settings, paths

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypedDict

    from kbtui.workspace import Workspace

    class EngineLock(TypedDict, total=False):
        """The content of the lock file of a running engine."""

        pid: int
        version: str
        host: str
        socket: str


def get_engine_lock_path(workspace: Workspace) -> Path:
    """Return the path of the file that a running engine keeps locked."""
    return workspace.cache_dir / "engine.lock"


def get_engine_socket_path(workspace: Workspace) -> Path:
    """Return the path of the engine's socket; it depends on this process's environment variables.

    Creates the socket's directory, which only this user can enter. Raises `WorkspaceError` if that
    fails.
    """
    paths.make_runtime_directory()
    return Path(paths.make_engine_socket_path(str(workspace.root)))


def read_engine_lock_file(workspace: Workspace) -> EngineLock | None:
    """Return what the engine wrote into its lock file; None if there is no readable lock file.

    The lock file contains the path of the engine's socket. This path depends on XDG_RUNTIME_DIR, which
    can differ between engine and client, for example under ssh or cron.
    """
    try:
        found = json.loads(get_engine_lock_path(workspace).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("socket"), str):
        return None
    found["socket"] = paths.convert_path_from_utf8(found["socket"])
    return cast("EngineLock", found)


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
        lines = MOUNT_TABLE.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    place = f"{os.path.realpath(path)}/"
    longest, kind = -1, ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        if not rest:
            continue
        # The mount table escapes spaces and other special characters in octal.
        mounted = os.fsdecode(
            fields.split(" ")[4].encode().decode("unicode_escape").encode("latin-1")
        )
        if place.startswith(mounted.rstrip("/") + "/") and len(mounted) >= longest:
            longest, kind = len(mounted), rest.split(" ")[0]
    return kind if kind in _NETWORK_FILE_SYSTEMS else None


START_SECONDS = 20.0
"""How many seconds a client waits for the first answer of an engine that it started."""
SILENT_SECONDS = 5.0
"""A client gives up after this many seconds if an engine listens but does not answer."""

# An engine inherits only these environment variables from the client that starts it.
_KEPT_VARIABLES = (
    *("PATH", "LANG", "USER", "LOGNAME", "TMPDIR", "TZ", "SSL_CERT_FILE"),
    *paths.AGENT_DIRECTORY_VARIABLES,
)
_KEPT_PREFIXES = ("LC_", "XDG_", "JP_", "KBTUI_", "OMP_", "MKL_")


class EngineNotRunning(EngineUnavailable):
    """No engine is running, and the caller asked not to start one."""


def connect_or_start_engine(
    workspace: Workspace,
    *,
    start: bool = True,
    wait: float = START_SECONDS,
    check: Callable[[], object] = lambda: None,
) -> EngineClient:
    """Connect to the workspace's engine.

    If `start` is true, an engine is started if none is running, and an engine that this client cannot
    use is replaced. The function waits at most `wait` seconds for the engine. During the wait, it calls
    `check` repeatedly; `check` can raise an exception to cancel. Raises `EngineNotRunning` if no engine
    is running and `start` is false. Raises `EngineUnavailable` if the connection fails for another
    reason.
    """
    client = _connect_to_running_engine(workspace, min(wait, SILENT_SECONDS), check)
    if client is not None and start and _is_engine_incompatible(client):
        _stop_incompatible_engine(client)
        client = None
    if client is not None:
        return client
    if not start:
        raise EngineNotRunning("no engine is running", hint="run `kbtui index` to start one")
    started, is_killed = _start_engine(workspace), False
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
            # Another engine has the lock. Wait for it, but not for long: it may be about to end.
            lost_at = min(lost_at, time.monotonic())
            if time.monotonic() - lost_at > patience:
                started, lost_at, patience = _start_engine(workspace), math.inf, patience * 2
        elif code is not None and code < 0 and not is_killed:
            started, is_killed = _start_engine(workspace), True
        elif code is not None:
            break
    raise EngineUnavailable(
        "the engine did not start",
        where=str(workspace.engine_log_file),
        hint="the log says why; keyword search works without an engine",
    )


def _connect_to_running_engine(
    workspace: Workspace, wait: float, check: Callable[[], object]
) -> EngineClient | None:
    """Connect to a running engine; return None if none is running.

    Raises `UnresponsiveEngine` if the engine does not answer within `wait` seconds.
    """
    end = time.monotonic() + wait
    while True:
        try:
            return _try_connect_to_engine(workspace)
        except UnresponsiveEngine as silent:
            if time.monotonic() > end:
                found = read_engine_lock_file(workspace)
                pid = found.get("pid") if found else None
                raise UnresponsiveEngine(
                    "an engine is running, but does not answer",
                    where=f"process {pid}" if pid else silent.where,
                    hint=f"end it with `kill -9 {pid or 'its process id'}`; the next search starts a new one",
                ) from silent
        check()
        time.sleep(0.05)


def _is_engine_incompatible(client: EngineClient) -> bool:
    """Return whether this client needs another engine instead of the running one.

    This is the case if the engine's index has another format. It is also the case if engine and client
    use different models or different directories of agents, and no other client uses the engine.
    """
    if client.hello.get("schema") != compute_index_schema_hash():
        return True
    if list_differing_directory_variables(client) and not client.hello.get("others"):
        return True
    try:
        model = load_settings().model
    except ConfigError:
        return False
    is_its_model = model in {"off", client.hello.get("model", model)}
    return not is_its_model and not client.hello.get("others")


def list_differing_directory_variables(client: EngineClient) -> list[str]:
    """Return the environment variables for agents' directories whose values differ in engine and client."""
    own = paths.read_agent_directory_variables()
    known = client.hello.get("agent_variables", own)
    return [name for name, value in own.items() if known.get(name) != value]


def _stop_incompatible_engine(client: EngineClient) -> None:
    """Stop an engine of an older version. Raises `EngineUnavailable` if the engine's version is newer."""
    if _parse_version_numbers(str(client.hello.get("version"))) > _parse_version_numbers(
        __version__
    ):
        client.close()
        raise EngineUnavailable(
            f"the running engine (version {client.hello.get('version')}) is newer than this kbtui",
            hint="run `kbtui engine stop` with that version",
        )
    client.stop_engine()


def _parse_version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _try_connect_to_engine(workspace: Workspace) -> EngineClient | None:
    """Connect through the socket that the lock file names, or through the usual one if that fails.

    Returns None if both fail. Raises `UnresponsiveEngine` or `EngineOwnedByOtherUser`.
    """
    found = read_engine_lock_file(workspace)
    socket_paths: list[str] = []
    if found and found.get("host") == os.uname().nodename:
        socket_paths.append(found["socket"])
    with contextlib.suppress(Exception):
        socket_paths.append(str(get_engine_socket_path(workspace)))
    for socket_path in dict.fromkeys(socket_paths):
        try:
            client = EngineClient(socket_path)
        except (UnresponsiveEngine, EngineOwnedByOtherUser):
            raise
        except EngineUnavailable:
            continue
        # The lock file in a copy of a cache directory names the engine of the original directory.
        cache = client.hello.get("cache")
        if cache is None or cache == paths.convert_path_to_utf8(
            os.path.realpath(workspace.cache_dir)
        ):
            return client
        client.close()
    return None


def _start_engine(workspace: Workspace) -> Any:
    """Start the engine's process. Raises `EngineUnavailable` if that fails."""
    from kbtui.workspace.paths import make_private_directory

    if kind := find_network_file_system_type(workspace.cache_dir):
        # On a network file system, locks and shared memory are unreliable: two engines could write
        # the same index.
        raise EngineUnavailable(
            f"the cache directory is on a network file system ({kind})",
            where=str(workspace.cache_dir),
            hint="set XDG_CACHE_HOME to a directory on a local disk",
        )
    try:
        make_private_directory(workspace.cache_dir)
        if not os.access(workspace.cache_dir, os.W_OK):
            raise PermissionError(13, "Permission denied")
        make_private_directory(workspace.engine_log_file.parent)
        get_engine_socket_path(workspace)
        log = _open_engine_log(workspace.engine_log_file)
    except WorkspaceError as error:
        raise EngineUnavailable(
            f"the engine cannot be started: {error.message}", where=error.where, hint=error.hint
        ) from error
    except OSError as error:
        raise EngineUnavailable(
            f"the engine cannot be started: {error.strerror}",
            where=str(error.filename or workspace.cache_dir),
            hint="set XDG_CACHE_HOME and XDG_STATE_HOME to writable directories",
        ) from error
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)
    }
    import subprocess

    with log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kbtui.engine", str(workspace.root)],
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
