"""The format of opencode: an SQLite database, or the JSON files of older versions.

A session has messages, and a message has parts: texts, reasoning, and tool calls with their
results. Version 1.2 copied all sessions from the JSON files to the database without deleting the
files. If a session is in both, it is read from the database.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.conversation_data_types import (
    AgentCommand,
    Conversation,
    ConversationCompaction,
    ConversationInfo,
    TokenUsage,
)
from kbtui.conversations.formats.agent_sqlite_reader import (
    DatabaseState,
    format_select_columns,
    list_table_columns,
    open_database,
    read_database_state,
)
from kbtui.conversations.formats.conversation_format import (
    ConversationFormat,
    SkippedConversationPath,
)
from kbtui.conversations.formats.damage_tolerant_file_reader import read_file
from kbtui.conversations.formats.stored_session import (
    SessionFileCache,
    StoredSession,
    convert_conversation_id_to_id_used_by_agent,
    describe_conversation_reading_error,
    list_directory,
    make_change_signature,
    make_conversation_id,
    make_title_from_user_request,
    stat_session_file,
)
from kbtui.conversations.formats.turn_builder import (
    READ_ERRORS,
    TurnBuilder,
    count_base64_bytes,
    format_media_placeholder,
    get_count_or_none,
    get_text_or_none,
)
from kbtui.conversations.workspace_and_worktree_directories import WorkspaceAndWorktreeDirectories
from kbtui.dates import convert_unix_time_to_datetime
from kbtui.errors import WorkspaceError
from kbtui.file_reading_and_writing import read_inode_size_and_mtime
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace import paths

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kbtui.conversations.conversation_data_types import ConversationEvent, ConversationFileFacts
    from kbtui.conversations.formats.conversation_format import StoredConversation
    from kbtui.workspace import Workspace

MAX_FILE_BYTES = 64 << 20
"""The maximum size in bytes of a JSON file. A larger file is not read."""
_SESSION_COLUMNS = (
    "id",
    "parent_id",
    "title",
    "directory",
    "revert",
    "time_created",
    "time_updated",
    "time_archived",
)
_DEFAULT_TITLES = ("New session - ", "Child session - ")
_BOOKKEEPING = frozenset(
    {"step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction"}
)
"""The types of message parts that contain nothing to show to the user."""


class OpencodeFormat(ConversationFormat):
    """Finds and reads the sessions of opencode that ran in a directory of the workspace."""

    name = "opencode"
    label = "opencode"
    id_prefix = "opencode-"

    def __init__(self) -> None:
        self._listings: dict[str, _CachedOpencodeDatabaseListing] = {}
        self._session_files = SessionFileCache(_read_session_file_as_database_row)

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[SkippedConversationPath]]:
        """Find the sessions of a workspace, and the databases and files that cannot be read.

        If `only` is an id, only the session with this id is searched for.
        """
        projects = WorkspaceAndWorktreeDirectories(workspace)
        own_id = (
            None
            if only is None
            else convert_conversation_id_to_id_used_by_agent(self.id_prefix, only)
        )
        found: dict[str, StoredSession] = {}
        problems: list[SkippedConversationPath] = []
        for path in _list_opencode_databases():
            try:
                for session in self._find_sessions_in_database(path, projects, own_id):
                    found.setdefault(session.id, session)
            except WorkspaceError as error:
                problems.append(SkippedConversationPath(Path(path), error.message, True))
        listings = map(self._listings.get, _list_opencode_databases())
        moved = {row["id"] for listing in listings if listing for row in listing.rows}
        for session in self._find_sessions_in_files(projects, own_id, moved, problems):
            found.setdefault(session.id, session)
        return list(found.values()), problems

    def _find_sessions_in_database(
        self, path: str, projects: WorkspaceAndWorktreeDirectories, own_id: str | None
    ) -> list[StoredSession]:
        """Return the project's sessions in the database at `path`, or only the session `own_id`.

        If the database has not changed since the last call, its sessions are not read again.
        """
        state = read_database_state(path)
        if state[0] is None:
            return []
        listing = self._listings.get(path)
        if listing is None or listing.state != state:
            listing = _CachedOpencodeDatabaseListing(state, _read_session_rows(path), {})
            self._listings[path] = listing
        rows = [
            row
            for row in listing.rows
            if (own_id is None or row["id"] == own_id)
            and projects.find_directory_of(row["directory"])
        ]
        if new := [row["id"] for row in rows if row["id"] not in listing.contents]:
            listing.contents.update(_read_session_change_markers(path, new))
        return [
            self._make_stored_session(
                row,
                path,
                projects,
                make_change_signature(path, *row.values(), *listing.contents[row["id"]]),
                partial(_read_session_title_and_size_from_database, path, row),
            )
            for row in rows
        ]

    def _find_sessions_in_files(
        self,
        projects: WorkspaceAndWorktreeDirectories,
        own_id: str | None,
        moved: set[str],
        problems: list[SkippedConversationPath],
    ) -> Iterator[StoredSession]:
        """Find the sessions in JSON files. Unreadable files are added to `problems`.

        Sessions that are also in a database are left out; `moved` contains their ids.
        """
        for path, session_id in _iterate_session_files(own_id):
            if session_id in moved or (status := stat_session_file(path)) is None:
                continue
            try:
                row = self._session_files.read_file_facts(path, status)
            except (WorkspaceError, ValueError) as error:
                reason = describe_conversation_reading_error(error)
                problems.append(SkippedConversationPath(Path(path), reason, True))
                continue
            if projects.find_directory_of(row["directory"]):
                files = _OpencodeSessionFiles(path, session_id)
                yield self._make_stored_session(
                    row,
                    path,
                    projects,
                    make_change_signature(path, *row.values(), *files.list_change_markers()),
                    partial(_read_session_title_and_size_from_files, files, row),
                )

    def _make_stored_session(
        self,
        row: dict[str, Any],
        path: str,
        projects: WorkspaceAndWorktreeDirectories,
        signature: str,
        read_facts: Callable[[], ConversationFileFacts],
    ) -> StoredSession:
        project = projects.find_directory_of(row["directory"])
        created = convert_unix_time_to_datetime(row["time_created"], 1000)
        updated = convert_unix_time_to_datetime(row["time_updated"], 1000)
        state = read_inode_size_and_mtime(path)
        modified = datetime.fromtimestamp(state[2] / 1e9 if state else 0, UTC)
        parent = get_text_or_none(row["parent_id"])
        return StoredSession(
            make_conversation_id(self.id_prefix, row["id"]),
            self.name,
            path,
            signature,
            created or updated or modified,
            updated or created or modified,
            read_facts,
            is_archived=convert_unix_time_to_datetime(row["time_archived"], 1000) is not None,
            parent=make_conversation_id(self.id_prefix, parent) if parent else None,
            working_directory=row["directory"],
            worktree=project.worktree if project else None,
        )

    def list_watched_directories(self, workspace: Workspace) -> list[Path]:
        """Return the directory of opencode's databases, or [] if the database is in memory."""
        return [
            Path(path) for path in dict.fromkeys(map(os.path.dirname, _list_opencode_databases()))
        ]

    def count_conversations_of_all_projects(self) -> int:
        """Count the sessions in all projects.

        A session that is both in a database and in a file counts only once.
        """
        ids = {own_id for _, own_id in _iterate_session_files(None)}
        for path in _list_opencode_databases():
            with suppress(WorkspaceError):
                ids.update(row["id"] for row in _read_session_rows(path))
        return len(ids)

    def load_conversation(self, info: ConversationInfo) -> Conversation:
        """Load a session. Never raises; errors are in `problems` of the result."""
        builder = TurnBuilder()
        parser = OpencodeMessageParser(builder)
        problem = self._parse_messages_of_session(info, parser)
        return builder.make_conversation(info, [problem] if problem else [], parser.compactions)

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        """Return the command `opencode --session …`, which continues a session."""
        own_id = convert_conversation_id_to_id_used_by_agent(self.id_prefix, info.id)
        return AgentCommand(("opencode", "--session", own_id), info.working_directory)

    def make_fork_command(self, info: ConversationInfo, turn: int | None) -> AgentCommand | None:
        """Return the command that continues a copy of a session. The copy has all turns."""
        resume = self.make_resume_command(info)
        return resume and resume._replace(words=(*resume.words, "--fork"))

    def _parse_messages_of_session(
        self, info: ConversationInfo, parser: OpencodeMessageParser
    ) -> str | None:
        """Parse all messages of a session.

        Returns the problem if reading had to stop, otherwise None.
        """
        own_id = convert_conversation_id_to_id_used_by_agent(self.id_prefix, info.id)
        path = str(info.events_path)
        try:
            if path.endswith(".json"):
                files = _OpencodeSessionFiles(path, own_id)
                reverted = _read_session_file_as_database_row(path)["revert"]
                parser.parse_messages(files.iterate_messages(), reverted)
                return None
            with open_database(path) as database:
                columns = list_table_columns(database, "session")
                revert = database.execute(
                    f"SELECT {format_select_columns('session', ('revert',), columns)}"
                    " FROM session WHERE id = ?",
                    (own_id,),
                ).fetchone()
                parser.parse_messages(
                    _iterate_database_messages(database, own_id),
                    _parse_first_reverted_message_id(revert["revert"] if revert else None),
                )
        except (WorkspaceError, ValueError) as error:
            return describe_conversation_reading_error(error)
        return None


class _CachedOpencodeDatabaseListing(NamedTuple):
    """The sessions of a database.

    `contents` maps the id of a session to values that change with the content of the session. A
    session is in `contents` only if its content was requested.
    """

    state: DatabaseState
    rows: list[dict[str, Any]]
    contents: dict[str, tuple[Any, ...]]


class _OpencodeStoredMessage(NamedTuple):
    """A stored message and its parts, as JSON.

    If the JSON of the message or of a part cannot be read, an error takes its place.
    """

    id: str
    data: Any
    parts: Iterable[Any]


# where the sessions are


def _get_opencode_data_directory() -> str:
    return paths.get_xdg_directory("XDG_DATA_HOME", ".local/share") + "/opencode"


def _list_opencode_databases() -> list[str]:
    """Return the paths of opencode's databases. The first of them may not exist."""
    directory = _get_opencode_data_directory()
    if chosen := paths.read_client_environment_variable("OPENCODE_DB"):
        return [] if chosen == ":memory:" else [os.path.join(directory, chosen)]  # noqa: PTH118
    # Each unreleased version has its own database, named after its channel.
    others = [
        name
        for name in _list_names_in_directory(directory)
        if name.startswith("opencode-") and name.endswith(".db")
    ]
    return [f"{directory}/{name}" for name in ("opencode.db", *others)]


def _iterate_session_files(own_id: str | None) -> Iterator[tuple[str, str]]:
    """Yield the path and the session id of each session file.

    If `own_id` is not None, only the files of the session with this id are yielded.
    """
    root = f"{_get_opencode_data_directory()}/storage/session"
    for project in _list_names_in_directory(root):
        if own_id is None:
            for name in _list_names_in_directory(f"{root}/{project}"):
                if name.endswith(".json"):
                    yield f"{root}/{project}/{name}", name.removesuffix(".json")
        elif "/" not in own_id and "\0" not in own_id:
            path = f"{root}/{project}/{own_id}.json"
            if os.path.isfile(path):  # noqa: PTH113
                yield path, own_id


def _list_names_in_directory(directory: str) -> list[str]:
    return [entry.name for entry in list_directory(directory, [])]


# the database


def _read_session_rows(path: str) -> list[dict[str, Any]]:
    """Read the sessions of a database; raises `WorkspaceError`."""
    with open_database(path) as database:
        columns = list_table_columns(database, "session")
        if not {"id", "directory"} <= columns:
            raise WorkspaceError("the database has no sessions table", where=path)
        rows = database.execute(
            f"SELECT {format_select_columns('session', _SESSION_COLUMNS, columns)} FROM session"
        )
        # A session without an id or a directory belongs to no project.
        return [
            dict(row)
            for row in rows
            if get_text_or_none(row["id"]) and get_text_or_none(row["directory"])
        ]


def _read_session_change_markers(path: str, ids: list[str]) -> dict[str, tuple[Any, ...]]:
    """Map each session id to values that change when the session's messages or parts change."""
    states: dict[str, list[Any]] = {own_id: [] for own_id in ids}
    with open_database(path) as database:
        for table in ("message", "part", "session_message"):
            columns = list_table_columns(database, table)
            if "session_id" not in columns:
                continue
            time = "max(time_updated)" if "time_updated" in columns else "NULL"
            query = f"SELECT count(*), {time} FROM {table} WHERE session_id = ?"
            for own_id, state in states.items():
                state += tuple(database.execute(query, (own_id,)).fetchone())
    return {own_id: tuple(state) for own_id, state in states.items()}


def _read_session_title_and_size_from_database(
    path: str, row: dict[str, Any]
) -> ConversationFileFacts:
    """Read a session's size and title.

    If the session has no title, the title is taken from its first request.
    """
    with open_database(path) as database:
        size = 0
        for table in ("message", "part", "session_message"):
            if {"session_id", "data"} <= list_table_columns(database, table):
                query = f"SELECT sum(length(data)) FROM {table} WHERE session_id = ?"
                size += database.execute(query, (row["id"],)).fetchone()[0] or 0
        messages = _iterate_database_messages(database, row["id"])
        return {"title": _choose_session_title(row, messages), "size": int(size)}


def _iterate_database_messages(
    database: sqlite3.Connection, own_id: str
) -> Iterator[_OpencodeStoredMessage]:
    columns = list_table_columns(database, "message")
    is_empty = True
    if {"id", "session_id", "data"} <= columns:
        has_parts = {"id", "message_id", "data"} <= list_table_columns(database, "part")
        order = "time_created, id" if "time_created" in columns else "id"
        query = f"SELECT id, data FROM message WHERE session_id = ? ORDER BY {order}"
        for message in database.execute(query, (own_id,)):
            is_empty = False
            part_query = "SELECT data FROM part WHERE message_id = ? ORDER BY id"
            rows = database.execute(part_query, (message["id"],)) if has_parts else ()
            parts = (row["data"] for row in rows)
            yield _OpencodeStoredMessage(str(message["id"]), message["data"], parts)
    if is_empty and {"session_id", "type", "data"} <= list_table_columns(
        database, "session_message"
    ):
        yield from _iterate_session_message_table(database, own_id)


def _iterate_session_message_table(
    database: sqlite3.Connection, own_id: str
) -> Iterator[_OpencodeStoredMessage]:
    """Yield a session's messages from the table `session_message`, which opencode 2 uses."""
    columns = list_table_columns(database, "session_message")
    order = "seq" if "seq" in columns else "time_created, id"
    query = f"SELECT id, type, data FROM session_message WHERE session_id = ? ORDER BY {order}"
    for row in database.execute(query, (own_id,)):
        data = row["data"]
        try:
            value = orjson.loads(data)
            if type(value) is dict:
                data = orjson.dumps({**value, "type": row["type"]})
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            pass
        yield _OpencodeStoredMessage(str(row["id"]), data, ())


# the JSON files


class _OpencodeSessionFiles:
    """The files of one session in the directory `storage`: its messages and their parts."""

    def __init__(self, session_path: str, own_id: str) -> None:
        root = os.path.normpath(f"{session_path}/../../..")
        self.messages = f"{root}/message/{own_id}"
        self.parts = f"{root}/part"

    def list_change_markers(self) -> list[str]:
        """Return strings that change when the session's messages or their parts change.

        For the last message, each part is checked. For an earlier message, only the directory that
        contains the parts is checked, so a part that is changed in place goes unnoticed.
        """
        states = []
        names = _list_json_files(self.messages)
        for name in names:
            parts = f"{self.parts}/{name.removesuffix('.json')}"
            states.append(
                f"{name} {read_inode_size_and_mtime(f'{self.messages}/{name}')} {read_inode_size_and_mtime(parts)}"
            )
        if names:
            # opencode may still be writing the parts of the last message, one after another.
            states += map(str, map(read_inode_size_and_mtime, self._list_part_files(names[-1])))
        return states

    def iterate_messages(self) -> Iterator[_OpencodeStoredMessage]:
        """Yield the messages in the order of their ids, which is also their order in time."""
        for name in _list_json_files(self.messages):
            own_id = name.removesuffix(".json")
            data = _read_file_bytes_or_error(f"{self.messages}/{name}")
            parts = map(_read_file_bytes_or_error, self._list_part_files(name))
            yield _OpencodeStoredMessage(own_id, data, parts)

    def _list_part_files(self, message_name: str) -> list[str]:
        directory = f"{self.parts}/{message_name.removesuffix('.json')}"
        return [f"{directory}/{name}" for name in _list_json_files(directory)]

    def measure_total_file_size(self) -> int:
        """Return the total size in bytes of the message and part files."""
        size = 0
        for name in _list_json_files(self.messages):
            for path in (f"{self.messages}/{name}", *self._list_part_files(name)):
                if (state := read_inode_size_and_mtime(path)) is not None:
                    size += state[1]
        return size


def _list_json_files(directory: str) -> list[str]:
    return [name for name in _list_names_in_directory(directory) if name.endswith(".json")]


def _read_file_bytes_or_error(path: str) -> bytes | WorkspaceError:
    """Return the content of a file, or the error if the file cannot be read."""
    try:
        return read_file(path, MAX_FILE_BYTES)
    except WorkspaceError as error:
        return error


def _read_session_file_as_database_row(path: str) -> dict[str, Any]:
    """Return the content of a session's file in the form of a database row.

    Raises `WorkspaceError` or `ValueError`.
    """
    session = orjson.loads(read_file(path, MAX_FILE_BYTES))
    if type(session) is not dict:
        raise ValueError("it is not an object")
    if get_text_or_none(session.get("directory")) is None:
        raise ValueError("the session has no directory")
    time = session.get("time")
    times = time if type(time) is dict else {}
    return {
        "id": os.path.basename(path).removesuffix(".json"),  # noqa: PTH119
        "parent_id": session.get("parentID"),
        "title": session.get("title"),
        "directory": session["directory"],
        "revert": _parse_first_reverted_message_id(session.get("revert")),
        "time_created": times.get("created"),
        "time_updated": times.get("updated"),
        "time_archived": times.get("archived"),
    }


def _read_session_title_and_size_from_files(
    files: _OpencodeSessionFiles, row: dict[str, Any]
) -> ConversationFileFacts:
    return {
        "title": _choose_session_title(row, files.iterate_messages()),
        "size": files.measure_total_file_size(),
    }


# both


def _parse_first_reverted_message_id(value: Any) -> str | None:
    """Return the id of the first message that the user has undone, or None."""
    if type(value) is str:
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
    return get_text_or_none(value.get("messageID")) if type(value) is dict else None


def _choose_session_title(
    row: dict[str, Any], messages: Iterable[_OpencodeStoredMessage]
) -> str | None:
    """Return a session's title, or a title taken from its first request if the session has none."""
    title = get_text_or_none(row["title"])
    if title is not None and title.strip() and not title.startswith(_DEFAULT_TITLES):
        return title
    builder = TurnBuilder()
    parser = OpencodeMessageParser(builder)
    for message in messages:
        parser.parse_message_and_report_damage(message)
        if text := builder.find_first_user_request():
            return make_title_from_user_request(text)
    return title


class OpencodeMessageParser:
    """Parses the messages of one session in order."""

    def __init__(self, builder: TurnBuilder) -> None:
        self.builder = builder
        self.compactions: list[ConversationCompaction] = []
        self._request: ConversationEvent | None = None

    def parse_messages(
        self, messages: Iterable[_OpencodeStoredMessage], reverted: str | None
    ) -> None:
        """Parse all messages.

        `reverted` is the id of the first message that the user has undone, or None. Turns that
        begin with this message or later are marked as rewound.
        """
        is_undone = False
        for message in messages:
            is_undone = is_undone or message.id == reverted
            before = len(self.builder.turns)
            self.parse_message_and_report_damage(message)
            if is_undone:
                for turn in self.builder.turns[before:]:
                    turn.is_rewound = True

    def parse_message_and_report_damage(self, stored: _OpencodeStoredMessage) -> None:
        """Parse one message.

        If the message is damaged, the damage is reported, and the readable parts are still added.
        """
        builder = self.builder
        message = self._parse_json_object_or_report(stored.data, "message")
        if message is not None:
            try:
                self._parse_message_of_any_role(message, stored.parts)
            except READ_ERRORS:
                builder.add_unreadable_record("message", message)
        builder.count += 1

    def _parse_json_object_or_report(self, data: Any, name: str) -> dict[str, Any] | None:
        """Parse a JSON object. Any other value is reported, and None is returned."""
        builder = self.builder
        if isinstance(data, WorkspaceError):
            builder.add_problem(f"{data.where}: {data.message}")
            return None
        try:
            value = orjson.loads(data)
        except (orjson.JSONDecodeError, TypeError) as error:
            builder.add_record_problem(f"a {name} is not JSON: {error}")
            return None
        if type(value) is not dict:
            builder.add_record_problem(f"a {name} is not an object")
            return None
        return value

    def _parse_message_of_any_role(
        self, message: dict[str, Any], stored_parts: Iterable[Any]
    ) -> None:
        role = message.get("role", message.get("type"))
        time = _get_record_time(message, "created")
        objects = (self._parse_json_object_or_report(data, "part") for data in stored_parts)
        parts = [part for part in objects if part is not None]
        if "role" not in message and role in _OPENCODE_2_TYPES:
            parts = self._make_parts_of_opencode_2_message(message)
            role = _OPENCODE_2_TYPES[role]
        if role == "user":
            self._parse_user_message(message, parts, time)
        elif role == "assistant":
            self._parse_assistant_message(message, parts, time)
        elif role != "bookkeeping":
            name = role if type(role) is str else "message"
            self.builder.add_unknown_event(name, {**message, "parts": parts}, time)

    def _make_parts_of_opencode_2_message(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Convert the content of an opencode 2 message into parts like those of older versions."""
        kind = message["type"]
        if kind == "assistant":
            content = message.get("content")
            return [part for part in content if type(part) is dict] if type(content) is list else []
        if kind == "compaction":
            summary = get_text_or_none(message.get("summary"))
            return [{"type": "text", "text": summary}] if summary else []
        if kind == "shell":
            output = message.get("output")
            text = output.get("output") if type(output) is dict else output
            status = "running" if message.get("status") == "running" else "completed"
            state = {"status": status, "input": {"command": message.get("command")}}
            call = {"type": "tool", "tool": "shell", "callID": message.get("shellID")}
            return [{**call, "state": {**state, "output": text}}]
        request: dict[str, Any] = {"type": "text", "text": message.get("text")}
        if kind != "user":
            return [{**request, "synthetic": True}]
        files = message.get("files")
        return [request] + [
            {"filename": file.get("name"), "type": "file", "mime": file.get("mime")}
            for file in (files if type(files) is list else [])
            if type(file) is dict
        ]

    def _parse_user_message(
        self, message: dict[str, Any], parts: list[dict[str, Any]], time: datetime | None
    ) -> None:
        builder = self.builder
        texts, contexts, media = [], [], []
        unknown = []
        for part in parts:
            kind = part.get("type")
            if kind == "text":
                text = part.get("text")
                if type(text) is not str:
                    unknown.append(part)
                elif part.get("synthetic") is True:
                    # opencode adds such texts: reminders, and the content of files that the request mentions.
                    contexts.append(text)
                else:
                    texts.append(text)
            elif kind == "file":
                media.append(_format_file_part_placeholder(part))
            elif kind == "subtask":
                texts.append(_get_required_string(part, "prompt"))
            elif kind not in _BOOKKEEPING:
                unknown.append(part)
        context = "\n\n".join(contexts)
        if texts or media or (context and self._request is None):
            builder.model = _read_provider_and_model_name(message) or builder.model
            builder.start_turn(time)
            self._request = builder.add_event(
                "chat_request",
                "\n\n".join([*texts, *media]) or context,
                time,
                metadata={"context": context} if context else None,
            )
        elif context and self._request is not None:
            # opencode continues by itself, for example after a compaction.
            known = (self._request.metadata or {}).get("context")
            self._request.metadata = {"context": f"{known}\n\n{context}" if known else context}
        for part in unknown:
            self._add_unknown_part(part, time)

    def _parse_assistant_message(
        self, message: dict[str, Any], parts: list[dict[str, Any]], time: datetime | None
    ) -> None:
        builder = self.builder
        self._add_token_usage(message.get("tokens"), _read_provider_and_model_name(message))
        if message.get("summary") is True or message.get("type") == "compaction":
            texts = [part["text"] for part in parts if type(part.get("text")) is str]
            if builder.turns and texts:
                summary = "\n\n".join(texts)
                self.compactions.append(
                    ConversationCompaction(1, builder.turn_count, time, summary)
                )
                builder.add_compaction_summary(summary, time)
                return
        if model := _read_provider_and_model_name(message):
            events = builder.turns[-1].events if builder.turns else []
            has_answer = any(event.kind == "message" for event in events)
            builder.set_model(model, is_before_answer=not has_answer)
        for part in parts:
            try:
                self._parse_message_part(part, time)
            except READ_ERRORS:
                kind = part.get("type")
                builder.add_unreadable_record(kind if type(kind) is str else "part", part, time)
        if (error_text := _format_recorded_error(message.get("error"))) is not None:
            builder.add_event("message", f"[{error_text}]", time)

    def _parse_message_part(self, part: dict[str, Any], time: datetime | None) -> None:
        builder = self.builder
        kind = part.get("type")
        time = _get_record_time(part, "start") or _get_record_time(part, "created") or time
        if kind == "text":
            builder.add_event("message", _get_required_string(part, "text"), time)
        elif kind == "reasoning":
            text = _get_required_string(part, "text")
            if text.strip():  # some models encrypt their reasoning, and leave an empty text
                builder.add_event("reasoning", text, time)
        elif kind == "tool":
            self._parse_tool_part(part, time)
        elif kind == "file":
            builder.add_event("message", _format_file_part_placeholder(part), time)
        elif kind not in _BOOKKEEPING:
            self._add_unknown_part(part, time)

    def _parse_tool_part(self, part: dict[str, Any], time: datetime | None) -> None:
        builder = self.builder
        state = part.get("state")
        if type(state) is not dict:
            raise TypeError("the state of the call is not an object")
        call_id = get_text_or_none(part.get("callID")) or get_text_or_none(part.get("id"))
        name = get_text_or_none(part.get("tool")) or get_text_or_none(part.get("name"))
        started = _get_record_time(state, "start") or time
        call = builder.add_tool_call(name, state.get("input"), call_id, started)
        if name is None:
            builder.add_event_problem(call, "the call has no name")
        status = state.get("status")
        if status not in ("completed", "error"):
            return
        ended = _get_record_time(state, "end") or _get_record_time(part, "completed") or started
        if status == "error":
            text = _format_recorded_error(state.get("error")) or ""
        else:
            output = (
                state["output"]
                if "output" in state
                else _join_texts_of_tool_result_parts(state.get("content"))
            )
            text = "" if output is None else output
        attachments = state.get("attachments")
        lines = [
            _format_file_part_placeholder(one)
            for one in (attachments if type(attachments) is list else [])
            if type(one) is dict
        ]
        is_text = type(text) is str
        shown = text if is_text else orjson.dumps(text, option=orjson.OPT_INDENT_2).decode()
        result = builder.add_tool_result(
            call_id,
            "\n".join([*([shown] if shown else []), *lines]),
            ended,
            is_error=status == "error",
        )
        if not is_text:
            builder.add_event_problem(result, "the output of the call is not text")

    def _add_unknown_part(self, part: dict[str, Any], time: datetime | None) -> None:
        kind = part.get("type")
        self.builder.add_unknown_event(kind if type(kind) is str else "part", part, time)

    def _add_token_usage(self, tokens: Any, model: str | None) -> None:
        if type(tokens) is not dict:
            return
        cache = tokens.get("cache")
        cached = cache if type(cache) is dict else {}
        counts: dict[str, int] = {}
        # `input` excludes the cached tokens, and `output` excludes the reasoning tokens.
        for name, value in (
            ("input", tokens.get("input")),
            ("output", tokens.get("output")),
            ("output", tokens.get("reasoning")),
            ("read", cached.get("read")),
            ("write", cached.get("write")),
        ):
            if (count := get_count_or_none(value)) is not None:
                counts[name] = counts.get(name, 0) + count
        if any(counts.values()):
            usage = TokenUsage(
                input_tokens=counts.get("input"),
                output_tokens=counts.get("output"),
                cache_read_tokens=counts.get("read"),
                cache_write_tokens=counts.get("write"),
                total_tokens=sum(counts.values()),
            )
            self.builder.add_token_usage(usage, model)


_OPENCODE_2_TYPES = {
    "user": "user",
    "synthetic": "user",
    "system": "user",
    "skill": "user",
    "assistant": "assistant",
    "shell": "assistant",
    "compaction": "assistant",
    "agent-switched": "bookkeeping",
    "model-switched": "bookkeeping",
    "location-switched": "bookkeeping",
    "idle": "bookkeeping",
}
"""Maps the type of a message to its role.

In opencode 2, messages have a `type` instead of a `role`.
"""


def _get_required_string(part: dict[str, Any], key: str) -> str:
    value = part.get(key)
    if type(value) is not str:
        raise TypeError(f"the field {key} is not a string")
    return value


def _get_record_time(record: dict[str, Any], key: str) -> datetime | None:
    time = record.get("time")
    return convert_unix_time_to_datetime(time.get(key), 1000) if type(time) is dict else None


def _read_provider_and_model_name(message: dict[str, Any]) -> str | None:
    """Return the provider and the model of a message, such as `anthropic/claude-sonnet-4`."""
    nested = message.get("model")
    source = nested if type(nested) is dict else message
    name = get_text_or_none(source.get("modelID")) or get_text_or_none(
        source.get("id") if nested else None
    )
    provider = get_text_or_none(source.get("providerID"))
    return f"{provider}/{name}" if provider and name else name


def _format_file_part_placeholder(part: dict[str, Any]) -> str:
    url = part.get("url")
    size = None
    if type(url) is str and url.startswith("data:"):
        encoded = url.partition(",")[2]
        size = count_base64_bytes(encoded)
    name = get_text_or_none(part.get("filename"))
    if name is None and type(url) is str and size is None:
        name = url[:200]
    return format_media_placeholder(name, get_text_or_none(part.get("mime")), size)


def _format_recorded_error(error: Any) -> str | None:
    """Return the text of an error, or None if there is no error."""
    if type(error) is not dict:
        return get_text_or_none(error)
    data = error.get("data")
    message = get_text_or_none(data.get("message")) if type(data) is dict else None
    texts = [get_text_or_none(error.get("name")), message or get_text_or_none(error.get("message"))]
    return ": ".join(text for text in texts if text) or "error"


def _join_texts_of_tool_result_parts(content: Any) -> str | None:
    """Join the texts of a tool's result, which opencode 2 stores as a list.

    Returns None for any value that is not a list.
    """
    if type(content) is not list:
        return None
    items = [item for item in content if type(item) is dict]
    return "\n".join(
        get_text_or_none(item.get("text")) or _format_file_part_placeholder(item) for item in items
    )
