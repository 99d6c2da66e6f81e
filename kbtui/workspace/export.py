"""Writes files that a person exports, anywhere but among JP's own files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, UsageError
from kbtui.files import write_file
from kbtui.workspace.paths import jp_data_home

if TYPE_CHECKING:
    from kbtui.workspace.workspace import Workspace


def write_export(workspace: Workspace, path: Path, text: str) -> None:
    """Write a file that a person asked for, wherever it is, but never among JP's own files.

    A link is followed; a file with further names (hard links) is replaced, so those keep what
    they had. Raises `UsageError` where the file would lie in a `.jp` directory or in JP's
    user-local one, and `KbtuiError` where it cannot be written.
    """
    check_export(workspace, path)
    real = Path(os.path.realpath(path))
    data = text.encode("utf-8", "replace")
    try:
        if os.path.exists(real) and not os.path.isfile(real):  # noqa: PTH110, PTH113  (never raise)
            # A device or a pipe is written to, not replaced. A directory is refused by the system.
            real.write_bytes(data)
        else:
            write_file(real, data)
    except OSError as error:
        reason = error.strerror or error
        raise KbtuiError(f"cannot be written: {reason}", where=str(path)) from error


def check_export(workspace: Workspace, path: Path) -> None:
    """Raise `UsageError` for a path that `write_export` refuses."""
    kept = [workspace.jp, jp_data_home()]
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        if folder.name.casefold() == ".jp" or any(_is_same(folder, place) for place in kept):
            raise UsageError(
                "an export is not written there: the directory belongs to JP",
                where=str(path),
                hint=f"name a file outside {folder}",
            )


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file, however each is spelled."""
    try:
        return path.samefile(other)
    except OSError:
        return False
