"""Writes the keyword indexes, which rank chunks by tantivy's BM25.

There are two indexes with the same schema: `lexical` for visible entries, and `hidden` for hidden
subjects. With one index for both, the scores of visible entries would reveal which words hidden
subjects contain.

Each commit, except that of a part (see `index_part_process`), writes the watermark, a document with two
transaction numbers of the catalog. They say how much of the catalog the index contains.
"""

from __future__ import annotations

import errno
import json
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import tantivy

from kbtui.errors import IndexUnavailable
from kbtui.file_reading_and_writing import write_file_atomically
from kbtui.index.entry_and_chunk_data_types import (
    compute_passage_place_number,
    compute_place_number_of_first_passage_in_entry,
    get_passage_block_of_place,
)
from kbtui.index.identifier_and_cjk_tokenizer import (
    MAX_COMPOUND_LENGTH,
    MAX_PATH_ENDS,
    extract_code_words,
    may_have_code_words,
    normalize_unicode,
)
from kbtui.workspace.paths import convert_path_to_utf8, make_private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from kbtui.index.catalog_database import EntryChunksWriteResult
    from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk

KEYWORD_INDEX_VERSION = 12
"""The version of the schema and the analyzers. Increase it when they change, so that the index is rebuilt."""

HEAP_BYTES = 64_000_000
"""When the documents of a segment use this many bytes of memory, tantivy writes the segment to disk."""

MAX_ARGUMENT_TERMS = 60
"""At most this many terms are indexed for an argument of a tool call. Further terms cannot be found."""

_WATERMARK, _NO_ENTRY = "\0watermark", "\0nothing"
_STEMMED, _CODE = "kb_stemmed", "kb_code"


def make_keyword_index_schema(language: str = "") -> Any:
    """Return the schema of a chunk's document. Texts are indexed here, but stored in the catalog.

    `language` is the setting `language`, which can name several languages. The words in `body` and
    `title` are stemmed for the first language. Each further language has a separate field (see
    `list_further_language_fields`).
    """
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("chunk", indexed=True, fast=True)
    # A chunk's place identifies its entry, so chunks can be grouped by entry without the catalog.
    builder.add_unsigned_field("place", fast=True)
    # These two fields serve to score the text around a passage; see `search/nearby_passage_scoring`.
    builder.add_unsigned_field("block", indexed=True)
    builder.add_unsigned_field("prose_length", fast=True)
    builder.add_unsigned_field("tie", fast=True)
    builder.add_text_field("entry", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("body", tokenizer_name=_STEMMED, index_option="position")
    builder.add_text_field("title", tokenizer_name=_STEMMED, index_option="position")
    builder.add_text_field("code", tokenizer_name=_CODE, index_option="freq")
    for name in list_further_language_fields(language):
        builder.add_text_field(name, tokenizer_name=name, index_option="freq")
    for name in ("kind", "topic", "type", "agent", "role", "tool", "archived", "arg"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("time", indexed=True, fast=True)
    builder.add_unsigned_field("watermark", stored=True)
    return builder.build()


def parse_language_setting(setting: str) -> list[str]:
    """Return the languages in the setting `language`, such as "english, german"."""
    return list(dict.fromkeys(setting.lower().replace(",", " ").split()))


def list_further_language_fields(setting: str) -> dict[str, str]:
    """Map index fields to their languages, one field for each language after the first in `setting`."""
    return {f"body_{name}": name for name in parse_language_setting(setting)[1:]}


def make_text_analyzer(language: str) -> Any:
    """Return an analyzer that lower-cases words, removes accents, and stems the words of a language.

    If `language` is "", the analyzer does not stem. Raises `IndexUnavailable` for an unknown language.
    """
    builder = (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(80))
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
    )
    if language:
        try:
            builder = builder.filter(tantivy.Filter.stemmer(language))
        except ValueError as error:
            raise IndexUnavailable(
                f"unknown language {language!r}",
                where="config.toml: language",
                hint='use English names of languages ("english" or "english, german"), or "" for none',
            ) from error
    return builder.build()


def open_tantivy_index(folder: Path, language: str, *, create: bool = False) -> Any:
    """Open a tantivy index.

    If `create` is true, create the index if it is missing. Raises `IndexUnavailable`.
    """
    if create:
        make_private_directory(folder)
    try:
        path = convert_path_to_utf8(folder)
        if tantivy.Index.exists(path):
            index = tantivy.Index.open(path)
        elif create:
            index = tantivy.Index(make_keyword_index_schema(language), path=path)
        else:
            raise IndexUnavailable("there is no index yet", where=str(folder))
    except (ValueError, OSError) as error:
        raise IndexUnavailable(
            f"the keyword index cannot be opened: {error}",
            where=str(folder),
            hint="run `kbtui index --rebuild`",
        ) from error
    # tantivy does not store analyzers in the index.
    first = parse_language_setting(language)[:1]
    index.register_tokenizer(_STEMMED, make_text_analyzer(first[0] if first else ""))
    for field, name in list_further_language_fields(language).items():
        index.register_tokenizer(field, make_text_analyzer(name))
    spaced = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    index.register_tokenizer(
        _CODE, spaced.filter(tantivy.Filter.remove_long(MAX_COMPOUND_LENGTH + 1)).build()
    )
    return index


class _TantivyWriter:
    """Writes one tantivy index. `has_uncommitted_changes` says whether there is something to commit."""

    def __init__(self, folder: Path, language: str) -> None:
        self._folder, self._language = folder, language
        self.has_uncommitted_changes = False
        self._added: set[str] = set()
        self._writer: Any = None
        """None after the index was closed, or if it could not be opened again."""
        self._open_index_and_writer(create=True)

    def _open_index_and_writer(self, *, create: bool) -> None:
        self.index = open_tantivy_index(self._folder, self._language, create=create)
        self.schema = self.index.schema
        self.searcher = self.index.searcher()
        try:
            self._writer = self.index.writer(heap_size=HEAP_BYTES, num_threads=1)
        except ValueError as error:
            raise IndexUnavailable(
                f"another process is writing the keyword index: {error}", where=str(self._folder)
            ) from error
        self._write_dummy_first_operation()

    def _write_dummy_first_operation(self) -> None:
        # tantivy gives the first operation after opening the number of the last commit. A merge
        # therefore assumes that this operation is already applied. If it were a real deletion, the
        # deleted documents would reappear.
        self._writer.delete_documents_by_term("entry", _NO_ENTRY)

    def reload(self) -> Any:
        """Open the last commit, and return its searcher."""
        self.index.reload()
        self.searcher = self.index.searcher()
        return self.searcher

    def get_document_adder(self, entry_id: str) -> Callable[[Any], object]:
        """Note that an entry gets documents, and return the function that adds one. The caller adds at least one."""
        self._added.add(entry_id)
        self.has_uncommitted_changes = True
        add_document: Callable[[Any], object] = self._writer.add_document
        return add_document

    def delete_chunk_documents(self, numbers: list[int]) -> None:
        """Delete the documents of the chunks with these numbers."""
        if numbers:
            query = tantivy.Query.term_set_query(self.schema, "chunk", numbers)
            self._writer.delete_documents_by_query(query)
            self.has_uncommitted_changes = True

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self._writer.delete_documents_by_query(tantivy.Query.all_query())
        self.has_uncommitted_changes = True

    def has_entry(self, entry_id: str) -> bool:
        """Return whether the index contains documents of an entry, committed or not."""
        is_indexed = entry_id in self._added
        if not is_indexed and self.searcher.doc_freq("entry", entry_id):
            # The frequency includes deleted documents, so search for one that still exists.
            query = tantivy.Query.term_query(self.schema, "entry", entry_id, "basic")
            is_indexed = bool(self.searcher.search(query, limit=1, count=False).hits)
        return is_indexed

    def remove_entry(self, entry_id: str) -> None:
        """Delete all documents of an entry."""
        self._writer.delete_documents_by_term("entry", entry_id)
        self.has_uncommitted_changes = True

    def write_watermark(self, complete: int, last: int) -> None:
        """Replace the watermark document; `read_catalog_watermark` explains the two numbers."""
        self._writer.delete_documents_by_term("entry", _WATERMARK)
        document = tantivy.Document()
        document.add_text("entry", _WATERMARK)
        document.add_unsigned("watermark", complete)
        document.add_unsigned("watermark", last)
        self._writer.add_document(document)

    def commit(self) -> None:
        """Commit the changes. `searcher` shows them only after `reload`."""
        self._writer.commit()
        self._added.clear()
        self.has_uncommitted_changes = False

    def rollback(self) -> None:
        """Discard uncommitted changes."""
        self._writer.rollback()
        self._write_dummy_first_operation()
        self._added.clear()
        self.has_uncommitted_changes = False

    def count_replaced_documents(self) -> int:
        """Count the replaced documents that are still part of BM25's statistics."""
        try:
            segments = json.loads((self._folder / "meta.json").read_bytes())["segments"]
        except (OSError, ValueError, KeyError):
            return 0  # `index_generations.find_catalog_or_keyword_index_damage` reports damage
        return sum((held.get("deletes") or {}).get("num_deleted_docs", 0) for held in segments)

    def add_segments_of_parts(self, folders: Iterable[Path]) -> None:
        """Move the segments of other indexes with the same schema into this one.

        Neither this index nor the others may have uncommitted changes. tantivy-py has no function for
        this. A segment is a set of files that never change, and `meta.json` lists the segments.
        """
        self.close_after_merges()  # an open writer would overwrite the files that are written here
        meta_file, names_file = self._folder / "meta.json", self._folder / ".managed.json"
        meta, names = json.loads(meta_file.read_bytes()), json.loads(names_file.read_bytes())
        moved: list[Path] = []
        for folder in folders:
            part = json.loads((folder / "meta.json").read_bytes())
            for segment in part["segments"]:
                files = list(folder.glob(f"{segment['segment_id'].replace('-', '')}.*"))
                if not files:
                    raise FileNotFoundError(errno.ENOENT, "a segment has no files", str(folder))
                moved += files
            meta["segments"] += part["segments"]
        # tantivy deletes a file that is no longer needed only if this list contains its name.
        names += [path.name for path in moved]
        write_file_atomically(names_file, json.dumps(names).encode())
        for path in moved:
            path.rename(self._folder / path.name)
        write_file_atomically(meta_file, json.dumps(meta).encode())
        # The index object that is open has the former list in memory, and would write it again.
        self._open_index_and_writer(create=False)
        self.has_uncommitted_changes = True  # the next commit must write a new watermark

    def close_after_merges(self) -> None:
        """Wait until tantivy's threads have stopped changing files, and close the index.

        There must be no uncommitted changes. `close` does not wait, so a merge can still write
        `meta.json` and delete files after it.
        """
        writer, self._writer = self._writer, None
        writer.wait_merging_threads()

    def close(self) -> None:
        """Close the index, and discard uncommitted changes."""
        if self._writer is not None and self.has_uncommitted_changes:
            # Without a rollback, the writer's threads would first index all queued documents.
            self._writer.rollback()
        self._writer = None


class KeywordIndexWriter:
    """Writes one of the two keyword indexes. Only one thread may use it.

    Commit only if `has_uncommitted_changes` is true. Each commit replaces the watermark document, and the
    replaced document still counts in BM25's statistics, so the commit changes the scores. If both indexes
    were always committed together, a change to hidden entries would change the scores of visible entries.
    """

    def __init__(self, folder: Path, language: str) -> None:
        self._others = list(list_further_language_fields(language))
        self._writer = _TantivyWriter(folder, language)

    @property
    def has_uncommitted_changes(self) -> bool:
        """Whether there is something to commit."""
        return self._writer.has_uncommitted_changes

    def read_catalog_watermark(self) -> tuple[int, int]:
        """Return the two transaction numbers that the last commit stored; both are 0 if the index is new.

        The index contains the documents of all transactions up to the first number, and of none after
        the second.
        """
        searcher = self._writer.reload()
        query = tantivy.Query.term_query(self._writer.schema, "entry", _WATERMARK)
        hits = searcher.search(query, limit=1, count=False).hits
        numbers = searcher.doc(hits[0][1])["watermark"] if hits else [0]
        return int(numbers[0]), int(numbers[-1])

    def replace_entry_documents(
        self, entry: CatalogEntry, chunks: Sequence[Chunk], numbers: Sequence[int]
    ) -> None:
        """Replace all documents of an entry. `numbers` are the numbers of the chunks."""
        self.remove_entry(entry.id)
        self._add_chunk_documents(entry, chunks, numbers)

    def update_chunk_documents(
        self, entry: CatalogEntry, chunks: Sequence[Chunk], written: EntryChunksWriteResult
    ) -> None:
        """Write the documents of an entry's changed chunks, and delete those of its removed chunks.

        Call this only if the entry is in the index and nothing except its chunks has changed.
        """
        # A chunk without a time of its own has the entry's time, which has changed.
        changed = {at for at, chunk in enumerate(chunks) if not chunk.timestamp}
        changed.update(written.changed)
        numbers = [written.numbers[at] for at in sorted(changed)]
        self._writer.delete_chunk_documents([*written.gone, *numbers])
        self._add_chunk_documents(entry, [chunks[at] for at in sorted(changed)], numbers)

    def remove_all_entries(self) -> None:
        """Remove all documents from the index."""
        self._writer.delete_all_documents()

    def remove_entry(self, entry_id: str) -> None:
        """Remove an entry's documents from the index."""
        if self._writer.has_entry(entry_id):
            self._writer.remove_entry(entry_id)

    def commit_with_watermark(self, last: int, *, complete: int | None = None) -> None:
        """Commit, and store `last`, the number of the catalog's last transaction.

        If documents of earlier transactions are missing, `complete` is the number of the last
        transaction before the first of these.
        """
        self._writer.write_watermark(last if complete is None else complete, last)
        self._writer.commit()
        self._writer.reload()

    def commit_index_part(self) -> None:
        """Commit without a watermark, and close, because the documents are going to be moved to another index."""
        self._writer.commit()
        self._writer.close_after_merges()

    def add_segments_of_parts(self, folders: Iterable[Path]) -> None:
        """Move all documents of other keyword indexes to this one.

        Neither this index nor the others may have uncommitted changes. Afterwards, the watermark must be
        committed.
        """
        self._writer.add_segments_of_parts(folders)

    def count_replaced_documents(self) -> int:
        """Count the replaced documents that are still part of BM25's statistics."""
        return self._writer.count_replaced_documents()

    def count_committed_documents(self) -> int:
        """Return the number of documents that the index contained at the last commit."""
        return int(self._writer.searcher.num_docs)

    def rewrite_all_documents(
        self,
        entries: Iterable[tuple[CatalogEntry, list[Chunk]]],
        watermark: int,
        give_up: Callable[[], bool],
    ) -> bool:
        """Write all entries again, so that no replaced document remains.

        Merging segments would do the same, but tantivy-py has no function for it. If `give_up` returns
        true, this method returns False and leaves the index unchanged. Otherwise, it returns True.
        """
        self._writer.delete_all_documents()
        for entry, chunks in entries:
            if give_up():
                self._writer.rollback()
                return False
            self._add_chunk_documents(entry, chunks, [chunk.number for chunk in chunks])
        self.commit_with_watermark(watermark)
        return True

    def _add_chunk_documents(
        self, entry: CatalogEntry, chunks: Sequence[Chunk], numbers: Sequence[int]
    ) -> None:
        if not chunks:
            return
        first_place = compute_place_number_of_first_passage_in_entry(entry.id)
        title = normalize_unicode(entry.title)
        title_code = list(extract_code_words(title))
        same = [
            ("title", title),
            *((field, title) for field in self._others),
            ("entry", entry.id),
            ("kind", entry.kind),
            ("topic", normalize_unicode(entry.topic or "")),
            ("type", normalize_unicode(entry.type) or entry.kind),
            ("agent", normalize_unicode(entry.agent or "")),
            ("archived", "yes" if entry.archived else "no"),
        ]
        common = tantivy.Document()
        for field, text in same:
            if text:
                common.add_text(field, text)
        body_fields = ("body", *self._others)
        add_document = self._writer.get_document_adder(entry.id)
        for chunk, number in zip(chunks, numbers, strict=True):
            body = normalize_unicode(chunk.text)
            document = copy(common)
            for field in body_fields:
                document.add_text(field, body)
            code = extract_code_words(body) if may_have_code_words(body) else ()
            if words := [*code, *title_code]:
                document.add_text("code", " ".join(words))
            if chunk.role:
                document.add_text("role", chunk.role)
            if chunk.tool:
                document.add_text("tool", normalize_unicode(chunk.tool))
            for key, value in (chunk.args or {}).items():
                for term in make_tool_argument_terms(
                    normalize_unicode(key), normalize_unicode(value)
                ):
                    document.add_text("arg", term)
            place = compute_passage_place_number(first_place, chunk.ordinal)
            document.add_unsigned("chunk", number)
            document.add_unsigned("place", place)
            document.add_unsigned("block", get_passage_block_of_place(place))
            # The text of tool calls and their results does not count for the passages around them.
            document.add_unsigned("prose_length", len(chunk.text) if chunk.embed else 0)
            document.add_unsigned("tie", int(chunk.id, 16))
            document.add_integer("time", int(chunk.timestamp or entry.changed))
            add_document(document)

    def close(self) -> None:
        """Close the index, and discard uncommitted changes."""
        self._writer.close()


@lru_cache(maxsize=64)  # a call and its result have the same arguments
def make_tool_argument_terms(key: str, value: str) -> list[str]:
    """Return the terms by which the filter `arg:` finds an argument.

    These are the key alone, and `key=` followed by the whole value or by one of its words. If a word is
    a path, there is also a term for each suffix of the path and for each parent directory.
    """
    key, value = key.lower(), " ".join(value.lower().split())
    words = value.split(" ")
    found = [value, *words]
    for word in words:
        steps = [at for at, sign in enumerate(word) if sign == "/" and 0 < at < len(word) - 1]
        found += [word[at + 1 :] for at in steps[-MAX_PATH_ENDS:]] + [
            word[:at] for at in steps[:MAX_PATH_ENDS]
        ]
    return [key, *dict.fromkeys(f"{key}={term}" for term in found[:MAX_ARGUMENT_TERMS] if term)]
