"""Indexes a share of many new entries in another process, because one Python process uses only one core.

The process writes a *part*: a catalog and keyword indexes of its own. When no entry is left, the
writer of the index adds the part to the index. This copies rows and moves files, and takes a small
fraction of the time of indexing.

The chunk numbers and transaction numbers of a part are higher than all those of the index, so its
rows and documents are added unchanged.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from kbtui.index.catalog_and_keyword_indexer import CatalogAndKeywordIndexWriter, EntryIndexer
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace import open_workspace_at_root
from kbtui.workspace.client_environment import make_client_environment_for_child_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbtui.index.catalog_and_keyword_indexer import IndexableItem
    from kbtui.index.catalog_database import CatalogDatabase
    from kbtui.workspace import Settings, Workspace

BYTES_PER_PROCESS = 8_000_000
"""There is one more process for each time that the new entries have this many bytes.

Starting a process takes about as long as indexing a tenth of this.
"""
PROCESSES_MAX = 3
"""At most this many processes work for one index, besides its writer."""
HANDED_OUT_ITEMS, HANDED_OUT_BYTES = 16, 1_000_000
"""A process gets up to this many entries or bytes at once."""
CHUNK_NUMBERS_PER_PART, TRANSACTION_NUMBERS_PER_PART = 1 << 28, 1 << 20
"""More chunks and transactions than one refresh can write."""


def count_usable_cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


class IndexingQueue:
    """The entries that are still to be indexed, newest first. Several threads may use it.

    The writer of the index takes the newest entries, which users look for first. Other processes get
    the oldest ones, because a part becomes searchable only when it is complete.
    """

    def __init__(self, items: Sequence[IndexableItem], catalog: CatalogDatabase) -> None:
        self._lock = threading.Lock()
        self._waiting = OrderedDict(enumerate(items))
        self._shared = _list_positions_for_other_processes(items, catalog)
        self.shared_bytes = sum(items[position].size for position in self._shared)

    def __iter__(self) -> Iterator[IndexableItem]:
        """Take the newest entries, one at a time, until none is left."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                _, item = self._waiting.popitem(last=False)
            yield item

    def take_oldest_items(self) -> list[IndexableItem]:
        """Take the next entries for another process; [] if there are none."""
        found: list[IndexableItem] = []
        size = 0
        with self._lock:
            while self._shared and len(found) < HANDED_OUT_ITEMS and size < HANDED_OUT_BYTES:
                item = self._waiting.pop(self._shared.pop(), None)
                if item is None:  # the writer has taken it, and all others before it
                    self._shared.clear()
                    break
                found.append(item)
                size += item.size
        return found

    def stop_handing_out_items(self) -> None:
        """Give other processes no further entries."""
        with self._lock:
            self._shared.clear()


def _list_positions_for_other_processes(
    items: Sequence[IndexableItem], catalog: CatalogDatabase
) -> list[int]:
    """Return the positions of the entries that another process may index; [] if they are too small to need one.

    A part has no entries that are in the catalog already, and none for the index of hidden entries.
    """
    from kbtui.conversations.conversation_data_types import ConversationInfo

    if sum(item.size for item in items) < BYTES_PER_PROCESS:
        return []
    indexed = set(catalog.list_entry_ids())
    return [
        position
        for position, item in enumerate(items)
        if (
            item.id not in indexed
            if isinstance(item, ConversationInfo)
            else not item.hidden and make_subject_id(item.topic, item.slug) not in indexed
        )
    ]


class IndexPartTask(NamedTuple):
    """What a process must know to write a part into the directory `folder`.

    `titles` maps the ids of all conversations to their titles. Chunk numbers are higher than
    `chunk_number`, and transaction numbers are higher than `transaction_number`.
    """

    root: Path
    settings: Settings
    titles: dict[str, str]
    folder: Path
    chunk_number: int
    transaction_number: int


class IndexPartProcess:
    """A process that writes a part of an index. `items` are the entries that it has been given so far."""

    def __init__(self, task: IndexPartTask, queue: IndexingQueue) -> None:
        self.folder = task.folder
        self.items: list[IndexableItem] = []
        self.done_count = 0
        """How many entries the process has certainly indexed."""
        self.is_complete = False
        """Whether the process has exited, and the part contains all `items`."""
        self._queue = queue
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kbtui.index.index_part_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # An engine logs what goes wrong. In a terminal, a TUI may be running.
            stderr=subprocess.DEVNULL if os.isatty(2) else None,
            cwd="/",
            env=make_client_environment_for_child_process(),
        )
        self._thread = threading.Thread(
            target=self._send_items_until_complete, args=(task,), name="index-part", daemon=True
        )
        self._thread.start()

    def wait_for_exit(self, stop: threading.Event) -> None:
        """Wait until the process has exited or `stop` is set."""
        while self._thread.is_alive() and not stop.is_set():
            self._thread.join(0.05)

    def kill(self) -> None:
        """End the process, if it is still running."""
        self._process.kill()
        self._thread.join()

    def _send_items_until_complete(self, task: IndexPartTask) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        # If the process has exited, writing fails.
        with contextlib.suppress(OSError):
            _send_object(process.stdin, task)
            while process.stdout.readline() == b"more\n":
                self.done_count = len(self.items)
                items = self._queue.take_oldest_items()
                self.items += items
                _send_object(process.stdin, items)
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        self.is_complete = process.wait() == 0


class IndexPartProcesses:
    """The processes that help with one refresh. When the context ends, no process and no part is left.

    There are no processes if there is too little for them to do, or no further core.
    """

    def __init__(self, catalog: CatalogDatabase, folder: Path, queue: IndexingQueue) -> None:
        self._catalog, self._folder, self._queue = catalog, folder, queue
        self._processes: list[IndexPartProcess] = []

    def start_processes(
        self, workspace: Workspace, settings: Settings, titles: dict[str, str]
    ) -> None:
        """Start as many processes as there are entries and cores for."""
        count = min(
            PROCESSES_MAX, count_usable_cores() - 1, self._queue.shared_bytes // BYTES_PER_PROCESS
        )
        for number in range(1, count + 1):
            task = IndexPartTask(
                workspace.root,
                settings,
                titles,
                self._folder / str(number),
                self._catalog.get_last_chunk_number() + number * CHUNK_NUMBERS_PER_PART,
                self._catalog.get_last_transaction_number() + number * TRANSACTION_NUMBERS_PER_PART,
            )
            try:
                self._processes.append(IndexPartProcess(task, self._queue))
            except OSError:
                return  # the system allows no further process, so the writer indexes more entries

    def __enter__(self) -> Self:
        """Remove what a killed process has left."""
        shutil.rmtree(self._folder, ignore_errors=True)
        return self

    @property
    def done_count(self) -> int:
        """How many entries the processes have certainly indexed."""
        return sum(process.done_count for process in self._processes)

    def wait_for_exit(
        self, stop: threading.Event
    ) -> tuple[list[IndexPartProcess], list[IndexPartProcess]]:
        """Give the processes no further entries, and wait until they have exited or `stop` is set.

        Returns the processes whose parts are complete, and the others.
        """
        self._queue.stop_handing_out_items()
        for process in self._processes:
            process.wait_for_exit(stop)
        complete = [process for process in self._processes if process.is_complete]
        return complete, [process for process in self._processes if not process.is_complete]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        if self._processes:
            shutil.rmtree(self._folder, ignore_errors=True)


def _send_object(stream: IO[bytes], value: object) -> None:
    stream.write(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    stream.flush()


def write_index_part() -> None:
    """Write the part that standard input describes: a task, and then lists of entries until one is empty."""
    from kbtui.knowledge import load_knowledge

    # The output of libraries goes to the log, not between the requests.
    requests, received = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    task: IndexPartTask = pickle.load(received)
    workspace = open_workspace_at_root(task.root)
    storage = CatalogAndKeywordIndexWriter(task.folder, task.settings)
    storage.catalog.start_numbering_after(task.chunk_number, task.transaction_number)
    indexer = EntryIndexer(
        storage, workspace, load_knowledge(workspace), task.titles, threading.Event()
    )

    def request_items() -> Iterator[IndexableItem]:
        while True:
            requests.write(b"more\n")
            requests.flush()
            if not (items := pickle.load(received)):
                return
            yield from items

    for _ in indexer.index_entries(request_items()):
        pass
    storage.commit_part()
    storage.close()


if __name__ == "__main__":
    gc.set_threshold(50_000)  # entries contain no cycles
    parent = os.getppid()
    with contextlib.suppress(OSError):
        # If memory runs short, Linux should end this process, because its work can be done again.
        Path("/proc/self/oom_score_adj").write_text("500")
    try:
        write_index_part()
    except BaseException:
        if os.getppid() == parent:
            raise
        sys.exit(1)  # the process that needs the part has exited
