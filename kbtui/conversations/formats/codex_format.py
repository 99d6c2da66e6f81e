"""Reads the sessions of Codex: `rollout-TIME-UUID.jsonl` under `$CODEX_HOME`.

A file contains most texts twice: as an event for the screen (`event_msg`) and as an item of the
model's history (`response_item`). Each pair becomes one event. Requests are read from the
`event_msg` records, because the history also contains messages that Codex wrote itself but stored
as user messages.
"""

from __future__ import annotations

import codecs
import mimetypes
import os
import re
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.conversation_data_types import (
    AgentCommand,
    ConversationCompaction,
    ConversationEvent,
    TokenUsage,
)
from kbtui.conversations.formats.conversation_format import SkippedConversationPath
from kbtui.conversations.formats.damage_tolerant_file_reader import (
    open_regular_file,
    read_file_tail,
)
from kbtui.conversations.formats.jsonl_conversation_format import (
    RECORDS_KEPT,
    JsonlConversationFormat,
    JsonlConversationParser,
    get_last_added_dictionary_items,
    iterate_jsonl_records,
)
from kbtui.conversations.formats.stored_session import (
    SessionFileCache,
    StoredSession,
    describe_conversation_reading_error,
    find_last_record_time,
    list_directory,
    make_change_signature,
    make_session_of_file,
    make_title_from_user_request,
    stat_session_file,
)
from kbtui.conversations.formats.turn_builder import (
    READ_ERRORS,
    TurnBuilder,
    count_base64_bytes,
    get_text_or_none,
)
from kbtui.conversations.workspace_and_worktree_directories import WorkspaceAndWorktreeDirectories
from kbtui.dates import parse_timestamp
from kbtui.errors import WorkspaceError
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_readable_json
from kbtui.workspace.paths import get_user_home, read_client_environment_variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from kbtui.conversations.conversation_data_types import ConversationFileFacts, ConversationInfo
    from kbtui.conversations.formats.conversation_format import StoredConversation
    from kbtui.workspace import Workspace

ID_PREFIX = "codex-"
HEAD_BYTES = 256 << 10
"""If the first record does not contain the working directory, this many bytes are searched for it."""
FIRST_REQUEST_BYTES = 8 << 20
"""The number of bytes searched for the first request, which may follow long instructions."""
TAIL_BYTES = 64 << 10
DATE_DEPTH = 3
"""The depth of the session directories: year/month/day."""
COPY_SECONDS = 1.0
"""A fork's records count as copied from the original session up to this many seconds after the fork began."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_WORKING_DIRECTORY = re.compile(r"<cwd>([^<\n]+)</cwd>|Current working directory: ([^\n]+)")
_IDE_CONTEXT = "# Context from my IDE setup:"
_IDE_REQUEST = re.compile(r"^## My request for Codex:", re.MULTILINE)
_INSTRUCTIONS = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<INSTRUCTIONS>"
    r"|<(?:environment_context|user_instructions|turn_aborted|permissions instructions"
    r"|collaboration_mode|personality_spec|model_switch|\w+_instructions)>)"
)
"""Matches the start of instructions that Codex stores as a user message."""
_INJECTED = re.compile(
    r"\s*<(user_shell_command|user_action|subagent_notification|skill|hook_prompt)\b"
)
"""Matches the start of a report that Codex stores as a user message."""
_HIDDEN_MARKUP = re.compile(r"<(oai-mem-citation|proposed_plan)>.*?(?:</\1>|\Z)", re.DOTALL)
"""Matches a part of the model's reply that Codex does not show to the user."""
_EXIT_CODE = re.compile(r"(?:.*\n){0,4}?(?:Exit code:|Process exited with code) (-?\d+)\n")
_FAILURES = (
    "failed in sandbox",
    "execution error:",
    "exec command rejected",
    "failed to parse function arguments",
)
"""If a result has no exit code and begins with one of these texts, its call has failed."""

_RESPONSE_ITEMS = frozenset(
    {"message", "reasoning", "function_call", "function_call_output", "local_shell_call"}
)
"""The types of items that the oldest versions of Codex write as whole records, not in a `payload`."""
_MODEL_OUTPUT = frozenset(
    {
        "reasoning",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
        "tool_search_call",
        "image_generation_call",
    }
)
_IGNORED_ITEMS = frozenset(
    # Only the model or Codex reads these: encrypted summaries, snapshots for undo, declarations.
    {
        "additional_tools",
        "compaction",
        "compaction_summary",
        "context_compaction",
        "ghost_snapshot",
    }
)
_IGNORED_EVENTS = frozenset(
    {
        "sub_agent_activity",
        "task_complete",
        "task_started",
        "thread_name_updated",
        "thread_settings_applied",
    }
)
"""The types of events that are skipped, because they add nothing to the other records."""
_SUMMARIZERS = frozenset({"compact", "memory_consolidation"})


class CodexFormat(JsonlConversationFormat):
    """Finds and reads the sessions of Codex, live and archived."""

    name = "codex"
    label = "Codex"
    id_prefix = ID_PREFIX

    def __init__(self) -> None:
        self._heads = SessionFileCache(_read_session_head, _is_session_head_final)
        self._names = SessionFileCache(_read_thread_names)

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[SkippedConversationPath]]:
        """Find all sessions of a workspace, or only the session with the id `only`."""
        projects = WorkspaceAndWorktreeDirectories(workspace)
        home = find_codex_directory()
        index = f"{home}/session_index.jsonl"
        status = stat_session_file(index)
        names = self._names.read_file_facts(index, status) if status is not None else {}
        found: dict[str, StoredSession] = {}
        unusable: list[SkippedConversationPath] = []
        paths = list(_iterate_session_files(home, unusable))
        if only is not None:
            uuid = only.removeprefix(ID_PREFIX)
            named = [one for one in paths if uuid in one[0]]
            self._collect_sessions(named, projects, names, only, found, unusable)
            if found:
                return list(found.values()), unusable
        # If a file was renamed, the session's id is only in the first record.
        self._collect_sessions(paths, projects, names, only, found, unusable)
        return list(found.values()), unusable

    def list_watched_directories(self, workspace: Workspace) -> list[Path]:
        """Return the directories of live and archived sessions, if they exist."""
        home = find_codex_directory()
        return [Path(home, name) for name, _ in _ROOTS if os.path.isdir(f"{home}/{name}")]  # noqa: PTH112

    def is_file_of_other_project(self, workspace: Workspace, path: str) -> bool:
        """Return whether a file is a session that ran in a directory of another project."""
        if not _SESSION_FILE.search(path) or not path.startswith(f"{find_codex_directory()}/"):
            return False
        status = stat_session_file(path)
        if status is None:
            return False
        try:
            directory = self._heads.read_file_facts(path, status).working_directory
        except (WorkspaceError, ValueError):
            return False
        if directory is None:
            return False
        return WorkspaceAndWorktreeDirectories(workspace).find_directory_of(directory) is None

    def count_conversations_of_all_projects(self) -> int:
        """Count the sessions in all projects.

        Sessions of subagents, and sessions that only summarize another one, are included.
        """
        return sum(1 for _ in _iterate_session_files(find_codex_directory(), []))

    def make_parser(
        self, builder: TurnBuilder, state: Mapping[str, Any] | None
    ) -> JsonlConversationParser:
        """Return a parser that continues from `state`, or from the beginning if `state` is None."""
        return CodexParser(builder, state)

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        """Return the command that continues a session.

        Returns None if the session is archived, or if the directory in which it ran is unknown.
        """
        if info.archived or info.working_directory is None:
            # Codex finds only live sessions.
            return None
        words = ("codex", "resume", info.id.removeprefix(ID_PREFIX))
        return AgentCommand(words, info.working_directory)

    def make_fork_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        """Return the command that continues a copy of a session. The copy has all turns."""
        resume = self.make_resume_command(info)
        return resume and resume._replace(words=("codex", "fork", resume.words[-1]))

    def _collect_sessions(
        self,
        paths: list[tuple[str, bool]],
        projects: WorkspaceAndWorktreeDirectories,
        names: dict[str, str],
        only: str | None,
        found: dict[str, StoredSession],
        unusable: list[SkippedConversationPath],
    ) -> None:
        """Add the project's sessions to `found`, and unusable files to `unusable`.

        `paths` contains pairs: a file's path, and whether the file is archived. A file is unusable
        if it cannot be read, or if an earlier session has the same id. `names` maps session ids to
        titles. If `only` is a conversation id, all other sessions and all unreadable files are
        ignored.
        """
        for path, is_archived in paths:
            status = stat_session_file(path)
            if status is None:
                continue
            try:
                head = self._heads.read_file_facts(path, status)
            except (WorkspaceError, ValueError) as error:
                if only is None:
                    reason = describe_conversation_reading_error(error)
                    # An empty or damaged file counts as readable: perhaps it was never a session.
                    is_unreadable = isinstance(error, WorkspaceError)
                    unusable.append(SkippedConversationPath(Path(path), reason, is_unreadable))
                continue
            if head.is_summarizer or head.working_directory is None:
                continue
            project = projects.find_directory_of(head.working_directory)
            conversation_id = f"{ID_PREFIX}{head.id}"
            if project is None or (only is not None and conversation_id != only):
                continue
            if earlier := found.get(conversation_id):
                reason = f"{earlier.path} contains a conversation with the same id"
                unusable.append(SkippedConversationPath(Path(path), reason))
                continue
            title = names.get(head.id)
            session = make_session_of_file(
                conversation_id,
                self.name,
                path,
                status,
                project,
                head.working_directory,
                partial(_read_codex_session_facts, path, head, title),
                is_archived=is_archived,
                parent=f"{ID_PREFIX}{head.parent}" if head.parent else None,
            )
            if title is not None:
                session.signature = make_change_signature(session.signature, title)
            found[conversation_id] = session


class _CodexSessionHead(NamedTuple):
    """The facts about a session that are at the beginning of its file."""

    id: str
    working_directory: str | None
    created_at: datetime | None = None
    parent: str | None = None
    forked_from: str | None = None
    is_summarizer: bool = False


_SESSION_FILE = re.compile(r"/rollout-[^/]*\.jsonl$")
_ROOTS = (("sessions", False), ("archived_sessions", True))


def find_codex_directory() -> str:
    """Return Codex's directory: `$CODEX_HOME` if it is set, otherwise `~/.codex`."""
    return read_client_environment_variable("CODEX_HOME") or f"{get_user_home()}/.codex"


def _read_thread_names(path: str) -> dict[str, str]:
    """Map each session id in a session index to the name that a person last gave the session."""
    names: dict[str, str] = {}
    with suppress(WorkspaceError), open_regular_file(path) as (file, _):
        for record in iterate_jsonl_records(file):
            value = record.value if type(record.value) is dict else {}
            uuid, name = value.get("id"), value.get("thread_name")
            if type(uuid) is str and type(name) is str and name.strip():
                names[uuid] = name.strip()
    return names


def _read_codex_session_facts(
    path: str, head: _CodexSessionHead, title: str | None
) -> ConversationFileFacts:
    """Return a session's title, origin, creation time and the time of its last record."""
    facts: ConversationFileFacts = {}
    if head.created_at is not None:
        facts["created_at"] = head.created_at
    if head.forked_from is not None:
        facts["labels"] = {"forked-from": f"{ID_PREFIX}{head.forked_from}"}
    if last := find_last_record_time(read_file_tail(path, TAIL_BYTES).split(b"\n")):
        facts["last_event_at"] = last
    if title is None:
        title = make_title_from_user_request(_read_first_user_request(path))
    return {**facts, "title": title}


def _iterate_session_files(
    home: str, unusable: list[SkippedConversationPath]
) -> Iterator[tuple[str, bool]]:
    """Yield the path of each session file, and whether the session is archived.

    Live sessions come first, then archived ones. In both groups, newer directories come first.
    """
    for name, is_archived in _ROOTS:
        pending = [(f"{home}/{name}", 0)]
        compressed = 0
        while pending:
            directory, depth = pending.pop()
            for entry in list_directory(directory, unusable):
                if entry.name.startswith("rollout-") and entry.name.endswith(".jsonl"):
                    yield entry.path, is_archived
                elif entry.name.endswith(".jsonl.zst"):
                    compressed += not os.path.exists(entry.path.removesuffix(".zst"))  # noqa: PTH110
                elif depth < DATE_DEPTH and entry.name.isdecimal() and entry.is_dir():
                    pending.append((entry.path, depth + 1))
        if compressed:
            noun = "session is" if compressed == 1 else "sessions are"
            reason = f"{compressed} {noun} compressed; kbtui cannot read compressed sessions"
            unusable.append(SkippedConversationPath(Path(home, name), reason))


def _is_session_head_final(head: _CodexSessionHead, size: int) -> bool:
    """Return whether `head` stays the same if the file grows."""
    return head.working_directory is not None or size > HEAD_BYTES


def _read_session_head(path: str) -> _CodexSessionHead:
    """Return the facts about a session that are at the beginning of its file.

    Raises `WorkspaceError` or `ValueError`.
    """
    with open_regular_file(path) as (file, size):
        if not size:
            raise ValueError("the file is empty")
        line = _read_first_line(file)
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise ValueError("its first line is not JSON") from None
        if type(record) is not dict:
            raise ValueError("its first line is not an object")
        is_wrapped = type(record.get("payload")) is dict
        meta = record["payload"] if is_wrapped else record
        name = _UUID.search(os.path.basename(path))  # noqa: PTH119
        uuid = next(
            (one for one in (meta.get("id"), meta.get("session_id")) if _is_session_id(one)), None
        )
        if uuid is None and name is not None:
            uuid = name[0]
        if uuid is None:
            raise ValueError("neither its name nor its first line contains a session id")
        directory = get_text_or_none(meta.get("cwd"))
        if directory is None:
            directory = _find_working_directory_in_user_messages(file, min(size, HEAD_BYTES))
    forked_from = meta.get("forked_from_id")
    parent, is_summarizer = _get_parent_id_and_whether_session_only_summarizes(meta)
    return _CodexSessionHead(
        uuid,
        directory,
        parse_timestamp(meta.get("timestamp")) or parse_timestamp(record.get("timestamp")),
        parent,
        forked_from if _is_session_id(forked_from) else None,
        is_summarizer,
    )


def _read_first_line(file: int) -> bytes:
    data, wanted = b"", 16 << 10
    while b"\n" not in data and (block := os.pread(file, wanted, len(data))):
        data += block
        wanted = len(data)
    return data.partition(b"\n")[0].removeprefix(codecs.BOM_UTF8)


def _find_working_directory_in_user_messages(file: int, end: int) -> str | None:
    """Return the first working directory that a user message contains, or None.

    Only the first `end` bytes of the file are read.
    """
    for record in iterate_jsonl_records(file, 0, end):
        message = record.value
        if type(message) is dict and message.get("role") == "user":
            with suppress(*READ_ERRORS):
                text, _ = _read_text_and_images(message.get("content"))
                if match := _WORKING_DIRECTORY.search(text):
                    return (match[1] or match[2]).strip()
    return None


def _get_parent_id_and_whether_session_only_summarizes(
    meta: dict[str, Any],
) -> tuple[str | None, bool]:
    """Return the id of a session's parent, and whether Codex used the session only to summarize.

    The id is None if the session has no parent.
    """
    source = meta.get("source")
    parent = meta.get("parent_thread_id")
    kind = None
    if type(source) is dict:
        agent = source.get("subagent", source.get("internal"))
        kind = agent if type(agent) is str else None
        spawn = agent.get("thread_spawn") if type(agent) is dict else None
        if type(spawn) is dict:
            parent = spawn.get("parent_thread_id") or parent
    return (parent if _is_session_id(parent) else None), kind in _SUMMARIZERS


def _read_first_user_request(path: str) -> str:
    """Return the first request in a file, or "" if there is none."""
    builder = TurnBuilder()
    parser = CodexParser(builder)
    with open_regular_file(path) as (file, _):
        for record in iterate_jsonl_records(file, 0, FIRST_REQUEST_BYTES):
            if type(record.value) is not dict:
                continue
            try:
                parser.parse_record(record.value)
            except READ_ERRORS:
                continue
            if text := builder.find_first_user_request():
                return text
    return ""


class _MessageOfUnknownAuthor(NamedTuple):
    """A message with the role `user`. Whether a person or Codex wrote it is not yet known."""

    text: str
    images: list[str]
    event: ConversationEvent | None = None
    time: datetime | None = None


class CodexParser(JsonlConversationParser):
    """Parses the records of one session, which any version of Codex may have written."""

    def __init__(self, builder: TurnBuilder, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(builder)
        state = state or {}
        self._has_user_events: bool = state.get("has_user_events", False)
        self._unclear = [_MessageOfUnknownAuthor(*one) for one in state.get("unclear", ())]
        self._echo: str | None = state.get("echo")
        self._seen: Counter[tuple[str, str, str]] = Counter(
            {(kind, text, source): count for kind, text, source, count in state.get("seen", ())}
        )
        self._call_ids: dict[str, None] = dict.fromkeys(state.get("call_ids", ()))
        self._replies: list[str] = [*state.get("replies", ())]
        self._has_answer: bool = state.get("has_answer", False)
        self._compaction_event_expected: bool = state.get("compaction_event_expected", False)
        self._counters: dict[str, int] = state.get("counters", {})
        self._has_meta: bool = state.get("has_meta", False)
        self._forked_at = parse_timestamp(state.get("forked_at"))
        if type(state.get("model")) is str:
            builder.model = state["model"]

    def starts_turn(self, record: dict[str, Any]) -> bool:
        """Return whether a record is a user request. Each user request starts a turn."""
        kind, payload = _get_record_kind_and_content(record)
        if kind == "event_msg":
            return payload.get("type") == "user_message" and _is_typed_by_person(payload)
        if "payload" in record or payload.get("type") != "message" or payload["role"] != "user":
            return False
        return _is_user_request_text(_read_text_and_images(payload.get("content"))[0])

    def make_parser_state(self) -> dict[str, object]:
        """Return the parser's state as JSON, from which another parser can resume.

        The file can repeat a text or a call. The state contains the last texts and calls, so that
        the next parser recognizes when they are repeated.
        """
        self._remove_events_of_messages_of_unknown_author()
        return {
            "model": self.builder.model,
            "counters": self._counters,
            "has_user_events": self._has_user_events,
            "unclear": [[one.text, one.images] for one in self._unclear],
            "has_meta": self._has_meta,
            "forked_at": self._forked_at.isoformat() if self._forked_at else None,
            "echo": self._echo,
            "seen": [
                [*text, count]
                for text, count in get_last_added_dictionary_items(self._seen).items()
            ],
            "call_ids": list(get_last_added_dictionary_items(self._call_ids)),
            "replies": self._replies[-RECORDS_KEPT:],
            "has_answer": self._has_answer,
            "compaction_event_expected": self._compaction_event_expected,
        }

    def can_resume_reading_in_turn(self) -> bool:
        """Return whether reading can resume after the records parsed so far.

        Reading cannot resume while it is unknown whether a person or Codex wrote a message.
        """
        return not self._unclear

    def parse_record(self, record: dict[str, Any]) -> None:
        """Parse the next record.

        May raise any exception if a value in the record has the wrong type.
        """
        kind, payload = _get_record_kind_and_content(record)
        time = parse_timestamp(record.get("timestamp"))
        if kind == "event_msg":
            self._parse_event_message(payload, record, time)
        elif kind == "response_item":
            self._parse_response_item(payload, record, time)
        elif kind == "turn_context":
            self._set_model(payload.get("model"))
        elif kind == "compacted":
            self._add_compaction(get_text_or_none(payload.get("message")), time)
            self._compaction_event_expected = True
        elif kind == "session_meta":
            self._record_fork_time(payload, time)
        elif kind not in {"world_state", "state"}:
            self.builder.add_unknown_event(kind, record, time)

    # Events for the screen.

    def _parse_event_message(
        self, payload: dict[str, Any], record: dict[str, Any], time: datetime | None
    ) -> None:
        kind = payload.get("type")
        if kind == "user_message":
            if _is_typed_by_person(payload):
                self._add_user_request(payload, time)
        elif kind == "agent_message":
            self._add_reply(payload["message"], "event", time)
        elif kind in {"agent_reasoning", "agent_reasoning_raw_content"}:
            self._add_reasoning(payload["text"], "event", time)
        elif kind == "token_count":
            self._add_token_usage_since_last_count(
                payload.get("info"), self._is_copied_from_original(time)
            )
        elif kind == "context_compacted":
            if not self._compaction_event_expected:
                self._add_compaction(None, time)
            self._compaction_event_expected = False
        elif kind == "thread_rolled_back":
            self._mark_last_turns_rewound(payload["num_turns"])
        elif kind == "item_completed" and _is_plan_item(payload.get("item")):
            plan = payload["item"]["text"]
            if not any(plan.strip() in reply for reply in self._replies):
                self._add_event_and_mark_turn_as_answered("message", plan, time)
        elif kind == "web_search_end":
            self._add_web_search(payload, "event", time)
        elif kind == "image_generation_end":
            self._add_image_generation(payload, payload.get("call_id"), time)
        elif (notice := _format_notice_event_text(kind, payload)) is not None:
            self.builder.add_event("notice", notice, time)
        elif kind not in _IGNORED_EVENTS and payload.get("call_id") not in self._call_ids:
            # The event at the end of a call repeats the call's result, which is also in the history.
            self.builder.add_unknown_event(str(kind), record, time)

    def _add_user_request(self, payload: dict[str, Any], time: datetime | None) -> None:
        text = payload["message"]
        images = [
            *map(_format_image_placeholder, _list_text_values(payload.get("images"))),
            *map(_format_image_placeholder, _list_text_values(payload.get("local_images"))),
        ]
        self._has_user_events = True
        self._remove_events_of_messages_of_unknown_author()
        unclear, self._unclear = self._unclear, []
        echo = next(
            (
                one
                for one in reversed(unclear)
                if _history_text_contains_typed_request(one.text, text)
            ),
            None,
        )
        if echo is not None:
            unclear = [one for one in unclear if one is not echo]
            images = images or echo.images
        self._echo = None if echo is not None else text
        self._start_turn_with_request(text, images, [one.text for one in unclear], time)

    def _start_turn_with_request(
        self, text: str, images: list[str], contexts: list[str], time: datetime | None
    ) -> None:
        context, text = split_ide_context(text)
        contexts = [*contexts, context] if context else contexts
        self._seen.clear()
        self._call_ids.clear()
        self._replies.clear()
        self._has_answer = False
        self.builder.start_turn(time)
        self.builder.add_event(
            "chat_request",
            "\n".join([*([text] if text else []), *images]),
            time,
            metadata={"context": "\n\n".join(contexts)} if contexts else None,
        )

    def _mark_last_turns_rewound(self, count: int) -> None:
        """Mark the last `count` turns as rewound. Turns that are already rewound do not count."""
        seen = [turn for turn in self.builder.turns if not turn.is_rewound]
        if count > len(seen) and self.builder.turns_before:
            self.needs_earlier_turns = True
        for turn in seen[max(0, len(seen) - count) :]:
            turn.is_rewound = True

    def _add_compaction(self, summary: str | None, time: datetime | None) -> None:
        last = self.builder.turn_count
        if last:
            self.compactions.append(ConversationCompaction(1, last, time, summary))
            if summary is not None:
                self.builder.add_compaction_summary(summary, time)

    def _record_fork_time(self, meta: dict[str, Any], time: datetime | None) -> None:
        # A fork begins with a copy of the original session, including that session's first record.
        if not self._has_meta and _is_session_id(meta.get("forked_from_id")):
            self._forked_at = time
        self._has_meta = True

    def _is_copied_from_original(self, time: datetime | None) -> bool:
        """Return whether a record with this time was copied from the session that was forked."""
        if self._forked_at is None or time is None:
            return False
        return (time - self._forked_at).total_seconds() < COPY_SECONDS

    def _add_token_usage_since_last_count(self, info: Any, is_copied: bool) -> None:
        """Add the tokens that were used since the last count.

        If the record was copied from another session, no tokens are added.
        """
        if type(info) is not dict:
            return
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        if type(total) is dict:
            before, self._counters = self._counters, _select_integer_values(total)
            used = Counter(self._counters)
            # Codex counts from 0 again when it resumes a session.
            if used["total_tokens"] >= before.get("total_tokens", 0):
                used.subtract(before)
        elif type(last) is dict:
            used = Counter(_select_integer_values(last))
        else:
            return
        if not is_copied and used["total_tokens"]:
            self.builder.add_token_usage(_make_token_usage(used))

    # Items of the model's history.

    def _parse_response_item(
        self, payload: dict[str, Any], record: dict[str, Any], time: datetime | None
    ) -> None:
        kind = payload.get("type")
        if kind in _MODEL_OUTPUT or (kind == "message" and payload.get("role") == "assistant"):
            self._convert_messages_of_unknown_author_to_requests()
        if kind == "message":
            self._add_message(payload, record, time)
        elif kind == "reasoning":
            for part in [*(payload.get("summary") or []), *(payload.get("content") or [])]:
                self._add_reasoning(part["text"], "item", time)
        elif kind == "function_call":
            name = payload["name"]
            if type(payload.get("namespace")) is str:
                name = f"{payload['namespace']}{name}"
            self._add_tool_call(name, _parse_arguments(payload.get("arguments")), payload, time)
        elif kind == "custom_tool_call":
            self._add_tool_call(payload["name"], payload.get("input"), payload, time)
        elif kind == "local_shell_call":
            self._add_tool_call("local_shell", payload.get("action"), payload, time)
        elif kind == "tool_search_call":
            self._add_tool_call(
                "tool_search", _parse_arguments(payload.get("arguments")), payload, time
            )
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            self._add_tool_result(payload, payload.get("output"), time)
        elif kind == "tool_search_output":
            self._add_tool_result(payload, payload.get("tools"), time)
        elif kind == "web_search_call":
            self._add_web_search(payload, "item", time)
        elif kind == "image_generation_call":
            self._add_image_generation(payload, payload.get("id"), time)
        elif kind not in _IGNORED_ITEMS:
            self.builder.add_unknown_event(str(kind), record, time)

    def _add_message(
        self, payload: dict[str, Any], record: dict[str, Any], time: datetime | None
    ) -> None:
        role = payload.get("role")
        text, images = _read_text_and_images(payload["content"])
        if role == "assistant":
            self._add_reply("\n".join([text, *images]) if images else text, "item", time)
        elif role == "user":
            self._add_or_postpone_user_role_message(text, images, payload is record, time)
        elif role not in {"developer", "system"}:
            self.builder.add_unknown_event(f"message of {role}", record, time)

    def _add_or_postpone_user_role_message(
        self, text: str, images: list[str], is_bare: bool, time: datetime | None
    ) -> None:
        if _INSTRUCTIONS.match(text):
            return
        if injected := _INJECTED.match(text):
            self.builder.add_unknown_event(injected[1], {"text": text}, time)
        elif is_bare:
            # The oldest versions write no events.
            self._start_turn_with_request(text, images, [], time)
        elif self._echo is not None and _history_text_contains_typed_request(text, self._echo):
            self._echo = None
        else:
            event = self.builder.add_unknown_event("user message", {"text": text}, time)
            self._unclear.append(_MessageOfUnknownAuthor(text, images, event, time))

    def _remove_events_of_messages_of_unknown_author(self) -> None:
        """Remove the events of all messages whose author is not yet known."""
        builder = self.builder
        events = builder.turns[-1].events if builder.turns else builder.leading
        taken = {id(one.event) for one in self._unclear}
        events[:] = [event for event in events if id(event) not in taken]
        self._unclear = [one._replace(event=None) for one in self._unclear]

    def _convert_messages_of_unknown_author_to_requests(self) -> None:
        """Convert the messages whose author is not yet known into requests.

        If the file has separate events for requests, the messages stay events of an unknown kind.
        """
        unclear = self._unclear
        if unclear and not self._has_user_events:
            self._remove_events_of_messages_of_unknown_author()
            for one in unclear:
                self._start_turn_with_request(one.text, one.images, [], one.time)
        self._unclear = []

    def _set_model(self, model: Any) -> None:
        if type(model) is str and model:
            # The request precedes the record that says which model answers it.
            self.builder.set_model(model, is_before_answer=not self._has_answer)

    def _add_event_and_mark_turn_as_answered(
        self, kind: str, text: str, time: datetime | None
    ) -> None:
        self._has_answer = True
        self.builder.add_event(kind, text, time)

    def _add_reply(self, text: str, source: str, time: datetime | None) -> None:
        shown = _HIDDEN_MARKUP.sub("", text).strip()
        if not self._is_repeated_text("message", shown, source) and text.strip():
            self._replies.append(text)
            self._add_event_and_mark_turn_as_answered("message", text, time)

    def _add_reasoning(self, text: str, source: str, time: datetime | None) -> None:
        if not self._is_repeated_text("reasoning", text.strip(), source) and text.strip():
            self._add_event_and_mark_turn_as_answered("reasoning", text, time)

    def _is_repeated_text(self, kind: str, text: str, source: str) -> bool:
        """Return whether the other copy of this text was already read.

        Codex stores a text twice: as an event to display (`source` is `event`), and as an item of the
        model's history (`source` is `item`).
        """
        other = (kind, text, "item" if source == "event" else "event")
        if self._seen[other] > 0:
            self._seen[other] -= 1
            if not self._seen[other]:
                del self._seen[other]
            return True
        self._seen[kind, text, source] += 1
        return False

    def _add_tool_call(
        self, name: str, arguments: Any, payload: dict[str, Any], time: datetime | None
    ) -> None:
        call_id = get_text_or_none(payload.get("call_id")) or get_text_or_none(payload.get("id"))
        if call_id is not None:
            self._call_ids[call_id] = None
        self._has_answer = True
        self.builder.add_tool_call(name, arguments, call_id, time)

    def _add_tool_result(self, payload: dict[str, Any], output: Any, time: datetime | None) -> None:
        text, is_error = extract_tool_output_text_and_failure(output)
        self.builder.add_tool_result(
            get_text_or_none(payload.get("call_id")), text, time, is_error=is_error
        )

    def _add_web_search(self, payload: dict[str, Any], source: str, time: datetime | None) -> None:
        action = payload.get("action")
        query = action.get("query") if type(action) is dict else payload.get("query")
        if not self._is_repeated_text("web_search", str(query or ""), source):
            arguments = action if type(action) is dict else {"query": query}
            self._has_answer = True
            # Codex does not store the results of web searches, so no result follows.
            self.builder.add_tool_call("web_search", arguments, None, time)

    def _add_image_generation(
        self, payload: dict[str, Any], call_id: Any, time: datetime | None
    ) -> None:
        call_id = get_text_or_none(call_id)
        if call_id is None or call_id not in self._call_ids:
            arguments = {"prompt": payload.get("revised_prompt")}
            self._add_tool_call("image_generation", arguments, {"call_id": call_id}, time)
            if type(payload.get("result")) is str and call_id is not None:
                size = count_base64_bytes(payload["result"])
                line = f"[image: {call_id}, image/png, {size:,} bytes]"
                self.builder.add_tool_result(call_id, line, time)


def split_ide_context(text: str) -> tuple[str | None, str]:
    """Split a request into the context that an IDE added and the text that the person wrote.

    The first value is None if there is no such context.
    """
    if not text.lstrip().startswith(_IDE_CONTEXT):
        return None, text
    match = _IDE_REQUEST.search(text)
    if match is None:
        return None, text
    return text[: match.start()].strip(), text[match.end() :].strip()


def extract_tool_output_text_and_failure(output: Any) -> tuple[str, bool]:
    """Return the text of a tool's output, and whether the tool failed."""
    is_error = False
    if type(output) is dict and ("content" in output or "success" in output):
        is_error = output.get("success") is False
        output = output.get("content_items") or output.get("content")
    if type(output) is list:
        text, images = _read_text_and_images(output)
        output = "\n".join([*([text] if text else []), *images]) if text or images else output
    if type(output) is not str:
        if output is None:
            return "", is_error
        return format_readable_json(output), is_error
    if output.startswith("{"):
        try:
            value = orjson.loads(output)
        except orjson.JSONDecodeError:
            value = None
        if type(value) is dict and type(value.get("output")) is str and "metadata" in value:
            metadata = value["metadata"]
            code = metadata.get("exit_code") if type(metadata) is dict else None
            return value["output"], is_error or code not in (0, None)
    if match := _EXIT_CODE.match(output):
        return output, is_error or match[1] != "0"
    return output, is_error or output.startswith(_FAILURES)


def _get_record_kind_and_content(record: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a record's kind and its content.

    The content is the `payload`. In old versions, it is the record itself.
    """
    kind = record.get("type")
    if "payload" in record:
        if type(record["payload"]) is not dict:
            raise TypeError("the payload is not an object")
        return str(kind), record["payload"]
    if kind in _RESPONSE_ITEMS:
        return "response_item", record
    if "record_type" in record:
        return str(record["record_type"]), record
    if kind is None and "id" in record:
        return "session_meta", record
    return str(kind), record


def _is_typed_by_person(payload: dict[str, Any]) -> bool:
    """Return whether the text of a `user_message` event was written by a person, not by Codex."""
    if type(payload["message"]) is not str:
        raise TypeError("the message is not text")
    # Some versions also write events for Codex's own messages; `kind` marks them.
    return payload.get("kind") not in ("environment_context", "user_instructions")


def _is_user_request_text(text: str) -> bool:
    return not _INSTRUCTIONS.match(text) and not _INJECTED.match(text)


def _history_text_contains_typed_request(text: str, typed: str) -> bool:
    # In the history, a request has tags around images, and may include the text of files that it mentions.
    return typed.strip() in text


def _read_text_and_images(content: Any) -> tuple[str, list[str]]:
    """Return the text of a message's parts, and a line for each image."""
    if type(content) is str:
        return content, []
    texts, images = [], []
    for part in content or []:
        if type(part.get("text")) is str:
            if not re.fullmatch(r"</?image\b[^>]*>", part["text"].strip()):
                texts.append(part["text"])
        elif part.get("type") == "input_image":
            url = part["image_url"]
            images.append(_format_image_placeholder(url["url"] if type(url) is dict else url))
        else:
            texts.append(format_readable_json(part))
    return "\n".join(texts), images


def _format_image_placeholder(source: str) -> str:
    """Return the line that is shown for an image; `source` is a data URL, a URL or a path."""
    if source.startswith("data:"):
        head, _, data = source.partition(",")
        kind = head.removeprefix("data:").partition(";")[0] or "unknown type"
        return f"[image: pasted, {kind}, {count_base64_bytes(data):,} bytes]"
    name = source.rpartition("/")[2] or source
    kind = mimetypes.guess_type(name)[0] or "unknown type"
    return f"[image: {name}, {kind}]"


def _parse_arguments(arguments: Any) -> Any:
    """Parse the arguments of a call. If they are not JSON text, return them unchanged."""
    if type(arguments) is str:
        try:
            value = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return arguments
        return value if type(value) is dict else arguments
    return arguments


def _select_integer_values(usage: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in usage.items() if type(value) is int}


def _make_token_usage(counts: Counter[str]) -> TokenUsage:
    read = counts["cached_input_tokens"]
    return TokenUsage(
        input_tokens=max(0, counts["input_tokens"] - read),
        output_tokens=counts["output_tokens"],
        cache_read_tokens=read,
        total_tokens=counts["total_tokens"],
    )


def _is_plan_item(item: Any) -> bool:
    return type(item) is dict and str(item.get("type")).lower() == "plan"


def _is_session_id(value: Any) -> bool:
    return type(value) is str and _ID.fullmatch(value) is not None


def _list_text_values(value: Any) -> list[str]:
    return [one for one in value if type(one) is str] if type(value) is list else []


def _format_notice_event_text(kind: Any, payload: dict[str, Any]) -> str | None:
    """Return the text of an event that is a notice for the user; None for any other event."""
    if kind == "turn_aborted":
        return f"[turn aborted: {payload.get('reason') or 'unknown reason'}]"
    if kind == "error":
        return f"[error: {payload.get('message')}]"
    if kind == "entered_review_mode":
        return f"[review: {payload.get('user_facing_hint') or 'started'}]"
    if kind == "exited_review_mode":
        output = payload.get("review_output")
        explanation = output.get("overall_explanation") if type(output) is dict else None
        return f"[review ended]\n{explanation}" if explanation else "[review ended]"
    return None
