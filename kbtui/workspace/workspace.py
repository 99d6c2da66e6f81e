"""Finds a workspace, and provides its root, its directories and its id."""

import os
import re
from functools import cached_property
from pathlib import Path

from kbtui.errors import KbtuiError, UsageError, WorkspaceError
from kbtui.file_reading_and_writing import read_regular_file, write_file_atomically
from kbtui.workspace import paths

_WORKSPACE_ID = re.compile(r"[0-9a-z]{5}")


class Workspace:
    """One workspace. `root` is the real path of its directory.

    A workspace that contains `.jp` is a JP workspace. `jp init` may create `.jp` while kbtui runs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._id: str | None = None
        self._jp_user_directory: Path | None = None

    @property
    def name(self) -> str:
        """The name of the workspace's directory, for headings."""
        return self.root.name or str(self.root)

    @property
    def is_jp_workspace(self) -> bool:
        """Whether the workspace contains `.jp`."""
        return self.jp_directory.is_dir()

    @property
    def jp_directory(self) -> Path:
        """JP's directory of conversations and configuration, which may not exist.

        This is `.jp` itself, or the directory that a pointer file `.jp` points to.
        """
        return Path(paths.get_jp_directory_of_workspace(str(self.root)))

    @property
    def kbtui_directory(self) -> Path:
        """The directory `.kbtui`, which contains kbtui's configuration if there is no `.jp`. It may not exist.

        kbtui creates the directory with the first file that the user writes into it.
        """
        return self.root / paths.KBTUI_DIRECTORY

    @property
    def config_directory(self) -> Path:
        """The directory of `kb.toml` and `kb-sources.toml`: `.jp` if it exists, else `.kbtui`."""
        return Path(paths.choose_jp_or_kbtui_config_directory(str(self.root)))

    def format_config_path(self, name: str) -> str:
        """Return the path of a file in `config_directory`.

        Below the workspace's root, the path is relative to the root.
        """
        return paths.format_path_relative_to_root(self.root, self.config_directory / name)

    def find_config_file_superseded_by_jp_directory(self, name: str) -> Path | None:
        """Return the path of a file in `.kbtui` that kbtui ignores, because `.jp` exists.

        Returns None if there is no such file.
        """
        path = self.kbtui_directory / name
        return path if self.is_jp_workspace and path.is_file() else None

    @property
    def id(self) -> str | None:
        """JP's id of the workspace: five characters of `[0-9a-z]`. None if `.jp/.id` has no id."""
        if self._id is None:
            try:
                text = read_regular_file(self.jp_directory / ".id").decode("utf-8", "replace")
            except OSError:
                return None
            lines = text.split()
            self._id = lines[-1] if lines and _WORKSPACE_ID.fullmatch(lines[-1]) else None
        return self._id

    @property
    def jp_user_directory(self) -> Path | None:
        """JP's user-local directory for this workspace, or None if there is none."""
        if self._jp_user_directory is None:
            self._jp_user_directory = paths.find_jp_user_directory(self.root, self.id)
        return self._jp_user_directory

    @cached_property
    def storage_key(self) -> str:
        """16 hex digits that identify this workspace in the cache, data and runtime directories."""
        return paths.make_workspace_key(str(self.root))

    @property
    def cache_dir(self) -> Path:
        """The directory of the index; it may not exist yet."""
        return Path(paths.get_kbtui_cache_directory(), self.storage_key)

    @property
    def user_data_directory(self) -> Path:
        """The directory of the query log and the bookmarks. It may not exist yet."""
        return Path(paths.get_kbtui_data_directory(), self.storage_key)

    @property
    def engine_log_file(self) -> Path:
        """The log file of the engine, which serves all workspaces of this user."""
        return Path(paths.get_kbtui_state_directory(), "engine.log")


def open_workspace_at_root(root: Path) -> Workspace:
    """Return the workspace with exactly this root."""
    return Workspace(root.resolve())


def find_workspace(start: Path | str | None = None) -> Workspace:
    """Return the workspace around `start`, by default the current directory.

    `paths.find_workspace_root` finds the workspace's root. Raises `WorkspaceError` if `start` does not
    exist or is not a directory, or if the configuration cannot be read.
    """
    try:
        here = Path(start or Path.cwd()).resolve()
    except (OSError, RuntimeError) as error:
        if start is None and isinstance(error, FileNotFoundError):
            hint = "change to another directory, or name a workspace with -w"
            raise WorkspaceError("the current directory was deleted", hint=hint) from error
        raise WorkspaceError(f"cannot read the path: {error}", where=str(start or ".")) from error
    if not here.exists():
        raise WorkspaceError("no such directory", where=str(start), hint="check the path after -w")
    if not here.is_dir():
        # The user may expect to see this file, and not everything around it.
        from shlex import quote

        hint = f"give its directory: -w {quote(str(Path(start or here).parent))}"
        raise WorkspaceError("this is a file, not a directory", where=str(start), hint=hint)
    root = paths.find_workspace_root(str(here))
    if not paths.is_config_directory_readable(root):
        raise WorkspaceError(
            "permission denied", where=paths.choose_jp_or_kbtui_config_directory(root)
        )
    return Workspace(Path(root))


def write_text_to_export_file(workspace: Workspace, path: Path, text: str) -> None:
    """Write `text` to the file at `path`. If `path` is a symbolic link, write to its target.

    Raises `UsageError` for a file in one of JP's directories, and `KbtuiError` if writing fails.
    """
    check_export_path_is_outside_jp_directories(workspace, path)
    real = Path(os.path.realpath(path))
    data = text.encode("utf-8", "replace")
    try:
        if os.path.exists(real) and not os.path.isfile(real):  # noqa: PTH110, PTH113  (never raise)
            # Write into a device or a pipe instead of replacing it. A directory raises OSError.
            real.write_bytes(data)
        else:
            write_file_atomically(real, data)
    except OSError as error:
        reason = error.strerror or error
        raise KbtuiError(f"the file cannot be written: {reason}", where=str(path)) from error


def check_export_path_is_outside_jp_directories(workspace: Workspace, path: Path) -> None:
    """Raise `UsageError` for a path in a `.jp` directory or in JP's user data directory."""
    protected = [workspace.jp_directory, Path(paths.get_jp_data_home())]
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        if folder.name.casefold() == ".jp" or any(_is_same_file(folder, one) for one in protected):
            hint = f"choose a file outside {folder}"
            message = "cannot export into one of JP's directories"
            raise UsageError(message, where=str(path), hint=hint)


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
