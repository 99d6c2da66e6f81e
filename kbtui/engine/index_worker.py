"""The thread that owns the index: refreshes when asked, coalescing what comes meanwhile."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
import time
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.index.generations import find_current_generation, find_damage, is_panic
from kbtui.index.indexer import Index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kbtui.index.indexer import IndexProgress, RefreshChanges
    from kbtui.workspace import Settings, Workspace


DAMAGE_CHECK_DELAY = 1.0
"""How long after its first refresh an index is looked at for damage."""
DAMAGE_CHECK_INTERVAL = 600.0
"""How often it is looked at then, with a refresh."""
DAMAGE_CHECK_VALIDITY = 60.0
"""For so long a suspicion of damage is not looked into again."""
COMPACT_AT_ONCE_MAX = 2000
"""An index of at most this many passages is compacted with each refresh, in about .3 s."""
COMPACT_SECONDS, COMPACT_SHARE = 1.5e-4, 0.05
"""The time that compacting takes for each passage, and the share of a core that it may use: a larger
index is compacted after a quiet time in which it uses no more."""
CLOSE_INDEX_SECONDS = 5.0
"""How long after a change the index stays open. While it is, tantivy looks twice a second whether the
files of each of its directories have changed; opening takes milliseconds."""


def _is_repairable(error: BaseException) -> bool:
    """Whether it is about files; a panic of tantivy's derives from no `Exception`."""
    return isinstance(error, sqlite3.DatabaseError | KbtuiError | OSError | ValueError) or is_panic(
        error
    )


class IndexWorker:
    """Brings the index up to date with the files, one refresh at a time.

    `first` is set after the first one. `error` says why the last one failed, `mended` what
    damage the last look for it found.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        say: Callable[[IndexProgress], None],
        refreshed: Callable[[RefreshChanges], None],
        log: Callable[[str], None],
    ) -> None:
        self._workspace, self._settings = workspace, settings
        self._say, self._refreshed, self._log = say, refreshed, log
        self._lock = threading.Lock()
        self._waiting: list[threading.Event] = []
        self._going: list[threading.Event] = []
        self._rebuild = self._retry = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._index: Index | None = None
        self._folder: Path | None = None
        self._rest = CLOSE_INDEX_SECONDS
        self._check = False
        self._checked: Path | None = None
        self._checked_at = -math.inf
        self.mended: str | None = None
        self._compact_at: float | None = None
        self.first = threading.Event()
        self.told = False
        self.busy = True
        self.error: str | None = None
        self.topics: list[Path] = []
        self._thread = threading.Thread(target=self._run, name="refresh", daemon=True)

    def start(self) -> None:
        """Begin with a first refresh."""
        self.ask()
        self._thread.start()

    def stop(self) -> None:
        """End after the entry at hand."""
        self._stop.set()
        self._wake.set()
        self._thread.join(10.0)

    def ask(self) -> threading.Event:
        """Refresh soon; the event is set when a refresh begun after this call is done."""
        done = threading.Event()
        with self._lock:
            self._waiting.append(done)
        self.busy = True
        self._wake.set()
        return done

    def ask_retry(self) -> threading.Event:
        """Refresh soon, and read again what could not be read."""
        self._retry = True
        return self.ask()

    def ask_rebuild(self) -> threading.Event:
        """Build a new generation beside the one in use."""
        self._rebuild = True
        return self.ask()

    def ask_check(self) -> threading.Event:
        """Look for damage, build anew if there is some, and refresh."""
        self._check = True
        return self.ask()

    @property
    def is_checked_lately(self) -> bool:
        """Whether damage was looked for a moment ago."""
        return time.monotonic() - self._checked_at < DAMAGE_CHECK_VALIDITY

    @property
    def folder(self) -> Path:
        """The directory of the generation that is written."""
        if self._folder is None:
            raise RuntimeError("the index was never opened")
        return self._folder

    @property
    def generation(self) -> str | None:
        """The name of the generation that is written."""
        return self._folder.name if self._folder else None

    def _run(self) -> None:
        while not self._stop.is_set():
            self._await_work()
            self._wake.clear()
            if self._stop.is_set():
                break
            with self._lock:
                waiting, self._waiting = self._waiting, []
            self.busy = True
            self._going += waiting
            began = time.monotonic()
            if self._refresh():
                # Somebody asked meanwhile; those who asked before wait for the rest.
                self._wake.set()
                continue
            for done in self._going:
                done.set()
            self._going = []
            self.busy = bool(self._waiting)
            # A file that is written continuously may use at most half of this thread.
            self._stop.wait(min(time.monotonic() - began, 1.0))
        if self._index is not None:
            self._index.close()
        with self._lock:
            for done in (*self._going, *self._waiting):
                done.set()

    def _await_work(self) -> None:
        """Wait until somebody asks for a refresh, or compacting is due; the index is closed soon."""
        if self._index is not None and not self._wake.wait(self._rest):
            self._close()
        due = self._compact_at
        self._wake.wait(None if due is None else max(0.0, due - time.monotonic()))

    def _refresh(self) -> bool:
        """Refresh, and mend what hinders it; whether something is left for another refresh."""
        for attempt in (1, 2):
            try:
                index = self._opened()
                retry, self._retry = self._retry, False
                changes = index.refresh(retry=retry)
                # Whoever follows is told again, and so tries again too.
                self.told = self.told and not retry
                self.error = None
                self.topics = index.topic_folders
                self._refreshed(changes)
                if changes.unfinished:
                    self._retry = self._retry or retry
                    return True
                self.first.set()
                self._check_beside(index.folder)
                self._compact(index, changes)
                self._rest = CLOSE_INDEX_SECONDS if changes else 0.0
                return False
            except BaseException as error:
                if not _is_repairable(error):
                    raise
                self.error = str(error)
                self._log(f"refresh failed: {type(error).__name__}: {error}")
                self._close()
                self.told = False
                # What cannot be written today (a full disk) is not mended by building anew.
                self._rebuild = attempt == 1 and not isinstance(error, KbtuiError | OSError)
                if attempt == 2 or not self._rebuild:
                    self.first.set()
                    return False
        return False

    def _compact(self, index: Index, changes: RefreshChanges) -> None:
        """Compact a small index now, and a large one when nothing has changed for a while."""
        due = self._compact_at is not None and time.monotonic() >= self._compact_at
        try:
            left = index.compact(None if due else COMPACT_AT_ONCE_MAX)
        except (OSError, ValueError) as error:
            # It needs as much space again as the index has, and search works without it.
            self._log(f"the index was not compacted: {error}")
            self._close()
            left = 0
        if not left:
            self._compact_at = None
        elif changes or due or self._compact_at is None:
            self._compact_at = time.monotonic() + left * COMPACT_SECONDS / COMPACT_SHARE

    def _check_beside(self, folder: Path) -> None:
        """Look, now and then and beside all other work, for damage that nobody met; build anew if so."""
        since = time.monotonic() - self._checked_at
        if folder == self._checked and since < DAMAGE_CHECK_INTERVAL:
            return
        self._checked, self._checked_at = folder, time.monotonic()

        def check() -> None:
            if self._stop.wait(DAMAGE_CHECK_DELAY):
                return
            found = find_damage(folder, self._stop)
            if found and folder == self._checked and not self._stop.is_set():
                self._log(f"{found}; building a new index")
                self.ask_rebuild()

        threading.Thread(target=check, name="check", daemon=True).start()

    def _check_now(self) -> None:
        """Look for damage, if somebody asked for that; have a new index made if there is some."""
        if not self._check:
            return
        self._check, self.mended = False, None
        folder = find_current_generation(self._workspace.cache_dir)
        if folder is None or (self._index is not None and not self._index.is_in_place()):
            return  # opening it mends it
        found = find_damage(folder, self._stop)
        if found:
            self._log(f"{found}; building a new index")
            self.mended, self._rebuild = found, True
        self._checked_at = time.monotonic()

    def _opened(self) -> Index:
        self._check_now()
        if self._rebuild and self._index is not None:
            self._close()
        if self._index is None or not self._index.is_in_place():
            self._close()
            self._index = Index(
                self._workspace,
                self._settings,
                rebuild=self._rebuild,
                say=self._say,
                stop=self._stop,
                again=lambda: bool(self._waiting),
            )
            self._rebuild = False
            self.told = self.told and self._index.folder == self._folder
            self._folder = self._index.folder
        return self._index

    def _close(self) -> None:
        if self._index is not None:
            with contextlib.suppress(Exception):
                self._index.close()
            self._index = None
