"""Mirrors a published library: fetches and verifies the changes, then replaces the mirror's files.

The checks cover the manifest's signature (if the workspace has a key), the checksum of every part
and entry, names, sizes and counts. After an error, the mirror is unchanged. If the machine fails
while files are replaced, the next pull replaces the rest.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kbtui.conversations.formats.published_library_conversation_format import (
    make_mirror_file_name_of_published_conversation,
)
from kbtui.errors import ConfigError, KbtuiError, NothingFound, UsageError
from kbtui.file_reading_and_writing import remove_empty_directories, write_file_atomically
from kbtui.index.embedding_cache import (
    find_hashes_with_pulled_vector,
    write_pulled_vectors_to_mirror_database,
)
from kbtui.index.published_vector_table_search import (
    get_published_table_path_or_uri,
    make_table_version_id,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.publishing.published_library_format import (
    MAX_MANIFEST_BYTES,
    DamagedLibraryPartError,
    LibraryManifest,
    MissingLibraryPartError,
    PublishedTextPartTableOfContents,
    PublishedVectorPartTableOfContents,
    UnusableLibraryManifestError,
    is_table_of_contents_intact,
    parse_and_verify_manifest,
    parse_part_table_of_contents,
    read_entry_from_part,
    read_part_table_of_contents,
    read_vectors_of_part,
    read_whole_part,
)
from kbtui.publishing.published_library_mirror_database import (
    convert_mirror_errors,
    open_mirror_database,
    read_mirrored_entry_checksums,
    read_value_from_mirror_state,
    write_value_to_mirror_state,
)
from kbtui.publishing.published_library_store import (
    MANIFEST_NAME,
    LibraryStore,
    convert_table_errors,
)
from kbtui.workspace.paths import (
    KBTUI_DIRECTORY,
    TOPICS_FILE,
    make_private_directory,
)
from kbtui.workspace.published_library_settings import (
    PublishedLibraryMirrorPaths,
    find_mirror_of_subscribed_library,
    load_library_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kbtui.publishing.published_library_format import (
        EntryKey,
        LibraryPartReference,
        TextPartTableOfContentsEntry,
    )
    from kbtui.workspace import Workspace
    from kbtui.workspace.published_library_settings import LibrarySubscriptionSettings

MAX_ATTEMPTS = 3
"""A pull makes at most this many attempts. An attempt fails if parts are deleted while it reads them."""


@dataclass
class LibraryPullResult:
    """The changes that a pull made.

    * `entries` and `removed` count the fetched and the removed entries.
    * `vectors` counts the new vectors.
    * `are_vectors_remote` is true if the vectors were not fetched because their size exceeds the
      setting `mirror_megabytes`.
    * `is_table_new` is true if searches now use another version of the published table.
    """

    manifest: LibraryManifest
    entries: int = 0
    removed: int = 0
    vectors: int = 0
    fetched_bytes: int = 0
    requests: int = 0
    are_vectors_remote: bool = False
    is_table_new: bool = False

    @property
    def is_unchanged(self) -> bool:
        """Whether the mirror was up to date."""
        return not (self.entries or self.removed or self.vectors or self.is_table_new)


class _EntryPlaceInPart(NamedTuple):
    """The part that contains an entry of a version, and the entry's place in the part."""

    part: LibraryPartReference
    entry: TextPartTableOfContentsEntry


def pull_library(
    mirror: PublishedLibraryMirrorPaths,
    settings: LibrarySubscriptionSettings,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> LibraryPullResult:
    """Bring a mirror up to date with its library; create the mirror first if it does not exist.

    Raises `LibraryStoreError`, `UnusableLibraryManifestError`, `DamagedLibraryPartError` or another `KbtuiError`. After an error,
    the mirror is unchanged, and `read_subscription_status` reports the error.
    """
    with (
        convert_mirror_errors(mirror),
        _lock_mirror(mirror),
        closing(open_mirror_database(mirror)) as db,
    ):
        try:
            for attempt in range(MAX_ATTEMPTS):
                try:
                    result = _LibraryPull(mirror, settings, db, on_progress).pull()
                    break
                except MissingLibraryPartError:
                    # The part was deleted while it was needed, so there must be a newer version.
                    if attempt == MAX_ATTEMPTS - 1:
                        raise
        except (KbtuiError, OSError, sqlite3.Error) as error:
            # On a full disk, this fails, too.
            with suppress(sqlite3.Error):
                write_value_to_mirror_state(db, "error", str(error))
            raise
        write_value_to_mirror_state(db, "error", "")
        write_value_to_mirror_state(db, "checked_at", str(time.time()))
        return result


@contextmanager
def _lock_mirror(mirror: PublishedLibraryMirrorPaths) -> Iterator[None]:
    """Lock a mirror within the context, so that two processes do not pull at the same time.

    The mirror's directory is created if it is missing.
    """
    make_private_directory(mirror.directory)
    with (mirror.directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _LibraryPull:
    """One attempt to bring a mirror up to date."""

    def __init__(
        self,
        mirror: PublishedLibraryMirrorPaths,
        settings: LibrarySubscriptionSettings,
        db: sqlite3.Connection,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._mirror, self._settings, self._db = mirror, settings, db
        self._on_progress = on_progress
        self._store = LibraryStore(mirror.uri)
        self._staging = mirror.directory / "staging"
        self._new_rows: tuple[str, list[tuple[int, str, bytes]]] | None = None
        """The id of the published table's version, and the version's rows for the mirror's database."""

    def pull(self) -> LibraryPullResult:
        found = self._store.read_object(MANIFEST_NAME, MAX_MANIFEST_BYTES)
        if found is None:
            raise NothingFound(
                "nothing is published here", where=self._mirror.uri, hint="check the URI"
            )
        where = self._store.format_object_uri(MANIFEST_NAME)
        # A mirror that was once verified with a key always needs a valid signature, even for `kbtui -w URI`.
        key = self._settings.key or read_value_from_mirror_state(self._db, "key")
        manifest = parse_and_verify_manifest(found.data, where, key)
        self._result = LibraryPullResult(manifest, fetched_bytes=len(found.data), requests=1)
        checksum = sha256(found.data).hexdigest()
        write_value_to_mirror_state(self._db, "key", key)
        limit = self._settings.mirror_megabytes * 1_000_000
        self._result.are_vectors_remote = manifest.vector_bytes > limit
        if self._is_version_mirrored(checksum):
            return self._result
        if manifest.number < int(read_value_from_mirror_state(self._db, "number") or 0):
            raise UnusableLibraryManifestError(
                f"the store has version {manifest.number}, which is older than the mirrored one",
                where=where,
                hint="if an old version was restored on purpose, run `kbtui library forget`, then `kbtui library pull`",
            )
        self._contents = {
            part.name: self._load_part_table_of_contents(part) for part in manifest.parts
        }
        self._done = 0
        self._total = len(manifest.parts)
        shutil.rmtree(self._staging, ignore_errors=True)
        make_private_directory(self._staging)
        try:
            target = self._find_entries_of_version(manifest)
            staged = self._fetch_missing_entries(target)
            self._fetch_vectors(manifest)
            self._write_version_to_mirror(manifest, checksum, target, staged)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        return self._result

    def _is_version_mirrored(self, checksum: str) -> bool:
        """Return whether the mirror contains the version whose manifest has this checksum.

        If the vectors are to be mirrored, too, the mirror must contain them. If not, it must
        contain none.
        """
        if (
            not self._mirror.exists()
            or read_value_from_mirror_state(self._db, "manifest") != checksum
        ):
            return False
        are_mirrored = self._mirror.read_mirror_facts().get("are_vectors_mirrored")
        return are_mirrored is not self._result.are_vectors_remote

    def _load_part_table_of_contents(
        self, part: LibraryPartReference
    ) -> PublishedTextPartTableOfContents | PublishedVectorPartTableOfContents:
        where = self._store.format_object_uri(part.path)
        row = self._db.execute("SELECT contents FROM parts WHERE name = ?", (part.name,)).fetchone()
        if row is not None and is_table_of_contents_intact(row[0], part):
            return parse_part_table_of_contents(row[0], part, where)
        self._result.requests += 1
        data = read_part_table_of_contents(self._store, part)
        self._result.fetched_bytes += len(data)
        contents = parse_part_table_of_contents(data, part, where)
        self._db.execute("INSERT OR REPLACE INTO parts VALUES (?, ?)", (part.name, data))
        return contents

    def _fetch_whole_part_and_count_bytes(self, part: LibraryPartReference) -> bytes:
        self._result.requests += 1
        data = read_whole_part(self._store, part)
        self._result.fetched_bytes += len(data)
        return data

    def _find_entries_of_version(
        self, manifest: LibraryManifest
    ) -> dict[EntryKey, _EntryPlaceInPart]:
        """Map the key of each entry of the version to its place. Later parts replace entries of earlier ones."""
        found: dict[EntryKey, _EntryPlaceInPart] = {}
        for part in manifest.parts:
            contents = self._contents[part.name]
            if isinstance(contents, PublishedTextPartTableOfContents):
                found |= {entry.key: _EntryPlaceInPart(part, entry) for entry in contents.entries}
        return found

    def _fetch_missing_entries(
        self, target: dict[EntryKey, _EntryPlaceInPart]
    ) -> dict[EntryKey, Path]:
        """Fetch the entries that the mirror lacks, and store them in the staging directory."""
        have = read_mirrored_entry_checksums(self._db)
        wanted: dict[str, list[tuple[EntryKey, _EntryPlaceInPart]]] = {}
        for key, source in target.items():
            is_same = have.get(key) == source.entry.checksum
            if not is_same or not self._get_mirrored_entry_path(key).is_file():
                wanted.setdefault(source.part.name, []).append((key, source))
        staged: dict[EntryKey, Path] = {}
        for group in wanted.values():
            part = group[0][1].part
            data = self._fetch_whole_part_and_count_bytes(part)
            for key, source in group:
                path = self._staging / str(len(staged))
                try:
                    path.write_bytes(read_entry_from_part(data, part.contents_bytes, source.entry))
                except DamagedLibraryPartError as error:
                    raise DamagedLibraryPartError(
                        error.message, where=self._store.format_object_uri(part.path)
                    ) from error
                path.chmod(0o444)
                staged[key] = path
            self._report_fetched_part()
        return staged

    def _report_fetched_part(self) -> None:
        self._done += 1
        self._on_progress(self._done, self._total)

    def _fetch_vectors(self, manifest: LibraryManifest) -> None:
        """Fetch the vectors that the mirror lacks.

        Versions of the library share the vectors of equal texts.
        """
        parts = manifest.vector_parts
        if self._result.are_vectors_remote:
            self._fetch_ids_of_published_table(manifest)
            parts = manifest.list_vector_parts_supplementing_table()
        applied = set(json.loads(read_value_from_mirror_state(self._db, "vectors") or "[]"))
        for part in parts:
            contents = self._contents[part.name]
            assert isinstance(contents, PublishedVectorPartTableOfContents)
            if part.name in applied:
                continue
            known = find_hashes_with_pulled_vector(self._db, contents.model, contents.hashes)
            if len(known) < len(set(contents.hashes)):
                data = self._fetch_whole_part_and_count_bytes(part)
                rows = read_vectors_of_part(data, part.contents_bytes, contents)
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    write_pulled_vectors_to_mirror_database(
                        self._db, contents.model, contents.hashes, rows
                    )
                    self._db.execute("COMMIT")
                finally:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                self._result.vectors += len(contents.hashes) - len(known)
            self._report_fetched_part()
        names = [part.name for part in parts]
        if applied - set(names):
            self._remove_unneeded_vectors(parts)
        write_value_to_mirror_state(self._db, "vectors", json.dumps(names))

    def _fetch_ids_of_published_table(self, manifest: LibraryManifest) -> None:
        """Fetch the ids of the chunks whose vectors are in the published table.

        This machine needs no copy of these vectors.
        """
        table = manifest.table
        state = (
            make_table_version_id(manifest.model, table.version, table.written_at) if table else ""
        )
        if read_value_from_mirror_state(self._db, "published_rows") == state:
            return
        rows: list[tuple[int, str, bytes]] = []
        if table is not None and manifest.model is not None:
            from kbtui.index.vector_store import VectorStore

            place = get_published_table_path_or_uri(self._mirror.uri)
            with convert_table_errors(str(place)):
                store = VectorStore(
                    place, manifest.model, table.dimension,
                    is_published=True, version=table.version,
                )  # fmt: skip
                rows = [
                    (row, f"{id_:016x}", hash_)
                    for row, id_, hash_ in store.iterate_row_ids_and_hashes("tie")
                ]
        self._new_rows = (state, rows)
        self._result.is_table_new = table is not None

    def _remove_unneeded_vectors(self, parts: list[LibraryPartReference]) -> None:
        """Remove the vectors that no part of the version contains."""
        needed: set[tuple[str, bytes]] = set()
        for part in parts:
            contents = self._contents[part.name]
            assert isinstance(contents, PublishedVectorPartTableOfContents)
            needed.update((contents.model, key) for key in contents.hashes)
        held = self._db.execute("SELECT model, hash FROM vectors").fetchall()
        gone = [row for row in held if row not in needed]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("DELETE FROM vectors WHERE model = ? AND hash = ?", gone)
        self._db.execute("COMMIT")

    def _get_mirrored_entry_path(self, key: EntryKey) -> Path:
        """Return the path of an entry in the mirror. `validate_entry_key` must have checked the names in the key."""
        kind, *names = key
        if kind == "subject":
            return self._mirror.topics_directory.joinpath(names[0], *names[1].split("/"))
        return (
            self._mirror.conversations_directory
            / make_mirror_file_name_of_published_conversation(names[0])
        )

    def _write_version_to_mirror(
        self,
        manifest: LibraryManifest,
        checksum: str,
        target: dict[EntryKey, _EntryPlaceInPart],
        staged: dict[EntryKey, Path],
    ) -> None:
        """Replace the mirror's files with those of the version, and record the version in the database."""
        mirror, db = self._mirror, self._db
        make_private_directory(mirror.conversations_directory)
        gone = [key for key in read_mirrored_entry_checksums(db) if key not in target]
        published = _parse_iso_time_as_unix_time(manifest.published_at)
        # Remove old files first: a new directory can have the name of an old file.
        for key in gone:
            path = self._get_mirrored_entry_path(key)
            path.unlink(missing_ok=True)
            remove_empty_directories(path.parent, mirror.topics_directory)
        for key, path in staged.items():
            final = self._get_mirrored_entry_path(key)
            make_private_directory(final.parent)
            os.utime(path, (published, published))
            path.replace(final)
        for topic in manifest.topics:
            make_private_directory(mirror.topics_directory / topic.id)
        _write_file_if_different(
            mirror.workspace_root / KBTUI_DIRECTORY / TOPICS_FILE,
            _format_kb_toml_of_mirror(manifest),
        )
        facts = {
            "uri": mirror.uri,
            "name": manifest.name,
            "number": manifest.number,
            "published_at": manifest.published_at,
            "commit": manifest.commit,
            "kbtui": manifest.kbtui,
            "chunking": manifest.chunking,
            "model": manifest.model,
            "vector_bytes": manifest.vector_bytes,
            "are_vectors_mirrored": not self._result.are_vectors_remote,
            "counts": manifest.counts,
            "topics": [asdict(topic) for topic in manifest.topics],
            "remote_vectors": self._make_remote_vector_facts(manifest),
            "pulled_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        _write_file_if_different(mirror.facts_file, json.dumps(facts, indent=2).encode())
        db.execute("BEGIN IMMEDIATE")
        db.executemany(
            "DELETE FROM entries WHERE key = ?", [(json.dumps(list(key)),) for key in gone]
        )
        db.executemany(
            "INSERT OR REPLACE INTO entries VALUES (?, ?)",
            [(json.dumps(list(key)), target[key].entry.checksum) for key in staged],
        )
        if self._new_rows is not None:
            state, rows = self._new_rows
            db.execute("DELETE FROM published_rows")
            db.executemany("INSERT INTO published_rows VALUES (?, ?, ?)", rows)
            write_value_to_mirror_state(db, "published_rows", state)
        names = {part.name for part in manifest.parts}
        stale = [row for row in db.execute("SELECT name FROM parts") if row[0] not in names]
        db.executemany("DELETE FROM parts WHERE name = ?", stale)
        write_value_to_mirror_state(db, "manifest", checksum)
        write_value_to_mirror_state(db, "number", str(manifest.number))
        db.execute("COMMIT")
        self._result.entries, self._result.removed = len(staged), len(gone)

    def _make_remote_vector_facts(self, manifest: LibraryManifest) -> dict[str, Any] | None:
        if not self._result.are_vectors_remote or manifest.table is None:
            return None
        table = manifest.table
        return {
            "model": manifest.model,
            "version": table.version,
            "written_at": table.written_at,
            "dimension": table.dimension,
        }


def _parse_iso_time_as_unix_time(text: str) -> float:
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return 0.0


def _write_file_if_different(path: Path, data: bytes) -> None:
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        make_private_directory(path.parent)
    write_file_atomically(path, data)


def _format_kb_toml_of_mirror(manifest: LibraryManifest) -> bytes:
    """Return the content of the mirror's `kb.toml`, which makes the mirror a workspace."""
    import tomli_w

    topics = {}
    for topic in manifest.topics:
        texts = {key: value for key, value in asdict(topic).items() if value and key != "id"}
        topics[topic.id] = {"subjects": f"topics/{topic.id}", **texts}
    return tomli_w.dumps({"kb": {"topic": topics}}).encode()


def pull_subscribed_library(
    workspace: Workspace, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> LibraryPullResult:
    """Pull the library that a workspace subscribes to. Raises `UsageError` if there is no subscription."""
    mirror = find_mirror_of_subscribed_library(workspace)
    if mirror is None:
        settings = load_library_settings(workspace)
        hint = f'write `[library] remote = "URI"` into {settings.path}'
        raise UsageError("this workspace does not subscribe to a published library", hint=hint)
    return pull_library(mirror, load_library_subscription_settings(workspace), on_progress)


def load_library_subscription_settings(workspace: Workspace) -> LibrarySubscriptionSettings:
    """Return the settings of a workspace's subscription. Raises `ConfigError`."""
    return load_library_settings(workspace).library


def record_pull_attempt_if_due(workspace: Workspace) -> bool:
    """Return whether the engine should pull now; if so, record that a pull was tried.

    The mirror must exist, and its last check must be old enough. The user must start the first
    pull, because the file that specifies the library may come from someone else.
    """
    try:
        mirror = find_mirror_of_subscribed_library(workspace)
        settings = load_library_subscription_settings(workspace)
    except ConfigError:
        return False
    if mirror is None or not mirror.exists() or not settings.refresh_minutes:
        return False
    with closing(open_mirror_database(mirror)) as db:
        checked = float(read_value_from_mirror_state(db, "checked_at") or 0)
        tried = float(read_value_from_mirror_state(db, "tried_at") or 0)
        now = time.time()
        # A time in the future is ignored, so that a clock that was set back does not stop the refresh.
        is_due = not any(
            0 <= now - last < settings.refresh_minutes * 60 for last in (checked, tried)
        )
        if is_due:
            write_value_to_mirror_state(db, "tried_at", str(now))
    return is_due


def delete_mirror(mirror: PublishedLibraryMirrorPaths) -> None:
    """Delete a mirror, which contains only copies. Raises `NothingFound` if the mirror does not exist."""
    if not mirror.directory.is_dir():
        raise NothingFound("there is no mirror of this library", where=mirror.uri)
    with convert_mirror_errors(mirror):
        shutil.rmtree(mirror.directory)
