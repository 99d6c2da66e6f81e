"""A client's connection to a running engine. This module imports little, so that short commands start fast."""

from __future__ import annotations

import os

# Importing `socket`, which builds tables of constants, takes longer than importing this whole package.
from _socket import AF_UNIX, SHUT_RDWR, SOCK_STREAM, socket
from _thread import allocate_lock

from kbtui.engine.engine_protocol import (
    ANSWER_BYTES_MAX,
    FRAME_HEADER_BYTES,
    PROTOCOL_VERSION,
    InvalidProtocolFrameError,
    decode_frame_body,
    encode_message_as_frame,
    make_hello_message,
    parse_frame_length,
)
from kbtui.errors import EngineUnavailableError
from kbtui.version import __version__
from kbtui.workspace.paths import (
    collect_client_variables_for_engine_request,
    convert_path_to_utf8,
    is_peer_same_user,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Literal, Unpack, overload

    from kbtui.engine.engine_protocol import (
        EngineEvent,
        EngineReadiness,
        EngineReadinessAfterWait,
        EngineReadinessEvent,
        EngineSearchArguments,
        EngineSearchReply,
        EngineStatus,
        HelloMessage,
        IndexRefreshRequest,
        WorkspaceStatus,
    )


class UnresponsiveEngineError(EngineUnavailableError):
    """An engine is running but does not answer."""


class EngineOwnedByOtherUserError(EngineUnavailableError):
    """A process of another user is listening on the engine's socket."""


class EngineClient:
    """A client's connection to an engine, for one workspace.

    Threads can share a connection; only one request runs at a time.
    """

    def __init__(
        self, socket_path: str, root: str, timeout: float = 5.0, *, opens: bool = True
    ) -> None:
        """Connect to the socket and exchange hello messages; each step may take up to `timeout` seconds.

        All requests apply to the workspace at `root` and use the caller's environment variables. If
        `opens` is true, the engine opens the workspace. If `opens` is false and the workspace is
        not open yet, the engine answers only `engine_status` and `stop`.

        Raises `UnresponsiveEngineError` if a step takes longer. Raises `EngineOwnedByOtherUserError` if a process
        of another user is listening on the socket. Raises `EngineUnavailableError` if no process is
        listening on the socket, or if the engine speaks another version of the protocol.
        """
        self._socket = socket(AF_UNIX, SOCK_STREAM)
        self._socket.settimeout(timeout)
        self._lock = allocate_lock()
        self._next = 0
        try:
            # The lock file contains the path in UTF-8, regardless of this process's locale.
            self._socket.connect(socket_path.encode("utf-8", "surrogateescape"))
            if not is_peer_same_user(self._socket):
                raise EngineOwnedByOtherUserError(
                    "a process of another user is listening on the engine's socket",
                    where=socket_path,
                    hint="remove the socket, or set XDG_RUNTIME_DIR to a directory that only you can write",
                )
            self._send_message(
                make_hello_message(
                    version=__version__,
                    root=convert_path_to_utf8(root),
                    client_environment=collect_client_variables_for_engine_request(),
                    opens=opens,
                )
            )
            self.hello: HelloMessage = self._receive_message()
        except EngineOwnedByOtherUserError:
            self._socket.close()
            raise
        except (TimeoutError, BlockingIOError) as error:
            # There was no answer, or the listener's queue is full.
            self._socket.close()
            raise UnresponsiveEngineError(
                "the engine does not answer", where=socket_path
            ) from error
        except (OSError, InvalidProtocolFrameError) as error:
            self._socket.close()
            raise EngineUnavailableError(
                f"the engine does not answer: {error}", where=socket_path
            ) from error
        if self.hello.get("hello") != "kbtui" or self.hello.get("protocol") != PROTOCOL_VERSION:
            self._socket.close()
            raise EngineUnavailableError(
                f"the engine speaks version {self.hello.get('protocol')} of the protocol, "
                f"but this kbtui speaks version {PROTOCOL_VERSION}",
                where=socket_path,
                hint="run `kbtui engine stop` with the newer kbtui",
            )

    @property
    def pid(self) -> int:
        """The engine's process id."""
        return int(self.hello.get("pid", 0))

    if TYPE_CHECKING:
        # The operations with their arguments and answers; `engine_protocol` describes the types.
        @overload
        def send_request(
            self,
            op: Literal["search"],
            *,
            timeout: float,
            **arguments: Unpack[EngineSearchArguments],
        ) -> EngineSearchReply: ...
        @overload
        def send_request(
            self,
            op: Literal["refresh"],
            *,
            timeout: float = ...,
            **arguments: Unpack[IndexRefreshRequest],
        ) -> EngineReadinessAfterWait: ...
        @overload
        def send_request(
            self, op: Literal["refreshed", "settle"], *, wait: float = ...
        ) -> EngineReadinessAfterWait: ...
        @overload
        def send_request(self, op: Literal["status"]) -> WorkspaceStatus: ...
        @overload
        def send_request(self, op: Literal["engine_status"]) -> EngineStatus: ...
        @overload
        def send_request(self, op: Literal["pause"], *, paused: bool) -> EngineReadiness: ...
        @overload
        def send_request(self, op: Literal["subscribe"]) -> EngineReadinessEvent: ...
        @overload
        def send_request(self, op: Literal["prefer"], *, entry: str) -> object: ...
        @overload
        def send_request(self, op: Literal["stop"]) -> object: ...

    def send_request(self, op: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """Send a request and return the field `ok` of the answer, or {} if `ok` is not an object.

        Raises `EngineUnavailableError` if the engine reports an error, closes the connection or does not
        answer within `timeout` seconds. The connection is then closed, unless the engine reported
        the error.
        """
        with self._lock:
            self._next += 1
            number = self._next
            try:
                # A caller that cancelled this call may have closed the socket already.
                self._socket.settimeout(timeout)
                self._send_message({"id": number, "op": op, **arguments})
                while True:
                    answer = self._receive_message()
                    if answer.get("id") == number:
                        break
            except (OSError, InvalidProtocolFrameError) as error:
                self._socket.close()
                raise EngineUnavailableError(
                    f"lost the connection to the engine: {error}"
                ) from error
        if "error" in answer:
            raise EngineUnavailableError(str(answer["error"]))
        ok = answer.get("ok")
        return ok if isinstance(ok, dict) else {}

    def subscribe_to_engine_events(self) -> Iterator[EngineEvent]:
        """Subscribe to the engine's events, and yield them until the connection ends.

        After this call, the connection cannot send requests.
        """
        yield self.send_request("subscribe")
        try:
            self._socket.settimeout(None)
            while True:
                yield self._receive_message()
        except (OSError, InvalidProtocolFrameError):
            return

    def stop_engine(self, wait: float = 15.0) -> None:
        """Stop the engine. Waits at most `wait` seconds for its process to exit."""
        import contextlib
        import time

        with contextlib.suppress(EngineUnavailableError):
            self.send_request("stop")
        self.close()
        until = time.monotonic() + wait
        while time.monotonic() < until:
            # If the engine is a child of this process, it stays a zombie until this call.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.005)

    def close(self) -> None:
        """Close the connection."""
        try:  # noqa: SIM105  (`contextlib` would be imported for this alone)
            self._socket.shutdown(SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _send_message(self, message: Mapping[str, object]) -> None:
        self._socket.sendall(encode_message_as_frame(message))

    def _receive_message(self) -> Any:
        header = self._receive_bytes(FRAME_HEADER_BYTES)
        return decode_frame_body(self._receive_bytes(parse_frame_length(header, ANSWER_BYTES_MAX)))

    def _receive_bytes(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 16))
            if not part:
                raise ConnectionResetError("the connection ended")
            parts += part
        return bytes(parts)
