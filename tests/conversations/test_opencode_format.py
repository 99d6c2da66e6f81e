"""opencode's sessions: in the database, in JSON files, damaged, and in use."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_parts import read_token_usage

from kbtui.conversations.conversation_data_types import Conversation, ConversationInfo
from kbtui.conversations.formats import opencode_format
from kbtui.conversations.formats.opencode_format import OpencodeFormat
from kbtui.conversations.formats.turn_builder import TurnBuilder
from kbtui.workspace import Workspace, open_workspace_at_root

START = 1_760_000_000_000
SCHEMA = """
CREATE TABLE session (
    id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
    directory text NOT NULL, title text NOT NULL, version text NOT NULL, revert text,
    time_created integer NOT NULL, time_updated integer NOT NULL, time_archived integer
);
CREATE TABLE message (
    id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL
);
CREATE TABLE part (
    id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL
);
CREATE INDEX part_session_idx ON part (session_id);
"""
FLAT_SCHEMA = """
CREATE TABLE session_message (
    id text PRIMARY KEY, session_id text NOT NULL, type text NOT NULL, seq integer NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL
);
"""


def user(*parts: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    model = {"providerID": "anthropic", "modelID": "claude-sonnet-4"}
    return {"role": "user", "model": model, "agent": "build", **fields}, list(parts)


def assistant(*parts: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    tokens = {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 100, "write": 20}}
    message = {"role": "assistant", "providerID": "anthropic", "modelID": "claude-sonnet-4"}
    return {**message, "cost": 0.25, "tokens": tokens, **fields}, list(parts)


def text(content: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **fields}


def tool(name: str, call_id: str, **state: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": name, "callID": call_id, "state": state}


TALK = [
    user(
        text("make foo faster"),
        text("Called the Read tool with foo.py", synthetic=True),
        {
            "type": "file",
            "mime": "image/png",
            "filename": "plot.png",
            "url": "data:image/png;base64,QUJD",
        },
    ),
    assistant(
        {"type": "step-start", "snapshot": "abc"},
        {"type": "reasoning", "text": "Let me see.", "time": {"start": START + 2000}},
        text("I look at it."),
        tool(
            "read",
            "call_1",
            status="completed",
            input={"filePath": "foo.py"},
            output="x = 1",
            time={"start": START + 3000, "end": START + 4000},
        ),
        tool("bash", "call_2", status="error", input={"command": "false"}, error="exit code 1"),
        {"type": "step-finish", "reason": "tool-calls", "cost": 0.25, "tokens": {"input": 10}},
        {"type": "patch", "hash": "abc", "files": ["foo.py"]},
    ),
    assistant(text("Done.")),
    user(text("thanks")),
    assistant(text("You are welcome."), modelID="claude-opus-4"),
]
Talk = list[tuple[dict[str, Any], list[dict[str, Any]]]]


class Store:
    """opencode's directory, in one of its two forms."""

    def __init__(self, directory: Path, in_files: bool) -> None:
        self.directory = directory
        self.in_files = in_files
        self.count = 0
        self.database = directory / "opencode.db"
        directory.mkdir(parents=True, exist_ok=True)
        if not in_files:
            with closing(sqlite3.connect(self.database)) as database:
                database.executescript(SCHEMA)

    def run(self, query: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute(query, values)

    def add_session(
        self, session_id: str, cwd: Path | str, talk: Talk = TALK, **fields: Any
    ) -> None:
        """Write a session; `fields` are those of its row."""
        row = {"title": "Faster foo", "parent_id": None, "revert": None, "time_archived": None}
        row |= fields
        if self.in_files:
            session = {"id": session_id, "directory": str(cwd), "title": row["title"]}
            session["time"] = {"created": START, "updated": START + 1}
            session |= {"parentID": row["parent_id"], "revert": row["revert"]}
            self.write_json(f"session/project1/{session_id}.json", session)
        else:
            self.run(
                "INSERT INTO session VALUES (?, 'p', ?, 'slug', ?, ?, '1.2', ?, ?, ?, ?)",
                session_id,
                row["parent_id"],
                str(cwd),
                row["title"],
                json.dumps(row["revert"]) if row["revert"] else None,
                START,
                START + 1,
                row["time_archived"],
            )
        self.add_messages(session_id, talk)

    def add_messages(self, session_id: str, talk: Talk) -> None:
        for message, parts in talk:
            self.count += 1
            message_id = f"msg_{self.count:05}"
            time = START + self.count * 1000
            data = {"time": {"created": time}, **message}
            if self.in_files:
                data |= {"id": message_id, "sessionID": session_id}
                self.write_json(f"message/{session_id}/{message_id}.json", data)
            else:
                self.run(
                    "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
                    message_id,
                    session_id,
                    time,
                    time,
                    json.dumps(data),
                )
            for number, part in enumerate(parts):
                part_id = f"prt_{self.count:05}_{number:03}"
                if self.in_files:
                    self.write_json(f"part/{message_id}/{part_id}.json", {"id": part_id, **part})
                else:
                    self.run(
                        "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
                        part_id,
                        message_id,
                        session_id,
                        time,
                        time,
                        json.dumps(part),
                    )

    def write_json(self, path: str, value: Any) -> None:
        file = self.directory / "storage" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))


@pytest.fixture(autouse=True)
def _no_database_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENCODE_DB", raising=False)


@pytest.fixture
def directory() -> Path:
    return Path(os.environ["XDG_DATA_HOME"]) / "opencode"


@pytest.fixture(params=["database", "files"])
def store(request: pytest.FixtureRequest, directory: Path) -> Store:
    return Store(directory, request.param == "files")


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    return open_workspace_at_root(workspace_root)


def infos(workspace: Workspace, only: str | None = None) -> dict[str, ConversationInfo]:
    found, problems = OpencodeFormat().find_stored_conversations(workspace, only)
    assert problems == []
    return {one.id: one.read_conversation_info() for one in found}


def load(workspace: Workspace, conversation_id: str = "opencode-ses_1") -> Conversation:
    return OpencodeFormat().load_conversation(infos(workspace, conversation_id)[conversation_id])


def kinds(conversation: Conversation) -> list[list[str]]:
    return [[event.kind for event in turn.events] for turn in conversation.turns]


def test_without_opencode_there_is_nothing(workspace: Workspace, directory: Path) -> None:
    assert OpencodeFormat().find_stored_conversations(workspace) == ([], [])
    assert not directory.exists()


def test_a_session_is_read_as_turns(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root)
    info = infos(workspace)["opencode-ses_1"]
    assert (info.title, info.problem, info.agent, info.archived) == (
        "Faster foo",
        None,
        "opencode",
        False,
    )
    assert info.created_at.timestamp() * 1000 == START
    assert info.working_directory == str(workspace.root)
    assert info.size > 500
    conversation = load(workspace)
    assert conversation.problems == []
    assert kinds(conversation) == [
        [
            "chat_request",
            "reasoning",
            "message",
            "tool_call_request",
            "tool_call_response",
            "tool_call_request",
            "tool_call_response",
            "message",
        ],
        ["chat_request", "message"],
    ]
    first, second = conversation.turns
    assert first.events[0].text == "make foo faster\n\n[image: plot.png, image/png, 3 bytes]"
    assert first.events[0].metadata == {"context": "Called the Read tool with foo.py"}
    assert (first.model, second.model) == ("anthropic/claude-sonnet-4", "anthropic/claude-opus-4")
    assert conversation.info.last_event_at is not None
    assert conversation.info.events_count == 10
    assert OpencodeFormat().add_event_count(info).events_count == 10


def test_calls_pair_with_their_results(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root)
    events = load(workspace).turns[0].events
    read, failed = [event for event in events if event.kind == "tool_call_request"]
    assert (read.name, read.arguments, read.call) == ("read", {"filePath": "foo.py"}, 1)
    assert read.result is not None
    assert (read.result.text, read.result.is_error) == ("x = 1", False)
    assert read.timestamp is not None
    assert read.timestamp.timestamp() * 1000 == START + 3000
    assert failed.result is not None
    assert (failed.result.text, failed.result.is_error) == ("exit code 1", True)


def test_the_tokens_of_each_message_count_once(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root)
    usage = read_token_usage(OpencodeFormat(), infos(workspace)["opencode-ses_1"])
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (30, 21)
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (300, 60)
    assert usage.total_tokens == 411


def test_without_tokens_there_is_no_usage(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root, [user(text("hello"))])
    assert read_token_usage(OpencodeFormat(), infos(workspace)["opencode-ses_1"]) is None


def test_only_sessions_of_the_workspace_are_listed(
    store: Store, workspace: Workspace, tmp_path: Path
) -> None:
    store.add_session("ses_1", workspace.root / "src")
    store.add_session("ses_2", tmp_path / "other")
    store.add_session("ses_3", f"{workspace.root}-too")
    store.add_session("ses_4", "/")
    assert list(infos(workspace)) == ["opencode-ses_1"]
    assert infos(workspace, "opencode-ses_2") == {}
    assert list(infos(workspace, "opencode-ses_1")) == ["opencode-ses_1"]
    assert infos(workspace, "opencode-ses_9") == {}


def test_a_subagent_names_its_parent(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root)
    store.add_session("ses_2", workspace.root, parent_id="ses_1")
    assert infos(workspace)["opencode-ses_2"].parent == "opencode-ses_1"


def test_a_default_title_gives_way_to_the_first_request(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root, title="New session - 2025-10-09T08:53:20.000Z")
    assert infos(workspace)["opencode-ses_1"].title == "make foo faster"


def test_a_new_message_changes_only_its_own_session(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root)
    store.add_session("ses_2", workspace.root)
    format_ = OpencodeFormat()
    before = {one.id: one.signature for one in format_.find_stored_conversations(workspace)[0]}
    store.add_messages("ses_2", [user(text("one more"))])
    after = {one.id: one.signature for one in format_.find_stored_conversations(workspace)[0]}
    assert after["opencode-ses_1"] == before["opencode-ses_1"]
    assert after["opencode-ses_2"] != before["opencode-ses_2"]
    fresh = OpencodeFormat().find_stored_conversations(workspace)[0]
    assert {one.id: one.signature for one in fresh} == after


def test_what_opencode_adds_by_itself_is_no_request(store: Store, workspace: Workspace) -> None:
    summary = assistant(text("We made foo faster."), summary=True)
    store.add_session(
        "ses_1",
        workspace.root,
        [
            *TALK[:3],
            user({"type": "compaction", "auto": True}),
            summary,
            user(text("Continue if you have next steps", synthetic=True)),
            assistant(text("Nothing left.")),
        ],
    )
    conversation = load(workspace)
    assert len(conversation.turns) == 1
    assert [event.text for event in conversation.turns[0].events][-1] == "Nothing left."
    [compaction] = conversation.compactions
    assert (compaction.first, compaction.last) == (1, 1)
    assert compaction.summary == "We made foo faster."


def test_turns_that_were_undone_are_marked(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root, revert={"messageID": "msg_00004"})
    assert [turn.is_rewound for turn in load(workspace).turns] == [False, True]


def test_unknown_records_are_shown(store: Store, workspace: Workspace) -> None:
    talk: Talk = [
        user(text("hello"), {"type": "hologram", "beam": 1}),
        assistant({"type": "telepathy", "thought": "hm"}, {"no": "type"}, text("hi")),
        ({"role": "referee", "verdict": "draw"}, []),
    ]
    store.add_session("ses_1", workspace.root, talk)
    conversation = load(workspace)
    names = [event.name for event in conversation.unknown_events]
    assert names == ["hologram", "telepathy", "part", "referee"]
    assert "draw" in conversation.unknown_events[-1].text
    assert conversation.turns[0].events[-2].text == "hi"


def test_wrong_types_are_named_and_the_rest_is_read(store: Store, workspace: Workspace) -> None:
    talk: Talk = [
        user(text("hello"), time="yesterday", model=[]),
        assistant(
            {"type": "text", "text": 5},
            {
                "type": "tool",
                "tool": 7,
                "callID": None,
                "state": {"status": "completed", "input": []},
            },
            {"type": "tool", "tool": "x", "callID": "c", "state": "gone"},
            text("still here"),
            tokens={"input": "many", "output": None, "cache": 3},
            error={"name": "APIError", "data": {"message": "overloaded"}},
        ),
    ]
    store.add_session("ses_1", workspace.root, talk)
    conversation = load(workspace)
    texts = [event.text for event in conversation.turns[0].events]
    assert texts[0] == "hello"
    assert "still here" in texts
    assert texts[-1] == "[APIError: overloaded]"
    assert len(conversation.problems) >= 3
    assert read_token_usage(OpencodeFormat(), infos(workspace)["opencode-ses_1"]) is None


def test_hostile_texts_stay_and_ids_are_harmless(directory: Path, workspace: Workspace) -> None:
    store = Store(directory, False)
    hostile = "\x1b[31m../..\x00\u202e"
    store.add_session("../ses 1\x1b:2", workspace.root, [user(text(hostile))], title=hostile)
    [found] = infos(workspace)
    assert not set(found) & set("/ :\x1b")
    assert infos(workspace, found)[found].title == hostile
    assert load(workspace, found).turns[0].events[0].text == hostile
    command = OpencodeFormat().make_resume_command(infos(workspace)[found])
    assert command is not None
    assert command.words == ("opencode", "--session", "../ses 1\x1b:2")


def test_an_id_leads_to_no_other_file(directory: Path, workspace: Workspace) -> None:
    store = Store(directory, True)
    store.add_session("ses_1", workspace.root)
    store.write_json("secret.json", {"directory": str(workspace.root)})
    assert infos(workspace, "opencode-..%2F..%2Fsecret") == {}


def test_reading_creates_and_changes_nothing(store: Store, workspace: Workspace) -> None:
    store.add_session("ses_1", workspace.root)
    if not store.in_files:
        store.run("PRAGMA journal_mode = WAL")

    def state() -> list[tuple[str, int, int]]:
        files = sorted(path for path in store.directory.rglob("*") if path.is_file())
        return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]

    before = state()
    assert len(load(workspace).turns) == 2
    assert state() == before


def test_a_database_in_use_is_read_up_to_its_last_message(
    directory: Path, workspace: Workspace
) -> None:
    store = Store(directory, False)
    store.add_session("ses_1", workspace.root)
    with closing(sqlite3.connect(store.database)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        format_ = OpencodeFormat()
        [before] = format_.find_stored_conversations(workspace)[0]
        data = json.dumps({"role": "user"})
        writer.execute("INSERT INTO message VALUES ('msg_9', 'ses_1', 9, 9, ?)", (data,))
        writer.execute("UPDATE session SET title = 'In the log'")
        writer.commit()
        assert (directory / "opencode.db-wal").stat().st_size
        [after] = format_.find_stored_conversations(workspace)[0]
        assert after.signature != before.signature
        assert after.read_conversation_info().title == "In the log"
        writer.execute("BEGIN IMMEDIATE")
        assert len(load(workspace).turns) == 2


def test_a_locked_database_is_a_problem(
    directory: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbtui.conversations.formats.agent_sqlite_reader.LOCK_SECONDS", 0.01)
    store = Store(directory, False)
    store.add_session("ses_1", workspace.root)
    info = infos(workspace)["opencode-ses_1"]
    with closing(sqlite3.connect(store.database, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        found, [problem] = OpencodeFormat().find_stored_conversations(workspace)
        assert (found, problem.is_unreadable) == ([], True)
        assert "locked" in problem.reason
        assert "locked" in OpencodeFormat().load_conversation(info).problems[0]
        assert read_token_usage(OpencodeFormat(), info) is None


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"no database at all" * 100])
def test_a_file_that_is_no_database_is_a_problem(
    directory: Path, workspace: Workspace, content: bytes
) -> None:
    directory.mkdir(parents=True)
    (directory / "opencode.db").write_bytes(content)
    found, [problem] = OpencodeFormat().find_stored_conversations(workspace)
    assert (found, problem.is_unreadable) == ([], True)


def test_a_log_without_its_index_is_a_problem(directory: Path, workspace: Workspace) -> None:
    store = Store(directory, False)
    store.add_session("ses_1", workspace.root)
    store.run("PRAGMA journal_mode = WAL")
    (directory / "opencode.db-wal").write_bytes(b"frames")
    found, [problem] = OpencodeFormat().find_stored_conversations(workspace)
    assert found == []
    assert "log" in problem.reason
    assert not (directory / "opencode.db-shm").exists()


def test_a_damaged_database_raises_nothing(directory: Path, workspace: Workspace) -> None:
    store = Store(directory, False)
    store.add_session("ses_1", workspace.root)
    info = infos(workspace)["opencode-ses_1"]
    data = store.database.read_bytes()
    for position in range(0, len(data), 331):
        damaged = bytearray(data)
        damaged[position : position + 40] = bytes(
            byte ^ 0x5A for byte in damaged[position : position + 40]
        )
        store.database.write_bytes(damaged)
        format_ = OpencodeFormat()
        for one in format_.find_stored_conversations(workspace)[0]:
            one.read_conversation_info()
        format_.load_conversation(info)
    for size in range(0, len(data), 997):
        store.database.write_bytes(data[:size])
        OpencodeFormat().find_stored_conversations(workspace)
        OpencodeFormat().load_conversation(info)


def test_a_table_without_newer_columns_is_read(directory: Path, workspace: Workspace) -> None:
    directory.mkdir(parents=True)
    with closing(sqlite3.connect(directory / "opencode.db")) as database, database:
        database.execute("CREATE TABLE session (id text, directory text)")
        database.execute("CREATE TABLE message (id text, session_id text, data text)")
        database.execute("INSERT INTO session VALUES ('ses_1', ?)", (str(workspace.root),))
        database.execute("INSERT INTO message VALUES ('m', 'ses_1', 'null')")
    assert infos(workspace)["opencode-ses_1"].title is None
    assert "is not an object" in load(workspace).problems[0]


def test_the_flat_messages_of_version_2_are_read(directory: Path, workspace: Workspace) -> None:
    store = Store(directory, False)
    store.add_session("ses_1", workspace.root, [])
    with closing(sqlite3.connect(store.database)) as database, database:
        database.executescript(FLAT_SCHEMA)
        state = {"status": "completed", "input": {"path": "a"}, "content": [text("x = 1")]}
        content = [
            {"type": "reasoning", "text": "hm"},
            {"type": "tool", "id": "call_1", "name": "read", "state": state},
            text("done"),
        ]
        model = {"providerID": "openai", "id": "gpt-5"}
        tokens = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}
        rows: list[tuple[str, dict[str, Any]]] = [
            ("model-switched", {}),
            ("user", {"text": "hello"}),
            ("assistant", {"content": content, "model": model, "tokens": tokens}),
            ("compaction", {"status": "completed", "summary": "We said hello."}),
            ("teleport", {}),
        ]
        for number, (kind, data) in enumerate(rows):
            values = (f"msg_{number}", kind, number, json.dumps(data))
            database.execute(
                "INSERT INTO session_message VALUES (?, 'ses_1', ?, ?, 1, 1, ?)", values
            )
    conversation = load(workspace)
    assert kinds(conversation) == [
        [
            "chat_request",
            "reasoning",
            "tool_call_request",
            "tool_call_response",
            "message",
            "compaction",
            "unknown",
        ]
    ]
    assert conversation.turns[0].events[2].result is conversation.turns[0].events[3]
    assert conversation.turns[0].events[3].text == "x = 1"
    assert conversation.compactions[0].summary == "We said hello."
    assert conversation.model == "openai/gpt-5"
    usage = read_token_usage(OpencodeFormat(), infos(workspace)["opencode-ses_1"])
    assert usage is not None
    assert usage.total_tokens == 15


def test_a_session_in_both_forms_is_listed_once(directory: Path, workspace: Workspace) -> None:
    Store(directory, True).add_session("ses_1", workspace.root, title="Old")
    Store(directory, False).add_session("ses_1", workspace.root, title="New")
    Store(directory, True).add_session("ses_2", workspace.root, title="Only a file")
    assert {info.id: info.title for info in infos(workspace).values()} == {
        "opencode-ses_1": "New",
        "opencode-ses_2": "Only a file",
    }


def test_the_database_may_lie_elsewhere(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path / "elsewhere", False).add_session("ses_1", workspace.root)
    monkeypatch.setenv("OPENCODE_DB", str(tmp_path / "elsewhere/opencode.db"))
    assert list(infos(workspace)) == ["opencode-ses_1"]
    assert OpencodeFormat().list_watched_directories(workspace) == [tmp_path / "elsewhere"]


def test_archived_sessions_are_archived(directory: Path, workspace: Workspace) -> None:
    Store(directory, False).add_session("ses_1", workspace.root, time_archived=START)
    assert infos(workspace)["opencode-ses_1"].archived


def test_damaged_json_files_are_problems(directory: Path, workspace: Workspace) -> None:
    store = Store(directory, True)
    store.add_session("ses_1", workspace.root)
    info = infos(workspace)["opencode-ses_1"]
    files = [path for path in sorted(directory.rglob("*.json")) if "session" not in path.parts]
    assert len(files) > 10
    for file in files:
        data = file.read_bytes()
        for content in (b"", data[: len(data) // 2], b"[]", b"\xff\xfe", data.replace(b":", b";")):
            file.write_bytes(content)
            conversation = OpencodeFormat().load_conversation(info)
            assert conversation.problems
            assert conversation.turns
        file.unlink()
        OpencodeFormat().load_conversation(info)
        file.mkdir()
        assert OpencodeFormat().load_conversation(info).problems
        file.rmdir()
        file.write_bytes(data)
    session = directory / "storage/session/project1/ses_1.json"
    for content in (b"", b"{", b"[]", b"{}"):
        session.write_bytes(content)
        found, [problem] = OpencodeFormat().find_stored_conversations(workspace)
        assert (found, problem.is_unreadable, problem.path) == ([], True, session)


KEYS = st.sampled_from(
    [
        "role",
        "type",
        "text",
        "state",
        "status",
        "input",
        "output",
        "time",
        "created",
        "tokens",
        "cache",
        "read",
        "model",
        "modelID",
        "error",
        "data",
        "url",
        "content",
        "summary",
        "files",
    ]
) | st.text(max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)
WORDS = st.sampled_from(["user", "assistant", "text", "tool", "file", "reasoning", "completed"])
RECORDS = st.dictionaries(KEYS, JSON | WORDS, max_size=8)


@given(st.lists(st.tuples(JSON | RECORDS, st.lists(JSON | RECORDS, max_size=4)), max_size=4))
def test_any_json_is_read(talk: list[tuple[Any, list[Any]]]) -> None:
    builder = TurnBuilder()
    parser = opencode_format.OpencodeMessageParser(builder)
    parser.parse_messages(
        [
            opencode_format._OpencodeStoredMessage(
                str(number), json.dumps(message), map(json.dumps, parts)
            )
            for number, (message, parts) in enumerate(talk)
        ],
        "1",
    )
    assert builder.count == len(talk)
