"""The format of a published library: a signed manifest, and the parts that the manifest lists.

The manifest lists the parts of the current version. It is a small JSON file that is replaced in one
step, so readers never see a mixture of versions. The file is a JSON object that contains the manifest,
as a string, and its signature.

A part is a file that never changes. Its name is a hash of its content. The file begins with its table of
contents, which can be read alone. The lengths and counts in a part are checked against limits before
they are used, and nothing in a part is executed.

* A text part contains entries, which are the files of subjects and conversations. Each entry is
  compressed separately.
* A vector part contains the hashes of embedded texts, and their vectors as 16-bit numbers.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
import zlib
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.knowledge.subject_files import find_file_name_problem
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.paths import LIBRARY_FILE, PUBLISH_KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from kbtui.publishing.published_library_store import LibraryStore

MANIFEST_FORMAT = 1
"""The version of the format. Increase it if older versions of kbtui cannot read the new format."""
MAX_MANIFEST_BYTES = 8 << 20
MAX_PARTS = 20_000
MAX_TOPICS = 10_000
_DAMAGED_HINT = (
    "ask the person who publishes the library to run `kbtui publish URI --replace-damaged`"
)
_TABLE_VERSION_PREFIX = "vectors/"
_HEX = re.compile(r"[0-9a-f]{64}")
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
    """The store lacks a part that the manifest lists."""


class EntryFileToPublish(NamedTuple):
    """An entry to publish: its key, and the bytes of its file."""

    key: EntryKey
    data: bytes

    @property
    def checksum(self) -> str:
        """The SHA-256 of the file, in hexadecimal."""
        return sha256(self.data).hexdigest()


class TextPartTableOfContentsEntry(NamedTuple):
    """An entry in a part: its key, its checksum, its size, and the position of its compressed bytes."""

    key: EntryKey
    checksum: str
    size: int
    start: int
    length: int


@dataclass(frozen=True)
class PublishedTextPartTableOfContents:
    """The table of contents of a text part."""

    entries: list[TextPartTableOfContentsEntry]


@dataclass(frozen=True)
class PublishedVectorPartTableOfContents:
    """The table of contents of a vector part."""

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
    def table_of_contents_checksum(self) -> str:
        """The SHA-256 of the table of contents, in hexadecimal."""
        return sha256(self.data[: self.contents_bytes]).hexdigest()


def encode_text_part(texts: Sequence[EntryFileToPublish]) -> PublishedLibraryPartBytes:
    """Return the part that contains the entries `texts`. Equal entries result in equal bytes."""
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
    """Return the part that contains `vectors`. For each row, `hashes` contains the hash of the embedded text."""
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


def decode_table_of_contents(
    data: bytes,
) -> PublishedTextPartTableOfContents | PublishedVectorPartTableOfContents:
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
        raise DamagedLibraryPartError("its table of contents is truncated")
    stream = zlib.decompressobj()
    text = stream.decompress(data[start : start + packed], MAX_CONTENTS_BYTES)
    if not stream.eof:
        raise DamagedLibraryPartError("its table of contents is too large")
    contents = json.loads(text)
    if contents["kind"] == "vectors":
        return _parse_vector_part_table_of_contents(
            contents, data[start + packed : start + packed + table]
        )
    if contents["kind"] != "texts":
        raise DamagedLibraryPartError("it is of an unknown kind")
    entries = contents["entries"]
    if len(entries) > MAX_ENTRIES_PER_PART:
        raise DamagedLibraryPartError("it has too many entries")
    return PublishedTextPartTableOfContents(
        [_parse_text_part_table_of_contents_entry(entry) for entry in entries]
    )


def _parse_text_part_table_of_contents_entry(entry: list[Any]) -> TextPartTableOfContentsEntry:
    key, checksum, size, start, length = entry
    numbers = (size, start, length)
    if not all(type(one) is int and 0 <= one <= MAX_PART_BYTES for one in numbers):
        raise DamagedLibraryPartError("an entry has an invalid size or position")
    if size > MAX_ENTRY_BYTES:
        raise DamagedLibraryPartError("an entry is too large")
    if not isinstance(checksum, str) or len(checksum) != 64:
        raise DamagedLibraryPartError("an entry has an invalid checksum")
    return TextPartTableOfContentsEntry(validate_entry_key(key), checksum, size, start, length)


def validate_entry_key(key: Any) -> EntryKey:
    """Return `key` unchanged. Raises `DamagedLibraryPartError` if it is invalid.

    A key that contains a name such as `..` is invalid, because it could name a file outside the
    mirror.
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


def _parse_vector_part_table_of_contents(
    contents: dict[str, Any], table: bytes
) -> PublishedVectorPartTableOfContents:
    model, dimension, count = contents["model"], contents["dimension"], contents["count"]
    if type(count) is not int or count * HASH_BYTES != len(table):
        raise DamagedLibraryPartError("the number of its vectors is wrong")
    if type(dimension) is not int or not 1 <= dimension <= 65_536 or not isinstance(model, str):
        raise DamagedLibraryPartError("it has vectors of an invalid size")
    hashes = [table[at : at + HASH_BYTES] for at in range(0, len(table), HASH_BYTES)]
    return PublishedVectorPartTableOfContents(model, dimension, hashes)


def read_entry_from_part(
    data: bytes, contents_bytes: int, entry: TextPartTableOfContentsEntry
) -> bytes:
    """Return the contents of an entry's file. `data` is the part that contains it. Raises `DamagedLibraryPartError`."""
    start = contents_bytes + entry.start
    found = decompress_to_known_size(data[start : start + entry.length], entry.size)
    if sha256(found).hexdigest() != entry.checksum:
        raise DamagedLibraryPartError(f"the entry {'/'.join(entry.key[1:])} has a wrong checksum")
    return found


def read_vectors_of_part(
    data: bytes, contents_bytes: int, contents: PublishedVectorPartTableOfContents
) -> list[bytes]:
    """Return the vectors in a part, each as a byte string of 16-bit numbers. Raises `DamagedLibraryPartError`."""
    import numpy as np

    row = 2 * contents.dimension
    body = data[contents_bytes:]
    if len(body) != row * len(contents.hashes):
        raise DamagedLibraryPartError("its vectors are truncated")
    if not np.isfinite(np.frombuffer(body, dtype="<f2")).all():
        raise DamagedLibraryPartError("a vector has a value that is not finite")
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
) -> PublishedTextPartTableOfContents | PublishedVectorPartTableOfContents:
    """Parse the table of contents of a part. Raises `DamagedLibraryPartError`.

    `where` is the URI of the part, for messages.
    """
    try:
        contents = decode_table_of_contents(data)
    except DamagedLibraryPartError as error:
        raise DamagedLibraryPartError(error.message, where=where, hint=REPAIR_HINT) from error
    except (ValueError, KeyError, TypeError, struct.error, zlib.error, RecursionError) as error:
        message = f"its table of contents is invalid ({type(error).__name__})"
        raise DamagedLibraryPartError(message, where=where, hint=REPAIR_HINT) from error
    if isinstance(contents, PublishedTextPartTableOfContents) != (part.kind == "texts"):
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


class UnusableLibraryManifestError(KbtuiError):
    """The manifest of a library cannot be used: it is damaged or not a manifest, or has a wrong signature or version."""


class UnsupportedManifestFormatError(UnusableLibraryManifestError):
    """The manifest has a format that this version of kbtui cannot read."""


@dataclass(frozen=True)
class PublishedTopic:
    """A topic of a library."""

    id: str
    title: str | None = None
    introduction: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class VectorTableVersion:
    """One version of the published table, which contains a library's vectors in LanceDB.

    The table can be older than the manifest, and can therefore lack the vectors of some passages. A
    reader makes these vectors from the vector parts in `later_parts`.

    `dimension` is the length of the vectors. `written_at` is the time at which the version was
    written, by the store's clock. If a table is deleted and written again, `written_at` tells the
    two tables apart, because their versions can have the same number. `whole_version` is the
    LanceDB version from before the obsolete rows were deleted. The next version is based on
    `whole_version`, because LanceDB rewrites a file when more than a tenth of its rows are deleted.
    """

    version: int
    dimension: int
    written_at: float
    whole_version: int
    later_parts: list[str] = field(default_factory=list)

    @property
    def key_in_retired_objects(self) -> str:
        """The key of this version of the table in `LibraryManifest.retired`."""
        return f"{_TABLE_VERSION_PREFIX}{self.version}"


@dataclass(frozen=True)
class LibraryManifest:
    """One version of a library.

    * `number` grows with each version.
    * `published_at` is a time in ISO format by the publisher's clock.
    * `commit` is the current Git commit of the published workspace.
    * `chunking` identifies how texts are split into passages.
    * `model` identifies the model of the vectors.
    * `parts` are in the order in which they apply: entries of a later part replace those of earlier
      parts.
    * `retired` contains the parts and table versions that this version no longer needs. Each is
      mapped to the time, by the store's clock, at which it became unneeded.
    * `table` is the version of the published table, if there is one.
    """

    number: int
    name: str
    published_at: str
    commit: str | None
    kbtui: str
    chunking: int
    model: str | None
    topics: list[PublishedTopic]
    parts: list[LibraryPartReference]
    retired: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    table: VectorTableVersion | None = None
    format: int = MANIFEST_FORMAT

    @property
    def vector_parts(self) -> list[LibraryPartReference]:
        """The vector parts, in order."""
        return [part for part in self.parts if part.kind == "vectors"]

    @property
    def vector_bytes(self) -> int:
        """The total size of the vector parts."""
        return sum(part.size for part in self.vector_parts)

    def list_vector_parts_supplementing_table(self) -> list[LibraryPartReference]:
        """Return the parts that contain the vectors that the published table lacks."""
        names = self.table.later_parts if self.table else []
        return [part for part in self.vector_parts if part.name in names]

    def list_needed_table_versions(self) -> list[int]:
        """Return the table versions that readers of this manifest or of a recent one need."""
        names = [*self.retired, *([self.table.key_in_retired_objects] if self.table else [])]
        numbers = (name.removeprefix(_TABLE_VERSION_PREFIX) for name in names)
        return [int(number) for number in numbers if number.isdecimal()]


def encode_and_sign_manifest(manifest: LibraryManifest, key: Ed25519PrivateKey | None) -> bytes:
    """Return the bytes of a manifest file, signed with `key` unless `key` is None."""
    text = json.dumps(asdict(manifest), separators=(",", ":"), sort_keys=True)
    signature = base64.b64encode(key.sign(text.encode())).decode() if key else None
    return json.dumps({"manifest": text, "signature": signature}).encode()


def parse_and_verify_manifest(data: bytes, where: str, key: str = "") -> LibraryManifest:
    """Parse a manifest file, and verify its signature if the public key `key` is given.

    Raises `UnusableLibraryManifestError`.
    """
    try:
        file = json.loads(data)
        text, signature = file["manifest"], file["signature"]
        if not isinstance(text, str):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnusableLibraryManifestError(
            "this is not the manifest of a published library",
            where=where,
            hint=f"check the URI; {_DAMAGED_HINT}",
        ) from error
    if key:
        _verify_signature(text, signature, key, where)
    try:
        return _parse_manifest_text(text, where)
    except KbtuiError as error:
        kind = (
            type(error)
            if isinstance(error, UnusableLibraryManifestError)
            else UnusableLibraryManifestError
        )
        hint = error.hint or _DAMAGED_HINT
        raise kind(error.message, where=where, hint=hint) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableLibraryManifestError(
            f"the manifest is damaged ({type(error).__name__})", where=where, hint=_DAMAGED_HINT
        ) from error


def _parse_manifest_text(text: str, where: str) -> LibraryManifest:
    values: dict[str, Any] = json.loads(text)
    if values["format"] != MANIFEST_FORMAT:
        raise UnsupportedManifestFormatError(
            f"the library has the format {values['format']!r}, and this kbtui reads {MANIFEST_FORMAT}",
            hint="install the version of kbtui that the team publishes with",
        )
    if len(values["parts"]) > MAX_PARTS or len(values["topics"]) > MAX_TOPICS:
        raise UnusableLibraryManifestError("the library has too many parts or topics")
    parts = [LibraryPartReference(**part) for part in values.pop("parts")]
    topics = [PublishedTopic(**topic) for topic in values.pop("topics")]
    for part in parts:
        numbers = (part.size, part.contents_bytes)
        if not all(type(one) is int and one >= 0 for one in numbers):
            raise UnusableLibraryManifestError("a part has an invalid size")
        if part.size > MAX_PART_BYTES or part.contents_bytes > min(part.size, MAX_CONTENTS_BYTES):
            raise UnusableLibraryManifestError("a part is too large")
        if not _HEX.fullmatch(part.name) or not _HEX.fullmatch(part.contents_checksum):
            raise UnusableLibraryManifestError("a part has an invalid name")
        if part.kind not in ("texts", "vectors"):
            raise UnusableLibraryManifestError("a part is of an unknown kind")
    for topic in topics:
        validate_entry_key(("subject", topic.id, "x"))
        texts = (topic.title, topic.introduction, topic.description)
        if not all(one is None or isinstance(one, str) for one in texts):
            raise UnusableLibraryManifestError(
                "the title, introduction or description of a topic is not text"
            )
    table = values.pop("table")
    if table is not None:
        table = VectorTableVersion(
            int(table["version"]),
            int(table["dimension"]),
            float(table["written_at"]),
            int(table.get("whole_version", table["version"])),
            list(table["later_parts"]),
        )
        if not 1 <= table.dimension <= 65_536 or not set(table.later_parts) <= {
            part.name for part in parts if part.kind == "vectors"
        }:
            raise UnusableLibraryManifestError("the table of vectors is invalid")
    found = LibraryManifest(parts=parts, topics=topics, table=table, **values)
    if (
        type(found.number) is not int
        or type(found.chunking) is not int
        or not isinstance(found.name, str)
        or not isinstance(found.published_at, str)
        or not isinstance(found.commit, str | None)
        or not isinstance(found.model, str | None)
        or not isinstance(found.retired, dict)
        or not isinstance(found.counts, dict)
    ):
        raise UnusableLibraryManifestError("the manifest has values of wrong types")
    return found


def _verify_signature(text: str, signature: object, key: str, where: str) -> None:
    hint = "ask the person who publishes the library whether the key in kb-library.toml has changed"
    if not isinstance(signature, str):
        raise UnusableLibraryManifestError(
            "the library is not signed, but this workspace has a key for it", where=where, hint=hint
        )
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
    except (ValueError, binascii.Error) as error:
        raise ConfigError(
            "the value of `key` is not a public key",
            where=LIBRARY_FILE,
            hint="copy the public key that `kbtui publish --new-key` printed",
        ) from error
    try:
        public.verify(base64.b64decode(signature, validate=True), text.encode())
    except (InvalidSignature, ValueError, binascii.Error) as error:
        raise UnusableLibraryManifestError(
            "the library is not signed with the key of this workspace", where=where, hint=hint
        ) from error


def parse_private_key(text: str) -> Ed25519PrivateKey:
    """Parse a private key in base64. Raises `UsageError`."""
    try:
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error) as error:
        raise UsageError("the value is not a private key", where=PUBLISH_KEY_VARIABLE) from error


def check_key_pair(private: Ed25519PrivateKey | None, public: str) -> None:
    """Raise `UsageError` if the public key cannot verify what the private key signs."""
    if public and private is None:
        raise UsageError(
            f"this workspace has a key for its library, but {PUBLISH_KEY_VARIABLE} is not set, so readers would refuse the library",
            where=LIBRARY_FILE,
            hint=f"set {PUBLISH_KEY_VARIABLE} to the private key, or remove `key`",
        )
    if (
        public
        and private is not None
        and _encode_base64(private.public_key().public_bytes_raw()) != public
    ):
        raise UsageError(
            f"the private key in {PUBLISH_KEY_VARIABLE} does not match the public key of this workspace, so readers would refuse the library",
            where=LIBRARY_FILE,
            hint="in kb-library.toml, set the public key that belongs to this private key; `kbtui publish --new-key` printed both",
        )


def generate_key_pair() -> tuple[str, str]:
    """Return a new private key and its public key, both in base64."""
    private = Ed25519PrivateKey.generate()
    return _encode_base64(private.private_bytes_raw()), _encode_base64(
        private.public_key().public_bytes_raw()
    )


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
