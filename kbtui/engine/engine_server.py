"""The engine's server: answers clients on a Unix socket, and decides when the engine exits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from kbtui.engine import engine_protocol
from kbtui.engine.engine_workspace import ClientConnection
from kbtui.engine.workspace_pool import WorkspacePool
from kbtui.errors import KbtuiError
from kbtui.index.index_generations import compute_index_schema_hash
from kbtui.version import __version__
from kbtui.workspace.paths import (
    convert_path_to_utf8,
    convert_utf8_path_to_process_encoding,
    get_kbtui_cache_directory,
    is_peer_same_user,
    read_agent_directory_variables,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from kbtui.engine.engine_protocol import EngineStatus, HelloMessage
    from kbtui.engine.workspace_pool import PooledWorkspace


async def read_protocol_frame(reader: asyncio.StreamReader) -> Any:
    """Read the next message.

    Raises `InvalidProtocolFrameError`, or `IncompleteReadError` if the connection has ended.
    """
    header = await reader.readexactly(engine_protocol.FRAME_HEADER_BYTES)
    size = engine_protocol.parse_frame_length(header, engine_protocol.REQUEST_BYTES_MAX)
    return engine_protocol.decode_frame_body(await reader.readexactly(size))


def is_client_from_same_user(writer: asyncio.StreamWriter) -> bool:
    """Return whether the client is a process of this user."""
    peer = writer.get_extra_info("socket")
    return peer is None or is_peer_same_user(peer)


def read_resident_memory() -> int | None:
    """Return the resident memory of this process in bytes; None if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


HELLO_SECONDS = 10.0
"""If a client sends no hello message within this many seconds, the engine closes the connection.
"""
CHECK_SECONDS, SLOW_CHECK_SECONDS = 1.0, 30.0
"""The limits, in seconds, on the interval at which the engine checks itself and its workspaces.

The interval is `QUIET_SHARE` of the time since the last request, but at least `CHECK_SECONDS` and
at most `SLOW_CHECK_SECONDS`. An engine that nobody uses therefore wakes up rarely.
"""
QUIET_SHARE = 0.1
UNUSED_SECONDS = 3.0
"""An engine with no open workspace exits when it has had no client for this many seconds."""
RECONNECT_SECONDS = 60.0
"""A client that connects within this many seconds after a restart of the engine counts as reconnecting.

Such a client lost its connection when the engine restarted to free memory, and does not need the
model at once.
"""
MAX_CLIENTS = 256
MAX_UNGREETED = 64
"""If more than this many connected clients have not sent a hello message yet, the engine disconnects one.

It chooses the client among them that connected first.
"""


class EngineServer:
    """The engine's server.

    It exits when it is idle or stopped, or when another engine has taken its place.
    """

    def __init__(
        self,
        listener: socket.socket,
        socket_path: Path,
        holds_lock_and_socket: Callable[[], bool],
        umask: int,
        log: Callable[[str], None],
        *,
        has_restarted: bool = False,
    ) -> None:
        """Create the server, which listens on `listener` at `socket_path`.

        `has_restarted` says whether the engine has just restarted itself to free a model's memory.

        `holds_lock_and_socket` returns whether the lock file and the socket still belong to this
        engine. Sources write their files with `umask`, the user's own umask.
        """
        self._log = log
        self._listener, self._holds_lock_and_socket = listener, holds_lock_and_socket
        began = time.monotonic()
        self._workspace_pool = WorkspacePool(
            socket_path,
            umask,
            lambda: not has_restarted or time.monotonic() - began > RECONNECT_SECONDS,
            log,
        )
        self._requests = 0
        """The number of requests that are being answered."""
        self.should_restart = False
        """Whether the engine must restart itself when `serve_clients` has returned."""
        self._clients: set[ClientConnection] = set()
        self._ungreeted: list[ClientConnection] = []
        self._last_seen = self._last_event = time.monotonic()
        self._cache = convert_path_to_utf8(os.path.realpath(get_kbtui_cache_directory()))

    async def serve_clients(self) -> None:
        """Serve clients until there is a reason to exit, then close the workspaces."""
        self._loop = asyncio.get_running_loop()
        self._should_end = asyncio.Event()
        # asyncio must not unlink the socket's path, because this process does so itself when it ends.
        options: dict[str, Any] = {} if sys.version_info < (3, 13) else {"cleanup_socket": False}
        server = await asyncio.start_unix_server(self._serve_client, sock=self._listener, **options)
        for name in ("SIGTERM", "SIGINT"):
            import signal

            self._loop.add_signal_handler(getattr(signal, name), self._should_end.set)
        try:
            await self._do_periodic_work_until_idle()
        finally:
            server.close()
            for client in [*self._clients, *self._ungreeted]:
                client.close()
            await self._workspace_pool.close_all_workspaces()

    async def _do_periodic_work_until_idle(self) -> None:
        """Do the engine's periodic work until there is a reason for the engine to exit."""
        while not self._should_end.is_set():
            quiet = (time.monotonic() - self._last_event) * QUIET_SHARE
            pause = max(CHECK_SECONDS, min(quiet, SLOW_CHECK_SECONDS))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._should_end.wait(), pause)
            self._workspace_pool.maintain_workspaces()
            if reason := self._explain_replaced_lock_or_socket():
                self._log(reason)
                return
            if (
                self._clients
                and not self._workspace_pool.is_busy
                and not self._requests
                and self._workspace_pool.has_unused_loaded_model
            ):
                self._log("the model is unused; restarting the engine to free the model's memory")
                self.should_restart = True
                return
            if self._clients or not self._workspace_pool.is_empty or self._workspace_pool.is_busy:
                continue
            if time.monotonic() - self._last_seen > UNUSED_SECONDS:
                self._log("idle")
                return

    def _explain_replaced_lock_or_socket(self) -> str | None:
        """Return a message if the lock file or the socket was replaced, so that this engine must end; otherwise None."""
        if not self._holds_lock_and_socket():
            return "the lock file or the socket was replaced"
        return None

    # clients

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Exchange hello messages, then answer the client's requests until the client disconnects."""
        client = ClientConnection(writer)
        if len(self._clients) >= MAX_CLIENTS or not is_client_from_same_user(writer):
            client.close()
            return
        self._ungreeted.append(client)
        if len(self._ungreeted) > MAX_UNGREETED:
            # Close the oldest connection without a hello, so that silent connections do not lock
            # clients out.
            self._ungreeted.pop(0).close()
        slot = None
        try:
            greeting: HelloMessage = await asyncio.wait_for(
                read_protocol_frame(reader), HELLO_SECONDS
            )
            self._ungreeted.remove(client)
            if greeting.get("hello") != "kbtui":
                return
            self._clients.add(client)
            self._last_event = time.monotonic()
            slot = self._answer_hello_message(client, greeting)
            while not self._should_end.is_set():
                request = await read_protocol_frame(reader)
                self._last_event = time.monotonic()
                # The requests of one client run in sequence, those of several clients in parallel.
                self._requests += 1
                try:
                    client.send_frame(await self._answer_request(client, slot, request))
                finally:
                    self._requests -= 1
                await client.wait_for_send_buffer_space()
                if slot is not None and slot.has_opening_failed:
                    return
        except (engine_protocol.InvalidProtocolFrameError, TypeError, ValueError) as error:
            self._log(f"closed a client's connection: {error}")
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # the engine ends while this client waits; asyncio would log this as an error
        except Exception:
            self._log(f"an error: {traceback.format_exc()}")
            if slot is not None:
                self._workspace_pool.close_workspace(
                    slot, "an error occurred while the engine answered a client"
                )
        finally:
            self._clients.discard(client)
            if slot is not None:
                self._workspace_pool.remove_client(slot, client)
            if client in self._ungreeted:
                self._ungreeted.remove(client)
            self._last_seen = self._last_event = time.monotonic()
            client.close()

    def _answer_hello_message(
        self, client: ClientConnection, greeting: HelloMessage
    ) -> PooledWorkspace | None:
        """Answer a client's hello message. Return the requested workspace, which may not be open yet.

        Raises `ConnectionResetError` if another engine must answer.
        """
        if reason := self._explain_replaced_lock_or_socket():
            self._should_end.set()
            raise ConnectionResetError(reason)
        slot = None
        is_newer = int(greeting.get("protocol") or 0) > engine_protocol.PROTOCOL_VERSION
        if "root" in greeting and not is_newer:
            variables = {
                name: convert_utf8_path_to_process_encoding(value)
                for name, value in greeting["client_environment"].items()
            }
            slot = self._workspace_pool.add_client(
                client,
                convert_utf8_path_to_process_encoding(greeting["root"]),
                variables,
                opens=greeting.get("opens", True),
            )
        hello = engine_protocol.make_hello_message(
            version=__version__,
            schema=compute_index_schema_hash(),
            pid=os.getpid(),
            cache=self._cache,
            is_open=slot is not None,
        )
        if slot is not None:
            with slot.client_environment.apply_to_thread_or_task():
                hello["agent_variables"] = read_agent_directory_variables()
        client.send_frame(engine_protocol.encode_message_as_frame(hello))
        if is_newer:
            self._log("stopping because a newer client connected")
            self._should_end.set()
        return slot

    async def _answer_request(
        self, client: ClientConnection, slot: PooledWorkspace | None, request: Any
    ) -> bytes:
        """Run the operation of a request and return the answer as a frame."""
        number, name = request.get("id"), request.get("op")
        try:
            found: object
            if name == "stop":
                # The event loop sends the answer before it runs this callback.
                self._loop.call_soon(self._should_end.set)
                found = {"stopping": True}
            elif name == "engine_status":
                found = self._describe_engine_status()
            elif slot is None:
                raise KbtuiError("the workspace is not open")
            else:
                opened = await asyncio.shield(slot.opening)
                opened.check_files_soon()
                if name not in opened.operations:
                    raise KbtuiError(f"unknown operation {name!r}")
                with slot.client_environment.apply_to_thread_or_task():
                    found = await opened.operations[name](client, request)
        except (
            engine_protocol.InvalidProtocolFrameError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:
            return engine_protocol.encode_message_as_frame(
                {"id": number, "error": f"{type(error).__name__}: {error}"}
            )
        except ConnectionError:
            raise
        except (KbtuiError, OSError) as error:
            return engine_protocol.encode_message_as_frame({"id": number, "error": str(error)})
        return engine_protocol.encode_message_as_frame({"id": number, "ok": found})

    def _describe_engine_status(self) -> EngineStatus:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "memory": read_resident_memory(),
            "workspaces": self._workspace_pool.list_workspace_statuses(),
        }
