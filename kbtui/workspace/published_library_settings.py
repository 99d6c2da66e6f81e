"""The published library of a workspace: its settings in `kb-library.toml`, and its mirror on this machine.

`kb-library.toml` specifies the library that a workspace subscribes to, and the entries to publish.
The file is part of the repository, so it contains no credentials. The credentials are in the
store's own environment variables.

The mirror is a separate workspace in the data directory, with the published subjects and
conversations as files. `kbtui/publishing/published_library_pull.py` writes the mirror. A workspace that
subscribes to the library has, in addition to its own entries, those that are only in the mirror.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from kbtui.errors import ConfigError, KbtuiError, UsageError, suggest_similar_key
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.paths import (
    KBTUI_DIRECTORY,
    LIBRARY_FILE,
    expand_user,
    get_kbtui_data_directory,
    sha256,
)

if TYPE_CHECKING:
    from kbtui.workspace import Workspace

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)|(?:s3|gs|az|file):", re.IGNORECASE)
FACTS_FILE = "published.json"
"""The file in the mirror's `.kbtui` with the facts about the mirrored version."""


class LibrarySubscriptionSettings(NamedTuple):
    """The table `[library]`.

    `remote` is the URI of the published library, or "". `key` is the public key that verifies the signature
    of the library's manifest, or "". A library with more than `mirror_megabytes` of vectors is mirrored
    without the vectors. Searches then query the published table, if the library has one.
    """

    remote: str = ""
    key: str = ""
    refresh_minutes: float = 15.0
    mirror_megabytes: int = 4000


class PublishSettings(NamedTuple):
    """The table `[publish]`, which selects the entries that may be published.

    * `topics` contains the ids of topics; `*` means all.
    * `conversations` contains ids of conversations, `label:KEY`, `label:KEY=VALUE`, or `*` for all;
      by default, no conversation is published.
    * `grace_hours` is the number of hours after which unneeded parts are deleted.
    * If `vector_table` is true, the vectors are also published as a LanceDB table, for readers that
      do not mirror them.
    """

    topics: tuple[str, ...] = ("*",)
    conversations: tuple[str, ...] = ()
    grace_hours: float = 24.0
    vector_table: bool = False


class PublishedLibrarySettings(NamedTuple):
    """The tables of `kb-library.toml`. `path` is the path of the file, which may not exist."""

    path: Path
    library: LibrarySubscriptionSettings = LibrarySubscriptionSettings()
    publish: PublishSettings = PublishSettings()


_Table = TypeVar("_Table", LibrarySubscriptionSettings, PublishSettings)


def get_library_settings_path(workspace: Workspace) -> Path:
    """Return the path of `kb-library.toml`, which may not exist."""
    return workspace.config_directory / LIBRARY_FILE


def load_library_settings(workspace: Workspace) -> PublishedLibrarySettings:
    """Read `kb-library.toml`. Raises `ConfigError`."""
    path = get_library_settings_path(workspace)
    if not path.is_file():
        return PublishedLibrarySettings(path)
    from kbtui.workspace.jp_config import load_config_file

    data = load_config_file(path)
    tables = {"library": LibrarySubscriptionSettings(), "publish": PublishSettings()}
    if unknown := [key for key in data if key not in tables]:
        hint = suggest_similar_key(str(unknown[0]), tables)
        raise ConfigError(f"unknown table {unknown[0]!r}", where=str(path), hint=hint)
    return PublishedLibrarySettings(
        path,
        _parse_library_settings_table(
            path, "library", data.get("library", {}), LibrarySubscriptionSettings()
        ),
        _parse_library_settings_table(path, "publish", data.get("publish", {}), PublishSettings()),
    )


def _parse_library_settings_table(path: Path, name: str, table: Any, defaults: _Table) -> _Table:
    """Return `defaults`, overridden by the values in `table`."""
    where = f"{path}: {name}"
    if not isinstance(table, dict):
        raise ConfigError("must be a table", where=where)
    known = set(defaults._fields)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            hint = suggest_similar_key(str(key), known)
            raise ConfigError(f"unknown key {key!r}", where=where, hint=hint)
        values[key] = _check_and_convert_library_setting(
            f"{where}.{key}", value, getattr(defaults, key)
        )
    return type(defaults)(**values)


def _check_and_convert_library_setting(where: str, value: Any, default: object) -> Any:
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigError("must be a list of strings", where=where)
        return tuple(value)
    if isinstance(default, str):
        if not isinstance(value, str):
            raise ConfigError("must be a string", where=where)
        return value
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ConfigError("must be true or false", where=where)
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ConfigError("must be a number that is not negative", where=where)
    return type(default)(value)  # type: ignore[call-arg]


def is_library_uri(text: str) -> bool:
    """Return whether `text` is a URI such as `s3://bucket/path`, and not the path of a directory."""
    return _URI.match(text) is not None


def normalize_library_uri(text: str, base: Path | None = None) -> str:
    """Return a URI without a trailing slash, or the absolute path of a directory.

    A relative path starts from `base`, by default the current directory. The case of a URI's scheme
    does not matter. Raises `UsageError` for an incomplete URI such as `s3:`, so that it is not
    taken for the path of a new directory.
    """
    if (match := _SCHEME.match(text)) is not None:
        scheme, rest = (match[1] or "").lower(), text[match.end() :]
        if scheme == "file" and rest.startswith("///"):
            text = unquote(rest[2:])
        elif scheme not in ("", "file") and re.match(r"//[^/]", rest):
            return f"{scheme}:{rest.rstrip('/')}"
        else:
            raise UsageError(
                "the URI is incomplete",
                where=text,
                hint="write s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, file:///PATH, or the path of a directory",
            )
    return os.path.normpath(os.path.join(base or os.getcwd(), expand_user(text)))  # noqa: PTH109, PTH118


class PublishedLibraryMirrorPaths(NamedTuple):
    """The place of a library's mirror. The mirror exists after the first pull."""

    uri: str

    @property
    def directory(self) -> Path:
        """The directory of the mirror and its files."""
        key = sha256(self.uri.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return Path(get_kbtui_data_directory(), "published", key)

    @property
    def workspace_root(self) -> Path:
        """The root of the workspace with the published files."""
        return self.directory / "library"

    @property
    def topics_directory(self) -> Path:
        """The directory that contains a directory for each topic."""
        return self.workspace_root / "topics"

    @property
    def conversations_directory(self) -> Path:
        """The directory with one file for each conversation."""
        return self.workspace_root / KBTUI_DIRECTORY / "conversations"

    @property
    def facts_file(self) -> Path:
        """The file with the facts about the mirrored version.

        It exists only if there is a mirror.
        """
        return self.workspace_root / KBTUI_DIRECTORY / FACTS_FILE

    @property
    def database(self) -> Path:
        """The SQLite file with the published vectors, and with the state of the mirror."""
        return self.directory / "mirror.sqlite"

    def exists(self) -> bool:
        """Return whether the library was ever pulled into this mirror."""
        return self.facts_file.is_file()

    def read_mirror_facts(self) -> dict[str, Any]:
        """Return the facts about the mirrored version; {} if there is no mirror or it is damaged."""
        try:
            facts = json.loads(self.facts_file.read_bytes())
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}


def find_mirror_of_subscribed_library(workspace: Workspace) -> PublishedLibraryMirrorPaths | None:
    """Return the mirror of the library that a workspace subscribes to; None if it has no subscription.

    The mirror may not exist yet. If the workspace is itself a mirror, the result is this mirror.
    Raises `ConfigError`.
    """
    if (own := find_mirror_with_root(workspace.root)) is not None:
        return own
    remote = load_library_settings(workspace).library.remote
    try:
        return (
            PublishedLibraryMirrorPaths(normalize_library_uri(remote, workspace.root))
            if remote
            else None
        )
    except UsageError as error:
        where = f"{get_library_settings_path(workspace)}: library.remote"
        raise ConfigError(f"{error.message}: {remote}", where=where, hint=error.hint) from error


def find_existing_mirror_of_subscribed_library(
    workspace: Workspace,
) -> PublishedLibraryMirrorPaths | None:
    """Return the mirror of a workspace's subscribed library; None if the mirror does not exist.

    Never raises: `kbtui doctor` reports mistakes in the settings.
    """
    try:
        mirror = find_mirror_of_subscribed_library(workspace)
    except (KbtuiError, OSError):
        return None
    return mirror if mirror is not None and mirror.exists() else None


def find_mirror_with_root(root: Path) -> PublishedLibraryMirrorPaths | None:
    """Return the mirror with this root, or None if the directory is not the root of a mirror."""
    if root.name != "library" or root.parent.parent.name != "published":
        return None
    try:
        uri = json.loads((root / KBTUI_DIRECTORY / FACTS_FILE).read_bytes())["uri"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    mirror = PublishedLibraryMirrorPaths(str(uri))
    return mirror if os.path.realpath(mirror.workspace_root) == os.path.realpath(root) else None
