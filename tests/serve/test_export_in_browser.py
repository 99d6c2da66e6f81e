"""The exported HTML file in a real browser: it shows everything, loads nothing, and fits a phone."""

import asyncio
import shutil
from pathlib import Path

import pytest
from chromium import Chromium
from running import run_command

DEMO = Path(__file__).parents[2] / "assets" / "demo"


@pytest.mark.slow
async def test_the_exported_file_opens_on_a_phone_in_dark_and_light(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    shutil.copytree(DEMO, root)
    file = tmp_path / "talk.html"
    done = run_command("-w", str(root), "export", "jp-c17757622345", "-o", str(file))
    assert done.returncode == 0, done.stderr
    async with Chromium(390, 844) as browser:
        await browser.open(file.as_uri())
        for _ in range(600):
            if title := await browser.evaluate("document.querySelector('h1')?.textContent"):
                break
            await asyncio.sleep(0.05)
        assert title in file.read_text()
        width = await browser.evaluate("document.documentElement.scrollWidth")
        assert width <= 390
        assert await browser.evaluate("document.querySelectorAll('details[open]').length") == 0
        assert await browser.evaluate("document.querySelectorAll('section').length") >= 2
        hidden = "document.querySelector('main details > pre').checkVisibility()"
        assert await browser.evaluate(hidden) is False
        await browser.evaluate(
            "document.querySelector('main details:has(> pre) > summary').click()"
        )
        assert await browser.evaluate(hidden) is True
        colours = []
        for scheme in ("light", "dark"):
            await browser.call(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": scheme}],
            )
            colours.append(
                await browser.evaluate("getComputedStyle(document.body).backgroundColor")
            )
        assert colours == ["rgb(255, 255, 255)", "rgb(20, 24, 29)"]
        assert set(browser.requests) == {file.as_uri()}
        # The policy refused nothing, because there was nothing to refuse.
        assert browser.console == []
