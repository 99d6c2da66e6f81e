"""`Index`: brings catalog and lexical index up to date with the files. The engine's alone.

The order of every write is: catalog transaction, then lexical commit with the
catalog's sequence number. Whatever happens in between, opening the index again
repairs the lexical side from the catalog, and the next refresh the catalog from
the files (design, "Storage").
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbtui.errors import IndexUnavailable
from kbtui.index import generation
from kbtui.index.catalog import Catalog
from kbtui.index.entries import subject_signature
from kbtui.index.identity import conversation_id, subject_id
from kbtui.index.lexical import LexicalWriter
from kbtui.index.pieces import conversation_pieces, subject_piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kbtui.citations import Shelf
    from kbtui.conversations.records import Conversation, ConversationInfo
    from kbtui.index.pieces import Piece
    from kbtui.index.putting import Written
    from kbtui.index.records import Entry
    from kbtui.knowledge import Knowledge
    from kbtui.knowledge.records import Subject
    from kbtui.workspace import Settings, Workspace

BATCH_ENTRIES, BATCH_SECONDS = 256, 0.5
COMMIT_SECONDS = 2.0
BEHIND_MOST = 500
"""So many entries may be written before an index to which none of them belongs says that it is
up to date: when it is opened, they are looked at."""
PATIENCE_SECONDS = 0.5
"""After so long, who asked for another refresh is served before the rest: a subject that was saved
must not wait for a long conversation."""

Rows = list[tuple[object, ...]]
"""A conversation's citations, in the columns of the catalog's table."""


@dataclass
class Changes:
    """What a refresh found changed; `knowledge` is about topics as well as subjects.

    `unfinished` says that it made way for another, which goes on with the rest.
    """

    knowledge: bool = False
    subjects: list[str] = field(default_factory=list)
    conversations: list[int] = field(default_factory=list)
    removed: int = 0
    unfinished: bool = False

    def __bool__(self) -> bool:
        return bool(self.knowledge or self.subjects or self.conversations or self.removed)


@dataclass
class Progress:
    """How far a piece of work is; `total` counts entries or chunks, `waits` says why it rests."""

    phase: str
    done: int
    total: int
    waits: str | None = None


class Index:
    """The index of one workspace, for writing. One thread makes all calls.

    `stop` ends a refresh between two entries; what is done stays done.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        *,
        cache_dir: Path | None = None,
        rebuild: bool = False,
        say: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
        again: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open or make the index; raises `IndexUnavailable`.

        `rebuild` makes a new generation beside the old, which serves until the
        new one is complete. `again` says that another refresh is waited for.
        """
        self.workspace = workspace
        self.settings = settings
        self.cache_dir = cache_dir or workspace.cache_dir
        self._say = say or (lambda progress: None)
        self._stop = stop or threading.Event()
        self._again = again
        self.topic_folders: list[Path] = []
        try:
            self.cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder = self._choose(rebuild)
            self._open()
        except OSError as error:
            raise IndexUnavailable(
                f"the cache cannot be written: {error.strerror}",
                where=str(self.cache_dir),
                hint="free some space, or set XDG_CACHE_HOME to a directory that can be written",
            ) from error

    def _choose(self, rebuild: bool) -> Path:
        mark = generation.fingerprint(self.settings)
        old = generation.current(self.cache_dir)
        if old and not rebuild and old.name.startswith(f"gen-{mark}-"):
            return old
        folder = generation.make(self.cache_dir, mark)
        self._unpublished = old is not None
        return folder

    _unpublished = False
    _behind = 0

    def _open(self) -> None:
        try:
            self._open_parts()
        except IndexUnavailable:
            # Damaged beyond opening: a fresh generation, which a refresh fills.
            self.folder = generation.make(self.cache_dir, generation.fingerprint(self.settings))
            self._open_parts()
        if not self._unpublished and generation.current(self.cache_dir) != self.folder:
            generation.publish(self.folder)
        generation.sweep(self.cache_dir, self.folder)
        self._repair()

    def _open_parts(self) -> None:
        self.catalog = Catalog(self.folder / "catalog.sqlite", write=True)
        if self.catalog.get("language") is None:
            self.catalog.set("language", self.settings.language)
        self._writers = {
            False: LexicalWriter(self.folder / "lexical", self.settings.language),
            True: LexicalWriter(self.folder / "hidden", self.settings.language),
        }

    def close(self) -> None:
        """Let go of all files."""
        for writer in self._writers.values():
            writer.close()
        self.catalog.close()

    def _repair(self) -> None:
        """Bring the lexical side to the catalog's state."""
        seq = self.catalog.seq()
        for hidden, writer in self._writers.items():
            mark = writer.watermark()
            if mark == seq:
                continue
            if mark > seq:
                # The catalog lost transactions (a machine's crash): nothing of the lexical side is sure.
                mark = 0
                for entry_id in self.catalog.signatures():
                    writer.remove(entry_id)
            for entry_id in self.catalog.gone_since(mark):
                writer.remove(entry_id)
            for entry_id in self.catalog.changed_since(mark):
                entry = self.catalog.entry(entry_id)
                if entry and entry.hidden == hidden:
                    writer.replace(entry, self.catalog.chunks_of(entry_id))
                else:
                    writer.remove(entry_id)
            if hidden or writer.changed:
                writer.commit(seq)

    # refreshing

    def refresh(self, *, retry: bool = False) -> Changes:
        """Compare all files with the catalog, and take in what differs.

        With `retry` what could not be read before is read again, even where its file looks the same.
        """
        from kbtui.conversations import conversation_signatures
        from kbtui.knowledge import load_knowledge

        knowledge = load_knowledge(self.workspace)
        self.topic_folders = [
            self.workspace.root / topic.subjects
            for topic in knowledge.topics.values()
            if topic.enable
        ]
        have = self.catalog.signatures()
        again = self.catalog.unread() if retry else frozenset()
        seen: set[str] = set()
        subjects: list[Subject] = []
        for subject in _indexed_subjects(knowledge):
            entry_id = subject_id(subject.topic, subject.slug)
            seen.add(entry_id)
            if have.get(entry_id) != subject_signature(subject) or entry_id in again:
                subjects.append(subject)
        conversations: set[int] = set()
        for identity, mark in conversation_signatures(self.workspace).items():
            entry_id = conversation_id(identity)
            seen.add(entry_id)
            if have.get(entry_id) != mark or entry_id in again:
                conversations.add(identity)
        changes = Changes()
        gone = [entry_id for entry_id in have if entry_id not in seen]
        self._note_configuration(knowledge, changes)
        if gone or subjects or conversations:
            self._take_in(gone, subjects, conversations, knowledge, changes)
        if self._unpublished and not self._stop.is_set() and not changes.unfinished:
            generation.publish(self.folder)
            self._unpublished = False
            generation.sweep(self.cache_dir, self.folder)
        return changes

    def _note_configuration(self, knowledge: Knowledge, changes: Changes) -> None:
        """Remember the state of the configuration files; clients compare before they trust."""
        state = json.dumps(configuration_state(knowledge.files))
        if self.catalog.get("configuration") != state:
            self.catalog.begin()
            self.catalog.set("configuration", state)
            self.catalog.commit()
            self._commit_lexical()
            changes.knowledge = True

    def _take_in(
        self,
        gone: list[str],
        subjects: list[Subject],
        conversations: set[int],
        knowledge: Knowledge,
        changes: Changes,
    ) -> None:
        from kbtui.citations import Shelf
        from kbtui.conversations import list_conversations

        # Metadata is read only when there is a conversation to take in.
        infos = list_conversations(self.workspace, counts=False) if conversations else []
        work: list[Subject | ConversationInfo] = [
            *subjects,
            *(info for info in infos if info.id in conversations),
        ]
        shelf = Shelf(knowledge, {info.id: info.name for info in infos}, subject_id)
        work.sort(key=_precedence)
        self._remove(gone, changes)
        done, begun = 0, time.monotonic()
        committed = put = begun
        batch: list[tuple[Piece, Rows]] = []
        self._say(Progress("keywords", 0, len(work)))
        for piece in self._read(work, changes):
            batch.append((piece, _citation_rows(piece.read, shelf) if piece.read else []))
            done += piece.last
            now = time.monotonic()
            # A part is put before the next one is read, which stands on it.
            if not piece.last or len(batch) >= BATCH_ENTRIES or now - put > BATCH_SECONDS:
                self._put(batch)
                batch, put = [], now
                self._say(Progress("keywords", done, len(work)))
                if now - committed > COMMIT_SECONDS:
                    self._commit_lexical()
                    committed = now
                if now - begun > PATIENCE_SECONDS and done < len(work) and self._again():
                    changes.unfinished = True
                    break
        self._put(batch)
        self._commit_lexical()
        self._say(Progress("keywords", done, len(work)))

    def _read(self, work: list[Subject | ConversationInfo], changes: Changes) -> Iterator[Piece]:
        from kbtui.conversations.records import ConversationInfo

        for item in work:
            if self._stop.is_set():
                return
            if isinstance(item, ConversationInfo):
                changes.conversations.append(item.id)
                for piece in conversation_pieces(
                    self.catalog, item, embed_tool_results=self.settings.embed_tool_results
                ):
                    yield piece
                    if self._stop.is_set():
                        return
            else:
                changes.knowledge = True
                changes.subjects.append(f"{item.topic}/{item.slug}")
                yield subject_piece(item)

    def _remove(self, gone: list[str], changes: Changes) -> None:
        if not gone:
            return
        self._behind += len(gone)
        seq = self.catalog.begin()
        for entry_id in gone:
            entry = self.catalog.entry(entry_id)
            if entry and entry.conversation is not None:
                changes.conversations.append(entry.conversation)
            elif entry:
                changes.knowledge = True
                changes.subjects.append(f"{entry.topic}/{entry.slug}")
            self.catalog.remove(entry_id, seq)
            changes.removed += 1
        self.catalog.commit()
        for writer in self._writers.values():
            for entry_id in gone:
                writer.remove(entry_id)

    def _put(self, batch: list[tuple[Piece, Rows]]) -> None:
        if not batch:
            return
        self._behind += len(batch)
        seq = self.catalog.begin()
        told: list[tuple[bool, Written]] = []
        try:
            for piece, rows in batch:
                # Read here, because an earlier piece of the batch may be of the same entry.
                old = self.catalog.entry(piece.entry.id)
                written = self.catalog.put(
                    piece.entry, piece.chunks, seq, start=piece.start, mark=piece.mark
                )
                told.append((old is not None and _face(old) == _face(piece.entry), written))
                if piece.entry.conversation is not None:
                    self.catalog.put_citations(piece.entry, rows, after=piece.after)
            self.catalog.commit()
        except BaseException:
            self.catalog.rollback()
            raise
        for (piece, _), (same, written) in zip(batch, told, strict=True):
            writer = self._writers[piece.entry.hidden]
            if piece.start or (same and piece.entry.conversation is not None):
                writer.update(piece.entry, piece.before, piece.chunks, written)
            else:
                writer.replace(piece.entry, piece.chunks)
            self._writers[not piece.entry.hidden].remove(piece.entry.id)

    def _commit_lexical(self) -> None:
        seq = self.catalog.seq()
        for hidden, writer in self._writers.items():
            # The visible side's statistics must not move because something hidden changed; and a
            # commit takes longer than all else that follows a save.
            if writer.changed or (hidden and self._behind > BEHIND_MOST):
                writer.commit(seq)
                if hidden:
                    self._behind = 0


def _indexed_subjects(knowledge: Knowledge) -> Iterator[Subject]:
    for topic in knowledge.topics.values():
        if topic.enable:
            for subject in knowledge.subjects(topic.id):
                if not subject.disabled:
                    yield subject


def _precedence(item: Subject | ConversationInfo) -> tuple[bool, float]:
    """Subjects before conversations, newest first (design, "Processes")."""
    from kbtui.conversations.records import ConversationInfo

    if isinstance(item, ConversationInfo):
        return (True, -(item.updated_at or item.created_at).timestamp())
    return (False, -float(item.mtime_ns))


def _face(entry: Entry) -> tuple[object, ...]:
    """What of an entry is in each of its chunks' documents, besides its time."""
    return (
        entry.title, entry.kind, entry.type, entry.topic, entry.hidden, entry.archived,
    )  # fmt: skip


def configuration_state(files: list[Path]) -> list[list[object]]:
    """Path, size and modification time of each file; a missing one has nulls."""
    state: list[list[object]] = []
    for path in files:
        try:
            status = path.stat()
            state.append([str(path), status.st_size, status.st_mtime_ns])
        except OSError:
            state.append([str(path), None, None])
    return state


def _citation_rows(conversation: Conversation, shelf: Shelf) -> Rows:
    from kbtui.citations import cite_conversation

    return [
        (
            cite.conversation, cite.turn, cite.call, cite.how, cite.kind, cite.target, cite.title,
            cite.tool, cite.timestamp.timestamp() if cite.timestamp else None, cite.chunk, cite.score,
        )
        for cite in cite_conversation(conversation, shelf, shelf.titles)
    ]  # fmt: skip
