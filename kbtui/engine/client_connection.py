"""The engine's connection to one client."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


class ClientConnection:
    """The engine's connection to one client. The engine closes it if the client stops reading."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.is_subscribed = False
        self.pending_refresh: threading.Event | None = None
        """Set when the refresh that this client requested last is done."""
        self.wants_damage_check = False
        """Whether the refresh that this client requested last includes a check for damage."""

    def send_frame(self, frame: bytes) -> None:
        """Send a frame without waiting. Close the connection if more than 4 MiB wait to be sent."""
        if self._writer.transport.get_write_buffer_size() > (4 << 20):
            self.close()
        elif not self._writer.is_closing():
            self._writer.write(frame)

    async def wait_until_frames_are_sent(self) -> None:
        """Wait while the send buffer is full. Raises `TimeoutError` if the wait takes more than 30 seconds."""
        await asyncio.wait_for(self._writer.drain(), 30.0)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(RuntimeError):
            self._writer.close()
