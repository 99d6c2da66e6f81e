"""Keeping up with the files: the engine's messages, and the lists read anew."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbtui.tui.framework.gc_tuning import settle
from kbtui.tui.framework.workers import LatestOnlyWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.refs import Ref
    from kbtui.tui.library.snapshot import LibrarySnapshot, SnapshotReader
    from kbtui.tui.main.screen import MainScreen

TOUCHED_MOST = 500
"""The engine names at most so many changed conversations; then any may have changed."""

LOOK_SECONDS = 2.0
"""How often it is looked whether the workspace is still there."""


class WorkspaceSync:
    """Listens to the engine for the main screen, and reads for it what changed."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._contents_lane = LatestOnlyWorker(screen)
        self._rest_lane = LatestOnlyWorker(screen)
        self._listen_lane = LatestOnlyWorker(screen)
        self._look_lane = LatestOnlyWorker(screen)
        self._gone = False
        self._stop: Callable[[], None] | None = None
        self.contents: LibrarySnapshot | None = None

    @cached_property
    def _reader(self) -> SnapshotReader:
        from kbtui.tui.library.snapshot import SnapshotReader

        return SnapshotReader(self._screen.library)

    def start(self) -> None:
        """Read the lists, and begin to listen; that starts the engine."""
        self.read()
        self._screen.set_interval(LOOK_SECONDS, self._look)
        library, status = self._screen.library, self._screen.status
        self._listen_lane.submit(
            lambda: library.listen(self._hear),
            self._listening,
            lambda error: status.hear({"event": "gone", "reason": str(error)}),
        )

    def _listening(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def _look(self) -> None:
        """See whether the workspace is still there; a file system may be slow to say."""
        jp = self._screen.library.workspace.jp
        if not self._look_lane.busy:
            self._look_lane.submit(jp.is_dir, self._there, lambda error: self._there(False))

    def _there(self, there: bool) -> None:
        if there == self._gone:
            root = self._screen.library.workspace.root
            self._gone = not there
            said = f"the workspace is gone: {root} was moved or deleted. What was read stays here."
            self._screen.status.trouble("" if there else said)
            if there:
                self.read()

    def stop(self) -> None:
        """Hear no more."""
        if self._stop:
            self._stop()

    def _hear(self, event: dict[str, Any]) -> None:
        """Called in the listener's thread."""
        self._screen.call_later(self.heard, event)

    def heard(self, event: dict[str, Any]) -> None:
        """Take in one of the engine's messages."""
        screen = self._screen
        screen.status.hear(event)
        screen.search.say_waiting()
        answer = screen.results_pane.answer
        if event.get("event") == "ready" and event.get("semantic") and answer and answer.degraded:
            # Meaning can be searched now: what keywords found is refined.
            screen.search.again()
        if event.get("event") == "changed":
            self.read()
            screen.files_changed(event)

    def touches(self, ref: Ref | None, event: dict[str, Any]) -> bool:
        """Whether what `ref` names may have changed with this message."""
        if ref is None or ref.kind != "conversation":
            return True
        touched = event.get("conversations") or []
        return ref.conversation in touched or len(touched) >= TOUCHED_MOST

    def read(self) -> None:
        """Read the lists anew."""
        self._screen.status.doing("lists", "reading lists …")
        self._rest_lane.forget()
        self._contents_lane.submit(self._read_if_there, self._took, self._failed)

    def _read_if_there(self) -> LibrarySnapshot | None:
        """Called in a thread; without a workspace, empty lists would say that it holds nothing."""
        return self._reader.read() if self._screen.library.workspace.jp.is_dir() else None

    def _took(self, contents: LibrarySnapshot | None) -> None:
        self._screen.status.doing("lists", None)
        if contents is None:
            self._there(False)
            return
        settle(sum(len(shelf.subjects) for shelf in contents.shelves) + len(contents.conversations))
        self._show(contents)

    def _show(self, contents: LibrarySnapshot) -> None:
        self.contents = contents
        self._screen.show_contents(contents)
        if contents.unread:
            self._rest_lane.submit(
                lambda: self._reader.read_on(contents), self._took_rest, self._failed
            )

    def _took_rest(self, contents: LibrarySnapshot) -> None:
        """The conversations, or some of them, were read too: only the library shows that."""
        before, self.contents = self.contents, contents
        if contents.unread and not self._screen.library_pane.waits_for_traits:
            self._rest_lane.submit(
                lambda: self._reader.read_on(contents), self._took_rest, self._failed
            )
        elif before is None or contents.conversations != before.conversations or contents.unread:
            self._show(contents)
        else:
            self._screen.navigator.contents = contents
            self._screen.library_pane.learn(contents)

    def _failed(self, error: Exception) -> None:
        self._screen.status.doing("lists", None)
        self._screen.status.flash(f"the lists cannot be read: {error}", "error")
