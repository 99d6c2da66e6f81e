"""One tab of a browser: the process that draws for it, as textual-serve runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING, Any

from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from aiohttp.web import WebSocketResponse

QUIT_SECONDS = 5.0
"""How long a screen may take to leave by itself."""
SMALLEST, LARGEST = (20, 5), (500, 300)
"""Columns and rows that a browser may ask for."""
PAINTED = 400
"""Bytes of output that only a painted screen has; what comes before are modes and questions."""
LINKS = ("http://", "https://", "mailto:")


class BrowserSession(AppService):
    """A process with the screen, and the WebSocket that shows it.

    Started without a shell, so nothing in a path is ever read as a command.
    """

    def __init__(self, words: list[str], websocket: WebSocketResponse) -> None:
        super().__init__(
            "",
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=self._close,
            download_manager=DownloadManager(),
        )
        self._words = words
        self._websocket = websocket
        self._size = (0, 0)
        self._wanted: tuple[int, int] | None = None
        self._painted = False

    async def _close(self) -> None:
        await self._websocket.close()

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._size = (width, height)
        self._process = process = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height) | {"TERM": "xterm-256color"},
            start_new_session=True,  # Ctrl+C is for the server, which then ends it in order
        )
        assert process.stdin is not None
        self._stdin = process.stdin
        return process

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Pass on a size that is new, once there is a screen.

        Textual goes from one size to the other for ever when the second comes while it
        prepares its first layout.
        """
        self._wanted = (width, height)
        if self._painted and self._wanted != self._size:
            self._size = self._wanted
            await super().set_terminal_size(width, height)

    async def on_data(self, payload: bytes) -> None:
        """Show what was drawn; the first of it means that a size may follow."""
        await super().on_data(payload)
        if not self._painted and len(payload) >= PAINTED:
            self._painted = True
            if self._wanted is not None:
                await self.set_terminal_size(*self._wanted)

    async def take(self, text: str) -> None:
        """Pass on what the page sent; raises `ValueError` for what no page of ours sends."""
        message = json.loads(text)
        if not isinstance(message, list) or not message:
            raise ValueError("not a message")
        kind, data = message[0], message[1] if len(message) > 1 else None
        if kind == "stdin" and isinstance(data, str):
            await self.send_bytes(data.encode("utf-8", "replace"))
        elif kind == "resize" and isinstance(data, dict):
            await self.set_terminal_size(*size(data.get("width"), data.get("height")))
        elif kind == "ping":
            await self.remote_write_str(json.dumps(["pong", str(data)[:32]]))
        elif kind in {"focus", "blur"}:
            await (self.focus() if kind == "focus" else self.blur())
        else:
            raise ValueError("no message of this kind")

    async def on_meta(self, data: bytes) -> None:
        """What the screen asks of the page: to open a link in a new tab, or to end."""
        asked = json.loads(data)
        if asked.get("type") == "exit":
            await self._close()
        elif asked.get("type") == "open_url" and str(asked.get("url")).startswith(LINKS):
            link = {"url": asked["url"], "new_tab": True}
            await self.remote_write_str(json.dumps(["open_url", link]))

    async def stop(self) -> None:
        """Have the screen leave, and make sure that it did."""
        process, task = self._process, self._task
        self._task = None
        if process is None or task is None:
            return
        await self.send_meta({"type": "quit"})
        for end in (None, signal.SIGTERM, signal.SIGKILL):
            if end is not None and process.returncode is None:
                process.send_signal(end)
            try:
                await asyncio.wait_for(process.wait(), QUIT_SECONDS)
                break
            except TimeoutError:
                continue
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def size(width: Any, height: Any) -> tuple[int, int]:
    """Columns and rows within bounds, whatever was asked for."""
    found = []
    for value, usual, least, most in zip((width, height), (80, 24), SMALLEST, LARGEST, strict=True):
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            number = usual
        found.append(min(max(number, least), most))
    return found[0], found[1]


def main(root: str) -> int:
    """The process of a session: the screen on the workspace, drawn for the server."""
    from pathlib import Path

    from kbtui.library import Library
    from kbtui.tui.app import run_tui
    from kbtui.workspace import load_settings, open_root

    _follow(os.getppid())
    library = Library(open_root(Path(root)), load_settings())
    try:
        return run_tui(library, None)
    finally:
        library.close()


def _follow(parent: int) -> None:
    """Leave when the server is gone: the driver does not notice that nobody listens."""
    import threading
    import time

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(QUIT_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="follow", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
