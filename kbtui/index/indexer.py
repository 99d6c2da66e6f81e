"""Writes the catalog and the keyword indexes from the files of a workspace."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from kbtui.errors import IndexUnavailable
from kbtui.index import generations
from kbtui.index.catalog import Catalog
from kbtui.index.ingest import make_subject_signature, read_conversation_batches, read_subject_batch
from kbtui.index.keyword_index import KeywordIndexWriter
from kbtui.index.models import make_subject_id
from kbtui.workspace.paths import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kbtui.citations import CitationTargets
    from kbtui.conversations.models import Conversation, ConversationInfo
    from kbtui.index.catalog import WriteResult
    from kbtui.index.ingest import IngestBatch
    from kbtui.index.models import Entry
    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.models import Subject
    from kbtui.workspace import Settings, Workspace


MAX_LAG = 500
"""So many entries may be written before an index to which none of them belongs says that it is
up to date: when it is opened, they are looked at."""

MAX_STALE_SHARE = 2e-5
"""A smaller share of replaced documents is left in the statistics: each commit replaces one, which
carries its number."""

CitationRows = list[tuple[object, ...]]
"""A conversation's citations, in the columns of the catalog's table."""


class IndexStorage:
    """What the generation at `folder` holds, except vectors. One thread makes all calls.

    `writers` are those of the two keyword indexes: that of hidden entries is `writers[True]`.
    """

    def __init__(self, cache_dir: Path, settings: Settings, *, rebuild: bool = False) -> None:
        """Open or make them; raises `IndexUnavailable` and `OSError`.

        `rebuild` makes a new generation beside the old, which serves until `publish`.
        """
        self.cache_dir, self.settings = cache_dir, settings
        self._behind = 0
        self._unpublished = False
        make_private(cache_dir)
        self.folder = self._choose_folder(rebuild)
        self._open_or_replace()

    def _choose_folder(self, rebuild: bool) -> Path:
        mark = generations.compute_fingerprint(self.settings)
        old = generations.find_current_generation(self.cache_dir)
        if old and not rebuild and old.name.startswith(f"gen-{mark}-"):
            return old
        folder = generations.create_generation(self.cache_dir, mark)
        self._unpublished = old is not None
        return folder

    def _open_or_replace(self) -> None:
        try:
            self._open_files()
        except IndexUnavailable:
            # Damaged beyond opening: a fresh generation, which a refresh fills.
            self.folder = generations.create_generation(
                self.cache_dir, generations.compute_fingerprint(self.settings)
            )
            self._open_files()
        if (
            not self._unpublished
            and generations.find_current_generation(self.cache_dir) != self.folder
        ):
            generations.publish_generation(self.folder)
        generations.remove_old_generations(self.cache_dir, self.folder)
        self._catch_up_keyword_indexes()

    def _open_files(self) -> None:
        self.catalog = Catalog(self.folder / "catalog.sqlite", write=True)
        if self.catalog.get_meta("language") is None:
            self.catalog.set_meta("language", self.settings.language)
        self.writers = {
            False: KeywordIndexWriter(self.folder / "lexical", self.settings.language),
            True: KeywordIndexWriter(self.folder / "hidden", self.settings.language),
        }

    def close(self) -> None:
        """Let go of all files."""
        for writer in self.writers.values():
            writer.close()
        self.catalog.close()

    def is_in_place(self) -> bool:
        """Whether its parts are where readers look for them."""
        parts = [self.folder / name / "meta.json" for name in ("lexical", "hidden")]
        parts.append(self.folder / "catalog.sqlite")
        is_linked = (
            self._unpublished or generations.find_current_generation(self.cache_dir) == self.folder
        )
        return is_linked and all(part.exists() for part in parts)

    def publish(self) -> None:
        """Let a new generation take over from the old one."""
        if self._unpublished:
            generations.publish_generation(self.folder)
            self._unpublished = False
            generations.remove_old_generations(self.cache_dir, self.folder)

    def _catch_up_keyword_indexes(self) -> None:
        """Bring the lexical side to the catalog's state."""
        seq = self.catalog.current_seq()
        for hidden, writer in self.writers.items():
            mark = writer.read_watermark()
            if mark == seq:
                continue
            if mark > seq:
                # The catalog lost transactions (a machine's crash): nothing of the lexical side is sure.
                mark = 0
                for entry_id in self.catalog.list_entry_ids():
                    writer.remove_entry(entry_id)
            for entry_id in self.catalog.list_removed_since(mark):
                writer.remove_entry(entry_id)
            for entry_id in self.catalog.list_changed_since(mark):
                entry = self.catalog.get_entry(entry_id)
                if entry and entry.hidden == hidden:
                    writer.replace_entry(entry, self.catalog.list_chunks(entry_id))
                else:
                    writer.remove_entry(entry_id)
            if hidden or writer.has_changes:
                writer.commit(seq)

    def remove_entries(self, gone: list[str]) -> list[Entry]:
        """Take entries out by id; gives those that there were."""
        self._behind += len(gone)
        found = [entry for id_ in gone if (entry := self.catalog.get_entry(id_)) is not None]
        seq = self.catalog.begin()
        for entry_id in gone:
            self.catalog.remove_entry(entry_id, seq)
        self.catalog.commit()
        for writer in self.writers.values():
            for entry_id in gone:
                writer.remove_entry(entry_id)
        return found

    def put_batches(self, batch: list[tuple[IngestBatch, CitationRows]]) -> None:
        """Put pieces, each with its citations, in place of what was there: one transaction."""
        if not batch:
            return
        self._behind += len(batch)
        seq = self.catalog.begin()
        told: list[tuple[bool, WriteResult]] = []
        try:
            for piece, rows in batch:
                # Read here, because an earlier piece of the batch may be of the same entry.
                old = self.catalog.get_entry(piece.entry.id)
                written = self.catalog.put_entry(
                    piece.entry, piece.chunks, seq, start=piece.start, mark=piece.mark
                )
                told.append(
                    (
                        old is not None
                        and _get_document_fields(old) == _get_document_fields(piece.entry),
                        written,
                    )
                )
                if piece.entry.conversation is not None:
                    self.catalog.replace_citations(piece.entry, rows, after=piece.after)
            self.catalog.commit()
        except BaseException:
            self.catalog.rollback()
            raise
        for (piece, _), (same, written) in zip(batch, told, strict=True):
            writer = self.writers[piece.entry.hidden]
            if piece.start or (same and piece.entry.conversation is not None):
                writer.update_chunks(piece.entry, piece.before, piece.chunks, written)
            else:
                writer.replace_entry(piece.entry, piece.chunks)
            self.writers[not piece.entry.hidden].remove_entry(piece.entry.id)

    def set_meta(self, key: str, value: str) -> None:
        """Remember a note of the catalog's in a transaction of its own."""
        self.catalog.begin()
        self.catalog.set_meta(key, value)
        self.catalog.commit()
        self.commit_keyword_indexes()

    def count_stale_documents(self) -> int:
        """How many documents `compact` writes: those of each side that has stale ones."""
        return sum(
            writer.count_documents()
            for writer in self.writers.values()
            if _has_stale_documents(writer)
        )

    def compact(self, give_up: Callable[[], bool]) -> None:
        """Remove replaced documents from the keyword indexes, whose scores they still change."""
        seq = self.catalog.current_seq()
        for hidden, writer in self.writers.items():
            if not _has_stale_documents(writer):
                continue
            entries = (
                (entry, self.catalog.list_chunks(entry.id))
                for entry in self.catalog.iterate_entries()
                if entry.hidden == hidden
            )
            if not writer.rewrite_all(entries, seq, give_up):
                return

    def commit_keyword_indexes(self) -> None:
        """Let what was put and removed be found."""
        seq = self.catalog.current_seq()
        for hidden, writer in self.writers.items():
            # The visible side's statistics must not move because something hidden changed; and a
            # commit takes longer than all else that follows a save.
            if writer.has_changes or (hidden and self._behind > MAX_LAG):
                writer.commit(seq)
                if hidden:
                    self._behind = 0


def _has_stale_documents(writer: KeywordIndexWriter) -> bool:
    return writer.count_stale_documents() > writer.count_documents() * MAX_STALE_SHARE


def _get_document_fields(entry: Entry) -> tuple[object, ...]:
    """What of an entry is in each of its chunks' documents, besides its time."""
    return (
        entry.title, entry.kind, entry.type, entry.topic, entry.hidden, entry.archived,
    )  # fmt: skip


ComparedItem = TypeVar("ComparedItem")

BATCH_ENTRIES, BATCH_SECONDS = 256, 0.5
COMMIT_SECONDS, COMMIT_SECONDS_MAX = 2.0, 16.0
"""What was read is found after so long; each time twice as long, because whoever builds an index
waits for each commit."""
PATIENCE_SECONDS = 0.5
"""After so long, who asked for another refresh is served before the rest: a subject that was saved
must not wait for a long conversation."""
STOP_CHECK_ITEMS = 64
"""So many entries are compared between two looks at whether it is time to stop."""


@dataclass
class RefreshChanges:
    """What a refresh found changed; `knowledge` is about topics as well as subjects.

    `unfinished` says that it made way for another, which goes on with the rest.
    """

    knowledge: bool = False
    subjects: list[str] = field(default_factory=list)
    conversations: list[str] = field(default_factory=list)
    removed: int = 0
    unfinished: bool = False

    def __bool__(self) -> bool:
        return bool(self.knowledge or self.subjects or self.conversations or self.removed)


@dataclass
class IndexProgress:
    """How far a piece of work is; `total` counts entries or chunks, `waits` says why it rests."""

    phase: str
    done: int
    total: int
    waits: str | None = None


class _RefreshStopped(Exception):
    """It was time to stop while files were compared, of which nothing is kept."""


class Index:
    """The index of one workspace, for writing. One thread makes all calls.

    `stop` ends a refresh between two entries, whether they are compared or taken in; what is
    done stays done.
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
        """Open or make the index; raises `IndexUnavailable`.

        `rebuild` makes a new generation beside the old, which serves until the
        new one is complete. `should_yield` says that another refresh is waited for.
        """
        self.workspace = workspace
        self.settings = settings
        self.cache_dir = cache_dir or workspace.cache_dir
        self._on_progress = on_progress or (lambda progress: None)
        self._stop = stop or threading.Event()
        self._should_yield = should_yield
        self.topic_folders: list[Path] = []
        try:
            self._storage = IndexStorage(self.cache_dir, settings, rebuild=rebuild)
        except OSError as error:
            raise IndexUnavailable(
                f"the cache cannot be written: {error.strerror}",
                where=str(self.cache_dir),
                hint="free some space, or set XDG_CACHE_HOME to a directory that can be written",
            ) from error

    @property
    def folder(self) -> Path:
        """The directory of the generation that is written."""
        return self._storage.folder

    @property
    def catalog(self) -> Catalog:
        """Its catalog."""
        return self._storage.catalog

    def is_in_place(self) -> bool:
        """Whether its parts are where readers look for them."""
        return self._storage.is_in_place()

    def close(self) -> None:
        """Let go of all files."""
        self._storage.close()

    def refresh(self, *, retry: bool = False) -> RefreshChanges:
        """Compare all files with the catalog, and take in what differs.

        With `retry` what could not be read before is read again, even where its file looks the same.
        """
        from kbtui.knowledge import load_knowledge

        knowledge = load_knowledge(self.workspace)
        self.topic_folders = [
            self.workspace.root / topic.subjects
            for topic in knowledge.topics.values()
            if topic.enable
        ]
        try:
            subjects, conversations, gone = self._find_differences(knowledge, retry)
        except _RefreshStopped:
            return RefreshChanges(unfinished=True)
        changes = RefreshChanges()
        self._save_configuration_state(knowledge, changes)
        if gone or subjects or conversations:
            self._index_differences(gone, subjects, conversations, knowledge, changes)
        if not self._stop.is_set() and not changes.unfinished:
            self._storage.publish()
        return changes

    def compact(self, most: int | None = None) -> int:
        """Remove replaced documents from the keyword indexes, unless that writes more than `most`.

        Returns how many documents are still to be written. Without `most` it takes long, and stops
        when another refresh is requested.
        """
        stale = self._storage.count_stale_documents()
        if stale and (most is None or stale <= most):
            self._storage.compact(
                lambda: self._stop.is_set() or (most is None and self._should_yield())
            )
            stale = self._storage.count_stale_documents()
        return stale

    def _find_differences(
        self, knowledge: Knowledge, retry: bool
    ) -> tuple[list[Subject], set[str], list[str]]:
        """The subjects and conversations that are not as they were read, and the entries of none."""
        from kbtui.conversations.repository import list_signatures

        again = self.catalog.list_unreadable_ids() if retry else frozenset()
        states = {
            (place, slug): (entry_id, state)
            for place, slug, entry_id, state in self._iterate_until_stopped(
                self.catalog.list_signatures()
            )
        }

        def differs(known: tuple[str, str] | None, state: str) -> bool:
            return known is None or known[1] != state or known[0] in again

        subjects = [
            subject
            for subject in self._iterate_until_stopped(_iterate_indexed_subjects(knowledge))
            if differs(
                states.pop((subject.topic, subject.slug), None), make_subject_signature(subject)
            )
        ]
        conversations = {
            identity
            for identity, state in self._iterate_until_stopped(
                list_signatures(self.workspace).items()
            )
            if differs(states.pop((identity, None), None), state)
        }
        return subjects, conversations, [entry_id for entry_id, _ in states.values()]

    def _iterate_until_stopped(self, items: Iterable[ComparedItem]) -> Iterator[ComparedItem]:
        """The items; raises `_Stopped` between two of them when it is time to stop."""
        left = iter(items)
        while batch := list(islice(left, STOP_CHECK_ITEMS)):
            if self._stop.is_set():
                raise _RefreshStopped
            yield from batch

    def _save_configuration_state(self, knowledge: Knowledge, changes: RefreshChanges) -> None:
        """Remember the state of the configuration files; clients compare before they trust."""
        state = json.dumps(get_configuration_state(knowledge.files))
        if self.catalog.get_meta("configuration") != state:
            self._storage.set_meta("configuration", state)
            changes.knowledge = True

    def _index_differences(
        self,
        gone: list[str],
        subjects: list[Subject],
        conversations: set[str],
        knowledge: Knowledge,
        changes: RefreshChanges,
    ) -> None:
        from kbtui.citations import CitationTargets
        from kbtui.conversations.repository import list_conversations

        # Metadata is read only when there is a conversation to take in.
        infos = list_conversations(self.workspace, counts=False) if conversations else []
        work: list[Subject | ConversationInfo] = [
            *subjects,
            *(info for info in infos if info.id in conversations),
        ]
        targets = CitationTargets(
            knowledge, {info.id: info.name for info in infos}, make_subject_id
        )
        work.sort(key=_get_precedence)
        if gone:
            self._remove_entries(gone, changes)
        done, begun = 0, time.monotonic()
        committed = put = begun
        pause = COMMIT_SECONDS
        batch: list[tuple[IngestBatch, CitationRows]] = []
        self._on_progress(IndexProgress("keywords", 0, len(work)))
        for piece in self._read_batches(work, changes):
            batch.append((piece, _make_citation_rows(piece.read, targets) if piece.read else []))
            done += piece.last
            now = time.monotonic()
            # A part is put before the next one is read, which stands on it.
            if not piece.last or len(batch) >= BATCH_ENTRIES or now - put > BATCH_SECONDS:
                self._storage.put_batches(batch)
                batch, put = [], now
                self._on_progress(IndexProgress("keywords", done, len(work)))
                if now - committed > pause:
                    self._storage.commit_keyword_indexes()
                    committed, pause = now, min(pause * 2, COMMIT_SECONDS_MAX)
                if now - begun > PATIENCE_SECONDS and done < len(work) and self._should_yield():
                    changes.unfinished = True
                    break
        self._storage.put_batches(batch)
        self._storage.commit_keyword_indexes()
        self._on_progress(IndexProgress("keywords", done, len(work)))

    def _read_batches(
        self, work: list[Subject | ConversationInfo], changes: RefreshChanges
    ) -> Iterator[IngestBatch]:
        from kbtui.conversations.models import ConversationInfo

        for item in work:
            if self._stop.is_set():
                return
            if isinstance(item, ConversationInfo):
                changes.conversations.append(item.id)
                for piece in read_conversation_batches(
                    self.catalog, item, embed_tool_results=self.settings.embed_tool_results
                ):
                    yield piece
                    if self._stop.is_set():
                        return
            else:
                changes.knowledge = True
                changes.subjects.append(f"{item.topic}/{item.slug}")
                yield read_subject_batch(item)

    def _remove_entries(self, gone: list[str], changes: RefreshChanges) -> None:
        for entry in self._storage.remove_entries(gone):
            changes.removed += 1
            if entry.conversation is not None:
                changes.conversations.append(entry.conversation)
            else:
                changes.knowledge = True
                changes.subjects.append(f"{entry.topic}/{entry.slug}")


def _iterate_indexed_subjects(knowledge: Knowledge) -> Iterator[Subject]:
    for topic in knowledge.topics.values():
        if topic.enable:
            for subject in knowledge.iterate_subjects(topic.id):
                if not subject.disabled:
                    yield subject


def _get_precedence(item: Subject | ConversationInfo) -> tuple[bool, float]:
    """Subjects before conversations, newest first (design, "Processes")."""
    from kbtui.conversations.models import ConversationInfo

    if isinstance(item, ConversationInfo):
        return (True, -(item.updated_at or item.created_at).timestamp())
    return (False, -float(item.mtime_ns))


def get_configuration_state(files: list[Path]) -> list[list[object]]:
    """Path, size and modification time of each file; a missing one has nulls."""
    state: list[list[object]] = []
    for path in files:
        try:
            status = path.stat()
            state.append([str(path), status.st_size, status.st_mtime_ns])
        except OSError:
            state.append([str(path), None, None])
    return state


def _make_citation_rows(conversation: Conversation, targets: CitationTargets) -> CitationRows:
    from kbtui.citations import extract_citations

    return [
        (
            cite.conversation, cite.turn, cite.call, cite.how, cite.kind, cite.target, cite.title,
            cite.tool, cite.timestamp.timestamp() if cite.timestamp else None, cite.chunk, cite.score,
        )
        for cite in extract_citations(conversation, targets, targets.titles)
    ]  # fmt: skip
