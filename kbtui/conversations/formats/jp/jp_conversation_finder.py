"""Finds JP's conversations, live and archived, and reads their metadata."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.conversations.conversation_data_types import ConversationInfo
from kbtui.conversations.formats.conversation_format import SkippedConversationPath
from kbtui.dates import parse_timestamp
from kbtui.errors import UsageError, WorkspaceError
from kbtui.references import (
    JP_ID_PREFIX,
    decode_jp_id_creation_time,
    is_valid_jp_id_number,
    make_jp_conversation_id,
    parse_conversation_id,
)
from kbtui.workspace import paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kbtui.conversations.conversation_data_types import Presence
    from kbtui.workspace import Workspace

EVENTS, METADATA, BASE_CONFIG = "events.json", "metadata.json", "base_config.json"
_ARCHIVE, _TRASH, _BLOBS, _NESTED = ".archive", ".trash", "blobs", "conversations"
_METADATA_BYTES = 1 << 20
_LINK_LEAVES = "it is a link that points outside the workspace"


@dataclass(slots=True)
class JpConversationDirectory:
    """One directory of a conversation, with the state of its files.

    * `is_local` is true if the directory is in JP's user-local directory, and false if it is in the
      workspace.
    * `files` contains the existing files.
    * `failure` says why the state of a file is unknown.
    * `parent` is the id of the conversation whose directory contains this directory.
    """

    path: str
    is_local: bool
    is_archived: bool
    parent: str | None = None
    files: dict[str, os.stat_result] = field(default_factory=dict)
    failure: str | None = None

    @property
    def directory_name(self) -> str:
        """The name of the directory."""
        return os.path.basename(self.path)  # noqa: PTH119

    def get_modification_time_of_named_file(self, name: str) -> int:
        """Return the modification time of a file in nanoseconds; 0 if there is no such file."""
        return self.files[name].st_mtime_ns if name in self.files else 0

    def get_rank_for_reading_events(self) -> tuple[bool, int, bool]:
        """Return a sort key; events are read from the copy with the highest key.

        Newer copies have higher keys. If two copies have the same age, the user-local one has the
        higher key. Copies without events have the lowest keys, because JP cannot load them.
        """
        newest = max(
            self.get_modification_time_of_named_file(EVENTS),
            self.get_modification_time_of_named_file(BASE_CONFIG),
        )
        return (EVENTS in self.files, newest, self.is_local)


@dataclass(slots=True)
class JpConversationCopies:
    """All copies of one conversation. The conversation is live if at least one copy is live.

    * For a live conversation, `copies` are the live copies, and `archived_copies` are the copies in
      the archive.
    * For an archived conversation, `copies` are all copies, and `archived_copies` is empty.
    * `blob_directories` maps True to the blob directory in JP's user-local directory, and False to
      the one in the workspace.
    """

    id: str
    is_archived: bool
    copies: list[JpConversationDirectory]
    archived_copies: list[JpConversationDirectory]
    blob_directories: Mapping[bool, str] = field(default_factory=dict)

    def get_copy_to_read_events_from(self) -> JpConversationDirectory:
        """Return the copy from which events and base configuration are read."""
        return max(self.copies, key=JpConversationDirectory.get_rank_for_reading_events)

    def get_copy_to_read_metadata_from(self) -> JpConversationDirectory:
        """Return the copy from which the metadata is read.

        If an archived conversation has a copy in the workspace, return that copy. Otherwise, return
        the newest copy.
        """
        copies = [copy for copy in self.copies if METADATA in copy.files] or self.copies
        if self.is_archived:
            return min(
                copies,
                key=lambda copy: (
                    copy.is_local,
                    -copy.get_modification_time_of_named_file(METADATA),
                ),
            )
        return max(
            copies,
            key=lambda copy: (copy.get_modification_time_of_named_file(METADATA), copy.is_local),
        )

    @property
    def presence(self) -> Presence:
        """Where the conversation is: in the workspace, in the user-local directory, or in both."""
        roots = {copy.is_local for copy in self.copies}
        if len(roots) == 2:
            return "projected"
        return "user_local" if True in roots else "external"

    @property
    def signature(self) -> str:
        """A digest of the paths, inodes, sizes and times of the conversation's files.

        The signature changes when one of the files changes.
        """
        from hashlib import blake2b

        states = sorted(
            f"{copy.path}/{name}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}"
            for copy in (*self.copies, *self.archived_copies)
            for name, status in copy.files.items()
        )
        text = "\n".join(states).encode("utf-8", "surrogateescape")
        return blake2b(text, digest_size=12).hexdigest()

    def describe_duplicate_directories(self) -> str | None:
        """Return a message if several directories have the conversation's id, otherwise None.

        One directory in the workspace and one in the user-local directory are normal. The message
        names all directories, and says which one kbtui reads.
        """
        is_doubled = len({copy.is_local for copy in self.copies}) < len(self.copies)
        if not is_doubled and not self.archived_copies:
            return None
        names = [copy.directory_name for copy in self.copies]
        names += [f"{_ARCHIVE}/{copy.directory_name}" for copy in self.archived_copies]
        chosen = self.get_copy_to_read_events_from().directory_name
        return f"{len(names)} directories have this id ({', '.join(names)}); kbtui reads {chosen}"

    def read_conversation_info(self) -> ConversationInfo:
        """Read the metadata, but not the events.

        Never raises; if an error occurs, `problem` of the result describes it.
        """
        events, source = self.get_copy_to_read_events_from(), self.get_copy_to_read_metadata_from()
        problems = [
            text for text in (self.describe_duplicate_directories(), events.failure) if text
        ]
        metadata: dict[str, Any] = {}
        if METADATA in source.files:
            metadata, found = _read_metadata(source)
            problems += [f"{METADATA}: {problem}" for problem in found]
        elif source.failure is None:
            problems.append(f"there is no {METADATA}")
        if EVENTS not in events.files and events.failure is None:
            is_old = os.path.exists(f"{events.path}/messages.json")  # noqa: PTH110
            only = ", only a messages.json, which JP wrote before December 2025" if is_old else ""
            problems.append(f"there is no {EVENTS}{only}")
        directory, title = Path(events.path), metadata.get("title")
        times = [status.st_mtime for copy in self.copies for status in copy.files.values()]
        sizes = [one.st_size for one in events.files.values() if stat.S_ISREG(one.st_mode)]
        return ConversationInfo(
            id=self.id,
            title=title if isinstance(title, str) and title.strip() else None,
            directory=directory,
            events_path=directory / EVENTS if EVENTS in events.files else None,
            base_config_path=directory / BASE_CONFIG if BASE_CONFIG in events.files else None,
            archived=self.is_archived,
            presence=self.presence,
            created_at=decode_jp_id_creation_time(self.id),
            updated_at=datetime.fromtimestamp(max(times), UTC) if times else None,
            last_activated_at=parse_timestamp(metadata.get("last_activated_at")),
            pinned_at=parse_timestamp(metadata.get("pinned_at")),
            archived_at=parse_timestamp(metadata.get("archived_at")),
            expires_at=parse_timestamp(metadata.get("expires_at")),
            labels=_select_string_labels(metadata.get("labels")),
            size=sum(sizes),
            signature=self.signature,
            problem="; ".join(problems) or None,
            # JP derives a directory's location from this field, so the field takes precedence.
            parent=_parse_parent_conversation_id(metadata.get("parent_id")) or events.parent,
            blob_directories=self._list_blob_directories(events),
        )

    def _list_blob_directories(self, copy: JpConversationDirectory) -> tuple[str, ...]:
        """Return the blob directories. The first one belongs to `copy`, from which the events are read."""
        found = self.blob_directories
        return tuple(found[key] for key in (copy.is_local, not copy.is_local) if key in found)


def _read_metadata(copy: JpConversationDirectory) -> tuple[dict[str, Any], list[str]]:
    """Return the metadata of a copy, and a phrase for each problem.

    If the metadata cannot be read, the first value is empty.
    """
    from kbtui.conversations.formats.damage_tolerant_file_reader import (
        parse_json_object_leniently,
        read_file,
    )

    problems: list[str] = []
    try:
        metadata = parse_json_object_leniently(
            read_file(f"{copy.path}/{METADATA}", _METADATA_BYTES), problems
        )
    except (WorkspaceError, ValueError) as error:
        problems.append(getattr(error, "message", str(error)))
        return {}, problems
    return metadata, problems + _describe_wrong_metadata_values(metadata)


def _describe_wrong_metadata_values(metadata: dict[str, Any]) -> list[str]:
    """Return a phrase for each value in the metadata that is missing or that JP would reject."""
    wrong = []
    if not isinstance(metadata.get("title"), str | None):
        wrong.append("the title is not a string")
    if "last_activated_at" not in metadata:
        wrong.append("the field last_activated_at is missing")
    wrong += [
        f"the field {name} is not a time"
        for name in ("last_activated_at", "pinned_at", "archived_at", "expires_at")
        if metadata.get(name) is not None and parse_timestamp(metadata[name]) is None
    ]
    labels = metadata.get("labels")
    if labels is not None and _select_string_labels(labels) != labels:
        wrong.append("some labels are not strings")
    return wrong


def _select_string_labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: text for key, text in value.items() if isinstance(text, str)}


def _parse_parent_conversation_id(value: Any) -> str | None:
    """Return the id of the parent conversation, or None if the metadata has no valid id."""
    try:
        return parse_conversation_id(str(value)) if isinstance(value, str | int) else None
    except UsageError:
        return None


def find_stored_jp_conversations(
    workspace: Workspace, only: str | None = None
) -> tuple[list[JpConversationCopies], list[SkippedConversationPath]]:
    """Find the conversations of a workspace, and the directories that were skipped.

    If `only` is an id, only the conversation with this id is in the first list.
    """
    copies: dict[str, list[JpConversationDirectory]] = {}
    skipped: list[SkippedConversationPath] = []
    for root, is_local in _iterate_conversation_roots(workspace):
        for is_archived in (False, True):
            folder = f"{root}/{_ARCHIVE}" if is_archived else root
            names = _list_subdirectory_names_without_outside_links(workspace, folder, skipped)
            if names is None:
                break  # its archive cannot be read either
            found: list[tuple[str, str | None]] = [(f"{folder}/{name}", None) for name in names]
            for path, parent in found:
                id = _parse_id_from_directory_name(os.path.basename(path))  # noqa: A001, PTH119
                if id is None:
                    reason = "the name does not begin with a conversation id"
                    skipped.append(SkippedConversationPath(Path(path), reason))
                    continue
                if only is None or only == id:
                    copy = stat_conversation_directory(path, is_local, is_archived, parent)
                    copies.setdefault(id, []).append(copy)
                found += [(nested, id) for nested in _find_nested_conversations(path)]
    blobs = dict(_find_blob_directories(workspace))
    conversations = []
    for id, found_copies in copies.items():  # noqa: A001
        live = [copy for copy in found_copies if not copy.is_archived]
        archived = [copy for copy in found_copies if copy.is_archived]
        conversations.append(
            JpConversationCopies(id, not live, live or archived, archived if live else [], blobs)
        )
    return conversations, skipped


def _iterate_conversation_roots(workspace: Workspace) -> Iterator[tuple[str, bool]]:
    """Yield each directory that contains conversations, and whether it is user-local."""
    yield f"{workspace.jp_directory}/conversations", False
    if workspace.jp_user_directory is not None:
        yield f"{workspace.jp_user_directory}/conversations", True


def _find_blob_directories(workspace: Workspace) -> Iterator[tuple[bool, str]]:
    """Yield each blob directory as a pair: whether it is user-local, and its path.

    Links that point outside the workspace are left out.
    """
    for root, is_local in _iterate_conversation_roots(workspace):
        path = f"{os.path.dirname(root)}/{_BLOBS}"  # noqa: PTH120
        if os.path.isdir(path) and _leads_to_allowed_directory(workspace, path):  # noqa: PTH112
            yield is_local, path


def list_roots_of_jp_conversations(workspace: Workspace) -> list[Path]:
    """Return the directories that contain JP's conversations, in the workspace and in the user-local directory."""
    return [Path(root) for root, _ in _iterate_conversation_roots(workspace)]


def count_trashed_jp_conversations(workspace: Workspace) -> dict[str, int]:
    """Map each trash directory of JP to its number of damaged conversations.

    Empty trash directories are left out.
    """
    counts = {}
    for root, _ in _iterate_conversation_roots(workspace):
        with suppress(OSError), os.scandir(f"{root}/{_TRASH}") as entries:
            counts[f"{root}/{_TRASH}"] = sum(entry.is_dir() for entry in entries)
    return {path: count for path, count in counts.items() if count}


def _list_subdirectory_names_without_outside_links(
    workspace: Workspace, folder: str, skipped: list[SkippedConversationPath]
) -> list[str] | None:
    """Return the names of directories in `folder`, except links that point outside the workspace.

    If `folder` exists but cannot be read, returns None and adds the reason to `skipped`.
    """
    if os.path.realpath(folder) != folder and not _leads_to_allowed_directory(workspace, folder):
        skipped.append(SkippedConversationPath(Path(folder), _LINK_LEAVES, True))
        return None
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name[0] == "." or not _is_directory(entry, skipped):
                    continue
                if entry.is_symlink() and not _leads_to_allowed_directory(workspace, entry.path):
                    skipped.append(SkippedConversationPath(Path(entry.path), _LINK_LEAVES))
                else:
                    names.append(entry.name)
        return sorted(names)
    except FileNotFoundError:
        if not os.path.lexists(folder):
            return []
        reason = "the target of the link does not exist"
    except OSError as error:
        reason = _describe_os_error(error)
    skipped.append(SkippedConversationPath(Path(folder), reason, True))
    return None


def _is_directory(
    entry: os.DirEntry[str], skipped: list[SkippedConversationPath] | None = None
) -> bool:
    """Return whether `entry` is a directory or a link to one.

    An entry that cannot be read is added to `skipped`.
    """
    try:
        return entry.is_dir()
    except OSError as error:
        if skipped is not None:
            reason = _describe_os_error(error)
            skipped.append(SkippedConversationPath(Path(entry.path), reason))
        return False


def _describe_os_error(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _leads_to_allowed_directory(workspace: Workspace, path: str) -> bool:
    """Return whether a path leads into an allowed directory. Links in the path are followed.

    The allowed directories are the workspace, the workspace's `.jp` and JP's user-local directory.
    """
    allowed = [
        workspace.root,
        workspace.jp_directory,
        *([workspace.jp_user_directory] if workspace.jp_user_directory else []),
    ]
    real = f"{os.path.realpath(path)}/"
    return any(real.startswith(f"{os.path.realpath(directory)}/") for directory in allowed)


def _parse_id_from_directory_name(name: str) -> str | None:
    """Return the conversation id in a directory's name, or None if it is invalid.

    The id is the part before the first `-`.
    """
    digits = name.partition("-")[0]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 12:
        return None
    return make_jp_conversation_id(digits) if is_valid_jp_id_number(int(digits)) else None


def _find_nested_conversations(path: str) -> list[str]:
    """Return the paths of the child conversations in the directory of a parent conversation.

    JP may store the children in the subdirectory `conversations` (RFD 046), or directly in the
    parent's directory.
    """
    names = _list_real_subdirectories(path)
    found = [f"{path}/{name}" for name in names]
    if _NESTED in names:
        nested = f"{path}/{_NESTED}"
        found += [f"{nested}/{name}" for name in _list_real_subdirectories(nested)]
    return [
        folder
        for folder in found
        if any(os.path.exists(f"{folder}/{file}") for file in (EVENTS, METADATA))  # noqa: PTH110
    ]


def _list_real_subdirectories(path: str) -> list[str]:
    """Return the sorted names of the subdirectories, without hidden ones and links."""
    try:
        # Most file systems count two links for a directory, and one more for each subdirectory. The
        # others always report one link. So a directory with exactly two links has no subdirectories.
        if os.stat(path).st_nlink == 2:  # noqa: PTH116
            return []
        with os.scandir(path) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.name[0] != "." and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []  # `stat_conversation_directory` reports the error


def stat_conversation_directory(
    path: str, is_local: bool, is_archived: bool, parent: str | None
) -> JpConversationDirectory:
    """Return the copy of a conversation in the directory `path`, with the state of its files."""
    copy = JpConversationDirectory(path, is_local, is_archived, parent)
    for name in (METADATA, BASE_CONFIG, EVENTS):
        try:
            copy.files[name] = os.stat(f"{path}/{name}")  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            copy.failure = f"{name}: {_describe_os_error(error)}"
    return copy


def list_jp_conversations_for_completion(path: str | None) -> dict[int, str]:
    """Return the live conversations of the workspace that contains `path`.

    If `path` is None, this is the workspace of the current directory. The result maps each id,
    without its prefix, to the rest of the directory's name. The conversations' files are not
    opened.
    """
    root = paths.find_workspace_root(os.path.realpath("." if path is None else path))
    folders = [f"{paths.get_jp_directory_of_workspace(root)}/conversations"]
    # Finding the user's own directory reads a file, so do this only if JP has such directories.
    if os.path.isdir(paths.get_jp_data_home() + "/workspace"):  # noqa: PTH112
        from kbtui.workspace import Workspace

        folders = [folder for folder, _ in _iterate_conversation_roots(Workspace(Path(root)))]
    found: dict[int, str] = {}
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if (id := _parse_id_from_directory_name(entry.name)) and _is_directory(entry):  # noqa: A001
                    found[int(id.removeprefix(JP_ID_PREFIX))] = entry.name.partition("-")[2]
    return found
