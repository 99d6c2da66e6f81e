"""Loads what is heavy without keeping the engine's other threads waiting.

Two things stop all threads at once, for up to 0.4 s, in which no question is answered and no
stop heard: the collector, which looks at everything again and again while modules are
imported, and the dynamic loader, which Python calls with its lock held.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.index.embedding import Embedder, Model

_lock = threading.Lock()
_loading = 0


@contextmanager
def unhindered() -> Iterator[None]:
    """Keep the collector away while modules are imported, from whichever threads.

    What was loaded it never looks at afterwards: modules are not garbage.
    """
    global _loading
    with _lock:
        _loading += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _loading -= 1
            if not _loading:
                gc.freeze()
                gc.enable()


def import_lance() -> None:
    """Import what the vectors are kept with: a second or two."""
    import kbtui.index.vectors  # noqa: F401


def load_whole(model: Model) -> Embedder:
    """The model under torch, in several seconds; raises `ModelUnavailable`."""
    with unhindered():
        load_torch_aside()
        from kbtui.index.embedding import Embedder

        return Embedder(model)


def load_torch_aside() -> None:
    """Have torch's libraries, hundreds of megabytes, in the process before torch is imported.

    A foreign function is called without Python's lock. What cannot be loaded so is left
    for the import, which says what is wrong with it.
    """
    spec = find_spec("torch") if sys.platform == "linux" else None
    if spec is None or spec.origin is None:
        return
    dlopen = getattr(ctypes.CDLL(None), "dlopen", None)
    if dlopen is None:
        return
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for name in ("libc10.so", "libtorch_cpu.so"):
        dlopen(os.fsencode(Path(spec.origin).parent / "lib" / name), sys.getdlopenflags())
