"""Searching with several processes when there is much to search.

Decoding holds the interpreter's lock, so threads would take turns. A worker is
this module run as a program; what it cannot do is done here instead.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.grep import Found, Query, as_row, from_row, search_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from subprocess import Popen

WORTH = 32 << 20
"""Bytes to search from which another process pays for its start."""
MOST = 4


def search_all(
    files: Sequence[tuple[str, int]], query: Query, processes: int | None = None
) -> list[Found]:
    """Search files, each a path and a size, in this order; one `Found` a file.

    `processes` is chosen by size and processors unless given. More matches than
    `query.limit` may be kept: the caller cuts.
    """
    if processes is None:
        much = sum(size for _, size in files) >= WORTH
        processes = min(MOST, os.cpu_count() or 1) if much else 1
    shares = _share([size for _, size in files], max(1, processes))
    workers = [_start([files[number][0] for number in share], query) for share in shares[1:]]
    answer: list[Found | None] = [None] * len(files)
    try:
        mine = search_files([files[number][0] for number in shares[0]], query)
        for number, found in zip(shares[0], mine, strict=True):
            answer[number] = found
        for share, worker in zip(shares[1:], workers, strict=True):
            found_there = _finish(worker, len(share))
            if found_there is None:
                found_there = search_files([files[number][0] for number in share], query)
            for number, found in zip(share, found_there, strict=True):
                answer[number] = found
    finally:
        for worker in workers:
            if worker is not None and worker.poll() is None:
                worker.kill()
                worker.wait()
    return [found or Found() for found in answer]


def _share(sizes: Sequence[int], parts: int) -> list[list[int]]:
    """Positions for each process, alike in bytes and each in order."""
    shares: list[list[int]] = [[] for _ in range(parts)]
    loads = [0] * parts
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        least = loads.index(min(loads))
        shares[least].append(number)
        loads[least] += sizes[number] + 1
    return [sorted(share) for share in shares]


def _start(paths: list[str], query: Query) -> Popen[bytes] | None:
    from subprocess import DEVNULL, PIPE, Popen

    if not paths or not sys.executable:
        return None
    task = {
        "paths": paths,
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "scopes": sorted(query.scopes),
        "context": query.context,
        "limit": query.limit,
    }
    try:
        worker = Popen(
            [sys.executable, "-P", "-m", __name__], stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        with worker.stdin as pipe:  # type: ignore[union-attr]
            pipe.write(orjson.dumps(task))
    except (OSError, TypeError):
        return None
    return worker


def _finish(worker: Popen[bytes] | None, expected: int) -> list[Found] | None:
    """What a worker found; None where it failed."""
    if worker is None:
        return None
    with worker.stdout as pipe:  # type: ignore[union-attr]
        data = pipe.read()
    if worker.wait() != 0:
        return None
    rows: list[Any] = orjson.loads(data)
    return [from_row(row) for row in rows] if len(rows) == expected else None


def _work() -> None:
    """A worker: the task on stdin, the answer on stdout."""
    task = orjson.loads(sys.stdin.buffer.read())
    paths = task.pop("paths")
    query = Query(**{**task, "scopes": frozenset(task["scopes"])})
    sys.stdout.buffer.write(orjson.dumps([as_row(found) for found in search_files(paths, query)]))


if __name__ == "__main__":
    _work()
