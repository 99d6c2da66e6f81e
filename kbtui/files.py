"""Reads small files that somebody else wrote, without waiting for a pipe or reading without end."""

import os
import re
import stat
from typing import Any

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


PARTS_MOST = 100
"""Parts of a dotted key: the reader's time grows with their square."""
_CHAIN = re.compile(r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*)+""")


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text; raises `ValueError` with the reason, or `RecursionError`."""
    import tomllib

    if any(found[0].count(".") >= PARTS_MOST for found in _CHAIN.finditer(text)):
        raise ValueError(f"a key has more than {PARTS_MOST} parts")
    return tomllib.loads(text)
