"""The format of aider: one Markdown file per repository, which contains all sessions.

* The line `# aider chat started at …` begins a session.
* Lines that begin with `#### ` are requests.
* Lines that begin with `> ` are aider's own messages.
* All other lines are replies of the model.

A reply can also contain lines that begin with `#### ` or `> `. Only requests and aider's messages
have two spaces at the end of the line.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, tzinfo
from functools import partial
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.conversations.conversation_data_types import (
    AgentCommand,
    Conversation,
    ConversationInfo,
    TokenUsage,
)
from kbtui.conversations.formats.conversation_format import (
    ConversationFormat,
    SkippedConversationPath,
)
from kbtui.conversations.formats.damage_tolerant_file_reader import open_regular_file
from kbtui.conversations.formats.stored_session import (
    StoredSession,
    make_change_signature,
    make_title_from_user_request,
)
from kbtui.conversations.formats.turn_builder import TurnBuilder
from kbtui.conversations.workspace_and_worktree_directories import (
    ProjectDirectory,
    WorkspaceAndWorktreeDirectories,
)
from kbtui.errors import WorkspaceError
from kbtui.file_reading_and_writing import get_inode_size_and_mtime
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace.paths import (
    expand_user,
    find_client_time_zone,
    read_client_environment_variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbtui.conversations.conversation_data_types import ConversationEvent, ConversationFileFacts
    from kbtui.conversations.formats.conversation_format import StoredConversation
    from kbtui.workspace import Workspace

HISTORY_FILE = ".aider.chat.history.md"
MAX_SESSION_BYTES = 256 << 20
"""At most this many bytes of a session are read, from its beginning."""
_BLOCK_BYTES = 1 << 20
_EDGE_BYTES = 4096
"""To detect changes to a session, this many bytes are compared at its beginning and at its end."""
_TITLE_BYTES = 256 << 10
_HEADER = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)")
_QUESTION = re.compile(r"(.*\(Y\)es/\(N\)o.*\[[^\]]*\]:) *(\S.*)")
_ASKING_COMMAND = re.compile(r"/(?:ask|architect|code|context)\s+")
_BLANK = "<blank>"
"""The text that aider writes in place of an empty request."""
_MODEL = re.compile(r"(?:Main model|Models?): ([^\s,]+)")
_ADDED_TO_CHAT = re.compile(r"^Added (.+?) to the chat\.?$", re.MULTILINE)
_TOKENS = re.compile(r"Tokens: (.+? received)\b")
_TOKEN_COUNT = re.compile(r"([\d.,]+)(k|M)? (sent|cache write|cache hit|received)")


class AiderFormat(ConversationFormat):
    """Finds and reads the sessions of aider in the directories of the workspace."""

    name = "aider"
    label = "aider"
    id_prefix = "aider-"

    def __init__(self) -> None:
        self._histories: dict[str, _CachedAiderSessionList] = {}
        self._starts: dict[tuple[str, str], int] = {}

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[SkippedConversationPath]]:
        """Find all sessions of a workspace, or only the session with the id `only`."""
        found: list[StoredSession] = []
        problems: list[SkippedConversationPath] = []
        counts: dict[str, int] = {}
        zone = find_client_time_zone()
        for path, project in _iterate_possible_history_files(workspace):
            if not os.path.lexists(path):
                continue
            try:
                history = self._find_sessions_or_reuse_known_ones(path)
            except WorkspaceError as error:
                problems.append(SkippedConversationPath(Path(path), error.message, True))
                continue
            if not history.sessions and history.is_text:
                reason = "the file has text, but no line that begins a session"
                problems.append(SkippedConversationPath(Path(path), reason, True))
            before: datetime | None = None
            for session in history.sessions:
                # aider appends sessions. If the date of one is invalid, the date of the previous one is the closest.
                created = before = _parse_local_time(session.started, zone) or before
                counts[session.started] = count = counts.get(session.started, 0) + 1
                suffix = f"-{count}" if count > 1 else ""
                conversation_id = f"{self.id_prefix}{session.started}{suffix}"
                self._starts[path, conversation_id] = session.start
                if session.has_content and only in (None, conversation_id):
                    found.append(
                        _make_stored_session(
                            conversation_id, path, project, session, history, created
                        )
                    )
        return found, problems

    def _find_sessions_or_reuse_known_ones(self, path: str) -> _CachedAiderSessionList:
        """Find the sessions in a history file.

        If the file has only grown since the last call, only the new text is read.
        """
        with open_regular_file(path) as (file, _):
            state = os.fstat(file)
            known = self._histories.get(path)
            if known is not None and known.state == get_inode_size_and_mtime(state):
                return known
            history = _find_sessions_in_history_file(file, path, state, known)
        self._histories[path] = history
        return history

    def list_watched_files(self, workspace: Workspace) -> list[Path]:
        """Return the paths of aider's history files in the project's directories.

        Some of the files may not exist yet.
        """
        return [Path(path) for path, _ in _iterate_possible_history_files(workspace)]

    def list_data_directories(self, workspace: Workspace) -> list[Path]:
        """Return the directories that contain history files."""
        return list(dict.fromkeys(path.parent for path in self.list_watched_files(workspace)))

    def load_conversation(self, info: ConversationInfo) -> Conversation:
        """Load a session. Never raises; errors are in `problems` of the result."""
        builder = TurnBuilder()
        problems: list[str] = []
        try:
            text = self._find_session_and_read_text(info)
            if info.size > MAX_SESSION_BYTES:
                problems.append(f"only its first {MAX_SESSION_BYTES >> 20} MB are read")
            parse_aider_session_text(text, builder, info.created_at)
        except WorkspaceError as error:
            problems.append(error.message)
        return builder.make_conversation(info, problems)

    def list_files_added_to_chat(self, event: ConversationEvent) -> list[str]:
        """Return the files that were added to the chat, according to a message from aider."""
        return _ADDED_TO_CHAT.findall(event.text) if event.kind == "tool_call_response" else []

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        """Return the command that starts aider with its history.

        aider has no session ids. Therefore, it loads the whole history file, not only one session.
        """
        return AgentCommand(("aider", "--restore-chat-history"), info.working_directory)

    def _find_session_and_read_text(self, info: ConversationInfo) -> str:
        """Read the text of a session without its first line. Raises `WorkspaceError`."""
        path = str(info.events_path)
        history = self._find_sessions_or_reuse_known_ones(path)
        started, number = _parse_start_time_and_number_in_aider_id(info.id)
        sessions = [one for one in history.sessions if one.started == started]
        start = self._starts.get((path, info.id))
        if start is None:
            sessions = sessions[number - 1 : number]
        for session in sessions:
            if start in (None, session.start):
                return _read_text_in_session_range(path, session, MAX_SESSION_BYTES)
        raise WorkspaceError("the session is no longer in this file", where=path)


class _AiderSessionRange(NamedTuple):
    """The position and the start time of a session in a history file.

    * `start` and `end` are byte offsets; white space after the session is not included.
    * `started` is the time in the session's first line, in the form that the conversation's id
      contains.
    * `has_content` says whether the session has a request or a reply.
    """

    start: int
    end: int
    started: str
    signature: str
    has_content: bool


class _CachedAiderSessionList(NamedTuple):
    """The sessions of a history file, and data for detecting later changes to it.

    `tail` contains the last bytes of the file. If these bytes are still at the same position, the
    file has only been appended to.
    """

    state: tuple[int, int, int]
    sessions: list[_AiderSessionRange]
    tail: bytes
    is_text: bool


def _iterate_possible_history_files(workspace: Workspace) -> Iterator[tuple[str, ProjectDirectory]]:
    """Yield the path of each possible history file, and the file's project directory."""
    projects = WorkspaceAndWorktreeDirectories(workspace)
    chosen = read_client_environment_variable("AIDER_CHAT_HISTORY_FILE") or HISTORY_FILE
    seen: set[str] = set()
    # aider writes the file to the root of a repository. Its sessions belong to the project at the root.
    for project in projects.directories:
        path = os.path.normpath(os.path.join(project.path, expand_user(chosen)))  # noqa: PTH118
        is_elsewhere = not path.startswith(f"{project.path.rstrip('/')}/")
        # If several projects share a file, its sessions do not say which project they belong to.
        if path in seen or (is_elsewhere and not projects.find_directory_of(path)):
            continue
        seen.add(path)
        yield path, project


def _parse_start_time_and_number_in_aider_id(conversation_id: str) -> tuple[str, int]:
    """Return the start time in an id, and the session's number among the sessions that started at this time."""
    match = re.fullmatch(r"(.*T\d\d-\d\d-\d\d)(?:-(\d{1,9}))?", conversation_id)
    if match is None:
        return "", 1
    return match[1].removeprefix(AiderFormat.id_prefix), int(match[2] or 1)


# finding sessions


def _find_sessions_in_history_file(
    file: int, path: str, status: os.stat_result, known: _CachedAiderSessionList | None
) -> _CachedAiderSessionList:
    """Find the sessions of an open file; `known` is the result of an earlier call."""
    state = get_inode_size_and_mtime(status)
    sessions: list[_AiderSessionRange] = []
    start = 0
    if known is not None and known.sessions and _has_history_file_only_grown(file, state, known):
        # The last session may have grown, so it is read again.
        sessions = known.sessions[:-1]
        start = known.sessions[-1].start
    is_text = False
    for begin, end, started, has_content in _iterate_session_ranges(file, start):
        is_text = True
        if started is not None:
            signature = _make_signature_of_session_range(file, path, begin, end)
            sessions.append(_AiderSessionRange(begin, end, started, signature, has_content))
    size = min(_EDGE_BYTES, state[1])
    return _CachedAiderSessionList(state, sessions, os.pread(file, size, state[1] - size), is_text)


def _has_history_file_only_grown(
    file: int, state: tuple[int, int, int], known: _CachedAiderSessionList
) -> bool:
    """Return whether a history file has only been appended to since `known` was read.

    To find out, the inode, the size and the last bytes in `known` are compared with the file.
    """
    inode, size, _ = known.state
    at = size - len(known.tail)
    return (
        state[0] == inode and state[1] > size and os.pread(file, len(known.tail), at) == known.tail
    )


def _iterate_session_ranges(file: int, start: int) -> Iterator[tuple[int, int, str | None, bool]]:
    """Yield the start, end, time and `has_content` of each session from offset `start` on.

    Start and end are byte offsets. `has_content` says whether the session has a request or a reply.
    For text before the first session, the time is None. A session ends before its trailing white
    space, so that its range stays the same when another session is appended.
    """
    begin, end, started, has_content = start, start, None, False
    position, is_after_blank = start, True
    reader = BufferedReader(FileIO(file, closefd=False), _BLOCK_BYTES)
    reader.seek(start)
    for line in reader:
        text = line.strip()
        # aider writes a blank line before the first line of a session, and never indents this line.
        header = _HEADER.fullmatch(line.rstrip()) if is_after_blank else None
        if header:
            if end > begin:
                yield begin, end, started, has_content
            begin, has_content = position, False
            started = f"{header[1].decode()}T{header[2].decode().replace(':', '-')}"
        elif text and not text.startswith(b">"):
            has_content = True
        if text:
            end = position + len(line.rstrip())
        is_after_blank = not text
        position += len(line)
    if end > begin:
        yield begin, end, started, has_content


def _make_signature_of_session_range(file: int, path: str, start: int, end: int) -> str:
    size = min(_EDGE_BYTES, end - start)
    first, last = os.pread(file, size, start), os.pread(file, size, end - size)
    return make_change_signature(path, start, end, first, last)


def _make_stored_session(
    conversation_id: str,
    path: str,
    project: ProjectDirectory,
    session: _AiderSessionRange,
    history: _CachedAiderSessionList,
    created: datetime | None,
) -> StoredSession:
    modified = datetime.fromtimestamp(history.state[2] / 1e9, UTC)
    created = created or modified
    # Only the last session can have been written at the file's modification time.
    last_at = max(modified, created) if session is history.sessions[-1] else None
    return StoredSession(
        conversation_id,
        AiderFormat.name,
        path,
        session.signature,
        created,
        last_at or created,
        partial(_read_aider_session_facts, path, session, last_at),
        working_directory=os.path.dirname(path),  # noqa: PTH120
        worktree=project.worktree,
    )


def _parse_local_time(started: str, zone: tzinfo | None) -> datetime | None:
    """Convert a local time in a history file to UTC. Returns None if the time is invalid.

    aider does not write its time zone into the file, so the caller passes the zone.
    """
    try:
        local = datetime.strptime(started, "%Y-%m-%dT%H-%M-%S").replace(tzinfo=zone)
        return local.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _read_aider_session_facts(
    path: str, session: _AiderSessionRange, last_at: datetime | None
) -> ConversationFileFacts:
    """Read the title and the size of a session; `last_at` is the time of its last event."""
    builder = TurnBuilder()
    parse_aider_session_text(
        _read_text_in_session_range(path, session, _TITLE_BYTES), builder, None
    )
    requests = [
        event.text
        for turn in builder.turns
        for event in turn.events
        if event.kind == "chat_request"
    ]
    return {
        "title": _choose_title_from_user_requests(requests),
        "size": session.end - session.start,
        "last_event_at": last_at,
    }


def _choose_title_from_user_requests(requests: list[str]) -> str | None:
    """Return a title taken from the first request that is not a command such as `/add`.

    If there are only commands, the title is taken from the first of them. Returns None if
    there are no requests.
    """
    for request in requests:
        text = _ASKING_COMMAND.sub("", request)
        if text != _BLANK and not text.startswith(("/", "!")):
            return make_title_from_user_request(text)
    return make_title_from_user_request(requests[0]) if requests else None


def _read_text_in_session_range(path: str, session: _AiderSessionRange, size: int) -> str:
    """Return the text of a session without its first line. Raises `WorkspaceError`."""
    with open_regular_file(path) as (file, _):
        length = min(session.end - session.start, size)
        data = bytearray()
        while len(data) < length:
            block = os.pread(file, length - len(data), session.start + len(data))
            if not block:
                break
            data += block
        # Also read the spaces at the end of the last line: they say whether aider wrote the line.
        rest = os.pread(file, 4, session.start + len(data))
        data += b"".join(rest.partition(b"\n")[:2])
    return data.decode("utf-8", "replace").partition("\n")[2]


# parsing a session


class _SectionOfOneSpeaker(NamedTuple):
    """Consecutive lines of one speaker: the user (`request`), aider itself (`aider`) or the model (`reply`)."""

    kind: str
    lines: list[str]


def parse_aider_session_text(text: str, builder: TurnBuilder, started: datetime | None) -> None:
    """Parse the text of a session, without its first line, into turns. Never raises."""
    opening: list[_SectionOfOneSpeaker] = []
    for section in _split_into_sections_by_speaker(text):
        if section.kind == "request":
            builder.start_turn(None if builder.turns else started)
            builder.add_event("chat_request", "\n".join(section.lines))
            builder.count += 1
            # aider's messages at the start of a session go into the first turn, after its request.
            _add_reply_and_aider_sections_as_events(builder, opening)
            opening = []
        elif section.kind == "aider" and not builder.turns:
            opening.append(section)
        else:
            if not builder.turns:
                builder.start_turn(started)
                _add_reply_and_aider_sections_as_events(builder, opening)
                opening = []
            _add_reply_and_aider_sections_as_events(builder, [section])
    if opening:
        builder.start_turn(started)
        _add_reply_and_aider_sections_as_events(builder, opening)


def _split_into_sections_by_speaker(text: str) -> list[_SectionOfOneSpeaker]:
    lines = text.split("\n")
    # An editor may have removed the spaces at the ends of all lines. Then the spaces are not required.
    is_marked = re.search(r"^(?:####|>).*  \r?$", text, re.MULTILINE) is not None
    sections: list[_SectionOfOneSpeaker] = []
    is_after_blank = True
    for number, line in enumerate(lines):
        line = line.removesuffix("\r")
        # aider may still be writing the last line.
        is_own = not is_marked or line.endswith("  ") or number == len(lines) - 1
        if is_own and (line.startswith("#### ") or line.rstrip() == "####"):
            kind, content = "request", line[5:].rstrip()
        elif is_own and (line.startswith("> ") or line.rstrip() == ">"):
            kind, content = "aider", line[2:].rstrip()
        else:
            kind, content = "reply", line
        last = sections[-1] if sections else None
        # A blank line ends a request, so that two requests without a reply between them stay separate.
        if last is not None and last.kind == kind and (kind != "request" or not is_after_blank):
            last.lines.append(content)
        elif kind == "reply" and not content.strip():
            pass
        else:
            sections.append(_SectionOfOneSpeaker(kind, [content]))
        is_after_blank = not line.strip()
    return sections


def _add_reply_and_aider_sections_as_events(
    builder: TurnBuilder, sections: list[_SectionOfOneSpeaker]
) -> None:
    for section in sections:
        if section.kind == "reply":
            builder.add_event("message", "\n".join(section.lines).strip("\n"))
            builder.count += 1
            continue
        if (used := _sum_tokens_in_aider_reports(section.lines)) is not None:
            builder.add_token_usage(used)
        pending: list[str] = []
        for line in section.lines:
            if match := _MODEL.match(line):
                builder.set_model(match[1])
            if question := _QUESTION.fullmatch(line):
                _add_aider_output(builder, pending)
                pending = []
                _add_question_and_answer(builder, question[1], question[2])
            else:
                pending.append(line)
        _add_aider_output(builder, pending)


def _add_aider_output(builder: TurnBuilder, lines: list[str]) -> None:
    """Add aider's messages about its own work, as a tool result without a call."""
    if any(line.strip() for line in lines):
        builder.add_event(
            "tool_call_response", "\n".join(lines).strip("\n"), name="aider", is_error=False
        )
        builder.count += 1


def _add_question_and_answer(builder: TurnBuilder, question: str, answer: str) -> None:
    request = builder.add_event("inquiry_request", question, name="aider")
    builder.count += 1
    response = builder.add_event("inquiry_response", answer, name="aider")
    builder.count += 1
    request.result, response.request = response, request


def _sum_tokens_in_aider_reports(lines: list[str]) -> TokenUsage | None:
    """Add up the tokens in aider's reports, such as `Tokens: 2.1k sent, 300 received`.

    Returns None if there are no reports.
    """
    totals: dict[str, int] = {}
    for report in filter(None, map(_TOKENS.match, lines)):
        for number, unit, name in _TOKEN_COUNT.findall(report[1]):
            totals[name] = totals.get(name, 0) + _parse_abbreviated_token_count(number, unit)
    if not totals:
        return None
    sent, received = totals.get("sent", 0), totals.get("received", 0)
    read, written = totals.get("cache hit"), totals.get("cache write")
    return TokenUsage(
        input_tokens=max(0, sent - (read or 0) - (written or 0)),
        output_tokens=received,
        cache_read_tokens=read,
        cache_write_tokens=written,
        total_tokens=sent + received,
        is_estimate=True,
    )


def _parse_abbreviated_token_count(number: str, unit: str) -> int:
    try:
        return round(float(number.replace(",", "")) * {"": 1, "k": 1000, "M": 1_000_000}[unit])
    except (ValueError, OverflowError):
        return 0
