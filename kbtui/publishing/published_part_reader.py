"""Reads the parts of a published library from its store, and verifies their checksums."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from kbtui.publishing.published_part_format import (
    DamagedLibraryPart,
    MissingLibraryPart,
    TextPartTableOfContents,
    VectorPartTableOfContents,
    parse_table_of_contents,
)

if TYPE_CHECKING:
    from kbtui.publishing.published_library_manifest import LibraryPartReference
    from kbtui.publishing.published_library_store import LibraryStore

REPAIR_HINT = "publish the library again with `kbtui publish URI --verify`"


def read_whole_part(store: LibraryStore, part: LibraryPartReference) -> bytes:
    """Read a part. Raises `DamagedLibraryPart`, or `MissingLibraryPart` if the store has no such part."""
    where = store.format_object_uri(part.path)
    found = store.read_object(part.path, part.size)
    if found is None:
        raise _make_missing_part_error(where)
    if len(found.data) != part.size or sha256(found.data).hexdigest() != part.name:
        raise _make_checksum_error(where)
    return found.data


def read_part_table_of_contents(store: LibraryStore, part: LibraryPartReference) -> bytes:
    """Read only the table of contents of a part. Raises the same errors as `read_whole_part`."""
    where = store.format_object_uri(part.path)
    data = store.read_object_beginning(part.path, part.contents_bytes)
    if data is None:
        raise _make_missing_part_error(where)
    if not is_table_of_contents_intact(data, part):
        raise _make_checksum_error(where)
    return data


def is_table_of_contents_intact(data: bytes, part: LibraryPartReference) -> bool:
    """Return whether `data` has the size and the checksum of a part's table of contents."""
    return len(data) == part.contents_bytes and sha256(data).hexdigest() == part.contents_checksum


def parse_part_table_of_contents(
    data: bytes, part: LibraryPartReference, where: str
) -> TextPartTableOfContents | VectorPartTableOfContents:
    """Parse the table of contents of a part. Raises `DamagedLibraryPart`.

    `where` is the URI of the part, for messages.
    """
    try:
        contents = parse_table_of_contents(data)
    except DamagedLibraryPart as error:
        raise DamagedLibraryPart(error.message, where=where, hint=REPAIR_HINT) from error
    if isinstance(contents, TextPartTableOfContents) != (part.kind == "texts"):
        raise DamagedLibraryPart(
            "the part's kind differs from the one in the manifest", where=where
        )
    return contents


def _make_missing_part_error(where: str) -> MissingLibraryPart:
    return MissingLibraryPart("a part is missing from the store", where=where, hint=REPAIR_HINT)


def _make_checksum_error(where: str) -> DamagedLibraryPart:
    return DamagedLibraryPart(
        "the part is damaged: its checksum differs", where=where, hint=REPAIR_HINT
    )
