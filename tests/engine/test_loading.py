"""Loading what is heavy: the collector stays away meanwhile, and torch's libraries come first."""

import gc
import subprocess
import sys
import threading

import pytest

from kbtui.engine.embedding_worker import unhindered


def test_the_collector_rests_until_the_last_thread_has_loaded() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with unhindered():
            begun.set()
            go_on.wait(30)

    thread = threading.Thread(target=other)
    with unhindered():
        thread.start()
        assert begun.wait(30)
        assert not gc.isenabled()
    assert not gc.isenabled()
    go_on.set()
    thread.join()
    assert gc.isenabled()


def test_it_collects_again_when_loading_fails() -> None:
    with pytest.raises(ImportError), unhindered():
        raise ImportError("no such module")
    assert gc.isenabled()


ASIDE = """
import sys
from pathlib import Path
from kbtui.engine.embedding_worker import load_torch_aside
load_torch_aside()
assert "torch" not in sys.modules
assert "libtorch_cpu.so" in Path("/proc/self/maps").read_text()
import torch
print(int(torch.ones(3).sum()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there the import loads them")
def test_torch_finds_its_libraries_loaded_and_works() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASIDE], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
