"""Watches a workspace's files and reports that some of them may have changed.

Events do not describe changes reliably. An atomic save looks like a new file. Renaming a directory
causes one event, not one for each file in it. If a root (a directory that the watcher was told to
watch) is deleted and created again, there is no event. Therefore an event only means "compare the
files again", and the roots are also checked every few seconds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import watchfiles

from kbtui.conversations.conversation_repository import (
    is_file_of_other_project,
    list_individually_watched_conversation_files,
    list_watched_conversation_directories,
)
from kbtui.file_reading_and_writing import read_inode_size_and_mtime
from kbtui.workspace.client_environment import make_thread_with_client_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from kbtui.file_reading_and_writing import FileState
    from kbtui.workspace import Workspace


_EVENT = struct.Struct("iIII")  # watch number, mask, cookie, and length of the name that follows
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_OVERFLOW, _WATCH_REMOVED = 0x4000, 0x8000
_ONLY_DIRECTORIES = 0x0100_0000
_WANTED_EVENTS = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
    | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORIES
)  # fmt: skip
_IGNORED_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG}
"""The error numbers for a directory that no longer exists or cannot be read.

Such a directory is not watched.
"""
_READ_BYTES = 1 << 16


class InotifyOverflowError(Exception):
    """The kernel dropped events, because there were too many."""


class InotifyTreeWatcher:
    """Watches directories and everything under them with Linux's inotify. Not thread-safe.

    `should_enter(path)` returns whether a subdirectory, or a link to a directory, is watched too.

    A thread that waits for inotify sleeps until there is an event. The package `watchfiles` is not
    used on Linux, because it wakes up a hundred times a second even if nothing happens.
    """

    def __init__(self, should_enter: Callable[[str], bool]) -> None:
        """Start inotify.

        Raises `OSError` if the system has no inotify, or allows no further inotify instance.
        """
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, "this system has no inotify")
        self._should_watch_directory = should_enter
        self._places: dict[int, str] = {}
        self._descriptor = self._raise_on_inotify_error(
            self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        )

    def fileno(self) -> int:
        """Return the inotify file descriptor, which is readable while there are events."""
        return self._descriptor

    def close(self) -> None:
        """Remove all watches."""
        os.close(self._descriptor)

    def watch_directory_tree(self, folder: str) -> None:
        """Watch a directory and everything under it.

        Raises `OSError` if the system's limit on watches is reached.
        """
        left, seen = [folder], set[int]()
        while left:
            place = left.pop()
            try:
                number = self._raise_on_inotify_error(
                    self._libc.inotify_add_watch(
                        self._descriptor, os.fsencode(place), _WANTED_EVENTS
                    )
                )
            except OSError as error:
                if error.errno in _IGNORED_ERRORS:
                    continue
                raise
            # inotify assigns the same number to a directory through every link that leads to it.
            if number in seen:
                continue
            seen.add(number)
            self._places[number] = place
            try:
                with os.scandir(place) as entries:
                    left += [
                        one.path
                        for one in entries
                        if one.is_dir(follow_symlinks=False) or one.is_symlink()
                        if self._is_directory_to_watch(one.path)
                    ]
            except OSError:
                continue

    def read_changed_paths(self) -> set[str]:
        """Return the paths with events since the last call, and watch new directories.

        Raises `InotifyOverflowError` if the system has dropped events. Raises `OSError` if the system's
        limit on watches is reached.
        """
        found = set[str]()
        for number, mask, name in self._read_inotify_events():
            if mask & _OVERFLOW:
                raise InotifyOverflowError
            place = self._places.get(number)
            if place is None:
                continue
            if mask & _WATCH_REMOVED:
                del self._places[number]
                continue
            path = f"{place}/{name}" if name else place
            found.add(path)
            if mask & (_CREATE | _MOVED_TO) and self._is_directory_to_watch(path):
                self.watch_directory_tree(path)
        return found

    def _is_directory_to_watch(self, path: str) -> bool:
        return os.path.isdir(path) and self._should_watch_directory(path)  # noqa: PTH112  (never raises)

    def _read_inotify_events(self) -> Iterator[tuple[int, int, str]]:
        while True:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _, size = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                yield number, mask, os.fsdecode(data[at : at + size].rstrip(b"\0"))
                at += size

    @staticmethod
    def _raise_on_inotify_error(result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result


ROOT_CHECK_SECONDS = 2.0
"""Unless a file changes, at least this many seconds pass between two checks of the roots."""
ROOT_CHECK_SHARE = 50
"""Unless a file changes, the pause after a check of the roots is at least this many times as long as the check."""
SETTLE_SECONDS = 0.1
QUIET_MILLISECONDS, GATHER_MILLISECONDS = 10, 50
"""Changes are reported after `QUIET_MILLISECONDS` without an event.

If events keep coming, the changes are reported after `GATHER_MILLISECONDS`.
"""
POLL_MILLISECONDS = 1000
"""The interval in milliseconds at which files are polled if the system cannot watch them."""
FULL_COMPARE_SECONDS, ASLEEP_FULL_COMPARE_SECONDS = 60.0, 600.0
"""Two durations in seconds. If nothing has changed for the first, all files are compared with the index.

The second replaces the first once the pause between checks of the roots has grown to `ASLEEP_CHECK_SECONDS`.
"""
QUIET_SHARE, ASLEEP_CHECK_SECONDS = 0.1, 30.0
"""The pause after a check of the roots is at least `QUIET_SHARE` of the time since the last event.

Here, an event is a change or a client's request. The pause is at most `ASLEEP_CHECK_SECONDS`. An engine
with many open workspaces therefore wakes up rarely while nothing happens.
"""

_IGNORED_NAMES = frozenset(
    {".git", "node_modules", "__pycache__", ".venv", ".trash", "locks", "sessions"}
)


class _WatchedPathFilter(watchfiles.BaseFilter):
    """Drops the events of files that kbtui never reads."""

    def __init__(self, roots: Iterable[Path], cache: Path) -> None:
        super().__init__()
        self._roots = [str(root) for root in roots]
        self._cache = str(cache)

    def __call__(self, change: watchfiles.Change, path: str) -> bool:
        if path.startswith(self._cache) or path.endswith((".tmp", ".swp", "~", ".lock")):
            return False
        root = next((root for root in self._roots if path.startswith(root)), "")
        return _IGNORED_NAMES.isdisjoint(path[len(root) :].split("/"))


class FileWatcher:
    """A thread that calls `on_change` whenever files may have changed.

    `polling_reason` says why the thread polls all files. It is None if the system reports events.
    """

    def __init__(
        self,
        workspace: Workspace,
        on_change: Callable[[], object],
        log: Callable[[str], None],
    ) -> None:
        self._workspace, self._on_change, self._log = workspace, on_change, log
        self._stop = threading.Event()
        self._should_restart = threading.Event()
        self._uses_inotify = (
            sys.platform == "linux" and "microsoft" not in os.uname().release.lower()
        )
        """Whether to watch the files with inotify.

        Under WSL, inotify is not used, because it reports no events for Windows drives.
        """
        # `_alarm` interrupts a wait for inotify; `_should_restart` interrupts watchfiles.
        self._alarm = (
            os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if self._uses_inotify else None
        )
        self._pause = ROOT_CHECK_SECONDS
        self._used_at = time.monotonic()
        """The time when something last changed or a client last needed the files."""
        self._topics: list[Path] = []
        self.polling_reason: str | None = None
        self._thread = make_thread_with_client_environment(self._watch_files_until_stopped, "watch")

    def start_thread(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop_thread(self) -> None:
        """Stop the thread; wait up to two seconds for it to end."""
        self._stop.set()
        self._restart_watching()
        self._thread.join(2.0)

    def close_wakeup_descriptor(self) -> None:
        """Close the file descriptor with which other threads wake the watching thread.

        Does nothing while the thread is running.
        """
        if self._alarm is not None and not self._thread.is_alive():
            alarm, self._alarm = self._alarm, None
            os.close(alarm)

    def check_watched_roots_soon(self) -> None:
        """Check the roots soon, because a client needs the files.

        Does nothing if the roots were checked recently.
        """
        self._used_at = time.monotonic()
        if self._pause > 2 * ROOT_CHECK_SECONDS and self._alarm is not None:
            self._pause = ROOT_CHECK_SECONDS
            os.eventfd_write(self._alarm, 1)

    def set_watched_topic_directories(self, folders: Iterable[Path]) -> None:
        """Set the topic directories to watch in addition to JP's own directories."""
        found = sorted(set(folders))
        if found != self._topics:
            self._topics = found
            self._restart_watching()

    def _restart_watching(self) -> None:
        self._should_restart.set()
        if self._alarm is not None:
            os.eventfd_write(self._alarm, 1)

    def _find_directories_to_watch(self) -> list[Path]:
        """Return the directories to watch, including the targets of links; nested directories are left out."""
        root = self._workspace.root
        # Watch both `.jp` and `.kbtui`: if a `.jp` appears, kbtui reads the configuration from it.
        wanted = [self._workspace.jp_directory, self._workspace.kbtui_directory]
        # A topic directory outside the workspace must not be read.
        wanted += [path for path in self._topics if _resolve_path_links(path).is_relative_to(root)]
        if self._workspace.jp_user_directory:
            wanted.append(self._workspace.jp_user_directory / "conversations")
        wanted += list_watched_conversation_directories(self._workspace)
        # Symbolic links are not followed, so their targets are roots, too.
        roots: list[Path] = []
        for place in sorted(
            {place for path in wanted for place in (path, _resolve_path_links(path))}
        ):
            # In sorted order, a directory directly precedes everything inside it.
            if place.is_dir() and not (roots and place.is_relative_to(roots[-1])):
                roots.append(place)
        return roots

    def _watch_files_until_stopped(self) -> None:
        unreadable = False
        while not self._stop.is_set():
            self._should_restart.clear()
            roots = self._find_directories_to_watch()
            reports = (
                self._watch_with_inotify(roots)
                if self._uses_inotify
                else self._watch_with_watchfiles(roots, unreadable)
            )
            try:
                with closing(reports):
                    self._report_changes_until_roots_change(roots, reports)
            except (OSError, RuntimeError) as error:
                if isinstance(error, PermissionError) and not self._uses_inotify and not unreadable:
                    # A directory cannot be read: start again and ignore such errors.
                    unreadable = True
                    continue
                self._uses_inotify, self.polling_reason = False, _explain_watch_error(error)
                self._log(f"polling for changes: {self.polling_reason}")
                self._stop.wait(ROOT_CHECK_SECONDS)

    def _report_changes_until_roots_change(
        self, roots: list[Path], reports: Iterator[set[str]]
    ) -> None:
        """Call `on_change` whenever files have changed. Return when the directories to watch have changed."""
        state, places = _get_root_inodes(roots), set(map(str, roots))
        files = self._read_states_of_watched_conversation_files()
        compared = time.monotonic()
        for paths in reports:
            if self._stop.is_set():
                return
            # Agents such as Codex keep the sessions of all projects in one directory. A session of
            # another project must neither start a comparison nor keep this workspace awake.
            paths = {path for path in paths if not is_file_of_other_project(self._workspace, path)}
            looked = time.monotonic()
            before, files = files, self._read_states_of_watched_conversation_files()
            is_asleep = self._pause >= ASLEEP_CHECK_SECONDS
            limit = ASLEEP_FULL_COMPARE_SECONDS if is_asleep else FULL_COMPARE_SECONDS
            if paths or files != before:
                self._used_at = looked
            if paths or files != before or looked - compared >= limit:
                compared = looked
                self._on_change()
            # A root that was deleted and created again may have the same inode.
            if (
                not places.isdisjoint(paths)
                or _get_root_inodes(self._find_directories_to_watch()) != state
            ):
                self._on_change()
                return
            self._pause = max(
                ROOT_CHECK_SECONDS,
                (time.monotonic() - looked) * ROOT_CHECK_SHARE,
                min((looked - self._used_at) * QUIET_SHARE, ASLEEP_CHECK_SECONDS),
            )

    def _read_states_of_watched_conversation_files(self) -> list[FileState | None]:
        """Return the state of each watched agent file; None for a missing file."""
        return [
            read_inode_size_and_mtime(path)
            for path in list_individually_watched_conversation_files(self._workspace)
        ]

    def _watch_with_inotify(self, roots: list[Path]) -> Generator[set[str]]:
        """Yield the paths that have changed, until `_should_restart` is set.

        If nothing has changed for a few seconds, an empty set is yielded.
        """
        assert self._alarm is not None
        is_wanted = _WatchedPathFilter(roots, self._workspace.cache_dir)
        with closing(InotifyTreeWatcher(self._should_watch_directory)) as trees:
            for root in roots:
                trees.watch_directory_tree(str(root))
            # inotify does not report earlier changes.
            self._on_change()
            anything, more = select.poll(), select.poll()
            anything.register(self._alarm, select.POLLIN)
            for waiting in (anything, more):
                waiting.register(trees, select.POLLIN)
            while not self._should_restart.is_set():
                if any(number == self._alarm for number, _ in anything.poll(self._pause * 1000)):
                    os.eventfd_read(self._alarm)
                try:
                    paths, end = (
                        trees.read_changed_paths(),
                        time.monotonic() + GATHER_MILLISECONDS / 1000,
                    )
                    while paths and time.monotonic() < end and more.poll(QUIET_MILLISECONDS):
                        paths |= trees.read_changed_paths()
                except InotifyOverflowError:
                    paths = set(map(str, roots))
                yield {path for path in paths if is_wanted(watchfiles.Change.modified, path)}

    def _should_watch_directory(self, path: str) -> bool:
        """Return whether to watch a directory under a root.

        Directories with ignored names, the cache, and links out of the workspace are not watched.
        """
        if Path(path).name in _IGNORED_NAMES or path.startswith(str(self._workspace.cache_dir)):
            return False
        target = _resolve_path_links(Path(path))
        return not os.path.islink(path) or target.is_relative_to(self._workspace.root)  # noqa: PTH114

    def _watch_with_watchfiles(self, roots: list[Path], unreadable: bool) -> Generator[set[str]]:
        """Yield the paths that the package `watchfiles` reports as changed.

        `unreadable` says whether directories that cannot be read are skipped.
        """
        # Changes made before the watch is set up are not reported. So compare the files soon, and
        # again after the first report or timeout: by then, the watch must be set up.
        threading.Timer(SETTLE_SECONDS, self._on_change).start()
        is_set_up = False
        for changes in watchfiles.watch(
            *roots,
            watch_filter=_WatchedPathFilter(roots, self._workspace.cache_dir),
            debounce=GATHER_MILLISECONDS,
            step=POLL_MILLISECONDS if self.polling_reason else QUIET_MILLISECONDS,
            stop_event=self._should_restart,
            rust_timeout=int(self._pause * 1000),
            yield_on_timeout=True,
            force_polling=True if self.polling_reason else None,
            poll_delay_ms=POLL_MILLISECONDS,
            raise_interrupt=False,
            ignore_permission_denied=unreadable,
        ):
            if not is_set_up:
                is_set_up = True
                self._on_change()
            yield {path for _, path in changes}


def _explain_watch_error(error: Exception) -> str:
    """Return why files cannot be watched, and what to do about it."""
    limit = {errno.ENOSPC: "watches", errno.EMFILE: "instances"}.get(
        getattr(error, "errno", 0) or 0
    )
    if limit is None:
        return str(error)
    return (
        f"the system's limit on inotify {limit} is reached; "
        f"raise the sysctl fs.inotify.max_user_{limit}, then run `kbtui engine stop`"
    )


def _resolve_path_links(path: Path) -> Path:
    """Resolve links in a path. Unlike `Path.resolve`, raise no error for circular links."""
    return Path(os.path.realpath(path))


def _get_root_inodes(roots: list[Path]) -> list[tuple[str, int]]:
    found = []
    for root in roots:
        try:
            found.append((str(root), root.stat().st_ino))
        except OSError:
            found.append((str(root), 0))
    return found
