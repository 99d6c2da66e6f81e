"""The conversations of the command `llm`, in the tables of version 0.31 and in those of 0.32."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_parts import read_token_usage

from kbtui.conversations.conversation_data_types import Conversation, ConversationInfo
from kbtui.conversations.formats import llm_cli_format
from kbtui.conversations.formats.llm_cli_format import LlmCliFormat
from kbtui.conversations.formats.turn_builder import TurnBuilder
from kbtui.workspace import Workspace, open_workspace_at_root

OLD_SCHEMA = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses (
    id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT, options_json TEXT,
    response TEXT, response_json TEXT, conversation_id TEXT, duration_ms INTEGER, datetime_utc TEXT,
    input_tokens INTEGER, output_tokens INTEGER, token_details TEXT, schema_id TEXT,
    resolved_model TEXT
);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER);
CREATE TABLE fragments (id INTEGER PRIMARY KEY, hash TEXT, content TEXT, source TEXT);
CREATE TABLE prompt_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
CREATE TABLE tool_calls (
    id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT, arguments TEXT,
    tool_call_id TEXT
);
CREATE TABLE tool_results (
    id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT, output TEXT,
    tool_call_id TEXT, instance_id INTEGER, exception TEXT
);
"""
NEW_SCHEMA = """
CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
CREATE TABLE parts (
    id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT,
    text TEXT, payload TEXT
);
CREATE TABLE threads (
    id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT
);
CREATE TABLE turns (
    id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT,
    model TEXT, resolved_model TEXT, options_json TEXT, schema_id TEXT, input_tokens INTEGER,
    output_tokens INTEGER, token_details TEXT, duration_ms INTEGER, datetime_utc TEXT
);
"""
CACHED = json.dumps({"prompt_tokens_details": {"cached_tokens": 4}})


class Logs:
    """A database in which a conversation with a request, two calls and a second request is written."""

    def __init__(self, path: Path, *, is_new: bool = False) -> None:
        self.path = path
        self.is_new = is_new
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(OLD_SCHEMA + (NEW_SCHEMA if is_new else ""))

    def insert(self, table: str, **values: Any) -> None:
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*values.values()])

    def add_attachment(self) -> None:
        self.insert("attachments", id="a" * 64, type="image/png", content=b"0" * 28)
        self.insert("fragments", id=1, content="A long text", source="book.txt")

    def add_talk(self, own_id: str, name: str | None = "What is 3*4?") -> None:
        if self.is_new:
            self._add_new_talk(own_id, name)
        else:
            self.add_old_talk(own_id, name)

    def add_old_talk(self, own_id: str, name: str | None) -> None:
        self.insert("conversations", id=own_id, name=name, model="m")
        for number, (prompt, system, response, tokens) in enumerate(
            [
                ("What is 3*4?", "be brief", "Let me see", 17),
                ("", None, "It is 12", 5),
                ("and this image", None, "bye", 40),
            ]
        ):
            self.insert(
                "responses",
                id=f"{own_id}-{number}",
                model="m",
                prompt=prompt,
                system=system,
                response=response,
                conversation_id=own_id,
                datetime_utc=f"2025-06-01T10:00:0{number}.5+00:00",
                input_tokens=tokens,
                output_tokens=7,
                token_details=CACHED,
            )
        first, second, third = (f"{own_id}-{number}" for number in range(3))
        for call_id, tool, arguments in (
            ("c1", "multiply", '{"a": 3}'),
            ("c2", "fail", '{"x": 1}'),
        ):
            self.insert(
                "tool_calls",
                response_id=first,
                name=tool,
                arguments=arguments,
                tool_call_id=call_id,
            )
        result = {"response_id": second, "name": "multiply", "output": "12", "tool_call_id": "c1"}
        self.insert("tool_results", **result)
        result |= {"name": "fail", "output": "Error: no 1", "tool_call_id": "c2"}
        self.insert("tool_results", **result, exception="ValueError: no 1")
        self.insert("prompt_fragments", response_id=third, fragment_id=1, order=0)
        self.insert("prompt_attachments", response_id=third, attachment_id="a" * 64, order=0)

    def _add_new_talk(self, own_id: str, name: str | None) -> None:
        self.insert("threads", id=own_id, name=name, datetime_utc="2025-06-01 10:00:00.4+00:00")
        calls = [
            {"name": "multiply", "arguments": {"a": 3}, "tool_call_id": "c1"},
            {"name": "fail", "arguments": {"x": 1}, "tool_call_id": "c2"},
        ]
        error = {"output": "Error: no 1", "exception": "ValueError: no 1"}
        results = [{**calls[0], "output": "12"}, {**calls[1], **error}]
        reference = {"text_ref": [{"fragment": 1}, {"literal": "\nand this image"}]}
        messages: list[tuple[str, list[tuple[str, str | None, Any]]]] = [
            ("system", [("text", "be brief", None)]),
            ("user", [("text", "What is 3*4?", None)]),
            ("assistant", [("text", "Let me see", None), *(("tool_call", None, c) for c in calls)]),
            ("tool", [("tool_result", None, one) for one in results]),
            ("assistant", [("text", "It is 12", None)]),
            (
                "user",
                [("text", None, reference), ("attachment", None, {"attachment": {"id": "a" * 64}})],
            ),
            ("assistant", [("text", "bye", None)]),
        ]
        self.add_chain(own_id, messages)
        for number, (parent, tip, tokens) in enumerate([(1, 2, 17), (3, 4, 5), (5, 6, 40)]):
            self.add_turn(own_id, number, parent, tip, tokens)

    def add_chain(
        self, own_id: str, messages: list[tuple[str, list[tuple[str, str | None, Any]]]]
    ) -> None:
        for number, (role, parts) in enumerate(messages):
            parent = f"{own_id}/{number - 1}" if number else None
            self.insert("messages", hash=f"{own_id}/{number}", parent_hash=parent, role=role)
            for position, (kind, text, payload) in enumerate(parts):
                self.insert(
                    "parts",
                    message_hash=f"{own_id}/{number}",
                    position=position,
                    type=kind,
                    text=text,
                    payload=None if payload is None else json.dumps(payload),
                )

    def add_turn(self, own_id: str, number: int, parent: int, tip: int, tokens: int) -> None:
        self.insert(
            "turns",
            id=f"{own_id}-{number}",
            thread_id=own_id,
            parent_message_hash=f"{own_id}/{parent}",
            tip_message_hash=f"{own_id}/{tip}",
            model="m",
            datetime_utc=f"2025-06-01T10:00:0{number}.5+00:00",
            input_tokens=tokens,
            output_tokens=7,
            token_details=CACHED,
        )


@pytest.fixture
def path(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLM_USER_PATH", str(home / "llm"))
    return home / "llm/logs.db"


@pytest.fixture(params=["0.31", "0.32"])
def logs(request: pytest.FixtureRequest, path: Path) -> Logs:
    logs = Logs(path, is_new=request.param == "0.32")
    logs.add_attachment()
    return logs


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    return open_workspace_at_root(workspace_root)


def infos(workspace: Workspace, only: str | None = None) -> dict[str, ConversationInfo]:
    found, problems = LlmCliFormat().find_stored_conversations(workspace, only)
    assert problems == []
    return {one.id: one.read_conversation_info() for one in found}


def load(workspace: Workspace, conversation_id: str = "llm-one") -> Conversation:
    return LlmCliFormat().load_conversation(infos(workspace, conversation_id)[conversation_id])


def test_without_a_database_there_is_nothing(workspace: Workspace, path: Path) -> None:
    assert LlmCliFormat().find_stored_conversations(workspace) == ([], [])
    assert LlmCliFormat().list_watched_directories(workspace) == [path.parent]
    assert not path.parent.exists()


def test_a_conversation_is_read_as_turns(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one")
    info = infos(workspace)["llm-one"]
    assert (info.title, info.problem, info.working_directory) == ("What is 3*4?", None, None)
    assert info.created_at.isoformat() == "2025-06-01T10:00:00.500000+00:00"
    assert info.updated_at is not None
    assert info.updated_at.second == 2
    assert info.size > 100
    conversation = load(workspace)
    assert conversation.problems == []
    first, second = conversation.turns
    assert [(event.kind, event.text) for event in first.events] == [
        ("chat_request", "[system: be brief]\nWhat is 3*4?"),
        ("message", "Let me see"),
        ("tool_call_request", ""),
        ("tool_call_request", ""),
        ("tool_call_response", "12"),
        ("tool_call_response", "Error: no 1"),
        ("message", "It is 12"),
    ]
    assert [(event.kind, event.text) for event in second.events] == [
        (
            "chat_request",
            "[fragment: book.txt, 11 characters]\nand this image\n"
            "[image: aaaaaaaaaaaa, image/png, 28 bytes]",
        ),
        ("message", "bye"),
    ]
    assert first.model == "m"
    assert conversation.info.last_event_at == info.updated_at


def test_calls_pair_with_their_results(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one")
    events = load(workspace).turns[0].events
    call, failed = [event for event in events if event.kind == "tool_call_request"]
    assert (call.name, call.arguments, call.call) == ("multiply", {"a": 3}, 1)
    assert call.result is not None
    assert (call.result.text, call.result.is_error) == ("12", False)
    assert failed.result is not None
    assert failed.result.is_error


def test_the_tokens_of_each_response_count_once(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one")
    usage = read_token_usage(LlmCliFormat(), infos(workspace)["llm-one"])
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (50, 21, 12)
    assert usage.total_tokens == 83


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"input_tokens_details": {"cached_tokens": 4}}, (6, 4, None)),
        ({"cachedContentTokenCount": 3}, (7, 3, None)),
        ({"cache_read_input_tokens": 8, "cache_creation_input_tokens": 9}, (10, 8, 9)),
        ({"prompt_tokens_details": "many"}, (10, None, None)),
        ([], (10, None, None)),
    ],
)
def test_cached_tokens_are_counted_as_each_provider_means_them(
    path: Path, workspace: Workspace, details: Any, expected: tuple[int | None, ...]
) -> None:
    logs = Logs(path)
    row = {"id": "r", "conversation_id": "one", "token_details": json.dumps(details)}
    logs.insert("responses", **row, input_tokens=10)
    usage = read_token_usage(LlmCliFormat(), infos(workspace)["llm-one"])
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == expected


def test_without_tokens_there_is_no_usage(path: Path, workspace: Workspace) -> None:
    Logs(path).insert("responses", id="r", conversation_id="one", prompt="hello")
    assert read_token_usage(LlmCliFormat(), infos(workspace)["llm-one"]) is None


def test_every_conversation_belongs_to_every_workspace(
    logs: Logs, workspace: Workspace, tmp_path: Path
) -> None:
    logs.add_talk("one")
    logs.add_talk("two")
    (tmp_path / "other/.jp").mkdir(parents=True)
    other = open_workspace_at_root(tmp_path / "other")
    assert list(infos(workspace)) == list(infos(other)) == ["llm-one", "llm-two"]
    assert list(infos(workspace, "llm-two")) == ["llm-two"]


def test_a_conversation_without_a_name_gets_a_title(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one", None)
    assert infos(workspace)["llm-one"].title == "[system: be brief]"


def test_a_new_response_changes_only_its_own_conversation(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one")
    logs.add_talk("two")
    format_ = LlmCliFormat()
    before = {one.id: one.signature for one in format_.find_stored_conversations(workspace)[0]}
    if logs.is_new:
        logs.add_turn("two", 9, 5, 6, 1)
    else:
        logs.insert("responses", id="two-9", conversation_id="two", prompt="more")
    after = {one.id: one.signature for one in format_.find_stored_conversations(workspace)[0]}
    assert after["llm-one"] == before["llm-one"]
    assert after["llm-two"] != before["llm-two"]


def test_a_conversation_that_was_continued_after_the_change_is_one(
    path: Path, workspace: Workspace
) -> None:
    logs = Logs(path, is_new=True)
    logs.add_attachment()
    logs.add_old_talk("one", "Old name")
    logs.insert("threads", id="one", name="New name")
    logs.add_chain(
        "one",
        [
            ("user", [("text", "What is 3*4?", None)]),
            ("assistant", [("text", "It is 12", None)]),
            ("user", [("text", "go on", None)]),
            ("assistant", [("text", "gladly", None)]),
        ],
    )
    logs.add_turn("one", 7, 2, 3, 3)
    info = infos(workspace)["llm-one"]
    assert info.title == "Old name"
    assert info.updated_at is not None
    assert info.updated_at.second == 7
    turns = load(workspace).turns
    assert len(turns) == 3
    assert [event.text for event in turns[2].events] == ["go on", "gladly"]
    usage = read_token_usage(LlmCliFormat(), info)
    assert usage is not None
    assert usage.output_tokens == 28


def test_the_history_of_a_fork_is_shown(path: Path, workspace: Workspace) -> None:
    logs = Logs(path, is_new=True)
    logs.insert("threads", id="one", forked_from="zero")
    logs.add_chain(
        "one",
        [
            ("user", [("text", "before", None)]),
            ("assistant", [("reasoning", "hm", None), ("text", "yes", None)]),
            ("user", [("text", "after", None)]),
            ("assistant", [("reasoning", "", {"redacted": True}), ("text", "no", None)]),
        ],
    )
    logs.add_turn("one", 0, 2, 3, 1)
    turns = load(workspace).turns
    assert [[event.text for event in turn.events] for turn in turns] == [
        ["before", "hm", "yes"],
        ["after", "no"],
    ]


def test_an_answer_by_a_schema_is_structured(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one")
    with closing(sqlite3.connect(logs.path)) as database, database:
        table = "turns" if logs.is_new else "responses"
        database.execute(f"UPDATE {table} SET schema_id = 's' WHERE id = 'one-2'")
    assert load(workspace).turns[1].events[-1].kind == "structured"


def test_unknown_parts_are_shown(path: Path, workspace: Workspace) -> None:
    logs = Logs(path, is_new=True)
    parts = [("video", None, {"frames": 24}), ("text", "hello", None)]
    logs.add_chain("one", [("user", parts), ("assistant", [("dance", None, [1]), *parts])])
    logs.add_turn("one", 0, 0, 1, 1)
    conversation = load(workspace)
    assert [event.name for event in conversation.unknown_events] == ["video", "dance", "video"]
    assert "24" in conversation.unknown_events[0].text


def test_a_missing_message_is_a_problem(path: Path, workspace: Workspace) -> None:
    logs = Logs(path, is_new=True)
    logs.add_turn("one", 0, 5, 6, 1)
    conversation = load(workspace)
    assert conversation.problems == ["record 1: a message is missing"] * 2


def test_a_circle_of_messages_ends(
    path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_cli_format, "MAX_CHAIN", 5)
    logs = Logs(path, is_new=True)
    for one, other in (("one/0", "one/1"), ("one/1", "one/0")):
        logs.insert("messages", hash=one, parent_hash=other, role="user")
        logs.insert("parts", message_hash=one, position=0, type="text", text="round")
    logs.add_turn("one", 0, 0, 7, 1)
    assert len(load(workspace).turns[0].events[0].text.split()) == 5


def test_wrong_types_are_read_as_far_as_possible(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one")
    with closing(sqlite3.connect(logs.path)) as database, database:
        for table in ("responses", "tool_calls", "tool_results", "conversations"):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            for column in columns[1:]:
                if column not in ("conversation_id", "response_id"):
                    database.execute(f"UPDATE {table} SET {column} = x'ff00fe'")
        if logs.is_new:
            database.execute("UPDATE parts SET payload = 'no json', type = 7 WHERE id % 2")
            database.execute("UPDATE parts SET payload = '[1]' WHERE id % 2 = 0")
            database.execute("UPDATE turns SET model = 5, datetime_utc = 'soon', schema_id = 1.5")
    info = infos(workspace)["llm-one"]
    assert info.created_at is not None
    assert LlmCliFormat().load_conversation(info).turns


def test_hostile_texts_stay_and_ids_are_harmless(path: Path, workspace: Workspace) -> None:
    hostile = "\x1b[31m../..\u202e"
    Logs(path).insert("responses", id="r", conversation_id=" ../x:\x07", prompt=hostile)
    [found] = infos(workspace)
    assert not set(found) & set("/ :\x07")
    assert load(workspace, found).turns[0].events[0].text == hostile
    command = LlmCliFormat().make_resume_command(infos(workspace)[found])
    assert command is not None
    assert command.words == ("llm", "chat", "--conversation", " ../x:\x07")


def test_reading_creates_and_changes_nothing(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one")
    before = logs.path.read_bytes()
    assert len(load(workspace).turns) == 2
    assert list(logs.path.parent.iterdir()) == [logs.path]
    assert logs.path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"no database at all" * 100])
def test_a_file_that_is_no_database_is_a_problem(
    path: Path, workspace: Workspace, content: bytes
) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found, [problem] = LlmCliFormat().find_stored_conversations(workspace)
    assert (found, problem.path, problem.is_unreadable) == ([], path, True)


def test_a_database_of_another_program_is_a_problem(path: Path, workspace: Workspace) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE t (x)")
    found, [problem] = LlmCliFormat().find_stored_conversations(workspace)
    assert (found, problem.reason) == ([], "the database has no responses table")


def test_a_damaged_database_raises_nothing(logs: Logs, workspace: Workspace) -> None:
    logs.add_talk("one")
    info = infos(workspace)["llm-one"]
    data = logs.path.read_bytes()
    for position in range(0, len(data), 457):
        damaged = bytearray(data)
        damaged[position : position + 40] = bytes(
            b ^ 0x5A for b in damaged[position : position + 40]
        )
        logs.path.write_bytes(damaged)
        format_ = LlmCliFormat()
        for one in format_.find_stored_conversations(workspace)[0]:
            one.read_conversation_info()
        format_.load_conversation(info)
    for size in range(0, len(data), 1999):
        logs.path.write_bytes(data[:size])
        LlmCliFormat().find_stored_conversations(workspace)
        LlmCliFormat().load_conversation(info)


def test_the_default_directory_is_that_of_llm(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_USER_PATH", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert llm_cli_format.get_llm_database_path() == f"{home}/config/io.datasette.llm/logs.db"
    monkeypatch.setattr("sys.platform", "darwin")
    folder = f"{home}/home/Library/Application Support/io.datasette.llm"
    assert llm_cli_format.get_llm_database_path() == f"{folder}/logs.db"


VALUES = st.none() | st.integers(-9, 9) | st.floats() | st.text(max_size=9) | st.binary(max_size=9)
KEYS = st.sampled_from(
    ["text", "text_ref", "literal", "fragment", "attachment", "attachments", "id", "name"]
) | st.sampled_from(["arguments", "output", "tool_call_id", "type", "exception"])
JSON = st.recursive(
    VALUES.filter(lambda value: not isinstance(value, bytes)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            KEYS,
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
TYPES = st.sampled_from(["text", "reasoning", "tool_call", "tool_result", "attachment"]) | VALUES
PARTS = st.lists(st.tuples(TYPES, VALUES, JSON.map(json.dumps) | VALUES), max_size=4)


@given(PARTS, PARTS, st.sampled_from(["user", "system", "tool", "assistant"]) | VALUES, VALUES)
def test_any_parts_are_read(asked: Any, answered: Any, role: Any, value: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        database.executescript(OLD_SCHEMA + NEW_SCHEMA)
        database.execute("INSERT INTO messages VALUES ('a', NULL, ?, NULL)", (role,))
        database.execute("INSERT INTO messages VALUES ('b', 'a', 'assistant', NULL)")
        for message, parts in (("a", asked), ("b", answered)):
            for position, part in enumerate(parts):
                query = "INSERT INTO parts VALUES (NULL, ?, ?, ?, NULL, ?, ?)"
                database.execute(query, (message, position, *part))
        turn = ("t", "one", "a", "b", value, value, value, value, value, value, value, value, value)
        database.execute(f"INSERT INTO turns VALUES ({', '.join('?' * 13)})", turn)
        builder = TurnBuilder()
        llm_cli_format._LlmConversationReader(database, builder).read_conversation("one")
    assert builder.count == 1
