"""A conversation that an agent keeps in one file."""

from __future__ import annotations

import codecs
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.formats.jp.json_reader import open_regular_file
from kbtui.conversations.models import ConversationInfo
from kbtui.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kbtui.conversations.project_directories import ProjectDirectory

HEAD_BLOCK_BYTES = 16 << 10
"""How many bytes of a file's beginning are read at a time."""
TITLE_CHARACTERS = 80
"""The maximum length of a title that is made from the first request."""
_MAX_HARMLESS_WORD = 11
"""A word of at most this many characters is too short to be a secret, so a title may be cut in it."""
_TITLE_SEARCH_CHARACTERS = 4000
"""How many characters of a request are searched for secrets, so that no title ends within one."""


@dataclass(slots=True)
class SessionFile:
    """The file of one conversation, found but not read.

    `read_facts` reads the fields of `ConversationInfo` that this class does not know, such as the
    title and the creation time; it may raise `OSError`, `ValueError` or `KbtuiError`.
    """

    id: str
    agent: str
    path: str
    status: os.stat_result
    project: ProjectDirectory
    working_directory: str
    read_facts: Callable[[SessionFile], dict[str, Any]]
    is_archived: bool = False
    parent: str | None = None

    @property
    def signature(self) -> str:
        """A digest of path, inode, size and modification time; it changes if the file does."""
        state = self.status
        text = f"{self.path}\0{state.st_ino}\0{state.st_size}\0{state.st_mtime_ns}"
        return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()

    def read_conversation_info(self) -> ConversationInfo:
        """Read the metadata but no events. Never raises; `problem` says what is wrong."""
        facts, problem = {}, None
        try:
            facts = self.read_facts(self)
        except Exception as error:
            problem = getattr(error, "message", None) or str(error)
        modified = datetime.fromtimestamp(self.status.st_mtime, UTC)
        values: dict[str, Any] = {
            "id": self.id,
            "title": None,
            "directory": Path(self.path).parent,
            "events_path": Path(self.path),
            "base_config_path": None,
            "archived": self.is_archived,
            "presence": None,
            "created_at": modified,
            "updated_at": modified,
            "last_activated_at": modified,
            "last_event_at": modified,
            "size": self.status.st_size,
            "signature": self.signature,
            "problem": problem,
            "parent": self.parent,
            "agent": self.agent,
            "working_directory": self.working_directory,
            "worktree": self.project.worktree,
        }
        return ConversationInfo(**(values | facts))


def stat_session_file(path: str) -> os.stat_result | None:
    """Return the state of a regular file; None if there is no regular file at `path`."""
    try:
        status = os.stat(path)  # noqa: PTH116  (thousands)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def iterate_head_records(
    path: str, length: int, key: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the records in the first `length` bytes of a file of JSON Lines; those without `key` are left out.

    Reads only as far as the caller asks for records. Damaged lines are left out, and so is the rest
    of a file that cannot be read.
    """
    name = f'"{key}"'.encode() if key is not None else b""
    rest, at = b"", 0
    with suppress(WorkspaceError), open_regular_file(path) as (file, _):
        # A line that is longer than what was read so far is read in ever larger blocks.
        while block := os.pread(file, min(max(HEAD_BLOCK_BYTES, len(rest)), length - at), at):
            at += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for record in iterate_line_records(line for line in lines if name in line):
                if key is None or key in record:
                    yield record
        for record in iterate_line_records([rest]):
            if key is None or key in record:
                yield record


def iterate_line_records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in lines; other lines are left out."""
    for line in lines:
        try:
            record = orjson.loads(line.removeprefix(codecs.BOM_UTF8))
        except orjson.JSONDecodeError:
            continue
        if type(record) is dict:
            yield record


def make_title_from_request(text: str) -> str | None:
    """Return the first line of a request, cut to `TITLE_CHARACTERS`; None if there is no text."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) > TITLE_CHARACTERS:
        line = line[: _find_title_end(line)].rstrip() + "…"
    return line or None


def _find_title_end(line: str) -> int:
    """Return where to cut a title: not within a secret, because half a secret is not recognized."""
    end = TITLE_CHARACTERS - 1
    # Most titles are cut between words or within a short one, which needs no search for secrets.
    start = max(line.rfind(" ", 0, end), line.rfind("\t", 0, end)) + 1
    words = line[start : start + _MAX_HARMLESS_WORD + 1].split(maxsplit=1)
    if not words or len(words[0]) <= _MAX_HARMLESS_WORD:
        return end
    from kbtui.secret_detection import find_secrets

    found = find_secrets(line[:_TITLE_SEARCH_CHARACTERS])
    return next((one.start for one in found if one.start < end < one.end), end)
