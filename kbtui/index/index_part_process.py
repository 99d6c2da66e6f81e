"""Indexes a share of many new entries in another process, because one Python process uses only one core.

The process writes a *part*: a catalog and keyword indexes of its own. When no entry is left, the
writer of the index adds the part to the index. This copies rows and moves files, and takes a small
fraction of the time of indexing.

The chunk numbers and transaction numbers of a part are higher than all those of the index, so its
rows and documents are added unchanged.

The writer sends one line of JSON with an `IndexPartTask`. For each further line, which names some
entries, the process first writes an empty line. An empty list ends the part.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
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
from kbtui.workspace import Settings, open_workspace_at_root
from kbtui.workspace.client_environment import make_client_environment_for_child_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbtui.index.catalog_and_keyword_indexer import IndexableItem
    from kbtui.index.catalog_database import CatalogDatabase
    from kbtui.workspace import Workspace

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
    if sum(item.size for item in items) < BYTES_PER_PROCESS:
        return []
    indexed = set(catalog.list_entry_ids())
    return [
        position
        for position, item in enumerate(items)
        if not getattr(item, "hidden", False) and get_entry_id_of_item(item) not in indexed
    ]


def get_entry_id_of_item(item: IndexableItem) -> str:
    """Return the entry id that a subject or a conversation has in the index."""
    key = _get_item_key(item)
    return key[0] if len(key) == 1 else make_subject_id(*key)


class IndexPartTask(NamedTuple):
    """What a process must know to write a part into the directory `folder`.

    `root` is the workspace's root. Chunk numbers are higher than `chunk_number`, and transaction
    numbers are higher than `transaction_number`.
    """

    root: str
    settings: dict[str, object]
    folder: str
    chunk_number: int
    transaction_number: int


class IndexPartProcess:
    """A process that writes a part of an index. `items` are the entries that it has been given so far."""

    def __init__(self, task: IndexPartTask, queue: IndexingQueue) -> None:
        self.folder = Path(task.folder)
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
            _send_line(process.stdin, task)
            while process.stdout.readline():
                self.done_count = len(self.items)
                items = self._queue.take_oldest_items()
                self.items += items
                _send_line(process.stdin, [_get_item_key(item) for item in items])
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

    def start_processes(self, workspace: Workspace, settings: Settings) -> bool:
        """Start as many processes as there are entries and cores for; return whether there are any."""
        count = min(
            PROCESSES_MAX, count_usable_cores() - 1, self._queue.shared_bytes // BYTES_PER_PROCESS
        )
        for number in range(1, count + 1):
            task = IndexPartTask(
                str(workspace.root),
                settings._asdict(),
                str(self._folder / str(number)),
                self._catalog.get_last_chunk_number() + number * CHUNK_NUMBERS_PER_PART,
                self._catalog.get_last_transaction_number() + number * TRANSACTION_NUMBERS_PER_PART,
            )
            try:
                self._processes.append(IndexPartProcess(task, self._queue))
            except OSError:
                break  # the system allows no further process, so the writer indexes more entries
        return bool(self._processes)

    def __enter__(self) -> Self:
        """Remove what a killed process has left."""
        shutil.rmtree(self._folder, ignore_errors=True)
        return self

    @property
    def done_count(self) -> int:
        """How many entries the processes have certainly indexed."""
        return sum(process.done_count for process in self._processes)

    def wait_for_exit(self, stop: threading.Event) -> tuple[list[Path], list[IndexableItem]]:
        """Give the processes no further entries, and wait until they have exited or `stop` is set.

        Returns the directories of the complete parts, and the entries that all processes were given.
        """
        self._queue.stop_handing_out_items()
        for process in self._processes:
            process.wait_for_exit(stop)
        folders = [process.folder for process in self._processes if process.is_complete]
        return folders, [item for process in self._processes for item in process.items]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        if self._processes:
            shutil.rmtree(self._folder, ignore_errors=True)


def _get_item_key(item: IndexableItem) -> tuple[str, ...]:
    """Return the id of a conversation, or the topic and slug of a subject."""
    from kbtui.conversations.conversation_data_types import ConversationInfo

    return (item.id,) if isinstance(item, ConversationInfo) else (item.topic, item.slug)


def _send_line(stream: IO[bytes], value: object) -> None:
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def write_index_part() -> None:
    """Write the part that standard input describes. Entries whose files have disappeared are left out."""
    from kbtui.conversations.conversation_repository import list_conversations
    from kbtui.knowledge import load_knowledge

    # The output of libraries goes to the log, not between the requests.
    requests, received = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    task = IndexPartTask(*json.loads(received.readline()))
    workspace = open_workspace_at_root(Path(task.root))
    settings = Settings(**task.settings)  # type: ignore[arg-type]
    storage = CatalogAndKeywordIndexWriter(Path(task.folder), settings)
    storage.catalog.start_numbering_after(task.chunk_number, task.transaction_number)
    knowledge = load_knowledge(workspace)
    conversations = {info.id: info for info in list_conversations(workspace, counts=False)}
    titles = {info.id: info.name for info in conversations.values()}
    indexer = EntryIndexer(storage, workspace, knowledge, titles, threading.Event())

    def find_item(topic_or_id: str, slug: str | None = None) -> IndexableItem | None:
        if slug is None:
            return conversations.get(topic_or_id)
        subject = knowledge.find_subject(topic_or_id, slug)
        return None if subject is None or subject.hidden else subject

    def request_items() -> Iterator[IndexableItem]:
        while True:
            requests.write(b"\n")
            requests.flush()
            if not (keys := json.loads(received.readline())):
                return
            yield from filter(None, (find_item(*key) for key in keys))

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
