"""Opens workspaces in the engine when clients need them, and closes them when they are idle.

There is at most one open workspace for each index directory, which the engine locks. Each workspace
has its own threads, so an error or a slow disk in one workspace does not affect the others. Closing
a workspace disconnects only its own clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.engine.embedding_worker import SharedEmbeddingModels, return_freed_memory_to_system
from kbtui.engine.engine_client import EngineClient
from kbtui.engine.engine_launcher import (
    get_index_lock_path,
    read_engine_or_index_lock_file,
    try_to_lock_file,
)
from kbtui.engine.engine_workspace import EngineWorkspace
from kbtui.errors import EngineUnavailableError, KbtuiError
from kbtui.workspace import Workspace, load_settings, paths
from kbtui.workspace.client_environment import ClientEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbtui.engine.engine_launcher import FileLock
    from kbtui.engine.engine_protocol import WorkspaceStatus
    from kbtui.engine.engine_workspace import ClientConnection
    from kbtui.workspace import Settings

MAX_SEARCHES = 16
"""At most this many searches run at the same time in one workspace.

Additional searches wait until a running one ends.
"""
TAKEOVER_SECONDS, TAKEOVER_ASK_SECONDS = 15.0, 1.0
"""If another engine has locked an index, this engine asks it to exit, every `TAKEOVER_ASK_SECONDS`.

This engine gives up after `TAKEOVER_SECONDS`.
"""
MODEL_IDLE_SECONDS, BACKLOG_IDLE_SECONDS = 300.0, 60.0
"""Two times in seconds. If the model has not been used for this long, the engine restarts to free memory.

The second time applies after many passages have been embedded, because that leaves 80 MB of fragmented memory.
"""
END_SECONDS = 12.0
"""An ending engine waits at most this many seconds for its workspaces to close."""


class PooledWorkspace:
    """A workspace that is open or being opened.

    `opening` is the task that opens the workspace and returns it. `clients` are the workspace's
    clients.
    """

    def __init__(
        self, workspace: Workspace, index_directory: Path, client_environment: ClientEnvironment
    ) -> None:
        self.workspace, self.client_environment = workspace, client_environment
        self.index_directory = index_directory
        self.fingerprint = make_client_environment_fingerprint(client_environment)
        self.clients: set[ClientConnection] = set()
        self.client_fingerprints: dict[ClientConnection, tuple[str, ...]] = {}
        self.opening: asyncio.Task[EngineWorkspace]
        self.lock: FileLock | None = None
        self.last_used = time.monotonic()
        self.threads = ThreadPoolExecutor(MAX_SEARCHES, thread_name_prefix="search")
        self.periodic_work: asyncio.Task[None] | None = None

    @property
    def workspace_if_open(self) -> EngineWorkspace | None:
        """The workspace; None if it is not open yet, or could not be opened."""
        is_open = self.opening.done() and not self.opening.cancelled()
        return self.opening.result() if is_open and self.opening.exception() is None else None

    @property
    def has_opening_failed(self) -> bool:
        """Whether the workspace could not be opened."""
        return self.opening.done() and self.workspace_if_open is None


def make_client_environment_fingerprint(client_environment: ClientEnvironment) -> tuple[str, ...]:
    """Return a fingerprint of a client environment.

    In environments with equal fingerprints, kbtui reads the same files.
    """
    with client_environment.apply_to_thread_or_task():
        directories = (
            paths.get_user_home(),
            paths.get_kbtui_config_directory(),
            paths.get_kbtui_data_directory(),
            paths.get_kbtui_state_directory(),
            paths.get_jp_data_home(),
            paths.get_jp_config_home(),
        )
        is_directory = ("HOME", "XDG_", "JP_")
        others = (
            paths.read_client_environment_variable(name)
            for name in paths.CLIENT_VARIABLES
            if not name.startswith(is_directory)
        )
        return (*directories, *others)


class WorkspacePool:
    """The engine's open workspaces, one for each index directory. Only the event loop's thread may use the pool."""

    def __init__(
        self,
        socket_path: Path,
        umask: int,
        loads_model_early: Callable[[], bool],
        log: Callable[[str], None],
    ) -> None:
        """Create an empty pool.

        `socket_path` is the path of the engine's socket. The other arguments are those of
        `EngineWorkspace`.
        """
        self._loads_model_early = loads_model_early
        self._socket_path, self._umask, self._log = socket_path, umask, log
        self._cache_home = paths.get_kbtui_cache_directory()
        self._slots: dict[Path, PooledWorkspace] = {}
        self._closings: dict[Path, asyncio.Task[None]] = {}
        self.models = SharedEmbeddingModels()

    @property
    def is_empty(self) -> bool:
        """Whether no workspace is open."""
        return not self._slots

    @property
    def is_busy(self) -> bool:
        """Whether a workspace is being opened or closed, or is busy."""
        return bool(self._closings) or any(
            slot.workspace_if_open is None or slot.workspace_if_open.is_busy
            for slot in self._slots.values()
        )

    @property
    def has_unused_loaded_model(self) -> bool:
        """Whether a model is loaded but unused: nothing has needed it for a while, and nothing will need it soon."""
        has_embedded_many = self.models.has_embedded_many
        seconds = BACKLOG_IDLE_SECONDS if has_embedded_many else MODEL_IDLE_SECONDS
        return self.models.has_loaded_model_unused_for(seconds) and not any(
            slot.workspace_if_open is None or slot.workspace_if_open.has_passages_to_embed
            for slot in self._slots.values()
        )

    def add_client(
        self, client: ClientConnection, root: str, variables: Mapping[str, str], *, opens: bool
    ) -> PooledWorkspace | None:
        """Add a client to the workspace with the path `root`, and return the workspace.

        `variables` are the client's environment. If the workspace is open with another environment
        and has no clients, it is closed and opened again with `variables`. If the workspace is not
        open and `opens` is false, returns None. Raises `ValueError` if `root` is not an
        absolute path.
        """
        if not root.startswith("/") or "\0" in root:
            raise ValueError(f"not an absolute path: {root!r}")
        # All clients of an engine have the same cache directory, but its path may lead through links.
        cache = {"XDG_CACHE_HOME": self._cache_home.removesuffix("/kbtui")}
        client_environment = ClientEnvironment({**variables, **cache})
        workspace = Workspace(Path(root))
        with client_environment.apply_to_thread_or_task():
            index_directory = workspace.cache_dir
        slot = self._slots.get(index_directory)
        if slot is not None and (reason := self._find_reason_to_reopen_workspace(slot)):
            self.close_workspace(slot, reason)
            slot = None
        fingerprint = make_client_environment_fingerprint(client_environment)
        if slot is not None and opens and not slot.clients and slot.fingerprint != fingerprint:
            self.close_workspace(slot, "a client has different environment variables")
            slot = None
        if slot is None:
            if not opens:
                return None
            slot = PooledWorkspace(workspace, index_directory, client_environment)
            self._slots[index_directory] = slot
            slot.opening = asyncio.create_task(
                self._open_workspace(slot, self._closings.get(index_directory))
            )
            # Retrieve the exception, so that asyncio does not log it if opening fails when no client is
            # waiting any more.
            slot.opening.add_done_callback(
                lambda opening: opening.cancelled() or opening.exception()
            )
        slot.clients.add(client)
        if opens:
            slot.client_fingerprints[client] = fingerprint
        return slot

    def remove_client(self, slot: PooledWorkspace, client: ClientConnection) -> None:
        """Remove a client that has disconnected."""
        slot.clients.discard(client)
        slot.client_fingerprints.pop(client, None)
        slot.last_used = time.monotonic()

    def list_workspace_statuses(self) -> list[WorkspaceStatus]:
        """Return the states of the open workspaces, in the order in which they were opened."""
        opened = [slot.workspace_if_open for slot in self._slots.values()]
        return [one.make_workspace_status() for one in opened if one is not None]

    def close_workspace_and_raise_if_obsolete(self, slot: PooledWorkspace) -> None:
        """Close a workspace that must be opened again, and raise `ConnectionResetError`.

        Does nothing if the workspace can stay open.
        """
        if self._slots.get(slot.index_directory) is not slot:
            raise ConnectionResetError("the workspace was closed")
        if reason := self._find_reason_to_reopen_workspace(slot):
            self.close_workspace(slot, reason)
            raise ConnectionResetError(reason)

    def _find_reason_to_reopen_workspace(self, slot: PooledWorkspace) -> str | None:
        """Return why a workspace must be closed and opened again, or None if it can stay open."""
        if slot.workspace_if_open is None or slot.lock is None:
            return None
        if not slot.lock.is_locked_file_in_place():
            return "the lock file of the index was replaced"
        used = slot.client_fingerprints.values()
        if used and slot.fingerprint not in used:
            # The client for which the workspace was opened has left. The other clients connect again.
            return "no client has the environment variables with which the workspace was opened"
        try:
            return slot.workspace_if_open.find_reason_to_reopen()
        except Exception:
            return f"an error: {traceback.format_exc()}"

    def maintain_workspaces(self) -> None:
        """Close the workspaces that are idle or obsolete. Start the periodic work of the others."""
        now = time.monotonic()
        for slot in list(self._slots.values()):
            if (opened := slot.workspace_if_open) is None:
                continue
            if reason := self._find_reason_to_reopen_workspace(slot):
                self.close_workspace(slot, reason)
                continue
            if slot.clients or opened.is_busy:
                slot.last_used = now
            elif now - slot.last_used > opened.settings.engine_idle:
                self.close_workspace(slot, "idle")
                continue
            if slot.periodic_work is None or slot.periodic_work.done():
                slot.periodic_work = asyncio.create_task(
                    self._do_periodic_work_or_close_workspace(slot, opened)
                )

    async def _do_periodic_work_or_close_workspace(
        self, slot: PooledWorkspace, opened: EngineWorkspace
    ) -> None:
        try:
            await opened.do_periodic_work()
        except Exception:
            self.close_workspace(slot, f"an error: {traceback.format_exc()}")

    async def _open_workspace(
        self, slot: PooledWorkspace, closing: asyncio.Task[None] | None
    ) -> EngineWorkspace:
        """Open a workspace. If it is still being closed, first wait for `closing`, the task that closes it.

        Raises `KbtuiError` or `OSError`.
        """
        log = self._make_log_function_with_workspace_name(slot)
        try:
            if closing is not None:
                await asyncio.wait([closing])
            settings = await asyncio.get_running_loop().run_in_executor(
                slot.threads, self._lock_index_and_load_settings, slot
            )
            opened = EngineWorkspace(
                slot.workspace,
                slot.client_environment,
                settings,
                slot.threads,
                self._umask,
                lambda: self.close_workspace_and_raise_if_obsolete(slot),
                log,
                self.models,
                self._loads_model_early,
            )
            opened.clients = slot.clients
            opened.start_threads()
        except BaseException as error:
            if self._slots.get(slot.index_directory) is slot:
                del self._slots[slot.index_directory]
            is_expected = isinstance(error, KbtuiError | OSError | asyncio.CancelledError)
            log(f"cannot open: {error if is_expected else traceback.format_exc()}")
            self._shut_down_pool_and_release_index_lock(slot)
            raise
        # The path may be private. The command `log` leaves out everything after a quotation mark.
        log(f"opened '{slot.workspace.root}'")
        return opened

    def _lock_index_and_load_settings(self, slot: PooledWorkspace) -> Settings:
        """Lock the index of a workspace and load its settings; runs in a thread of the workspace."""
        with slot.client_environment.apply_to_thread_or_task():
            slot.lock = lock_index_or_take_over(slot.workspace)
            slot.lock.write_engine_pid_and_socket_path(self._socket_path)
            return load_settings()

    def close_workspace(self, slot: PooledWorkspace, reason: str) -> None:
        """Disconnect the clients of a workspace, and begin to close it."""
        if self._slots.get(slot.index_directory) is not slot:
            return
        del self._slots[slot.index_directory]
        self._make_log_function_with_workspace_name(slot)(f"closed: {reason}")
        for client in slot.clients:
            client.close()
        self._closings[slot.index_directory] = asyncio.create_task(self._stop_workspace(slot))

    async def _stop_workspace(self, slot: PooledWorkspace) -> None:
        """Stop the threads of a workspace, and unlock its index when no thread is writing it any more."""
        try:
            opened = await slot.opening
            try:
                await opened.stop_threads()
            except Exception:
                self._make_log_function_with_workspace_name(slot)(
                    f"an error: {traceback.format_exc()}"
                )
            while opened.may_still_write_files:
                await asyncio.sleep(0.1)
            opened.close_index_and_wakeup_descriptor()
        except (KbtuiError, OSError):
            pass  # it could not be opened, which was logged
        finally:
            self._shut_down_pool_and_release_index_lock(slot)
            if self._closings.get(slot.index_directory) is asyncio.current_task():
                del self._closings[slot.index_directory]
            return_freed_memory_to_system()

    def _shut_down_pool_and_release_index_lock(self, slot: PooledWorkspace) -> None:
        slot.threads.shutdown(wait=False, cancel_futures=True)
        if slot.lock is not None:
            slot.lock.release()
            slot.lock = None

    async def close_all_workspaces(self) -> None:
        """Close all workspaces. Wait at most `END_SECONDS` until they are closed."""
        for slot in list(self._slots.values()):
            self.close_workspace(slot, "the engine is ending")
        if self._closings:
            await asyncio.wait(list(self._closings.values()), timeout=END_SECONDS)

    def _make_log_function_with_workspace_name(
        self, slot: PooledWorkspace
    ) -> Callable[[str], None]:
        """Return a log function that starts each message with a short name of the workspace."""
        name = slot.index_directory.name[:8]
        return lambda text: self._log(f"workspace {name}: {text}")


def lock_index_or_take_over(workspace: Workspace) -> FileLock:
    """Lock the index of a workspace. If an older engine has locked it, ask that engine to exit.

    Raises `EngineUnavailableError` if another process does not release the lock within
    `TAKEOVER_SECONDS`. Raises `OSError` if the lock file cannot be opened.
    """
    path = get_index_lock_path(workspace)
    end, ask_at = time.monotonic() + TAKEOVER_SECONDS, 0.0
    while (lock := try_to_lock_file(path)) is None:
        now = time.monotonic()
        holder = read_engine_or_index_lock_file(path)
        if now > end:
            raise EngineUnavailableError(
                "another process is writing the index",
                where=f"process {holder.get('pid')}" if holder else str(path),
                hint="end that process",
            )
        is_here = holder is not None and holder.get("host") == os.uname().nodename
        if holder and is_here and holder.get("pid") != os.getpid() and now >= ask_at:
            ask_at = now + TAKEOVER_ASK_SECONDS
            # An engine exits when a client with a newer protocol greets it.
            with contextlib.suppress(EngineUnavailableError):
                EngineClient(holder["socket"], str(workspace.root), 1.0, opens=False).close()
        time.sleep(0.05)
    return lock
