"""Reads an index for clients, without importing LanceDB or a model."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from kbtui.errors import IndexUnavailable
from kbtui.index import index_generations
from kbtui.index.catalog_database import CatalogDatabase
from kbtui.references import map_references_to_short_forms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _make_locked_catalog_method(
    method: Callable[Concatenate[CatalogDatabase, _Parameters], _Result],
) -> Callable[Concatenate[IndexReader, _Parameters], _Result]:
    """Return a method of `IndexReader` that locks the catalog and calls the catalog's `method`."""

    @wraps(method)
    def call_with_locked_catalog(
        reader: IndexReader, /, *args: _Parameters.args, **options: _Parameters.kwargs
    ) -> _Result:
        with reader._lock_catalog_and_convert_errors():
            return method(reader._catalog, *args, **options)

    return call_with_locked_catalog


class IndexReader:
    """Reads the index generation that was in use when the reader was created.

    Any thread may call its methods. The constructor raises `IndexUnavailable` if there is no
    readable generation. If `is_generation_replaced` returns true, the caller must create a new
    reader.
    """

    def __init__(self, cache_dir: Path) -> None:
        folder = index_generations.find_current_index_generation(cache_dir)
        if folder is None:
            raise IndexUnavailable(
                "there is no index yet", where=str(cache_dir), hint="run `kbtui index`"
            )
        if not index_generations.is_readable_index_generation(folder):
            raise IndexUnavailable(
                "the index was made by another version of kbtui",
                where=str(folder),
                hint="run `kbtui index` to make one for this version",
            )
        self._cache_dir = cache_dir
        self.folder = folder
        self._lock = threading.Lock()
        self._catalog = CatalogDatabase(folder / "catalog.sqlite")
        self.language = self._catalog.get_meta_value("language") or ""
        self._indexes: dict[Path, Any] = {}
        self._commits: dict[Path, tuple[int, int] | None] = {}

    @property
    def index_generation_name(self) -> str:
        """The name of the generation. The number of a chunk is valid only within one generation."""
        return self.folder.name

    def is_generation_replaced(self) -> bool:
        """Return whether another generation is in use now."""
        return index_generations.find_current_index_generation(self._cache_dir) != self.folder

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._catalog.close()
            self._indexes.clear()

    def __del__(self) -> None:
        # Threads may share a reader of a replaced generation, so the last one that drops it closes
        # it. Without this, the files would stay open, and would occupy the disk, until the next
        # garbage collection, because SQLite's connection is part of a reference cycle.
        if hasattr(self, "_catalog"):
            self._catalog.close()

    @contextmanager
    def _lock_catalog_and_convert_errors(self) -> Iterator[None]:
        """Lock the catalog during a `with` block, and turn read errors into `IndexUnavailable`."""
        with self._lock:
            try:
                yield
            except (sqlite3.DatabaseError, ValueError) as error:
                raise IndexUnavailable(
                    f"the index is damaged: {error}",
                    where=str(self.folder),
                    hint="run `kbtui index` to rebuild it",
                ) from error

    def open_keyword_index(self, *, hidden: bool = False) -> Any:
        """Return the tantivy index of the visible entries, or that of the hidden subjects if `hidden` is true.

        The index is in the state of its last commit.
        """
        from kbtui.index.keyword_index_writer import open_tantivy_index

        folder = self.folder / ("hidden" if hidden else "lexical")
        return self._open_or_reload_keyword_index(
            folder, lambda: open_tantivy_index(folder, self.language)
        )

    def _open_or_reload_keyword_index(self, folder: Path, open_index: Callable[[], Any]) -> Any:
        with self._lock:
            index = self._indexes.get(folder)
            # Each commit replaces this file. If it is still the same file, there is nothing to reload.
            commit = _get_inode_and_time(folder / "meta.json")
            if index is None:
                index = self._indexes[folder] = open_index()
            elif commit is None or commit != self._commits.get(folder):
                index.reload()
            self._commits[folder] = commit
            return index

    def get_recorded_configuration_file_stats(self) -> list[list[object]]:
        """Return each configuration file's path, size and modification time at the last refresh."""
        with self._lock_catalog_and_convert_errors():
            value = self._catalog.get_meta_value("configuration")
            return json.loads(value) if value else []

    def map_references_to_short_forms(self, references: Iterable[str]) -> dict[str, str]:
        """Map references to their short forms. A reference without a short form is left out."""
        with self._lock_catalog_and_convert_errors():
            return map_references_to_short_forms(
                references, self._catalog.find_conversation_ids_with_prefixes
            )

    find_chunk_numbers_of_turns = _make_locked_catalog_method(
        CatalogDatabase.find_chunk_numbers_of_turns
    )
    map_requests_to_beginnings_of_final_answers = _make_locked_catalog_method(
        CatalogDatabase.map_requests_to_beginnings_of_final_answers
    )
    map_dialogue_chunks_to_turns = _make_locked_catalog_method(
        CatalogDatabase.map_dialogue_chunks_to_turns
    )
    get_chunks_by_number = _make_locked_catalog_method(CatalogDatabase.get_chunks_by_number)
    map_visible_chunks_to_chunk_and_entry_ids = _make_locked_catalog_method(
        CatalogDatabase.map_visible_chunks_to_chunk_and_entry_ids
    )
    list_entry_chunks = _make_locked_catalog_method(CatalogDatabase.list_entry_chunks)
    get_chunk_by_id = _make_locked_catalog_method(CatalogDatabase.get_chunk_by_id)
    get_entries_by_id = _make_locked_catalog_method(CatalogDatabase.get_entries_by_id)
    count_catalog_rows = _make_locked_catalog_method(CatalogDatabase.count_catalog_rows)
    count_embeddable_chunks = _make_locked_catalog_method(CatalogDatabase.count_embeddable_chunks)
    is_catalog_empty = _make_locked_catalog_method(CatalogDatabase.is_catalog_empty)
    find_citations_of_targets_or_chunk = _make_locked_catalog_method(
        CatalogDatabase.find_citations_of_targets_or_chunk
    )
    find_subject_citations_in_turns = _make_locked_catalog_method(
        CatalogDatabase.find_subject_citations_in_turns
    )
    list_one_citation_per_given_text = _make_locked_catalog_method(
        CatalogDatabase.list_one_citation_per_given_text
    )
    list_citations_of_targets = _make_locked_catalog_method(
        CatalogDatabase.list_citations_of_targets
    )


def _get_inode_and_time(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
