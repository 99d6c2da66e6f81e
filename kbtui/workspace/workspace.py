"""Finding the workspace: the nearest directory at or above that holds `.jp`."""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kbtui.errors import WorkspaceError
from kbtui.files import read_regular
from kbtui.workspace import path_strings, paths

_ID = re.compile(r"[0-9a-z]{5}")


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
        return lines[-1] if lines and _ID.fullmatch(lines[-1]) else None

    @cached_property
    def user_dir(self) -> Path | None:
        """JP's user-local directory of this workspace."""
        return paths.jp_silo(self.root, self.id)

    @cached_property
    def key(self) -> str:
        """16 hex digits that name this workspace in cache, data and runtime.

        See `places.key`.
        """
        return path_strings.key(str(self.root))

    @property
    def cache_dir(self) -> Path:
        """The index's directory; made by whoever writes it."""
        return paths.cache_home() / self.key

    @property
    def data_dir(self) -> Path:
        """The journal's directory; made by whoever writes it."""
        return paths.data_home() / self.key

    @property
    def log_file(self) -> Path:
        """The engine's log."""
        return paths.state_home() / f"engine-{self.key}.log"


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
    if root := path_strings.nearest_root(str(here)):
        if not os.access(f"{root}/.jp", os.R_OK | os.X_OK):
            raise WorkspaceError("permission denied", where=str(Path(root) / ".jp"))
        return Workspace(Path(root))
    raise WorkspaceError(
        "no JP workspace here: neither this directory nor one above it holds a .jp directory",
        where=str(here),
        hint="go to a workspace, name one with -w PATH, make one with `jp init`, "
        "or look around with `kbtui demo`",
    )
