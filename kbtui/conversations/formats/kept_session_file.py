"""Writes and reads kept copies of session files.

A copy is compressed with gzip. Its name contains the SHA-256 of the original bytes.

LZMA compresses better than gzip, but gzip decompresses faster, and kbtui decompresses a copy each
time it reads the copy. Also, `zcat` restores a copy without kbtui.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kbtui.errors import WorkspaceError
from kbtui.workspace import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT_FILE_SUFFIX = ".gz"
_NAME = re.compile(r"([0-9a-f]{64})\.jsonl?\.gz")
_BLOCK_BYTES = 1 << 20


def compress_file_in_memory_and_hash(file: int, size: int) -> tuple[bytes, str]:
    """Compress the first `size` bytes of an open file; also return the SHA-256 of these bytes.

    Raises `WorkspaceError` if the file has fewer bytes, and `OSError` if it cannot be read.
    """
    import gzip

    digest, compressed, at = hashlib.sha256(), BytesIO(), 0
    # Without a time and a name, equal files have equal copies.
    with gzip.GzipFile("", "wb", 6, compressed, mtime=0) as target:
        while at < size and (block := os.pread(file, min(_BLOCK_BYTES, size - at), at)):
            digest.update(block)
            target.write(block)
            at += len(block)
    if at < size:
        raise WorkspaceError("another program shortened the file while it was being copied")
    return compressed.getvalue(), digest.hexdigest()


def has_kept_session_file_name(path: str) -> bool:
    """Return whether a path has the name of a kept copy."""
    return path.endswith(KEPT_FILE_SUFFIX) and _NAME.fullmatch(path.rpartition("/")[2]) is not None


def iterate_kept_session_file_blocks(path: str) -> Iterator[bytes]:
    """Yield the original bytes of a kept copy in blocks.

    Raises `OSError`, and `WorkspaceError` if the copy is damaged. The bytes are compared with the
    SHA-256 in the copy's name only after the last block.
    """
    # Few processes read a kept copy, but all import this module.
    import gzip
    import zlib

    digest = hashlib.sha256()
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(path, flags), "rb") as compressed, gzip.open(compressed) as source:
            while block := source.read(_BLOCK_BYTES):
                digest.update(block)
                yield block
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise _make_damaged_kept_session_error(path) from None
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None or match[1] != digest.hexdigest():
        raise _make_damaged_kept_session_error(path)


def _make_damaged_kept_session_error(path: str) -> WorkspaceError:
    hint = "run `kbtui keep` to copy the session again, if its agent still has it"
    return WorkspaceError("the kept copy is damaged", where=path, hint=hint)


def verify_and_decompress_kept_session(path: str) -> IO[bytes]:
    """Verify the original bytes of a kept copy, and return an unnamed file that contains them.

    The file has the modification time of the copy. Several callers use the same file, so they must
    neither move its position nor close it. The file disappears when nothing refers to it any more.
    Raises `OSError` or `WorkspaceError`.
    """
    status = os.stat(path)  # noqa: PTH116
    return _decompress_to_unnamed_file(path, status.st_ino, status.st_size, status.st_mtime_ns)


# A long session is read in parts, and each part opens the file again, so the last file is cached.
@lru_cache(maxsize=1)
def _decompress_to_unnamed_file(path: str, _inode: int, _size: int, modified_ns: int) -> IO[bytes]:
    import tempfile

    # In kbtui's own directory, because /tmp may be in memory.
    directory = Path(paths.get_kbtui_cache_directory())
    paths.make_private_directory(directory)
    file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  (closed with its last reference)
    for block in iterate_kept_session_file_blocks(path):
        file.write(block)
    file.flush()
    os.utime(file.fileno(), ns=(modified_ns, modified_ns))
    return file
