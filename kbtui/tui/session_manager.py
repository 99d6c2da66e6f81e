"""Reopening the main screen as it was left, and remembering how it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.search.pane import MODES

if TYPE_CHECKING:
    from textual.timer import Timer

    from kbtui.tui.main.screen import MainScreen
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.session import SavedSession

KEPT_SECONDS = 3.0
"""So long after something changed it is written down, for when the end comes unasked."""


class SessionManager:
    """Keeps one screen's session; does nothing where the settings say so."""

    def __init__(self, screen: MainScreen, *, reopen: bool) -> None:
        self._screen = screen
        self._reopen = reopen
        self._on = screen.library.settings.session
        self._lane = LatestOnlyWorker(screen)
        self._timer: Timer | None = None
        self._theme_given = ""
        self._reopened = False

    def start(self, first: NavigationTarget) -> None:
        """Reopen what was left, else show `first`."""
        self._theme_given = self._screen.app.theme
        if not (self._on and self._reopen):
            self._begin(None, first)
            return
        from kbtui.tui.session import recall

        library = self._screen.library
        self._lane.submit(
            lambda: recall(library),
            lambda session: self._begin(session, first),
            lambda error: self._begin(None, first),
        )

    def _begin(self, session: SavedSession | None, first: NavigationTarget) -> None:
        screen = self._screen
        if screen.navigator.trail.places:
            return  # Somebody was faster, and opened something.
        if session is not None:
            self._restore(session)
        here = session.trail.here if session else None
        if here is None:
            screen.navigator.open(first)
        else:
            screen.navigator.resume(here)

    def _restore(self, session: SavedSession) -> None:
        self._reopened = True
        screen = self._screen
        screen.navigator.trail = session.trail
        screen.library_pane.state.hidden = session.hidden
        if session.expanded is not None:
            screen.library_pane.reopen(session.expanded)
        for name in session.folded:
            screen.add_class(f"no-{name}")
        if screen.pane in session.folded and not screen.has_class("-one"):
            screen.go("#document")  # what is hidden cannot keep the focus
        screen.widths.more = dict(session.widths)
        screen.widths.apply()
        if session.theme in screen.app.available_themes and not screen.library.settings.theme:
            screen.app.theme = session.theme
        if session.mode in MODES:
            screen.search_by(session.mode)

    # remembering

    def changed(self) -> None:
        """Something is otherwise: write it down in a while."""
        if self._on and self._timer is None:
            self._timer = self._screen.set_timer(KEPT_SECONDS, self._keep)

    def _keep(self) -> None:
        from kbtui.tui.session import keep

        self._timer = None
        session, library = self._session(), self._screen.library
        self._lane.submit(lambda: keep(library, session), lambda _: None, lambda _: None)

    def stop(self) -> None:
        """Write down how it was left, unless there is nothing to tell."""
        if not self._on or not self._screen.navigator.trail.places:
            return
        from kbtui.tui.session import keep

        session = self._session()
        told = session.folded or session.widths or session.theme
        if told or self._reopened or len(session.trail.places) > 1:
            keep(self._screen.library, session)

    def _session(self) -> SavedSession:
        from kbtui.tui.session import SavedSession

        screen = self._screen
        screen.navigator.leave()
        theme = screen.app.theme
        state = screen.library_pane.state
        known = screen.library_pane.contents is not None
        return SavedSession(
            trail=screen.navigator.trail,
            expanded=sorted(state.expanded) if known else None,
            hidden=state.hidden,
            folded=screen.folded,
            widths=dict(screen.widths.more),
            theme=theme if theme != self._theme_given else "",
            mode=screen.search.mode,
        )
