"""Ten screens at three sizes on two workspaces, compared as text.

`make screenshots` takes them again, and also as pictures below `build/screenshots/screens`.
"""

import asyncio
import os
import re
from pathlib import Path
from unittest import mock

import pytest
from screen_scenes import SCENES, SIZES, TARGETS, leave_scene, make_workspace
from textual._compositor import Compositor
from tui_support import running

RENDER_UPDATE = Compositor.render_update
STORED = Path(__file__).parent / "snapshots" / "screens"


QUICK = {("demo", (80, 24)), ("service", (120, 35))}
"""The workspaces and sizes that are compared for every change; the others are compared every night."""


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(
            name,
            size,
            id=f"{name}-{size[0]}x{size[1]}",
            marks=() if (name, size) in QUICK else pytest.mark.slow,
        )
        for name in TARGETS
        for size in SIZES
    ],
)
async def test_the_screens_are_as_stored(
    name: str, size: tuple[int, int], tmp_path: Path, home: Path
) -> None:
    target = TARGETS[name]
    root = make_workspace(name, tmp_path, home)
    texts: dict[str, str] = {}
    async with running(root, size=size, now=lambda: target.present) as tui:
        # The temporary index is built first, so that every answer has the same notice.
        await asyncio.to_thread(tui.app.library.open_index_reader)
        for scene, show in SCENES.items():
            await show(tui, target)
            # The last message of the status line is gone after a few seconds.
            tui.main.status.flash_message("")
            tui.paint()
            texts[scene] = tui.text
            if pictures := os.environ.get("KBTUI_PICTURES"):
                with mock.patch.object(Compositor, "render_update", RENDER_UPDATE):
                    picture = tui.app.export_screenshot(title=f"kbtui · {name}")
                path = Path(pictures, f"{name}-{size[0]}x{size[1]}-{scene}.svg")
                path.parent.mkdir(parents=True, exist_ok=True)
                # Rich's picture refers to a font on the internet, which viewers must not fetch.
                path.write_text(re.sub(r"@font-face \{[^}]*\}\s*", "", picture), "utf-8")
            assert max(map(len, tui.text.split("\n"))) <= size[0]
            await leave_scene(tui)
    path = STORED / f"{name}-{size[0]}x{size[1]}.txt"
    text = "".join(f"══ {scene} ══\n{shown}\n" for scene, shown in texts.items())
    if os.environ.get("KBTUI_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"run `make screenshots` and look at {path.name}"
