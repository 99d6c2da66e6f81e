"""The parts of a published library: files that never change, named by hashes of their content.

A part begins with its table of contents, which can be read alone. The lengths and counts in a part
are checked against limits before they are used, and nothing in a part is executed.

* A part of texts has entries: files of subjects, and conversations. Each entry is compressed
  separately.
* A part of vectors has the hashes of embedded texts, and the vectors of these texts as numbers of
  16 bits.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError
from kbtui.knowledge.topic_directory_scan import find_file_name_problem
from kbtui.light_named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from kbtui.publishing.published_library_store import LibraryStore

PARTS_PREFIX = "parts"
MAX_PART_BYTES = 256 << 20
MAX_CONTENTS_BYTES = 64 << 20
MAX_ENTRY_BYTES = 64 << 20
MAX_ENTRIES_PER_PART = 1_000_000
MAX_PATH_BYTES = 1000
MAX_NAME_BYTES = 255
HASH_BYTES = 16
_MAGIC = b"kbtui part 1\n"
_LENGTHS = struct.Struct("<QQ")

EntryKey = tuple[str, ...]
"""The key of an entry: `("subject", topic, path)` or `("conversation", id)`."""


@dataclass(frozen=True)
class LibraryPartReference:
    """A reference, in a manifest, to a part of a library. `name` is the SHA-256 of the part.

    `contents_checksum` is the SHA-256 of the part's table of contents.
    """

    name: str
    kind: str
    size: int
    contents_bytes: int
    contents_checksum: str

    @property
    def path(self) -> str:
        """The name of the object in the store."""
        return f"{PARTS_PREFIX}/{self.name}"


class DamagedLibraryPartError(KbtuiError):
    """A part is damaged, or was not written by kbtui."""


class MissingLibraryPartError(DamagedLibraryPartError):
    """The store lacks a part that the manifest names."""


class EntryFileToPublish(NamedTuple):
    """An entry to publish: its key, and the bytes of its file."""

    key: EntryKey
    data: bytes

    @property
    def checksum(self) -> str:
        """The SHA-256 of the file, in hexadecimal."""
        return sha256(self.data).hexdigest()


class EntryInLibraryPart(NamedTuple):
    """An entry in a part: its key, its checksum, its size, and the position of its compressed bytes."""

    key: EntryKey
    checksum: str
    size: int
    start: int
    length: int


@dataclass(frozen=True)
class TextPartTableOfContents:
    """The table of contents of a part of texts."""

    entries: list[EntryInLibraryPart]


@dataclass(frozen=True)
class VectorPartTableOfContents:
    """The table of contents of a part of vectors."""

    model: str
    dimension: int
    hashes: list[bytes]


class PublishedLibraryPartBytes(NamedTuple):
    """The bytes of a part. The first `contents_bytes` bytes are the table of contents."""

    data: bytes
    contents_bytes: int

    @property
    def name(self) -> str:
        """The SHA-256 of the part, in hexadecimal."""
        return sha256(self.data).hexdigest()

    @property
    def contents_checksum(self) -> str:
        """The SHA-256 of the table of contents, in hexadecimal."""
        return sha256(self.data[: self.contents_bytes]).hexdigest()


def encode_text_part(texts: Sequence[EntryFileToPublish]) -> PublishedLibraryPartBytes:
    """Return a part with the entries `texts`. Equal texts result in equal bytes."""
    entries, bodies, at = [], [], 0
    for text in texts:
        body = zlib.compress(text.data, 6)
        entries.append([list(text.key), text.checksum, len(text.data), at, len(body)])
        bodies.append(body)
        at += len(body)
    contents = {"kind": "texts", "entries": entries}
    return _encode_library_part(contents, b"", b"".join(bodies))


def encode_vector_part(
    model: str, hashes: Sequence[bytes], vectors: np.ndarray
) -> PublishedLibraryPartBytes:
    """Return a part with vectors. `hashes` contains the hash of the embedded text for each row of `vectors`."""
    contents = {
        "kind": "vectors",
        "model": model,
        "dimension": int(vectors.shape[1]),
        "count": len(hashes),
    }
    return _encode_library_part(contents, b"".join(hashes), vectors.astype("<f2").tobytes())


def _encode_library_part(
    contents: dict[str, Any], table: bytes, body: bytes
) -> PublishedLibraryPartBytes:
    packed = zlib.compress(json.dumps(contents, separators=(",", ":")).encode(), 6)
    beginning = _MAGIC + _LENGTHS.pack(len(packed), len(table)) + packed + table
    return PublishedLibraryPartBytes(beginning + body, len(beginning))


def decompress_to_known_size(data: bytes, size: int) -> bytes:
    """Decompress bytes. Raises `DamagedLibraryPartError` if the result does not have exactly `size` bytes."""
    try:
        stream = zlib.decompressobj()
        found = stream.decompress(data, size + 1)
    except zlib.error as error:
        raise DamagedLibraryPartError(f"it cannot be decompressed: {error}") from error
    if len(found) != size or not stream.eof:
        raise DamagedLibraryPartError("the size of an entry is wrong")
    return found


def parse_table_of_contents(data: bytes) -> TextPartTableOfContents | VectorPartTableOfContents:
    """Parse the table of contents at the beginning of a part's bytes.

    Raises `DamagedLibraryPartError`, or errors of the standard library for other invalid data.
    """
    if not data.startswith(_MAGIC):
        raise DamagedLibraryPartError(
            "it is not a part of a library, or it is from a later version of kbtui"
        )
    start = len(_MAGIC) + _LENGTHS.size
    packed, table = _LENGTHS.unpack(data[len(_MAGIC) : start])
    if start + packed + table > len(data) or packed > MAX_CONTENTS_BYTES:
        raise DamagedLibraryPartError("its table of contents is cut")
    stream = zlib.decompressobj()
    text = stream.decompress(data[start : start + packed], MAX_CONTENTS_BYTES)
    if not stream.eof:
        raise DamagedLibraryPartError("its table of contents is too large")
    contents = json.loads(text)
    if contents["kind"] == "vectors":
        return _parse_vector_contents(contents, data[start + packed : start + packed + table])
    if contents["kind"] != "texts":
        raise DamagedLibraryPartError("it is of an unknown kind")
    entries = contents["entries"]
    if len(entries) > MAX_ENTRIES_PER_PART:
        raise DamagedLibraryPartError("it has too many entries")
    return TextPartTableOfContents([_parse_entry(entry) for entry in entries])


def _parse_entry(entry: list[Any]) -> EntryInLibraryPart:
    key, checksum, size, start, length = entry
    numbers = (size, start, length)
    if not all(type(one) is int and 0 <= one <= MAX_PART_BYTES for one in numbers):
        raise DamagedLibraryPartError("an entry has an invalid size or position")
    if size > MAX_ENTRY_BYTES:
        raise DamagedLibraryPartError("an entry is too large")
    if not isinstance(checksum, str) or len(checksum) != 64:
        raise DamagedLibraryPartError("an entry has an invalid checksum")
    return EntryInLibraryPart(validate_entry_key(key), checksum, size, start, length)


def validate_entry_key(key: Any) -> EntryKey:
    """Return `key` unchanged. Raises `DamagedLibraryPartError` if it is invalid.

    A key with a name such as `..` is invalid, because it could name a file outside the mirror.
    """
    if not isinstance(key, list | tuple) or not all(isinstance(one, str) for one in key):
        raise DamagedLibraryPartError("an entry has an invalid name")
    kind, *rest = key or ("",)
    is_subject = kind == "subject" and len(rest) == 2
    if not is_subject and not (kind == "conversation" and len(rest) == 1):
        raise DamagedLibraryPartError("an entry is of an unknown kind")
    paths = [rest[0], *rest[1].split("/")] if is_subject else rest
    for name in paths:
        if (
            not name
            or name in (".", "..")
            or "/" in name
            or "\\" in name
            or name.startswith(".")
            or find_file_name_problem(name)
            or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES
        ):
            raise DamagedLibraryPartError(f"an entry has a name that is not allowed: {name[:80]!r}")
    if sum(len(one.encode("utf-8", "surrogatepass")) for one in rest) > MAX_PATH_BYTES:
        raise DamagedLibraryPartError("an entry has a name that is too long")
    return tuple(key)


def _parse_vector_contents(contents: dict[str, Any], table: bytes) -> VectorPartTableOfContents:
    model, dimension, count = contents["model"], contents["dimension"], contents["count"]
    if type(count) is not int or count * HASH_BYTES != len(table):
        raise DamagedLibraryPartError("the number of its vectors is wrong")
    if type(dimension) is not int or not 1 <= dimension <= 65_536 or not isinstance(model, str):
        raise DamagedLibraryPartError("it has vectors of an invalid size")
    hashes = [table[at : at + HASH_BYTES] for at in range(0, len(table), HASH_BYTES)]
    return VectorPartTableOfContents(model, dimension, hashes)


def read_entry_from_part(data: bytes, contents_bytes: int, entry: EntryInLibraryPart) -> bytes:
    """Return the contents of an entry's file. `data` is the part that contains it. Raises `DamagedLibraryPartError`."""
    start = contents_bytes + entry.start
    found = decompress_to_known_size(data[start : start + entry.length], entry.size)
    if sha256(found).hexdigest() != entry.checksum:
        raise DamagedLibraryPartError(f"the entry {'/'.join(entry.key[1:])} has a wrong checksum")
    return found


def read_vectors(
    data: bytes, contents_bytes: int, contents: VectorPartTableOfContents
) -> list[bytes]:
    """Return the vectors of a part, each as bytes of 16-bit numbers. Raises `DamagedLibraryPartError`."""
    import numpy as np

    row = 2 * contents.dimension
    body = data[contents_bytes:]
    if len(body) != row * len(contents.hashes):
        raise DamagedLibraryPartError("its vectors are cut")
    if not np.isfinite(np.frombuffer(body, dtype="<f2")).all():
        raise DamagedLibraryPartError("a vector is not a number")
    return [body[at : at + row] for at in range(0, len(body), row)]


# reading from the store

REPAIR_HINT = "publish the library again with `kbtui publish URI --verify`"


def read_whole_part(store: LibraryStore, part: LibraryPartReference) -> bytes:
    """Read a part. Raises `DamagedLibraryPartError`, or `MissingLibraryPartError` if the store has no such part."""
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
    """Parse the table of contents of a part. Raises `DamagedLibraryPartError`.

    `where` is the URI of the part, for messages.
    """
    try:
        contents = parse_table_of_contents(data)
    except DamagedLibraryPartError as error:
        raise DamagedLibraryPartError(error.message, where=where, hint=REPAIR_HINT) from error
    except (ValueError, KeyError, TypeError, struct.error, zlib.error, RecursionError) as error:
        message = f"its table of contents is invalid ({type(error).__name__})"
        raise DamagedLibraryPartError(message, where=where, hint=REPAIR_HINT) from error
    if isinstance(contents, TextPartTableOfContents) != (part.kind == "texts"):
        raise DamagedLibraryPartError(
            "the part's kind differs from the one in the manifest", where=where
        )
    return contents


def _make_missing_part_error(where: str) -> MissingLibraryPartError:
    return MissingLibraryPartError(
        "a part is missing from the store", where=where, hint=REPAIR_HINT
    )


def _make_checksum_error(where: str) -> DamagedLibraryPartError:
    return DamagedLibraryPartError(
        "the part is damaged: its checksum differs", where=where, hint=REPAIR_HINT
    )
