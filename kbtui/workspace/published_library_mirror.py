"""The mirror of a published library on this machine: its directories, and facts about the mirrored version.

The mirror is a separate workspace in the data directory, with the published subjects and
conversations as files. `kbtui/publishing/published_library_pull.py` writes the mirror. A workspace that
subscribes to the library has, in addition to its own entries, those that are only in the mirror.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.paths import KBTUI_DIRECTORY, expand_user, get_data_home, sha256
from kbtui.workspace.published_library_settings import (
    get_library_settings_path,
    load_library_settings,
)

if TYPE_CHECKING:
    from kbtui.workspace import Workspace

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)|(?:s3|gs|az|file):", re.IGNORECASE)
FACTS_FILE = "published.json"
"""The file in the mirror's `.kbtui` with the facts about the mirrored version."""


def normalize_library_uri(text: str, base: Path | None = None) -> str:
    """Return a URI without a slash at its end, or the absolute path of a directory.

    A relative path begins at `base`, by default at the current directory. The case of a URI's scheme
    does not matter. Raises `UsageError` for an incomplete URI such as `s3:`, which
    would otherwise be the path of a new directory.
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


class PublishedLibraryMirror(NamedTuple):
    """The place of a library's mirror. The mirror exists after the first pull."""

    uri: str

    @property
    def directory(self) -> Path:
        """The directory of the mirror and its files."""
        key = sha256(self.uri.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return Path(get_data_home(), "published", key)

    @property
    def root(self) -> Path:
        """The root of the workspace with the published files."""
        return self.directory / "library"

    @property
    def topics_directory(self) -> Path:
        """The directory that contains a directory for each topic."""
        return self.root / "topics"

    @property
    def conversations_directory(self) -> Path:
        """The directory with one file for each conversation."""
        return self.root / KBTUI_DIRECTORY / "conversations"

    @property
    def facts_file(self) -> Path:
        """The file with the facts about the mirrored version.

        It exists only if there is a mirror.
        """
        return self.root / KBTUI_DIRECTORY / FACTS_FILE

    @property
    def database(self) -> Path:
        """The SQLite file with the published vectors, and with the state of the mirror."""
        return self.directory / "mirror.sqlite"

    def exists(self) -> bool:
        """Return whether the library has been pulled."""
        return self.facts_file.is_file()

    def read_mirror_facts(self) -> dict[str, Any]:
        """Return the facts about the mirrored version; {} if there is no mirror or it is damaged."""
        try:
            facts = json.loads(self.facts_file.read_bytes())
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}


def get_subscribed_mirror(workspace: Workspace) -> PublishedLibraryMirror | None:
    """Return the mirror of the library that a workspace subscribes to; None without a subscription.

    The mirror may not exist yet. If the workspace is itself a mirror, the result is this mirror.
    Raises `ConfigError`.
    """
    if (own := get_mirror_of_root(workspace.root)) is not None:
        return own
    remote = load_library_settings(workspace).library.remote
    try:
        return (
            PublishedLibraryMirror(normalize_library_uri(remote, workspace.root))
            if remote
            else None
        )
    except UsageError as error:
        where = f"{get_library_settings_path(workspace)}: library.remote"
        raise ConfigError(f"{error.message}: {remote}", where=where, hint=error.hint) from error


def find_library_mirror(workspace: Workspace) -> PublishedLibraryMirror | None:
    """Return the mirror of a workspace's subscribed library; None if the mirror does not exist.

    Never raises: `kbtui doctor` reports mistakes in the settings.
    """
    try:
        mirror = get_subscribed_mirror(workspace)
    except (KbtuiError, OSError):
        return None
    return mirror if mirror is not None and mirror.exists() else None


def get_mirror_of_root(root: Path) -> PublishedLibraryMirror | None:
    """Return the mirror with this root, or None if the directory is not the root of a mirror."""
    if root.name != "library" or root.parent.parent.name != "published":
        return None
    try:
        uri = json.loads((root / KBTUI_DIRECTORY / FACTS_FILE).read_bytes())["uri"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    mirror = PublishedLibraryMirror(str(uri))
    return mirror if os.path.realpath(mirror.root) == os.path.realpath(root) else None
