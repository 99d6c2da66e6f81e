"""Reads an index, for clients. Never writes, and never imports LanceDB or a model."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kbtui.errors import IndexUnavailable
from kbtui.index import generations
from kbtui.index.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kbtui.index.models import Chunk, Entry


class IndexReader:
    """Reads the generation in use, from any thread.

    Raises `IndexUnavailable` if there is none. When another generation replaces it
    (`is_replaced`), a new reader must be created.
    """

    def __init__(self, cache_dir: Path) -> None:
        folder = generations.find_current_generation(cache_dir)
        if folder is None:
            raise IndexUnavailable(
                "there is no index yet", where=str(cache_dir), hint="run `kbtui index`"
            )
        if not generations.is_readable_generation(folder):
            raise IndexUnavailable(
                "the index was made by another version of kbtui",
                where=str(folder),
                hint="run `kbtui index` to make one for this version",
            )
        self._cache_dir = cache_dir
        self.folder = folder
        self._lock = threading.Lock()
        self._catalog = Catalog(folder / "catalog.sqlite")
        self.language = self._catalog.get_meta("language") or ""
        self._lexical: dict[str, Any] = {}
        self._commits: dict[str, tuple[int, int] | None] = {}

    @property
    def generation(self) -> str:
        """The name of the generation. Chunk numbers are valid only within one generation."""
        return self.folder.name

    def is_replaced(self) -> bool:
        """Whether another generation is in use now."""
        return generations.find_current_generation(self._cache_dir) != self.folder

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._catalog.close()
            self._lexical.clear()

    @contextmanager
    def _lock_catalog(self) -> Iterator[None]:
        """Hold the lock, and turn read errors into `IndexUnavailable`."""
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
        """Return the tantivy index at its last commit; `hidden` selects that of hidden subjects."""
        from kbtui.index.keyword_index import open_index

        name = "hidden" if hidden else "lexical"
        with self._lock:
            index = self._lexical.get(name)
            # A commit replaces this file; as long as it is the same, there is nothing to reload.
            commit = _get_file_state(self.folder / name / "meta.json")
            if index is None:
                index = self._lexical[name] = open_index(self.folder / name, self.language)
            elif commit is None or commit != self._commits.get(name):
                index.reload()
            self._commits[name] = commit
            return index

    def get_configuration_state(self) -> list[list[object]]:
        """Return path, size and modification time of the configuration files of the last refresh."""
        with self._lock_catalog():
            value = self._catalog.get_meta("configuration")
            return json.loads(value) if value else []

    def get_chunks(self, numbers: list[int]) -> dict[int, tuple[Chunk, str]]:
        """Return chunks with their entries' ids, by number."""
        with self._lock_catalog():
            return self._catalog.get_chunks(numbers)

    def get_chunk_owners(self, numbers: list[int]) -> dict[int, tuple[str, str]]:
        """Return the ids of chunks and of their entries, by number."""
        with self._lock_catalog():
            return self._catalog.get_chunk_owners(numbers)

    def list_chunks(self, entry_id: str) -> list[Chunk]:
        """Return an entry's chunks in order."""
        with self._lock_catalog():
            return self._catalog.list_chunks(entry_id)

    def get_chunk(self, chunk_id: str) -> tuple[Chunk, str] | None:
        """Return a chunk by id, with its entry's id; None if it does not exist."""
        with self._lock_catalog():
            return self._catalog.get_chunk(chunk_id)

    def get_entries(self, ids: set[str]) -> dict[str, Entry]:
        """Return entries by id."""
        with self._lock_catalog():
            return self._catalog.get_entries(ids)

    def count_rows(self) -> dict[str, int]:
        """Count `subjects`, `conversations`, `chunks` and `citations`."""
        with self._lock_catalog():
            return self._catalog.count_rows()

    def is_empty(self, *, hidden: bool) -> bool:
        """Whether there is no entry; unless `hidden`, hidden entries do not count."""
        with self._lock_catalog():
            return self._catalog.is_empty(hidden=hidden)

    def find_citations(self, targets: list[str], chunk: str | None = None) -> list[tuple[Any, ...]]:
        """Return the citations of any of `targets` or of the chunk `chunk`, newest first.

        The columns are those of the catalog's table `citations`.
        """
        with self._lock_catalog():
            return self._catalog.find_citations(targets, chunk)


def _get_file_state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
