"""The application: themes, the terminal, and the screen to begin with."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.app import App
from textual.events import InputEvent, Key
from textual.filter import ANSIToTruecolor
from textual.theme import BUILTIN_THEMES

from kbtui.dates import get_local_time
from kbtui.errors import KbtuiError
from kbtui.text import cut_to_width, one_line, sanitize, set_policy
from kbtui.tui.framework.gc_tuning import IdleCollector, start_gc
from kbtui.tui.framework.key_queue import KeyFollowUp, KeyQueue
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.main.screen import MainScreen
from kbtui.tui.terminal import StderrRedirect, end_with_terminal, leave_when_told
from kbtui.tui.theme import DARK, LIGHT, THEMES, blended, partner
from kbtui.workspace.paths import config_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual import events
    from textual.await_complete import AwaitComplete
    from textual.filter import LineFilter
    from textual.theme import Theme

    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.refs import Ref


TWICE_SECONDS = 2.0


class Start(NamedTuple):
    """How to begin.

    `first` is shown where no session is remembered; `fresh` does not reopen one; `plain` draws
    for a screen reader. `dark` is whether the terminal's background is, None when nobody knows;
    `typed` is what came in while that was asked.
    """

    first: Ref | None = None
    fresh: bool = False
    plain: bool = False
    dark: bool | None = None
    typed: str = ""


class KbApp(App[None]):
    """kbtui in the terminal."""

    CSS_PATH = "kbtui.tcss"
    TITLE = "kbtui"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(
        self,
        library: Library,
        open_ref: Ref | None = None,
        clock: Clock = get_local_time,
        guard: StderrRedirect | None = None,
        start: Start | None = None,
    ) -> None:
        self.library = library
        self.clock = clock
        self.start = start or Start()
        self.plain = self.start.plain or library.settings.plain
        self.problems: list[str] = []
        """What is wrong with the person's own keys and themes, for the home page."""
        self._own_themes = {theme.name: theme for theme in THEMES}
        self._variables: dict[str, dict[str, str]] = {}
        self._replaces: dict[str, bool] = {}
        """Theme -> whether it has any of the terminal's own colours."""
        # Chosen before anything is made with another one's colours, and made again.
        self.set_reactive(App.theme, self._choose_theme())
        super().__init__()
        for theme in self._own_themes.values():
            self.register_theme(theme)
        self._ahead = KeyQueue(self)
        self._rests = IdleCollector(self)
        self._guard = guard
        self._open_ref = open_ref
        self._last_quit = 0.0
        self.keys: dict[str, str] = {}
        self._take_keys()
        if self.plain:
            self.animation_level = "none"

    def _take_keys(self) -> None:
        """Use the keys of the configuration, as far as they can be used."""
        if table := self.library.settings.keys:
            from kbtui.tui.commands import read_keymap

            keymap = read_keymap(table)
            self.keys = keymap.keys
            self.set_keymap(keymap.textual)
            self.problems += [f"keys: {problem}" for problem in keymap.problems]

    def _choose_theme(self) -> str:
        """Read the person's own themes; gives the name of the one to begin with."""
        directory = Path(config_home(), "themes")
        if directory.is_dir():
            from kbtui.tui.theme import user_themes

            themes, problems = user_themes(directory)
            self._own_themes |= {theme.name: theme for theme in themes}
            self.problems += problems
        wanted = self.library.settings.theme
        known = {**BUILTIN_THEMES, **self._own_themes}
        if wanted and wanted not in known:
            from difflib import get_close_matches

            near = get_close_matches(wanted, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.problems.append(f"there is no theme {wanted!r}{hint}")
            wanted = ""
        return wanted or (LIGHT if self.start.dark is False else DARK)

    def get_theme(self, theme_name: str) -> Theme | None:
        """The theme of that name: asked for with every line that is drawn, so no list is made."""
        return self._own_themes.get(theme_name) or super().get_theme(theme_name)

    def get_css_variables(self) -> dict[str, str]:
        """The theme's colours, and those of ours that are made of them."""
        found = self._variables.get(self.theme)
        if found is None:
            variables = super().get_css_variables()
            found = self._variables[self.theme] = {**blended(variables), **variables}
        self.theme_variables = found
        return found

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line passes before it is drawn.

        A theme of colours has none of the terminal's own, so none is looked for.
        """
        filters = super().get_line_filters()
        replaces = self._replaces.get(self.theme)
        if replaces is None:
            values = self.get_css_variables().values()
            replaces = self._replaces[self.theme] = any("ansi" in value for value in values)
        if replaces:
            return filters
        return [one for one in filters if not isinstance(one, ANSIToTruecolor)]

    def get_default_screen(self) -> MainScreen:
        """The screen to begin with."""
        start = self.start
        screen = MainScreen(
            self.library, self.clock, self._open_ref, start.first, start.fresh, self.plain
        )
        screen.fit(self.size)
        return screen

    async def on_event(self, event: events.Event) -> None:
        """Hand out one key after another: see `Ahead`."""
        if isinstance(event, InputEvent):
            self._rests.note_activity()
            event = self._entered(event)
        if not self._ahead.try_hold(event):
            await super().on_event(event)

    def _entered(self, event: InputEvent) -> InputEvent:
        """Enter for the line feed that a terminal made of it before the screen was there.

        So `ctrl+j` is Enter, as in a shell, unless the configuration gives it to a command.
        """
        if not isinstance(event, Key) or event.key != "ctrl+j":
            return event
        own = any("ctrl+j" in keys.split(",") for keys in self.keys.values())
        return event if own else Key("enter", "\r")

    def on_key_follow_up(self, event: KeyFollowUp) -> None:
        """What a key set off has happened."""
        self._ahead.handle_follow_up(event)

    def pop_screen(self) -> AwaitComplete:
        """Close the screen on top; what was typed since goes to the one below."""
        closed = super().pop_screen()
        self._ahead.handle_closed_screen()
        return closed

    def on_ready(self) -> None:
        """Hand out what was typed before the screen was there."""
        start_gc()
        leave_when_told(lambda: self.exit(return_code=128 + signal.SIGTERM))
        if self.start.typed:
            from textual._xterm_parser import XTermParser

            for message in XTermParser().feed(self.start.typed):
                self.post_message(message)

    async def action_quit(self) -> None:
        """Leave, unless a screen asks first; whatever stands over that one is closed."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, StyledScreen) and not screen.can_leave():
                while self.screen is not screen:
                    await self.pop_screen()
                return
        await super().action_quit()

    def action_help_quit(self) -> None:
        """ctrl+c copies what is selected; with nothing selected it leaves when pressed twice."""
        if monotonic() - self._last_quit < TWICE_SECONDS:
            self.call_later(self.action_quit)
            return
        self._last_quit = monotonic()
        main = next((one for one in self.screen_stack if isinstance(one, MainScreen)), None)
        if main is not None:
            main.status.flash("nothing is selected to copy; ctrl+c again leaves kbtui, as q does")

    def action_theme(self) -> None:
        """Change between the dark and the light theme."""
        self.theme = partner(self.theme, self.current_theme.dark)

    def _fatal_error(self) -> None:
        """End over a mistake of kbtui's: the log gets where, without the texts that were at hand."""
        from traceback import format_exc

        # Standard error is Textual's to draw on, and what is printed is Textual's too.
        with suppress(OSError):
            os.write(2, sanitize(format_exc(), "strip").encode("utf-8", "replace"))
        self._close_messages_no_wait()

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Lend the terminal to another program, with a standard error of its own."""
        guard = self._guard
        with super().suspend():
            if guard is None:
                yield
                return
            with guard.aside():
                yield


def run_tui(library: Library, open_ref: Ref | None = None, start: Start | None = None) -> int:
    """Run the TUI until one leaves; gives the exit code.

    Raises `KbtuiError` where it ended over a mistake of kbtui's own.
    """
    if library.settings.terminal_text != "strip":
        # "off" is for what commands print: sequences in a file would tear the screen.
        set_policy("visualize")
    start = start or Start()
    if not library.settings.theme:
        from kbtui.tui.terminal import ask_background

        found = ask_background()
        start = start._replace(dark=found.dark, typed=found.typed)
    if sys.stdout.isatty():
        # The size is the terminal's, which changes; these would stay as they were when exported.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
    guard = StderrRedirect(library.workspace.log_file.with_name("tui.log"))
    app = KbApp(library, open_ref, guard=guard, start=start)
    guard.set()
    end_with_terminal()
    try:
        app.run()
    finally:
        guard.lift()
    if error := app._exception:
        raise KbtuiError(
            f"the screen ended over a mistake of kbtui's own: {type(error).__name__}: {cut_to_width(one_line(str(error)), 200)}",
            hint="nothing of yours is lost; `kbtui log` prints what a report needs",
        ) from error
    return app.return_code or 0
