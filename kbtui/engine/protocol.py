"""The engine's protocol, length-prefixed JSON over a Unix socket, and a client's connection.

A frame is a length (four bytes, big-endian) followed by that many bytes of UTF-8 JSON, an object.
The first frame in each direction is a hello. Then a client sends requests (`id`, `op`, arguments),
and the engine sends answers (`id`, `ok` or `error`), and events (`event`) to subscribers. Nothing
is ever unpickled.

The module imports little, because short commands wait for it.
"""

from __future__ import annotations

import json
import os
import struct

# `socket` itself builds tables of constants, which takes as long as importing this whole package.
from _socket import AF_UNIX, SHUT_RDWR, SOCK_STREAM, socket
from _thread import allocate_lock

from kbtui.errors import EngineUnavailable
from kbtui.version import __version__
from kbtui.workspace.paths import is_same_user, read_time_zone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PROTOCOL_VERSION = 3
REQUEST_BYTES_MAX = 1 << 20
"""The maximum length of a frame to the engine."""
ANSWER_BYTES_MAX = 16 << 20
"""The maximum length of a frame from the engine."""
WAIT_SECONDS, SEARCH_SECONDS = 10.0, 25.0
"""How long a search waits for the model by default, and how long it may take in addition."""
FRAME_HEADER = struct.Struct(">I")


class InvalidFrame(Exception):
    """Received bytes that violate the protocol."""


def make_search_request(
    question: dict[str, Any], *, wait: float = WAIT_SECONDS, origin: str | None, **more: Any
) -> dict[str, Any]:
    """Return the arguments of `EngineClient.request` for the operation `search`.

    `question` is a `Question` as JSON; dates in it hold in this process's time zone unless it has
    its own. `wait` is for the model, in seconds. `origin` is for the query log, None for no entry.
    """
    question = {"zone": read_time_zone(), **question}
    timeout = wait + SEARCH_SECONDS
    return {"question": question, "wait": wait, "origin": origin, "timeout": timeout, **more}


def encode_frame(message: dict[str, Any]) -> bytes:
    """Return a message as a frame."""
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return FRAME_HEADER.pack(len(body)) + body


def parse_frame_length(header: bytes, most: int) -> int:
    """Return the length in a frame's header; raises `InvalidFrame` if it exceeds `most`."""
    (size,) = FRAME_HEADER.unpack(header)
    if size > most:
        raise InvalidFrame(f"a frame of {size} bytes exceeds the limit of {most}")
    return int(size)


def decode_frame(body: bytes) -> dict[str, Any]:
    """Parse a frame's body; raises `InvalidFrame` if it is not a JSON object."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidFrame(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise InvalidFrame("not an object")
    return message


def make_hello(version: str, **more: Any) -> dict[str, Any]:
    """Return the first message; an engine adds its `pid`, the `schema` of its index and more."""
    return {"hello": "kbtui", "protocol": PROTOCOL_VERSION, "version": version, **more}


class SilentEngine(EngineUnavailable):
    """An engine is running but does not answer."""


class ForeignEngine(EngineUnavailable):
    """A process of another user listens on the engine's socket."""


class EngineClient:
    """A client's connection to an engine. Threads may share it; requests wait for each other."""

    def __init__(self, place: str) -> None:
        """Connect to the socket at `place` and exchange hellos.

        Raises `SilentEngine`, `ForeignEngine`, and `EngineUnavailable` if nobody listens or the
        engine speaks another protocol.
        """
        self._socket = socket(AF_UNIX, SOCK_STREAM)
        self._socket.settimeout(5.0)
        self._lock = allocate_lock()
        self._next = 0
        try:
            # The lock file has the path in UTF-8, whatever the locale of this process is.
            self._socket.connect(place.encode("utf-8", "surrogateescape"))
            if not is_same_user(self._socket):
                raise ForeignEngine(
                    "a process of another user listens on the engine's socket",
                    where=place,
                    hint="remove the socket, or set XDG_RUNTIME_DIR to a directory that only you can write",
                )
            self._send_message(make_hello(__version__))
            self.hello = self._receive_message()
        except ForeignEngine:
            self._socket.close()
            raise
        except (TimeoutError, BlockingIOError) as error:
            # There was no answer, or the listener's queue is full.
            self._socket.close()
            raise SilentEngine("the engine does not answer", where=place) from error
        except (OSError, InvalidFrame) as error:
            self._socket.close()
            raise EngineUnavailable(f"the engine does not answer: {error}", where=place) from error
        if self.hello.get("hello") != "kbtui" or self.hello.get("protocol") != PROTOCOL_VERSION:
            self._socket.close()
            raise EngineUnavailable(
                f"the engine speaks protocol {self.hello.get('protocol')}, "
                f"this kbtui speaks {PROTOCOL_VERSION}",
                where=place,
                hint="run `kbtui engine stop` with the newer kbtui",
            )

    @property
    def pid(self) -> int:
        """The engine's process id."""
        return int(self.hello.get("pid", 0))

    def request(self, op: str, *, timeout: float | None = 30.0, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the answer's `ok`, or {} if that is no object.

        Raises `EngineUnavailable` if the engine reports an error, does not answer within `timeout`
        seconds (None: no limit), or closes the connection, which is then unusable.
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
            except (OSError, InvalidFrame) as error:
                self._socket.close()
                raise EngineUnavailable(f"lost the connection to the engine: {error}") from error
        if "error" in answer:
            raise EngineUnavailable(str(answer["error"]))
        ok = answer.get("ok")
        return ok if isinstance(ok, dict) else {}

    def notify(self, op: str, **arguments: Any) -> None:
        """Send a request without waiting for its answer; raises nothing."""
        with self._lock:
            self._next += 1
            try:
                self._send_message({"id": self._next, "op": op, **arguments})
            except OSError:
                # Part of the frame may have been sent, so the connection is unusable now.
                self._socket.close()

    def iterate_events(self) -> Iterator[dict[str, Any]]:
        """Subscribe, and yield the engine's events until the connection ends.

        Uses the connection exclusively from then on.
        """
        yield self.request("subscribe")
        try:
            self._socket.settimeout(None)
            while True:
                yield self._receive_message()
        except (OSError, InvalidFrame):
            return

    def stop_engine(self, wait: float = 15.0) -> None:
        """Stop the engine, and wait up to `wait` seconds until its process has ended."""
        import contextlib
        import time

        with contextlib.suppress(EngineUnavailable):
            self.request("stop")
        self.close()
        until = time.monotonic() + wait
        while time.monotonic() < until:
            # A child of this process stays a zombie until it is waited for.
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

    def _send_message(self, message: dict[str, Any]) -> None:
        self._socket.sendall(encode_frame(message))

    def _receive_message(self) -> dict[str, Any]:
        header = self._receive_bytes(FRAME_HEADER.size)
        return decode_frame(self._receive_bytes(parse_frame_length(header, ANSWER_BYTES_MAX)))

    def _receive_bytes(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 16))
            if not part:
                raise ConnectionResetError("the connection ended")
            parts += part
        return bytes(parts)
