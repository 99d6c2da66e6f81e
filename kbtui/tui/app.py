"""The application: themes, the terminal, and the screen to begin with."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from textual.app import App

from kbtui.text import choose_policy
from kbtui.tui.clock import now
from kbtui.tui.screens.main import MainScreen
from kbtui.tui.terminal import Guard
from kbtui.tui.theme import DARK, LIGHT, THEMES, blended
from kbtui.tui.widgets.paint import RoleScreen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.clock import Clock


class KbApp(App[None]):
    """kbtui in the terminal."""

    CSS_PATH = "kbtui.tcss"
    TITLE = "kbtui"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(
        self,
        library: Library,
        open_ref: Ref | None = None,
        clock: Clock = now,
        guard: Guard | None = None,
    ) -> None:
        super().__init__()
        self.library = library
        self.clock = clock
        self._guard = guard
        self._open_ref = open_ref
        for theme in THEMES:
            self.register_theme(theme)
        wanted = library.settings.theme or DARK
        self.theme = wanted if wanted in self.available_themes else DARK

    def get_css_variables(self) -> dict[str, str]:
        """The theme's colours, and those of ours that are made of them."""
        variables = super().get_css_variables()
        return {**blended(variables), **variables}

    def get_default_screen(self) -> MainScreen:
        """The screen to begin with."""
        return MainScreen(self.library, self.clock, self._open_ref)

    async def action_quit(self) -> None:
        """Leave, unless a screen asks first; whatever stands over that one is closed."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, RoleScreen) and not screen.may_leave():
                while self.screen is not screen:
                    await self.pop_screen()
                return
        await super().action_quit()

    def action_help_quit(self) -> None:
        """ctrl+c does not leave; say what does."""
        if isinstance(self.screen, MainScreen):
            self.screen.status.flash("q leaves kbtui; ctrl+q does so from everywhere")

    def action_theme(self) -> None:
        """Change between the dark and the light theme."""
        self.theme = LIGHT if self.current_theme.dark else DARK

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


def run_tui(library: Library, open_ref: Ref | None = None) -> int:
    """Run the TUI until one leaves; gives the exit code."""
    if library.settings.terminal_text != "strip":
        # "off" is for what commands print: sequences in a file would tear the screen.
        choose_policy("visualize")
    guard = Guard(library.workspace.log_file.with_name("tui.log"))
    app = KbApp(library, open_ref, guard=guard)
    guard.set()
    try:
        app.run()
    finally:
        guard.lift()
    return app.return_code or 0
