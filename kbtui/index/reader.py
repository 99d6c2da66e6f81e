"""`IndexReader`: what clients open. Never writes, never loads LanceDB or a model."""

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
    """The generation in use, for reading, from any thread.

    Raises `IndexUnavailable` when there is none. `moved()` says that another
    generation took over; a new reader then sees that one.
    """

    def __init__(self, cache_dir: Path) -> None:
        folder = generations.find_current_generation(cache_dir)
        if folder is None:
            raise IndexUnavailable(
                "there is no index yet", where=str(cache_dir), hint="`kbtui index` makes one"
            )
        if not generations.is_readable_generation(folder):
            raise IndexUnavailable(
                "the index was made by another version of kbtui",
                where=str(folder),
                hint="`kbtui index` makes one for this version",
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
        """The name of the generation; chunk numbers mean something only within one."""
        return self.folder.name

    def is_replaced(self) -> bool:
        """Whether another generation took over since."""
        return generations.find_current_generation(self._cache_dir) != self.folder

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._catalog.close()
            self._lexical.clear()

    @contextmanager
    def _lock_catalog(self) -> Iterator[None]:
        """Hold the lock; raise `IndexUnavailable` for what cannot be read."""
        with self._lock:
            try:
                yield
            except (sqlite3.DatabaseError, ValueError) as error:
                raise IndexUnavailable(
                    f"the index is damaged: {error}",
                    where=str(self.folder),
                    hint="`kbtui index` builds it again",
                ) from error

    def open_keyword_index(self, *, hidden: bool = False) -> Any:
        """The tantivy index, at its last commit."""
        from kbtui.index.keyword_index import open_index

        name = "hidden" if hidden else "lexical"
        with self._lock:
            index = self._lexical.get(name)
            # A commit is another file in place of this one; without, there is nothing to load.
            commit = _get_file_state(self.folder / name / "meta.json")
            if index is None:
                index = self._lexical[name] = open_index(self.folder / name, self.language)
            elif commit is None or commit != self._commits.get(name):
                index.reload()
            self._commits[name] = commit
            return index

    def get_configuration_state(self) -> list[list[object]]:
        """The state of the configuration files that the index was made with."""
        with self._lock_catalog():
            value = self._catalog.get_meta("configuration")
            return json.loads(value) if value else []

    def get_chunks(self, numbers: list[int]) -> dict[int, tuple[Chunk, str]]:
        """Chunks by number, each with its entry's id."""
        with self._lock_catalog():
            return self._catalog.get_chunks(numbers)

    def get_chunk_owners(self, numbers: list[int]) -> dict[int, tuple[str, str]]:
        """The ids of chunks by number, each with its entry's."""
        with self._lock_catalog():
            return self._catalog.get_chunk_owners(numbers)

    def list_chunks(self, entry_id: str) -> list[Chunk]:
        """An entry's chunks, in order."""
        with self._lock_catalog():
            return self._catalog.list_chunks(entry_id)

    def get_chunk(self, chunk_id: str) -> tuple[Chunk, str] | None:
        """A chunk by its id, with its entry's id."""
        with self._lock_catalog():
            return self._catalog.get_chunk(chunk_id)

    def get_entries(self, ids: set[str]) -> dict[str, Entry]:
        """Entries by id."""
        with self._lock_catalog():
            return self._catalog.get_entries(ids)

    def count_rows(self) -> dict[str, int]:
        """How many entries, chunks and citations there are."""
        with self._lock_catalog():
            return self._catalog.count_rows()

    def is_empty(self, *, hidden: bool) -> bool:
        """Whether there is no entry; with `hidden` false, none but hidden ones."""
        with self._lock_catalog():
            return self._catalog.is_empty(hidden=hidden)

    def find_citations(self, targets: list[str], chunk: str | None = None) -> list[tuple[Any, ...]]:
        """The citations of any of `targets` or of `chunk`, newest first (the catalog's columns)."""
        with self._lock_catalog():
            return self._catalog.find_citations(targets, chunk)


def _get_file_state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
