"""Reading a file that may be anything by now: no pipe is waited for, no device read without end."""

import os
import stat

FILE_MOST = 500_000
"""Bytes of the largest configuration file that is read: about a second's work."""


def read_regular(path: str | os.PathLike[str], most: int = FILE_MOST) -> bytes:
    """The bytes of a regular file, or of one that a link leads to.

    Raises `OSError`, also for what is no such file, and for one of more than `most` bytes.
    """
    # O_NONBLOCK: opening a pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > most:
            raise OSError(f"larger than {most:,} bytes")
        return file.read(status.st_size + 1)
