"""Freed memory goes back to the operating system."""

import ctypes
import sys

import psutil
import pytest

from kbtui.engine.embedding_worker import return_freed_memory_to_system

MEGABYTE = 1 << 20


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="only the GNU C library keeps freed memory",
)
def test_memory_that_a_library_has_freed_is_returned() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.free.argtypes = [ctypes.c_void_p]
    blocks = [library.malloc(50_000) for _ in range(4000)]
    for block in blocks:
        ctypes.memset(block, 1, 50_000)
    # The last block keeps the library from returning the others by itself.
    for block in blocks[:-1]:
        library.free(block)
    before = psutil.Process().memory_info().rss
    return_freed_memory_to_system()
    assert before - psutil.Process().memory_info().rss > 100 * MEGABYTE
    library.free(blocks[-1])
