"""The engine's server: answers clients on a Unix socket, and decides when the engine ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kbtui.engine import engine_protocol
from kbtui.engine.client_connection import ClientConnection
from kbtui.engine.open_workspace import OpenWorkspace
from kbtui.index.index_generations import compute_index_schema_hash
from kbtui.version import __version__
from kbtui.workspace.client_environment import ClientEnvironment
from kbtui.workspace.paths import (
    convert_path_to_utf8,
    is_peer_same_user,
    read_agent_directory_variables,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from kbtui.engine.engine_protocol import HelloMessage
    from kbtui.workspace import Settings, Workspace


async def read_protocol_frame(reader: asyncio.StreamReader) -> Any:
    """Read the next message.

    Raises `InvalidProtocolFrame`, or `IncompleteReadError` if the connection has ended.
    """
    header = await reader.readexactly(engine_protocol.FRAME_HEADER.size)
    size = engine_protocol.parse_frame_length(header, engine_protocol.REQUEST_BYTES_MAX)
    return engine_protocol.decode_frame_body(await reader.readexactly(size))


def is_client_from_same_user(writer: asyncio.StreamWriter) -> bool:
    """Return whether the client is a process of this user."""
    peer = writer.get_extra_info("socket")
    return peer is None or is_peer_same_user(peer)


MAX_SEARCHES = 16
"""At most this many searches run at the same time. Further searches wait until one has ended."""
HELLO_SECONDS = 10.0
"""If a client does not send its greeting within this many seconds, the engine closes the connection."""
IDLE_CHECK_SECONDS = 1.0
"""The interval in seconds at which the engine checks whether it is still needed."""
MAX_CLIENTS = 128
MAX_UNGREETED = 64
"""If more clients than this have connected but sent no greeting, the engine disconnects the first of them."""


class EngineServer:
    """The engine's server for one workspace.

    It ends when it is idle or stopped, or when another engine has taken its place.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        listener: socket.socket,
        holds_lock_and_socket: Callable[[], bool],
        umask: int,
        log: Callable[[str], None],
    ) -> None:
        """Create the server.

        `holds_lock_and_socket` returns whether the lock file and the socket still belong to this
        engine. `umask` is the user's own umask, for files that sources write.
        """
        self._log = log
        self._workspace, self._settings = workspace, settings
        self._listener, self._umask = listener, umask
        self._holds_lock_and_socket = holds_lock_and_socket
        self._ungreeted: list[ClientConnection] = []
        self._last_seen = time.monotonic()
        self._search_pool = ThreadPoolExecutor(MAX_SEARCHES, thread_name_prefix="search")

    async def serve_clients(self) -> None:
        """Start the workers, serve clients until there is a reason to end, and stop the workers."""
        self._loop = asyncio.get_running_loop()
        self._should_end = asyncio.Event()
        self._open_workspace = OpenWorkspace(
            self._workspace,
            ClientEnvironment(os.environ),
            self._settings,
            self._search_pool,
            self._umask,
            self._end_engine_if_obsolete,
            self._log,
        )
        self._open_workspace.start_threads()
        server = await asyncio.start_unix_server(self._serve_client, sock=self._listener)
        for name in ("SIGTERM", "SIGINT"):
            import signal

            self._loop.add_signal_handler(getattr(signal, name), self._should_end.set)
        try:
            await self._do_periodic_work_until_idle()
        finally:
            server.close()
            for client in [*self._open_workspace.clients, *self._ungreeted]:
                client.close()
            await self._open_workspace.stop_threads()
            self._search_pool.shutdown(wait=False, cancel_futures=True)

    async def _do_periodic_work_until_idle(self) -> None:
        """Do the engine's periodic work until there is a reason to end the engine."""
        while not self._should_end.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._should_end.wait(), IDLE_CHECK_SECONDS)
            await self._open_workspace.do_periodic_work()
            if reason := self._find_reason_to_end_engine():
                self._log(reason)
                return
            if self._open_workspace.clients or self._open_workspace.is_busy:
                self._last_seen = time.monotonic()
            elif time.monotonic() - self._last_seen > self._settings.engine_idle:
                self._log("idle")
                return

    def _find_reason_to_end_engine(self) -> str | None:
        """Return why this engine must end, or None if it can continue."""
        if not self._holds_lock_and_socket():
            return "the lock file or the socket was replaced"
        return self._open_workspace.find_reason_to_close()

    # clients

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Exchange hello messages, then answer the client's requests until the client disconnects."""
        client = ClientConnection(writer)
        if len(self._open_workspace.clients) >= MAX_CLIENTS or not is_client_from_same_user(writer):
            client.close()
            return
        self._ungreeted.append(client)
        if len(self._ungreeted) > MAX_UNGREETED:
            # Close the oldest connection without a hello, so that silent connections do not lock
            # clients out.
            self._ungreeted.pop(0).close()
        try:
            greeting: HelloMessage = await asyncio.wait_for(
                read_protocol_frame(reader), HELLO_SECONDS
            )
            self._ungreeted.remove(client)
            if greeting.get("hello") != "kbtui":
                return
            self._end_engine_if_obsolete()
            others = len(self._open_workspace.clients)
            self._open_workspace.clients.add(client)
            client.send_frame(
                engine_protocol.encode_message_as_frame(
                    engine_protocol.make_hello_message(
                        version=__version__,
                        schema=compute_index_schema_hash(),
                        pid=os.getpid(),
                        root=str(self._workspace.root),
                        cache=convert_path_to_utf8(os.path.realpath(self._workspace.cache_dir)),
                        model=self._settings.model,
                        agent_variables=read_agent_directory_variables(),
                        others=others,
                    )
                )
            )
            if int(greeting.get("protocol") or 0) > engine_protocol.PROTOCOL_VERSION:
                self._log("stopping because a newer client connected")
                self._should_end.set()
                return
            while True:
                request = await read_protocol_frame(reader)
                # The requests of one client run in sequence, those of several clients in parallel.
                client.send_frame(await self._answer_request(client, request))
                await client.wait_until_frames_are_sent()
        except (engine_protocol.InvalidProtocolFrame, TypeError, ValueError) as error:
            self._log(f"closed a client's connection: {error}")
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # the engine ends while this client waits; asyncio would log this as an error
        finally:
            self._open_workspace.clients.discard(client)
            if client in self._ungreeted:
                self._ungreeted.remove(client)
            self._last_seen = time.monotonic()
            client.close()

    async def _answer_request(self, client: ClientConnection, request: Any) -> bytes:
        """Run the operation of a request and return the answer as a frame."""
        number = request.get("id")
        operations = {**self._open_workspace.operations, "stop": self._execute_stop_operation}
        operation = operations.get(request.get("op"))
        if operation is None:
            return engine_protocol.encode_message_as_frame(
                {"id": number, "error": f"unknown operation {request.get('op')!r}"}
            )
        try:
            with self._open_workspace.client_environment.use():
                found = await operation(client, request)
        except (engine_protocol.InvalidProtocolFrame, KeyError, TypeError, ValueError) as error:
            return engine_protocol.encode_message_as_frame(
                {"id": number, "error": f"{type(error).__name__}: {error}"}
            )
        return engine_protocol.encode_message_as_frame({"id": number, "ok": found})

    def _end_engine_if_obsolete(self) -> None:
        """End the engine if it must end, and raise `ConnectionResetError` so that the client asks the next engine."""
        if reason := self._find_reason_to_end_engine():
            self._should_end.set()
            raise ConnectionResetError(reason)

    async def _execute_stop_operation(
        self, client: ClientConnection, request: object
    ) -> dict[str, bool]:
        # The event loop sends the answer before it runs this callback.
        self._loop.call_soon(self._should_end.set)
        return {"stopping": True}
