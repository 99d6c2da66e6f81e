"""Watching the files: says that something changed, and trusts no event further than that.

An atomic save comes as an addition, a renamed directory as one event, a deleted
and remade root as silence (stack 4.3). So an event only means "compare again",
and the roots are looked at every few seconds whatever the events say.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import watchfiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbtui.workspace import Workspace

LOOK_SECONDS = 2.0
POLL_SECONDS = 1.0
"""How often files are looked at where the system cannot watch them."""
SETTLE_SECONDS = 0.1
SWEEP_SECONDS = 60.0
"""How often all files are compared although nothing was reported."""

_IGNORED = frozenset(
    {".git", "node_modules", "__pycache__", ".venv", ".trash", "locks", "sessions"}
)


class _Filter(watchfiles.BaseFilter):
    """Everything below the watched roots but what can never be ours."""

    def __init__(self, roots: Iterable[Path], cache: Path) -> None:
        super().__init__()
        self._roots = [str(root) for root in roots]
        self._cache = str(cache)

    def __call__(self, change: watchfiles.Change, path: str) -> bool:
        if path.startswith(self._cache) or path.endswith((".tmp", ".swp", "~", ".lock")):
            return False
        root = next((root for root in self._roots if path.startswith(root)), "")
        return _IGNORED.isdisjoint(path[len(root) :].split("/"))


class Watcher:
    """A thread that calls `changed` whenever files may have.

    `polling` is why it looks at the files again and again; None while the system reports changes.
    """

    def __init__(
        self,
        workspace: Workspace,
        changed: Callable[[], object],
        log: Callable[[str], None],
    ) -> None:
        self._workspace, self._changed, self._log = workspace, changed, log
        self._stop = threading.Event()
        self._again = threading.Event()
        self._topics: list[Path] = []
        self.polling: str | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, within a moment."""
        self._stop.set()
        self._again.set()
        self._thread.join(2.0)

    def topics(self, folders: Iterable[Path]) -> None:
        """Watch these topic directories too; they come from the configuration."""
        found = sorted(set(folders))
        if found != self._topics:
            self._topics = found
            self._again.set()

    def _roots(self) -> list[Path]:
        root = self._workspace.root
        # Only what lies inside the workspace: a topic may not lead out of it (decisions A10).
        wanted = [self._workspace.jp]
        wanted += [path for path in self._topics if _real(path).is_relative_to(root)]
        if self._workspace.user_dir:
            wanted.append(self._workspace.user_dir / "conversations")
        roots: list[Path] = []
        for path in sorted(wanted):
            # A symlinked directory is not followed; its target is watched itself.
            for place in {path, _real(path)}:
                if place.is_dir() and not any(place.is_relative_to(root) for root in roots):
                    roots.append(place)
        return roots

    def _run(self) -> None:
        unreadable = False
        while not self._stop.is_set():
            self._again.clear()
            roots = self._roots()
            state = _identity(roots)
            try:
                self._watch(roots, state, unreadable=unreadable)
            except (OSError, RuntimeError) as error:
                if isinstance(error, PermissionError) and not unreadable:
                    # A directory that nobody may list; watchfiles then reports no limit either,
                    # and the sweep has to find what comes after that.
                    unreadable = True
                    continue
                self.polling = _reason(error)
                self._log(f"watching by polling: {self.polling}")
                self._stop.wait(LOOK_SECONDS)

    def _watch(self, roots: list[Path], state: list[tuple[str, int]], *, unreadable: bool) -> None:
        # What happened before the watch was set up is not reported: look once more, soon, and
        # again with the first report or time-out, when it certainly is.
        threading.Timer(SETTLE_SECONDS, self._changed).start()
        waited, grown = SWEEP_SECONDS, False
        places = {place for place, _ in state}
        for changes in watchfiles.watch(
            *roots,
            watch_filter=_Filter(roots, self._workspace.cache_dir),
            debounce=50,
            step=10,
            stop_event=self._again,
            rust_timeout=int(LOOK_SECONDS * 1000),
            yield_on_timeout=True,
            force_polling=True if self.polling else None,
            poll_delay_ms=int(POLL_SECONDS * 1000),
            raise_interrupt=False,
            ignore_permission_denied=unreadable,
        ):
            if self._stop.is_set():
                return
            # The watches of new directories may be too many, which nothing reports: when it is
            # quiet, all are set again.
            grown = grown or any(
                change == watchfiles.Change.added and Path(path).is_dir()
                for change, path in changes
            )
            if grown and not changes and not self.polling:
                return
            waited = 0.0 if changes else waited + LOOK_SECONDS
            # A root that was removed and made again may even have its old inode.
            moved = not places.isdisjoint(path for _, path in changes)
            moved = moved or _identity(self._roots()) != state
            if changes or moved or waited >= SWEEP_SECONDS:
                waited = 0.0
                self._changed()
            if moved:
                return


def _reason(error: Exception) -> str:
    """Why files cannot be watched, and what to do about it."""
    if "limit" in str(error):
        return (
            "the system has no more watches; "
            "raise the sysctl fs.inotify.max_user_watches, then `kbtui engine stop`"
        )
    return str(error)


def _real(path: Path) -> Path:
    """Where a path leads; unlike `Path.resolve`, this bears links that lead round in a circle."""
    return Path(os.path.realpath(path))


def _identity(roots: list[Path]) -> list[tuple[str, int]]:
    found = []
    for root in roots:
        try:
            found.append((str(root), root.stat().st_ino))
        except OSError:
            found.append((str(root), 0))
    return found
