"""The way from the main screen to entries, sources and insights, and back with what to open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.refs import parse_ref
from kbtui.tui.navigation import place_of

if TYPE_CHECKING:
    from kbtui.refs import Ref
    from kbtui.tui.app import KbApp
    from kbtui.tui.main.screen import MainScreen


def open_platform(app: KbApp, name: str) -> None:
    """Open `entries`, `sources` or `insights`, write a `new` entry, or `export` a conversation."""
    from kbtui.tui.main.screen import MainScreen

    main = next(screen for screen in app.screen_stack if isinstance(screen, MainScreen))
    if app.screen is not main:
        return
    if name == "new":
        _new(app, main)
    elif name == "export":
        from kbtui.tui.conversation_export import export

        export(app, main)
    else:
        _push(app, main, name)


def _push(app: KbApp, main: MainScreen, name: str) -> None:
    def left(ref: Ref | None) -> None:
        if ref is not None:
            main.open(place_of(ref))

    if name == "entries":
        from kbtui.tui.entries.screen import EntriesScreen

        app.push_screen(EntriesScreen(app.library, app.clock), left)
    elif name == "sources":
        from kbtui.tui.sources.screen import SourcesScreen

        app.push_screen(SourcesScreen(app.library, app.clock), left)
    else:
        from kbtui.tui.insights.screen import InsightsScreen

        app.push_screen(InsightsScreen(app.library, app.clock), left)


def _new(app: KbApp, main: MainScreen) -> None:
    from kbtui.tui.entries.editor import EntryWriter

    def wrote(ref: str) -> None:
        main.open(place_of(parse_ref(ref, lambda topic, slug: f"{topic}/{slug}" == ref)))

    EntryWriter(main, app.library, main.status.flash, wrote).new()
