"""The format of Claude Code: one JSON Lines file for each session and each subagent."""

from __future__ import annotations

import codecs
import os
import re
import time
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import orjson

from kbtui.conversations.conversation_data_types import (
    AgentCommand,
    ConversationCompaction,
    TokenUsage,
)
from kbtui.conversations.formats.conversation_format import SkippedConversationPath
from kbtui.conversations.formats.damage_tolerant_file_reader import read_file_head, read_file_tail
from kbtui.conversations.formats.jsonl_conversation_format import (
    JsonlConversationFormat,
    JsonlConversationParser,
    get_last_added_dictionary_items,
)
from kbtui.conversations.formats.stored_session import (
    SessionFileCache,
    StoredSession,
    find_last_record_time,
    iterate_first_jsonl_records,
    iterate_json_objects_in_lines,
    list_directory,
    make_session_of_file,
    make_title_from_user_request,
    stat_session_file,
)
from kbtui.conversations.formats.turn_builder import count_base64_bytes
from kbtui.conversations.workspace_and_worktree_directories import WorkspaceAndWorktreeDirectories
from kbtui.dates import parse_timestamp
from kbtui.errors import WorkspaceError
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_counted_noun, format_readable_json
from kbtui.workspace import paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from kbtui.conversations.conversation_data_types import ConversationFileFacts, ConversationInfo
    from kbtui.conversations.formats.turn_builder import TurnBuilder
    from kbtui.conversations.workspace_and_worktree_directories import ProjectDirectory
    from kbtui.workspace import Workspace

_HEAD_BYTES = 256 << 10
"""The number of bytes read from the beginning of a file to find a value in its first records."""
_LONG_HEAD_BYTES = 32 << 20
"""The number of bytes read from the beginning of a file if a value is not in the first `_HEAD_BYTES`.

The first records can be longer than `_HEAD_BYTES`, for example because they contain images.
"""
_TAIL_BYTES = 64 << 10
"""The number of bytes read from the end of a file to find the title.

The agent writes the title again and again, so the end of a file usually contains it, too.
"""
_FOLDER_CHARACTERS = 100
"""Of a folder name that is longer than this, only this many characters at the beginning are compared.

The rest cannot be compared, because Claude Code shortens long folder names.
"""
_NEW_SECONDS = 60.0
"""A file without a complete line counts as unusable only if it has not changed for this many seconds."""
_LEADING_VALUE = (
    rb'(?:\xef\xbb\xbf)?\s*+\{(?:\s*+"[^"\\]*+"\s*+:\s*+(?:"(?:[^"\\]|\\.)*+"|[-+.\w]++)\s*+,)*?'
    rb'\s*+"%s"\s*+:\s*+("(?:[^"\\]|\\.)*+")'
)
"""A template for a pattern that finds a key's string value in the first part of a record.

`%s` stands for the key. The record may be cut off after the value. A value that follows a list or
an object is not found.
"""
_SESSION_NAME = re.compile(r"[0-9A-Za-z_-]{1,80}")
_SUBAGENT_NAME = re.compile(r"agent-(?!acompact-)([0-9A-Za-z_-]{1,60})")
"""Matches the name of a subagent's file, without the suffix.

Does not match the file of a subagent that summarizes a conversation (`agent-acompact-…`).
"""
_IGNORED_TYPES = frozenset(
    {
        "agent-name",
        "ai-title",
        "attachment",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "progress",
        "queue-operation",
        "summary",
    }
)
"""The types of records that contain no part of the dialogue.

Titles in these records are read separately.
"""
_IGNORED_SYSTEM_TYPES = frozenset({"turn_duration", "stop_hook_summary"})
_NOTICE_STARTS = (
    "[Request interrupted by user",
    "<task-notification>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<command-name>",
)
"""The beginnings of texts that the agent itself writes as user messages, which are not requests.

`<command-name>` begins a command that the agent carries out without the model. A command that gives
the model a prompt begins with `<command-message>` instead, and counts as a request.
"""
_TAG = r"(?s)<{0}>(.*?)</{0}>"
_USAGE_KEYS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
"""The keys of a message's token counts, in the order of the fields of `TokenUsage`."""


class _SessionFile(NamedTuple):
    """A file of a session or subagent.

    `name` is the session's id without its prefix; None if the file does not contain the id. `parent`
    is the id of the session that started the subagent.
    """

    path: str
    status: os.stat_result
    name: str | None
    parent: str | None


class ClaudeCodeFormat(JsonlConversationFormat):
    """Finds and reads the sessions of Claude Code, and their subagents.

    The agent stores all sessions with the same working directory in one folder. The folder is named
    after the working directory's path, in which `-` replaces every character except letters and
    digits. The records contain the unchanged path.
    """

    name = "claude-code"
    label = "Claude Code"
    id_prefix = "claude-"

    def __init__(self) -> None:
        self._working_directories = SessionFileCache(
            _read_working_directory, lambda directory, _: directory is not None
        )
        self._with_turn: dict[tuple[str, int, int, int], bool] = {}
        """Maps the path, inode, size and modification time of a file to whether the file contains a request.

        Only files without a working directory are included.
        """

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredSession], list[SkippedConversationPath]]:
        """Find all sessions of a workspace, or only the session with the id `only`."""
        wanted = only.removeprefix(self.id_prefix) if only is not None else None
        session = wanted.partition("~")[0] if wanted is not None else None
        projects = WorkspaceAndWorktreeDirectories(workspace)
        found: list[StoredSession] = []
        unusable: list[SkippedConversationPath] = []
        own = {make_project_directory_name(one.path): one for one in projects.directories}
        for folder in _list_claude_folders_of_project(projects, unusable):
            count, without = len(found), list[_SessionFile]()
            names = [entry.name for entry in list_directory(folder, unusable)]
            for path, name, parent in self._iterate_session_paths(folder, names, session):
                if (status := stat_session_file(path)) is None:
                    continue
                file = _SessionFile(path, status, name, parent)
                directory = name and self._working_directories.read_file_facts(path, status)
                if not directory:
                    without.append(file)
                elif project := projects.find_directory_of(directory):
                    found.append(self._make_session(file, project, directory))
            project = own.get(os.path.basename(folder))  # noqa: PTH119
            # A folder without sessions of this project may belong to another project with the same folder name.
            if only is None and (len(found) > count or project):
                unusable += _describe_files_without_working_directory(
                    [one for one in without if not (project and self._contains_user_request(one))]
                )
            if project:
                # The records of these files name no directory, so the folder's name decides on the project.
                found += [
                    self._make_session(one, project, project.path)
                    for one in without
                    if one.name is not None and self._contains_user_request(one)
                ]
        if only is not None:
            found = [one for one in found if one.id == only]
        return _select_newest_file_of_each_session(found, unusable), unusable

    def _iterate_session_paths(
        self, folder: str, names: list[str], session: str | None
    ) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield the path, the name and the parent of each session and subagent in a folder.

        If `session` is not None, the files of other sessions are left out.
        """
        for name in names:
            stem, end = os.path.splitext(name)  # noqa: PTH122
            if end != ".jsonl" or not (session in (None, stem) or stem.startswith("agent-")):
                continue
            path = f"{folder}/{name}"
            if match := _SUBAGENT_NAME.fullmatch(stem):
                # Older versions stored subagents beside the sessions.
                yield (
                    path,
                    *self._make_subagent_name_and_parent_id(
                        _find_first_text_under_key_in_records(path, "sessionId"), match[1]
                    ),
                )
            elif _SESSION_NAME.fullmatch(stem) and not stem.startswith("agent-"):
                yield path, stem, None
        for name in names:
            if "." not in name and session in (None, name):
                for path, agent in _iterate_subagent_files(f"{folder}/{name}/subagents"):
                    yield path, *self._make_subagent_name_and_parent_id(name, agent)

    def _make_subagent_name_and_parent_id(
        self, session: str | None, agent: str
    ) -> tuple[str | None, str | None]:
        """Return a subagent's name and its parent's id; both are None if the session is unknown."""
        if session is None or not _SESSION_NAME.fullmatch(session):
            return None, None
        return f"{session}~{agent}", f"{self.id_prefix}{session}"

    def _make_session(
        self, file: _SessionFile, project: ProjectDirectory, directory: str
    ) -> StoredSession:
        return make_session_of_file(
            f"{self.id_prefix}{file.name}",
            self.name,
            file.path,
            file.status,
            project,
            directory,
            partial(_read_session_facts, file.path),
            parent=file.parent,
        )

    def _contains_user_request(self, file: _SessionFile) -> bool:
        """Return whether a file without a working directory contains a request."""
        state = (file.path, file.status.st_ino, file.status.st_size, file.status.st_mtime_ns)
        if state not in self._with_turn:
            self._with_turn[state] = file.name is not None and any(
                _is_typed_user_request(record)
                or (record.get("isSidechain") and record.get("type") == "user")
                for record in iterate_first_jsonl_records(file.path, _LONG_HEAD_BYTES)
            )
        return self._with_turn[state]

    def list_watched_directories(self, workspace: Workspace) -> list[Path]:
        """Return the folders that may contain sessions of the project."""
        return [
            Path(folder)
            for folder in _list_claude_folders_of_project(
                WorkspaceAndWorktreeDirectories(workspace), []
            )
        ]

    def list_data_directories(self, workspace: Workspace) -> list[Path]:
        """Return the directory with the folders of all projects."""
        return [Path(get_claude_directory(), "projects")]

    def count_conversations_of_all_projects(self) -> int:
        """Count the sessions and subagents in all projects."""
        root = f"{get_claude_directory()}/projects"
        count = 0
        for folder in list_directory(root, []):
            for entry in list_directory(folder.path, []):
                stem, end = os.path.splitext(entry.name)  # noqa: PTH122
                if end == ".jsonl":
                    count += not stem.startswith("agent-") or bool(_SUBAGENT_NAME.fullmatch(stem))
                elif not end:
                    count += sum(1 for _ in _iterate_subagent_files(f"{entry.path}/subagents"))
        return count

    def make_parser(
        self, builder: TurnBuilder, state: Mapping[str, Any] | None
    ) -> JsonlConversationParser:
        """Return a parser that continues from `state`, or from the beginning if `state` is None."""
        return ClaudeCodeParser(builder, state)

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        """Return the command that continues a session; None for a subagent's session."""
        if info.parent is not None or info.working_directory is None:
            return None
        session = info.id.removeprefix(self.id_prefix)
        return AgentCommand(("claude", "--resume", session), info.working_directory)

    def make_fork_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        """Return the command that continues a copy of a session. The copy has all turns."""
        resume = self.make_resume_command(info)
        return resume and resume._replace(words=(*resume.words, "--fork-session"))


def get_claude_directory() -> str:
    """Return the directory in which Claude Code stores its data."""
    return (
        paths.read_client_environment_variable("CLAUDE_CONFIG_DIR")
        or f"{paths.get_user_home()}/.claude"
    )


def make_project_directory_name(directory: str) -> str:
    """Return the name of the folder in which Claude Code stores the sessions of a project."""
    return re.sub(r"[^0-9A-Za-z]", "-", directory)


def _list_claude_folders_of_project(
    projects: WorkspaceAndWorktreeDirectories, unusable: list[SkippedConversationPath]
) -> list[str]:
    """Return the session folders whose names match a directory of the project."""
    root = f"{get_claude_directory()}/projects"
    names = [make_project_directory_name(one.path) for one in projects.directories]
    return [
        entry.path
        for entry in list_directory(root, unusable)
        if any(_is_claude_folder_of_project(entry.name, name) for name in names)
    ]


def _is_claude_folder_of_project(folder: str, name: str) -> bool:
    if len(name) > _FOLDER_CHARACTERS:
        return folder.startswith(name[:_FOLDER_CHARACTERS])
    # The folder name of `/` is a dash, and the folder names of its subdirectories begin with that dash.
    return folder == name or folder.startswith(f"{name.rstrip('-')}-")


def _select_newest_file_of_each_session(
    found: list[StoredSession], unusable: list[SkippedConversationPath]
) -> list[StoredSession]:
    """Return the newest file of each session. Older files are added to `unusable`."""
    kept: dict[str, StoredSession] = {}
    for one in sorted(found, key=lambda one: one.updated_at, reverse=True):
        newest = kept.setdefault(one.id, one)
        if newest is not one:
            reason = f"the newer file {newest.path} contains a conversation with the same id"
            unusable.append(SkippedConversationPath(Path(one.path), reason))
    return [one for one in found if kept[one.id] is one]


def _describe_files_without_working_directory(
    files: list[_SessionFile],
) -> Iterator[SkippedConversationPath]:
    """Yield each file with the reason why no session is read from it."""
    for path, status, _, _ in files:
        try:
            head = read_file_head(path, _HEAD_BYTES)
        except WorkspaceError as error:
            yield SkippedConversationPath(Path(path), error.message, True)
            continue
        reason: str | None
        kinds = {record.get("type") for record in iterate_first_jsonl_records(path, _HEAD_BYTES)}
        if not head:
            reason = "the file is empty"
        elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            reason = "the file is in UTF-16; Claude Code writes UTF-8"
        elif not kinds:
            reason = (
                "the file starts with NUL bytes"
                if head[0] == 0
                else "the file has no readable record"
            )
        elif kinds <= _IGNORED_TYPES:
            reason = None  # the file contains only titles and snapshots, no dialogue
        else:
            reason = "no record names the directory in which the session ran"
        is_new = time.time() - status.st_mtime < _NEW_SECONDS
        if is_new and b"\n" not in head and not head.startswith((b"\0", b"\xff", b"\xfe")):
            reason = None
        yield SkippedConversationPath(
            Path(path), reason or "the session has no turn yet", has_no_turn=reason is None
        )


def _iterate_subagent_files(directory: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the id of each subagent, including the subagents of workflows."""
    for folder, _, names in os.walk(directory):
        for name in sorted(names):
            stem, end = os.path.splitext(name)  # noqa: PTH122
            if end == ".jsonl" and (match := _SUBAGENT_NAME.fullmatch(stem)):
                yield f"{folder}/{name}", match[1]


def _read_working_directory(path: str) -> str | None:
    directory = _find_first_text_under_key_in_records(path, "cwd")
    return directory if directory is not None and directory.startswith("/") else None


def _find_first_text_under_key_in_records(path: str, key: str) -> str | None:
    """Return the first non-empty string that a file's records contain under `key`, or None.

    Reads as little of the file as possible.
    """
    text = next(_iterate_texts_under_key_in_first_records(path, _HEAD_BYTES, key), None)
    if text is not None:
        return text
    with suppress(WorkspaceError):
        head = read_file_head(path, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES:
            return None
        if match := re.match(_LEADING_VALUE % key.encode(), head.rpartition(b"\n")[2], re.DOTALL):
            with suppress(ValueError):
                return str(orjson.loads(match[1]))
    return next(_iterate_texts_under_key_in_first_records(path, _LONG_HEAD_BYTES, key), None)


def _iterate_texts_under_key_in_first_records(path: str, length: int, key: str) -> Iterator[str]:
    for record in iterate_first_jsonl_records(path, length, key):
        if type(text := record[key]) is str and text:
            yield text


def _read_session_facts(path: str) -> ConversationFileFacts:
    """Return the title of a session, its creation time and the time of its last record."""
    facts: ConversationFileFacts = {}
    request: str | None = None
    titles: dict[str, str] = {}
    for record in iterate_first_jsonl_records(path, _LONG_HEAD_BYTES):
        if "created_at" not in facts and (time := parse_timestamp(record.get("timestamp"))):
            facts["created_at"] = time
        _store_record_title(record, titles)
        if _is_typed_user_request(record):
            content = _get_message_content(record)
            request = make_title_from_user_request(
                format_user_request_text(_join_text_blocks(content))
            ) or make_title_from_user_request(format_user_request_text(content))
        if request is not None and "created_at" in facts:
            break
    tail = read_file_tail(path, _TAIL_BYTES).split(b"\n")
    may_have_title = (line for line in tail if b'Title"' in line or b'"summary"' in line)
    for record in iterate_json_objects_in_lines(may_have_title):
        _store_record_title(record, titles)
    if time := find_last_record_time(tail):
        facts["last_event_at"] = time
    named = (titles[key] for key in ("customTitle", "aiTitle", "summary") if key in titles)
    facts["title"] = next(named, request)
    return facts


def _store_record_title(record: dict[str, Any], titles: dict[str, str]) -> None:
    """Store a record's title, if it has one, in `titles`.

    The title replaces an earlier one of the same kind.
    """
    for kind, key in (
        ("custom-title", "customTitle"),
        ("ai-title", "aiTitle"),
        ("summary", "summary"),
    ):
        if record.get("type") == kind and type(title := record.get(key)) is str and title.strip():
            titles[key] = title.strip()


def _get_message_content(record: dict[str, Any]) -> Any:
    message = record.get("message")
    return message.get("content") if type(message) is dict else None


def _is_typed_user_request(record: dict[str, Any]) -> bool:
    """Return whether a record is a request that a person typed for the model."""
    if record.get("type") != "user" or record.get("isMeta") or record.get("isCompactSummary"):
        return False
    content = _get_message_content(record)
    if type(content) is list:
        kinds = {block.get("type") for block in content if type(block) is dict}
        if "tool_result" in kinds or not kinds:
            return False
    elif type(content) is not str:
        return False
    text = _join_text_blocks(content)
    return not text.lstrip().startswith(_NOTICE_STARTS)


def _join_text_blocks(content: Any) -> str:
    if type(content) is str:
        return content
    texts = [block.get("text") for block in content if type(block) is dict]
    return "\n".join(text for text in texts if type(text) is str)


def format_user_request_text(content: Any) -> str:
    """Return a request as the user typed it.

    If the request is a command, return the command's name with its arguments.
    """
    text = _format_message_content(content)
    if text.lstrip().startswith("<command-message>"):
        name = re.search(_TAG.format("command-name"), text)
        arguments = re.search(_TAG.format("command-args"), text)
        if name:
            return f"{name[1].strip()} {arguments[1].strip() if arguments else ''}".strip()
    return text


def _format_message_content(content: Any) -> str:
    """Return the content of a message as text."""
    if type(content) is str:
        return content
    if type(content) is not list:
        return "" if content is None else format_readable_json(content)
    return "\n".join(map(_format_content_block, content))


def _format_content_block(block: Any) -> str:
    if type(block) is str:
        return block
    if type(block) is not dict:
        return format_readable_json(block)
    if block.get("type") == "text" and type(block.get("text")) is str:
        return str(block["text"])
    if block.get("type") in {"image", "document"}:
        return _format_media_block(block)
    return format_readable_json(block)


def _format_media_block(block: dict[str, Any]) -> str:
    """Return a line with the kind, name, media type and size of an image or document."""
    source = block.get("source")
    source = source if type(source) is dict else {}
    data = source.get("data")
    size = format_counted_noun(count_base64_bytes(data), "byte") if type(data) is str else None
    named = (block.get("title"), source.get("url"), source.get("media_type"), size)
    details = ", ".join(part for part in named if type(part) is str and part)
    return f"[{block['type']}: {details}]" if details else f"[{block['type']}]"


class ClaudeCodeParser(JsonlConversationParser):
    """Parses the records of a session in the order of the file.

    The records form a tree, because a person can go back to an earlier turn and continue from
    there. The turns that are left behind keep their numbers, so that references stay valid.
    """

    def __init__(self, builder: TurnBuilder, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(builder)
        self._is_resumed = state is not None
        state = state or {}
        builder.model = state.get("model")
        self._turn_of_record: dict[str, int] = dict(state.get("turn_of_record", {}))
        """Maps the `uuid` of a record to the number of the record's turn."""
        self._written: dict[tuple[str, int], None] = dict.fromkeys(
            (record, checksum) for record, checksum in state.get("written", ())
        )
        """Each key consists of the `uuid` and a checksum of a record that has already been parsed.

        A later record with the same two values is a repetition and is ignored.
        """
        self._usage: dict[str, dict[str, int]] = {
            key: {**used} for key, used in state.get("usage", {}).items()
        }
        """Maps the id of a message to the token counts of the message.

        Each count is the highest that the records of the message have reported so far.
        """

    def make_parser_state(self) -> dict[str, object]:
        """Return the parser's state as JSON, from which another parser can resume.

        The state contains the model, and data about the last records and messages. Data about older
        records is not needed, because the next record usually answers or repeats a recent one.
        """
        return {
            "model": self.builder.model,
            "turn_of_record": get_last_added_dictionary_items(self._turn_of_record),
            "written": list(get_last_added_dictionary_items(self._written)),
            "usage": {
                key: {**used} for key, used in get_last_added_dictionary_items(self._usage).items()
            },
        }

    def can_resume_reading_in_turn(self) -> bool:
        """Return True, because later records add results to calls but do not change earlier events."""
        return True

    def starts_turn(self, record: dict[str, Any]) -> bool:
        """Return whether a record is a request.

        In a conversation, a person writes the requests. In a subagent's conversation, the main
        agent writes the request.
        """
        if record.get("isSidechain"):
            # The first record of a subagent's file is the request of the main agent.
            return not self.builder.turn_count and record.get("type") == "user"
        return _is_typed_user_request(record)

    def parse_record(self, record: dict[str, Any]) -> None:
        """Parse the next record."""
        kind = record.get("type")
        uuid = record.get("uuid")
        if type(uuid) is str:
            content = format_readable_json([kind, _get_message_content(record)])
            written = (uuid, crc32(content.encode("utf-8", "surrogatepass")))
            if written in self._written:
                return  # the agent wrote the record a second time
            self._written[written] = None
        time = parse_timestamp(record.get("timestamp"))
        if kind == "user":
            self._parse_user_record(record, time)
        elif kind == "assistant":
            self._parse_assistant_record(record, time)
        elif kind == "system":
            self._parse_system_record(record, time)
        elif kind not in _IGNORED_TYPES:
            name = kind if type(kind) is str else "record without a type"
            self.builder.add_unknown_event(name, record, time)
        if type(uuid) is str:
            self._turn_of_record[uuid] = self.builder.turn_count

    def _parse_user_record(self, record: dict[str, Any], time: datetime | None) -> None:
        content = _get_message_content(record)
        if record.get("isCompactSummary"):
            text = _format_message_content(content)
            turns = max(1, self.builder.turn_count)
            self.compactions.append(ConversationCompaction(1, turns, time, summary=text))
            self.builder.add_compaction_summary(text, time)
        elif self.starts_turn(record):
            self._mark_rewound_turns(record)
            self.builder.start_turn(time)
            # The requests of a subagent come from the agent that started it.
            author = "Agent" if record.get("isSidechain") else None
            text = format_user_request_text(content)
            self.builder.add_event("chat_request", text, time, author=author)
        elif type(content) is list:
            for block in content:
                if type(block) is dict and block.get("type") == "tool_result":
                    self._parse_tool_result(record, block, time)
                elif text := _format_content_block(block).strip():
                    self.builder.add_event("notice", _format_agent_notice_without_tags(text), time)
        elif text := _format_message_content(content).strip():
            self.builder.add_event("notice", _format_agent_notice_without_tags(text), time)

    def _mark_rewound_turns(self, record: dict[str, Any]) -> None:
        """Mark turns as rewound if the user left them behind by going back to an earlier turn."""
        if "parentUuid" not in record:
            return
        # After a compaction, the id of the previous record may be only in `logicalParentUuid`.
        parent = record["parentUuid"]
        if parent is None:
            parent = record.get("logicalParentUuid")
        if parent is None:
            last_kept = 0  # the person replaced the first request
        elif type(parent) is str and parent in self._turn_of_record:
            last_kept = self._turn_of_record[parent]
        else:
            # The record's parent is before the resume point, or missing from the file.
            self.needs_earlier_turns |= self._is_resumed
            return
        self.needs_earlier_turns |= last_kept < self.builder.turns_before
        for turn in self.builder.turns:
            if turn.number > last_kept:
                turn.is_rewound = True

    def _parse_tool_result(
        self, record: dict[str, Any], block: dict[str, Any], time: datetime | None
    ) -> None:
        details = record.get("toolUseResult")
        event = self.builder.add_tool_result(
            _get_string(block, "tool_use_id"),
            _format_message_content(block.get("content")),
            time,
            is_error=block.get("is_error") is True,
        )
        if type(details) is dict:
            if patch := _format_patch_of_tool_result(details):
                event.text = f"{event.text}\n\n{patch}" if event.text else patch
            event.metadata = _extract_subagent_id_and_answers(details)
            event.outcome = _format_tool_result_summary_as_in_claude_code(details)

    def _parse_assistant_record(self, record: dict[str, Any], time: datetime | None) -> None:
        message = record["message"]
        model = message.get("model")
        if type(model) is not str or not model or model.startswith("<"):
            model = None  # the agent itself wrote the message
        else:
            self.builder.set_model(model)
        self._add_token_usage(message, model)
        content = message.get("content")
        for block in [content] if type(content) is str else content or []:
            self._parse_answer_block(block, time)

    def _parse_answer_block(self, block: Any, time: datetime | None) -> None:
        kind = block.get("type") if type(block) is dict else "text"
        if kind == "text":
            text = block if type(block) is str else block["text"]
            if text.strip():
                self.builder.add_event("message", text.strip("\n"), time)
        elif kind == "thinking":
            if (text := block.get("thinking")) and text.strip():
                self.builder.add_event("reasoning", text.strip("\n"), time)
        elif kind in {"tool_use", "server_tool_use", "mcp_tool_use"}:
            name, call_id = _get_string(block, "name"), _get_string(block, "id")
            self.builder.add_tool_call(name, block.get("input"), call_id, time)
        elif kind != "redacted_thinking":
            self.builder.add_unknown_event(str(kind), block, time)

    def _parse_system_record(self, record: dict[str, Any], time: datetime | None) -> None:
        kind = record.get("subtype")
        if kind in _IGNORED_SYSTEM_TYPES:
            return
        if kind == "compact_boundary":
            return  # the summary follows in a separate record
        text = record.get("content")
        if type(text) is not str:
            error = record.get("error")
            text = _get_string(error, "message") if type(error) is dict else None
        if text is None:
            name = f"system {kind}" if type(kind) is str else "system"
            self.builder.add_unknown_event(name, record, time)
        elif text.strip():
            self.builder.add_event("notice", _format_agent_notice_without_tags(text), time)

    def _add_token_usage(self, message: dict[str, Any], model: str | None) -> None:
        """Add the tokens of a message.

        The message can have several records. Tokens that an earlier record has reported are not
        added again.
        """
        counts, message_id = message.get("usage"), message.get("id")
        if type(counts) is not dict or type(message_id) is not str:
            return
        kept = self._usage.setdefault(message_id, dict.fromkeys(_USAGE_KEYS, 0))
        added = []
        for key in _USAGE_KEYS:
            count = counts.get(key)
            known = kept[key]
            kept[key] = max(known, count) if type(count) is int else known
            added.append(kept[key] - known)
        if any(added):
            first, output, read, written = added
            usage = TokenUsage(first, output, read, written, sum(added))
            self.builder.add_token_usage(usage, model)


def _get_string(values: Any, key: str) -> str | None:
    value = values.get(key)
    return value if type(value) is str else None


def _extract_subagent_id_and_answers(details: dict[str, Any]) -> dict[str, Any] | None:
    """Extract metadata from the result of a call: the id of the subagent that the call started, and the user's answers.

    Returns None if the result contains neither.
    """
    metadata: dict[str, Any] = {}
    if agent := _get_string(details, "agentId"):
        metadata["subagent"] = agent
    if type(answers := details.get("answers")) is dict and answers:
        metadata["answers"] = {question: str(answer) for question, answer in answers.items()}
    return metadata or None


def _format_tool_result_summary_as_in_claude_code(details: dict[str, Any]) -> str | None:
    """Return the line that Claude Code shows as the summary of a result; None if it shows none."""

    def get_nonnegative_number(key: str) -> float | None:
        value = details.get(key)
        if type(value) not in (int, float) or value is None:
            return None
        return value if isfinite(value) and value >= 0 else None

    size, code, searches = (
        get_nonnegative_number("bytes"),
        get_nonnegative_number("code"),
        details.get("results"),
    )
    if size is not None and code is not None:
        status = f"{code:.0f} {_get_string(details, 'codeText') or ''}".strip()
        return f"Received {_format_size(size)} ({status})"
    if (seconds := get_nonnegative_number("durationSeconds")) is not None and type(
        searches
    ) is list:
        count = sum(type(one) is dict for one in searches)
        return (
            f"Did {format_counted_noun(count, 'search', 'searches')} in {_format_duration(seconds)}"
        )
    calls, tokens = (
        get_nonnegative_number("totalToolUseCount"),
        get_nonnegative_number("totalTokens"),
    )
    if calls is not None and tokens is not None:
        shown = f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:.0f}"
        parts = [f"{calls:.0f} tool use{'s' * (calls != 1)}", f"{shown} tokens"]
        if (milliseconds := get_nonnegative_number("totalDurationMs")) is not None:
            parts.append(_format_duration(milliseconds / 1000))
        return f"Done ({' · '.join(parts)})"
    return None


def _format_size(size: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if size < 1024 or unit == "MB":
            break
        size /= 1024
    return f"{size:.0f} bytes" if unit == "bytes" else f"{float(f'{size:.1f}'):g}{unit}"


def _format_duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"


def _format_agent_notice_without_tags(text: str) -> str:
    """Return an agent's notice without its tags."""
    if text.startswith("<task-notification>"):
        summary = re.search(_TAG.format("summary"), text)
        text = re.sub("</?task-notification>", "", text)
        text = re.sub(r"(?s)<([a-z-]+)>(.*?)</\1>", r"\1: \2", text).strip()
        return f"{summary[1].strip()}\n{text}" if summary else text
    if text.startswith("<command-name>"):
        name = re.search(_TAG.format("command-name"), text)
        arguments = re.search(_TAG.format("command-args"), text)
        words = [match[1].strip() for match in (name, arguments) if match]
        return " ".join(filter(None, words))
    tags = "bash-input|bash-stdout|bash-stderr|local-command-stdout|local-command-stderr|local-command-caveat"
    text = re.sub(r"\n?</(bash|local-command)-stdout>\s*(?=<\1-stderr>)", "\n", text)
    return re.sub(rf"</?(?:{tags})>", "", text).strip()


def _format_patch_of_tool_result(details: dict[str, Any]) -> str | None:
    """If a result reports changes to a file, return them as a unified diff, otherwise None."""
    hunks, path = details.get("structuredPatch"), details.get("filePath")
    if type(hunks) is not list or not hunks or type(path) is not str:
        return None
    lines = [f"--- {path}", f"+++ {path}"]
    for hunk in hunks:
        try:
            counts = [int(hunk[key]) for key in ("oldStart", "oldLines", "newStart", "newLines")]
            body = [str(line) for line in hunk["lines"]]
        except (KeyError, TypeError, ValueError):
            return None
        lines += ["@@ -{},{} +{},{} @@".format(*counts), *body]
    return "\n".join(lines)
