"""Reads the sessions of Gemini CLI: `session-TIME-ID.json` or `.jsonl` under `~/.gemini/tmp`.

A `.json` file is one object. A `.jsonl` file is a log: a message that changed is written again, and
records with `$set` and `$rewindTo` change earlier messages. Therefore both kinds of files are
always read as a whole.

Gemini CLI removes messages from the model's history. kbtui still shows these messages: it
marks rewound turns, and shows a summary as a compaction.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.conversation_data_types import (
    AgentCommand,
    Conversation,
    ConversationCompaction,
    TokenUsage,
)
from kbtui.conversations.formats.conversation_format import (
    ConversationFormat,
    SkippedConversationPath,
)
from kbtui.conversations.formats.damage_tolerant_file_reader import (
    MAX_EVENTS_BYTES,
    open_regular_file,
    read_file,
)
from kbtui.conversations.formats.jsonl_conversation_format import (
    iterate_jsonl_records,
    parse_json_with_bad_encoding,
)
from kbtui.conversations.formats.kept_session_file import KEPT_FILE_SUFFIX
from kbtui.conversations.formats.stored_session import (
    SessionFileCache,
    StoredSession,
    describe_conversation_reading_error,
    list_directory,
    make_session_of_file,
    make_title_from_user_request,
    stat_session_file,
)
from kbtui.conversations.formats.turn_builder import (
    READ_ERRORS,
    TurnBuilder,
    count_base64_bytes,
    format_media_placeholder,
    get_text_or_none,
)
from kbtui.conversations.workspace_and_worktree_directories import WorkspaceAndWorktreeDirectories
from kbtui.dates import parse_timestamp
from kbtui.errors import WorkspaceError
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_json_unless_text, format_readable_json
from kbtui.workspace.paths import get_user_home, read_client_environment_variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from kbtui.conversations.conversation_data_types import ConversationFileFacts, ConversationInfo
    from kbtui.conversations.formats.conversation_format import StoredConversation
    from kbtui.conversations.workspace_and_worktree_directories import ProjectDirectory
    from kbtui.workspace import Workspace

ID_PREFIX = "gemini-"
HEAD_BYTES = 16 << 10
"""The number of bytes of a file that are read first, to find out which session it contains."""
REGISTRY_BYTES_MAX = 4 << 20

_HASH = re.compile(r"[0-9a-f]{64}")
_SESSION_ID = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')
_PROJECT_HASH = re.compile(rb'"projectHash"\s*:\s*"([0-9a-f]{64})"')
_MESSAGES = re.compile(r'"messages"\s*:\s*\[')
_FIRST_MESSAGE = re.compile(r"[\s,]*\{")
_END = re.compile(r"\s*\]")
_NEXT_MESSAGE = re.compile(r"\n    \{")
"""Matches the line break, indentation and brace with which Gemini CLI starts a message in a file."""
_SUMMARY = re.compile(r"\s*<state_snapshot>")
_INSTRUCTIONS = re.compile(r"\s*(?:<session_context>|This is the Gemini CLI\. We are setting up)")
"""Matches the start of a message that Gemini CLI itself wrote but stored as a user message."""
_ACKNOWLEDGEMENTS = frozenset(
    {"Got it. Thanks for the context!", "Got it. Thanks for the additional context!"}
)
"""Replies that Gemini CLI itself writes but stores as the model's replies."""
_NOTICES = frozenset({"info", "warning", "error"})


class GeminiCliFormat(ConversationFormat):
    """Finds and reads the sessions of Gemini CLI."""

    has_file_per_conversation = True
    name = "gemini-cli"
    label = "Gemini CLI"
    id_prefix = ID_PREFIX

    def __init__(self) -> None:
        self._heads = SessionFileCache(_read_session_head, lambda head, _: bool(head.project_hash))

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[SkippedConversationPath]]:
        """Find all sessions of a workspace, or only the session with the id `only`."""
        unusable: list[SkippedConversationPath] = []
        projects = WorkspaceAndWorktreeDirectories(workspace)
        owners = _map_project_hashes(projects)
        files = list(_iterate_session_files(projects, owners, unusable))
        if only is not None:
            # The name of a file contains at least the first 8 characters of the id.
            start = only.removeprefix(ID_PREFIX)[:8]
            named = [one for one in files if start in os.path.basename(one.path)]  # noqa: PTH119
            if found := self._collect_sessions(named, owners, only, unusable):
                return found, unusable
        return self._collect_sessions(files, owners, only, unusable), unusable

    def list_watched_directories(self, workspace: Workspace) -> list[Path]:
        """Return the directory that contains the sessions of all projects, if it exists."""
        directory = Path(find_gemini_directory(), "tmp")
        return [directory] if directory.is_dir() else []

    def count_conversations_of_all_projects(self) -> int:
        """Count the session files in all projects, including those of subagents."""
        count = 0
        for directory in list_directory(f"{find_gemini_directory()}/tmp", []):
            for entry in list_directory(f"{directory.path}/chats", []):
                if entry.name.endswith((".json", ".jsonl")):
                    count += 1
                elif entry.is_dir():
                    names = [one.name for one in list_directory(entry.path, [])]
                    count += sum(name.endswith(".jsonl") for name in names)
        return count

    def load_conversation(self, info: ConversationInfo) -> Conversation:
        """Load a conversation. Never raises; errors are in `problems` of the result."""
        replay = _replay_session_file(info)
        builder, compactions = _parse_replayed_messages_into_turns(replay)
        return builder.make_conversation(info, replay.problems, compactions, builder.count)

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        """Return the command that continues a session.

        Returns None for a subagent, and for a session whose working directory is unknown.
        """
        if info.parent is not None or info.working_directory is None:
            return None
        words = ("gemini", "--resume", info.id.removeprefix(ID_PREFIX))
        return AgentCommand(words, info.working_directory)

    def _collect_sessions(
        self,
        files: list[_GeminiSessionFile],
        owners: dict[str, tuple[str, ProjectDirectory]],
        only: str | None,
        unusable: list[SkippedConversationPath],
    ) -> list[StoredSession]:
        """Return the sessions in `files`. Unusable files are added to `unusable`.

        `owners` maps the hash of each project's path to the path and the project.
        """
        found: dict[str, StoredSession] = {}
        for path, known_owner, parent in files:
            status = stat_session_file(path)
            if status is None:
                continue
            try:
                head = self._heads.read_file_facts(path, status)
            except (WorkspaceError, ValueError) as error:
                if only is None and known_owner is not None:
                    reason = describe_conversation_reading_error(error)
                    # An empty or damaged file counts as readable: perhaps it was never a session.
                    is_unreadable = isinstance(error, WorkspaceError)
                    unusable.append(SkippedConversationPath(Path(path), reason, is_unreadable))
                continue
            owner = known_owner or owners.get(head.project_hash)
            conversation_id = _make_gemini_conversation_id(head.id)
            if owner is None or (only is not None and conversation_id != only):
                continue
            session = make_session_of_file(
                conversation_id,
                self.name,
                path,
                status,
                owner[1],
                owner[0],
                partial(_read_gemini_session_facts, path),
                parent=_make_gemini_conversation_id(parent) if parent else None,
            )
            other = found.get(conversation_id)
            if other is not None:
                newer, older = sorted(
                    (session, other), key=_get_key_preferring_jsonl_and_newer_sessions, reverse=True
                )
                session = newer
                # Gemini CLI itself copies a `.json` to a `.jsonl` when it resumes a session.
                if older.path.endswith(".jsonl") or newer.path != f"{older.path}l":
                    reason = f"the newer file {newer.path} contains a conversation with the same id"
                    unusable.append(SkippedConversationPath(Path(older.path), reason))
            found[conversation_id] = session
        return list(found.values())


class _GeminiSessionHead(NamedTuple):
    """The facts about a session that are at the beginning of its file."""

    id: str
    project_hash: str


class _GeminiSessionFile(NamedTuple):
    """The file of a session or subagent.

    `owner` consists of the directory in which Gemini CLI ran and the project to which the directory
    belongs. If `owner` is None, the owner is found by the project's hash in the file. `parent` is
    the id of the session that started the subagent.
    """

    path: str
    owner: tuple[str, ProjectDirectory] | None
    parent: str | None


@dataclass(slots=True, eq=False)
class _GeminiMessageOrCompaction:
    """A message, an unknown record or a compaction in a session's history; `kind` says which.

    A compaction replaces all messages up to the message `last`. `is_undone` says that Gemini CLI
    removed the message from its history without a rewind.
    """

    kind: str
    record: dict[str, Any]
    is_rewound: bool = False
    is_undone: bool = False
    last: _GeminiMessageOrCompaction | None = None


def find_gemini_directory() -> str:
    """Return the directory of Gemini CLI: `.gemini` in `$GEMINI_CLI_HOME`, or else in the user's home."""
    home = read_client_environment_variable("GEMINI_CLI_HOME") or get_user_home()
    return f"{home}/.gemini"


def hash_project_path(path: str) -> str:
    """Return the hash that older versions of Gemini CLI use as the name of a project's directory."""
    return sha256(path.encode("utf-8", "surrogateescape")).hexdigest()


def _map_project_hashes(
    projects: WorkspaceAndWorktreeDirectories,
) -> dict[str, tuple[str, ProjectDirectory]]:
    owners: dict[str, tuple[str, ProjectDirectory]] = {}
    for project in projects.directories:
        # Gemini CLI follows links before it hashes a path.
        for path in (project.path, os.path.realpath(project.path)):
            owners.setdefault(hash_project_path(path), (project.path, project))
    return owners


def _iterate_session_files(
    projects: WorkspaceAndWorktreeDirectories,
    owners: dict[str, tuple[str, ProjectDirectory]],
    unusable: list[SkippedConversationPath],
) -> Iterator[_GeminiSessionFile]:
    home = find_gemini_directory()
    paths_by_name = _read_project_registry(f"{home}/projects.json")
    for directory in list_directory(f"{home}/tmp", unusable):
        name = directory.name
        owner = owners.get(name)
        if owner is None:
            root = _read_project_root(directory.path) or paths_by_name.get(name)
            found = projects.find_directory_of(root) if root else None
            if root and found:
                owner = (root, found)
            elif root or _HASH.fullmatch(name):
                continue
        for entry in list_directory(f"{directory.path}/chats", unusable):
            if entry.name.endswith((".json", ".jsonl")):
                yield _GeminiSessionFile(entry.path, owner, None)
            elif entry.is_dir():
                # A subagent's session is in a directory named after the session that started the subagent.
                for one in list_directory(entry.path, unusable):
                    if one.name.endswith(".jsonl"):
                        yield _GeminiSessionFile(one.path, owner, entry.name)


def _read_project_root(directory: str) -> str | None:
    """Return the project path that is stored in a data directory, or None."""
    try:
        path = read_file(f"{directory}/.project_root", HEAD_BYTES).decode().strip()
    except (WorkspaceError, ValueError):
        return None
    return path or None


def _read_project_registry(path: str) -> dict[str, str]:
    """Return the project registry, which maps the name of each data directory to a project's path."""
    try:
        value = orjson.loads(read_file(path, REGISTRY_BYTES_MAX))
        projects = value["projects"]
        return {name: path for path, name in projects.items() if type(name) is str}
    except (WorkspaceError, *READ_ERRORS):
        return {}


def _read_session_head(path: str) -> _GeminiSessionHead:
    """Return the session id and the hash of the project, from the beginning of a file.

    Raises `WorkspaceError` or `ValueError`.
    """
    with open_regular_file(path) as (file, size):
        if not size:
            raise ValueError("the file is empty")
        data = os.pread(file, HEAD_BYTES, 0)
    if path.endswith(".jsonl"):
        data = data.partition(b"\n")[0]
    head = data.partition(b'"messages"')[0]
    match, project = _SESSION_ID.search(head), _PROJECT_HASH.search(head)
    if match is not None:
        return _GeminiSessionHead(
            match[1].decode("utf-8", "replace"), project[1].decode() if project else ""
        )
    metadata = _replay_readable_records(path).metadata
    if type(metadata.get("sessionId")) is not str or not metadata["sessionId"]:
        raise ValueError("the file contains no session id")
    return _GeminiSessionHead(
        metadata["sessionId"], get_text_or_none(metadata.get("projectHash")) or ""
    )


def _make_gemini_conversation_id(session_id: str) -> str:
    return ID_PREFIX + re.sub(r"[^0-9A-Za-z._-]", "_", session_id)[:100]


def _get_key_preferring_jsonl_and_newer_sessions(
    session: StoredSession,
) -> tuple[bool, datetime, str]:
    return session.path.endswith(".jsonl"), session.updated_at, session.path


def _read_gemini_session_facts(path: str) -> ConversationFileFacts:
    """Return a session's title, its first problem, and the times of its start and end."""
    replay = _replay_readable_records(path)
    facts: ConversationFileFacts = {}
    if replay.problems:
        facts["problem"] = replay.problems[0]
    times = [
        replay.metadata.get("startTime"),
        *(one.record.get("timestamp") for one in replay.messages),
    ]
    created_at = next((time for one in times if (time := parse_timestamp(one))), None)
    if created_at is not None:
        facts["created_at"] = created_at
    last = (replay.metadata.get("lastUpdated"), *times[::-1])
    if ended_at := next((time for one in last if (time := parse_timestamp(one))), None):
        facts["last_event_at"] = ended_at
    summary = replay.metadata.get("summary")
    title = make_title_from_user_request(summary) if type(summary) is str else None
    facts["title"] = title or make_title_from_user_request(_find_first_user_request(replay))
    return facts


def _find_first_user_request(replay: _ReplayedSession) -> str:
    for message in replay.messages:
        if message.record.get("type") == "user":
            try:
                text = _get_typed_and_sent_request_texts(message.record)[0]
            except READ_ERRORS:
                continue
            if text.strip() and not _INSTRUCTIONS.match(text) and not _SUMMARY.match(text):
                return text
    return ""


class _ReplayedSession:
    """The messages and metadata of a session, as changed by the records applied so far."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.messages: list[_GeminiMessageOrCompaction] = []
        self.problems: list[str] = []
        self._by_id: dict[str, _GeminiMessageOrCompaction] = {}

    def add_problem(self, problem: str) -> None:
        """Add the description of a part of the session that cannot be read."""
        self.problems.append(problem)

    def apply_record(self, record: Any) -> None:
        """Apply the next record of a log."""
        if type(record) is not dict:
            self.add_problem("a record is not an object")
        elif type(record.get("$rewindTo")) is str:
            self._mark_messages_rewound(record["$rewindTo"])
        elif type(record.get("id")) is str:
            self._add_message(record, len(self.messages))
        elif type(record.get("$set")) is dict:
            self._update_metadata_and_messages(record["$set"])
        elif "sessionId" in record:
            self._update_metadata_and_messages(record)
        else:
            self.messages.append(_GeminiMessageOrCompaction("unknown", record))

    def _update_metadata_and_messages(self, values: dict[str, Any]) -> None:
        self.metadata |= {name: value for name, value in values.items() if name != "messages"}
        if type(values.get("messages")) is list:
            self._replace_messages(values["messages"], values.get("lastUpdated"))

    def _add_message(self, record: dict[str, Any], position: int) -> None:
        """Add a message, or replace the message that has the same id."""
        known = self._by_id.get(record["id"])
        if known is not None and not known.is_rewound:
            known.record, known.is_undone = record, False
        else:
            self._by_id[record["id"]] = message = _GeminiMessageOrCompaction("message", record)
            self.messages.insert(position, message)

    def _mark_messages_rewound(self, message_id: str) -> None:
        """Mark the message with this id and all later messages as rewound.

        If no message has this id, mark all messages as rewound.
        """
        target = self._by_id.get(message_id)
        found = target is None
        for message in self.messages:
            found = found or message is target
            message.is_rewound = message.is_rewound or found

    def _replace_messages(self, records: list[Any], time: Any) -> None:
        """Replace the history with `records`.

        Messages that are already known keep their content, because the content in `records` may be
        shortened.
        """
        positions = {id(one): at for at, one in enumerate(self.messages)}
        seen = [
            one
            for one in self.messages
            if one.kind == "message"
            and one.record.get("type") in ("user", "gemini")
            and not (one.is_rewound or one.is_undone)
        ]
        kept = set()
        summary = None
        position = len(self.messages)
        for record in reversed(records):
            if type(record) is not dict or type(record.get("id")) is not str:
                self.messages.insert(
                    position, _GeminiMessageOrCompaction("unknown", {"message": record})
                )
                continue
            kept.add(record["id"])
            known = self._by_id.get(record["id"])
            if known is not None and not known.is_rewound:
                position = positions.get(id(known), position)
                known.is_undone = False
            elif (text := _get_compression_summary_in_user_message(record)) is not None:
                summary = text
            else:
                self._add_message(record, position)
        hidden = [one for one in seen if one.record["id"] not in kept]
        if summary is not None and hidden:
            record = {"timestamp": time, "text": summary}
            self.messages.append(_GeminiMessageOrCompaction("compaction", record, last=hidden[-1]))
        elif summary is None and hidden and hidden == seen[-len(hidden) :]:
            for message in hidden:
                message.is_undone = True


def _get_compression_summary_in_user_message(record: dict[str, Any]) -> str | None:
    """If a record is a user message with a summary of the earlier history, return its text, otherwise None."""
    if record.get("type") != "user":
        return None
    try:
        text = _group_message_parts_by_kind(record.get("content")).text
    except READ_ERRORS:
        return None
    return text if _SUMMARY.match(text) else None


def _replay_session_file(info: ConversationInfo) -> _ReplayedSession:
    """Read the file of a conversation. Never raises; errors are in `problems` of the result."""
    try:
        return _replay_readable_records(str(info.events_path))
    except WorkspaceError as error:
        replay = _ReplayedSession()
        replay.add_problem(error.message)
        return replay


def _replay_readable_records(path: str) -> _ReplayedSession:
    """Read the readable parts of a session file.

    Raises `WorkspaceError` if the file cannot be opened.
    """
    replay = _ReplayedSession()
    if path.removesuffix(KEPT_FILE_SUFFIX).endswith(".jsonl"):
        with open_regular_file(path) as (file, _):
            number = 0
            for record in iterate_jsonl_records(file):
                number += 1 + record.empty_lines
                if record.problem is not None:
                    replay.add_problem(f"line {number}: it {record.problem}")
                else:
                    replay.apply_record(record.value)
        return replay
    data = read_file(path, MAX_EVENTS_BYTES)
    try:
        value = parse_json_with_bad_encoding(data)
    except ValueError as error:
        replay.add_problem(f"it is not JSON: {error}")
        value = _recover_damaged_session(data.decode("utf-8", "replace"))
    if type(value) is not dict:
        replay.add_problem("it is not an object")
        return replay
    messages = value.pop("messages", [])
    replay.apply_record({"$set": value})
    if type(messages) is not list:
        replay.add_problem("its messages are not a list")
        messages = []
    for message in messages:
        if type(message) is dict and type(message.get("id")) is str:
            replay.apply_record(message)
        else:
            replay.messages.append(_GeminiMessageOrCompaction("unknown", {"message": message}))
    return replay


def _recover_damaged_session(text: str) -> dict[str, Any]:
    """Return the readable part of a damaged session: its messages, and a part of its metadata.

    From the metadata, this recovers only the text values that precede the messages in the file.
    """
    from json import JSONDecoder, dumps

    decoder = JSONDecoder()
    match = _MESSAGES.search(text)
    value: dict[str, Any] = {}
    for name, word in re.findall(
        r'"(\w+)"\s*:\s*"([^"\\]*)"', text[: match.start() if match else 4096]
    ):
        value.setdefault(name, word)
    messages = value["messages"] = []
    if match is None:
        return value
    start = _FIRST_MESSAGE.match(text, match.end())
    while start is not None:
        position = start.end()
        try:
            message, position = decoder.raw_decode(text, position - 1)
            # This also replaces unpaired surrogates.
            messages.append(parse_json_with_bad_encoding(dumps(message).encode()))
        except (ValueError, RecursionError):
            pass
        start = _FIRST_MESSAGE.match(text, position)
        if start is None and not _END.match(text, position):
            start = _NEXT_MESSAGE.search(text, position)
    return value


def _parse_replayed_messages_into_turns(
    replay: _ReplayedSession,
) -> tuple[TurnBuilder, list[ConversationCompaction]]:
    builder = TurnBuilder()
    compactions = []
    turns: dict[int, int] = {}
    parser = GeminiMessageParser(builder)
    for message in replay.messages:
        record = message.record
        try:
            if message.kind == "message":
                parser.parse_message(message)
            elif message.kind == "unknown":
                builder.add_unknown_event("record", record)
            elif last := turns.get(id(message.last)):
                time = parse_timestamp(record["timestamp"])
                compactions.append(ConversationCompaction(1, last, time, record["text"]))
                builder.add_compaction_summary(record["text"], time)
        except READ_ERRORS:
            kind = record.get("type")
            builder.add_unreadable_record(kind if type(kind) is str else "record", record)
        turns[id(message)] = builder.turn_count
        builder.count += 1
    return builder, compactions


def _read_token_counts(tokens: Any) -> TokenUsage | None:
    """Return the token counts of a message; None if the message has no token counts."""
    used: dict[str, int] = {}
    if type(tokens) is dict:
        used = {name: value for name, value in tokens.items() if type(value) is int}
    if not used:
        return None
    read = used.get("cached", 0)
    return TokenUsage(
        input_tokens=max(0, used.get("input", 0) + used.get("tool", 0) - read),
        output_tokens=used.get("output", 0) + used.get("thoughts", 0),
        cache_read_tokens=read,
        total_tokens=used.get("total", 0),
    )


class GeminiMessageParser:
    """Parses the messages of a session into turns."""

    def __init__(self, builder: TurnBuilder) -> None:
        self.builder = builder
        self._has_answer = False
        self._call_ids: set[str] = set()
        self._counted_ids: set[Any] = set()
        """The ids of messages whose tokens have been counted. A file can contain the same message twice."""

    def parse_message(self, message: _GeminiMessageOrCompaction) -> None:
        """Parse the next message.

        May raise any exception if a value in the message has the wrong type.
        """
        record = message.record
        kind = record.get("type")
        time = parse_timestamp(record.get("timestamp"))
        if kind == "user":
            self._parse_user_message(message, time)
        elif kind == "gemini":
            self._parse_model_message(record, time)
        elif kind in _NOTICES:
            text = _group_message_parts_by_kind(record.get("content")).text
            self.builder.add_event("notice", f"[{kind}: {text}]", time)
        else:
            self.builder.add_unknown_event(str(kind), record, time)

    def _parse_user_message(
        self, message: _GeminiMessageOrCompaction, time: datetime | None
    ) -> None:
        record = message.record
        parts = _group_message_parts_by_kind(record.get("content"))
        if parts.responses and not parts.text:
            # The history repeats results that the calls already have.
            for response in parts.responses:
                if response.get("id") in self.builder.unanswered_call_ids:
                    self._add_tool_result(
                        response["id"], [{"functionResponse": response}], None, time
                    )
                elif response.get("id") not in self._call_ids:
                    self.builder.add_unknown_event("functionResponse", response, time)
            return
        if _INSTRUCTIONS.match(parts.text) or _SUMMARY.match(parts.text):
            return
        text, context = _get_typed_and_sent_request_texts(record)
        turn = self.builder.start_turn(time)
        turn.is_rewound = message.is_rewound or message.is_undone
        self._has_answer = False
        metadata = {"context": context} if context else None
        self.builder.add_event("chat_request", text, time, metadata=metadata)

    def _parse_model_message(self, record: dict[str, Any], time: datetime | None) -> None:
        parts = _group_message_parts_by_kind(record.get("content"))
        if parts.text in _ACKNOWLEDGEMENTS and not record.get("toolCalls"):
            return
        model = record.get("model")
        if type(model) is str and model:
            self.builder.set_model(model, is_before_answer=not self._has_answer)
        self._has_answer = True
        used = _read_token_counts(record.get("tokens"))
        if used is not None and record.get("id") not in self._counted_ids:
            self._counted_ids.add(record.get("id"))
            self.builder.add_token_usage(used, model if type(model) is str else None)
        for thought in record.get("thoughts") or []:
            texts = [thought.get("subject"), thought.get("description")]
            text = "\n\n".join(
                f"**{one}**" if not at else one for at, one in enumerate(texts) if one
            )
            self.builder.add_event(
                "reasoning", text, parse_timestamp(thought.get("timestamp")) or time
            )
        for text in parts.thoughts:
            self.builder.add_event("reasoning", text, time)
        if parts.text.strip():
            self.builder.add_event("message", parts.text, time)
        calls = record.get("toolCalls") or []
        ids = {call["id"] for call in calls if type(call.get("id")) is str}
        for call in parts.calls:
            if call.get("id") not in ids:
                self._add_tool_call(call.get("name"), call.get("args"), call.get("id"), time)
        for number, call in enumerate(calls):
            self._parse_tool_call(call, f"{record['id']}.{number}", time)

    def _parse_tool_call(self, call: dict[str, Any], fallback: str, time: datetime | None) -> None:
        call_id = call["id"] if type(call.get("id")) is str else fallback
        time = parse_timestamp(call.get("timestamp")) or time
        self._add_tool_call(call.get("name"), call.get("args"), call_id, time)
        if call.get("result") or call.get("resultDisplay") is not None:
            is_error = call.get("status") in {"error", "cancelled"}
            result = call.get("result") or call["resultDisplay"]
            self._add_tool_result(call_id, result, is_error, time)

    def _add_tool_call(
        self, name: Any, arguments: Any, call_id: Any, time: datetime | None
    ) -> None:
        if type(call_id) is str:
            self._call_ids.add(call_id)
        name = name if type(name) is str else None
        call_id = call_id if type(call_id) is str else None
        self.builder.add_tool_call(name, arguments, call_id, time)

    def _add_tool_result(
        self, call_id: str, result: Any, is_error: bool | None, time: datetime | None
    ) -> None:
        text, has_error = extract_tool_result_text_and_failure(result)
        self.builder.add_tool_result(
            call_id, text, time, is_error=has_error if is_error is None else is_error or has_error
        )


class _GeminiMessageContent(NamedTuple):
    """The parts of a message, grouped by kind.

    * `text` contains the joined texts, and a line for each attached file.
    * `thoughts` are the model's reasoning texts.
    * `calls` are tool calls.
    * `responses` are the results of tool calls.
    """

    text: str
    thoughts: list[str]
    calls: list[dict[str, Any]]
    responses: list[dict[str, Any]]


def _group_message_parts_by_kind(content: Any) -> _GeminiMessageContent:
    parts = content if type(content) is list else [] if content is None else [content]
    texts: list[str] = []
    files: list[str] = []
    found = _GeminiMessageContent("", [], [], [])
    for part in parts:
        if type(part) is str:
            texts.append(part)
        elif type(part.get("text")) is str:
            (found.thoughts if part.get("thought") is True else texts).append(part["text"])
        elif type(part.get("functionCall")) is dict:
            found.calls.append(part["functionCall"])
        elif type(part.get("functionResponse")) is dict:
            found.responses.append(part["functionResponse"])
        elif type(part.get("inlineData")) is dict or type(part.get("fileData")) is dict:
            files.append(_format_file_placeholder(part.get("inlineData") or part["fileData"]))
        elif part.keys() - {"thoughtSignature", "thought"}:
            files.append(format_readable_json(part))
    # The parts are pieces of one text, so no line breaks are added between them.
    text = "".join(texts)
    return found._replace(text="\n".join([*([text] if text else []), *files]))


def _get_typed_and_sent_request_texts(record: dict[str, Any]) -> tuple[str, str | None]:
    """Return the text that the user wrote, and the text that the model received.

    The second text is None if both are equal.
    """
    sent = _group_message_parts_by_kind(record.get("content")).text
    shown = _group_message_parts_by_kind(record.get("displayContent")).text
    return (shown, sent) if shown and shown != sent else (sent, None)


def _format_file_placeholder(data: dict[str, Any]) -> str:
    """Return the line that stands for an image or another file."""
    kind = get_text_or_none(data.get("mimeType")) or "unknown type"
    name = str(data.get("displayName") or get_text_or_none(data.get("fileUri")) or "pasted")
    encoded = data.get("data")
    return format_media_placeholder(
        name, kind, count_base64_bytes(encoded) if type(encoded) is str else None
    )


def extract_tool_result_text_and_failure(result: Any) -> tuple[str, bool]:
    """Return the text of a tool's result, and whether the tool failed."""
    if type(result) is dict and "functionResponse" not in result and "text" not in result:
        diff = result.get("fileDiff")
        return (diff if type(diff) is str else format_readable_json(result)), False
    parts = _group_message_parts_by_kind(result)
    texts, is_error = [], False
    for one in parts.responses:
        response = one.get("response")
        if type(response) is dict and "error" in response:
            is_error = True
            texts.append(format_json_unless_text(response["error"]))
        elif type(response) is dict and "output" in response:
            texts.append(format_json_unless_text(response["output"]))
        else:
            texts.append(format_json_unless_text(response))
        if type(one.get("parts")) is list:
            texts.append(_group_message_parts_by_kind(one["parts"]).text)
    if parts.text:
        texts.append(parts.text)
    return "\n".join(text for text in texts if text), is_error
