"""Keeps the main screen up to date with the workspace's files and the engine's messages."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbtui.tui.framework.gc_tuning import freeze_if_grown
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.framework.styled_widget import StyledScreen
    from kbtui.tui.library_snapshot import LibrarySnapshot, SnapshotReader
    from kbtui.tui.main.navigator import Navigator
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.main.search_controller import SearchController
    from kbtui.tui.main.status_bar import StatusBar

TOUCHED_MOST = 500
"""The engine names at most this many changed conversations; then any may have changed."""

CHECK_SECONDS = 2.0
"""How often to check that the workspace is still there."""


class WorkspaceSync:
    """Listens to the engine, and reads the library's lists when files change."""

    def __init__(
        self,
        screen: StyledScreen,
        library: Library,
        panes: PaneLayout,
        navigator: Navigator,
        search: SearchController,
        status: StatusBar,
    ) -> None:
        self._screen = screen
        self._library = library
        self._panes = panes
        self._navigator = navigator
        self._search = search
        self._status = status
        self._snapshot_worker = LatestOnlyWorker(screen)
        self._details_worker = LatestOnlyWorker(screen)
        self._listen_worker = LatestOnlyWorker(screen)
        self._check_worker = LatestOnlyWorker(screen)
        self._is_gone = False
        self._stop: Callable[[], None] | None = None

    @cached_property
    def _reader(self) -> SnapshotReader:
        from kbtui.tui.library_snapshot import SnapshotReader

        return SnapshotReader(self._library)

    def start(self) -> None:
        """Read the lists and begin to listen, which starts the engine."""
        self.read()
        self._screen.set_interval(CHECK_SECONDS, self._check_workspace)
        self._listen_worker.submit(
            lambda: self._library.listen(self._receive),
            self._set_stop,
            lambda error: self._status.hear({"event": "gone", "reason": str(error)}),
        )

    def _set_stop(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def stop(self) -> None:
        """Stop listening."""
        if self._stop:
            self._stop()

    # whether the workspace is still there

    def _check_workspace(self) -> None:
        # In a thread, because a file system may be slow to answer.
        if not self._check_worker.busy:
            self._check_worker.submit(
                self._library.workspace.jp.is_dir,
                self._set_present,
                lambda error: self._set_present(False),
            )

    def _set_present(self, present: bool) -> None:
        if present == self._is_gone:
            self._is_gone = not present
            root = self._library.workspace.root
            gone = f"the workspace is gone: {root} was moved or deleted. What was read stays here."
            self._status.trouble("" if present else gone)
            if present:
                self.read()

    # the engine's messages

    def _receive(self, event: dict[str, Any]) -> None:
        """Called in the listener's thread."""
        self._screen.call_later(self.heard, event)

    def heard(self, event: dict[str, Any]) -> None:
        """Take in one of the engine's messages."""
        self._status.hear(event)
        self._search.say_waiting()
        answer = self._panes.results.answer
        if event.get("event") == "ready" and event.get("semantic") and answer and answer.degraded:
            # Semantic search is ready: refine what keywords found.
            self._search.again()
        if event.get("event") == "changed":
            self.read()
            self._screen.files_changed(event)

    @staticmethod
    def may_have_changed(ref: Ref | None, event: dict[str, Any]) -> bool:
        """Whether what `ref` names may have changed with this message."""
        if ref is None or ref.kind != "conversation":
            return True
        touched = event.get("conversations") or []
        return ref.conversation in touched or len(touched) >= TOUCHED_MOST

    # the library's lists

    def read(self) -> None:
        """Read the lists, and show them."""
        self._status.doing("lists", "reading lists …")
        self._details_worker.forget()
        self._snapshot_worker.submit(self._read_snapshot, self._receive_snapshot, self._fail)

    def _read_snapshot(self) -> LibrarySnapshot | None:
        """Called in a thread; without a workspace, empty lists would say that it holds nothing."""
        return self._reader.read() if self._library.workspace.jp.is_dir() else None

    def _receive_snapshot(self, snapshot: LibrarySnapshot | None) -> None:
        self._status.doing("lists", None)
        if snapshot is None:
            self._set_present(False)
            return
        subjects = sum(len(shelf.subjects) for shelf in snapshot.shelves)
        freeze_if_grown(subjects + len(snapshot.conversations))
        self._show(snapshot)

    def _show(self, snapshot: LibrarySnapshot) -> None:
        self._navigator.contents = snapshot
        self._panes.library.update(snapshot)
        if self._navigator.shown and self._navigator.shown.key == "home":
            self._navigator.reload()
        if snapshot.unread:
            self._read_details(snapshot)

    def _read_details(self, snapshot: LibrarySnapshot) -> None:
        """Read the conversations whose details only some filters need."""
        self._details_worker.submit(
            lambda: self._reader.read_on(snapshot), self._receive_details, self._fail
        )

    def _receive_details(self, snapshot: LibrarySnapshot) -> None:
        before, self._navigator.contents = self._navigator.contents, snapshot
        library = self._panes.library
        if snapshot.unread and not library.waits_for_traits:
            self._read_details(snapshot)
        elif before is None or snapshot.conversations != before.conversations or snapshot.unread:
            self._show(snapshot)
        else:
            library.learn(snapshot)

    def _fail(self, error: Exception) -> None:
        self._status.doing("lists", None)
        self._status.flash(f"the lists cannot be read: {error}", "error")
