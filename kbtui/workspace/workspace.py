"""Finding the workspace: the nearest directory at or above that holds `.jp`."""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kbtui.errors import KbtuiError, UsageError, WorkspaceError
from kbtui.files import read_regular, write_file
from kbtui.workspace import paths

_WORKSPACE_ID = re.compile(r"[0-9a-z]{5}")


@dataclass(frozen=True)
class Workspace:
    """One JP workspace, and where kbtui keeps what belongs to it.

    `root` is the real path of the directory that holds `.jp`; nothing under it
    is written by opening it.
    """

    root: Path

    @property
    def name(self) -> str:
        """The directory's name, for headings."""
        return self.root.name or str(self.root)

    @property
    def jp(self) -> Path:
        """The workspace storage, `.jp`."""
        return self.root / ".jp"

    @cached_property
    def id(self) -> str | None:
        """JP's id of the workspace: five characters of `[0-9a-z]`, else None."""
        try:
            lines = read_regular(self.jp / ".id").decode("utf-8", "replace").split()
        except OSError:
            return None
        return lines[-1] if lines and _WORKSPACE_ID.fullmatch(lines[-1]) else None

    @cached_property
    def user_dir(self) -> Path | None:
        """JP's user-local directory of this workspace."""
        return paths.find_user_directory(self.root, self.id)

    @cached_property
    def key(self) -> str:
        """16 hex digits that name this workspace in cache, data and runtime."""
        return paths.workspace_key(str(self.root))

    @property
    def cache_dir(self) -> Path:
        """The index's directory; made by whoever writes it."""
        return Path(paths.cache_home(), self.key)

    @property
    def data_dir(self) -> Path:
        """The journal's directory; made by whoever writes it."""
        return Path(paths.data_home(), self.key)

    @property
    def log_file(self) -> Path:
        """The engine's log."""
        return Path(paths.state_home(), f"engine-{self.key}.log")


def open_root(root: Path) -> Workspace:
    """The workspace whose `.jp` directory lies in `root` itself."""
    return Workspace(root.resolve())


def find_workspace(start: Path | None = None) -> Workspace:
    """The workspace at or above `start`, by default the current directory.

     A directory named `.jp` makes a workspace; a file of that name does not
    . Raises `WorkspaceError`.
    """
    try:
        here = (start or Path.cwd()).resolve()
    except (OSError, RuntimeError) as error:
        raise WorkspaceError(f"cannot read the path: {error}", where=str(start or ".")) from error
    if not here.exists():
        raise WorkspaceError("no such directory", where=str(start), hint="check the path after -w")
    if root := paths.find_root(str(here)):
        if not os.access(f"{root}/.jp", os.R_OK | os.X_OK):
            raise WorkspaceError("permission denied", where=str(Path(root) / ".jp"))
        return Workspace(Path(root))
    raise WorkspaceError(
        "no JP workspace here: neither this directory nor one above it holds a .jp directory",
        where=str(here),
        hint="go to a workspace, name one with -w PATH, make one with `jp init`, "
        "or look around with `kbtui demo`",
    )


def write_export(workspace: Workspace, path: Path, text: str) -> None:
    """Write a file that a person asked for, wherever it is, but never among JP's own files.

    A link is followed; a file with further names (hard links) is replaced, so those keep what
    they had. Raises `UsageError` where the file would lie in a `.jp` directory or in JP's
    user-local one, and `KbtuiError` where it cannot be written.
    """
    check_export_path(workspace, path)
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


def check_export_path(workspace: Workspace, path: Path) -> None:
    """Raise `UsageError` for a path that `write_export` refuses."""
    kept = [workspace.jp, Path(paths.jp_data_home())]
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        if folder.name.casefold() == ".jp" or any(_is_same_file(folder, place) for place in kept):
            raise UsageError(
                "an export is not written there: the directory belongs to JP",
                where=str(path),
                hint=f"name a file outside {folder}",
            )


def _is_same_file(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file, however each is spelled."""
    try:
        return path.samefile(other)
    except OSError:
        return False
