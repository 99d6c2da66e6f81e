"""Archives copies of session files, which stay readable after an agent has deleted the originals.

The record of a kept conversation, `records/ID.json`, contains the path of the agent's file, facts
about the conversation, and the name of the copy in `files/`. The name of a copy contains the
SHA-256 of the agent's file, so equal sessions share one copy. kbtui never changes the agents' own
files.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import orjson

from kbtui.conversations.formats.damage_tolerant_file_reader import open_regular_file
from kbtui.conversations.formats.kept_session_file import (
    KEPT_FILE_SUFFIX,
    compress_file_in_memory_and_hash,
    has_kept_session_file_name,
    iterate_kept_session_file_blocks,
)
from kbtui.conversations.formats.stored_session import StoredSession, make_change_signature
from kbtui.conversations.workspace_and_worktree_directories import WorkspaceAndWorktreeDirectories
from kbtui.dates import convert_unix_time_to_datetime, parse_timestamp
from kbtui.errors import NothingFound, WorkspaceError
from kbtui.file_reading_and_writing import (
    FileState,
    FileWriteOrRemoval,
    format_inode_size_and_mtime,
    get_inode_size_and_mtime,
    read_inode_size_and_mtime,
    read_regular_file,
    write_file_atomically,
)
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import sanitize_to_one_line
from kbtui.workspace import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kbtui.conversations.conversation_data_types import ConversationFileFacts, ConversationInfo
    from kbtui.workspace import Workspace

_SUFFIXES = (".jsonl", ".json")
_MAX_RECORD_BYTES = 1 << 20
_MAX_RECORD_NAME = 200
"""The file name of an imported record can have at most this many characters.

The record is first written to a temporary file, whose name is longer, and file systems allow names
of at most 255 bytes.
"""
_REMOVALS_FILE = "removed.json"
KeepOutcome = Literal["kept", "replaced", "unchanged", "shrunk"]
"""The outcome of `keep_copy_of_conversation`.

* `kept`: the conversation was not in the archive, or its copy was damaged.
* `replaced`: a copy of the current file replaced the earlier copy.
* `unchanged`: the archive already has the current file.
* `shrunk`: the file is smaller than when it was kept. The copy was not replaced, because the
  copy may contain text that the agent's file has lost.
"""


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A conversation in the archive, as its record describes it.

    * `original` is the path of the agent's file. `original_state` contains the inode, size and
      modification time that this file had when it was copied.
    * `file_name` is the name of the compressed copy.
    * `size` is the size of the original, and `kept_size` is the size of the compressed copy, in
      bytes.
    * `modified` and `kept_at` are Unix times.
    """

    id: str
    agent: str
    original: str
    original_state: str
    file_name: str
    size: int
    kept_size: int
    modified: float
    kept_at: float
    working_directory: str
    title: str | None
    created_at: str
    last_event_at: str | None
    parent: str | None = None
    is_archived: bool = False
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The path of the copy."""
        return get_session_archive_directory() / "files" / self.file_name

    @property
    def is_original_missing(self) -> bool:
        """Whether the agent's file no longer exists."""
        return not os.path.exists(self.original)  # noqa: PTH110

    def has_label(self, wanted: str) -> bool:
        """Return whether the conversation has the label `wanted`: a key with any value, or `KEY=VALUE`."""
        key, sign, value = wanted.partition("=")
        return key in self.labels and (not sign or self.labels[key] == value)

    def get_stored_conversation_facts(self) -> ConversationFileFacts:
        """Return the record's facts about the conversation."""
        return {
            "title": self.title,
            "created_at": parse_timestamp(self.created_at)
            or _convert_unix_time_or_raise(self.modified),
            "last_event_at": parse_timestamp(self.last_event_at),
            "labels": self.labels,
            "kept_from": self.original,
        }


class DamagedArchiveFile(NamedTuple):
    """A file in the archive that cannot be used, and the reason.

    `id` is the id of the conversation, if it is known.
    """

    path: Path
    reason: str
    id: str | None = None


def get_session_archive_directory() -> Path:
    """Return the directory of the archive. The directory may not exist."""
    return Path(paths.get_kbtui_data_directory(), "kept")


def get_kept_session_records_directory() -> Path:
    """Return the directory of the records of kept conversations. The directory may not exist."""
    return get_session_archive_directory() / "records"


def list_kept_sessions() -> tuple[list[KeptSession], list[DamagedArchiveFile]]:
    """Return the kept conversations of all projects, newest copy first.

    The second value contains the records that cannot be read.
    """
    kept: list[KeptSession] = []
    damaged: list[DamagedArchiveFile] = []
    for entry in _list_directory_entries(get_kept_session_records_directory()):
        if entry.name.endswith(".json") and not entry.name.startswith("."):
            found = _read_session_record(entry.path)
            if isinstance(found, KeptSession):
                kept.append(found)
            elif found is not None:
                damaged.append(found)
    kept.sort(key=lambda one: (-one.kept_at, one.id))
    return kept, damaged


def find_kept_session(conversation_id: str) -> KeptSession | None:
    """Return the kept conversation with this id.

    Returns None if there is none, or if its record is damaged.
    """
    found = _read_session_record(str(_make_session_record_path(conversation_id)))
    return found if isinstance(found, KeptSession) else None


def find_conversations_only_in_archive(
    workspace: Workspace, agent: str, found: set[str], only: str | None = None
) -> Iterator[StoredSession]:
    """Yield those of an agent's conversations in a workspace that exist only in the archive.

    `found` contains the ids of the conversations in the agent's own files. If `only` is given, only
    the conversation with this id is yielded.
    """
    if only is not None:
        one = find_kept_session(only)
        kept = [one] if one is not None else []
    else:
        kept = list_kept_sessions()[0]
    wanted = [one for one in kept if one.agent == agent and one.id not in found]
    if not wanted:
        return
    projects = WorkspaceAndWorktreeDirectories(workspace)
    for one in wanted:
        if project := projects.find_directory_of(one.working_directory):
            modified = _convert_unix_time_or_raise(one.modified)
            yield StoredSession(
                one.id,
                one.agent,
                str(one.path),
                make_change_signature("kept", one.file_name, one.title),
                modified,
                modified,
                one.get_stored_conversation_facts,
                one.is_archived,
                one.parent,
                one.working_directory,
                project.worktree,
                modified,
                one.size,
            )


def keep_copy_of_conversation(
    workspace: Workspace, info: ConversationInfo, *, verified: bool = False
) -> KeepOutcome:
    """Copy a conversation's file into the archive, and return the outcome.

    A new copy replaces an earlier one, unless the agent's file has become shorter. Nothing is
    copied if the archive already has an intact copy of the current file, or if the conversation
    exists only in the archive. A copy counts as intact if its size is right; if `verified` is true,
    its content must also be right. Raises `WorkspaceError` if the file cannot be kept.
    """
    if info.kept_from is not None:
        return "unchanged"
    path = info.events_path
    if path is None or path.suffix not in _SUFFIXES:
        raise WorkspaceError(
            "the conversation is not stored in a separate JSON file", where=info.ref
        )
    earlier = find_kept_session(info.id)
    if earlier is not None and find_session_copy_damage(earlier, verified=verified):
        earlier = None
    if (
        earlier is not None
        and earlier.original == str(path)
        and earlier.original_state == format_inode_size_and_mtime(read_inode_size_and_mtime(path))
    ):
        return "unchanged"
    with open_regular_file(str(path)) as (file, size):
        if earlier is not None and size < earlier.size:
            return "shrunk"
        status = os.fstat(file)
        compressed, sha256 = compress_file_in_memory_and_hash(file, size)
    session = KeptSession(
        id=info.id,
        agent=info.agent,
        original=str(path),
        original_state=format_inode_size_and_mtime(get_inode_size_and_mtime(status)),
        file_name=f"{sha256}{path.suffix}{KEPT_FILE_SUFFIX}",
        size=size,
        kept_size=len(compressed),
        modified=status.st_mtime,
        kept_at=max(
            datetime.now(UTC).timestamp(),
            read_times_of_removal_from_session_archive().get(info.id, 0.0) + 1e-6,
        ),
        working_directory=info.working_directory or str(workspace.root),
        title=info.title,
        created_at=info.created_at.isoformat(),
        last_event_at=info.last_event_at.isoformat() if info.last_event_at else None,
        parent=info.parent,
        is_archived=info.archived,
        labels=dict(info.labels),
    )
    with lock_session_archive():
        try:
            _write_session_copy(session, compressed)
            write_file_atomically(_make_session_record_path(info.id), orjson.dumps(asdict(session)))
        except (OSError, TypeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise WorkspaceError(
                f"cannot be kept: {reason.lower()}", where=str(session.path)
            ) from error
        if earlier is not None and earlier.file_name != session.file_name:
            remove_unused_session_copies()
    if earlier is None:
        return "kept"
    return "replaced" if earlier.file_name != session.file_name else "unchanged"


def delete_kept_sessions(ids: list[str]) -> int:
    """Remove conversations from the archive, and return the number of bytes freed.

    A conversation whose record is damaged can also be removed. If one of the ids is not in the
    archive, nothing is removed, and `NothingFound` is raised.
    """
    records = {one: _make_session_record_path(one) for one in ids}
    with lock_session_archive():
        for one, path in records.items():
            if not path.exists():
                hint = "`kbtui keep ls` lists the kept conversations"
                raise NothingFound("this conversation is not kept", where=one, hint=hint)
        before = compute_session_archive_size_in_bytes()
        _record_removal_of_sessions_from_archive(ids)
        for path in records.values():
            with suppress(FileNotFoundError):
                path.unlink()
        remove_unused_session_copies()
        return max(0, before - compute_session_archive_size_in_bytes())


def read_times_of_removal_from_session_archive() -> dict[str, float]:
    """For each session that was removed from the archive, map its id to the Unix time of the removal.

    If the file with these times is damaged, the result is empty, and an import may restore removed
    sessions.
    """
    try:
        found = orjson.loads(read_regular_file(get_session_removals_file(), _MAX_RECORD_BYTES * 64))
        return {str(name): float(removed_at) for name, removed_at in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def get_session_removals_file() -> Path:
    """Return the path of the file that stores when sessions were removed. The file may not exist."""
    return get_session_archive_directory() / _REMOVALS_FILE


def _record_removal_of_sessions_from_archive(ids: list[str]) -> None:
    """Record the current time as the time when these sessions were removed from the archive. Raises `WorkspaceError`."""
    now = datetime.now(UTC).timestamp()
    times = read_times_of_removal_from_session_archive()
    for one in ids:
        kept = find_kept_session(one)
        times[one] = max(now, kept.kept_at + 1e-6 if kept else now)
    path = get_session_removals_file()
    try:
        write_file_atomically(path, serialize_times_of_removal_from_session_archive(times))
    except OSError as error:
        message = f"cannot be written: {(error.strerror or str(error)).lower()}"
        raise WorkspaceError(message, where=str(path)) from error


def serialize_times_of_removal_from_session_archive(times: Mapping[str, float]) -> bytes:
    """Return removal times as the content of the file that stores them."""
    return orjson.dumps(times, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)


class ArchiveMergeChanges(NamedTuple):
    """The changes that a merge makes to the archive.

    * `written`: the sessions that are new or replace others.
    * `replaced`: the sessions of the archive that are replaced or removed.
    * `removed`: the ids of the sessions that are removed.
    * `removal_times`: maps the id of each removed session to the time of its last removal.
    """

    written: list[KeptSession]
    replaced: list[KeptSession]
    removed: list[str]
    removal_times: dict[str, float]


def plan_session_archive_merge(
    kept: Iterable[KeptSession],
    removal_times: Mapping[str, float],
    added: Iterable[KeptSession],
    added_removals: Mapping[str, float],
) -> ArchiveMergeChanges:
    """Plan how to merge other kept sessions and removal times into the archive.

    `kept` and `removal_times` describe the archive; `added` and `added_removals` are merged into
    it. A session stays in the archive if it was kept after its last removal. If both sides have a
    file of the same session, the larger one stays: agents append to their files, so the smaller one
    is incomplete. Of two files of the same size, the one that was kept later stays.
    """
    times = dict(removal_times)
    for name, removed_at in added_removals.items():
        times[name] = max(removed_at, times.get(name, 0.0))
    known = {one.id: one for one in kept}
    merge = ArchiveMergeChanges([], [], [], times)
    others = {one.id: one for one in added}
    for name in sorted(known.keys() | others.keys()):
        here, other = known.get(name), others.get(name)
        after = times.get(name, -1.0)
        alive = [one for one in (here, other) if one is not None and one.kept_at > after]
        if not alive:
            if here is not None:
                merge.removed.append(name)
                merge.replaced.append(here)
            continue
        best = max(alive, key=lambda one: (one.size, one.kept_at, one.file_name, one is here))
        if len(alive) == 2 and alive[0].file_name == alive[1].file_name:
            best = alive[1] if find_session_copy_damage(alive[0], verified=False) else alive[0]
            # A directory from another machine may not exist here.
            places = [one.working_directory for one in alive]
            existing = [one for one in places if os.path.isdir(one)]  # noqa: PTH112
            best = replace(best, working_directory=(existing or [best.working_directory])[0])
        best = replace(best, kept_at=max(one.kept_at for one in alive))
        if best != here:
            merge.written.append(best)
            if here is not None:
                merge.replaced.append(here)
    return merge


def list_record_file_changes_of_archive_merge(
    merge: ArchiveMergeChanges,
) -> list[FileWriteOrRemoval]:
    """Return the records that a merge writes or removes, and the file of removal times if it changes.

    The copies of sessions are not included. The caller must have locked the archive.
    """
    contents: dict[Path, bytes | None] = {
        _make_session_record_path(one.id): orjson.dumps(asdict(one)) for one in merge.written
    }
    contents |= dict.fromkeys(map(_make_session_record_path, merge.removed))
    if merge.removal_times != read_times_of_removal_from_session_archive():
        contents[get_session_removals_file()] = serialize_times_of_removal_from_session_archive(
            merge.removal_times
        )
    return [
        FileWriteOrRemoval(path, _read_bytes_if_file_exists(path), new)
        for path, new in contents.items()
    ]


def move_staged_session_copy_into_archive(session: KeptSession, staged: Path) -> KeptSession:
    """Move the staged copy of a session into the archive, unless the archive has an intact copy.

    Returns the session with the size of the copy in the archive. The caller must have locked the
    archive. Raises `OSError`.
    """
    with suppress(OSError):
        known = replace(session, kept_size=session.path.stat().st_size)
        if find_session_copy_damage(known) is None:
            return known
    paths.make_private_directory(session.path.parent)
    staged.replace(session.path)
    return session


def _read_bytes_if_file_exists(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def find_session_copy_damage(
    session: KeptSession, *, verified: bool = True
) -> DamagedArchiveFile | None:
    """Check the archive's copy of a session; return its damage, or None if the copy is intact.

    Without `verified`, only the size of the copy is checked.
    """
    reason = None
    try:
        if session.path.stat().st_size != session.kept_size:
            reason = "the kept copy is damaged: its size is wrong"
        elif verified:
            for _ in iterate_kept_session_file_blocks(str(session.path)):
                pass
    except FileNotFoundError:
        reason = "the kept copy is missing"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    except WorkspaceError as error:
        reason = error.message
    return DamagedArchiveFile(session.path, reason, session.id) if reason else None


def compute_session_archive_size_in_bytes() -> int:
    """Return the total size of the archive's files in bytes."""
    total = 0
    for directory in ("records", "files"):
        for entry in _list_directory_entries(get_session_archive_directory() / directory):
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _write_session_copy(session: KeptSession, data: bytes) -> None:
    """Write the copy of a session, unless the archive has an intact copy.

    Raises `OSError` or `WorkspaceError`.
    """
    if find_session_copy_damage(session) is None:
        return
    for directory in (session.path.parent, get_kept_session_records_directory()):
        paths.make_private_directory(directory)
    write_file_atomically(session.path, data)
    if damage := find_session_copy_damage(session):
        session.path.unlink(missing_ok=True)
        raise WorkspaceError(
            f"the disk did not store the copy correctly: {damage.reason}", where=str(damage.path)
        )


def remove_unused_session_copies() -> None:
    """Remove the copies that no record refers to.

    If a record is damaged, nothing is removed, because the record may refer to any copy.
    """
    kept, damaged = list_kept_sessions()
    if damaged:
        return
    used = {one.file_name for one in kept}
    for entry in _list_directory_entries(get_session_archive_directory() / "files"):
        if entry.name not in used:
            with suppress(OSError):
                os.unlink(entry.path)  # noqa: PTH108


@contextmanager
def lock_session_archive() -> Iterator[None]:
    """Lock the archive. Raises `WorkspaceError`.

    Waits while another process or thread is changing the archive.
    """
    directory = get_session_archive_directory()
    try:
        paths.make_private_directory(directory)
        file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"the archive cannot be changed: {(error.strerror or str(error)).lower()}"
        raise WorkspaceError(message, where=str(directory)) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _make_session_record_path(conversation_id: str) -> Path:
    return get_kept_session_records_directory() / f"{quote(conversation_id, safe='~')}.json"


_records: dict[str, tuple[FileState, KeptSession]] = {}
"""Maps the path of each record's file to a pair: the file's state when it was read, and the record."""


def _read_session_record(path: str) -> KeptSession | DamagedArchiveFile | None:
    """Return the record in a file, or its damage if the record is unusable; None if there is no file."""
    try:
        state = get_inode_size_and_mtime(os.stat(path))  # noqa: PTH116
        known = _records.get(path)
        if known is not None and known[0] == state:
            return known[1]
        session = KeptSession(**orjson.loads(read_regular_file(path, _MAX_RECORD_BYTES)))
        _check_session_record(session, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return DamagedArchiveFile(Path(path), (error.strerror or str(error)).lower())
    except (ValueError, TypeError):
        return DamagedArchiveFile(Path(path), "the record of a kept conversation is damaged")
    _records[path] = (state, session)
    return session


def _check_session_record(session: KeptSession, path: str) -> None:
    """Raise `ValueError` or `TypeError` if the record in the file `path` is invalid.

    The name of the file must match the conversation's id.
    """
    if str(_make_session_record_path(session.id)) != path:
        raise ValueError("not the record of this conversation")
    texts = (
        session.agent,
        session.original,
        session.original_state,
        session.working_directory,
        session.file_name,
    )
    optional = (session.title, session.last_event_at, session.parent)
    if (
        not all(isinstance(one, str) for one in (*texts, session.created_at))
        or not all(one is None or isinstance(one, str) for one in optional)
        or not all(type(one) is int and one >= 0 for one in (session.size, session.kept_size))
        or not all(isinstance(one, int | float) for one in (session.modified, session.kept_at))
        or not isinstance(session.labels, dict)
        or not has_kept_session_file_name(session.file_name)
        or "/" in session.file_name
    ):
        raise ValueError("not a record")
    _convert_unix_time_or_raise(session.modified)


def is_untrusted_session_record_valid(session: KeptSession) -> bool:
    """Return whether a record from another machine is valid and can be added to the archive.

    The record is untrusted: anyone may have edited it.
    """
    names = (session.id, session.agent, session.original, session.working_directory)
    try:
        _check_session_record(session, str(_make_session_record_path(session.id)))
        _convert_unix_time_or_raise(session.kept_at)
    except (ValueError, TypeError):
        return False
    return (
        # The other machine may have formats from packages that are not installed here, so any form
        # of id is valid.
        session.id[:1].isalnum()
        and "/" not in session.id
        and all(sanitize_to_one_line(one, "strip") == one for one in names)
        and len(_make_session_record_path(session.id).name) <= _MAX_RECORD_NAME
        and session.kept_at >= 0
        and isinstance(session.is_archived, bool)
        and all(isinstance(one, str) for pair in session.labels.items() for one in pair)
    )


def _convert_unix_time_or_raise(unix_time: float) -> datetime:
    time = convert_unix_time_to_datetime(unix_time)
    if time is None:
        raise ValueError("not a time")
    return time


def _list_directory_entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []
