"""Writes and removes several files as one: all of it, or nothing."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from kbtui.errors import WorkspaceError
from kbtui.files import place_new_file, stage_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType


class Transaction:
    """Collects changes of files under `root`, and makes them when the block ends well.

    New texts are written beside their targets first, so that a full disk or a
    missing right shows before anything is changed. A file must still be what it
    was said to be; one that is new must still not be there. Raises `WorkspaceError`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._writes: list[tuple[Path, bytes, bytes | None]] = []
        self._removals: list[tuple[Path, bytes]] = []
        self._staged: list[Path] = []
        self._undo: list[Callable[[], None]] = []

    def write(self, path: str, new: bytes, old: bytes | None) -> None:
        """Write `path`, relative to the root, over `old`; None: it is a new file."""
        self._writes.append((self._root / path, new, old))

    def remove(self, path: str, old: bytes) -> None:
        """Remove `path`."""
        self._removals.append((self._root / path, old))

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._commit()

    def _commit(self) -> None:
        place = ""
        try:
            staged = []
            for target, new, old in self._writes:
                place = str(target)
                self._make_folders(target.parent)
                staged.append((self._stage(target, new), target, old))
            for path, target, old in staged:
                place = str(target)
                self._put(path, target, old)
            for target, old in self._removals:
                place = str(target)
                self._check(target, old)
                target.unlink()
                self._undo.append(partial(self._restore, target, old))
        except BaseException as error:
            self._clean()
            for step in reversed(self._undo):
                with contextlib.suppress(OSError):
                    step()
            if isinstance(error, OSError):
                words = (error.strerror or str(error)).lower()
                raise WorkspaceError(f"{words}; nothing was changed", where=place) from error
            raise
        finally:
            self._clean()

    def _clean(self) -> None:
        for staged in self._staged:
            with contextlib.suppress(OSError):
                staged.unlink()

    def _make_folders(self, folder: Path) -> None:
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            folder.mkdir()
            self._undo.append(folder.rmdir)

    def _stage(self, target: Path, data: bytes) -> Path:
        staged = stage_file(target, data)
        self._staged.append(staged)
        return staged

    def _put(self, staged: Path, target: Path, old: bytes | None) -> None:
        if old is None:
            place_new_file(staged, target)
            self._undo.append(target.unlink)
        else:
            self._check(target, old)
            staged.replace(target)
            self._undo.append(partial(self._restore, target, old))

    def _check(self, target: Path, old: bytes) -> None:
        if target.is_symlink() or target.read_bytes() != old:
            raise WorkspaceError(
                "it was changed meanwhile; nothing was changed here",
                where=str(target),
                hint="run the command again",
            )

    def _restore(self, target: Path, old: bytes) -> None:
        self._stage(target, old).replace(target)
