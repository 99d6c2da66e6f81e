"""Searches with several processes when there is much to search."""

from __future__ import annotations

import os
import sys
from math import ceil
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from kbtui.conversations.grep import ConversationMatches, GrepQuery, GrepSearch, as_row, from_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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


class ForkedWorker:
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


class SpawnedWorker:
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


WORTH = 2 << 20
"""Bytes to search from which a copy of this process pays for itself."""
WORTH_PROGRAM = 16 << 20
"""Bytes to search from which a program of its own pays for its start."""
MOST = 4
_TOKEN = 4
_TOKENS_MOST = 4096
"""What any system's pipe holds before anybody reads."""
_START = "import sys; sys.path[:] = {path!r}; from {module} import work; work({pipe})"


def search_all(
    files: Sequence[tuple[str, int]], query: GrepQuery, processes: int | None = None
) -> list[ConversationMatches]:
    """Search files, each a path and a size; one `Found` a file, with its first few matches.

    `processes` is chosen by size and processors unless given.
    """
    if processes is None:
        processes = _processes(sum(size for _, size in files))
    search = GrepSearch(query)
    if processes <= 1 or len(files) < 2:
        return [search.file(path) for path, _ in files]
    # The largest first, so that none of them is what all wait for at the end.
    order = sorted(range(len(files)), key=lambda number: -files[number][1])
    there = _share_out([files[number][0] for number in order], search, processes)
    answer = [ConversationMatches()] * len(files)
    for number, found in zip(order, there, strict=True):
        answer[number] = found
    return answer


def _processes(size: int) -> int:
    """How many processes should search that many bytes."""
    if size < WORTH:
        return 1

    return _spare() if size >= WORTH_PROGRAM or is_alone() else 1


def _spare() -> int:
    """How many processes there are processors for now; on a busy machine more would be in the way."""
    if sys.platform == "linux":
        count: float = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(MOST, ceil(count - _busy())))


def _busy() -> float:
    """How many processors others use: at this moment where that can be told, else on average."""
    try:
        # The mean of a minute would still count what was done right before this.
        with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[3].partition("/")[0]) - 1
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def _share_out(paths: list[str], search: GrepSearch, processes: int) -> list[ConversationMatches]:
    found: list[ConversationMatches | None] = [None] * len(paths)
    batch = -(-len(paths) // _TOKENS_MOST)
    source, sink = os.pipe()
    workers: list[ForkedWorker | SpawnedWorker] = []
    try:
        tokens = [number.to_bytes(_TOKEN, "little") for number in range(0, len(paths), batch)]
        os.write(sink, b"".join(tokens))
        os.close(sink)
        try:
            for _ in range(processes - 1):
                # One by one: those before one that fails are ended with the rest.
                workers.append(_start(paths, batch, search, source))  # noqa: PERF401
        except (OSError, TypeError):
            # No process to be had, or a path that no JSON holds: then without.
            pass
        for number in _taken(source, batch, len(paths)):
            found[number] = search.file(paths[number])
        for worker in workers:
            for number, row in orjson.loads(worker.answer() or b"[]"):
                found[number] = from_row(row)
    finally:
        os.close(source)
        for worker in workers:
            worker.end()
    return [
        search.file(path) if one is None else one for path, one in zip(paths, found, strict=True)
    ]


def _taken(pipe: int, batch: int, count: int) -> Iterator[int]:
    """The numbers of files that this process gets from the pipe, until it is empty."""
    while token := os.read(pipe, _TOKEN):
        number = int.from_bytes(token, "little")
        yield from range(number, min(count, number + batch))


def _start(
    paths: list[str], batch: int, search: GrepSearch, pipe: int
) -> ForkedWorker | SpawnedWorker:
    """One process more; raises `OSError`, and `TypeError` for what cannot be told to it."""

    if is_alone():
        return ForkedWorker(lambda: _answer(paths, batch, search, pipe))
    query = search.query
    task = {
        "paths": paths,
        "batch": batch,
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "scopes": sorted(query.scopes),
        "context": query.context,
        "masked": query.masked,
    }
    return SpawnedWorker(_START.format(path=sys.path, module=__name__, pipe=pipe), task, pipe)


def _answer(paths: list[str], batch: int, search: GrepSearch, pipe: int) -> bytes:
    """What this process finds, as JSON."""
    return orjson.dumps(
        [(number, as_row(search.file(paths[number]))) for number in _taken(pipe, batch, len(paths))]
    )


def work(pipe: int) -> None:
    """A worker: the task on stdin, numbers of files from the pipe, the answer on stdout."""
    task: dict[str, Any] = orjson.loads(sys.stdin.buffer.read())
    paths, batch = task.pop("paths"), task.pop("batch")
    search = GrepSearch(GrepQuery(**{**task, "scopes": frozenset(task["scopes"])}))
    sys.stdout.buffer.write(_answer(paths, batch, search, pipe))
