"""The keyword indexes, which rank chunks by tantivy's BM25. No other module writes them.

There are two indexes with the same schema: `lexical`, and `hidden` for hidden subjects. In a common
index, the scores of visible entries would reveal which words hidden subjects contain. Each commit
writes the watermark, a document with the catalog's sequence number. The watermark says how much of
the catalog the index contains.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import tantivy

from kbtui.errors import IndexUnavailable
from kbtui.index.catalog_database import CONTEXT_CHUNKS
from kbtui.index.keyword_tokenizer import (
    MAX_COMPOUND_LENGTH,
    MAX_PATH_ENDS,
    extract_code_words,
    normalize_unicode,
)
from kbtui.workspace.paths import convert_path_to_utf8, make_private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kbtui.index.catalog_database import WrittenEntryChunks
    from kbtui.index.entries_and_chunks import CatalogEntry, Chunk

KEYWORD_INDEX_VERSION = 10
"""Increase this number when the schema or the analyzers change. The index is then rebuilt."""

CONTEXT_CHARACTERS = 600
"""The number of characters before a chunk, and after it, that are indexed as its context."""

MAX_ARGUMENT_TERMS = 60
"""The maximum number of terms that are indexed for an argument of a tool call. Further terms cannot be found."""

_WATERMARK, _NO_ENTRY = "\0watermark", "\0nothing"
_STEMMED, _CODE = "kb_stemmed", "kb_code"


def make_keyword_index_schema(language: str = "") -> Any:
    """Return the schema of a chunk's document. Texts are indexed here, but stored in the catalog.

    `language` is the setting `language`, which can name several languages. The words in `body`,
    `context` and `title` are stemmed for the first language. Each further language has a field of its
    own (see `list_further_language_fields`).
    """
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("chunk", indexed=True, fast=True)
    # `owner` is a number for each entry, to group chunks by entry without reading the catalog.
    builder.add_unsigned_field("owner", fast=True)
    builder.add_unsigned_field("tie", fast=True)
    builder.add_text_field("entry", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("body", tokenizer_name=_STEMMED, index_option="position")
    builder.add_text_field("context", tokenizer_name=_STEMMED, index_option="freq")
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
    """Map an index field to its language, for each language after the first in `setting`."""
    return {f"body_{name}": name for name in parse_language_setting(setting)[1:]}


def make_text_analyzer(language: str) -> Any:
    """Return an analyzer that lower-cases words, removes accents, and stems for a language.

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

    If `create` is true, create a missing one. Raises `IndexUnavailable`.
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


class KeywordIndexWriter:
    """Writes one of the two keyword indexes. Only one thread may use it.

    `has_changes` says whether there is something to commit. Do not commit if there is nothing: each
    commit replaces the watermark document, and replaced documents still count in BM25's statistics, so
    the scores change. If both indexes were always committed together, a change of hidden entries would
    change the scores of visible entries.
    """

    def __init__(self, folder: Path, language: str) -> None:
        self._folder = folder
        self._index = open_tantivy_index(folder, language, create=True)
        self._schema = self._index.schema
        self._others = list(list_further_language_fields(language))
        self._searcher = self._index.searcher()
        self._added: set[str] = set()
        self.has_changes = False
        try:
            self._writer = self._index.writer(heap_size=64_000_000, num_threads=1)
        except ValueError as error:
            raise IndexUnavailable(
                f"another process is writing the keyword index: {error}", where=str(folder)
            ) from error
        self._write_dummy_first_operation()

    def _write_dummy_first_operation(self) -> None:
        # tantivy gives the first operation after opening the number of the last commit. A merge
        # therefore assumes that this operation is already applied. If it were a real deletion, the
        # deleted documents would reappear.
        self._writer.delete_documents_by_term("entry", _NO_ENTRY)

    def read_catalog_watermark(self) -> int:
        """Return the catalog's sequence number at the last commit, or 0 if the index is new."""
        self._index.reload()
        self._searcher = searcher = self._index.searcher()
        query = tantivy.Query.term_query(self._schema, "entry", _WATERMARK)
        hits = searcher.search(query, limit=1, count=False).hits
        return int(searcher.doc(hits[0][1])["watermark"][0]) if hits else 0

    def replace_entry_documents(self, entry: CatalogEntry, chunks: list[Chunk]) -> None:
        """Replace all documents of an entry."""
        self.remove_entry(entry.id)
        if chunks:
            self._add_documents(entry, chunks, range(len(chunks)))

    def update_chunk_documents(
        self,
        entry: CatalogEntry,
        before: list[Chunk],
        written: WrittenEntryChunks,
    ) -> None:
        """Write the documents of an entry's changed chunks, and delete the documents of its removed chunks.

        Call this only if the entry is in the index and nothing except its chunks has changed. `before`
        are the chunks directly before the written chunks; their text is indexed as context.
        """
        chunks = written.chunks
        # A chunk without a time of its own has the entry's time, which has changed.
        changed = {at for at, chunk in enumerate(chunks) if not chunk.timestamp}
        changed.update(written.changed)
        numbers = [*written.gone, *(chunks[at].number for at in changed)]
        if not numbers:
            return
        self._writer.delete_documents_by_query(
            tantivy.Query.term_set_query(self._schema, "chunk", numbers)
        )
        positions = [len(before) + at for at in sorted(changed)]
        self._add_documents(entry, [*before, *chunks], positions)

    def remove_entry(self, entry_id: str) -> None:
        """Remove an entry's documents from the index. Each chunk of an entry is a document."""
        is_indexed = entry_id in self._added
        if not is_indexed and self._searcher.doc_freq("entry", entry_id):
            # The frequency includes deleted documents, so search for one that still exists.
            query = tantivy.Query.term_query(self._schema, "entry", entry_id, "basic")
            is_indexed = bool(self._searcher.search(query, limit=1, count=False).hits)
        if is_indexed:
            self._writer.delete_documents_by_term("entry", entry_id)
            self.has_changes = True

    def commit_with_watermark(self, watermark: int) -> None:
        """Commit, with the catalog's sequence number as the watermark."""
        self._writer.delete_documents_by_term("entry", _WATERMARK)
        document = tantivy.Document()
        document.add_text("entry", _WATERMARK)
        document.add_unsigned("watermark", watermark)
        self._writer.add_document(document)
        self._writer.commit()
        self._index.reload()
        self._searcher = self._index.searcher()
        self._added.clear()
        self.has_changes = False

    def count_stale_documents(self) -> int:
        """Count the replaced documents that are still part of BM25's statistics."""
        try:
            segments = json.loads((self._folder / "meta.json").read_bytes())["segments"]
        except (OSError, ValueError, KeyError):
            return 0  # `index_generations.find_index_damage` reports damage
        return sum((held.get("deletes") or {}).get("num_deleted_docs", 0) for held in segments)

    def count_committed_documents(self) -> int:
        """Return how many documents the index contained at the last commit."""
        return int(self._searcher.num_docs)

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
        self._writer.delete_documents_by_query(tantivy.Query.all_query())
        for entry, chunks in entries:
            if give_up():
                self._writer.rollback()
                self._write_dummy_first_operation()
                self.has_changes = False
                return False
            self._add_documents(entry, chunks, range(len(chunks)))
        self.commit_with_watermark(watermark)
        return True

    def _add_documents(
        self, entry: CatalogEntry, chunks: list[Chunk], positions: Iterable[int]
    ) -> None:
        self._added.add(entry.id)
        self.has_changes = True
        owner = crc32(entry.id.encode("utf-8", "surrogatepass"))
        title = normalize_unicode(entry.title)
        title_code = list(extract_code_words(title))
        same = [
            ("entry", entry.id),
            ("title", title),
            *((field, title) for field in self._others),
            ("kind", entry.kind),
            ("type", normalize_unicode(entry.type) or entry.kind),
            ("archived", "yes" if entry.archived else "no"),
            ("topic", normalize_unicode(entry.topic or "")),
            ("agent", normalize_unicode(entry.agent or "")),
        ]
        same = [(field, text) for field, text in same if text]
        for position in positions:
            chunk = chunks[position]
            body = normalize_unicode(chunk.text)
            context = normalize_unicode(_join_text_with_neighbours(chunks, position))
            code = " ".join((*extract_code_words(body), *title_code))
            document = tantivy.Document()
            for field, text in same:
                document.add_text(field, text)
            for field in ("body", *self._others):
                document.add_text(field, body)
            document.add_text("context", context)
            if code:
                document.add_text("code", code)
            if chunk.role:
                document.add_text("role", chunk.role)
            if chunk.tool:
                document.add_text("tool", normalize_unicode(chunk.tool))
            for key, value in (chunk.args or {}).items():
                for term in make_tool_argument_terms(
                    normalize_unicode(key), normalize_unicode(value)
                ):
                    document.add_text("arg", term)
            document.add_unsigned("chunk", chunk.number)
            document.add_unsigned("owner", owner)
            document.add_unsigned("tie", int(chunk.id, 16))
            document.add_integer("time", int(chunk.timestamp or entry.changed))
            self._writer.add_document(document)

    def close(self) -> None:
        """Close the index, and discard uncommitted changes."""
        if self.has_changes:
            # Without a rollback, the writer's threads would first index all queued documents.
            self._writer.rollback()
        del self._writer


@lru_cache(maxsize=64)  # a call and its result have the same arguments
def make_tool_argument_terms(key: str, value: str) -> list[str]:
    """Return the terms by which the filter `arg:` finds an argument.

    These are the key alone, and `key=` followed by the whole value or by one of its words. If a word is
    a path, there is also a term for each of its endings and for each of its parent directories.
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


def _join_text_with_neighbours(chunks: list[Chunk], position: int) -> str:
    """Return the end of the text before a chunk, the chunk's text and the start of the text after it.

    The result is for the field `context`. Without the chunk's own text, a chunk without neighbours
    would have no text in this field. It would match fewer words than other chunks and rank lower
    (docs/search-quality.md).
    """
    start, end = max(0, position - CONTEXT_CHUNKS), position + CONTEXT_CHUNKS + 1
    before = "".join(f"{one.text}\n" for one in chunks[start:position] if one.embed)
    after = "".join(f"\n{one.text}" for one in chunks[position + 1 : end] if one.embed)
    own = chunks[position].text
    return f"{before[-CONTEXT_CHARACTERS:]}\n{own}\n{after[:CONTEXT_CHARACTERS]}"
