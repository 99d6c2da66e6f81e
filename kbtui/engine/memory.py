"""Gives memory that is no longer used back to the operating system."""

from __future__ import annotations

import contextlib


def return_free_memory() -> None:
    """Give memory that libraries have freed back to the operating system.

    The GNU C library keeps such memory until it is told to return it. Does nothing with other libraries.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
