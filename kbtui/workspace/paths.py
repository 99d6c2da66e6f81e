"""The directories kbtui uses outside the workspace, and JP's user-local ones.

kbtui's own lie under the XDG base directories (design, "Storage"); on macOS
too, as decided there. Every one can be overridden by its XDG variable.
"""

import os
import stat
from pathlib import Path

from kbtui.errors import WorkspaceError
from kbtui.workspace import path_strings


def cache_home() -> Path:
    """Where indexes lie; deleting it loses nothing but time."""
    return Path(path_strings.cache_home())


def config_home() -> Path:
    """Where `config.toml` lies."""
    return Path(path_strings.config_home())


def data_home() -> Path:
    """Where the journal lies: what cannot be rebuilt."""
    return Path(path_strings.data_home())


def state_home() -> Path:
    """Where logs lie."""
    return Path(path_strings.state_home())


def make_private(folder: Path) -> None:
    """Make a directory where there is none, for this user alone whatever the umask says.

    Its missing parents too, which `Path.mkdir` makes open to everybody that the umask lets in.
    Raises `OSError`.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def as_utf8(path: Path) -> str:
    """A path for libraries in Rust: they take it as UTF-8, in whatever encoding Python read it."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def runtime_dir() -> Path:
    """The directory of the engines' sockets: mode 0700, owned by this user.

    Made when missing. Raises `WorkspaceError` when somebody else owns it or
    others may enter it (design, the engine's rule 2).
    """
    path = Path(path_strings.runtime_folder())
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise WorkspaceError(
            f"cannot make the runtime directory: {error.strerror}",
            where=str(path),
            hint="set XDG_RUNTIME_DIR to a directory of your own",
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise WorkspaceError(
            "the runtime directory is not yours",
            where=str(path),
            hint="set XDG_RUNTIME_DIR to a directory of your own",
        )
    if status.st_mode & 0o077:
        path.chmod(0o700)
    return path


def jp_data_home() -> Path:
    """JP's user data directory."""
    return Path(path_strings.jp_data_home())


def jp_silo(root: Path, workspace_id: str | None) -> Path | None:
    """JP's user-local directory of the workspace, None where there is none.

    Found by the id's suffix; of several, the one with the exact name, else the
    most recently modified, ties by name.
    """
    if not workspace_id:
        return None
    try:
        found = [
            entry
            for entry in (jp_data_home() / "workspace").iterdir()
            if entry.name == workspace_id or entry.name.endswith(f"-{workspace_id}")
            if entry.is_dir()
        ]
    except OSError:
        return None
    exact = f"{root.name}-{workspace_id}"

    def preference(entry: Path) -> tuple[bool, int, str]:
        try:
            modified = entry.stat().st_mtime_ns
        except OSError:
            modified = 0
        return (entry.name == exact, modified, entry.name)

    return max(found, key=preference, default=None)


def jp_config_home() -> Path:
    """JP's user-global configuration directory."""
    return Path(path_strings.jp_config_home())
