"""Reads files of limited size, writes files atomically, and parses TOML."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import WorkspaceError
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FILE_SIZE_LIMIT = 500_000
"""The maximum size in bytes of a configuration file.

A larger file is not read, because parsing it takes more than a second.
"""


def read_regular_file(path: str | os.PathLike[str], max_bytes: int = FILE_SIZE_LIMIT) -> bytes:
    """Return the content of a regular file.

    Raises `OSError` if the file cannot be read, is not a regular file, or is larger than
    `max_bytes`.
    """
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > max_bytes:
            raise OSError(f"larger than {max_bytes:,} bytes")
        return file.read(status.st_size + 1)


FileState = tuple[int, int, int]
"""The inode, the size and the modification time (in nanoseconds) of a file."""


def get_inode_size_and_mtime(status: os.stat_result) -> FileState:
    """Return a file's inode, size and modification time. If the file is changed or replaced, at least one changes."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def read_inode_size_and_mtime(path: str | os.PathLike[str]) -> FileState | None:
    """Return a file's inode, size and modification time; None if the file is missing or not accessible."""
    try:
        return get_inode_size_and_mtime(os.stat(path))  # noqa: PTH116  (thousands)
    except OSError:
        return None


def format_inode_size_and_mtime(state: FileState | None) -> str:
    """Format a file's state as the catalog and the archive store it; "" if `state` is None."""
    return ":".join(map(str, state or ()))


def iterate_regular_file_blocks(path: str, block_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield the bytes of a regular file of any size in blocks. Raises `OSError`.

    All blocks except the last one have `block_bytes` bytes.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("not a regular file")
        while block := file.read(block_bytes):
            yield block


def write_file_atomically(path: Path, data: bytes, *, is_new: bool = False) -> None:
    """Write a file atomically. Raises `OSError`.

    If `is_new` is true, `path` must not exist yet.
    """
    staged = write_staged_file(path, data)
    try:
        if is_new:
            rename_staged_file_unless_path_exists(staged, path)
        else:
            staged.replace(path)
    finally:
        with suppress(OSError):
            staged.unlink(missing_ok=True)


def write_staged_file(path: Path, data: bytes) -> Path:
    """Write `data` to a hidden file next to `path`, and return the path of the hidden file.

    The caller must rename the hidden file to `path`. Raises `OSError`.
    """
    staged = path.with_name(f".{path.name[:50]}.{os.urandom(4).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(staged, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            staged.unlink(missing_ok=True)
        raise
    return staged


def rename_staged_file_unless_path_exists(staged: Path, path: Path) -> None:
    """Rename a staged file to `path`. Raises `FileExistsError` if `path` exists already."""
    try:
        # Unlike a rename, a link never replaces a file that another program has just made.
        os.link(staged, path)
        staged.unlink()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        # The file system has no hard links.
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "file exists") from error
        staged.rename(path)


def delete_database_files(path: Path) -> None:
    """Delete a SQLite file and the files that SQLite keeps next to it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def remove_empty_directories(directory: Path, root: Path) -> None:
    """Remove a directory and its parents below `root`, as long as they are empty."""
    while directory != root and directory.is_relative_to(root):
        try:
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent


class FileWriteOrRemoval(NamedTuple):
    """A change to one file: the file is written or removed.

    `old` is the content of the file before the change, and `new` is the content after the change.
    None means that the file does not exist.
    """

    path: Path
    old: bytes | None
    new: bytes | None


def write_and_remove_files_atomically(changes: Sequence[FileWriteOrRemoval]) -> None:
    """Make all changes to several files, or none of them. Raises `WorkspaceError`."""
    path = Path()
    with ExitStack() as undo:
        try:
            # Write all new content first, so that a full disk raises an error before any change.
            staged = {}
            for path, _, new in changes:
                if new is not None:
                    _make_missing_directories(path.parent, undo)
                    staged[path] = write_staged_file(path, new)
                    undo.callback(_call_ignoring_os_errors, staged[path].unlink)
            for path, old, _ in changes:
                if old is None:
                    rename_staged_file_unless_path_exists(staged[path], path)
                    undo.callback(_call_ignoring_os_errors, path.unlink)
                    continue
                if path.is_symlink() or path.read_bytes() != old:
                    raise WorkspaceError(
                        "another program changed the file, so kbtui changed nothing",
                        where=str(path),
                        hint="run the command again",
                    )
                if path in staged:
                    staged[path].replace(path)
                else:
                    path.unlink()
                undo.callback(_call_ignoring_os_errors, write_file_atomically, path, old)
        except OSError as error:
            message = f"{(error.strerror or str(error)).lower()}; nothing was changed"
            raise WorkspaceError(message, where=str(path)) from error
        undo.pop_all()


def _make_missing_directories(directory: Path, undo: ExitStack) -> None:
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for directory in reversed(missing):
        directory.mkdir()
        undo.callback(_call_ignoring_os_errors, directory.rmdir)


def _call_ignoring_os_errors(step: Callable[..., object], *arguments: object) -> None:
    with suppress(OSError):
        step(*arguments)


KEY_PARTS_LIMIT = 100
"""The maximum number of parts of a dotted key.

A longer key is an error, because `tomllib` would take too long to parse it.
"""
_DOTTED_KEY = r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*)+"""
"""A string, not a compiled pattern, because most commands never call the function below."""


def parse_toml_with_limited_key_depth(text: str) -> dict[str, Any]:
    """Parse TOML. Raises `ValueError` with the reason, or `RecursionError` for deep nesting."""
    import tomllib

    if any(found[0].count(".") >= KEY_PARTS_LIMIT for found in re.finditer(_DOTTED_KEY, text)):
        raise ValueError(f"a key has more than {KEY_PARTS_LIMIT} parts")
    return tomllib.loads(text)
