"""Saves the state of the TUI when the TUI exits, and restores it at the next start in the same workspace."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError, WorkspaceError
from kbtui.references import parse_ref
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.main.document_controller import MainScreenContext, NavigationHistory
from kbtui.tui.navigation_target import (
    HOME,
    PROMPT,
    NavigationTarget,
    ReadingPosition,
    make_navigation_target,
)
from kbtui.tui.search_pane import MODES
from kbtui.tui.topics_and_conversations_snapshot import (
    LastVisit,
    load_last_visit,
    save_end_of_workspace_visit,
)

if TYPE_CHECKING:
    from textual.timer import Timer

    from kbtui.library import Library
    from kbtui.tui.main.search_controller import SearchController

STATE_NAME = "tui"
"""The name under which the session of the TUI is stored in the user data."""
MAX_TARGETS = 50
"""The maximum number of places in the saved history. Those around the current place are kept."""
SAVE_SECONDS = 3.0
"""The delay in seconds before a changed session is saved."""


@dataclass(eq=False, repr=False)
class SavedTuiState:
    """The saved state of the TUI: the opened documents, and the arrangement of the panes."""

    history: NavigationHistory = field(default_factory=NavigationHistory)
    unfolded: list[str] | None = None
    """The keys of the library's unfolded rows.

    None if the session was saved before the library was loaded.
    """
    hidden: bool = False
    """Whether hidden subjects are shown."""
    folded: list[str] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    """The difference between each resized pane's width and its default width, in cells, by pane id."""
    theme: str = ""
    """The name of the theme that the user chose; "" if the user chose none."""
    mode: str = "hybrid"


def load_tui_state(library: Library) -> SavedTuiState | None:
    """Return the saved session, or None if no session is saved or if it cannot be parsed.

    Raises `WorkspaceError` if the file with the session cannot be read.
    """
    from kbtui.userdata.user_data_store import UserData

    try:
        state = UserData(library.workspace).load_front_end_state(STATE_NAME)
        return _parse_tui_state(state) if state else None
    except WorkspaceError:
        raise
    except (KbtuiError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def save_tui_state(library: Library, session: SavedTuiState) -> None:
    """Save a session. Errors are ignored, because kbtui can start without a saved session."""
    from kbtui.userdata.user_data_store import UserData

    state = vars(session).copy()
    history: NavigationHistory = state.pop("history")
    first = max(0, min(history.at - MAX_TARGETS // 2, len(history.targets) - MAX_TARGETS))
    targets = history.targets[first : first + MAX_TARGETS]
    state |= {
        "places": [_serialize_navigation_target(one) for one in targets],
        "at": history.at - first,
    }
    with suppress(KbtuiError, OSError, ValueError):
        UserData(library.workspace).save_front_end_state(STATE_NAME, state)


def _serialize_navigation_target(target: NavigationTarget) -> dict[str, object]:
    # Do not save the searched words: they belong only in the query log, which the user can delete.
    return {
        "key": target.key,
        "view": "read" if target.cite else target.view,
        "ref": str(target.ref) if target.ref else None,
        "mark": target.mark[:4] if target.mark else None,
    }


def _parse_tui_state(state: Any) -> SavedTuiState:
    parsed = [_parse_saved_target(found) for found in state["places"]]
    targets = [target for target in parsed if target is not None]
    unfolded = state.get("unfolded")
    return SavedTuiState(
        history=NavigationHistory(targets, min(int(state["at"]), len(targets) - 1)),
        unfolded=[str(key) for key in unfolded] if isinstance(unfolded, list) else None,
        hidden=bool(state.get("hidden")),
        folded=[str(name) for name in state.get("folded", ())],
        widths={str(name): int(cells) for name, cells in state.get("widths", {}).items()},
        theme=str(state.get("theme", "")),
        mode=str(state.get("mode", "hybrid")),
    )


def _parse_saved_target(state: Any) -> NavigationTarget | None:
    """Return a saved place, or None if its reference is missing or invalid."""
    mark = state.get("mark")
    target = {"home": HOME, "prompt": PROMPT}.get(str(state["key"]))
    if target is None:
        try:
            target = make_navigation_target(parse_ref(str(state.get("ref") or "")))
        except KbtuiError:
            return None
    reading_position = (
        ReadingPosition(str(mark[0]), int(mark[1]), int(mark[2]), int(mark[3])) if mark else None
    )
    return target._replace(view=str(state.get("view", "read")), mark=reading_position)


class SavedTuiStateManager:
    """Restores and saves the session of a workspace, unless the settings disable sessions."""

    def __init__(
        self,
        main: MainScreenContext,
        search: SearchController,
        first: NavigationTarget,
        reopen: bool,
        *,
        is_saved: bool = True,
    ) -> None:
        self._main = main
        self._search = search
        self._first = first
        """The place to show if no session is restored."""
        self._is_on = main.library.settings.session and is_saved
        self._must_reopen = reopen and self._is_on
        self._worker = LatestOnlyWorker(main.screen)
        self._save_timer: Timer | None = None
        self._first_theme = ""
        self._is_restored = False
        self._visit_worker = LatestOnlyWorker(main.screen)

    def read_last_visit_and_mark_news(self) -> None:
        """Read the last visit, and mark the entries that are new or have changed since then."""

        def show_news(visit: LastVisit | None) -> None:
            main = self._main
            main.document_controller.visit = main.panes.library.state.visit = visit
            if visit is not None:
                if main.panes.library.contents is not None:
                    main.panes.library.update_library_rows()
                if main.document_controller.shown and main.document_controller.shown.key == "home":
                    main.document_controller.reload_shown_document()

        if self._is_on:
            self._visit_worker.submit_call(lambda: load_last_visit(self._main.library), show_news)

    def load_session_and_open_saved_or_startup_target(self) -> None:
        """Restore the saved session.

        If there is no saved session, open the place that was passed to the constructor as `first`.
        """
        self._first_theme = self._main.screen.app.theme
        if self._must_reopen:
            self._worker.submit_call(
                lambda: load_tui_state(self._main.library),
                self._restore_session_or_open_startup_target,
                self._report_unreadable_tui_state,
            )
        else:
            self._restore_session_or_open_startup_target(None)

    def _report_unreadable_tui_state(self, error: Exception) -> None:
        self._restore_session_or_open_startup_target(None)
        if isinstance(error, WorkspaceError):
            text = "Bookmarks and saved searches cannot be read; `kbtui doctor` says why."
            self._main.status.flash_message(text, "warning")

    def _restore_session_or_open_startup_target(self, session: SavedTuiState | None) -> None:
        document_controller = self._main.document_controller
        if document_controller.history.targets:
            return  # The user has opened something while the session was loading.
        if session is not None:
            self._apply_tui_state(session)
        if current := document_controller.history.current_target:
            document_controller.restore_last_opened_target(current)
        else:
            document_controller.open_target_in_reader(self._first)

    def _apply_tui_state(self, session: SavedTuiState) -> None:
        self._is_restored = True
        main = self._main
        main.document_controller.history = session.history
        main.panes.library.state.hidden = session.hidden
        if session.unfolded is not None:
            main.panes.library.unfold_rows_of_saved_tui_state(session.unfolded)
        main.panes.restore_pane_layout(session.folded, session.widths)
        app = main.screen.app
        if session.theme in app.available_themes and not main.library.settings.theme:
            app.theme = session.theme
        if session.mode in MODES:
            self._search.set_search_mode(session.mode)

    def save_tui_state_soon(self) -> None:
        """Save the session after `SAVE_SECONDS`, so that little is lost if kbtui is killed."""
        if self._is_on and self._save_timer is None:
            self._save_timer = self._main.screen.set_timer(
                SAVE_SECONDS, self._save_tui_state_in_thread
            )

    def _save_tui_state_in_thread(self) -> None:
        self._save_timer = None
        library, session = self._main.library, self._collect_tui_state()
        self._worker.submit_call(lambda: save_tui_state(library, session))

    def save_tui_state_on_exit(self) -> None:
        """Save the session when the TUI exits, unless nothing in it is worth restoring.

        Nothing is worth restoring if the session is new, only one place was opened, and the user
        has not changed the panes or the theme.
        """
        if not self._is_on or not self._main.document_controller.history.targets:
            return
        self._save_time_of_leaving_and_contents()
        session = self._collect_tui_state()
        is_changed = session.folded or session.widths or session.theme
        if is_changed or self._is_restored or len(session.history.targets) > 1:
            save_tui_state(self._main.library, session)

    def _save_time_of_leaving_and_contents(self) -> None:
        """Save the current time and the library's contents, so that the next start can show what is new.

        Nothing is saved if the user only looked at the home page of a new workspace.
        """
        document_controller = self._main.document_controller
        has_read = any(target.ref for target in document_controller.history.targets)
        if document_controller.visit or has_read:
            save_end_of_workspace_visit(
                self._main.library, document_controller.clock(), document_controller.contents
            )

    def _collect_tui_state(self) -> SavedTuiState:
        main = self._main
        main.document_controller.save_reading_position_in_history()
        theme = main.screen.app.theme
        library = main.panes.library
        return SavedTuiState(
            history=main.document_controller.history,
            unfolded=sorted(library.state.unfolded) if library.contents is not None else None,
            hidden=library.state.hidden,
            folded=main.panes.folded_pane_ids,
            widths=dict(main.panes.extra_widths),
            theme=theme if theme != self._first_theme else "",
            mode=self._search.mode,
        )
