"""The session of a workspace: saved in the user data, and reopened the next time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError
from kbtui.refs import parse_ref
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.navigation_target import (
    HOME,
    PROMPT,
    NavigationHistory,
    NavigationTarget,
    ScrollAnchor,
    place_of,
)
from kbtui.tui.search_pane import MODES

if TYPE_CHECKING:
    from textual.timer import Timer

    from kbtui.library import Library
    from kbtui.tui.framework.styled_widget import StyledScreen
    from kbtui.tui.main.navigator import Navigator
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.main.search_controller import SearchController, SearchView

NAME = "tui"
PLACES = 50
"""Places of the history that are saved."""
SAVE_SECONDS = 3.0
"""Seconds from a change until the session is saved."""


@dataclass
class SavedSession:
    """Where one was, and how the screen was set.

    `widths` are cells that a pane has more (or fewer) than usual, by pane; `folded` are
    panes that were folded away; `theme` is one that was chosen, "" for none.
    """

    trail: NavigationHistory = field(default_factory=NavigationHistory)
    expanded: list[str] | None = None
    hidden: bool = False
    folded: list[str] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    theme: str = ""
    mode: str = "hybrid"


def load_session(library: Library) -> SavedSession | None:
    """The session that was left; None where there is none or it cannot be read."""
    from kbtui.userdata import UserData

    try:
        state = UserData(library.workspace).remembered(NAME)
        return _parse_session(state) if state else None
    except (KbtuiError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def save_session(library: Library, session: SavedSession) -> None:
    """Remember a session; what goes wrong is dropped, because nothing depends on it."""
    from kbtui.userdata import UserData

    try:
        UserData(library.workspace).remember(NAME, _state(session))
    except (KbtuiError, OSError, ValueError):
        return


def _state(session: SavedSession) -> dict[str, Any]:
    trail = session.trail
    first = max(0, min(trail.at - PLACES // 2, len(trail.places) - PLACES))
    places = trail.places[first : first + PLACES]
    return {
        "places": [_place_state(place) for place in places],
        "at": trail.at - first,
        "expanded": session.expanded,
        "hidden": session.hidden,
        "folded": session.folded,
        "widths": session.widths,
        "theme": session.theme,
        "mode": session.mode,
    }


def _place_state(place: NavigationTarget) -> dict[str, Any]:
    mark = place.mark
    # Words that were searched for belong to the query log, which can be erased.
    return {
        "key": place.key,
        "view": place.view,
        "ref": str(place.ref) if place.ref else None,
        "mark": [mark.key, mark.block, mark.line, mark.letters] if mark else None,
    }


def _parse_session(state: dict[str, Any]) -> SavedSession:
    places = [_place(found) for found in state["places"]]
    kept = [place for place in places if place is not None]
    at = min(int(state["at"]), len(kept) - 1)
    expanded = state.get("expanded")
    return SavedSession(
        trail=NavigationHistory(kept, at) if kept else NavigationHistory(),
        expanded=[str(key) for key in expanded] if isinstance(expanded, list) else None,
        hidden=bool(state.get("hidden")),
        folded=[str(name) for name in state.get("folded", ())],
        widths={str(name): int(cells) for name, cells in state.get("widths", {}).items()},
        theme=str(state.get("theme", "")),
        mode=str(state.get("mode", "hybrid")),
    )


def _place(state: dict[str, Any]) -> NavigationTarget | None:
    """The place again; None for one that has no reference to find it by."""
    key, mark = str(state["key"]), state.get("mark")
    place = {"home": HOME, "prompt": PROMPT}.get(key)
    if place is None:
        if not state.get("ref"):
            return None
        try:
            place = place_of(parse_ref(str(state["ref"])))
        except KbtuiError:
            return None
    found = ScrollAnchor(str(mark[0]), int(mark[1]), int(mark[2]), int(mark[3])) if mark else None
    return place._replace(view=str(state.get("view", "read")), mark=found)


class SessionManager:
    """Reopens the session of a workspace and saves it, unless the settings say otherwise."""

    def __init__(
        self,
        screen: StyledScreen,
        library: Library,
        panes: PaneLayout,
        navigator: Navigator,
        search: SearchController,
        search_view: SearchView,
        *,
        reopen: bool,
    ) -> None:
        self._screen = screen
        self._library = library
        self._panes = panes
        self._navigator = navigator
        self._search = search
        self._search_view = search_view
        self._reopen = reopen
        self._is_on = library.settings.session
        self._worker = LatestOnlyWorker(screen)
        self._timer: Timer | None = None
        self._first_theme = ""
        self._is_reopened = False

    def start(self, first: NavigationTarget) -> None:
        """Reopen the saved session, else show `first`."""
        self._first_theme = self._screen.app.theme
        if not (self._is_on and self._reopen):
            self._begin(None, first)
            return
        self._worker.submit(
            lambda: load_session(self._library),
            lambda session: self._begin(session, first),
            lambda error: self._begin(None, first),
        )

    def _begin(self, session: SavedSession | None, first: NavigationTarget) -> None:
        if self._navigator.trail.places:
            return  # something was opened while the session was loaded
        if session is not None:
            self._restore(session)
        here = session.trail.here if session else None
        if here is None:
            self._navigator.open(first)
        else:
            self._navigator.resume(here)

    def _restore(self, session: SavedSession) -> None:
        self._is_reopened = True
        self._navigator.trail = session.trail
        self._panes.library.state.hidden = session.hidden
        if session.expanded is not None:
            self._panes.library.reopen(session.expanded)
        self._panes.restore(session.folded, session.widths)
        app = self._screen.app
        if session.theme in app.available_themes and not self._library.settings.theme:
            app.theme = session.theme
        if session.mode in MODES:
            self._search_view.set_mode(session.mode)

    def changed(self) -> None:
        """Save the session soon, in case kbtui is killed."""
        if self._is_on and self._timer is None:
            self._timer = self._screen.set_timer(SAVE_SECONDS, self._save_in_thread)

    def _save_in_thread(self) -> None:
        self._timer = None
        session = self._session()
        self._worker.submit(
            lambda: save_session(self._library, session), lambda _: None, lambda _: None
        )

    def stop(self) -> None:
        """Save the session, unless there is nothing worth it."""
        if not self._is_on or not self._navigator.trail.places:
            return
        session = self._session()
        changed = session.folded or session.widths or session.theme
        if changed or self._is_reopened or len(session.trail.places) > 1:
            save_session(self._library, session)

    def _session(self) -> SavedSession:
        self._navigator.leave()
        theme = self._screen.app.theme
        library = self._panes.library
        return SavedSession(
            trail=self._navigator.trail,
            expanded=sorted(library.state.expanded) if library.contents is not None else None,
            hidden=library.state.hidden,
            folded=self._panes.folded,
            widths=dict(self._panes.extra_widths),
            theme=theme if theme != self._first_theme else "",
            mode=self._search.mode,
        )
