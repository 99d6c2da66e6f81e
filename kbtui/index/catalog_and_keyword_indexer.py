"""Indexes entries: reads subjects and conversations, and writes them to the catalog and the keyword indexes."""

from __future__ import annotations

import errno
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kbtui.errors import IndexUnavailable
from kbtui.index import index_generations
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.index.entry_and_chunk_data_types import make_subject_id
from kbtui.index.indexable_entry_reader import (
    describe_indexing_error,
    read_subject_entry,
    read_unindexed_conversation_parts,
)
from kbtui.index.keyword_index_writer import KeywordIndexWriter
from kbtui.terminal_text import replace_surrogates
from kbtui.workspace.paths import make_private_directory

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from kbtui.citations.tool_call_citations import CitationTargetLookup
    from kbtui.conversations.conversation_data_types import Conversation, ConversationInfo
    from kbtui.index.catalog_database import EntryChunksWriteResult
    from kbtui.index.entry_and_chunk_data_types import CatalogEntry
    from kbtui.index.indexable_entry_reader import IndexableEntryOrPart
    from kbtui.knowledge import KnowledgeBase
    from kbtui.knowledge.knowledge_data_types import Subject
    from kbtui.workspace import Settings, Workspace

    IndexableItem = Subject | ConversationInfo


MAX_LAG = 500
"""After changes to more than this many entries, the keyword index of hidden entries is committed even if it has not changed.

The commit stores the catalog's transaction number, so that the next start applies only later changes.
"""

MAX_REPLACED_SHARE = 2e-5
"""If a keyword index has more replaced documents than this share of its current documents, it is rewritten.

BM25's statistics still count a replaced document. Each commit replaces at least one document: the
one with the catalog's transaction number.
"""


class CatalogAndKeywordIndexWriter:
    """The catalog and the keyword indexes of the generation at `folder`, opened for writing.

    `writers[False]` writes the keyword index of visible entries, and `writers[True]` that of hidden
    entries. If `has_hidden` is false, there are no hidden entries, and only `writers[False]` exists.
    Only one thread may use this class.
    """

    def __init__(
        self,
        cache_dir: Path,
        settings: Settings,
        *,
        rebuild: bool = False,
        has_hidden: bool = True,
    ) -> None:
        """Open the current generation, or create one if the fingerprint has changed.

        If `rebuild` is true, a new generation is always created. The old one stays in use until
        `activate_new_generation` is called. Raises `IndexUnavailable` or `OSError`.
        """
        self.cache_dir, self.settings, self._has_hidden = cache_dir, settings, has_hidden
        self._uncommitted = self._committed_transaction = 0
        self._parts_without_documents: dict[Path, int] = {}
        """Maps the folder of each part that still lacks its documents to the number of the last transaction before its rows."""
        make_private_directory(cache_dir)
        fingerprint = index_generations.compute_index_fingerprint(settings)
        old = index_generations.find_current_index_generation(cache_dir)
        if old and not rebuild and old.name.startswith(f"gen-{fingerprint}-"):
            self.folder = old
        else:
            self.folder = index_generations.create_index_generation(cache_dir, fingerprint)
        self._is_not_yet_active = old not in (None, self.folder)
        try:
            self._open_catalog_and_keyword_indexes()
        except IndexUnavailable:
            # The files are too damaged to open, so the next refresh fills a new generation.
            self.folder = index_generations.create_index_generation(cache_dir, fingerprint)
            self._open_catalog_and_keyword_indexes()
        if not self._is_current_or_not_yet_active():
            index_generations.activate_index_generation(self.folder)
        index_generations.remove_old_index_generations(cache_dir, self.folder)
        self._update_keyword_indexes_from_catalog()

    def _is_current_or_not_yet_active(self) -> bool:
        """Return whether this generation is the current one or is not active yet."""
        current = index_generations.find_current_index_generation(self.cache_dir)
        return self._is_not_yet_active or current == self.folder

    def _open_catalog_and_keyword_indexes(self) -> None:
        self.catalog = CatalogDatabase(self.folder / "catalog.sqlite", write=True)
        if self.catalog.get_meta_value("language") is None:
            self.catalog.set_meta_value("language", self.settings.language)
        self.writers = {
            hidden: KeywordIndexWriter(self.folder / name, self.settings.language)
            for hidden, name in ((False, "lexical"), (True, "hidden"))
            if self._has_hidden or not hidden
        }

    def close(self) -> None:
        """Close all files."""
        with ExitStack() as stack:
            stack.callback(self.catalog.close)
            for writer in self.writers.values():
                stack.callback(writer.close)

    def are_index_files_in_place(self) -> bool:
        """Return whether this generation's files exist and no other generation has replaced it."""
        indexes = [self.folder / name for name in ("lexical", "hidden")]
        files = [*(index / "meta.json" for index in indexes), self.folder / "catalog.sqlite"]
        return self._is_current_or_not_yet_active() and all(file.exists() for file in files)

    def activate_new_generation(self) -> None:
        """Make the new generation the current one, which readers open. If there is no new generation, do nothing."""
        if self._is_not_yet_active:
            index_generations.activate_index_generation(self.folder)
            self._is_not_yet_active = False
            index_generations.remove_old_index_generations(self.cache_dir, self.folder)

    def _update_keyword_indexes_from_catalog(self) -> None:
        """Add to each keyword index the catalog's changes since the last commit of that index."""
        seq = self.catalog.get_last_transaction_number()
        for hidden, writer in self.writers.items():
            mark, last = writer.read_catalog_watermark()
            if mark == last == seq:
                continue
            if last > seq:
                # The machine crashed and the catalog lost transactions, so write all entries again. Remove
                # all documents, because those of lost entries are in no list.
                mark = 0
                writer.remove_all_entries()
            for entry_id in self.catalog.list_entry_ids_changed_since(mark):
                entry = self.catalog.get_entry(entry_id)
                if entry and entry.hidden == hidden:
                    chunks = self.catalog.list_entry_chunks(entry_id)
                    numbers = [chunk.number for chunk in chunks]
                    writer.replace_entry_documents(entry, chunks, numbers)
                else:
                    writer.remove_entry(entry_id)
            if hidden or writer.has_uncommitted_changes:
                writer.commit_with_watermark(seq)

    def remove_entries(self, gone: list[str]) -> list[CatalogEntry]:
        """Remove entries by id; return those that existed."""
        if not gone:
            return []
        self._uncommitted += len(gone)
        found = [entry for id_ in gone if (entry := self.catalog.get_entry(id_)) is not None]
        with self.catalog.open_write_transaction() as seq:
            for entry_id in gone:
                self.catalog.remove_entry(entry_id, seq)
        for writer in self.writers.values():
            for entry_id in gone:
                writer.remove_entry(entry_id)
        return found

    def replace_entry_parts(self, parts: list[IndexableEntryOrPart]) -> None:
        """Replace entries, or parts of entries, in one transaction."""
        if not parts:
            return
        self._uncommitted += len(parts)
        results: list[EntryChunksWriteResult] = []
        with self.catalog.open_write_transaction() as seq:
            for part in parts:
                written = self.catalog.write_entry_and_chunks(
                    part.entry, part.chunks, seq, start=part.first_ordinal, mark=part.mark
                )
                results.append(written)
                if part.entry.conversation is not None:
                    for table, rows in (("citations", part.citations), ("usage", part.usage)):
                        after_call = part.after_call if table == "citations" else 0
                        self.catalog.replace_citation_or_usage_rows_of_conversation(
                            table, part.entry, rows, after=part.after_turn, after_call=after_call
                        )
        for part, written in zip(parts, results, strict=True):
            entry, writer = part.entry, self.writers[part.entry.hidden]
            if part.first_ordinal or _are_indexed_entry_fields_equal(written.previous, entry):
                writer.update_chunk_documents(entry, part.chunks, written)
            else:
                writer.replace_entry_documents(entry, part.chunks, written.numbers)
            if self._has_hidden:
                self.writers[not entry.hidden].remove_entry(entry.id)

    def count_documents_to_rewrite(self) -> int:
        """Return how many documents `rewrite_indexes_with_many_replaced_documents` would rewrite."""
        due = filter(_has_too_many_replaced_documents, self.writers.values())
        return sum(writer.count_committed_documents() for writer in due)

    def rewrite_indexes_with_many_replaced_documents(self, give_up: Callable[[], bool]) -> None:
        """Rewrite each keyword index in which too many replaced documents still affect the scores.

        When `give_up` returns true, rewriting stops, and the index that is being rewritten does not
        change.
        """
        seq = self.catalog.get_last_transaction_number()
        for hidden, writer in self.writers.items():
            if not _has_too_many_replaced_documents(writer):
                continue
            entries = (
                (entry, self.catalog.list_entry_chunks(entry.id))
                for entry in self.catalog.iterate_entries()
                if entry.hidden == hidden
            )
            if not writer.rewrite_all_documents(entries, seq, give_up):
                return

    def commit_keyword_indexes(self, *, with_watermark: bool = False) -> None:
        """Commit the keyword indexes, so that searches find the changes.

        If `with_watermark` is true, also commit the visible index if only its watermark is out of date.
        """
        seq = self.catalog.get_last_transaction_number()
        # If kbtui ends before the missing documents are added, the next start makes them from the
        # catalog, because their transactions come after `complete`.
        complete = min(self._parts_without_documents.values(), default=seq)
        for hidden, writer in self.writers.items():
            # Commit only an index that has changed, for two reasons: a change to a hidden entry must not
            # affect the statistics of the visible index, and the commit is the slowest step after a file
            # is saved.
            if hidden:
                is_due = self._uncommitted > MAX_LAG
            else:
                is_due = with_watermark and self._committed_transaction < seq
            if writer.has_uncommitted_changes or is_due:
                # Parts have no hidden entries.
                writer.commit_with_watermark(seq, complete=seq if hidden else complete)
                if hidden:
                    self._uncommitted = 0
                else:
                    self._committed_transaction = seq

    def commit_index_part(self) -> None:
        """Commit the visible keyword index without a watermark, so that `add_documents_of_parts` can add it to another index."""
        self.writers[False].commit_index_part()

    def add_rows_of_parts(self, folders: list[Path]) -> None:
        """Add the rows of the parts in `folders` to the catalog. The caller must add their documents later.

        Each folder is laid out like a cache directory. Its catalog is complete, has no hidden entries and
        no entry of this index, and was prepared by `CatalogDatabase.prepare_for_part` with numbers that
        are higher than those of this index and of the folders before it.
        """
        for folder in folders:
            self._parts_without_documents[folder] = self.catalog.get_last_transaction_number()
            catalog = _get_part_generation(folder) / "catalog.sqlite"
            self._uncommitted += self.catalog.add_rows_of_part(catalog)

    def add_documents_of_parts(self, folders: list[Path]) -> None:
        """Add the documents of parts whose rows are already in the catalog, and commit.

        Afterwards, the files of the parts are no longer usable.
        """
        # Before the segments are added, the watermark must have the numbers of the parts' rows.
        self.commit_keyword_indexes(with_watermark=True)
        indexes = [_get_part_generation(folder) / "lexical" for folder in folders]
        self.writers[False].add_segments_of_parts(indexes)
        for folder in folders:
            del self._parts_without_documents[folder]
        self.commit_keyword_indexes()

    def make_missing_documents_of_parts(self) -> None:
        """Make the missing documents of parts from the rows in the catalog, and commit."""
        if self._parts_without_documents:
            self.commit_keyword_indexes()
            self._update_keyword_indexes_from_catalog()
            self._parts_without_documents.clear()


def _get_part_generation(folder: Path) -> Path:
    if (generation := index_generations.find_current_index_generation(folder)) is None:
        raise FileNotFoundError(errno.ENOENT, "a part of the index is missing", str(folder))
    return generation


def _has_too_many_replaced_documents(writer: KeywordIndexWriter) -> bool:
    return (
        writer.count_replaced_documents() > writer.count_committed_documents() * MAX_REPLACED_SHARE
    )


def _are_indexed_entry_fields_equal(old: CatalogEntry | None, new: CatalogEntry) -> bool:
    """Return whether the indexed fields of two versions of an entry are equal, apart from times."""
    names = ("title", "kind", "type", "topic", "agent", "hidden", "archived")
    return old is not None and all(getattr(old, name) == getattr(new, name) for name in names)


BATCH_ENTRIES, BATCH_SECONDS = 256, 0.25


class EntryIndexer:
    """Reads subjects and conversations, and writes them to a catalog and keyword indexes.

    `titles` maps the ids of all conversations to their titles. When the event `stop` is set, indexing
    ends after the current entry, or after the current part of a long conversation.
    """

    def __init__(
        self,
        workspace: Workspace,
        knowledge: KnowledgeBase,
        titles: Mapping[str, str],
        stop: threading.Event,
    ) -> None:
        from kbtui.citations.tool_call_citations import CitationTargetLookup
        from kbtui.conversations.workspace_and_worktree_directories import (
            list_workspace_and_worktree_paths,
        )

        self._stop = stop
        directories = list_workspace_and_worktree_paths(workspace)
        self._targets = CitationTargetLookup(knowledge, titles, make_subject_id, directories)

    def index_entries(
        self, items: Iterable[IndexableItem], storage: CatalogAndKeywordIndexWriter
    ) -> Iterator[int]:
        """Index the items in batches. After each batch, yield how many items are done.

        Nothing is committed to the keyword indexes.
        """
        done, written = 0, time.monotonic()
        parts: list[IndexableEntryOrPart] = []
        for part in self._read_entry_parts(items, storage):
            if part.conversation:
                _add_citation_and_token_usage_rows(part, part.conversation, self._targets)
                part.conversation = None  # a batch of parsed conversations needs much memory
            parts.append(part)
            done += part.is_last
            now = time.monotonic()
            # Write each part of a conversation before reading the next part, which depends on it.
            is_full = len(parts) >= BATCH_ENTRIES or now - written > BATCH_SECONDS
            if is_full or not part.is_last:
                storage.replace_entry_parts(parts)
                parts, written = [], now
                yield done
        storage.replace_entry_parts(parts)
        yield done

    def _read_entry_parts(
        self, items: Iterable[IndexableItem], storage: CatalogAndKeywordIndexWriter
    ) -> Iterator[IndexableEntryOrPart]:
        from kbtui.conversations.conversation_data_types import ConversationInfo

        for item in items:
            if isinstance(item, ConversationInfo):
                for entry_part in read_unindexed_conversation_parts(
                    storage.catalog, item, embed_tool_results=storage.settings.embed_tool_results
                ):
                    yield entry_part
                    if self._stop.is_set():
                        return
            else:
                yield read_subject_entry(item)
            if self._stop.is_set():
                return


def _add_citation_and_token_usage_rows(
    part: IndexableEntryOrPart, conversation: Conversation, targets: CitationTargetLookup
) -> None:
    """Add the rows for citations and usage to a part. If this fails, store the error in its entry."""
    try:
        part.citations = _make_citation_rows(conversation, targets)
        part.usage = _make_token_usage_rows(conversation)
    except Exception as error:
        part.entry = part.entry._replace(error=part.entry.error or describe_indexing_error(error))


def _make_citation_rows(
    conversation: Conversation, targets: CitationTargetLookup
) -> list[tuple[object, ...]]:
    from kbtui.citations.tool_call_citations import extract_citations_from_tool_calls

    return [
        (
            cite.conversation, cite.turn, cite.call, cite.how, cite.kind, cite.target, cite.title,
            cite.tool, cite.timestamp.timestamp() if cite.timestamp else None, cite.chunk, cite.score,
            *((cite.given.extent, cite.given.make_hash_and_text_for_catalog()) if cite.given else (None, None)),
        )
        for cite in extract_citations_from_tool_calls(conversation, targets)
    ]  # fmt: skip


TOKENS_MAX = 1 << 53
"""The largest token count that the catalog can store. Larger counts are stored as this value."""


def _make_token_usage_rows(conversation: Conversation) -> list[tuple[object, ...]]:
    info = conversation.info
    project = info.working_directory and replace_surrogates(info.working_directory)
    rows: list[tuple[object, ...]] = []
    for turn in conversation.turns:
        time = turn.started_at.timestamp() if turn.started_at else None
        for model, used in turn.usage.items():
            counts = (
                used.input_tokens,
                used.output_tokens,
                used.cache_read_tokens,
                used.cache_write_tokens,
                used.total_tokens,
            )
            stored = [None if count is None else max(0, min(count, TOKENS_MAX)) for count in counts]
            name = model and replace_surrogates(model)
            rows.append((info.id, turn.number, name, project, time, *stored, int(used.is_estimate)))
    return rows
