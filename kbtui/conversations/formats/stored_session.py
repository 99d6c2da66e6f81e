"""A conversation that an agent stores as a file, or as a part of a file or database."""

from __future__ import annotations

import codecs
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, unquote

import orjson

from kbtui.conversations.conversation_data_types import ConversationInfo
from kbtui.conversations.formats.conversation_format import SkippedConversationPath
from kbtui.conversations.formats.damage_tolerant_file_reader import open_regular_file
from kbtui.dates import convert_unix_time_to_datetime, parse_timestamp
from kbtui.errors import WorkspaceError
from kbtui.file_reading_and_writing import get_inode_size_and_mtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kbtui.conversations.conversation_data_types import ConversationFileFacts
    from kbtui.conversations.workspace_and_worktree_directories import ProjectDirectory
    from kbtui.file_reading_and_writing import FileState

HEAD_BLOCK_BYTES = 16 << 10
"""The usual size of the blocks in which the beginning of a file is read."""
TITLE_CHARACTERS = 80
"""The maximum length of a title that is taken from the first request."""
_MAX_HARMLESS_WORD = 11
"""A title may be cut within a word of at most this many characters, because secrets are longer."""
_TITLE_SEARCH_CHARACTERS = 4000
"""Before a line is cut to a title, this many of its characters are searched for secrets."""


@dataclass(slots=True)
class StoredSession:
    """A conversation of an agent other than JP, found on disk but not yet read.

    `read_facts` reads the fields of `ConversationInfo` that this class lacks, such as the title.
    This function can raise any error.
    """

    id: str
    agent: str
    path: str
    signature: str
    created_at: datetime
    updated_at: datetime
    read_facts: Callable[[], ConversationFileFacts]
    is_archived: bool = False
    parent: str | None = None
    working_directory: str | None = None
    worktree: str | None = None
    last_event_at: datetime | None = None
    size: int = 0

    def read_conversation_info(self) -> ConversationInfo:
        """Read the conversation's metadata, but not its events.

        Never raises; if an error occurs, `problem` of the result describes it.
        """
        facts: ConversationFileFacts = {}
        problem = None
        try:
            facts = self.read_facts()
        except Exception as error:  # a damaged session must not hide the others
            problem = describe_conversation_reading_error(error)
        values: Any = {
            "id": self.id,
            "title": None,
            "directory": Path(self.path).parent,
            "events_path": Path(self.path),
            "base_config_path": None,
            "archived": self.is_archived,
            "presence": None,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "last_activated_at": self.updated_at,
            "last_event_at": self.last_event_at,
            "size": self.size,
            "signature": self.signature,
            "problem": problem,
            "parent": self.parent,
            "agent": self.agent,
            "working_directory": self.working_directory,
            "worktree": self.worktree,
        }
        return ConversationInfo(**(values | facts))


def make_session_of_file(
    id: str,  # noqa: A002
    agent: str,
    path: str,
    status: os.stat_result,
    project: ProjectDirectory,
    working_directory: str,
    read_facts: Callable[[], ConversationFileFacts],
    *,
    is_archived: bool = False,
    parent: str | None = None,
) -> StoredSession:
    """Make the `StoredSession` of a conversation that has its own file at `path`.

    `status` is the `stat` of the file.
    """
    modified = convert_unix_time_to_datetime(status.st_mtime) or datetime.fromtimestamp(0, UTC)
    return StoredSession(
        id,
        agent,
        path,
        make_change_signature(path, status.st_ino, status.st_size, status.st_mtime_ns),
        modified,
        modified,
        read_facts,
        is_archived,
        parent,
        working_directory,
        project.worktree,
        modified,
        status.st_size,
    )


_Facts = TypeVar("_Facts")


class SessionFileCache(Generic[_Facts]):
    """A cache of facts about files, such as those at the beginning of each session file.

    `are_final` receives the facts and the size of the file, and returns whether the facts stay the
    same when the file grows. Final facts are read again only if another file has taken its place,
    all others whenever the file has changed.
    """

    def __init__(
        self,
        read_facts: Callable[[str], _Facts],
        are_final: Callable[[_Facts, int], bool] = lambda facts, size: False,
    ) -> None:
        self._read_facts = read_facts
        self._are_final = are_final
        self._files: dict[str, tuple[FileState, bool, _Facts]] = {}
        """Maps each path to the state of the file, whether the facts are final, and the facts."""

    def read_file_facts(self, path: str, status: os.stat_result) -> _Facts:
        """Return the facts about a file. Raises what `read_facts` raises."""
        state = get_inode_size_and_mtime(status)
        known = self._files.get(path)
        if known is None or known[0][0] != state[0] or not (known[1] or known[0] == state):
            facts = self._read_facts(path)
            known = self._files[path] = (state, self._are_final(facts, status.st_size), facts)
        return known[2]


def describe_conversation_reading_error(error: Exception) -> str:
    """Return the reason why a conversation cannot be read, as a phrase for the user."""
    return getattr(error, "message", None) or str(error) or type(error).__name__


def list_directory(path: str, unusable: list[SkippedConversationPath]) -> list[os.DirEntry[str]]:
    """Return the sorted entries of a directory. An unreadable directory is added to `unusable`."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        unusable.append(SkippedConversationPath(Path(path), reason, True))
        return []


def stat_session_file(path: str) -> os.stat_result | None:
    """Return the `stat` of a regular file, or None if there is no regular file at `path`."""
    try:
        status = os.stat(path)  # noqa: PTH116  (thousands)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def make_conversation_id(prefix: str, own_id: str) -> str:
    """Convert an agent's own id to kbtui's id. Escapes forbidden characters, as in `%20`."""
    return prefix + quote(own_id, safe="", errors="surrogateescape")


def convert_conversation_id_to_id_used_by_agent(prefix: str, conversation_id: str) -> str:
    """Return the id that the agent itself uses for a conversation.

    `prefix` is the beginning of the ids that kbtui assigns to this agent's conversations.
    """
    return unquote(conversation_id.removeprefix(prefix), errors="surrogateescape")


def make_change_signature(*values: object) -> str:
    """Return a digest that changes if any of the values changes."""
    text = "\0".join(map(str, values))
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def iterate_first_jsonl_records(
    path: str, length: int, key: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the records in the first `length` bytes of a JSON Lines file.

    If `key` is not None, only records that have this key are yielded. Damaged lines are skipped. If
    the file cannot be read, the iteration ends without an error. The file is read only as far as
    the caller asks for records.
    """
    name = f'"{key}"'.encode() if key is not None else b""
    rest, at = b"", 0
    with suppress(WorkspaceError), open_regular_file(path) as (file, _):
        # A long line is read in larger and larger blocks.
        block = b"\n"
        while block:
            block = os.pread(file, min(max(HEAD_BLOCK_BYTES, len(rest)), length - at), at)
            at += len(block)
            # At the end, this line break completes the last line.
            *lines, rest = (rest + (block or b"\n")).split(b"\n")
            for record in iterate_json_objects_in_lines(line for line in lines if name in line):
                if key is None or key in record:
                    yield record


def iterate_json_objects_in_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line; skip lines that are not JSON objects."""
    for line in lines:
        try:
            record = orjson.loads(line.removeprefix(codecs.BOM_UTF8))
        except orjson.JSONDecodeError:
            continue
        if type(record) is dict:
            yield record


def find_last_record_time(lines: list[bytes]) -> datetime | None:
    """Return the time of the last record that has a time, or None if no record has one."""
    records = iterate_json_objects_in_lines(reversed(lines))
    times = (parse_timestamp(record.get("timestamp")) for record in records)
    return next(filter(None, times), None)


def make_title_from_user_request(text: str) -> str | None:
    """Return the first nonblank line of a request as a title, cut to `TITLE_CHARACTERS`.

    Returns None if the request is blank.
    """
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) > TITLE_CHARACTERS:
        line = line[: _find_title_cut_offset_outside_secrets(line)].rstrip() + "…"
    return line or None


def _find_title_cut_offset_outside_secrets(line: str) -> int:
    """Return the offset at which a title is cut.

    The offset is never within a secret, because half of a secret would not be masked.
    """
    end = TITLE_CHARACTERS - 1
    # Most titles are cut between words or within a short word. This needs no search for secrets.
    start = max(line.rfind(" ", 0, end), line.rfind("\t", 0, end)) + 1
    words = line[start : start + _MAX_HARMLESS_WORD + 1].split(maxsplit=1)
    if not words or len(words[0]) <= _MAX_HARMLESS_WORD:
        return end
    from kbtui.secret_detection import find_secrets

    found = find_secrets(line[:_TITLE_SEARCH_CHARACTERS])
    return next((one.start for one in found if one.start < end < one.end), end)
