"""Publishes a workspace: sends the parts that the library lacks, then replaces the manifest in one step.

Until the manifest is replaced, readers see the old version. If publishing is interrupted, the next publish uses the
parts that were sent, because equal content has the same name. Unused parts are deleted after a
grace period.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kbtui.errors import UsageError
from kbtui.index.entry_and_chunk_data_types import CHUNKING_VERSION, hash_embedded_text
from kbtui.publishing.caching_text_embedder import VECTORS_AT_ONCE
from kbtui.publishing.published_library_format import (
    MAX_MANIFEST_BYTES,
    PARTS_PREFIX,
    DamagedLibraryPartError,
    LibraryManifest,
    LibraryPartReference,
    PublishedLibraryPartBytes,
    PublishedTextPartTableOfContents,
    PublishedVectorPartTableOfContents,
    UnsupportedManifestFormatError,
    UnusableLibraryManifestError,
    VectorTableVersion,
    check_key_pair,
    encode_and_sign_manifest,
    encode_text_part,
    encode_vector_part,
    parse_and_verify_manifest,
    parse_part_table_of_contents,
    read_part_table_of_contents,
    read_vectors_of_part,
    read_whole_part,
)
from kbtui.publishing.published_library_store import MANIFEST_NAME, LibraryStore
from kbtui.publishing.published_vector_table_update import (
    PassageToPublish,
    update_vector_table_in_store,
)
from kbtui.terminal_text import format_counted_noun
from kbtui.version import __version__
from kbtui.workspace.git_history import find_git_history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from kbtui.publishing.caching_text_embedder import CachingTextEmbedder
    from kbtui.publishing.publishable_entries import PublishableEntries
    from kbtui.publishing.published_library_format import EntryFileToPublish, EntryKey
    from kbtui.publishing.published_library_store import ListedStoreObject, StoredObjectVersion
    from kbtui.workspace import Workspace

TEXT_PART_BYTES = 8 << 20
"""The approximate size of the files in a text part, before compression."""
SMALL_PART_BYTES, MAX_SMALL_PARTS = 128 << 10, 32
"""If more than `MAX_SMALL_PARTS` parts of the same kind are smaller than `SMALL_PART_BYTES`, they are joined.

Joining parts sends their content again. Therefore the size limit is low: an update of 1,000
passages makes larger parts (0.2 MB of texts and 0.8 MB of vectors).
"""
MIN_LIVE_TEXT_SHARE, MIN_LIVE_VECTOR_SHARE = 0.5, 0.25
"""A text part or vector part is replaced if less than this share of it is still needed.

The content that is still needed is then sent again. The share is larger for texts, so that obsolete
texts leave the store sooner: they are more private than vectors, and sending them again costs only
a quarter of the bytes.
"""
VERIFIED_PART_BYTES = 256 << 10
"""Every publish verifies all bytes of parts up to this size, but only the tables of contents of larger parts."""
_REPLACE_HINT = (
    "check the URI; `--replace-damaged` publishes everything again, and replaces the manifest"
)


@dataclass
class PublishedLibraryState:
    """The current state of a library: its manifest and the tables of contents of its parts.

    * `tag` identifies the version of the manifest.
    * `damaged` contains the names of the manifest's parts that are missing or damaged.
    * `stored` maps the name of each part in the store to its entry in the listing.
    """

    manifest: LibraryManifest | None = None
    tag: StoredObjectVersion | None = None
    texts: dict[str, PublishedTextPartTableOfContents] = field(default_factory=dict)
    vectors: dict[str, PublishedVectorPartTableOfContents] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    stored: dict[str, ListedStoreObject] = field(default_factory=dict)
    manifest_problem: str | None = None
    """If publishing will replace an unusable manifest, the reason why it cannot be used; otherwise None."""


@dataclass
class LibraryPublishResult:
    """The result of publishing a library, or of a dry run.

    * `new`, `changed` and `removed` are keys of entries.
    * `vectors` is the number of vectors to send.
    * `computed` is the number of vectors that the model computed.
    * `sent_bytes` is the size of the sent parts and the manifest; 0 for a dry run.
    * `sent_parts` is the number of sent parts; 0 for a dry run.
    * `deleted` is the number of deleted parts.
    * `damaged` is the number of missing or damaged parts that were replaced, or would be replaced.
    * `version` is the number of the published version, or of the current one if nothing has
      changed.
    """

    entries: PublishableEntries
    new: list[EntryKey]
    changed: list[EntryKey]
    removed: list[EntryKey]
    vectors: int = 0
    computed: int = 0
    sent_parts: int = 0
    sent_bytes: int = 0
    deleted: int = 0
    damaged: int = 0
    replaced_manifest: str | None = None
    version: int = 0
    is_unchanged: bool = False


def read_published_library_state(
    store: LibraryStore,
    key: str = "",
    *,
    verifies_all: bool = False,
    replaces_damaged: bool = False,
) -> PublishedLibraryState:
    """Read a library's manifest and the tables of contents of its parts.

    If `verifies_all` is true, even large parts are read whole, so that their checksums can be
    verified. If `replaces_damaged` is true and the manifest is unusable, no error is raised, and
    all parts count as damaged.
    """
    found = store.read_object(MANIFEST_NAME, MAX_MANIFEST_BYTES)
    stored = {one.name.rpartition("/")[2]: one for one in store.list_objects(PARTS_PREFIX)}
    if found is None:
        return PublishedLibraryState(stored=stored)
    try:
        manifest = parse_and_verify_manifest(
            found.data, store.format_object_uri(MANIFEST_NAME), key
        )
    except UnsupportedManifestFormatError:
        raise
    except UnusableLibraryManifestError as error:
        if not replaces_damaged:
            error.hint = _REPLACE_HINT
            raise
        # The content of this library's parts is unknown, so no part can be reused.
        return PublishedLibraryState(
            tag=found.tag, damaged=set(stored), stored=stored, manifest_problem=error.message
        )
    state = PublishedLibraryState(manifest, found.tag, stored=stored)
    for part in manifest.parts:
        if part.name not in stored or stored[part.name].size != part.size:
            state.damaged.add(part.name)
            continue
        try:
            if verifies_all or part.size <= VERIFIED_PART_BYTES:
                data = read_whole_part(store, part)[: part.contents_bytes]
            else:
                data = read_part_table_of_contents(store, part)
            contents = parse_part_table_of_contents(data, part, store.format_object_uri(part.path))
        except DamagedLibraryPartError:
            state.damaged.add(part.name)
            continue
        if isinstance(contents, PublishedTextPartTableOfContents):
            state.texts[part.name] = contents
        else:
            state.vectors[part.name] = contents
    return state


class LibraryPublisher:
    """Publishes a workspace to a store, once."""

    def __init__(
        self,
        workspace: Workspace,
        store: LibraryStore,
        entries: PublishableEntries,
        embedder: CachingTextEmbedder | None,
        *,
        private_key: Ed25519PrivateKey | None = None,
        public_key: str = "",
        grace_seconds: float = 86_400.0,
        has_table: bool = False,
        verifies_all: bool = False,
        replaces_damaged: bool = False,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Prepare to publish. If `embedder` is None, no vectors are sent, and the vectors in the library stay.

        If `has_table` is true, the vectors of passages are also written into a LanceDB table. If
        `verifies_all` is true, the checksums of all parts in the store are verified first.
        """
        self._has_table = has_table
        self._workspace, self._store, self._entries = workspace, store, entries
        self._embedder = embedder
        self._private_key, self._public_key = private_key, public_key
        self._grace_seconds, self._on_progress = grace_seconds, on_progress
        self._state = read_published_library_state(
            store, public_key, verifies_all=verifies_all, replaces_damaged=replaces_damaged
        )
        self.result = self._compare_with_published_entries()

    @property
    def _published_parts(self) -> list[LibraryPartReference]:
        return self._state.manifest.parts if self._state.manifest else []

    def _compare_with_published_entries(self) -> LibraryPublishResult:
        published = self._map_entries_in_parts_to_checksums(self._published_parts)
        ours = self._entries.texts
        result = LibraryPublishResult(
            self._entries,
            sorted(ours.keys() - published.keys()),
            sorted(
                key
                for key in ours.keys() & published.keys()
                if ours[key].checksum != published[key]
            ),
            sorted(published.keys() - ours.keys()),
            vectors=len(self._find_texts_whose_vectors_library_lacks()),
            damaged=self._count_damaged_parts(),
            replaced_manifest=self._state.manifest_problem,
        )
        if self._state.manifest is not None:
            result.version = self._state.manifest.number
        return result

    def _count_damaged_parts(self) -> int:
        """Count the damaged parts of the current version; 0 if there is no usable manifest."""
        return len(self._state.damaged) if self._state.manifest else 0

    def _map_entries_in_parts_to_checksums(
        self, parts: Iterable[LibraryPartReference]
    ) -> dict[EntryKey, str]:
        """Map the key of each entry in `parts` to its text's checksum. If several parts contain an entry, the last one counts."""
        found: dict[EntryKey, str] = {}
        for part in parts:
            if (contents := self._state.texts.get(part.name)) is not None:
                found |= {entry.key: entry.checksum for entry in contents.entries}
        return found

    def _find_texts_whose_vectors_library_lacks(self) -> dict[bytes, str]:
        """Return the texts whose vectors the library lacks."""
        if self._embedder is None:
            return {}
        model = self._embedder.model.key
        known = set[bytes]()
        for contents in self._state.vectors.values():
            if contents.model == model:
                known.update(contents.hashes)
        return {key: text for key, text in self._entries.embedded.items() if key not in known}

    def describe_suspicious_removal(self) -> str | None:
        """Return a warning if publishing would remove all entries, or entries of a missing topic; None if not.

        A topic is missing if its directory does not exist. Such a removal is usually a mistake, for
        example because a disk is not mounted.
        """
        removed = self.result.removed
        if removed and not self._entries.texts:
            return f"all {format_counted_noun(len(removed), 'entry', 'entries')} of the library would be removed"
        for topic, directory in self._entries.missing_directories.items():
            if any(key[:2] == ("subject", topic) for key in removed):
                return f"the directory of the topic {topic!r} is missing ({directory}), so its subjects would be removed"
        return None

    def publish(self, *, allow_empty: bool = False) -> LibraryPublishResult:
        """Send missing parts, replace the manifest, and delete parts that are no longer needed.

        Raises `UsageError` if `describe_suspicious_removal` returns a warning and `allow_empty` is false.
        """
        if not allow_empty and (removal := self.describe_suspicious_removal()):
            raise UsageError(
                removal,
                where=self._store.uri,
                hint="check the topics and `[publish]`; `--allow-empty` publishes anyway",
            )
        check_key_pair(self._private_key, self._public_key)
        now = self._store.check_conditional_put_and_get_time()
        computed = self._embedder.computed if self._embedder else 0
        vector_parts = self._update_vector_parts()
        self.result.damaged = self._count_damaged_parts()
        text_parts = self._update_text_parts()
        table = self._update_vector_table_in_store(vector_parts, now)
        if self._embedder:
            self.result.computed = self._embedder.computed - computed
        manifest = self._make_manifest([*text_parts, *vector_parts], table, now)
        old = self._state.manifest
        same = old is not None and replace(
            manifest, number=old.number, published_at=old.published_at, retired=old.retired
        ) == replace(old, kbtui=manifest.kbtui)
        if old is not None and same:
            self.result.is_unchanged = True
            manifest = old
        else:
            data = encode_and_sign_manifest(manifest, self._private_key)
            self._store.replace_manifest(data, self._state.tag)
            self.result.sent_bytes += len(data)
        self.result.version = manifest.number
        self._delete_unneeded_parts(manifest, now)
        return self.result

    def _update_text_parts(self) -> list[LibraryPartReference]:
        """Send new and changed texts; return the new version's text parts."""
        current = {key: text.checksum for key, text in self._entries.texts.items()}
        last: dict[EntryKey, str] = {}
        for part in self._list_undamaged_published_parts("texts"):
            last |= {entry.key: part.name for entry in self._state.texts[part.name].entries}

        def is_text_part_kept(part: LibraryPartReference) -> bool:
            contents = self._state.texts[part.name]
            # An entry that is no longer published must leave the store, even if most of the part is needed.
            if not {entry.key for entry in contents.entries} <= current.keys():
                return False
            total = sum(entry.length for entry in contents.entries)
            live = sum(
                entry.length
                for entry in contents.entries
                if current.get(entry.key) == entry.checksum and last[entry.key] == part.name
            )
            return not total or live / total >= MIN_LIVE_TEXT_SHARE

        kept = self._exclude_small_parts_from_reuse_if_too_many(
            [p for p in self._list_undamaged_published_parts("texts") if is_text_part_kept(p)]
        )
        have = self._map_entries_in_parts_to_checksums(kept)
        lacking = [
            text
            for key, text in sorted(self._entries.texts.items())
            if have.get(key) != text.checksum
        ]
        for texts in _group_texts_by_total_size(lacking):
            kept.append(self._send_part(encode_text_part(texts), "texts"))
        return kept

    def _update_vector_parts(self) -> list[LibraryPartReference]:
        """Send the vectors that the library lacks; return the new version's vector parts."""
        old = self._list_undamaged_published_parts("vectors")
        if self._embedder is None:
            return old
        import numpy as np

        model, needed = self._embedder.model.key, self._entries.embedded
        same = [part for part in old if self._state.vectors[part.name].model == model]

        def has_enough_needed_vectors(part: LibraryPartReference) -> bool:
            hashes = self._state.vectors[part.name].hashes
            return sum(map(needed.__contains__, hashes)) >= MIN_LIVE_VECTOR_SHARE * len(hashes)

        kept = self._exclude_small_parts_from_reuse_if_too_many(
            [part for part in same if has_enough_needed_vectors(part)]
        )
        names = {part.name for part in kept}
        # If a dropped part contains needed vectors, they are read from the store instead of computed.
        held: dict[bytes, np.ndarray] = {}
        known = set[bytes]().union(*(self._state.vectors[name].hashes for name in names))
        for part in same:
            if part.name not in names:
                contents = self._state.vectors[part.name]
                if not any(map(needed.__contains__, contents.hashes)):
                    continue
                try:
                    data = read_whole_part(self._store, part)
                except DamagedLibraryPartError:
                    self._state.damaged.add(part.name)
                    continue
                rows = read_vectors_of_part(data, part.contents_bytes, contents)
                held |= {
                    key: np.frombuffer(row, "<f2")
                    for key, row in zip(contents.hashes, rows, strict=True)
                    if key in needed and key not in known
                }
        known |= held.keys()
        missing = {key: text for key, text in needed.items() if key not in known}
        hashes = sorted(held)
        for at in range(0, len(hashes), VECTORS_AT_ONCE):
            some = hashes[at : at + VECTORS_AT_ONCE]
            kept.append(
                self._send_vectors_as_new_part(some, np.vstack([held[key] for key in some]))
            )
        embedded = self._embedder.embed_texts_in_batches(
            missing, lambda done: self._on_progress(done, len(missing))
        )
        kept += [self._send_vectors_as_new_part(some, matrix) for some, matrix in embedded]
        return kept

    def _send_vectors_as_new_part(
        self, hashes: list[bytes], matrix: np.ndarray
    ) -> LibraryPartReference:
        assert self._embedder is not None
        model = self._embedder.model.key
        part = self._send_part(encode_vector_part(model, hashes, matrix), "vectors")
        self._state.vectors[part.name] = PublishedVectorPartTableOfContents(
            model, matrix.shape[1], hashes
        )
        return part

    def _update_vector_table_in_store(
        self, vector_parts: list[LibraryPartReference], now: float
    ) -> VectorTableVersion | None:
        """Update the published table if the library has one; return its version for the manifest.

        `vector_parts` contains the new version's vector parts. If readers need more vectors for the
        passages that the table lacks, this method sends these vectors in new parts, and appends the
        parts to `vector_parts`.
        """
        manifest = self._state.manifest
        old = manifest.table if manifest else None
        if not self._has_table:
            return None
        if self._embedder is None:
            names = {part.name for part in vector_parts}
            return old and replace(old, later_parts=[n for n in old.later_parts if n in names])
        if not self._entries.embedded:
            return None
        passages = (
            PassageToPublish(entry, chunks, at)
            for entry, chunks in self._entries.chunks.values()
            for at, chunk in enumerate(chunks)
            if chunk.embed
        )
        needed_versions = []
        if manifest is not None:
            retired = self._select_recently_retired_objects(manifest.retired, now)
            needed_versions = replace(manifest, retired=retired).list_needed_table_versions()
        dimension = self._state.vectors[vector_parts[0].name].dimension
        table, lacking = update_vector_table_in_store(
            self._store.uri, self._embedder, passages, dimension, old, needed_versions, now
        )
        return replace(
            table,
            later_parts=self._list_vector_parts_supplementing_table(table, lacking, vector_parts),
        )

    def _list_vector_parts_supplementing_table(
        self,
        table: VectorTableVersion,
        passages: list[PassageToPublish],
        vector_parts: list[LibraryPartReference],
    ) -> list[str]:
        """Return the names of the parts from which a reader can make the vectors of `passages`.

        Parts that are older than the table are left out, because a reader would fetch many vectors
        that the table already contains. If a needed vector is only in such an older part, it is
        sent again in a new part. For example, a changed passage can need the vector of the
        unchanged passage next to it.
        """
        assert self._embedder is not None
        old = self._state.manifest.table if self._state.manifest else None
        texts = {
            hash_embedded_text(text): text
            for passage in passages
            for text in passage.list_embedded_texts()
        }
        earlier = set[str]()
        if old and (old.version, old.written_at) == (table.version, table.written_at):
            earlier = {part.name for part in self._published_parts} - set(table.later_parts)
        names = []
        for part in vector_parts:
            if part.name not in earlier:
                found = texts.keys() & self._state.vectors[part.name].hashes
                if found:
                    names.append(part.name)
                    texts = {key: text for key, text in texts.items() if key not in found}
        for hashes, matrix in self._embedder.embed_texts_in_batches(texts):
            part = self._send_vectors_as_new_part(hashes, matrix)
            vector_parts.append(part)
            names.append(part.name)
        return names

    def _list_undamaged_published_parts(self, kind: str) -> list[LibraryPartReference]:
        """Return those parts of one kind in the current version that are neither missing nor damaged."""
        damaged = self._state.damaged
        return [p for p in self._published_parts if p.kind == kind and p.name not in damaged]

    @staticmethod
    def _exclude_small_parts_from_reuse_if_too_many(
        parts: list[LibraryPartReference],
    ) -> list[LibraryPartReference]:
        """Return `parts`. If more than `MAX_SMALL_PARTS` of them are small, return only the others."""
        small = [part for part in parts if part.size < SMALL_PART_BYTES]
        return [p for p in parts if p not in small] if len(small) > MAX_SMALL_PARTS else parts

    def _send_part(self, part: PublishedLibraryPartBytes, kind: str) -> LibraryPartReference:
        """Write a part, unless the store has it already, for example from an interrupted publish."""
        reference = LibraryPartReference(
            part.name, kind, len(part.data), part.contents_bytes, part.table_of_contents_checksum
        )
        if part.name not in self._state.stored.keys() - self._state.damaged:
            self._store.write_immutable_object(reference.path, part.data)
            self.result.sent_parts += 1
            self.result.sent_bytes += len(part.data)
        return reference

    def _make_manifest(
        self, parts: list[LibraryPartReference], table: VectorTableVersion | None, now: float
    ) -> LibraryManifest:
        old = self._state.manifest
        names = _list_part_and_table_names(parts, table)
        retired = self._select_recently_retired_objects(old.retired if old else {}, now)
        if old is not None:
            retired |= dict.fromkeys(_list_part_and_table_names(old.parts, old.table), now)
        history = find_git_history(str(self._workspace.root))
        kinds = [key[0] for key in self._entries.texts]
        model = self._embedder.model.key if self._embedder else old.model if old else None
        number = old.number + 1 if old else 1
        if self._state.manifest_problem:
            # Readers refuse a version with a lower number than the one they have, which is unknown here.
            number = int(now)
        return LibraryManifest(
            number=number,
            name=self._workspace.name,
            published_at=datetime.now(UTC).isoformat(timespec="seconds"),
            commit=history.get_current_commit() if history else None,
            kbtui=__version__,
            chunking=CHUNKING_VERSION,
            model=model,
            topics=self._entries.topics,
            parts=parts,
            retired={name: time for name, time in retired.items() if name not in names},
            table=table,
            counts={
                "subjects": kinds.count("subject"),
                "conversations": kinds.count("conversation"),
                "passages": self._entries.passages,
                "vectors": len(self._entries.embedded) if model else 0,
            },
        )

    def _select_recently_retired_objects(
        self, retired: dict[str, float], now: float
    ) -> dict[str, float]:
        """Return the parts and table versions that some readers may still use."""
        limit = now - self._grace_seconds
        return {name: time for name, time in retired.items() if time > limit}

    def _delete_unneeded_parts(self, manifest: LibraryManifest, now: float) -> None:
        """Delete the parts that have been unneeded for so long that no reader can still be using them.

        All times are by the store's clock.
        """
        named = {part.name for part in manifest.parts}
        limit = now - self._grace_seconds
        gone = [
            part.name
            for name, part in self._state.stored.items()
            if name not in named
            and part.modified < limit
            and manifest.retired.get(name, 0.0) < limit
        ]
        self._store.delete_objects(gone)
        self.result.deleted = len(gone)


def _list_part_and_table_names(
    parts: list[LibraryPartReference], table: VectorTableVersion | None
) -> list[str]:
    return [part.name for part in parts] + ([table.key_in_retired_objects] if table else [])


def _group_texts_by_total_size(
    texts: list[EntryFileToPublish],
) -> Iterator[list[EntryFileToPublish]]:
    """Yield the texts in groups of about `TEXT_PART_BYTES`."""
    group: list[EntryFileToPublish] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text.data)
        if size >= TEXT_PART_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
