"""The format of the command `llm`: one SQLite database for all conversations of a user.

Up to version 0.31 of `llm`, a row contains a prompt and its response. Since version 0.32, each
message has its own row, which contains the hash of the message before it. The row of a turn
contains the hashes of the request's last message and the answer's last message. A database can
contain both forms. So can a conversation that was continued after an update of `llm`.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kbtui.conversations.conversation_data_types import (
    AgentCommand,
    Conversation,
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
from kbtui.conversations.formats.stored_session import (
    StoredSession,
    convert_conversation_id_to_id_used_by_agent,
    make_change_signature,
    make_conversation_id,
    make_title_from_user_request,
)
from kbtui.conversations.formats.turn_builder import (
    READ_ERRORS,
    TurnBuilder,
    format_media_placeholder,
    get_count_or_none,
    get_text_or_none,
)
from kbtui.dates import parse_timestamp
from kbtui.errors import WorkspaceError
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_counted_noun
from kbtui.workspace import paths

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from kbtui.conversations.conversation_data_types import ConversationFileFacts
    from kbtui.conversations.formats.conversation_format import StoredConversation
    from kbtui.workspace import Workspace

MAX_CHAIN = 10_000
"""At most this many messages are read for a turn, because a damaged database can link messages in a circle."""
_RESPONSE_COLUMNS = (
    "id",
    "model",
    "resolved_model",
    "prompt",
    "system",
    "response",
    "reasoning",
    "schema_id",
    "datetime_utc",
    "input_tokens",
    "output_tokens",
    "token_details",
)
_TURN_COLUMNS = (
    "id",
    "parent_message_hash",
    "tip_message_hash",
    "model",
    "resolved_model",
    "schema_id",
    "datetime_utc",
    "input_tokens",
    "output_tokens",
    "token_details",
)


class LlmCliFormat(ConversationFormat):
    """Finds and reads the conversations of the command `llm`.

    `llm` does not record in which directory it ran. Therefore all its conversations belong to every
    workspace, and kbtui reads them only if the user enables this format.
    """

    name = "llm"
    label = "llm"
    id_prefix = "llm-"

    def __init__(self) -> None:
        self._listings: dict[str, tuple[DatabaseState, dict[str, StoredSession]]] = {}
        """Maps the path of a database to its state and its conversations by id."""

    def find_stored_conversations(
        self, workspace: Workspace, only: str | None = None
    ) -> tuple[Sequence[StoredConversation], list[SkippedConversationPath]]:
        """Find all conversations of the user, or only the one with the id `only`."""
        path = get_llm_database_path()
        state = read_database_state(path)
        if state[0] is None:
            return [], []
        listing = self._listings.get(path)
        if listing is None or listing[0] != state:
            try:
                rows = _read_conversation_rows(path)
            except WorkspaceError as error:
                return [], [SkippedConversationPath(Path(path), error.message, True)]
            modified = datetime.fromtimestamp(state[0][2] / 1e9, UTC)
            found = {one.id: one for one in self._make_stored_sessions(path, rows, modified)}
            self._listings[path] = listing = (state, found)
        sessions = listing[1]
        if only is not None:
            return [sessions[only]] if only in sessions else [], []
        return list(sessions.values()), []

    def _make_stored_sessions(
        self, path: str, rows: list[_LlmConversationRecord], modified: datetime
    ) -> Iterator[StoredSession]:
        for row in rows:
            yield StoredSession(
                make_conversation_id(self.id_prefix, row.id),
                self.name,
                path,
                make_change_signature(path, *row),
                parse_timestamp(row.first) or modified,
                parse_timestamp(row.last) or modified,
                partial(_read_conversation_title_and_size_from_database, path, row),
            )

    def list_watched_directories(self, workspace: Workspace) -> list[Path]:
        """Return the directory in which llm stores the user's database."""
        return [Path(get_llm_database_path()).parent]

    def load_conversation(self, info: ConversationInfo) -> Conversation:
        """Load a conversation. Never raises; errors are in `problems` of the result."""
        builder = TurnBuilder()
        problems: list[str] = []
        own_id = convert_conversation_id_to_id_used_by_agent(self.id_prefix, info.id)
        try:
            with open_database(str(info.events_path)) as database:
                _LlmConversationReader(database, builder).read_conversation(own_id)
        except WorkspaceError as error:
            problems.append(error.message)
        return builder.make_conversation(info, problems)

    def make_resume_command(self, info: ConversationInfo) -> AgentCommand | None:
        """Return the command `llm chat --conversation …`, which resumes the conversation."""
        own_id = convert_conversation_id_to_id_used_by_agent(self.id_prefix, info.id)
        words = ("llm", "chat", "--conversation", own_id)
        return AgentCommand(words, info.working_directory or paths.get_user_home())


class _LlmConversationRecord(NamedTuple):
    """The metadata of a conversation in the database."""

    id: str
    name: str | None
    first: str | None
    last: str | None
    responses: int
    last_id: str | None


def get_llm_database_path() -> str:
    """Return the path of llm's database. The file may not exist."""
    directory = paths.read_client_environment_variable("LLM_USER_PATH")
    if not directory and sys.platform == "darwin":
        directory = f"{paths.get_user_home()}/Library/Application Support/io.datasette.llm"
    elif not directory:
        directory = f"{paths.get_xdg_directory('XDG_CONFIG_HOME', '.config')}/io.datasette.llm"
    return f"{directory}/logs.db"


def _read_conversation_rows(path: str) -> list[_LlmConversationRecord]:
    """Read the metadata of each conversation in a database. Raises `WorkspaceError`."""
    rows: dict[str, _LlmConversationRecord] = {}
    with open_database(path) as database:
        if not list_table_columns(database, "responses") and not list_table_columns(
            database, "turns"
        ):
            raise WorkspaceError("the database has no responses table", where=path)
        for table, key, names in (
            ("responses", "conversation_id", "conversations"),
            ("turns", "thread_id", "threads"),
        ):
            if not {"id", key, "datetime_utc"} <= list_table_columns(database, table):
                continue
            has_names = {"id", "name"} <= list_table_columns(database, names)
            name = f"(SELECT name FROM {names} WHERE id = {key})" if has_names else "NULL"
            query = (
                f"SELECT {key}, {name}, min(datetime_utc), max(datetime_utc), count(*), max(id)"
                f" FROM {table} GROUP BY {key}"
            )
            for row in database.execute(query):
                if get_text_or_none(row[0]) is None:
                    continue
                new = _LlmConversationRecord(row[0], get_text_or_none(row[1]), *row[2:])
                rows[new.id] = (
                    _merge_rows_of_old_and_new_schema(rows[new.id], new) if new.id in rows else new
                )
    return list(rows.values())


def _merge_rows_of_old_and_new_schema(
    old: _LlmConversationRecord, new: _LlmConversationRecord
) -> _LlmConversationRecord:
    """Merge the two rows of a conversation.

    `old` was written by llm 0.31 or earlier, and `new` by llm 0.32 or later.
    """
    return _LlmConversationRecord(
        old.id,
        old.name or new.name,
        old.first,
        new.last,
        old.responses + new.responses,
        new.last_id,
    )


def _read_conversation_title_and_size_from_database(
    path: str, row: _LlmConversationRecord
) -> ConversationFileFacts:
    """Return the size and the title of a conversation."""
    with open_database(path) as database:
        builder = TurnBuilder()
        _LlmConversationReader(database, builder).read_conversation(row.id)
    events = [event for turn in builder.turns for event in turn.events]
    requests = (event.text for event in events if event.kind == "chat_request")
    title = row.name or make_title_from_user_request(next(requests, ""))
    return {"title": title, "size": sum(len(event.text.encode("utf-8")) for event in events)}


def _iterate_responses(
    database: sqlite3.Connection, own_id: str
) -> Iterator[tuple[sqlite3.Row, bool]]:
    """Yield each response of a conversation, and whether llm 0.32 or later stored it."""
    for table, key, wanted in (
        ("responses", "conversation_id", _RESPONSE_COLUMNS),
        ("turns", "thread_id", _TURN_COLUMNS),
    ):
        columns = list_table_columns(database, table)
        if {"id", key} <= columns:
            query = (
                f"SELECT {format_select_columns(table, wanted, columns)} FROM {table}"
                f" WHERE {key} = ? ORDER BY {table}.rowid"
            )
            for row in database.execute(query, (own_id,)):
                yield row, table == "turns"


class _LlmConversationReader:
    """Reads the responses of one conversation into turns."""

    def __init__(self, database: sqlite3.Connection, builder: TurnBuilder) -> None:
        self._database = database
        self._builder = builder
        self._columns: dict[str, set[str]] = {}

    def read_conversation(self, own_id: str) -> None:
        """Read all responses in order. Damaged responses are reported as problems."""
        builder = self._builder
        for row, is_turn in _iterate_responses(self._database, own_id):
            try:
                if is_turn:
                    self._read_row_of_turns_table(row)
                else:
                    self._read_row_of_responses_table(row)
            except READ_ERRORS:
                builder.add_unreadable_record(
                    "response", _convert_row_to_object_with_bytes_as_text(row)
                )
            builder.count += 1

    def _has_table_columns(self, table: str, *names: str) -> bool:
        """Return whether a table of the database has all columns `names`.

        Returns false if there is no such table.
        """
        if table not in self._columns:
            self._columns[table] = list_table_columns(self._database, table)
        return self._columns[table].issuperset(names)

    def _fetch_rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        return self._database.execute(query, values).fetchall()

    # up to version 0.31

    def _read_row_of_responses_table(self, row: sqlite3.Row) -> None:
        """Read a row of the table `responses`: a prompt and its response."""
        builder = self._builder
        time = parse_timestamp(row["datetime_utc"])
        for result in self._list_tool_results(row["id"]):
            self._add_tool_result(
                result["tool_call_id"],
                result["name"],
                result["output"],
                result["exception"],
                [],
                time,
            )
        prompt, system = get_text_or_none(row["prompt"]), get_text_or_none(row["system"])
        lines = [
            *([f"[system: {system}]"] if system else []),
            *self._list_fragment_placeholders(row["id"]),
            *([prompt] if prompt else []),
            *self._list_prompt_attachment_placeholders(row["id"]),
        ]
        if prompt is None and row["prompt"]:
            lines.append(str(row["prompt"]))
        self._start_turn_for_request(lines, row, time)
        self._set_model(row)
        self._add_token_usage(row)
        if reasoning := get_text_or_none(row["reasoning"]):
            builder.add_event("reasoning", reasoning, time)
        if (response := row["response"]) is not None and response != "":
            kind = "structured" if row["schema_id"] else "message"
            event = builder.add_event(kind, str(response), time)
            if type(response) is not str:
                builder.add_event_problem(event, "the response is not text")
        if self._has_table_columns(
            "tool_calls", "response_id", "name", "arguments", "tool_call_id"
        ):
            query = (
                "SELECT name, arguments, tool_call_id FROM tool_calls WHERE response_id = ?"
                " ORDER BY id"
            )
            for call in self._fetch_rows(query, row["id"]):
                self._add_tool_call(
                    call["tool_call_id"],
                    call["name"],
                    _parse_json_or_keep_value(call["arguments"]),
                    time,
                )

    def _list_tool_results(self, response_id: str) -> list[sqlite3.Row]:
        if not self._has_table_columns(
            "tool_results", "response_id", "name", "output", "tool_call_id"
        ):
            return []
        wanted = ("name", "output", "tool_call_id", "exception")
        columns = format_select_columns("tool_results", wanted, self._columns["tool_results"])
        query = f"SELECT {columns} FROM tool_results WHERE response_id = ? ORDER BY id"
        return self._fetch_rows(query, response_id)

    def _list_fragment_placeholders(self, response_id: str) -> list[str]:
        """Return one line for each fragment in the prompt of a response.

        A fragment is a text that the user attached to the prompt.
        """
        if not self._has_table_columns(
            "fragments", "id", "source", "content"
        ) or not self._has_table_columns("prompt_fragments", "response_id", "fragment_id"):
            return []
        query = (
            "SELECT id, source, length(content) AS size FROM prompt_fragments"
            " JOIN fragments ON fragments.id = fragment_id WHERE response_id = ?"
            ' ORDER BY prompt_fragments."order"'
        )
        return [_format_fragment_placeholder(row) for row in self._fetch_rows(query, response_id)]

    def _list_prompt_attachment_placeholders(self, response_id: str) -> list[str]:
        if not self._has_table_columns("prompt_attachments", "response_id", "attachment_id"):
            return []
        query = (
            "SELECT attachment_id FROM prompt_attachments WHERE response_id = ?"
            ' ORDER BY prompt_attachments."order"'
        )
        return [
            self._format_attachment_placeholder(row[0])
            for row in self._fetch_rows(query, response_id)
        ]

    # since version 0.32

    def _read_row_of_turns_table(self, row: sqlite3.Row) -> None:
        """Read a row of the table `turns`, and the messages that the row refers to."""
        builder = self._builder
        time = parse_timestamp(row["datetime_utc"])
        parent = row["parent_message_hash"]
        # The first turn includes all earlier messages, such as those of a fork's origin. No other turn has them.
        asked = self._list_message_chain(parent, None, stop_at_answer=bool(builder.turns))
        answered = self._list_message_chain(row["tip_message_hash"], parent)
        lines: list[str] = []
        for message in asked:
            if message["role"] == "assistant":
                self._start_turn_for_request(lines, row, time)
                lines = []
                self._read_model_answer(message, "message", time)
            else:
                lines += self._read_request_lines_and_add_tool_results(message, time)
        self._start_turn_for_request(lines, row, time)
        self._set_model(row)
        self._add_token_usage(row)
        for message in answered:
            self._read_model_answer(message, "structured" if row["schema_id"] else "message", time)

    def _read_model_answer(self, message: sqlite3.Row, kind: str, time: datetime | None) -> None:
        for part in self._list_message_parts(message["hash"]):
            self._read_answer_part(part, kind, time)

    def _list_message_chain(
        self, tip: Any, before_first: Any, *, stop_at_answer: bool = False
    ) -> list[sqlite3.Row]:
        """Return a chain of messages, oldest first.

        * `tip` is the hash of the last message in the chain.
        * `before_first` is the hash of the message just before the first one in the chain.
        * If `stop_at_answer` is true and the chain contains an answer, the chain begins after the
          last answer.
        """
        messages: list[sqlite3.Row] = []
        while tip is not None and tip != before_first and len(messages) < MAX_CHAIN:
            query = "SELECT hash, parent_hash, role FROM messages WHERE hash = ?"
            rows = self._fetch_rows(query, tip)
            if not rows:
                self._builder.add_record_problem("a message is missing")
                break
            if stop_at_answer and rows[0]["role"] == "assistant":
                break
            messages.append(rows[0])
            tip = rows[0]["parent_hash"]
        return messages[::-1]

    def _list_message_parts(self, message_hash: str) -> list[dict[str, Any]]:
        """Return the parts of a message as objects. The columns `type` and `text` become keys of the objects."""
        query = "SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position"
        parts = []
        for row in self._fetch_rows(query, message_hash):
            payload = _parse_json_or_keep_value(row["payload"])
            part = payload if type(payload) is dict else {}
            if payload is not None and type(payload) is not dict:
                part = {"payload": payload}
            if row["text"] is not None:
                part = {**part, "text": row["text"]}
            parts.append({**part, "type": row["type"]})
        return parts

    def _read_request_lines_and_add_tool_results(
        self, message: sqlite3.Row, time: datetime | None
    ) -> list[str]:
        """Return the lines of the request in a message.

        If the message also contains tool results, they are added to the turn.
        """
        lines = []
        for part in self._list_message_parts(message["hash"]):
            kind = part["type"]
            if kind == "text":
                text = self._join_text_and_fragment_placeholders(part)
                lines.append(f"[system: {text}]" if message["role"] == "system" else text)
            elif kind == "attachment":
                lines.append(
                    self._format_attachment_placeholder(
                        _get_attachment_id_of_reference(part.get("attachment"))
                    )
                )
            elif kind == "tool_result":
                self._read_tool_result_part(part, time)
            else:
                self._builder.add_unknown_event(_get_part_type_or_default(kind), part, time)
        return lines

    def _read_answer_part(self, part: dict[str, Any], kind: str, time: datetime | None) -> None:
        builder = self._builder
        if part["type"] == "text":
            builder.add_event(kind, self._join_text_and_fragment_placeholders(part), time)
        elif part["type"] == "reasoning":
            # Some providers only say that the model reasoned, not what.
            if text := self._join_text_and_fragment_placeholders(part):
                builder.add_event("reasoning", text, time)
        elif part["type"] == "tool_call":
            self._add_tool_call(
                part.get("tool_call_id"), part.get("name"), part.get("arguments"), time
            )
        elif part["type"] == "tool_result":
            self._read_tool_result_part(part, time)
        elif part["type"] == "attachment":
            reference = _get_attachment_id_of_reference(part.get("attachment"))
            builder.add_event("message", self._format_attachment_placeholder(reference), time)
        else:
            builder.add_unknown_event(_get_part_type_or_default(part["type"]), part, time)

    def _read_tool_result_part(self, part: dict[str, Any], time: datetime | None) -> None:
        attachments = part.get("attachments")
        references = attachments if type(attachments) is list else []
        self._add_tool_result(
            part.get("tool_call_id"),
            part.get("name"),
            part.get("output"),
            part.get("exception"),
            [
                self._format_attachment_placeholder(_get_attachment_id_of_reference(one))
                for one in references
            ],
            time,
        )

    def _join_text_and_fragment_placeholders(self, part: dict[str, Any]) -> str:
        """Return the text of a message part, with a placeholder for each fragment.

        A fragment is a text that the user attached to the prompt.
        """
        pieces = part.get("text_ref")
        if type(pieces) is not list:
            text = part.get("text")
            return text if type(text) is str else ""
        texts = []
        for piece in pieces:
            if type(piece) is dict and type(piece.get("literal")) is str:
                texts.append(piece["literal"])
            elif type(piece) is dict and type(piece.get("fragment")) is int:
                query = "SELECT id, source, length(content) AS size FROM fragments WHERE id = ?"
                rows = self._fetch_rows(query, piece["fragment"])
                texts += [_format_fragment_placeholder(row) for row in rows]
        return "".join(texts)

    # both

    def _start_turn_for_request(
        self, lines: list[str], row: sqlite3.Row, time: datetime | None
    ) -> None:
        """Start a turn with a request that consists of `lines`.

        If there are no lines, a turn is started only if there is none yet.
        """
        builder = self._builder
        if builder.turns and not lines:
            return
        builder.model = (
            get_text_or_none(row["resolved_model"])
            or get_text_or_none(row["model"])
            or builder.model
        )
        builder.start_turn(time)
        if lines:
            builder.add_event("chat_request", "\n".join(lines), time)

    def _add_token_usage(self, row: sqlite3.Row) -> None:
        if (used := _read_token_counts(row)) is not None:
            self._builder.add_token_usage(used)

    def _set_model(self, row: sqlite3.Row) -> None:
        if model := get_text_or_none(row["resolved_model"]) or get_text_or_none(row["model"]):
            self._builder.set_model(model)

    def _add_tool_call(
        self, call_id: Any, name: Any, arguments: Any, time: datetime | None
    ) -> None:
        builder = self._builder
        event = builder.add_tool_call(
            get_text_or_none(name), arguments, get_text_or_none(call_id), time
        )
        if event.name is None:
            builder.add_event_problem(event, "the call has no name")

    def _add_tool_result(
        self,
        call_id: Any,
        name: Any,
        output: Any,
        exception: Any,
        attachments: list[str],
        time: datetime | None,
    ) -> None:
        builder = self._builder
        text = output if type(output) is str else "" if output is None else str(output)
        event = builder.add_tool_result(
            get_text_or_none(call_id),
            "\n".join([*([text] if text else []), *attachments]),
            time,
            is_error=bool(exception),
        )
        event.name = event.name or get_text_or_none(name)

    def _format_attachment_placeholder(self, attachment_id: str | None) -> str:
        if attachment_id is None or not self._has_table_columns(
            "attachments", "id", "type", "path", "url"
        ):
            return format_media_placeholder(None, None, None)
        query = "SELECT type, path, url, length(content) AS size FROM attachments WHERE id = ?"
        for row in self._fetch_rows(query, attachment_id):
            path = get_text_or_none(row["path"])
            name = os.path.basename(path) if path else get_text_or_none(row["url"])  # noqa: PTH119
            return format_media_placeholder(
                name or attachment_id[:12], get_text_or_none(row["type"]), row["size"]
            )
        return format_media_placeholder(attachment_id[:12], None, None)


def _format_fragment_placeholder(row: sqlite3.Row) -> str:
    name = get_text_or_none(row["source"]) or str(row["id"])
    return f"[fragment: {name}, {format_counted_noun(row['size'], 'character')}]"


def _get_attachment_id_of_reference(value: Any) -> str | None:
    return get_text_or_none(value.get("id")) if type(value) is dict else None


def _get_part_type_or_default(value: Any) -> str:
    return get_text_or_none(value) or "part"


def _parse_json_or_keep_value(value: Any) -> Any:
    """Parse JSON text; return any other value unchanged."""
    if value is None:
        return None
    try:
        return orjson.loads(value)
    except (orjson.JSONDecodeError, TypeError):
        return value


def _convert_row_to_object_with_bytes_as_text(row: sqlite3.Row) -> dict[str, Any]:
    """Return a row as an object, with bytes decoded as text."""
    return {
        key: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for key, value in dict(row).items()
    }


def _read_token_counts(row: sqlite3.Row) -> TokenUsage | None:
    """Return the token counts of a response; None if it has none."""
    details = _parse_json_or_keep_value(row["token_details"])
    included, read, written = _read_cached_token_counts(details if type(details) is dict else {})
    prompt = get_count_or_none(row["input_tokens"])
    counts = (
        None if prompt is None else max(0, prompt - (included or 0)),
        get_count_or_none(row["output_tokens"]),
        included if read is None else read,
        written,
    )
    known = [count for count in counts if count is not None]
    return TokenUsage(*counts, sum(known)) if known else None


def _read_cached_token_counts(details: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Return three token counts; None takes the place of a missing count.

    - tokens that were read from the cache, and are also counted as input tokens (OpenAI, Google)
    - tokens that were read from the cache, and are not counted as input tokens (Anthropic)
    - tokens that were written to the cache
    """
    prompt = details.get("prompt_tokens_details", details.get("input_tokens_details"))
    included = get_count_or_none(prompt.get("cached_tokens")) if type(prompt) is dict else None
    if included is None:
        included = get_count_or_none(details.get("cachedContentTokenCount"))
    read = get_count_or_none(details.get("cache_read_input_tokens"))
    written = get_count_or_none(details.get("cache_creation_input_tokens"))
    return included, read, written
