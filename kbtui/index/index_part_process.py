"""Indexes many new entries in several processes, because one Python process uses only one core.

The writer of the index starts other processes. Each of them writes *parts*, one after another. A part
is a catalog and a keyword index with some of the entries. The writer adds the rows of a part when its
catalog is complete, and its documents at the next commit. Adding a part copies rows and moves files,
which takes a small fraction of the time of indexing.

The chunk numbers and transaction numbers of a part are higher than all those of the index, so its
rows and documents are added unchanged.

The writer and each process exchange lines through pipes. The writer sends JSON: for each part an
`IndexPartTask`, then lists of keys of entries, then an empty list. When the process has read the entries
of a list, it answers with an empty line. By then, the next list is usually in the pipe. After the empty
list, it completes the catalog, answers with a list of the keys that it did not find, completes the
keyword index, and writes another empty line.
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
import time
from collections import OrderedDict
from itertools import takewhile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from kbtui.index.catalog_and_keyword_indexer import CatalogAndKeywordIndexWriter, EntryIndexer
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.index.index_generations import compute_index_fingerprint
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace import Settings, open_workspace_at_root
from kbtui.workspace.client_environment import make_client_environment_for_child_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbtui.index.catalog_and_keyword_indexer import IndexableItem
    from kbtui.index.catalog_database import CatalogDatabase
    from kbtui.workspace import Workspace

BYTES_PER_PROCESS = 8_000_000
"""The writer starts one process for each full multiple of this size of the new, visible entries.

The size is measured by `_get_work_size`.

Starting one takes about as long as indexing a tenth of this.
"""
USUAL_CONVERSATION_BYTES = 20_000
"""The assumed size of a conversation whose metadata has not been read yet."""
PROCESSES_MAX = 3
"""At most this many processes help the writer with one refresh."""
HANDED_OUT_BYTES = 250_000
"""A process is handed entries of about this many bytes at a time."""
PART_BYTES_MIN = 2_000_000
"""A part has at least this many bytes, unless no entry is left.

A process ends a part when it contains half of the bytes that the process was likely to index when it
began the part. So the parts become smaller, and little is left to add when all entries are indexed. If
at most `RESERVED_BYTES` are left by then, the part takes them, too.
"""
RESERVED_BYTES = 500_000
"""The writer leaves the last entries, up to this many bytes, to the processes.

Meanwhile, it writes its last batch, commits, and adds the rows of parts.
"""
CHUNK_NUMBERS_PER_PART, TRANSACTION_NUMBERS_PER_PART = 1 << 28, 1 << 20
"""The distance between the first numbers of two parts, which is more than one refresh can use."""


def count_usable_cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


class IndexingQueue:
    """The entries that are still to be indexed, newest first. Several threads may use it.

    The writer of the index takes the newest entries, which users look for first. Other processes get
    the oldest ones, because a part becomes searchable only as a whole.
    """

    def __init__(self, items: Sequence[IndexableItem], catalog: CatalogDatabase) -> None:
        self._lock = threading.Lock()
        self._waiting = OrderedDict(enumerate(items))
        self._waiting_bytes = sum(map(_get_work_size, items))
        self._shared = _list_positions_for_other_processes(items, catalog)
        self.shared_bytes = sum(_get_work_size(items[position]) for position in self._shared)

    def iterate_newest_items(self, *, reserve: int = 0) -> Iterator[IndexableItem]:
        """Take the newest entries, one at a time, until fewer than `reserve` bytes are left."""
        while True:
            with self._lock:
                if not self._waiting or self._waiting_bytes < reserve:
                    return
                _, item = self._waiting.popitem(last=False)
                self._waiting_bytes -= _get_work_size(item)
            yield item

    @property
    def waiting_bytes(self) -> int:
        """The total size of the entries that nobody has taken yet, measured by `_get_work_size`."""
        return self._waiting_bytes

    def take_oldest_items(self) -> list[IndexableItem]:
        """Take the next entries for another process; [] if there are none."""
        found: list[IndexableItem] = []
        size = 0
        with self._lock:
            while self._shared and size < HANDED_OUT_BYTES:
                item = self._waiting.pop(self._shared.pop(), None)
                if item is None:  # the writer has taken it, and all newer ones
                    self._shared.clear()
                    break
                found.append(item)
                size += _get_work_size(item)
            self._waiting_bytes -= size
        return found

    @property
    def has_items_for_other_processes(self) -> bool:
        """Whether `take_oldest_items` would return entries."""
        with self._lock:
            return bool(self._shared) and self._shared[-1] in self._waiting

    def stop_handing_out_items(self) -> None:
        """Give other processes no further entries."""
        with self._lock:
            self._shared.clear()


def _list_positions_for_other_processes(
    items: Sequence[IndexableItem], catalog: CatalogDatabase
) -> list[int]:
    """Return the positions of the entries that other processes may index.

    These are the entries that are not in the catalog yet and are not hidden, because a part has only
    such entries. If all `items` together are too small to be worth another process, return [].
    """
    if sum(map(_get_work_size, items)) < BYTES_PER_PROCESS:
        return []
    indexed = set(catalog.list_entry_ids())
    return [
        position
        for position, item in enumerate(items)
        if not getattr(item, "hidden", False)
        and not (indexed and get_entry_id_of_item(item) in indexed)
    ]


def _get_work_size(item: IndexableItem) -> int:
    """Return the size of an entry plus 1,000 bytes, which stand for the work that does not depend on the size."""
    return item.size + 1_000


def get_entry_id_of_item(item: IndexableItem) -> str:
    """Return the entry id that a subject or a conversation has in the index."""
    key = _get_item_key(item)
    return key[0] if len(key) == 1 else make_subject_id(*key)


class IndexPartTask(NamedTuple):
    """What a process must know to write a part into the directory `folder`.

    `language` and `embed_tool_results` are settings, and `fingerprint` is that of the index, which
    differs if kbtui was updated while the engine is running. Chunk numbers are higher than
    `chunk_number`, and transaction numbers are higher than `transaction_number`.
    """

    language: str
    embed_tool_results: bool
    fingerprint: str
    folder: str
    chunk_number: int
    transaction_number: int


class IndexPart:
    """A part of an index. `items` are the entries that its process has been given for it."""

    def __init__(self, number: int, parts_folder: Path, items: list[IndexableItem]) -> None:
        self.number = number
        self.folder = parts_folder / str(number)
        self.items = list(items)
        self.read_count = 0
        """How many of `items` the process has read. This number is used only to report progress."""
        self.missing_items: list[IndexableItem] = []
        """The items that the process did not find, for example because their files have just been deleted."""
        self.is_catalog_complete = False
        """Whether the part's catalog contains all `items` except `missing_items`."""
        self.is_keyword_index_complete = False
        """Whether the part's keyword index is committed."""
        self.has_process_ended = False
        """Whether the process exited before it finished the part."""
        self.are_rows_added = False
        self.are_documents_added = False

    @property
    def indexed_items(self) -> list[IndexableItem]:
        """The items that are in the complete part."""
        return [item for item in self.items if item not in self.missing_items]


class IndexPartProcesses:
    """Context manager: the processes that help with one refresh. At its end, no process and no part is left.

    No process helps if there is too little to do, or only one core. A process that was started early and
    is not needed ends again.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        catalog: CatalogDatabase,
        folder: Path,
    ) -> None:
        self._workspace, self._settings, self._folder = workspace, settings, folder
        self._chunk_number = catalog.get_last_chunk_number()
        self._transaction_number = catalog.get_last_transaction_number()
        self._queue: IndexingQueue
        self.are_helping = False
        """Whether processes were started and there were entries for them."""
        self._lock = threading.Lock()
        self._parts: list[IndexPart] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)  # a killed process may have left parts
        return self

    def start_for_first_index(self, size: int) -> None:
        """Start processes for about `size` bytes if the catalog is empty.

        They import their modules and list the entries while the writer compares the files with the catalog.
        """
        if self._transaction_number == 0:
            self._start_processes(size)

    def start(self, queue: IndexingQueue) -> None:
        """Start as many processes as the entries and the cores allow, and let them index entries of `queue`."""
        self._queue = queue
        self._start_processes(queue.shared_bytes)
        self.are_helping = bool(self._processes and queue.shared_bytes)
        for process in self._processes:
            thread = threading.Thread(
                target=self._order_parts_until_queue_is_empty,
                args=(process,),
                name="index-part",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    def _start_processes(self, size: int) -> None:
        """Start processes until there are enough for entries of `size` bytes."""
        count = min(PROCESSES_MAX, count_usable_cores() - 1, size // BYTES_PER_PROCESS)
        while len(self._processes) < count:
            try:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "kbtui.index.index_part_process",
                        str(self._workspace.root),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    # An engine's stderr is its log. On a terminal, output would garble the TUI.
                    stderr=subprocess.DEVNULL if os.isatty(2) else None,
                    cwd="/",
                    env=make_client_environment_for_child_process(),
                )
            except OSError:
                break  # the system allows no further process, so the writer indexes more entries
            self._processes.append(process)

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        for process in self._processes[len(self._threads) :]:  # `start` was not called
            with process:
                pass
        if self._processes:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def reserved_bytes(self) -> int:
        """How many bytes of entries the writer leaves to the processes at the end; 0 if no process helps."""
        return RESERVED_BYTES if self.are_helping else 0

    @property
    def added_count(self) -> int:
        """How many entries are in the parts whose rows were added to the index."""
        return sum(len(part.indexed_items) for part in self._parts if part.are_rows_added)

    @property
    def read_count(self) -> int:
        """How many entries the processes have read, without those that the writer must read again."""
        return sum(
            part.read_count
            for part in self._parts
            if part.is_catalog_complete or not part.has_process_ended
        )

    @property
    def unindexed_items(self) -> list[IndexableItem]:
        """The entries that were given to a process, but are in no complete catalog of a part."""
        return [
            item
            for part in self._parts
            for item in (part.missing_items if part.is_catalog_complete else part.items)
        ]

    def list_parts_with_new_rows(self) -> list[IndexPart]:
        """Return the parts whose rows can be added to the index now.

        These are parts with a complete catalog. Rows are added in the order of the part numbers. A part
        whose process ended before its catalog was complete is skipped.
        """
        settled = takewhile(
            lambda part: part.is_catalog_complete or part.has_process_ended, list(self._parts)
        )
        return [part for part in settled if part.is_catalog_complete and not part.are_rows_added]

    def list_parts_with_new_documents(self) -> list[IndexPart]:
        """Return the parts whose rows were added, and whose documents can be added to the index now."""
        return [
            part
            for part in self._parts
            if part.are_rows_added
            and part.is_keyword_index_complete
            and not part.are_documents_added
        ]

    def wait_for_part_catalogs(self, stop: threading.Event) -> Iterator[list[IndexPart]]:
        """Wait until the catalogs of all parts are complete, the processes have exited, or `stop` is set.

        Meanwhile, yield the parts whose rows can be added. The caller must add them before it continues.
        """
        while not stop.is_set():
            # While this thread has the lock, no other thread can take entries for a part that is not in the
            # list yet.
            with self._lock:
                is_last = all(
                    part.is_catalog_complete or part.has_process_ended for part in self._parts
                ) and not (self._is_any_thread_alive and self._queue.has_items_for_other_processes)
            if parts := self.list_parts_with_new_rows():
                yield parts
            elif is_last:
                return
            else:
                time.sleep(0.005)

    def wait_for_documents(self, stop: threading.Event) -> None:
        """Wait until the keyword indexes of all parts are complete, the processes have exited, or `stop` is set."""
        while not stop.is_set() and not all(
            part.is_keyword_index_complete or part.has_process_ended for part in self._parts
        ):
            time.sleep(0.005)

    @property
    def _is_any_thread_alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _order_parts_until_queue_is_empty(self, process: subprocess.Popen[bytes]) -> None:
        """Make a process write parts until the queue has no further entry for it."""
        assert process.stdin is not None
        assert process.stdout is not None
        part = None
        try:
            # If the process has exited, writing fails, or its last line is incomplete.
            with contextlib.suppress(OSError, ValueError, _ProcessEndedError):
                while part := self._make_part():
                    self._order_part(process.stdin, process.stdout, part)
        finally:
            if part is not None:
                process.kill()
                part.has_process_ended = True
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdout.close()
            process.wait()

    def _make_part(self) -> IndexPart | None:
        """Return a new part with its first entries; None if the queue has no further entry."""
        with self._lock:
            if not (items := self._queue.take_oldest_items()):
                return None
            part = IndexPart(len(self._parts) + 1, self._folder, items)
            self._parts.append(part)
            return part

    def _order_part(self, requests: IO[bytes], answers: IO[bytes], part: IndexPart) -> None:
        """Make a process write a part: its first entries, then more from the queue, until it is large enough."""
        task = IndexPartTask(
            self._settings.language,
            self._settings.embed_tool_results,
            compute_index_fingerprint(self._settings),
            str(part.folder),
            self._chunk_number + part.number * CHUNK_NUMBERS_PER_PART,
            self._transaction_number + part.number * TRANSACTION_NUMBERS_PER_PART,
        )
        _send_line(requests, task)
        room = max(PART_BYTES_MIN, self._queue.waiting_bytes // 2 // (len(self._processes) + 1))
        items = list(part.items)
        sent = 0
        while items:
            # Send the next entries before the process has read the current ones, so that it need not wait
            # until this thread runs.
            _send_line(requests, [_get_item_key(item) for item in items])
            if sent:
                _expect_empty_line(answers)
                part.read_count = sent
            sent = len(part.items)
            room -= sum(map(_get_work_size, items))
            is_end_near = self._queue.waiting_bytes <= RESERVED_BYTES
            items = self._queue.take_oldest_items() if room > 0 or is_end_near else []
            part.items += items
        _send_line(requests, [])
        _expect_empty_line(answers)
        if not (line := answers.readline()):
            raise _ProcessEndedError
        missing = {tuple(key) for key in json.loads(line)}
        part.missing_items = [item for item in part.items if _get_item_key(item) in missing]
        part.read_count = len(part.indexed_items)
        part.is_catalog_complete = True
        _expect_empty_line(answers)
        part.is_keyword_index_complete = True


class _ProcessEndedError(Exception):
    """A process exited before it finished its part."""


def _expect_empty_line(answers: IO[bytes]) -> None:
    if answers.readline() != b"\n":
        raise _ProcessEndedError


def _get_item_key(item: IndexableItem) -> tuple[str, ...]:
    """Return the id of a conversation, or the topic and slug of a subject."""
    from kbtui.conversations.conversation_data_types import ConversationInfo

    return (item.id,) if isinstance(item, ConversationInfo) else (item.topic, item.slug)


def _send_line(stream: IO[bytes], value: object) -> None:
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def write_index_parts() -> None:
    """Write the parts that standard input asks for. Entries that are gone or now hidden are left out and reported."""
    from kbtui.conversations.conversation_repository import (
        ConversationTitles,
        find_stored_conversations,
    )
    from kbtui.knowledge import load_knowledge

    # What libraries print goes to stderr, so that it does not mix with the answers.
    answers, received = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)
    workspace = open_workspace_at_root(Path(sys.argv[1]))
    knowledge = load_knowledge(workspace)
    conversations = {one.id: one for one in find_stored_conversations(workspace)}
    titles = ConversationTitles(conversations.values())
    indexer = EntryIndexer(workspace, knowledge, titles, threading.Event())

    def find_item(topic_or_id: str, slug: str | None = None) -> IndexableItem | None:
        if slug is None:
            stored = conversations.get(topic_or_id)
            return None if stored is None else stored.read_conversation_info()
        subject = knowledge.find_subject(topic_or_id, slug)
        return None if subject is None or subject.hidden else subject

    def receive_items(missing: list[list[str]]) -> Iterator[IndexableItem]:
        while keys := json.loads(received.readline()):
            for key in keys:
                if item := find_item(*key):
                    yield item
                else:
                    missing.append(key)
            answers.write(b"\n")
            answers.flush()

    while line := received.readline():
        task = IndexPartTask(*json.loads(line))
        settings = Settings(language=task.language, embed_tool_results=task.embed_tool_results)
        if compute_index_fingerprint(settings) != task.fingerprint:
            sys.exit("the running engine has another version of the index")
        storage = CatalogAndKeywordIndexWriter(Path(task.folder), settings, has_hidden=False)
        storage.catalog.prepare_for_part(task.chunk_number, task.transaction_number)
        missing: list[list[str]] = []
        for _ in indexer.index_entries(receive_items(missing), storage):
            pass
        _send_line(answers, missing)
        storage.commit_index_part()
        storage.close()
        answers.write(b"\n")
        answers.flush()


if __name__ == "__main__":
    gc.set_threshold(50_000)  # indexing makes few cycles, so most collections would find nothing
    parent = os.getppid()
    with contextlib.suppress(OSError):
        # If memory runs short, Linux should end this process, because its work can be done again.
        Path("/proc/self/oom_score_adj").write_text("500")
    try:
        write_index_parts()
    except BaseException:
        if os.getppid() == parent:
            raise
        sys.exit(1)  # the process that needs the parts has exited
