"""Catalog and keyword indexes of one workspace, which are written together.

The order of every write is: catalog transaction, then lexical commit with the
catalog's sequence number. Whatever happens in between, opening them again
repairs the lexical side from the catalog, and the next refresh the catalog from
the files (design, "Storage").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import IndexUnavailable
from kbtui.index import generation
from kbtui.index.catalog import Catalog
from kbtui.index.lexical import LexicalWriter
from kbtui.workspace.paths import make_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kbtui.index.pieces import Piece
    from kbtui.index.putting import Written
    from kbtui.index.records import Entry
    from kbtui.workspace import Settings

BEHIND_MOST = 500
"""So many entries may be written before an index to which none of them belongs says that it is
up to date: when it is opened, they are looked at."""

STALE_SHARE = 2e-5
"""A smaller share of replaced documents is left in the statistics: each commit replaces one, which
carries its number."""

Rows = list[tuple[object, ...]]
"""A conversation's citations, in the columns of the catalog's table."""


class Stores:
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
        self.folder = self._choose(rebuild)
        self._open()

    def _choose(self, rebuild: bool) -> Path:
        mark = generation.fingerprint(self.settings)
        old = generation.current(self.cache_dir)
        if old and not rebuild and old.name.startswith(f"gen-{mark}-"):
            return old
        folder = generation.make(self.cache_dir, mark)
        self._unpublished = old is not None
        return folder

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
        self.writers = {
            False: LexicalWriter(self.folder / "lexical", self.settings.language),
            True: LexicalWriter(self.folder / "hidden", self.settings.language),
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
        is_linked = self._unpublished or generation.current(self.cache_dir) == self.folder
        return is_linked and all(part.exists() for part in parts)

    def publish(self) -> None:
        """Let a new generation take over from the old one."""
        if self._unpublished:
            generation.publish(self.folder)
            self._unpublished = False
            generation.sweep(self.cache_dir, self.folder)

    def _repair(self) -> None:
        """Bring the lexical side to the catalog's state."""
        seq = self.catalog.seq()
        for hidden, writer in self.writers.items():
            mark = writer.watermark()
            if mark == seq:
                continue
            if mark > seq:
                # The catalog lost transactions (a machine's crash): nothing of the lexical side is sure.
                mark = 0
                for entry_id in self.catalog.ids():
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

    def remove(self, gone: list[str]) -> list[Entry]:
        """Take entries out by id; gives those that there were."""
        self._behind += len(gone)
        found = [entry for id_ in gone if (entry := self.catalog.entry(id_)) is not None]
        seq = self.catalog.begin()
        for entry_id in gone:
            self.catalog.remove(entry_id, seq)
        self.catalog.commit()
        for writer in self.writers.values():
            for entry_id in gone:
                writer.remove(entry_id)
        return found

    def put(self, batch: list[tuple[Piece, Rows]]) -> None:
        """Put pieces, each with its citations, in place of what was there: one transaction."""
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
            writer = self.writers[piece.entry.hidden]
            if piece.start or (same and piece.entry.conversation is not None):
                writer.update(piece.entry, piece.before, piece.chunks, written)
            else:
                writer.replace(piece.entry, piece.chunks)
            self.writers[not piece.entry.hidden].remove(piece.entry.id)

    def note(self, key: str, value: str) -> None:
        """Remember a note of the catalog's in a transaction of its own."""
        self.catalog.begin()
        self.catalog.set(key, value)
        self.catalog.commit()
        self.commit()

    def stale_documents(self) -> int:
        """How many documents `compact` writes: those of each side that has stale ones."""
        return sum(writer.size() for writer in self.writers.values() if _is_stale(writer))

    def compact(self, give_up: Callable[[], bool]) -> None:
        """Remove replaced documents from the keyword indexes, whose scores they still change."""
        seq = self.catalog.seq()
        for hidden, writer in self.writers.items():
            if not _is_stale(writer):
                continue
            entries = (
                (entry, self.catalog.chunks_of(entry.id))
                for entry in self.catalog.all_entries()
                if entry.hidden == hidden
            )
            if not writer.rewrite(entries, seq, give_up):
                return

    def commit(self) -> None:
        """Let what was put and removed be found."""
        seq = self.catalog.seq()
        for hidden, writer in self.writers.items():
            # The visible side's statistics must not move because something hidden changed; and a
            # commit takes longer than all else that follows a save.
            if writer.changed or (hidden and self._behind > BEHIND_MOST):
                writer.commit(seq)
                if hidden:
                    self._behind = 0


def _is_stale(writer: LexicalWriter) -> bool:
    return writer.stale() > writer.size() * STALE_SHARE


def _face(entry: Entry) -> tuple[object, ...]:
    """What of an entry is in each of its chunks' documents, besides its time."""
    return (
        entry.title, entry.kind, entry.type, entry.topic, entry.hidden, entry.archived,
    )  # fmt: skip
