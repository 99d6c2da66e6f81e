"""One connection to an engine. Imports little, because short commands wait for it."""

from __future__ import annotations

import os

# The module behind `socket`, whose tables of constants take as long to build as all of this package.
from _socket import AF_UNIX, SHUT_RDWR, SOCK_STREAM, socket
from _thread import allocate_lock

from kbtui.engine import protocol
from kbtui.errors import EngineUnavailable
from kbtui.version import __version__
from kbtui.workspace.paths import is_same_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class SilentEngine(EngineUnavailable):
    """There is an engine, and it does not answer."""


class ForeignEngine(EngineUnavailable):
    """A process of another user listens where the engine should."""


class EngineClient:
    """One connection. `request` may be called from any thread, one at a time."""

    def __init__(self, place: str) -> None:
        self._socket = socket(AF_UNIX, SOCK_STREAM)
        self._socket.settimeout(5.0)
        self._lock = allocate_lock()
        self._next = 0
        try:
            # The lock file names it in UTF-8; the locale of this process may be another.
            self._socket.connect(place.encode("utf-8", "surrogateescape"))
            if not is_same_user(self._socket):
                raise ForeignEngine(
                    "a process of another user listens where the engine should",
                    where=place,
                    hint="remove that socket, or set XDG_RUNTIME_DIR to a directory of your own",
                )
            self._send(protocol.hello(__version__))
            self.hello = self._receive()
        except ForeignEngine:
            self._socket.close()
            raise
        except (TimeoutError, BlockingIOError) as error:
            # Nothing came, or so many wait already that there is no place in the queue.
            self._socket.close()
            raise SilentEngine("the engine does not answer", where=place) from error
        except (OSError, protocol.BadFrame) as error:
            self._socket.close()
            raise EngineUnavailable(f"the engine does not answer: {error}", where=place) from error
        if self.hello.get("hello") != "kbtui" or self.hello.get("protocol") != protocol.PROTOCOL:
            self._socket.close()
            raise EngineUnavailable(
                f"the engine speaks protocol {self.hello.get('protocol')}, this is {protocol.PROTOCOL}",
                where=place,
                hint="`kbtui engine stop` with the newer kbtui ends it",
            )

    @property
    def pid(self) -> int:
        """The engine's process id."""
        return int(self.hello.get("pid", 0))

    def request(self, op: str, *, timeout: float | None = 30.0, **arguments: Any) -> dict[str, Any]:
        """Ask and wait for the answer; raises `EngineUnavailable` when the connection ends."""
        with self._lock:
            self._next += 1
            number = self._next
            try:
                # Whoever gave the call up may have closed it already.
                self._socket.settimeout(timeout)
                self._send({"id": number, "op": op, **arguments})
                while True:
                    answer = self._receive()
                    if answer.get("id") == number:
                        break
            except (OSError, protocol.BadFrame) as error:
                self._socket.close()
                raise EngineUnavailable(f"the engine went away: {error}") from error
        if "error" in answer:
            raise EngineUnavailable(str(answer["error"]))
        ok = answer.get("ok")
        return ok if isinstance(ok, dict) else {}

    def tell(self, op: str, **arguments: Any) -> None:
        """Say something whose answer nobody waits for; raises nothing."""
        with self._lock:
            self._next += 1
            try:
                self._send({"id": self._next, "op": op, **arguments})
            except OSError:
                # Half of it may be on its way: whoever asks next needs another connection.
                self._socket.close()

    def events(self) -> Iterator[dict[str, Any]]:
        """Subscribe, and yield the engine's events until the connection ends.

        The connection is then for this alone.
        """
        yield self.request("subscribe")
        try:
            self._socket.settimeout(None)
            while True:
                yield self._receive()
        except (OSError, protocol.BadFrame):
            return

    def end(self, wait: float = 15.0) -> None:
        """Tell the engine to stop, and wait up to `wait` seconds until its process is gone."""
        import contextlib
        import time

        with contextlib.suppress(EngineUnavailable):
            self.request("stop")
        self.close()
        until = time.monotonic() + wait
        while time.monotonic() < until:
            # One that this process started is its child, and stays until it is asked for.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.005)

    def close(self) -> None:
        """End the connection."""
        try:  # noqa: SIM105  (`contextlib` would be imported for this alone)
            self._socket.shutdown(SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(protocol.encode(message))

    def _receive(self) -> dict[str, Any]:
        header = self._exactly(protocol.HEADER.size)
        return protocol.decode(self._exactly(protocol.length(header, protocol.ANSWER_MOST)))

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 16))
            if not part:
                raise ConnectionResetError("the connection ended")
            parts += part
        return bytes(parts)
