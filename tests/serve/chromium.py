"""A driver of headless Chromium over the DevTools protocol; reads the text that the page receives.

The terminal in the page draws on a canvas, so its text is in no document. What arrives over
the WebSocket goes through pyte, a terminal, and is read from there.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyte
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

if TYPE_CHECKING:
    from collections.abc import Callable

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "about:blank",
)
SECONDS = 60.0


def program() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


class Chromium:
    """A browser with one tab; `async with Chromium(width, height) as browser`."""

    def __init__(self, width: int = 1280, height: int = 800) -> None:
        self.width, self.height = width, height
        self.requests: list[str] = []
        self.console: list[str] = []
        self.screen = pyte.Screen(200, 60)
        self._stream = pyte.ByteStream(self.screen)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Chromium:
        found = program()
        assert found, "chromium is missing: apt-get install chromium"
        self._profile = Path(tempfile.mkdtemp(prefix="kb-chromium-"))
        self._process = await asyncio.create_subprocess_exec(
            found,
            f"--user-data-dir={self._profile}",
            f"--window-size={self.width},{self.height}",
            *FLAGS,
            stderr=asyncio.subprocess.DEVNULL,
        )
        port = self._profile / "DevToolsActivePort"
        await until(lambda: port.exists() and "\n" in port.read_text())
        self._http = ClientSession()
        number = port.read_text().splitlines()[0]
        async with self._http.get(f"http://127.0.0.1:{number}/json/list") as answer:
            tab = next(one for one in await answer.json() if one["type"] == "page")
        self._socket: ClientWebSocketResponse = await self._http.ws_connect(
            tab["webSocketDebuggerUrl"], max_msg_size=0
        )
        self._reader = asyncio.create_task(self._read())
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=self.width,
            height=self.height,
            deviceScaleFactor=1,
            mobile=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reader.cancel()
        await self._socket.close()
        await self._http.close()
        self._process.terminate()
        await self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(self._waiting[number], SECONDS)
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type != WSMsgType.TEXT:
                continue
            told = json.loads(message.data)
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
                continue
            about, facts = told["method"], told["params"]
            if about == "Network.requestWillBeSent":
                self.requests.append(facts["request"]["url"])
            elif about == "Network.webSocketCreated":
                self.requests.append(facts["url"])
            elif about == "Network.webSocketFrameReceived" and facts["response"]["opcode"] == 2:
                self._show(base64.b64decode(facts["response"]["payloadData"]))
            elif about == "Network.webSocketFrameSent":
                self._resize(facts["response"]["payloadData"])
            elif about == "Log.entryAdded":
                self.console.append(facts["entry"]["text"])
            elif about == "Runtime.exceptionThrown":
                self.console.append(json.dumps(facts["exceptionDetails"]))

    def _show(self, data: bytes) -> None:
        self._stream.feed(plain(data))

    def _resize(self, text: str) -> None:
        sent = json.loads(text)
        if sent[0] == "resize":
            self.screen.resize(sent[1]["height"], sent[1]["width"])

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    async def open(self, address: str) -> None:
        await self.call("Page.navigate", url=address)

    async def reads(self, *words: str) -> None:
        """Wait until the screen shows all of these texts."""
        await until(lambda: all(word in self.text for word in words), lambda: self.text)

    async def type(self, text: str) -> None:
        for sign in text:
            await self.call("Input.dispatchKeyEvent", type="keyDown", text=sign, key=sign)
            await self.call("Input.dispatchKeyEvent", type="keyUp", key=sign)

    async def press(self, key: str, code: int, text: str = "") -> None:
        await self.call(
            "Input.dispatchKeyEvent",
            type="keyDown" if text else "rawKeyDown",
            key=key,
            windowsVirtualKeyCode=code,
            text=text,
        )
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def click(self, words: str) -> None:
        """Click the middle of a text on the screen."""
        row = next(number for number, line in enumerate(self.screen.display) if words in line)
        column = self.screen.display[row].index(words) + len(words) // 2
        box = await self.evaluate(
            "JSON.stringify(document.querySelector('.xterm-screen').getBoundingClientRect())"
        )
        area = json.loads(box)
        x = area["x"] + (column + 0.5) * area["width"] / self.screen.columns
        y = area["y"] + (row + 0.5) * area["height"] / self.screen.lines
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent",
                type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=1,
            )  # fmt: skip

    async def evaluate(self, code: str) -> Any:
        answer = await self.call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def picture(self, path: Path) -> bytes:
        answer = await self.call("Page.captureScreenshot", format="png")
        data = base64.b64decode(answer["data"])
        path.write_bytes(data)
        return data


def plain(data: bytes) -> bytes:
    """Remove sequences that pyte does not support: strings, and modes with another prefix than `?`."""
    return re.sub(
        rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9]+\$p",
        b"",
        data,
    )


async def until(
    condition: Callable[[], bool], said: Callable[[], str] | None = None, seconds: float = SECONDS
) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, said() if said else "waited in vain"
        await asyncio.sleep(0.05)
