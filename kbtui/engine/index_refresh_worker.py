"""The thread that owns the index and refreshes it.

A single refresh answers all requests that arrived during the previous refresh.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
import time
from typing import TYPE_CHECKING

from kbtui.conversations.workspace_and_worktree_directories import remember_worktrees
from kbtui.errors import KbtuiError
from kbtui.index.index_generations import (
    find_catalog_or_keyword_index_damage,
    find_current_index_generation,
    is_rust_panic,
)
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.userdata.workspace_registry import is_workspace_registered, register_workspace
from kbtui.workspace.client_environment import make_thread_with_client_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kbtui.index.workspace_index_writer import IndexProgress, IndexRefreshChanges
    from kbtui.workspace import Settings, Workspace


DAMAGE_CHECK_DELAY = 1.0
"""The delay in seconds between a refresh and its damage check."""
DAMAGE_CHECK_INTERVAL = 600.0
"""For this many seconds after a damage check, refreshes start no further check."""
DAMAGE_CHECK_VALIDITY = 60.0
"""For this many seconds after a damage check, a report of possible damage starts no further check."""
COMPACT_AT_ONCE_MAX = 2000
"""An index is compacted after a requested refresh if at most this many passages must be rewritten.

Rewriting this many passages takes about 0.3 seconds.
"""
COMPACT_PAUSE_MIN, COMPACT_SECONDS, COMPACT_SHARE = 1.0, 1.5e-4, 0.05
"""An index that is not compacted at once is compacted after a pause without changes.

A compaction takes about `COMPACT_SECONDS` for each passage. The pause is long enough that compactions
use at most `COMPACT_SHARE` of one core. It lasts at least `COMPACT_PAUSE_MIN` seconds, so that the
refresh after the next save does not wait for a compaction.
"""
CLOSE_INDEX_SECONDS = 5.0
"""The index is closed this many seconds after a refresh that changed it.

While an index is open, tantivy polls its files.
"""


def _is_error_fixed_by_rebuild(error: BaseException) -> bool:
    """Return whether a new index may fix an error, such as a panic of tantivy."""
    return isinstance(
        error, sqlite3.DatabaseError | KbtuiError | OSError | ValueError
    ) or is_rust_panic(error)


class IndexRefreshWorker:
    """Brings the index up to date with the files, one refresh at a time.

    * `first_refresh` is set after the first refresh.
    * `error` says why the last refresh failed.
    * `repaired_damage` describes the damage that the last requested check found, if any. A rebuild repairs it.
    * `has_reported_generation` says whether the embedding worker knows the current generation. If
      it is false, the engine reports the generation after the next refresh.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        on_progress: Callable[[IndexProgress], None],
        on_refreshed: Callable[[IndexRefreshChanges], None],
        log: Callable[[str], None],
    ) -> None:
        self._workspace, self._settings = workspace, settings
        self._on_progress, self._on_refreshed, self._log = on_progress, on_refreshed, log
        self._lock = threading.Lock()
        self._pending: list[threading.Event] = []
        self._running: list[threading.Event] = []
        self._is_rebuild_requested = self._is_retry_requested = self._is_registered = False
        self._is_compacting_requested = self._compacts_at_once = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._index: WorkspaceIndexWriter | None = None
        self._folder: Path | None = None
        self._close_after = CLOSE_INDEX_SECONDS
        self._is_check_requested = self._is_generation_new = False
        self._checked_folder: Path | None = None
        self._checked_at = -math.inf
        self.repaired_damage: str | None = None
        self._compact_at: float | None = None
        self.first_refresh = threading.Event()
        self.has_reported_generation = False
        self.is_busy = True
        self.error: str | None = None
        self.topic_folders: list[Path] = []
        self.configuration_problem: str | None = None
        self._thread = make_thread_with_client_environment(
            self._refresh_index_until_stopped, "refresh"
        )

    def start_thread(self) -> None:
        """Start the thread, which first refreshes the index."""
        self.request_index_refresh()
        self._thread.start()

    def stop_thread(self) -> None:
        """Stop the thread after the current entry. Wait up to ten seconds for the thread to end."""
        self._stop.set()
        self._wake.set()
        self._thread.join(10.0)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def request_index_refresh(
        self, *, retry: bool = False, check: bool = False, rebuild: bool = False
    ) -> threading.Event:
        """Request a refresh, and return an event that is set when the refresh is done.

        The refresh begins after this call, so it includes every earlier change. A small index is also
        compacted before the event is set.

        * `retry`: the files that could not be read are tried again.
        * `check`: the index is checked for damage first, and rebuilt if it is damaged.
        * `rebuild`: a new index generation is built, which replaces the current one when complete.
        """
        if retry:
            self._is_retry_requested = True
        if check:
            self._is_check_requested = True
        if rebuild:
            self._is_rebuild_requested = True
        return self._request_refresh(is_compacting_requested=True)

    def refresh_after_file_change(self) -> None:
        """Refresh the index, because files may have changed. Compact the index only after files have stopped changing."""
        self._request_refresh(is_compacting_requested=False)

    def _request_refresh(self, *, is_compacting_requested: bool) -> threading.Event:
        done = threading.Event()
        with self._lock:
            self._is_compacting_requested |= is_compacting_requested
            self._pending.append(done)
        self.is_busy = True
        self._wake.set()
        return done

    @property
    def was_damage_checked_recently(self) -> bool:
        """Whether the index was checked for damage within the last minute."""
        return time.monotonic() - self._checked_at < DAMAGE_CHECK_VALIDITY

    @property
    def index_generation_directory(self) -> Path:
        """The directory of the index generation that this thread writes."""
        if self._folder is None:
            raise RuntimeError("the index was never opened")
        return self._folder

    @property
    def index_generation_name(self) -> str | None:
        """The name of the index generation that this thread writes; None before the first refresh."""
        return self._folder.name if self._folder else None

    def _refresh_index_until_stopped(self) -> None:
        while not self._stop.is_set():
            self._wait_for_request_or_due_compacting()
            self._wake.clear()
            if self._stop.is_set():
                break
            with self._lock:
                waiting, self._pending = self._pending, []
                self._compacts_at_once |= self._is_compacting_requested
                self._is_compacting_requested = False
            self.is_busy = True
            self._running += waiting
            began = time.thread_time()
            if self._refresh_index():
                # A new request interrupted the refresh. The next refresh answers all requests.
                self._wake.set()
                continue
            for done in self._running:
                done.set()
            self._running = []
            self.is_busy = bool(self._pending)
            # This pause limits the thread to half a core if a file changes all the time. A client that has
            # requested a refresh meanwhile does not wait for it.
            if not self._is_compacting_requested:
                self._stop.wait(min(time.thread_time() - began, 1.0))
        if self._index is not None:
            self._index.close()
        with self._lock:
            for done in (*self._running, *self._pending):
                done.set()

    def _wait_for_request_or_due_compacting(self) -> None:
        """Wait for a request, or until a compaction is due. During a long wait, the index is closed."""
        if self._index is not None and not self._wake.wait(self._close_after):
            self._close_index()
        due = self._compact_at
        self._wake.wait(None if due is None else max(0.0, due - time.monotonic()))

    def _refresh_index(self) -> bool:
        """Refresh the index, or rebuild it if it is unusable; return whether the refresh was interrupted."""
        remember_worktrees(self._workspace)
        for attempt in (1, 2):
            try:
                index = self._ensure_index_is_open()
                retry, self._is_retry_requested = self._is_retry_requested, False
                changes = index.refresh_index(retry=retry)
                # Report the generation after a retry, so that embedding is retried too.
                self.has_reported_generation = self.has_reported_generation and not retry
                self.error = None
                self.topic_folders = index.topic_folders
                self.configuration_problem = index.configuration_problem
                self._on_refreshed(changes)
                if changes.is_unfinished:
                    self._is_retry_requested = self._is_retry_requested or retry
                    return True
                if self._is_generation_new:
                    # The index has just been built, so a check that was requested in the meantime is unnecessary.
                    self._is_generation_new = self._is_check_requested = False
                self.first_refresh.set()
                self._register_workspace(index)
                self._start_index_damage_check(index.folder)
                self._compact_index_or_schedule_compaction(index, changes)
                self._close_after = CLOSE_INDEX_SECONDS if changes else 0.0
                return False
            except BaseException as error:
                can_rebuild = _is_error_fixed_by_rebuild(error)
                if not can_rebuild and not isinstance(error, Exception):
                    raise
                self.error = str(error)
                self._log(f"refresh failed: {type(error).__name__}: {error}")
                self._close_index()
                self.has_reported_generation = False
                # A new index does not help against write errors such as a full disk.
                self._is_rebuild_requested = (
                    attempt == 1 and can_rebuild and not isinstance(error, KbtuiError | OSError)
                )
                if attempt == 2 or not self._is_rebuild_requested:
                    self.first_refresh.set()
                    return False
        return False

    def _register_workspace(self, index: WorkspaceIndexWriter) -> None:
        """Register the workspace, unless this thread has done so already.

        After `kbtui workspaces forget`, an open workspace is registered again. A directory with
        neither configuration nor entries is not registered, because the user may only have run a command
        in it.
        """
        workspace = self._workspace
        if self._is_registered and is_workspace_registered(workspace):
            return
        if (
            workspace.is_jp_workspace
            or workspace.kbtui_directory.is_dir()
            or not index.catalog.is_catalog_empty(hidden=False)
        ):
            register_workspace(workspace, self._settings)
            self._is_registered = True

    def _compact_index_or_schedule_compaction(
        self, index: WorkspaceIndexWriter, changes: IndexRefreshChanges
    ) -> None:
        """Compact the index now if that would be quick; otherwise schedule a compaction for later."""
        due = self._compact_at is not None and time.monotonic() >= self._compact_at
        limit = COMPACT_AT_ONCE_MAX if self._compacts_at_once else 0
        self._compacts_at_once = False
        try:
            left = index.rewrite_indexes_with_many_replaced_documents(None if due else limit)
        except (OSError, ValueError) as error:
            # Compaction needs as much free space as the index uses. Search works without it.
            self._log(f"could not compact the index: {error}")
            self._close_index()
            left = 0
        if not left:
            self._compact_at = None
        elif changes or due or self._compact_at is None:
            pause = max(COMPACT_PAUSE_MIN, left * COMPACT_SECONDS / COMPACT_SHARE)
            self._compact_at = time.monotonic() + pause

    def _start_index_damage_check(self, folder: Path) -> None:
        """Check a generation for damage in a new thread. If it is damaged, request a rebuild.

        Does nothing if this generation was checked less than `DAMAGE_CHECK_INTERVAL` ago.
        """
        since = time.monotonic() - self._checked_at
        if folder == self._checked_folder and since < DAMAGE_CHECK_INTERVAL:
            return
        began = time.monotonic()
        self._checked_folder, self._checked_at = folder, began

        def check_for_damage() -> None:
            # A check that a client requested during the delay replaces this one.
            if self._stop.wait(DAMAGE_CHECK_DELAY) or self._checked_at != began:
                return
            found = find_catalog_or_keyword_index_damage(folder, self._stop)
            if found and folder == self._checked_folder and not self._stop.is_set():
                self._log(f"{found}; building a new index")
                self.request_index_refresh(rebuild=True)

        threading.Thread(target=check_for_damage, name="check", daemon=True).start()

    def _check_index_damage_if_requested(self) -> None:
        """Check the index for damage if a client has requested a check. If the index is damaged, request a rebuild."""
        if not self._is_check_requested:
            return
        self._is_check_requested, self.repaired_damage = False, None
        folder = find_current_index_generation(self._workspace.cache_dir)
        if folder is None or (
            self._index is not None and not self._index.are_index_files_in_place()
        ):
            return  # the index is missing; opening it creates a new one
        found = find_catalog_or_keyword_index_damage(folder, self._stop)
        if found:
            self._log(f"{found}; building a new index")
            self.repaired_damage, self._is_rebuild_requested = found, True
        self._checked_at = time.monotonic()

    def _ensure_index_is_open(self) -> WorkspaceIndexWriter:
        """Return the open index; open, replace or rebuild it first if necessary."""
        self._check_index_damage_if_requested()
        if self._is_rebuild_requested and self._index is not None:
            self._close_index()
        if self._index is None or not self._index.are_index_files_in_place():
            self._close_index()
            current = find_current_index_generation(self._workspace.cache_dir)
            self._index = WorkspaceIndexWriter(
                self._workspace,
                self._settings,
                rebuild=self._is_rebuild_requested,
                on_progress=self._on_progress,
                stop=self._stop,
                should_yield=lambda: bool(self._pending),
            )
            self._is_rebuild_requested = False
            self._is_generation_new = self._index.folder != current
            self.has_reported_generation = (
                self.has_reported_generation and self._index.folder == self._folder
            )
            self._folder = self._index.folder
        return self._index

    def _close_index(self) -> None:
        if self._index is not None:
            with contextlib.suppress(Exception):
                self._index.close()
            self._index = None
