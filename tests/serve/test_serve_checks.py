"""Access control of the server, with real sockets, hostile headers and the command line."""

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pyte
import pytest
from aiohttp import ClientSession, WSMsgType, web
from chromium import plain
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, end_engine

from kbtui.cli.main import main
from kbtui.errors import UsageError
from kbtui.serve.browser_tab_tui_process import limit_terminal_size
from kbtui.serve.tui_web_server import TuiWebServer
from kbtui.serve.web_access_control import AllowedHostHeaders, choose_web_server_listen_address

TOKEN = "the-token"


class Served:
    """A server in this process, for requests over real sockets."""

    def __init__(self, port: int, root: Path) -> None:
        self.port, self.root = port, root
        self.cookie = f"Cookie: kbtui-{port}={TOKEN}"
        self.host = f"Host: 127.0.0.1:{port}"
        self.origin = f"Origin: http://127.0.0.1:{port}"

    async def ask(self, path: str, *headers: str, method: str = "GET") -> tuple[int, str]:
        """Send raw bytes; return the status and the whole response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        upgrade = UPGRADE[0] in headers
        close = () if upgrade else ("Connection: close",)
        lines = [f"{method} {path} HTTP/1.1", *headers, *close, "", ""]
        writer.write("\r\n".join(lines).encode("latin-1"))
        await writer.drain()
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        status = int(head.split(b" ")[1])
        body = b"" if upgrade else await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return status, (head + body).decode("utf-8", "replace")

    def sessions(self) -> list[psutil.Process]:
        """Return the running processes of this server's tabs, not those of other tests."""
        found = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.cmdline()[-1:] == [str(self.root)]:
                    found.append(child)
        return found


UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    f"Sec-WebSocket-Key: {base64.b64encode(b'0123456789abcdef').decode()}",
    "Sec-WebSocket-Version: 13",
)


@pytest.fixture
def silent_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In place of a screen, each tab of `served` gets a process that stays until it is asked to quit."""
    program = tmp_path / "stays"
    # So many bytes has the request of `BrowserTabTuiProcess.stop`.
    program.write_text("#!/bin/sh\nhead -c 21 > /dev/null\n")
    program.chmod(0o700)
    # Before `TuiWebServer` is made: it reads the path then.
    monkeypatch.setattr("kbtui.serve.tui_web_server.sys.executable", str(program))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    builder = Builder(tmp_path / 'a <b>"$(touch pwned)')
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    runner = web.AppRunner(
        TuiWebServer(builder.root, "127.0.0.1", port, TOKEN).make_web_application(),
        shutdown_timeout=0.2,
    )
    await runner.setup()
    await web.SockSite(runner, listening).start()
    yield Served(port, builder.root)
    await runner.cleanup()


async def test_the_page_is_for_who_knows_the_token(served: Served) -> None:
    assert (await served.ask("/", served.host))[0] == 403
    assert (await served.ask("/?token=wrong", served.host))[0] == 403
    assert (await served.ask("/", served.host, served.cookie.replace("the", "a")))[0] == 403
    for path, headers in {f"/?token={TOKEN}": [], "/": [served.cookie]}.items():
        status, text = await served.ask(path, served.host, *headers)
        assert status == 200
        assert "HttpOnly" in text
        assert "SameSite=Strict" in text
        assert 'a &lt;b&gt;&quot;$(touch pwned)' in text  # fmt: skip
        assert "<b>" not in text


async def test_nothing_of_the_page_comes_from_elsewhere(served: Served) -> None:
    _, text = await served.ask(f"/?token={TOKEN}", served.host)
    wanted = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert len(wanted) > 4
    for path in wanted:
        if path == "data:,":
            continue
        assert re.match(r"/\w", path)
        assert (await served.ask(path, served.host, served.cookie))[0] == 200
        assert (await served.ask(path, served.host))[0] == 403
    css = (await served.ask("/own/page.css", served.host, served.cookie))[1]
    assert "http" not in css.partition("\r\n\r\n")[2]
    assert "default-src 'none'" in text
    assert "frame-ancestors 'none'" in text


HOSTILE_HOSTS = [
    ["Host: evil.example"],
    ["Host: evil.example:{port}"],
    ["Host: 127.0.0.1"],
    ["Host: 127.0.0.1:1"],
    ["Host: 127.0.0.1.evil.example:{port}"],
    ["Host: 127.0.0.1:{port}@evil.example"],
    ["Host: localhost.:{port}"],
    ["Host: "],
    [],
    ["Host: 127.0.0.1:{port}", "Host: evil.example:{port}"],
    ["Host: evil.example:{port}", "Host: 127.0.0.1:{port}"],
    ["Host: evil.example:{port}", "X-Forwarded-Host: 127.0.0.1:{port}"],
    ["Host: 127.0.0.1:{port}, evil.example"],
]


@pytest.mark.parametrize("headers", HOSTILE_HOSTS, ids=" ".join)
async def test_a_name_that_is_not_the_servers_is_refused(
    served: Served, headers: list[str]
) -> None:
    lines = [line.format(port=served.port) for line in headers]
    for path in (f"/?token={TOKEN}", "/ws", "/own/page.js"):
        upgrade = UPGRADE if path == "/ws" else ()
        status, text = await served.ask(path, *lines, served.cookie, served.origin, *upgrade)
        assert status in {400, 403}, path
        assert "data-session" not in text


HOSTILE_ORIGINS = [
    [],
    ["Origin: null"],
    ["Origin: http://evil.example"],
    ["Origin: http://evil.example:{port}"],
    ["Origin: https://127.0.0.1:{port}"],
    ["Origin: http://127.0.0.1"],
    ["Origin: http://127.0.0.1:1"],
    ["Origin: http://localhost:{port}"],
    ["Origin: http://127.0.0.1:{port}.evil.example"],
    ["Origin: http://127.0.0.1:{port}", "Origin: http://evil.example"],
    ["Origin: http://127.0.0.1:{port}", "Sec-Fetch-Site: cross-site"],
    ["Origin: http://127.0.0.1:{port}", "Sec-Fetch-Site: same-site"],
]


@pytest.mark.parametrize("headers", HOSTILE_ORIGINS, ids=" ".join)
async def test_a_socket_from_another_page_is_refused(served: Served, headers: list[str]) -> None:
    lines = [line.format(port=served.port) for line in headers]
    status, _ = await served.ask("/ws", served.host, served.cookie, *lines, *UPGRADE)
    assert status == 403
    assert served.sessions() == []


async def test_a_socket_without_the_cookie_is_refused(served: Served) -> None:
    for cookie in ([], [served.cookie + "x"], [f"Cookie: token={TOKEN}"]):
        status, _ = await served.ask(
            f"/ws?token={TOKEN}", served.host, served.origin, *cookie, *UPGRADE
        )
        assert status == 403


async def test_other_methods_paths_and_frames_get_nothing(served: Served) -> None:
    known = (served.host, served.cookie)
    assert (await served.ask("/", *known, method="POST"))[0] == 405
    assert (await served.ask("/static/", *known))[0] in {403, 404}
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/own/..%2fserver.py", "/download/x", "//", "/ws/"):  # fmt: skip
        assert (await served.ask(path, *known))[0] in {403, 404}, path
    assert (await served.ask(f"http://127.0.0.1:{served.port}/", *known))[0] in {400, 403}
    for place in ("iframe", "object", "image"):
        assert (await served.ask("/", *known, f"Sec-Fetch-Dest: {place}"))[0] == 403


async def test_a_tab_shows_the_screen_takes_keys_and_ends_with_its_process(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / 'a <b>"$(touch pwned)')
    base = f"http://127.0.0.1:{served.port}"
    headers = {"Origin": base, "Cookie": served.cookie.removeprefix("Cookie: ")}
    builder.topics(notes={"title": "My Notes"})
    builder.subject("notes/plain.md", "# Plain\n\nText.\n")
    screen = pyte.Screen(100, 30)
    stream = pyte.ByteStream(screen)
    try:
        async with (
            ClientSession() as http,
            http.ws_connect(f"{base}/ws?width=-5&height=oops", headers=headers) as tab,
        ):
            await tab.send_str(json.dumps(["resize", {"width": 100, "height": 30}]))
            typed = False
            async with asyncio.timeout(90):
                async for message in tab:
                    if message.type == WSMsgType.BINARY:
                        stream.feed(plain(message.data))
                    text = "\n".join(screen.display)
                    if not typed and "My Notes" in text:
                        typed = True
                        await tab.send_str(json.dumps(["stdin", "/plain"]))
                    if typed and "/ plain" in text:
                        break
            (child,) = served.sessions()
        await asyncio.to_thread(child.wait, 30)
    finally:
        end_engine(builder)
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("text", ["", "{}", "[]", '["eval", "1"]', '["stdin", 5]', "[" * 5000])
async def test_a_message_that_no_page_sends_ends_the_tab(
    silent_program: None, served: Served, text: str
) -> None:
    base = f"http://127.0.0.1:{served.port}"
    headers = {"Origin": base, "Cookie": served.cookie.removeprefix("Cookie: ")}
    async with (
        ClientSession() as http,
        http.ws_connect(f"{base}/ws", headers=headers) as tab,
        asyncio.timeout(60),
    ):
        await tab.send_str(text)
        message = await tab.receive()
        assert message.type in {WSMsgType.CLOSE, WSMsgType.CLOSED}


async def test_a_tab_too_many_says_why_and_gets_in_when_another_is_closed(
    silent_program: None, served: Served
) -> None:
    base = f"http://127.0.0.1:{served.port}"
    headers = {"Origin": base, "Cookie": served.cookie.removeprefix("Cookie: ")}
    async with ClientSession() as http, asyncio.timeout(60):
        tabs = [await http.ws_connect(f"{base}/ws", headers=headers) for _ in range(8)]
        refused = await http.ws_connect(f"{base}/ws", headers=headers)
        message = await refused.receive()
        assert message.type == WSMsgType.CLOSE
        assert "8 tabs are open" in message.extra
        assert "close one" in message.extra
        await tabs.pop().close()
        while True:
            again = await http.ws_connect(f"{base}/ws", headers=headers)
            try:
                async with asyncio.timeout(0.3):
                    await again.receive()
            except TimeoutError:
                break  # it stays open
        for tab in (*tabs, again):
            await tab.close()
        while served.sessions():
            await asyncio.sleep(0.02)


@given(st.none() | st.integers() | st.text() | st.floats(), st.integers() | st.text(max_size=9))
@pytest.mark.slow
def test_a_size_is_within_bounds_whatever_is_asked_for(width: object, height: object) -> None:
    columns, rows = limit_terminal_size(width, height)
    assert 20 <= columns <= 500
    assert 5 <= rows <= 300


def test_other_machines_are_let_in_only_when_said_twice(
    workspace_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in ("127.0.0.1", "127.1.2.3", "localhost", "::1"):
        assert choose_web_server_listen_address(host, False) in {host, "127.0.0.1", "::1"}
    for host in ("0.0.0.0", "::", "192.0.2.7"):
        with pytest.raises(UsageError):
            choose_web_server_listen_address(host, False)
        assert main(["serve", "-w", str(workspace_root), "--host", host]) == 2
        assert "--allow-network" in capsys.readouterr().err
    assert choose_web_server_listen_address("0.0.0.0", True) == "0.0.0.0"


@pytest.mark.parametrize("host", ["a" * 70, "a..b", "\x9b31m.example", "\u202e", "\ud800", ""])
def test_what_is_no_address_is_said_to_be_none(host: str) -> None:
    for allowed in (False, True):
        with pytest.raises(UsageError):
            choose_web_server_listen_address(host, allowed)


def test_on_every_address_any_address_is_answered_and_no_name() -> None:
    hosts = AllowedHostHeaders("0.0.0.0", 8000)
    assert "192.0.2.7:8000" in hosts
    assert "[2001:db8::7]:8000" in hosts
    assert "evil.example:8000" not in hosts
    assert "192.0.2.7:8001" not in hosts
    assert "192.0.2.7:8000" not in AllowedHostHeaders("127.0.0.1", 8000)


def test_the_command_says_the_address_and_ends_cleanly_with_ctrl_c(
    workspace_root: Path,
) -> None:
    words = [sys.executable, "-m", "kbtui.cli.main", "serve", "-w", str(workspace_root), "--port", "0"]  # fmt: skip
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}\n", line)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said


def test_a_port_in_use_is_told(workspace_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "-w", str(workspace_root), "--port", port]) == 2
    assert "--port 0" in capsys.readouterr().err
    assert main(["serve", "-w", str(workspace_root), "--port", "70000"]) == 2
