"""Reads and writes the store of a published library: object storage, or a directory.

This is the only module that imports obstore, the Python binding of the library with which LanceDB
accesses object storage. The credentials are in the store's environment variables, such as
AWS_ACCESS_KEY_ID.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.store import LocalStore, MemoryStore, from_url

from kbtui.errors import IndexUnavailable, KbtuiError, UsageError
from kbtui.file_reading_and_writing import write_file_atomically
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.published_library_settings import is_library_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMES = ("s3", "gs", "az")
MANIFEST_NAME = "manifest.json"
_CLOCK_NAME = "clock"
_LOCK_NAME = "publish.lock"
_RETRY_SECONDS = 60
_MAX_MANIFEST_BYTES = 1 << 30
"""A file with more bytes than this is not a manifest. Readers have the lower limit `MAX_MANIFEST_BYTES`."""


class LibraryStoreError(KbtuiError):
    """The store of a published library refused a request, or cannot be reached."""


class MissingLibraryStoreError(LibraryStoreError):
    """There is no such bucket, container or directory."""

    exit_code = 1


class ManifestReplacedError(LibraryStoreError):
    """Another writer has replaced the manifest since it was read."""


class StoredObjectVersion(NamedTuple):
    """Identifies a version of an object: by its `version` in Google Cloud Storage, by its `e_tag` elsewhere."""

    e_tag: str | None
    version: str | None


class FetchedStoreObject(NamedTuple):
    """The bytes of an object, and the tag that identifies this version of the object."""

    data: bytes
    tag: StoredObjectVersion


class ListedStoreObject(NamedTuple):
    """An object in a listing. `modified` is in Unix seconds, by the store's clock."""

    name: str
    size: int
    modified: float


class LibraryStore:
    """The objects under one URI. All methods can raise `LibraryStoreError`."""

    def __init__(self, uri: str, *, create: bool = False, is_missing_allowed: bool = False) -> None:
        """Open the store. If `create` is true, a missing directory is created.

        If `is_missing_allowed` is true, a missing directory is not created, and is treated as empty.

        Raises `UsageError` for a URI of an unknown kind, and `MissingLibraryStoreError` for a missing directory.
        """
        self.uri = uri
        self._directory: Path | None = None
        if not is_library_uri(uri):
            self._directory = Path(uri)
            if is_missing_allowed and not os.path.lexists(uri):
                self._store: Any = MemoryStore()
                return
            if not create and not self._directory.is_dir():
                hint = "check the path, and that the share is mounted"
                raise MissingLibraryStoreError("there is no such directory", where=uri, hint=hint)
            with self._convert_store_errors():
                self._store = LocalStore(uri, mkdir=create)
            return
        if uri.partition(":")[0] not in SCHEMES:
            hint = f"use a directory, or a URI that begins with {', '.join(f'{s}://' for s in SCHEMES)}"
            raise UsageError("this kind of store is not supported", where=uri, hint=hint)
        with self._convert_store_errors():
            self._store = from_url(
                uri, retry_config={"retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
            )

    def read_object(self, name: str, max_bytes: int) -> FetchedStoreObject | None:
        """Return an object, or None if it does not exist.

        Raises `LibraryStoreError` if the object is larger than `max_bytes`.
        """
        with self._convert_store_errors(name):
            try:
                found = obstore.get(self._store, name)
                if found.meta["size"] > max_bytes:
                    raise LibraryStoreError(
                        f"the object is larger than {max_bytes:,} bytes",
                        where=self.format_object_uri(name),
                    )
                tag = StoredObjectVersion(found.meta["e_tag"], found.meta["version"])
                return FetchedStoreObject(bytes(found.bytes()), tag)
            except FileNotFoundError as error:
                if _MISSING_BUCKET.search(str(error)):
                    raise
                return None

    def read_object_beginning(self, name: str, length: int) -> bytes | None:
        """Return the first `length` bytes of an object, or None if the object does not exist."""
        with self._convert_store_errors(name):
            try:
                return bytes(obstore.get_range(self._store, name, start=0, length=length))
            except FileNotFoundError:
                return None

    def write_immutable_object(self, name: str, data: bytes) -> None:
        """Write an object that never changes, because its name is a hash of its content."""
        with self._convert_store_errors(name):
            obstore.put(self._store, name, data, use_multipart=len(data) > 32 << 20)

    def replace_manifest(self, data: bytes, tag: StoredObjectVersion | None) -> None:
        """Replace the manifest in one step, provided that it still has the tag `tag`.

        If `tag` is None, there must be no manifest yet. Raises `ManifestReplacedError` if another writer was faster.
        """
        with self._convert_store_errors(MANIFEST_NAME):
            try:
                if self._directory is not None:
                    self._replace_manifest_in_directory_store(data, tag)
                else:
                    mode: Any = "create"
                    if tag is not None:
                        mode = {key: value for key, value in tag._asdict().items() if value}
                    obstore.put(self._store, MANIFEST_NAME, data, mode=mode)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
                # A request whose answer was lost is sent again, and then fails although the first one succeeded.
                found = self.read_object(MANIFEST_NAME, _MAX_MANIFEST_BYTES)
                if found is None or found.data != data:
                    raise ManifestReplacedError(
                        "another publish has replaced the manifest since this publish began",
                        where=self.format_object_uri(MANIFEST_NAME),
                        hint="run the command again, and let only one job publish at a time",
                    ) from error

    def _replace_manifest_in_directory_store(
        self, data: bytes, tag: StoredObjectVersion | None
    ) -> None:
        """Replace the manifest in a store that is a directory. obstore cannot compare tags there."""
        assert self._directory is not None
        with (self._directory / _LOCK_NAME).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self.read_object(MANIFEST_NAME, _MAX_MANIFEST_BYTES)
            if (found.tag if found else None) != tag:
                raise exceptions.PreconditionError("the manifest was replaced")
            write_file_atomically(self._directory / MANIFEST_NAME, data)
            # Other people must be able to read the file, but `write_file_atomically` makes private files.
            (self._directory / MANIFEST_NAME).chmod(0o666 & ~_read_umask())

    def check_conditional_put_and_get_time(self) -> float:
        """Check that the store refuses to create an object twice; return the store's time, in Unix seconds.

        A store that does not refuse would let two writers overwrite each other's manifests.
        """
        with self._convert_store_errors(_CLOCK_NAME):
            obstore.put(self._store, _CLOCK_NAME, b"kbtui\n")
            now: float = obstore.head(self._store, _CLOCK_NAME)["last_modified"].timestamp()
            try:
                obstore.put(self._store, _CLOCK_NAME, b"kbtui\n", mode="create")
            except exceptions.AlreadyExistsError:
                return now
        raise LibraryStoreError(
            "the store ignores conditions on writes, so two publishes could overwrite each other",
            where=self.uri,
            hint="use a store with conditional puts (If-None-Match and If-Match), or a directory",
        )

    def list_objects(self, prefix: str) -> list[ListedStoreObject]:
        """Return the objects whose names begin with the path `prefix`."""
        with self._convert_store_errors(prefix):
            return [
                ListedStoreObject(meta["path"], meta["size"], meta["last_modified"].timestamp())
                for batch in obstore.list(self._store, prefix)
                for meta in batch
            ]

    def delete_objects(self, names: Iterable[str]) -> None:
        """Delete objects; those that do not exist are ignored."""
        for name in names:
            with self._convert_store_errors(name), suppress(FileNotFoundError):
                obstore.delete(self._store, name)

    def format_object_uri(self, name: str) -> str:
        """Return the URI of an object, for messages."""
        return f"{self.uri}/{name}"

    @contextmanager
    def _convert_store_errors(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except KbtuiError:
            raise
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise
        except (exceptions.BaseError, OSError, ValueError, NotImplementedError) as error:
            raise _make_store_error(
                error, self.format_object_uri(name) if name else self.uri
            ) from error


@contextmanager
def convert_table_errors(where: str) -> Iterator[None]:
    """Turn LanceDB's errors about a published table into `LibraryStoreError`."""
    try:
        yield
    except (IndexUnavailable, OSError, ValueError, RuntimeError) as error:
        raise _make_store_error(error, where) from error


def _read_umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


_MISSING_BUCKET = re.compile(r"NoSuchBucket|The specified bucket does not|ContainerNotFound")
_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_CAUSES = (
    (
        r"BadScheme",
        "the endpoint of the store begins with http://, so the connection would not be encrypted",
        "write https:// in AWS_ENDPOINT_URL, or set AWS_ALLOW_HTTP=true if you trust the network",
    ),
    (
        r"MissingAccount|Account must be specified",
        "the account is missing",
        "set AZURE_STORAGE_ACCOUNT_NAME",
    ),
    (
        r"RequestTimeTooSkewed|skewed|AuthenticationFailed.*time",
        "the clock of this machine is wrong, so the store refuses its signatures",
        "set the clock",
    ),
    (
        r"ExpiredToken|TokenExpired|token (?:has |is )?expired|Token.*expired",
        "the credentials have expired",
        "get new credentials, then run `kbtui engine stop` so that the engine uses them",
    ),
    (
        _MISSING_BUCKET,
        "there is no such bucket",
        "check the URI",
    ),
    (
        r"SlowDown|Too Many Requests|ServiceUnavailable|ServerBusy|status code: (?:503|429)",
        "the store refused requests because there were too many",
        "try again later",
    ),
    (
        r"NotImplemented|status code: 501|not (?:yet )?implemented|NotSupported",
        "the store lacks an operation that publishing needs, such as a conditional put",
        "use a store with conditional puts (If-None-Match and If-Match), or a directory",
    ),
    (
        r"AccessDenied|status code: 40[13]|Unauthenticated|InvalidAccessKeyId|SignatureDoesNotMatch|"
        r"AuthenticationFailed|AuthorizationFailure|Missing.*[Kk]ey|169\.254\.169\.254|metadata\.google",
        "permission denied, or there are no credentials",
        "set the store's own environment variables: {variables}",
    ),
    (
        r"status code: 5\d\d",
        "the store reported an internal error",
        "try again later",
    ),
    (
        # The settings `connect_timeout` and `retry_timeout` are in the text of many errors.
        r"(?i)error sending request|error trying to connect|[Cc]onnection (?:refused|reset|closed)|"
        r"dns error|failed to lookup|timed out|ConnectError|tcp connect|No route to host",
        "the store cannot be reached",
        "check the network; search continues with what is on this machine",
    ),
    (
        r"Table '.*' was not found|Version \d+ no longer exists",
        "the table of vectors is missing",
        "run `kbtui library pull`; if it is still missing, publish the library again",
    ),
    (r"No space left", "there is no space left", "free some space"),
    (r"Read-only file system", "the file system is read-only", "choose another directory"),
    (r"Permission denied", "permission denied", "check the permissions of the directory"),
)


def _make_store_error(error: BaseException, where: str) -> LibraryStoreError:
    """Return an error that tells the user why a request to the store failed."""
    text = str(error)
    for pattern, message, hint in _CAUSES:
        if re.search(pattern, text):
            names = _VARIABLES.get(where.partition(":")[0], _VARIABLES["s3"])
            kind = MissingLibraryStoreError if pattern is _MISSING_BUCKET else LibraryStoreError
            return kind(message, where=where, hint=hint.format(variables=names))
    line = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return LibraryStoreError(f"the request failed: {line[:300]}", where=where)
