"""Helpers of TUI tests: a fixed clock, no engine, waiting for states, reading the screen."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from support import FIRST_ID, Builder, asked, called, said
from textual._compositor import Compositor
from textual._xterm_parser import XTermParser
from textual.css.stylesheet import Stylesheet
from textual.geometry import Region
from textual.pilot import Pilot

from kbtui.engine.engine_launcher import EngineNotRunningError
from kbtui.errors import EngineUnavailableError
from kbtui.library import Library
from kbtui.references import Ref
from kbtui.tui.app import KbtuiApp, TuiStartOptions
from kbtui.tui.main.main_screen import MainScreen
from kbtui.workspace import load_settings

# The day after the conversations that `Builder` writes.
PRESENT = datetime.fromtimestamp(FIRST_ID / 10 + 86_400, UTC).replace(hour=12, minute=0)


PARSE_RULES = Stylesheet._parse_rules
PARSED: dict[object, Any] = {}


def parse_rules_once(sheet: Stylesheet, css: str, **place: Any) -> Any:
    """Parse styles as Textual does, but only once for all applications of this process."""
    key = (css, frozenset(place.items()), frozenset(sheet._variables.items()))
    if key not in PARSED:
        PARSED[key] = PARSE_RULES(sheet, css, **place)
    return PARSED[key]


async def wait_for_busy_pumps(pilot: Pilot[None], timeout: float = 30.0) -> bool:
    """Wait until what is queued has been processed, as Textual does, but ask only those that are busy.

    Textual sends a message to each widget, also to those that wait for one.
    """
    app = pilot.app
    if not app.screen_stack:
        return False
    pumps = [app, *app.screen.walk_children(with_self=True)]
    left = 0
    done = asyncio.Event()

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done.set()

    for pump in pumps:
        queue = pump._message_queue
        if not queue.empty() or not queue.ready_event._waiters:
            left += pump.call_later(count_down)
    if left:
        waits = [asyncio.ensure_future(one.wait()) for one in (done, app._exception_event)]
        finished, pending = await asyncio.wait(
            waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        for wait in pending:
            wait.cancel()
        assert finished, "a widget did not come to the end of its messages"
    return left == 0


def clock() -> datetime:
    return PRESENT


class WithoutEngine(Library):
    """A library whose engine cannot be started.

    Keyword search then works on a private index, made when it is first needed.
    """

    def connect_engine(self, *, start: bool = True) -> Any:
        raise (EngineUnavailableError if start else EngineNotRunningError)("not in this test")


def with_keys(builder: Builder, keys: dict[str, Any]) -> WithoutEngine:
    """Return a library whose settings have these keys: command id -> key or keys."""
    return WithoutEngine(builder.workspace, load_settings()._replace(keys=keys))


class Tui:
    """A running application, with methods to use and to read its screen."""

    def __init__(self, app: KbtuiApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self._painted: object = None

    @property
    def main(self) -> MainScreen:
        screen = next(s for s in self.app.screen_stack if isinstance(s, MainScreen))
        return screen

    @property
    def text(self) -> str:
        """The lines of the screen, without trailing spaces."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(s.text for s in strip).rstrip() for strip in strips)

    def paint(self) -> None:
        """Render what changed since the last time on the screen that is seen."""
        self._painted = self.app.screen
        compositor = self.app.screen._compositor
        if regions := compositor._dirty_regions.copy():
            compositor._dirty_regions.clear()
            for _ in compositor._get_renders(Region.from_union(regions)):
                pass

    def _paint_opened_screen(self) -> None:
        """Render a secondary screen when it is opened, so that an error in painting it fails the test.

        The main screen is painted at the end.
        """
        if self.app.screen is not self._painted and not isinstance(self.app.screen, MainScreen):
            self.paint()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()
        self._paint_opened_screen()

    async def type(self, text: str) -> None:
        """Type a text as fast as a terminal passes it on; `press` waits after each key."""
        for event in XTermParser().feed(text):
            self.app.post_message(event)
        await self.pilot.pause()
        self._paint_opened_screen()

    async def until(self, condition: str | Callable[[], Any], seconds: float = 30.0) -> None:
        """Wait until a text is on the screen, or a condition is true.

        Each look renders the screen, so a long wait has few.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        pause = 0.01
        while not (condition in self.text if isinstance(condition, str) else condition()):
            assert loop.time() < end, f"never: {condition!r}\n{self.text}"
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, 0.1)
        await self.pilot.pause()
        self._paint_opened_screen()

    async def until_hits(self) -> None:
        """Wait until the results pane shows hits. Before them, it shows suggestions."""
        pane = self.main.results_pane
        await self.until(lambda: pane.list.rows and not pane.is_showing_suggestions)

    async def open(self, ref: str) -> None:
        """Open a reference as the palette does, and wait until it is shown."""
        from kbtui.tui.navigation_target import make_navigation_target

        place = make_navigation_target(self.app.library.parse_entered_reference(ref))
        self.main.open_target_in_reader(place)
        await self.until(lambda: self.main.document_controller.shown == place)
        await self.until(lambda: self.main.reader_pane.document_view.document.key == place.key)

    def rows(self, name: str) -> list[str]:
        """Return the first line of each row of a list."""
        from kbtui.tui.framework.row_list import RowList

        found = self.main.query_one(f"#{name}", RowList)
        return ["".join(text for text, _ in [*row.left, *row.right]).strip() for row in found.rows]


@asynccontextmanager
async def running(
    root: Path,
    size: tuple[int, int] = (120, 40),
    open_ref: Ref | None = None,
    library: Library | None = None,
    start: TuiStartOptions | None = None,
    now: Callable[[], datetime] = clock,
) -> AsyncIterator[Tui]:
    """Run the application on a workspace; yields when the lists were read.

    Nobody sees the headless screen between two steps of a test, so it is not painted sixty times a
    second, but when the test reads it, when a secondary screen opens, and at the end; and Textual looks
    every 4 ms, not every 20, whether it is idle.
    All applications have the same styles, which are parsed for the first one.
    """
    from kbtui.workspace import open_workspace_at_root

    library = library or WithoutEngine(open_workspace_at_root(root), load_settings())
    app = KbtuiApp(library, open_ref, now, start=start or TuiStartOptions(fresh=True))
    app.animation_level = "none"
    quick = ExitStack()
    quick.enter_context(mock.patch.object(Compositor, "render_update", return_value=None))
    quick.enter_context(mock.patch.object(Stylesheet, "_parse_rules", parse_rules_once))
    quick.enter_context(mock.patch("textual.screen.UPDATE_PERIOD", 1 / 120))
    quick.enter_context(mock.patch("textual._wait.SLEEP_GRANULARITY", 1 / 250))
    quick.enter_context(mock.patch("textual._wait.SLEEP_IDLE", 1 / 2500))
    quick.enter_context(mock.patch.object(Pilot, "_wait_for_screen", wait_for_busy_pumps))
    try:
        async with app.run_test(size=size) as pilot:
            tui = Tui(app, pilot)
            await tui.until(lambda: tui.main.library_pane.contents is not None)
            await tui.until(lambda: tui.main.document_controller.shown is not None)
            if open_ref is None:
                document = tui.main.reader_pane.document_view
                await tui.until(
                    lambda: document.document.find_block_index_by_key("loading") is None
                )
            yield tui
            if app.is_running:
                tui.paint()
                app.exit()
    finally:
        quick.close()
        library.close()


SNAPSHOTS = Path(__file__).parent / "snapshots"


def matches_snapshot(name: str, text: str) -> None:
    """Compare a screen with its golden file; KBTUI_UPDATE_SNAPSHOTS=1 rewrites it."""
    path = SNAPSHOTS / f"{name}.txt"
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE) + "\n"
    if os.environ.get("KBTUI_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no snapshot {name}; make it with KBTUI_UPDATE_SNAPSHOTS=1"
    assert text == path.read_text(), f"the screen is not as in snapshots/{name}.txt:\n{text}"


def handbook(builder: Builder) -> Builder:
    """Add one of everything that the library marks to a workspace."""
    builder.topics(
        project={
            "title": "Project Handbook",
            "introduction": "what everybody here should know",
            "learned": ["style"],
            "disabled": ["old"],
        },
        snippets={"title": "Snippets"},
    )
    builder.subject(
        "project/start.md",
        "---\ntitle: Getting started\ntype: note\ntags: [first, steps]\n---\n"
        "# Getting started\n\nClone, build, **run**. See `make help`.\n\n"
        "| step | command |\n|---|---|\n| build | `make` |\n| test | `make test` |\n\n"
        "1. Read the [style](style.md).\n2. Ask.\n\n```python\ndef main() -> int:\n    return 0\n```\n",
    )
    builder.subject("project/style.md", "# Style\n\nShort sentences. No tabs.\n")
    builder.subject("project/old.md", "# Old\n\nNobody should read this.\n")
    builder.subject("project/.secret.md", "# Secret\n\nHidden words: hippopotamus.\n")
    builder.subject("project/people/ada.md", "# Ada\n\nWrote the first program.\n")
    (builder.root / "Makefile").write_text("all:\n\tcc\n")
    builder.subject("snippets/retry.toml", "[retry]\ntimes = 3\nwait = 'long'\n")
    builder.conversation(
        1,
        [
            [
                asked("How do I start?\nTell me."),
                {"type": "chat_response", "reasoning": "The user is new here. Look it up."},
                *called("a", "learn", "# Getting started", topic="project", subjects="start"),
                *called("b", "fs_read_file", "all:\n\tcc", path="Makefile"),
                *called("c", "shell", "no such target", error=True, command="make hepl"),
                said("Run `make`, then read **style**."),
            ],
            [asked("And the tests?"), said("`make test`.")],
            [asked("Thanks."), said("You are welcome.")],
        ],
        title="First steps",
    )
    builder.conversation(2, [[asked("Retry how often?"), said("Three times.")]], title="Retries")
    builder.conversation(
        3,
        [[asked("Pin me"), said("Done.")]],
        title="Pinned talk",
        metadata={"pinned_at": "2026-05-01 10:00:00.0"},
    )
    builder.conversation(4, [[asked("Old"), said("Very.")]], title="Old talk", archived=True)
    broken = builder.conversation(5, [[asked("x"), said("y")]], title="Broken talk")
    (broken / "events.json").write_text("[{")
    return builder
