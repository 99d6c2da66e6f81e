"""Reads the content that JP stores in blobs, outside a conversation's file."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbtui.conversations.models import ContentState

MAX_BLOB_BYTES = 16 << 20
"""The maximum size in bytes of the content of a blob. A larger blob is not read."""
MAX_TOTAL_BYTES = 64 << 20
"""The maximum size in bytes of all blobs that are read for one conversation."""
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_GZIP_SIGNATURE = b"\x1f\x8b"
_GZIP_FORMAT = zlib.MAX_WBITS | 16


class UnreadableBlob(Exception):
    """A blob cannot be read; `state` is the reason."""

    def __init__(self, state: ContentState) -> None:
        super().__init__(state)
        self.state: ContentState = state


class BlobStore:
    """Reads the blobs to which one conversation refers.

    A blob is named by the SHA-256 of its content. It is looked for in `directories`, in this order.
    """

    def __init__(self, directories: Sequence[str] = ()) -> None:
        self._directories = directories
        self._bytes_left = MAX_TOTAL_BYTES

    def read_blob(self, name: object) -> bytes:
        """Return the content of a blob. Raises `UnreadableBlob`.

        `name` is the value of `$blob`. The content is returned only if it has the SHA-256 in `name`.
        """
        found = _DIGEST.fullmatch(name) if type(name) is str else None
        if found is None:
            # Only hexadecimal digits become a part of a path.
            raise UnreadableBlob("elsewhere")
        digest, state = found[1].lower(), UnreadableBlob("missing")
        for path in self._list_possible_paths(digest):
            try:
                content = _read_and_decompress(path, min(MAX_BLOB_BYTES, self._bytes_left))
            except FileNotFoundError:
                continue
            except (OSError, zlib.error, EOFError):
                state = UnreadableBlob("damaged")
            except UnreadableBlob as error:
                state = error
            else:
                if hashlib.sha256(content).hexdigest() == digest:
                    self._bytes_left -= len(content)
                    return content
                state = UnreadableBlob("damaged")
        raise state

    def _list_possible_paths(self, digest: str) -> Iterator[str]:
        """Yield the paths that a blob can have.

        In JP's design, the file's name is either the whole digest, or the rest of the digest after
        the names of the directories.
        """
        first, second, rest = digest[:2], digest[2:4], digest[4:]
        for directory in self._directories:
            folder = f"{directory}/{first}/{second}"
            # A link in place of one of the directories could lead out of the workspace.
            if os.path.realpath(folder) == f"{os.path.realpath(directory)}/{first}/{second}":
                yield f"{folder}/{rest}.blob.gz"
                yield f"{folder}/{digest}.blob.gz"


def _read_and_decompress(path: str, max_bytes: int) -> bytes:
    """Return the content of a gzip file.

    Raises `OSError`, `zlib.error` or `EOFError`, and `UnreadableBlob` if the content has more than
    `max_bytes` bytes.
    """
    file = os.open(path, _FLAGS)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > max_bytes:
            raise UnreadableBlob("too-large")
        with os.fdopen(file, "rb", closefd=False) as opened:
            data = opened.read(max_bytes + 1)
    finally:
        os.close(file)
    if not data.startswith(_GZIP_SIGNATURE):
        raise OSError("not a gzip file")
    # A small file can decompress to gigabytes, so the output is limited, too.
    stream = zlib.decompressobj(_GZIP_FORMAT)
    content = stream.decompress(data, max_bytes + 1)
    if len(content) > max_bytes:
        raise UnreadableBlob("too-large")
    if not stream.eof:
        raise EOFError
    return content
