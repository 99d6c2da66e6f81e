"""Other processes that help to search: copies of this one where it has one thread, else programs.

A copy works at once, while a program needs a tenth of a second for its imports. But a copy has the
one thread that made it: what another held at that moment, it would wait for for good.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

_PIECE = 1 << 16


def is_alone() -> bool:
    """Whether this process is known to have one thread; no but on Linux, where that can be counted."""
    if sys.platform != "linux":
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208
    except OSError:
        return False


class Copy:
    """This process once more, which does one thing and ends; raises `OSError` where it cannot be made."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        self._pipe, answers = os.pipe()
        try:
            self._id = os.fork()
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            if getattr(self, "_id", None) != 0:
                os.close(answers)
        if self._id == 0:
            _do(work, answers)

    def answer(self) -> bytes | None:
        """What the work gave, once it is done; None where it failed."""
        parts = []
        while part := os.read(self._pipe, _PIECE):
            parts.append(part)
        return b"".join(parts) if self._wait() == 0 else None

    def end(self) -> None:
        """End it if it still works, and let go of it."""
        os.close(self._pipe)
        if self._id:
            from signal import SIGKILL

            os.kill(self._id, SIGKILL)
            self._wait()

    def _wait(self) -> int:
        _, status = os.waitpid(self._id, 0)
        self._id = 0
        return status


def _do(work: Callable[[], bytes], answers: int) -> NoReturn:
    """Work, and leave without what this process's own end would do a second time."""
    code = 1
    try:
        from signal import SIG_DFL, SIGINT, signal

        # What is to be said of Ctrl-C, the first one says.
        signal(SIGINT, SIG_DFL)
        data = memoryview(work())
        while data:
            data = data[os.write(answers, data) :]
        code = 0
    finally:
        os._exit(code)


class Program:
    """A program of Python's on its own; raises `OSError` where it cannot be started."""

    def __init__(self, source: str, task: Any, pipe: int) -> None:
        """`task` is written to its input as JSON; it inherits `pipe`."""
        from subprocess import DEVNULL, PIPE, Popen

        if not sys.executable:
            raise OSError("it is not known where Python is")
        data = orjson.dumps(task)
        self._process: Popen[bytes] = Popen(
            # Without `site`, which it has no use for: its path is this process's.
            [sys.executable, "-S", "-P", "-c", source],
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            pass_fds=[pipe],
            # Where there is room for all of it, nobody waits until the worker reads.
            pipesize=min(len(data) + 4096, 1 << 20),
        )
        try:
            with self._process.stdin as task_pipe:  # type: ignore[union-attr]
                task_pipe.write(data)
        except OSError:
            # It ended before it had read its task, which its answer will tell.
            pass

    def answer(self) -> bytes | None:
        """What it printed, once it has ended; None where it failed."""
        data: bytes = self._process.stdout.read()  # type: ignore[union-attr]
        return data if self._process.wait() == 0 else None

    def end(self) -> None:
        """End it if it still works, and let go of it."""
        self._process.stdout.close()  # type: ignore[union-attr]
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
