"""The session of one browser tab: a process that runs the TUI, controlled by textual-serve."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from aiohttp.web import WebSocketResponse

QUIT_SECONDS = 5.0
"""If the TUI has not quit after this many seconds, its process is terminated."""
FIRST_PAINT_BYTES = 400
"""The first output with at least this many bytes is the first paint of the screen.

Shorter outputs before it only set up the terminal.
"""
LINK_SCHEMES = ("http://", "https://", "mailto:")


class BrowserTabTuiProcess(AppService):
    """The WebSocket of a browser tab, and the process that runs the TUI for the tab."""

    def __init__(self, command: list[str], websocket: WebSocketResponse) -> None:
        super().__init__(
            "",
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=self._close_browser_socket,
            download_manager=DownloadManager(),
        )
        self._command = command
        self._websocket = websocket
        self._size = (0, 0)
        self._requested_size: tuple[int, int] | None = None
        self._is_painted = False

    async def _close_browser_socket(self) -> None:
        await self._websocket.close()

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._size = (width, height)
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height) | {"TERM": "xterm-256color"},
            start_new_session=True,  # Ctrl+C reaches only the server, which then stops the process
        )
        assert process.stdin is not None
        self._stdin = process.stdin
        return process

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Forward a new size to the TUI. Before the TUI's first paint, only store the size.

        If the size changes during the first layout, Textual alternates between the two sizes forever.
        """
        self._requested_size = (width, height)
        if self._is_painted and (width, height) != self._size:
            self._size = (width, height)
            await super().set_terminal_size(width, height)

    async def on_data(self, payload: bytes) -> None:
        """Forward the TUI's output to the tab.

        After the first paint, set the size that the browser requested.
        """
        await super().on_data(payload)
        if not self._is_painted and len(payload) >= FIRST_PAINT_BYTES:
            self._is_painted = True
            if self._requested_size is not None:
                await self.set_terminal_size(*self._requested_size)

    async def handle_page_message(self, text: str) -> None:
        """Handle a message from the page. Raises `ValueError` if the message is invalid."""
        message = json.loads(text)
        if not isinstance(message, list) or not message:
            raise ValueError("not a message")
        kind, data = message[0], message[1] if len(message) > 1 else None
        if kind == "stdin" and isinstance(data, str):
            await self.send_bytes(data.encode("utf-8", "replace"))
        elif kind == "resize" and isinstance(data, dict):
            size = limit_terminal_size(data.get("width"), data.get("height"))
            await self.set_terminal_size(*size)
        elif kind == "ping":
            await self.remote_write_str(json.dumps(["pong", str(data)[:32]]))
        elif kind in {"focus", "blur"}:
            await (self.focus() if kind == "focus" else self.blur())
        else:
            raise ValueError("unknown kind of message")

    async def on_meta(self, data: bytes) -> None:
        """Handle a request from the TUI: open a link in a new tab, or close the tab's socket."""
        request = json.loads(data)
        if request.get("type") == "exit":
            await self._close_browser_socket()
        elif request.get("type") == "open_url" and str(request.get("url")).startswith(LINK_SCHEMES):
            link = {"url": request["url"], "new_tab": True}
            await self.remote_write_str(json.dumps(["open_url", link]))

    async def stop(self) -> None:
        """Ask the TUI to quit; if it does not, terminate its process."""
        process, task = self._process, self._task
        self._task = None
        if process is None or task is None:
            return
        await self.send_meta({"type": "quit"})
        for ending in (None, signal.SIGTERM, signal.SIGKILL):
            if ending is not None and process.returncode is None:
                process.send_signal(ending)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), QUIT_SECONDS)
                break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def limit_terminal_size(width: Any, height: Any) -> tuple[int, int]:
    """Return the columns and rows for a terminal size that a browser requests, reduced or raised to the limits."""
    return _parse_and_clamp_number(width, 80, 20, 500), _parse_and_clamp_number(height, 24, 5, 300)


def _parse_and_clamp_number(value: Any, default: int, least: int, most: int) -> int:
    try:
        return min(max(int(value), least), most)
    except (TypeError, ValueError, OverflowError):
        return default


def run_tui_in_browser_tab(root: str) -> int:
    """Run the TUI of the workspace at `root` in this process; return the exit code."""
    from pathlib import Path

    from kbtui.library.workspace_library import Library, load_checked_settings
    from kbtui.tui.app import TuiStartOptions, run_tui
    from kbtui.tui.terminal_setup import TerminalBackgroundQuery
    from kbtui.workspace import open_workspace_at_root

    watch = threading.Thread(target=_quit_when_server_ends, args=(os.getppid(),), daemon=True)
    watch.start()
    library = Library(open_workspace_at_root(Path(root)), load_checked_settings())
    try:
        dark = None if library.settings.theme else TerminalBackgroundQuery().read_answer()[0]
        return run_tui(library, None, TuiStartOptions(dark=dark))
    finally:
        library.close()


def _quit_when_server_ends(parent: int) -> None:
    """Quit when the server process has exited, because Textual's web driver does not notice this."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(QUIT_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(run_tui_in_browser_tab(sys.argv[1]))
