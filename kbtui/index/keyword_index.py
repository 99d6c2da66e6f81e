"""The lexical index: tantivy, BM25 over fields. The only module that writes tantivy.

Two indexes of one schema lie side by side: `lexical` for what everybody may
see, `hidden` for hidden subjects, because document statistics leak through
scores. Each commit carries the catalog's sequence number as a
document of its own, so that a reader of the index knows how far it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

import tantivy

from kbtui.errors import IndexUnavailable
from kbtui.index.models import make_tie_breaker
from kbtui.index.tokenizer import (
    MAX_COMPOUND_LENGTH,
    MAX_PATH_ENDS,
    extract_code_words,
    normalize_text,
)
from kbtui.workspace.paths import as_utf8, make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kbtui.index.catalog import WriteResult
    from kbtui.index.models import Chunk, Entry

KEYWORD_INDEX_VERSION = 9
"""Part of the generation's fingerprint: change it with the schema or the analyzers."""

CONTEXT_CHARACTERS = 600
"""How much of its neighbours, on each side, is indexed with a chunk."""

MAX_ARGUMENT_TERMS = 60
"""So many ways an argument can be asked for, at most."""

_WATERMARK, _NO_ENTRY = "\0watermark", "\0nothing"
_STEMMED, _CODE = "kb_stemmed", "kb_code"


def make_schema(language: str = "") -> Any:
    """The fields of a chunk's document; texts are in the catalog, not stored here.

    Prose is stemmed for the first language of the setting; for each further one
    there is a field of its own (`other_fields`).
    """
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("chunk", indexed=True, fast=True)
    # Which chunks are of one entry, without reading the catalog for each.
    builder.add_unsigned_field("owner", fast=True)
    builder.add_unsigned_field("tie", fast=True)
    builder.add_text_field("entry", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("body", tokenizer_name=_STEMMED, index_option="position")
    builder.add_text_field("context", tokenizer_name=_STEMMED, index_option="freq")
    builder.add_text_field("title", tokenizer_name=_STEMMED, index_option="position")
    builder.add_text_field("code", tokenizer_name=_CODE, index_option="freq")
    for name in get_language_fields(language):
        builder.add_text_field(name, tokenizer_name=name, index_option="freq")
    for name in ("kind", "topic", "type", "role", "tool", "archived", "arg"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("time", indexed=True, fast=True)
    builder.add_unsigned_field("watermark", stored=True)
    return builder.build()


def parse_languages(setting: str) -> list[str]:
    """The languages of the `language` setting, which may name several: "english, german"."""
    return list(dict.fromkeys(setting.lower().replace(",", " ").split()))


def get_language_fields(setting: str) -> dict[str, str]:
    """The fields for all languages but the first, with their languages."""
    return {f"body_{name}": name for name in parse_languages(setting)[1:]}


def make_analyzer(language: str) -> Any:
    """The analyzer of prose: folded, lower-case, stemmed for one language ("" for none)."""
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
                f"words cannot be stemmed for {language!r}",
                where="config.toml: language",
                hint='write languages in English ("english", "english, german") or "" for none',
            ) from error
    return builder.build()


def open_index(folder: Path, language: str, *, create: bool = False) -> Any:
    """Open a tantivy index with its analyzers, which are not stored in it."""
    if create:
        make_private(folder)
    try:
        place = as_utf8(folder)
        index = tantivy.Index.open(place) if tantivy.Index.exists(place) else None
        if index is None:
            if not create:
                raise IndexUnavailable("there is no index yet", where=str(folder))
            index = tantivy.Index(make_schema(language), path=place)
    except (ValueError, OSError) as error:
        raise IndexUnavailable(
            f"the keyword index cannot be opened: {error}",
            where=str(folder),
            hint="`kbtui index --rebuild` makes a new one",
        ) from error
    first = parse_languages(language)[:1]
    index.register_tokenizer(_STEMMED, make_analyzer(first[0] if first else ""))
    for field, name in get_language_fields(language).items():
        index.register_tokenizer(field, make_analyzer(name))
    spaced = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    index.register_tokenizer(
        _CODE, spaced.filter(tantivy.Filter.remove_long(MAX_COMPOUND_LENGTH + 1)).build()
    )
    return index


class KeywordIndexWriter:
    """Writes one of the two indexes. All calls are made from one thread.

    `changed` says whether there is something to commit. A commit without would
    still count: replaced documents stay in the statistics until segments are
    merged or `rewrite` removes them, and visible scores must not move because
    something hidden did.
    """

    def __init__(self, folder: Path, language: str, *, threads: int = 1) -> None:
        self._folder = folder
        self._index = open_index(folder, language, create=True)
        self._schema = self._index.schema
        self._others = list(get_language_fields(language))
        self._searcher = self._index.searcher()
        self._added: set[str] = set()
        self.has_changes = False
        try:
            self._writer = self._index.writer(heap_size=64_000_000 * threads, num_threads=threads)
        except ValueError as error:
            raise IndexUnavailable(
                f"another process writes the keyword index: {error}", where=str(folder)
            ) from error
        self._skip_first_operation()

    def _skip_first_operation(self) -> None:
        # tantivy gives the first operation the number of the last commit, and a merge that follows
        # takes it for done: were it a deletion, what it deleted would be back.
        self._writer.delete_documents_by_term("entry", _NO_ENTRY)

    def read_watermark(self) -> int:
        """The catalog's sequence number at the last commit; 0 for a new index."""
        self._index.reload()
        self._searcher = searcher = self._index.searcher()
        query = tantivy.Query.term_query(self._schema, "entry", _WATERMARK)
        hits = searcher.search(query, limit=1, count=False).hits
        return int(searcher.doc(hits[0][1])["watermark"][0]) if hits else 0

    def replace_entry(self, entry: Entry, chunks: Iterable[Chunk]) -> None:
        """Put an entry's chunks in place of what the index has of it."""
        self.remove_entry(entry.id)
        held = list(chunks)
        for document in _make_documents(entry, held, range(len(held)), self._others):
            self._writer.add_document(document)
        if held:
            self._added.add(entry.id)
            self.has_changes = True

    def update_chunks(
        self, entry: Entry, before: list[Chunk], chunks: list[Chunk], written: WriteResult
    ) -> None:
        """Put those of an entry's chunks anew that are others now, and take out those that are gone.

        `before` are chunks that stand before these. For an entry that is here, and of which
        nothing but its chunks has changed.
        """
        # A chunk without a time has the entry's, which has moved.
        changed = {
            *written.changed,
            *(at for at, chunk in enumerate(chunks) if not chunk.timestamp),
        }
        numbers = [*written.gone, *(chunks[at].number for at in changed)]
        if not numbers:
            return
        self._writer.delete_documents_by_query(
            tantivy.Query.term_set_query(self._schema, "chunk", numbers)
        )
        held = [*before, *chunks]
        positions = [len(before) + at for at in sorted(changed)]
        for document in _make_documents(entry, held, positions, self._others):
            self._writer.add_document(document)
        self._added.add(entry.id)
        self.has_changes = True

    def remove_entry(self, entry_id: str) -> None:
        """Take an entry out, if it is there."""
        if entry_id in self._added or self._has_entry(entry_id):
            self._writer.delete_documents_by_term("entry", entry_id)
            self.has_changes = True

    def _has_entry(self, entry_id: str) -> bool:
        if not self._searcher.doc_freq("entry", entry_id):
            return False
        query = tantivy.Query.term_query(self._schema, "entry", entry_id, "basic")
        return bool(self._searcher.search(query, limit=1, count=False).hits)

    def commit(self, watermark: int) -> None:
        """Make everything since the last commit visible, and remember the catalog's state."""
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
        """How many replaced documents BM25 still counts, as of the last commit."""
        try:
            segments = json.loads((self._folder / "meta.json").read_bytes())["segments"]
        except (OSError, ValueError, KeyError):
            return 0  # damage is for `checking` to report
        return sum((held.get("deletes") or {}).get("num_deleted_docs", 0) for held in segments)

    def count_documents(self) -> int:
        """How many documents there are, as of the last commit."""
        return int(self._searcher.num_docs)

    def rewrite_all(
        self,
        entries: Iterable[tuple[Entry, list[Chunk]]],
        watermark: int,
        give_up: Callable[[], bool],
    ) -> bool:
        """Write all entries again, so that nothing else counts; whether it came to the end.

        tantivy-py has no call that merges segments. Until the commit, and when it is given up,
        the index stays as it was.
        """
        self._writer.delete_documents_by_query(tantivy.Query.all_query())
        self.has_changes = True
        for entry, chunks in entries:
            if give_up():
                self._writer.rollback()
                self._skip_first_operation()
                self.has_changes = False
                return False
            for document in _make_documents(entry, chunks, range(len(chunks)), self._others):
                self._writer.add_document(document)
        self.commit(watermark)
        return True

    def close(self) -> None:
        """Let go of the index; what was not committed is forgotten."""
        if self.has_changes:
            # Without this, the writer's threads would first work off what waits for them.
            self._writer.rollback()
        del self._writer


def _make_documents(
    entry: Entry, chunks: list[Chunk], positions: Iterable[int], others: list[str]
) -> Iterator[Any]:
    """The documents of those of an entry's chunks that stand at these positions."""
    owner = crc32(entry.id.encode("utf-8", "surrogatepass"))
    title = normalize_text(entry.title)
    title_code = list(extract_code_words(title))
    same = [
        ("entry", entry.id),
        ("title", title),
        *((field, title) for field in others),
        ("kind", entry.kind),
        ("type", normalize_text(entry.type) or entry.kind),
        ("archived", "yes" if entry.archived else "no"),
    ]
    if entry.topic:
        same.append(("topic", normalize_text(entry.topic)))
    for position in positions:
        chunk = chunks[position]
        document = tantivy.Document()
        body = normalize_text(chunk.text)
        document.add_unsigned("chunk", chunk.number)
        document.add_unsigned("owner", owner)
        document.add_unsigned("tie", make_tie_breaker(chunk.id))
        for field, text in same:
            document.add_text(field, text)
        document.add_text("body", body)
        document.add_text("context", normalize_text(_make_context(chunks, position)))
        if code := " ".join((*extract_code_words(body), *title_code)):
            document.add_text("code", code)
        for field in others:
            document.add_text(field, body)
        if chunk.role:
            document.add_text("role", chunk.role)
        if chunk.tool:
            document.add_text("tool", normalize_text(chunk.tool))
        for key, value in (chunk.args or {}).items():
            for term in make_argument_terms(normalize_text(key), normalize_text(value)):
                document.add_text("arg", term)
        document.add_integer("time", int(chunk.timestamp if chunk.timestamp else entry.changed))
        yield document


def make_argument_terms(key: str, value: str) -> list[str]:
    """What `arg:key=…` may say of an argument: all of it, one of its words, an end of a path or
    a directory that it lies in."""
    key, value = key.lower(), " ".join(value.lower().split())
    words = value.split(" ")
    found = [value, *words]
    for word in words:
        steps = [at for at, sign in enumerate(word) if sign == "/" and 0 < at < len(word) - 1]
        found += [word[at + 1 :] for at in steps[-MAX_PATH_ENDS:]] + [
            word[:at] for at in steps[:MAX_PATH_ENDS]
        ]
    return [key, *dict.fromkeys(f"{key}={term}" for term in found[:MAX_ARGUMENT_TERMS] if term)]


def _make_context(chunks: list[Chunk], position: int) -> str:
    """A chunk within what stands around it: the end of what is before, the start of what follows.

    The chunk itself is in it, or one without neighbours would seem to say less
    than a long entry's (docs/search-quality.md).
    """
    before = after = ""
    for neighbour in reversed(chunks[max(0, position - 2) : position]):
        if neighbour.embed:
            before = f"{neighbour.text}\n{before}"
    for neighbour in chunks[position + 1 : position + 3]:
        if neighbour.embed:
            after += "\n" + neighbour.text
    own = chunks[position].text
    return f"{before[-CONTEXT_CHARACTERS:]}\n{own}\n{after[:CONTEXT_CHARACTERS]}"
