"""The TUI in a real headless Chromium: keys, mouse, copying, and attacks by other sites.

Pictures are left under `build/browser/`, to be looked at.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from chromium import Chromium, until
from support import Builder, end_engine

from kbtui.cli.tui_start_commands import find_demo_workspace

pytestmark = pytest.mark.slow
PICTURES = Path(__file__).parents[2] / "build" / "browser"


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The address that `kbtui serve` prints for a copy of the demo."""
    monkeypatch.setenv("KBTUI_MODEL", "off")
    root = tmp_path / "demo"
    shutil.copytree(find_demo_workspace(), root)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kbtui.cli.main", "serve", "-w", str(root), "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    assert process.stdout is not None
    yield (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 60) == 130
    end_engine(Builder(root))


async def test_keys_mouse_and_copying_work_and_nothing_is_fetched_from_elsewhere(
    place: str,
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    server = place.partition("/?")[0]
    async with Chromium() as browser:
        await browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await browser.call(
            "Browser.grantPermissions",
            permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
            origin=server,
        )
        await browser.open(place)
        await browser.reads("kbtui User Guide", "Engineering")
        started = await browser.picture(PICTURES / "start.png")
        assert await browser.evaluate("location.href") == server + "/"  # the token is out of sight
        assert await browser.evaluate("document.title") == "demo · kbtui"
        assert await browser.evaluate("document.fonts.check(\"16px 'Roboto Mono'\")")

        await browser.click("▸ Engineering")
        await browser.reads("▾ Engineering", "     architecture  ")
        await browser.click("     architecture  ")
        await browser.reads("─ engineering/architecture ─")
        await browser.type("y")
        await until_true(browser, COPIED)
        await browser.picture(PICTURES / "mouse.png")

        await browser.type("/")
        await browser.type("in:conversations chunk sizes")
        await browser.reads("/ in:conversations chunk sizes", " hits ", "jp-c17707996539")
        assert await browser.picture(PICTURES / "search.png") != started
        await browser.press("Enter", 13, "\r")
        await browser.reads("turn 1")
        await browser.picture(PICTURES / "reader.png")

        allowed = (server + "/", server.replace("http", "ws") + "/ws", "data:,")
        assert browser.requests
        assert [url for url in browser.requests if not url.startswith(allowed)] == []
        assert not [line for line in browser.console if "Content Security" in line]

        await browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=640, height=480, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        await until(lambda: browser.screen.columns < 90)
        await browser.reads("turn 1")
        await browser.picture(PICTURES / "small.png")

        await browser.type("q")
        await until_true(browser, "document.body.classList.contains('-closed')")
        await browser.picture(PICTURES / "ended.png")
        browser.screen.reset()
        await browser.press("Enter", 13, "\r")  # the button has the focus
        # The library may have scrolled to the conversation that was open.
        await browser.reads("Search topics and conversations", "─ Library ─")


async def test_the_page_of_a_tab_too_many_says_why(place: str) -> None:
    server, _, _ = place.partition("/?token=")
    async with Chromium() as browser:
        await browser.open(place)
        await browser.reads("kbtui User Guide")
        # More connections of the same page, as other tabs have them.
        await browser.evaluate(
            f"""window.others = Array.from({{length: 7}}, () =>
            new WebSocket("{server.replace("http", "ws")}/ws?width=80&height=24")); 0"""
        )
        await until_true(browser, "others.every(one => one.readyState === WebSocket.OPEN)")
        await browser.evaluate(
            f"""window.said = null;
            window.extra = new WebSocket("{server.replace("http", "ws")}/ws?width=80&height=24");
            extra.addEventListener("close", () => setTimeout(() =>
              window.said = document.getElementById("ended-text").textContent)); 0"""
        )
        await until_true(browser, "window.said !== null")
        assert "8 tabs are open" in str(await browser.evaluate("window.said"))


COPIED = "navigator.clipboard.readText().then(text => text.startsWith('engineering/architecture'))"


async def until_true(browser: Chromium, code: str) -> None:
    for _ in range(600):
        if await browser.evaluate(code):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(code)


async def test_a_page_elsewhere_can_neither_connect_nor_frame_nor_read(place: str) -> None:
    server, _, token = place.partition("/?token=")
    page = f"""<iframe id=f src="{server}/?token={token}"></iframe><script>
      window.opened = null;
      const s = new WebSocket("{server.replace("http", "ws")}/ws?width=80&height=24");
      s.onopen = () => opened = true; s.onerror = () => opened = false;
      window.read = fetch("{place}").then(r => r.text()).then(() => true, () => false);
    </script>"""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    app = web.Application()
    app.add_routes([web.get("/", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with Chromium() as browser:
            await browser.open(place)  # so that the browser has the cookie
            await browser.reads("kbtui User Guide")
            for name in ("127.0.0.1", "localhost"):
                await browser.open(f"http://{name}:{port}/")
                await until_true(browser, "typeof window.opened === 'boolean'")
                assert await browser.evaluate("window.opened") is False
                assert await browser.evaluate("window.read") is False
                assert await browser.evaluate(
                    "(() => { try { return document.getElementById('f').contentDocument?.body.innerText ?? null }"
                    " catch { return null } })()"
                ) is None  # fmt: skip
    finally:
        await runner.cleanup()
