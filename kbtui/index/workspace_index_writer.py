"""Compares a workspace's files with its index, and indexes what has changed."""

from __future__ import annotations

import json
import shutil
import threading
import time
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Literal, TypeVar

from kbtui.errors import IndexUnavailable
from kbtui.index.catalog_and_keyword_indexer import CatalogAndKeywordIndexWriter, EntryIndexer
from kbtui.index.index_part_process import (
    USUAL_CONVERSATION_BYTES,
    IndexingQueue,
    IndexPartProcesses,
)
from kbtui.index.indexable_entry_reader import make_subject_change_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kbtui.conversations.formats.conversation_format import StoredConversation
    from kbtui.index.catalog_and_keyword_indexer import IndexableItem
    from kbtui.index.index_part_process import IndexPart
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.notices import EmbeddedParts, PauseReason
    from kbtui.workspace import Settings, Workspace

ComparedItem = TypeVar("ComparedItem")

COMMIT_SECONDS, COMMIT_SECONDS_MAX = 1.0, 16.0
"""The first commit of a refresh comes after `COMMIT_SECONDS`.

The interval to the next commit doubles each time, up to `COMMIT_SECONDS_MAX`.
"""
PATIENCE_SECONDS, PATIENCE_SECONDS_WITH_PROCESSES = 0.5, 5.0
"""A newer request can interrupt a refresh only after this many seconds.

The second value applies while other processes help: starting them again takes a quarter of a second.
"""


@dataclass
class IndexRefreshChanges:
    """The entries that a refresh changed or removed.

    * `subjects` lists the changed subjects as `topic/slug`.
    * `conversations` lists the ids of the changed conversations.
    * `removed` is the number of removed entries.
    * `knowledge` says whether topics or subjects changed.
    * If `is_unfinished` is true, the refresh was interrupted, and the next one indexes the rest.
    """

    knowledge: bool = False
    subjects: list[str] = field(default_factory=list)
    conversations: list[str] = field(default_factory=list)
    removed: int = 0
    is_unfinished: bool = False

    def __bool__(self) -> bool:
        return bool(self.knowledge or self.subjects or self.conversations or self.removed)


IndexPhase = Literal["keywords", "vectors"]


@dataclass
class IndexProgress:
    """The progress of one phase of indexing.

    In the phase "keywords", `done` and `total` count entries, and `parts` is empty. In the phase
    "vectors", they count chunks, and `parts` contains these counts for each kind of entry. During a
    pause, `pause_reason` is set.
    """

    phase: IndexPhase
    done: int
    total: int
    pause_reason: PauseReason | None = None
    parts: EmbeddedParts = field(default_factory=dict)


class _IndexRefreshStoppedError(Exception):
    """A refresh was stopped while it compared the files with the catalog, before any change."""


class WorkspaceIndexWriter:
    """The index of one workspace, opened for writing. Only one thread may use it.

    When the event `stop` is set, a refresh ends after the current entry, or after the current part of a
    long conversation. The entries that are already indexed stay in the index.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        *,
        cache_dir: Path | None = None,
        rebuild: bool = False,
        on_progress: Callable[[IndexProgress], None] | None = None,
        stop: threading.Event | None = None,
        should_yield: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open or create the index; raises `IndexUnavailable`.

        If `rebuild` is true, a new generation is created. The old one stays in use until the new one is
        complete. `should_yield` returns whether another refresh has been requested.
        """
        self.workspace, self.settings = workspace, settings
        self.cache_dir = cache_dir or workspace.cache_dir
        self._on_progress = on_progress or (lambda progress: None)
        self._stop, self._should_yield = stop or threading.Event(), should_yield
        self.topic_folders: list[Path] = []
        self.configuration_problem: str | None = None
        """The reason why the last refresh could not read a configuration file; None if it could read all of them."""
        try:
            self.storage = CatalogAndKeywordIndexWriter(self.cache_dir, settings, rebuild=rebuild)
        except OSError as error:
            raise IndexUnavailable(
                f"the cache cannot be written: {error.strerror}",
                where=str(self.cache_dir),
                hint="free some space, or set XDG_CACHE_HOME to a writable directory",
            ) from error
        self.folder, self.catalog = self.storage.folder, self.storage.catalog

    def are_index_files_in_place(self) -> bool:
        """Return whether the files of the index generation exist where readers look for them."""
        return self.storage.are_index_files_in_place()

    def close(self) -> None:
        """Close all files."""
        self.storage.close()

    def refresh_index(self, *, retry: bool = False) -> IndexRefreshChanges:
        """Index all files that differ from the catalog.

        If `retry` is true, entries that had an error are also indexed again.
        """
        from kbtui.knowledge import load_knowledge

        knowledge = load_knowledge(self.workspace)
        self.topic_folders = [
            self.workspace.root / topic.subjects
            for topic in knowledge.topics.values()
            if topic.enable and not topic.is_published
        ]
        if knowledge.published is not None:
            # The engine watches the mirror, too, because another process can pull a new version.
            self.topic_folders.append(knowledge.published.mirror.workspace_root)
        # A problem with a single key does not make the whole file unreadable.
        unreadable = (str(problem) for problem in knowledge.problems if problem.key is None)
        self.configuration_problem = next(unreadable, None)
        with IndexPartProcesses(
            self.workspace, self.settings, self.catalog, self.folder / "parts"
        ) as processes:
            changes = self._find_and_index_changed_entries(knowledge, processes, retry)
        if not self._stop.is_set() and not changes.is_unfinished:
            self.storage.activate_new_generation()
        return changes

    def _find_and_index_changed_entries(
        self, knowledge: KnowledgeBase, processes: IndexPartProcesses, retry: bool
    ) -> IndexRefreshChanges:
        from kbtui.conversations.conversation_repository import (
            ConversationTitles,
            find_stored_conversations,
        )

        stored = find_stored_conversations(self.workspace)
        processes.start_for_first_index(USUAL_CONVERSATION_BYTES * len(stored))
        try:
            subjects, conversations, gone = self._find_changed_entries(knowledge, stored, retry)
        except _IndexRefreshStoppedError:
            return IndexRefreshChanges(is_unfinished=True)
        changes = IndexRefreshChanges()
        # Clients compare this state with the files, to notice that the configuration has changed.
        state = json.dumps([_get_file_size_and_time(path) for path in knowledge.files])
        if self.catalog.get_meta_value("configuration") != state:
            with self.catalog.open_write_transaction():
                self.catalog.set_meta_value("configuration", state)
            self.storage.commit_keyword_indexes()
            changes.knowledge = True
        if gone or subjects or conversations:
            titles = ConversationTitles(stored)
            indexer = EntryIndexer(self.workspace, knowledge, titles, self._stop)
            self._index_changed_entries(gone, subjects, conversations, indexer, processes, changes)
        return changes

    def rewrite_indexes_with_many_replaced_documents(self, limit: int | None = None) -> int:
        """Remove replaced documents from the keyword indexes by rewriting all other documents.

        Does nothing if there are more than `limit` documents to rewrite. Without a `limit`, the
        rewriting stops as soon as another refresh is requested. Returns how many documents still have
        to be rewritten.
        """
        count = self.storage.count_documents_to_rewrite()
        if count and (limit is None or count <= limit):
            self.storage.rewrite_indexes_with_many_replaced_documents(
                lambda: self._stop.is_set() or (limit is None and self._should_yield())
            )
            count = self.storage.count_documents_to_rewrite()
        return count

    def _find_changed_entries(
        self, knowledge: KnowledgeBase, stored: list[StoredConversation], retry: bool
    ) -> tuple[list[Subject], list[StoredConversation], list[str]]:
        """Return the changed subjects, the changed conversations, and the ids of entries whose files are gone."""
        again = self.catalog.list_unreadable_entry_ids() if retry else frozenset()
        signatures = self._iterate_until_stopped(self.catalog.list_entry_signatures())
        states = {(group, slug): (id_, state) for group, slug, id_, state in signatures}

        def has_file_changed(known: tuple[str, str] | None, state: str) -> bool:
            return known is None or known[1] != state or known[0] in again

        subjects = []
        for subject in self._iterate_until_stopped(_iterate_enabled_subjects(knowledge)):
            known = states.pop((subject.topic, subject.slug), None)
            if has_file_changed(known, make_subject_change_signature(subject)):
                subjects.append(subject)
        conversations = [
            one
            for one in self._iterate_until_stopped(stored)
            if has_file_changed(states.pop((one.id, None), None), one.signature)
        ]
        return subjects, conversations, [entry_id for entry_id, _ in states.values()]

    def _iterate_until_stopped(self, items: Iterable[ComparedItem]) -> Iterator[ComparedItem]:
        """Yield the items. Once `stop` is set, raise `_IndexRefreshStoppedError` before the next 64 items."""
        rest = iter(items)
        while some := list(islice(rest, 64)):
            if self._stop.is_set():
                raise _IndexRefreshStoppedError
            yield from some

    def _index_changed_entries(
        self,
        gone: list[str],
        subjects: list[Subject],
        conversations: list[StoredConversation],
        indexer: EntryIndexer,
        processes: IndexPartProcesses,
        changes: IndexRefreshChanges,
    ) -> None:
        """Remove the entries with the ids `gone`, and index `subjects` and `conversations`."""
        subjects.sort(key=lambda subject: -subject.mtime_ns)
        changed = [one.read_conversation_info() for one in conversations]
        changed.sort(key=lambda info: info.updated_at or info.created_at, reverse=True)
        # Alternate between subjects and conversations, so that the newest of both are soon searchable.
        pairs = zip_longest(subjects, changed)
        work: list[IndexableItem] = [item for pair in pairs for item in pair if item]
        for entry in self.storage.remove_entries(gone):
            changes.removed += 1
            if entry.conversation is not None:
                changes.conversations.append(entry.conversation)
            else:
                changes.knowledge = True
                changes.subjects.append(f"{entry.topic}/{entry.slug}")
        self._index_items(work, indexer, processes, changes)

    def _index_items(
        self,
        work: list[IndexableItem],
        indexer: EntryIndexer,
        processes: IndexPartProcesses,
        changes: IndexRefreshChanges,
    ) -> None:
        """Index `work`, newest first. If there is much of it, `processes` help."""
        began = committed = time.monotonic()
        pause = COMMIT_SECONDS
        queue = IndexingQueue(work, self.catalog)
        self._on_progress(IndexProgress("keywords", 0, len(work)))
        processes.start(queue)
        patience = PATIENCE_SECONDS_WITH_PROCESSES if processes.are_helping else PATIENCE_SECONDS
        for done in self._index_queue(indexer, queue, processes, changes):
            self._add_rows_of_parts(processes.list_parts_with_new_rows(), changes)
            all_done = min(done + processes.read_count, len(work))
            self._on_progress(IndexProgress("keywords", all_done, len(work)))
            now = time.monotonic()
            if now - committed > pause:
                self._commit_and_add_documents_of_parts(processes)
                committed, pause = now, min(pause * 2, COMMIT_SECONDS_MAX)
            if now - began > patience and all_done < len(work) and self._should_yield():
                changes.is_unfinished = True
                queue.stop_handing_out_items()
                break
        for parts in processes.wait_for_part_catalogs(self._stop):
            self._add_rows_of_parts(parts, changes)
        all_done = done + processes.added_count
        if processes.are_helping:
            self.storage.commit_keyword_indexes(
                with_watermark=True
            )  # while they complete the documents
        processes.wait_for_documents(self._stop)
        if self._stop.is_set():
            self.storage.commit_keyword_indexes()
        else:
            self._commit_and_add_documents_of_parts(processes)
            self.storage.make_missing_documents_of_parts()
        self._on_progress(IndexProgress("keywords", all_done, len(work)))

    def _index_queue(
        self,
        indexer: EntryIndexer,
        queue: IndexingQueue,
        processes: IndexPartProcesses,
        changes: IndexRefreshChanges,
    ) -> Iterator[int]:
        """Index the entries that other processes leave, and finally those that they were given but did not index.

        After each batch, yield how many entries the writer has indexed.
        """
        done = 0
        items = queue.iterate_newest_items(reserve=processes.reserved_bytes)
        for done in indexer.index_entries(_note_changed_items(items, changes), self.storage):
            yield done
        if processes.are_helping and not self._stop.is_set():
            self._commit_and_add_documents_of_parts(processes)
            for parts in processes.wait_for_part_catalogs(self._stop):
                self._add_rows_of_parts(parts, changes)
            # If an error in one of these entries ended a process, indexing the entry here raises the error again.
            items = chain(queue.iterate_newest_items(), processes.unindexed_items)
            for done_now in indexer.index_entries(
                _note_changed_items(items, changes), self.storage
            ):
                yield done + done_now

    def _add_rows_of_parts(self, parts: list[IndexPart], changes: IndexRefreshChanges) -> None:
        """Add the rows of parts that other processes have written."""
        if parts and not self._stop.is_set():
            self.storage.add_rows_of_parts([part.folder for part in parts])
            for part in parts:
                part.are_rows_added = True
                for item in part.indexed_items:
                    _note_changed_item(item, changes)

    def _commit_and_add_documents_of_parts(self, processes: IndexPartProcesses) -> None:
        """Commit the keyword indexes, and add the documents of all parts whose keyword indexes are complete."""
        if not (parts := processes.list_parts_with_new_documents()):
            self.storage.commit_keyword_indexes()
            return
        self.storage.add_documents_of_parts([part.folder for part in parts])
        for part in parts:
            part.are_documents_added = True
            shutil.rmtree(part.folder, ignore_errors=True)


def _note_changed_items(
    items: Iterable[IndexableItem], changes: IndexRefreshChanges
) -> Iterator[IndexableItem]:
    """Yield the items, and add each of them to `changes` before."""
    for item in items:
        _note_changed_item(item, changes)
        yield item


def _note_changed_item(item: IndexableItem, changes: IndexRefreshChanges) -> None:
    from kbtui.conversations.conversation_data_types import ConversationInfo

    if isinstance(item, ConversationInfo):
        changes.conversations.append(item.id)
    else:
        changes.knowledge = True
        changes.subjects.append(f"{item.topic}/{item.slug}")


def _iterate_enabled_subjects(knowledge: KnowledgeBase) -> Iterator[Subject]:
    for topic in knowledge.topics.values():
        if topic.enable:
            for subject in knowledge.iterate_subjects_of_topic(topic.id):
                if not subject.disabled:
                    yield subject


def _get_file_size_and_time(path: Path) -> list[object]:
    """Return the path, size and modification time (ns) of a file; the last two are None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return [str(path), None, None]
    return [str(path), status.st_size, status.st_mtime_ns]
