"""The manifest of a published library: the parts of its current version, and a signature.

The manifest is a small JSON file that is replaced in one step, so readers never see a mixture of
versions. The file is a JSON object that contains the manifest, as a string, and its signature.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.publishing.published_library_part_format import (
    MAX_CONTENTS_BYTES,
    MAX_PART_BYTES,
    LibraryPartReference,
    validate_entry_key,
)
from kbtui.workspace.paths import LIBRARY_FILE, PUBLISH_KEY_VARIABLE

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
    """The LanceDB table with the vectors of a library: the table's version, and the length of its vectors.

    The table can be older than the manifest, and lack vectors of passages. A reader makes these
    vectors from the parts of vectors that `later_parts` names. `written_at` is the time at which
    the version was written, by the store's clock. It distinguishes a table that was deleted and
    written again from the one before, because the versions of both can have the same number.
    `whole_version` is the version that still has the obsolete rows. The next version is made from
    it, because LanceDB writes a file again if more than a tenth of its rows is deleted.
    """

    version: int
    dimension: int
    written_at: float
    whole_version: int
    later_parts: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of this version of the table in `LibraryManifest.retired`."""
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
    * `retired` contains the parts, and the versions of the table of vectors, that this version no
      longer needs. It maps each of them to the time at which it became unneeded, by the store's
      clock.
    * `table` is the table of vectors, if there is one.
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
        """The parts with vectors, in order."""
        return [part for part in self.parts if part.kind == "vectors"]

    @property
    def vector_bytes(self) -> int:
        """The total size of the parts with vectors."""
        return sum(part.size for part in self.vector_parts)

    def list_vector_parts_beside_table(self) -> list[LibraryPartReference]:
        """Return the parts with the vectors that the table of vectors lacks."""
        names = self.table.later_parts if self.table else []
        return [part for part in self.vector_parts if part.name in names]

    def list_needed_table_versions(self) -> list[int]:
        """Return the table versions needed by the readers of this manifest or of a recent one."""
        names = [*self.retired, *([self.table.name] if self.table else [])]
        numbers = (name.removeprefix(_TABLE_VERSION_PREFIX) for name in names)
        return [int(number) for number in numbers if number.isdecimal()]


def encode_manifest(manifest: LibraryManifest, key: Ed25519PrivateKey | None) -> bytes:
    """Return the bytes of a manifest file, signed with `key` unless `key` is None."""
    text = json.dumps(asdict(manifest), separators=(",", ":"), sort_keys=True)
    signature = base64.b64encode(key.sign(text.encode())).decode() if key else None
    return json.dumps({"manifest": text, "signature": signature}).encode()


def parse_manifest(data: bytes, where: str, key: str = "") -> LibraryManifest:
    """Parse the file of a manifest, and verify its signature if a public key is given.

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
        raise UsageError("this is not a private key", where=PUBLISH_KEY_VARIABLE) from error


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
