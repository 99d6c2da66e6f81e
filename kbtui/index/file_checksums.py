"""The checksums of a directory's files, which are written once and never changed: of Lance's, that is.

Lance keeps no checksums of its own, and a flipped bit would move a hit, or lose one, without
a word. The list stands in a file beside the directory, with a checksum of itself.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SUFFIX = ".sums"
REWRITTEN = frozenset({"latest_version_hint.json"})
"""What Lance does write again: it says where to begin looking, and is not relied on."""
_PIECE = 1 << 20


class FileChecksums:
    """What is known of the files below a directory. For one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder.with_name(folder.name + SUFFIX)
        self._known: dict[str, list[int]] = {}

    def damage(self, stop: Callable[[], bool] = lambda: False) -> str | None:
        """Read the list, and what is not as it says, in a phrase; None when nothing is, or `stop()`.

        Of a file that is gone nothing is said: it may have been old, and whoever needs it notices.
        """
        try:
            mark, _, text = self._path.read_bytes().partition(b"\n")
            if int(mark) != zlib.crc32(text):
                return f"{self._path.name} is damaged"
            self._known = json.loads(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return f"{self._path.name} is damaged"
        for name, wanted in self._known.items():
            if stop():
                return None
            try:
                if _sum(self._folder / name) != wanted:
                    return f"{name} is damaged"
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"{name} cannot be read: {error.strerror}"
        return None

    def note(self) -> None:
        """Take in the files that are new, leave out those that are gone."""
        names = {
            os.path.relpath(os.path.join(place, name), self._folder)  # noqa: PTH118  (cheaper)
            for place, _, files in os.walk(self._folder)
            for name in files
            if name not in REWRITTEN
        }
        if names == self._known.keys():
            return
        known = {}
        for name in sorted(names):
            try:
                known[name] = self._known.get(name) or _sum(self._folder / name)
            except OSError:
                continue  # gone meanwhile
        self._known = known
        text = json.dumps(known).encode()
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_bytes(b"%d\n%b" % (zlib.crc32(text), text))
        fresh.replace(self._path)


def _sum(path: Path) -> list[int]:
    size = found = 0
    with path.open("rb") as file:
        while part := file.read(_PIECE):
            found = zlib.crc32(part, found)
            size += len(part)
    return [size, found]
