"""Finds JP's conversation directories in both roots, live and archived."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.refs import is_jp_id, jp_conversation_id, jp_creation_time
from kbtui.workspace import Workspace, paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from kbtui.conversations.models import Presence

EVENTS, METADATA, BASE_CONFIG = "events.json", "metadata.json", "base_config.json"
_FILES = (METADATA, BASE_CONFIG, EVENTS)
_ARCHIVE, _TRASH = ".archive", ".trash"


@dataclass(slots=True)
class ConversationCopy:
    """One directory that holds a conversation, with the state of its files.

    `times` and `sizes` have the files that exist; `failure` is why they cannot be looked at.
    `parent` is the conversation in whose directory this one lies.
    """

    path: str
    local: bool
    archived: bool
    parent: str | None = None
    times: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    failure: str | None = None

    def stream_time(self) -> tuple[bool, int, bool]:
        """By this the copies of a stream compete: newest, ties to the user-local one.

        A copy without events never wins over one with them, where JP would only fail.
        """
        newest = max(self.times.get(EVENTS, 0), self.times.get(BASE_CONFIG, 0))
        return (EVENTS in self.times, newest, self.local)

    def metadata_time(self) -> tuple[int, bool]:
        """By this the copies of the metadata compete."""
        return (self.times.get(METADATA, 0), self.local)


@dataclass(slots=True)
class ConversationLocation:
    """All copies of one conversation in its partition; live wins over archived.

    `others` are copies in the archive of a conversation that is live.
    """

    id: str
    archived: bool
    copies: list[ConversationCopy]
    others: list[ConversationCopy]

    @property
    def created_at(self) -> datetime:
        """When it began, which its id says."""
        return jp_creation_time(self.id)

    @property
    def stream(self) -> ConversationCopy:
        """The copy whose events and base configuration are read."""
        copies = self.copies
        return copies[0] if len(copies) == 1 else max(copies, key=ConversationCopy.stream_time)

    @property
    def metadata(self) -> ConversationCopy:
        """The copy whose metadata is read; in the archive the workspace's comes first."""
        having = [copy for copy in self.copies if METADATA in copy.times] or self.copies
        if self.archived:
            return min(having, key=lambda copy: (copy.local, -copy.times.get(METADATA, 0)))
        return max(having, key=ConversationCopy.metadata_time)

    @property
    def has_events(self) -> bool:
        """Whether there are events to read."""
        return EVENTS in self.stream.times

    @property
    def presence(self) -> Presence:
        """In which roots it lies."""
        roots = {copy.local for copy in self.copies}
        if len(roots) == 2:
            return "projected"
        return "user_local" if True in roots else "external"

    @property
    def signature(self) -> str:
        """Changes whenever a file of it does: path, inode, size and time of all copies."""
        from hashlib import blake2b

        states = [state for copy in (*self.copies, *self.others) for state in copy.states]
        return blake2b(
            "\n".join(sorted(states)).encode("utf-8", "surrogateescape"), digest_size=12
        ).hexdigest()

    @property
    def clash(self) -> str | None:
        """Says that several directories of one root hold this id, None where none do."""
        names = [os.path.basename(copy.path) for copy in self.copies]  # noqa: PTH119
        doubled = len({copy.local for copy in self.copies}) < len(self.copies)
        if not doubled and not self.others:
            return None
        names += [f"{_ARCHIVE}/{os.path.basename(copy.path)}" for copy in self.others]  # noqa: PTH119
        chosen = os.path.basename(self.stream.path)  # noqa: PTH119
        return f"{len(names)} directories hold this id ({', '.join(names)}); {chosen} is read"


def find_places(
    workspace: Workspace, only: str | None = None
) -> tuple[list[ConversationLocation], list[tuple[str, str]]]:
    """Every conversation of the workspace, and the directories that are none, with the reason.

    With `only` the files of that conversation alone are looked at.
    """
    copies: dict[str, list[ConversationCopy]] = {}
    strays: list[tuple[str, str]] = []
    for root, local in _roots(workspace):
        for archived in (False, True):
            folder = f"{root}/{_ARCHIVE}" if archived else root
            names = _directories(workspace, folder, strays)
            if names is None:
                break  # its archive cannot be read either
            found: list[tuple[str, str | None]] = [(f"{folder}/{name}", None) for name in names]
            for path, parent in found:
                conversation = _id(os.path.basename(path))  # noqa: PTH119
                if conversation is None:
                    strays.append((path, "its name does not begin with a conversation's id"))
                    continue
                if only is None or only == conversation:
                    copies.setdefault(conversation, []).append(_look(path, local, archived, parent))
                found += [(nested, conversation) for nested in _nested(path)]
    places = []
    for conversation, having in copies.items():
        live = [copy for copy in having if not copy.archived]
        rest = [copy for copy in having if copy.archived]
        places.append(
            ConversationLocation(conversation, not live, live or rest, rest if live else [])
        )
    return places, strays


def _roots(workspace: Workspace) -> Iterator[tuple[str, bool]]:
    """The two roots; `storage` beside the second leads back to the first, and is left alone."""
    yield f"{workspace.jp}/conversations", False
    if workspace.user_dir is not None:
        yield f"{workspace.user_dir}/conversations", True


def conversation_folders(workspace: Workspace) -> set[Path]:
    """The directories that hold conversations, whether or not they exist."""
    return {
        Path(folder) for root, _ in _roots(workspace) for folder in (root, f"{root}/{_ARCHIVE}")
    }


def trashed(workspace: Workspace) -> dict[str, int]:
    """Where JP has moved conversations that it could not read, and how many each place holds."""
    counts = {}
    for root, _ in _roots(workspace):
        try:
            with os.scandir(f"{root}/{_TRASH}") as entries:
                counts[f"{root}/{_TRASH}"] = sum(entry.is_dir() for entry in entries)
        except OSError:
            continue
    return {path: count for path, count in counts.items() if count}


def _directories(
    workspace: Workspace, folder: str, strays: list[tuple[str, str]]
) -> list[str] | None:
    """The names of the directories in `folder`, without links that leave the workspace.

    None when `folder` exists and cannot be read; `strays` then has the reason.
    """
    if os.path.realpath(folder) != folder and not _is_inside(workspace, folder):
        strays.append((folder, _LEAVES))
        return None
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name[0] == "." or not _is_folder(entry, strays):
                    continue
                if entry.is_symlink() and not _is_inside(workspace, entry.path):
                    strays.append((entry.path, _LEAVES))
                else:
                    names.append(entry.name)
            return sorted(names)
    except FileNotFoundError:
        if not os.path.lexists(folder):
            return []
        strays.append((folder, "the link leads nowhere"))
    except OSError as error:
        strays.append((folder, (error.strerror or str(error)).lower()))
    return None


def _is_folder(entry: os.DirEntry[str], strays: list[tuple[str, str]]) -> bool:
    """Whether it is a directory, or leads to one; one bad link says nothing of the others."""
    try:
        return entry.is_dir()
    except OSError as error:
        strays.append((entry.path, (error.strerror or str(error)).lower()))
        return False


_LEAVES = "it is a link that leaves the workspace"


def _is_inside(workspace: Workspace, path: str) -> bool:
    """Whether a path leads to the workspace, JP's storage in it, or JP's user-local directory."""
    held = [workspace.root, workspace.jp, *([workspace.user_dir] if workspace.user_dir else [])]
    return any(f"{os.path.realpath(path)}/".startswith(f"{os.path.realpath(at)}/") for at in held)


def _id(name: str) -> str | None:
    """The id of the conversation whose directory has this name: its digits end at the first `-`."""
    digits = name.partition("-")[0]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 12:
        return None
    return jp_conversation_id(digits) if is_jp_id(int(digits)) else None


def _nested(path: str) -> list[str]:
    """The directories in a conversation's own that hold conversations, as a later JP has them."""
    try:
        # With two links it has no directories: most file systems count them, and the others have one.
        if os.stat(path).st_nlink == 2:  # noqa: PTH116
            return []
        with os.scandir(path) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name[0] != "." and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []  # what is wrong with it, looking at its files tells
    folders = [f"{path}/{name}" for name in names]
    return [
        folder
        for folder in folders
        if any(os.path.exists(f"{folder}/{file}") for file in (EVENTS, METADATA))  # noqa: PTH110
    ]


def _look(path: str, local: bool, archived: bool, parent: str | None) -> ConversationCopy:
    copy = ConversationCopy(path, local, archived, parent)
    for name in _FILES:
        file = f"{path}/{name}"
        try:
            status = os.stat(file)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            copy.failure = f"{name}: {(error.strerror or str(error)).lower()}"
            continue
        copy.times[name] = status.st_mtime_ns
        copy.sizes[name] = status.st_size if stat.S_ISREG(status.st_mode) else 0
        copy.states.append(f"{file}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}")
    return copy


def live_names(path: str | None) -> dict[int, str]:
    """The live conversations of the workspace at or above `path` (default: the current directory).

    An id has what its directory's name says after it. Empty without a workspace.
    """
    root = paths.find_root(os.path.realpath("." if path is None else path))
    if root is None:
        return {}
    folders = [f"{root}/.jp/conversations"]
    if os.path.isdir(paths.jp_data_home() + "/workspace"):  # noqa: PTH112
        # JP keeps something of some workspace there: it takes more to know whether of this one.
        from pathlib import Path

        from kbtui.workspace.workspace import Workspace

        user_dir = Workspace(Path(root)).user_dir
        if user_dir is not None:
            folders.append(f"{user_dir}/conversations")
    found: dict[int, str] = {}
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if _is_folder_path(entry)]
        except OSError:
            continue
        for name in names:
            digits, _, rest = name.partition("-")
            if digits.isascii() and digits.isdigit() and len(digits) <= 12:
                found[int(digits)] = rest
    return found


def _is_folder_path(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle
        return False
