"""What the TUI remembers of a workspace from one time to the next, kept in the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError
from kbtui.refs import parse_ref
from kbtui.tui.navigation import HOME, PROMPT, NavigationHistory, NavigationTarget, place_of
from kbtui.tui.reader.viewport import ScrollAnchor

if TYPE_CHECKING:
    from kbtui.library import Library

NAME = "tui"
PLACES = 50
"""Places of the way back that are remembered."""


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


def recall(library: Library) -> SavedSession | None:
    """The session that was left; None where there is none or it cannot be read."""
    from kbtui.userdata import UserData

    try:
        state = UserData(library.workspace).remembered(NAME)
        return _read(state) if state else None
    except (KbtuiError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def keep(library: Library, session: SavedSession) -> None:
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


def _read(state: dict[str, Any]) -> SavedSession:
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
