"""The web server: one page, its static files, and a WebSocket for each tab.

textual-serve provides the sessions and the terminal in the page. kbtui does not use
textual-serve's own server, because it checks neither Host nor Origin, runs its command through a
shell and loads a font from the internet.
"""

from __future__ import annotations

import asyncio
import html
import signal
import sys
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from aiohttp import WSCloseCode, WSMsgType, web

from kbtui.serve.browser_tab_tui_process import BrowserTabTuiProcess, limit_terminal_size
from kbtui.serve.web_access_control import (
    SECURITY_HEADERS,
    AllowedHostHeaders,
    find_web_request_refusal_reason,
    is_correct_token,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

MAX_SESSIONS = 8
"""At most this many tabs can be open at the same time, because each tab has its own process."""
MAX_MESSAGE_BYTES = 1 << 20
"""The maximum size in bytes of a message from a page. The largest messages are pasted texts."""
STATIC_DIRECTORY = Path(__file__).parent / "static"


class TuiWebServer:
    """Serves the TUI of one workspace to browsers that send the token."""

    def __init__(self, root: Path, host: str, port: int, token: str, font_size: int = 16) -> None:
        self._command = [
            sys.executable,
            "-P",
            "-m",
            "kbtui.serve.browser_tab_tui_process",
            str(root),
        ]
        self._name = root.name or str(root)
        self._hosts = AllowedHostHeaders(host, port)
        self._cookie = f"kbtui-{port}"
        self._token = token
        self._font_size = font_size
        self._sessions: set[BrowserTabTuiProcess] = set()

    def make_web_application(self) -> web.Application:
        """Return the aiohttp application, which checks every request before it handles it."""
        app = web.Application(middlewares=[self._refuse_or_pass_request], client_max_size=1024)
        app.router.add_get("/", self._send_terminal_page)
        app.router.add_get("/ws", self._serve_terminal_websocket)
        app.router.add_static("/own", STATIC_DIRECTORY)
        app.router.add_static("/static", str(files("textual_serve") / "static"))
        app.on_response_prepare.append(self._add_security_headers)
        app.on_shutdown.append(self._stop_browser_tab_processes)
        return app

    @web.middleware
    async def _refuse_or_pass_request(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        kind = {"/": "page", "/ws": "socket"}.get(request.path, "file")
        if not request.raw_path.startswith("/"):
            raise web.HTTPBadRequest(
                text="kbtui: the request's target must be a path that starts with a slash\n"
            )
        reason = find_web_request_refusal_reason(request, self._hosts, kind)
        if reason is None and not (
            is_correct_token(request.cookies.get(self._cookie), self._token)
            or (kind == "page" and is_correct_token(request.query.get("token"), self._token))
        ):
            reason = "the token is missing or wrong; open the address that `kbtui serve` printed"
        if reason is not None:
            raise web.HTTPForbidden(text=f"kbtui: {reason}\n")
        return await handler(request)

    async def _add_security_headers(
        self, request: web.Request, response: web.StreamResponse
    ) -> None:
        socket = f"ws://{request.host}" if request.host.lower() in self._hosts else ""
        for name, value in SECURITY_HEADERS.items():
            response.headers[name] = value.replace("{socket}", socket)
        response.headers.pop("Server", None)

    async def _send_terminal_page(self, request: web.Request) -> web.Response:
        template = Template((STATIC_DIRECTORY / "page.html").read_text("utf-8"))
        text = template.substitute(
            name=html.escape(self._name),
            socket=html.escape(f"ws://{request.host}/ws"),
            font_size=self._font_size,
        )
        response = web.Response(text=text, content_type="text/html")
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict", path="/")
        return response

    async def _serve_terminal_websocket(self, request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=MAX_MESSAGE_BYTES)
        await websocket.prepare(request)
        if len(self._sessions) >= MAX_SESSIONS:
            # A page cannot read the response to a refused handshake, but it can read this reason.
            reason = f"{MAX_SESSIONS} tabs are open, which is the maximum; close one first."
            await websocket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=reason.encode())
            return websocket
        session = BrowserTabTuiProcess(self._command, websocket)
        self._sessions.add(session)
        try:
            size = limit_terminal_size(request.query.get("width"), request.query.get("height"))
            await session.start(*size)
            async for message in websocket:
                if message.type == WSMsgType.TEXT:
                    await session.handle_page_message(message.data)
        except (ValueError, RecursionError, ConnectionError):
            await websocket.close(code=1008)
        finally:
            self._sessions.discard(session)
            await session.stop()
        return websocket

    async def _stop_browser_tab_processes(self, app: web.Application) -> None:
        stops = [session.stop() for session in self._sessions]
        await asyncio.gather(*stops, return_exceptions=True)


async def run_tui_web_server(
    server: TuiWebServer, listening: socket.socket, on_ready: Callable[[], None]
) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP arrives; return the number of the signal.

    Calls `on_ready` when the server accepts connections.
    """
    runner = web.AppRunner(server.make_web_application(), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def stop_serving(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop_serving, number)
    on_ready()
    try:
        return await ended
    finally:
        await runner.cleanup()
