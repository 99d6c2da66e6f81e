"""A client as the engine has it: who it is, what it says, what it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

from kbtui.engine import protocol

if TYPE_CHECKING:
    import threading


async def read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next message; raises `BadFrame`, and `IncompleteReadError` at the end."""
    header = await reader.readexactly(protocol.HEADER.size)
    size = protocol.length(header, protocol.REQUEST_MOST)
    return protocol.decode(await reader.readexactly(size))


def same_user(writer: asyncio.StreamWriter) -> bool:
    """Whether the peer is this user's process (Linux tells; elsewhere the directory's mode guards)."""
    peer = writer.get_extra_info("socket")
    option = getattr(socket, "SO_PEERCRED", None)
    if peer is None or option is None:
        return True
    credentials = peer.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


class Client:
    """A connection; one that does not read what it is sent is let go."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.subscribed = False
        self.refresh: threading.Event | None = None
        """Set when the refresh that this client asked for last is done."""

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
