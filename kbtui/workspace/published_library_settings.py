"""Reads `kb-library.toml`, which names the library that a workspace subscribes to, and the entries to publish.

The file is part of the repository, so it contains no credentials. The store's own environment variables
have the credentials.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from kbtui.errors import ConfigError, suggest_similar_key
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.paths import LIBRARY_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.workspace import Workspace


class LibrarySubscriptionSettings(NamedTuple):
    """The table `[library]`.

    `remote` is the URI of the published library, or "". `key` is the public key that verifies the signature
    of the library's manifest, or "". A library with more than `mirror_megabytes` of vectors is mirrored
    without the vectors. Searches then query the library's table of vectors, if the library has such a table.
    """

    remote: str = ""
    key: str = ""
    refresh_minutes: float = 15.0
    mirror_megabytes: int = 4000


class PublishSettings(NamedTuple):
    """The table `[publish]`, which names the entries that may be published.

    * `topics` has the ids of topics; `*` means all.
    * `conversations` has ids of conversations, `label:KEY`, `label:KEY=VALUE`, or `*` for all; by
      default, no conversation is published.
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
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_library_uri(text: str) -> bool:
    """Return whether a text is a URI such as `s3://bucket/path`, and not the path of a directory."""
    return _URI.match(text) is not None


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
        _parse_settings_table(
            path, "library", data.get("library", {}), LibrarySubscriptionSettings()
        ),
        _parse_settings_table(path, "publish", data.get("publish", {}), PublishSettings()),
    )


def _parse_settings_table(path: Path, name: str, table: Any, defaults: _Table) -> _Table:
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
