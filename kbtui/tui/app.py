"""The application class of the TUI, and the function that runs it."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.events import InputEvent, Key
from textual.filter import ANSIToTruecolor, LineFilter
from textual.theme import BUILTIN_THEMES, Theme

from kbtui.dates import Clock, get_current_local_time
from kbtui.errors import KbtuiError
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import cut_to_width, sanitize, sanitize_to_one_line, set_sanitize_policy
from kbtui.tui.framework.base_screens_and_widgets import StyledScreen
from kbtui.tui.framework.idle_garbage_collection import (
    IdleGarbageCollector,
    enable_garbage_collection_after_startup,
)
from kbtui.tui.framework.key_press_queue import KeyFollowUpMessage, KeyPressQueue
from kbtui.tui.main.main_screen import MainScreen
from kbtui.tui.terminal_setup import (
    StderrRedirect,
    exit_on_sigterm,
    exit_when_terminal_closes,
)
from kbtui.tui.theme import (
    DARK,
    LIGHT,
    THEMES,
    derive_readable_colors,
    get_light_or_dark_counterpart,
    load_user_themes,
)
from kbtui.tui.tui_command_table import parse_keymap_settings
from kbtui.workspace.paths import get_kbtui_config_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual import events
    from textual.await_complete import AwaitComplete

    from kbtui.library import Library
    from kbtui.references import Ref


DOUBLE_PRESS_SECONDS = 2.0
"""If the user presses ctrl+c twice within this many seconds, kbtui quits."""


class TuiStartOptions(NamedTuple):
    """Options for starting the TUI.

    * `first` is the reference to open if no saved session is restored.
    * `fresh` means that kbtui does not restore the saved session.
    * `plain` selects the layout for screen readers.
    * `dark` says whether the terminal's background is dark; None means that this is unknown.
    * `typed` is the text that the user typed during startup.
    """

    first: Ref | None = None
    fresh: bool = False
    plain: bool = False
    dark: bool | None = None
    typed: str = ""


class KbtuiApp(App[None]):
    """The Textual application."""

    CSS_PATH = "kbtui.tcss"
    TITLE = "kbtui"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(
        self,
        library: Library,
        open_ref: Ref | None = None,
        clock: Clock = get_current_local_time,
        redirect: StderrRedirect | None = None,
        start: TuiStartOptions | None = None,
    ) -> None:
        self.library = library
        self.clock = clock
        self.start = start or TuiStartOptions()
        self.plain = self.start.plain or library.settings.plain
        self.problems: list[str] = []
        """Messages about errors in the user's keys and themes, which the home page shows."""
        self._own_themes = {theme.name: theme for theme in THEMES}
        self._variables: dict[str, dict[str, str]] = {}
        """The CSS variables of each theme, by the name of the theme."""
        self._has_theme_ansi_colors: dict[str, bool] = {}
        # Set the theme before `super().__init__`, so that Textual computes styles only once.
        self.set_reactive(App.theme, self._load_themes_and_choose_one())
        super().__init__()
        for theme in self._own_themes.values():
            self.register_theme(theme)
        self._key_queue = KeyPressQueue(self)
        self._idle_collector = IdleGarbageCollector(self)
        self._stderr_redirect = redirect
        self._open_ref = open_ref
        self._last_quit = 0.0
        keymap = parse_keymap_settings(library.settings.keys)
        self.keys = keymap.keys
        self.set_keymap(keymap.textual_keymap)
        self.problems += [f"keys: {problem}" for problem in keymap.problems]
        if self.plain:
            self.animation_level = "none"

    def _load_themes_and_choose_one(self) -> str:
        """Load the user's themes, and return the name of the theme to use."""
        themes, problems = load_user_themes(Path(get_kbtui_config_directory(), "themes"))
        self._own_themes |= {theme.name: theme for theme in themes}
        self.problems += problems
        wanted = self.library.settings.theme
        known = {**BUILTIN_THEMES, **self._own_themes}
        if wanted and wanted not in known:
            from difflib import get_close_matches

            near = get_close_matches(wanted, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.problems.append(f"unknown theme {wanted!r}{hint}")
            wanted = ""
        return wanted or (LIGHT if self.start.dark is False else DARK)

    def get_theme(self, theme_name: str) -> Theme | None:
        """Return a theme by name, even before kbtui's themes are registered in Textual."""
        return self._own_themes.get(theme_name) or super().get_theme(theme_name)

    def get_css_variables(self) -> dict[str, str]:
        """Return the CSS variables of the current theme, including the `kb-…` colours of kbtui."""
        if self.theme not in self._variables:
            variables = super().get_css_variables()
            self._variables[self.theme] = {**derive_readable_colors(variables), **variables}
        self.theme_variables = self._variables[self.theme]
        return self.theme_variables

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's line filters.

        If the theme has no ANSI colours, the filter that converts them is left out.
        """
        filters = super().get_line_filters()
        if self.theme not in self._has_theme_ansi_colors:
            values = self.get_css_variables().values()
            self._has_theme_ansi_colors[self.theme] = any("ansi" in value for value in values)
        if self._has_theme_ansi_colors[self.theme]:
            return filters
        return [one for one in filters if not isinstance(one, ANSIToTruecolor)]

    def get_default_screen(self) -> MainScreen:
        """Return the main screen."""
        start = self.start
        screen = MainScreen(
            self.library, self.clock, self._open_ref, start.first, start.fresh, self.plain
        )
        screen.panes.set_screen_size_css_classes(self.size, update=False)
        return screen

    async def on_event(self, event: events.Event) -> None:
        """Handle an event, or queue it if it is a key that must wait for the previous key."""
        if isinstance(event, InputEvent):
            self._idle_collector.record_activity_and_schedule_collection()
            own_keys = ",".join(self.keys.values()).split(",")
            if isinstance(event, Key) and event.key == "ctrl+j" and "ctrl+j" not in own_keys:
                # Enter arrives as a line feed if it is pressed before the terminal is in raw mode.
                event = Key("enter", "\r")
        if self._key_queue.queue_key_if_busy(event):
            return
        is_new_key = isinstance(event, Key) and not event.is_forwarded
        if is_new_key and self.screen_stack and isinstance(self.screen, StyledScreen):
            self.screen.clear_unavailable_key_message()
        await super().on_event(event)

    def on_key_follow_up_message(self, event: KeyFollowUpMessage) -> None:
        self._key_queue.resume_keys_after_follow_up_message(event)

    def pop_screen(self) -> AwaitComplete:
        """Close the top screen. Keys that are still queued go to the screen below it."""
        closed = super().pop_screen()
        self._key_queue.resume_keys_after_closed_screen()
        return closed

    def on_ready(self) -> None:
        """Set up the garbage collector and the SIGTERM handler.

        Then handle the keys that were typed during startup.
        """
        enable_garbage_collection_after_startup()
        exit_on_sigterm(lambda: self.exit(return_code=128 + signal.SIGTERM))
        if self.start.typed:
            for message in XTermParser().feed(self.start.typed):
                self.post_message(message)

    async def action_quit(self) -> None:
        """Quit kbtui. If a screen refuses to close, show that screen instead.

        For example, a screen refuses if it has unwritten changes.
        """
        for screen in reversed(self.screen_stack):
            if isinstance(screen, StyledScreen) and not screen.can_close_or_ask_first():
                while self.screen is not screen:
                    await self.pop_screen()
                return
        await super().action_quit()

    def action_help_quit(self) -> None:
        """Quit at the second press of ctrl+c. Textual calls this method only if no text is selected."""
        if monotonic() - self._last_quit < DOUBLE_PRESS_SECONDS:
            self.call_later(self.action_quit)
            return
        self._last_quit = monotonic()
        screens = reversed(self.screen_stack)
        main = next((one for one in screens if isinstance(one, MainScreen)), None)
        if main is not None:
            main.status.flash_message("Nothing selected. Press Ctrl+C again to quit.")

    def action_switch_light_or_dark(self) -> None:
        self.theme = get_light_or_dark_counterpart(self.theme, self.current_theme.dark)

    def _fatal_error(self) -> None:
        """Log the traceback of a crash, and exit.

        The values of local variables are not logged, because they may contain what the user wrote.
        """
        from traceback import format_exc

        # Write to descriptor 2, which is the log file; `print` and `sys.stderr` would write to the screen.
        with suppress(OSError):
            os.write(2, sanitize(format_exc(), "strip").encode("utf-8", "replace"))
        self._close_messages_no_wait()

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Suspend the TUI during a `with` block, so that another program can use the terminal.

        In the block, standard error goes to the terminal instead of the log file.
        """
        redirect, failure = self._stderr_redirect, None
        with super().suspend():
            # Textual resumes only if its `with` block ends without an exception, so keep the exception and raise it afterwards.
            try:
                with redirect.restore_stderr_temporarily() if redirect else nullcontext():
                    # Textual removes NO_COLOR from the environment; the other program should see it.
                    os.environ.update({"NO_COLOR": "1"} if self.no_color else {})
                    yield
            except Exception as error:
                failure = error
            finally:
                os.environ.pop("NO_COLOR", None)
        if failure is not None:
            raise failure


def run_tui(
    library: Library, open_ref: Ref | None = None, start: TuiStartOptions | None = None
) -> int:
    """Run the TUI until the user quits, and return the exit code.

    Raises `KbtuiError` if the TUI crashed.
    """
    if library.settings.terminal_text != "strip":
        # The TUI treats the value "off" as "visualize", because escape sequences would garble the screen.
        set_sanitize_policy("visualize")
    start = start or TuiStartOptions()
    if sys.stdout.isatty():
        # Textual would use these variables instead of the terminal's real size, even after a resize.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
    redirect = StderrRedirect(library.workspace.engine_log_file.with_name("tui.log"))
    app = KbtuiApp(library, open_ref, redirect=redirect, start=start)
    redirect.redirect_stderr()
    exit_when_terminal_closes()
    try:
        app.run()
    finally:
        redirect.restore_stderr()
    if error := app._exception:
        raise KbtuiError(
            f"kbtui crashed: {type(error).__name__}: {cut_to_width(sanitize_to_one_line(str(error)), 200)}",
            hint="your files are safe; `kbtui log` prints the details for a bug report",
        ) from error
    return app.return_code or 0
