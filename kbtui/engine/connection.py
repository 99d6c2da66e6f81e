"""A client as the engine has it: who it is, what it says, what it is sent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from kbtui.engine import protocol
from kbtui.workspace.places import is_own_process

if TYPE_CHECKING:
    import threading


async def read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next message; raises `BadFrame`, and `IncompleteReadError` at the end."""
    header = await reader.readexactly(protocol.HEADER.size)
    size = protocol.length(header, protocol.REQUEST_MOST)
    return protocol.decode(await reader.readexactly(size))


def same_user(writer: asyncio.StreamWriter) -> bool:
    """Whether the peer is this user's process."""
    peer = writer.get_extra_info("socket")
    return peer is None or is_own_process(peer)


class Client:
    """A connection; one that does not read what it is sent is let go."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.subscribed = False
        self.refresh: threading.Event | None = None
        """Set when the refresh that this client asked for last is done."""
        self.check = False
        """Whether that was to look for damage too."""

    def send(self, frame: bytes) -> None:
        """Have a frame sent, without waiting for that."""
        if self._writer.transport.get_write_buffer_size() > (4 << 20):
            self.end()
        elif not self._writer.is_closing():
            self._writer.write(frame)

    async def drain(self) -> None:
        """Wait until it has read; raises `TimeoutError`."""
        await asyncio.wait_for(self._writer.drain(), 30.0)

    def end(self) -> None:
        """Close the connection."""
        with contextlib.suppress(RuntimeError):
            self._writer.close()
