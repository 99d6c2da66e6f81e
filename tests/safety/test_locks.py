"""Reading locks no file of the workspace, and does not wait for other programs' locks."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from running import on_pipe
from support import Builder, kill_engine

TALK = "jp-c17757622345"
COMMANDS = [
    ["topics"], ["learn", "guide", "about"], ["prompt"], ["c", "ls"], ["c", "grep", "retry"],
    ["c", "read", TALK, "--last", "1"], ["index", "--no-vectors"], ["search", "retry"], ["cites", "engineering/engine-rules"],
]  # fmt: skip
_LOCKS = re.compile(
    r"(?:flock|fcntl)\(\d+<(?P<path>[^>]*)>, (?P<what>LOCK_\w+|F_\w*(?:LK|LEASE)\w*)"
)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    root = tmp_path / "ws"
    shutil.copytree(Path(__file__).parents[2] / "assets/demo", root)
    yield root
    kill_engine(Builder(root))


def files_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


@contextmanager
def all_locked(root: Path) -> Iterator[None]:
    """Lock every file in both ways, like programs that write them."""
    with ExitStack() as held:
        for path in files_of(root):
            file = held.enter_context(path.open("rb+"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextmanager
def locks_seen(root: Path) -> Iterator[set[str]]:
    """Polls the kernel's list of locks for those on files and directories of a tree."""
    inodes = {str(path.stat().st_ino): str(path) for path in [root, *root.rglob("*")]}
    device = _device(root)
    found: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.001):
            found.update(
                inodes[inode] for where, inode in _locked() if where == device and inode in inodes
            )

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _locked() -> Iterator[tuple[str, str]]:
    """Return device and inode of every lock in the kernel's list."""
    for line in Path("/proc/locks").read_text().splitlines():
        device, _, inode = line.replace("-> ", "").split()[5].rpartition(":")
        yield device, inode


def _device(root: Path) -> str:
    """Return the device number of a tree's file system, as in the kernel's list."""
    probe = next(path for path in files_of(root))
    with probe.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        inode = str(probe.stat().st_ino)
        return next(device for device, locked in _locked() if locked == inode)


def run_each(root: Path) -> list[tuple[str, int]]:
    return [
        (words[0], code)
        for words in COMMANDS
        if (code := on_pipe(["-w", str(root), *words])[2]) != 0
    ]


def test_reading_waits_for_no_lock_and_takes_none(copied: Path) -> None:
    with all_locked(copied):
        assert run_each(copied) == []
    with locks_seen(copied) as found:
        assert run_each(copied) == []
    assert not found


def test_a_lock_is_seen_where_there_is_one(copied: Path) -> None:
    taken = files_of(copied)[0]
    with locks_seen(copied) as found, taken.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        while not found:
            assert threading.main_thread().is_alive()
    assert found == {str(taken)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_command_and_no_screen_asks_the_kernel_for_one(copied: Path, tmp_path: Path) -> None:
    """Run commands, screen and engine under `strace`, which also sees native libraries."""
    here = str(Path(__file__).parent)
    trace = tmp_path / "trace"
    done = subprocess.run(
        ["strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", "trace=flock,fcntl", "-o", str(trace),
         sys.executable, "-c",
         "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:];"
         "from test_reading_only import run_all; print(run_all(Path(sys.argv[1])))",
         str(copied), here, str(Path(here).parent)],
        capture_output=True, text=True, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
    asked = [found["path"] for line in trace.open() if (found := _LOCKS.search(line))]
    assert any(path.endswith("engine.lock") for path in asked), "the trace sees no lock"
    assert [path for path in asked if Path(path).is_relative_to(copied)] == []
