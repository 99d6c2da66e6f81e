"""Searching with several processes when there is much to search.

Decoding holds the interpreter's lock, so threads would take turns. A worker is this module run
as a program. All take the numbers of files from one pipe, so that none waits for another, and
what a worker took and did not answer is searched here.
"""

from __future__ import annotations

import os
import sys
from math import ceil
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.grep import Found, Query, Search, as_row, from_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from subprocess import Popen

WORTH = 8 << 20
"""Bytes to search from which another process pays for its start."""
MOST = 4
_TOKEN = 4
_TOKENS_MOST = 4096
"""What any system's pipe holds before anybody reads."""
_START = "import sys; sys.path[:] = {path!r}; from {module} import work; work({pipe})"


def search_all(
    files: Sequence[tuple[str, int]], query: Query, processes: int | None = None
) -> list[Found]:
    """Search files, each a path and a size; one `Found` a file, with its first few matches.

    `processes` is chosen by size and idle processors unless given.
    """
    if processes is None:
        much = sum(size for _, size in files) >= WORTH
        processes = _spare() if much else 1
    search = Search(query)
    if processes <= 1 or len(files) < 2:
        return [search.file(path) for path, _ in files]
    # The largest first, so that none of them is what all wait for at the end.
    order = sorted(range(len(files)), key=lambda number: -files[number][1])
    there = _share_out([files[number][0] for number in order], search, processes)
    answer = [Found()] * len(files)
    for number, found in zip(order, there, strict=True):
        answer[number] = found
    return answer


def _spare() -> int:
    """How many processes this machine has processors for; on a busy one, more would only be in the way."""
    count = os.cpu_count() or 1
    try:
        busy = os.getloadavg()[0]
    except OSError:
        busy = 0.0
    return max(1, min(MOST, ceil(count - busy)))


def _share_out(paths: list[str], search: Search, processes: int) -> list[Found]:
    found: list[Found | None] = [None] * len(paths)
    batch = -(-len(paths) // _TOKENS_MOST)
    source, sink = os.pipe()
    workers: list[Popen[bytes] | None] = []
    try:
        tokens = [number.to_bytes(_TOKEN, "little") for number in range(0, len(paths), batch)]
        os.write(sink, b"".join(tokens))
        os.close(sink)
        workers += [_start(paths, batch, search.query, source) for _ in range(processes - 1)]
        for number in _taken(source, batch, len(paths)):
            found[number] = search.file(paths[number])
        for worker in workers:
            for number, row in _finish(worker):
                found[number] = from_row(row)
    finally:
        os.close(source)
        for worker in workers:
            if worker is not None and worker.poll() is None:
                worker.kill()
                worker.wait()
    return [
        search.file(path) if one is None else one for path, one in zip(paths, found, strict=True)
    ]


def _taken(pipe: int, batch: int, count: int) -> Iterator[int]:
    """The numbers of files that this process gets from the pipe, until it is empty."""
    while token := os.read(pipe, _TOKEN):
        number = int.from_bytes(token, "little")
        yield from range(number, min(count, number + batch))


def _start(paths: list[str], batch: int, query: Query, pipe: int) -> Popen[bytes] | None:
    from subprocess import DEVNULL, PIPE, Popen

    if not sys.executable:
        return None
    task = {
        "paths": paths,
        "batch": batch,
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "scopes": sorted(query.scopes),
        "context": query.context,
    }
    program = _START.format(path=sys.path, module=__name__, pipe=pipe)
    try:
        data = orjson.dumps(task)
        worker = Popen(
            # Without `site`, which it has no use for: its path is this process's.
            [sys.executable, "-S", "-P", "-c", program],
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            pass_fds=[pipe],
            # Where there is room for all of it, nobody waits until the worker reads.
            pipesize=min(len(data) + 4096, 1 << 20),
        )
    except (OSError, TypeError):
        return None
    try:
        with worker.stdin as task_pipe:  # type: ignore[union-attr]
            task_pipe.write(data)
    except OSError:
        # It ended before it had read its task, which `_finish` will notice.
        pass
    return worker


def _finish(worker: Popen[bytes] | None) -> list[tuple[int, list[Any]]]:
    """What a worker found by number of file; nothing where it failed."""
    if worker is None:
        return []
    with worker.stdout as pipe:  # type: ignore[union-attr]
        data = pipe.read()
    return orjson.loads(data or b"[]") if worker.wait() == 0 else []


def work(pipe: int) -> None:
    """A worker: the task on stdin, numbers of files from the pipe, the answer on stdout."""
    task = orjson.loads(sys.stdin.buffer.read())
    paths, batch = task.pop("paths"), task.pop("batch")
    search = Search(Query(**{**task, "scopes": frozenset(task["scopes"])}))
    answer = [
        (number, as_row(search.file(paths[number]))) for number in _taken(pipe, batch, len(paths))
    ]
    sys.stdout.buffer.write(orjson.dumps(answer))
