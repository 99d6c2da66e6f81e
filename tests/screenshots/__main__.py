"""Run kbtui without a terminal, and save its screens as pictures and as text.

    python -m tests.screenshots [NAME…]

The pictures of the README show a copy of the demo. Their engine, index and model are real. The name
"screens" stands for ten screens at three sizes on two workspaces, which `tests/tui/screen_scenes.py`
describes: their pictures are written below `build/screenshots/screens`, and their texts, which
`tests/tui/test_screens_as_text.py` compares, below `tests/tui/snapshots/screens`. The clock is fixed,
so that pictures are reproducible.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.arguments import make_name_parser

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.pilot import Pilot

    from kbtui.tui.app import KbtuiApp

TARGET = Path(__file__).parents[2] / "assets" / "screenshots"
PRESENT = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECONDS = 180.0
SCREENS = "screens"
"""The name of all screens of `tests/tui/screen_scenes.py`."""


class Shot(NamedTuple):
    """One picture: its size in cells, and the steps before it is taken."""

    size: tuple[int, int]
    steps: "Callable[[Scene], Awaitable[None]]"
    light: bool = False


class Scene:
    """A running application, and the steps that a shot needs."""

    def __init__(self, app: "KbtuiApp", pilot: "Pilot[None]") -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(part.text for part in strip) for strip in strips)

    async def reads(self, *words: str) -> None:
        """Wait until all of these words are on the screen."""
        end = asyncio.get_running_loop().time() + SECONDS
        while not all(word in self.text for word in words):
            if asyncio.get_running_loop().time() > end:
                raise SystemExit(f"never on the screen: {words}\n{self.text}")
            await self.pilot.pause(0.05)

    async def type(self, text: str) -> None:
        names = {" ": "space", "/": "slash", "-": "minus", ":": "colon"}
        await self.pilot.press(*[names.get(sign, sign) for sign in text])

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()


async def home(scene: Scene) -> None:
    await scene.reads("kbtui User Guide", "Recent conversations", "index ready")


async def search(scene: Scene) -> None:
    await scene.reads("index ready")
    await scene.type("/")
    await scene.type("why did the cache become so large")
    await scene.reads("The cache grows", "keywords and meaning")


async def conversation(scene: Scene) -> None:
    await scene.reads("[1]", "CITED IN TURN 1")


async def subject(scene: Scene) -> None:
    await scene.reads("CITING TURNS", "How text is cut")


async def workshop(scene: Scene) -> None:
    await scene.reads("kbtui User Guide", "index ready")
    await scene.press("P")
    await scene.reads("tokens")


SHOTS = {
    "home": Shot((120, 34), home),
    "search": Shot((120, 34), search),
    "conversation": Shot((120, 34), conversation),
    "subject": Shot((120, 34), subject, light=True),
    "workshop": Shot((120, 34), workshop),
}
OPENS = {"conversation": "jp-c17757622345:1", "subject": "engineering/chunking"}


async def take(name: str, shot: Shot, root: Path) -> None:
    """Run the application and write one picture."""
    from kbtui.library import open_workspace
    from kbtui.tui.app import KbtuiApp, TuiStartOptions

    library = open_workspace(root)
    ref = library.parse_entered_reference(OPENS[name]) if name in OPENS else None
    start = TuiStartOptions(dark=not shot.light, fresh=True)
    app = KbtuiApp(library, ref, lambda: PRESENT, start=start)
    async with app.run_test(size=shot.size) as pilot:
        scene = Scene(app, pilot)
        await shot.steps(scene)
        await pilot.pause(0.3)
        picture = app.export_screenshot(title=f"kbtui · {root.name}")
    library.close()
    # Rich's picture refers to a font on the internet, which viewers must not fetch.
    picture = re.sub(r"@font-face \{[^}]*\}\s*", "", picture)
    (TARGET / f"{name}.svg").write_text(picture, "utf-8")
    print(f"{name}.svg  {len(picture):,} bytes")


def take_screens() -> None:
    """Take the pictures and texts of all screens."""
    pictures = TARGET.parents[1] / "build" / "screenshots" / "screens"
    options = {"KBTUI_UPDATE_SNAPSHOTS": "1", "KBTUI_PICTURES": str(pictures)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "tests/tui/test_screens_as_text.py"]
    subprocess.run(command, check=True, cwd=TARGET.parents[1], env={**os.environ, **options})
    print(f"pictures of all screens: {pictures}")


def main() -> None:
    """Make the named pictures, or all. The index stays below build/ for the next run."""
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots")
    parser.add_argument(
        "names",
        nargs="*",
        type=make_name_parser([*SHOTS, SCREENS]),
        metavar="NAME",
        help=", ".join([*SHOTS, SCREENS]),
    )
    names = parser.parse_args().names or [*SHOTS, SCREENS]
    if SCREENS in names:
        take_screens()
    shots = [name for name in names if name != SCREENS]
    if shots:
        take_shots(shots)


def take_shots(names: list[str]) -> None:
    """Take the named pictures of the README."""
    base = TARGET.parents[1] / "build" / "screenshots"
    for name in ("cache", "config", "data", "state"):
        os.environ[f"XDG_{name.upper()}_HOME"] = str(base / name)
    os.environ["JP_USER_DATA_DIR"] = str(base / "jp")
    # A short path: the path of a socket is limited to 104 bytes.
    runtime = tempfile.mkdtemp(prefix="kb-")
    os.environ["XDG_RUNTIME_DIR"] = runtime
    os.environ["KBTUI_ENGINE_IDLE"] = "30"
    for variable in ("NO_COLOR", "KBTUI_MODEL"):
        os.environ.pop(variable, None)
    from kbtui.cli.main import main as kbtui
    from kbtui.cli.tui_start_commands import copy_demo_workspace

    root = copy_demo_workspace()
    TARGET.mkdir(parents=True, exist_ok=True)
    try:
        assert kbtui(["index", "-w", str(root)]) == 0
        for name in names:
            asyncio.run(take(name, SHOTS[name], root))
    finally:
        kbtui(["engine", "stop", "-w", str(root)])
        shutil.rmtree(runtime, ignore_errors=True)


if __name__ == "__main__":
    main()
