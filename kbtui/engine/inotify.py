"""What Linux reports of directories and everything below them.

`watchfiles` looks for events a hundred times a second, however idle the machine is. A wait for
inotify's descriptor sleeps until there is one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_EVENT = struct.Struct("iIII")  # the watch, the mask, a cookie, the length of the name that follows
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_ONLY_DIRECTORIES = 0x0100_0000
_WANTED = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
    | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORIES
)  # fmt: skip
_PASSED_OVER = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG}
"""Why a directory cannot be watched that need not be: it is gone, or it may not be read."""
_READ_MOST = 1 << 16


class Overflow(Exception):
    """So much happened that the kernel threw reports away."""


class DirectoryTrees:
    """Reports of the directories that were added, and of all below them. For one thread.

    `enters` says of the path of a directory, or of a link to one, whether to watch that too.
    """

    def __init__(self, enters: Callable[[str], bool]) -> None:
        """Raises `OSError`, also where this system has no inotify."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, "this system has no inotify")
        self._enters = enters
        self._places: dict[int, str] = {}
        self._descriptor = self._called(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        """The descriptor, which can be read from when there is something to report."""
        return self._descriptor

    def close(self) -> None:
        """End all watches."""
        os.close(self._descriptor)

    def add(self, folder: str) -> None:
        """Watch a directory and all below it; raises `OSError` where the system has no watch left."""
        left, seen = [folder], set[int]()
        while left:
            place = left.pop()
            try:
                number = self._called(
                    self._libc.inotify_add_watch(self._descriptor, os.fsencode(place), _WANTED)
                )
            except OSError as error:
                if error.errno in _PASSED_OVER:
                    continue
                raise
            # A directory has one number, by whatever links it was reached.
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
                        if self._is_entered(one.path)
                    ]
            except OSError:
                continue

    def read(self) -> set[str]:
        """The paths that something happened to since the last call; what is new is watched.

        Raises `Overflow`, and `OSError` as `add` does.
        """
        found = set[str]()
        for number, mask, name in self._events():
            if mask & _OVERFLOW:
                raise Overflow
            place = self._places.get(number)
            if place is None:
                continue
            if mask & _IGNORED:
                del self._places[number]
                continue
            path = f"{place}/{name}" if name else place
            found.add(path)
            if mask & (_CREATE | _MOVED_TO) and self._is_entered(path):
                self.add(path)
        return found

    def _is_entered(self, path: str) -> bool:
        return os.path.isdir(path) and self._enters(path)  # noqa: PTH112  (never raises)

    def _events(self) -> Iterator[tuple[int, int, str]]:
        while True:
            try:
                data = os.read(self._descriptor, _READ_MOST)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _, size = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                yield number, mask, os.fsdecode(data[at : at + size].rstrip(b"\0"))
                at += size

    @staticmethod
    def _called(result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result
