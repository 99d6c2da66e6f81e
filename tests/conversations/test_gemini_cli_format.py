"""Sessions of Gemini CLI: found by the hash of the project, read and replayed, damaged or not."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_parts import read_token_usage

from kbtui.conversations.conversation_data_types import (
    Conversation,
    ConversationInfo,
    TokenUsage,
)
from kbtui.conversations.formats.gemini_cli_format import (
    GeminiCliFormat,
    extract_tool_result_text_and_failure,
    hash_project_path,
)
from kbtui.workspace import Workspace, open_workspace_at_root

SAMPLES = Path(__file__).parents[1] / "data/agent_sessions/gemini"
LONG = SAMPLES / "session-2025-10-27T19-55-981c87cb.json"
SHORT = SAMPLES / "session-2025-10-29T10-36-453aa339.json"
LONG_ID = "gemini-981c87cb-90ef-4c7f-948d-23173ff43e4e"
HEAD = {
    "sessionId": "11112222-0000-4000-8000-000000000000",
    "projectHash": "",
    "startTime": "2026-05-01T10:00:00.000Z",
    "lastUpdated": "2026-05-01T10:00:00.000Z",
}
ID = f"gemini-{HEAD['sessionId']}"


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of all projects."""
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path / "home"))
    path = tmp_path / "home/.gemini/tmp"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    return open_workspace_at_root(workspace_root)


@pytest.fixture
def chats(tmp: Path, workspace: Workspace) -> Path:
    """Return the directory of the workspace's sessions."""
    path = tmp / hash_project_path(str(workspace.root)) / "chats"
    path.mkdir(parents=True)
    return path


def list_infos(workspace: Workspace, only: str | None = None) -> list[ConversationInfo]:
    found, _ = GeminiCliFormat().find_stored_conversations(workspace, only)
    return [one.read_conversation_info() for one in found]


def list_problems(workspace: Workspace) -> list[tuple[str, str]]:
    _, unusable = GeminiCliFormat().find_stored_conversations(workspace)
    return [(one.path.name, one.reason) for one in unusable]


def load(workspace: Workspace, conversation_id: str = ID) -> Conversation:
    (info,) = list_infos(workspace, conversation_id)
    return GeminiCliFormat().load_conversation(info)


def count_kinds(conversation: Conversation, kind: str) -> int:
    return sum(event.kind == kind for turn in conversation.turns for event in turn.events)


def list_texts(conversation: Conversation, kind: str) -> list[str]:
    return [
        event.text for turn in conversation.turns for event in turn.events if event.kind == kind
    ]


def user(message_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    time = "2026-05-01T10:00:01.000Z"
    return {"id": message_id, "timestamp": time, "type": "user", "content": content, **fields}


def gemini(message_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return user(message_id, content, model="gemini-x") | {"type": "gemini"} | fields


def write_log(chats: Path, *records: Any, name: str = "session-2026-05-01T10-00-11112222") -> Path:
    path = chats / f"{name}.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (HEAD, *records)))
    return path


# Real sessions.


def test_real_session(chats: Path, workspace: Workspace) -> None:
    (chats / LONG.name).write_bytes(LONG.read_bytes())
    (info,) = list_infos(workspace)
    assert info.id == LONG_ID
    assert info.title == "Can you make me an ai agent in python that I can execute built in pythin"
    assert info.created_at.isoformat() == "2025-10-27T19:56:01.701000+00:00"
    assert (info.agent, info.problem) == ("gemini-cli", None)
    assert info.working_directory == str(workspace.root)
    conversation = load(workspace, LONG_ID)
    assert conversation.problems == []
    assert conversation.info.events_count == 18
    assert len(conversation.turns) == count_kinds(conversation, "chat_request") == 3
    assert count_kinds(conversation, "tool_call_request") == 13
    assert count_kinds(conversation, "tool_call_response") == 13
    assert conversation.unknown_events == []
    assert conversation.model == conversation.turns[0].model == "gemini-2.5-pro"
    results = [event for turn in conversation.turns for event in turn.events if event.request]
    assert len(results) == 13
    assert [one.text for one in results if one.is_error][:2] == [
        "[Operation Cancelled] Reason: User cancelled the operation.",
        "Path must be absolute: .",
    ]
    assert results[0].text.endswith("test-project/ is empty.")


def test_usage_of_real_sessions(chats: Path, workspace: Workspace) -> None:
    for sample in (LONG, SHORT):
        (chats / sample.name).write_bytes(sample.read_bytes())
    formats = GeminiCliFormat()
    for info in list_infos(workspace):
        assert info.events_path is not None
        messages = json.loads(info.events_path.read_text())["messages"]
        tokens = [message["tokens"] for message in messages if "tokens" in message]
        usage = read_token_usage(formats, info)
        assert usage is not None
        assert usage.total_tokens == sum(one["total"] for one in tokens)
        assert usage.cache_read_tokens == sum(one["cached"] for one in tokens)
        assert usage.input_tokens is not None
        assert usage.output_tokens is not None
        assert usage.input_tokens + usage.output_tokens + usage.cache_read_tokens == (
            usage.total_tokens
        )


def test_real_session_cut_anywhere(chats: Path, workspace: Workspace) -> None:
    data = SHORT.read_bytes()
    path = chats / SHORT.name
    path.write_bytes(data)
    (info,) = list_infos(workspace)
    formats = GeminiCliFormat()
    counts = []
    for end in range(0, len(data), 97):
        path.write_bytes(data[:end])
        conversation = formats.load_conversation(info)
        assert conversation.problems, end
        counts.append(sum(len(turn.events) for turn in conversation.turns))
        list_infos(workspace)
    assert counts == sorted(counts)
    assert counts[-1] > 8


def test_real_session_with_a_damaged_byte(chats: Path, workspace: Workspace) -> None:
    data = SHORT.read_bytes()
    path = chats / SHORT.name
    path.write_bytes(data)
    (info,) = list_infos(workspace)
    for at in range(0, len(data), 131):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        conversation = GeminiCliFormat().load_conversation(info)
        assert conversation.turns or conversation.problems or conversation.leading
        list_infos(workspace)


def test_a_damaged_message_leaves_the_others(chats: Path, workspace: Workspace) -> None:
    text = SHORT.read_text().replace('"type": "gemini"', '"type" "gemini"', 1)
    (chats / SHORT.name).write_text(text)
    (info,) = list_infos(workspace)
    assert info.problem is not None
    conversation = GeminiCliFormat().load_conversation(info)
    assert len(conversation.turns) == 1
    assert list_texts(conversation, "message") == ["Done."]


def test_damage_between_messages(chats: Path, workspace: Workspace) -> None:
    (chats / SHORT.name).write_text(SHORT.read_text().replace("\n    },\n", "\n    }?\n"))
    (info,) = list_infos(workspace)
    conversation = GeminiCliFormat().load_conversation(info)
    assert conversation.info.events_count == 5
    assert conversation.problems != []


# Which sessions belong to the workspace.


def test_session_of_another_project(tmp: Path, workspace: Workspace) -> None:
    for name in (hash_project_path("/elsewhere"), "elsewhere"):
        (tmp / name / "chats").mkdir(parents=True)
        write_log(tmp / name / "chats", user("a", "hi"))
    (tmp / "elsewhere/.project_root").write_text("/elsewhere\n")
    assert list_infos(workspace) == []
    assert list_problems(workspace) == []


def test_directory_with_the_name_of_the_project(tmp: Path, workspace: Workspace) -> None:
    (tmp / "ws/chats").mkdir(parents=True)
    (tmp / "ws/.project_root").write_text(f"{workspace.root}/inside\n")
    write_log(tmp / "ws/chats", user("a", "hi"))
    (info,) = list_infos(workspace)
    assert info.working_directory == f"{workspace.root}/inside"


def test_directory_in_the_registry(tmp: Path, workspace: Workspace) -> None:
    (tmp / "ws/chats").mkdir(parents=True)
    write_log(tmp / "ws/chats", user("a", "hi"))
    assert list_infos(workspace) == []
    (tmp.parent / "projects.json").write_text(json.dumps({"projects": {str(workspace.root): "ws"}}))
    assert len(list_infos(workspace)) == 1
    (tmp.parent / "projects.json").write_text("[")
    assert list_infos(workspace) == []


def test_directory_of_which_only_the_session_says_the_project(
    tmp: Path, workspace: Workspace
) -> None:
    (tmp / "ws/chats").mkdir(parents=True)
    head = HEAD | {"projectHash": hash_project_path(str(workspace.root))}
    (tmp / "ws/chats/session-x.jsonl").write_text(json.dumps(head) + "\n")
    assert len(list_infos(workspace)) == 1


def test_no_directory(
    tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path / "none"))
    assert GeminiCliFormat().find_stored_conversations(workspace) == ([], [])
    assert GeminiCliFormat().list_watched_directories(workspace) == []


def test_watched_directory_below_the_users_home(
    workspace: Workspace, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMINI_CLI_HOME", raising=False)
    (home / "home/.gemini/tmp").mkdir(parents=True)
    assert GeminiCliFormat().list_watched_directories(workspace) == [home / "home/.gemini/tmp"]


def test_only_one_session(chats: Path, workspace: Workspace) -> None:
    (chats / LONG.name).write_bytes(LONG.read_bytes())
    write_log(chats, user("a", "hi"))
    assert [info.id for info in list_infos(workspace, ID)] == [ID]
    assert list_infos(workspace, f"{ID}0") == []
    # A file may have another name.
    (chats / LONG.name).rename(chats / "session-copy.json")
    assert [info.id for info in list_infos(workspace, LONG_ID)] == [LONG_ID]


def test_subagent(chats: Path, workspace: Workspace) -> None:
    write_log(chats, user("a", "hi"))
    (chats / str(HEAD["sessionId"])).mkdir()
    head = HEAD | {"sessionId": "helper-1", "kind": "subagent"}
    lines = [head, user("a", "Look for it")]
    path = chats / str(HEAD["sessionId"]) / "helper-1.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    infos = {info.id: info for info in list_infos(workspace)}
    assert infos["gemini-helper-1"].parent == ID
    formats = GeminiCliFormat()
    assert formats.make_resume_command(infos["gemini-helper-1"]) is None
    command = formats.make_resume_command(infos[ID])
    assert command is not None
    assert command.words == ("gemini", "--resume", HEAD["sessionId"])
    assert command.directory == str(workspace.root)


def test_copied_session_is_listed_once(chats: Path, workspace: Workspace) -> None:
    path = write_log(chats, user("a", "new"))
    old = HEAD | {"messages": [user("a", "old")]}
    path.with_suffix(".json").write_text(json.dumps(old, indent=2))
    assert [info.title for info in list_infos(workspace)] == ["new"]
    assert list_problems(workspace) == []
    write_log(chats, user("a", "again"), name="session-copy")
    assert len(list_infos(workspace)) == 1
    assert len(list_problems(workspace)) == 1


def test_unusable_files(chats: Path, workspace: Workspace) -> None:
    (chats / "session-1.json").write_text("")
    (chats / "session-2.json").write_text("{}")
    (chats / "session-3.jsonl").write_text('{"sessionId": 7}\n')
    (chats / "session-4.json").write_text("[" * 5000)
    (chats / "session-5.json").mkdir()
    assert list_infos(workspace) == []
    reasons = dict(list_problems(workspace))
    assert reasons["session-1.json"] == "the file is empty"
    assert reasons["session-2.json"] == "the file contains no session id"
    assert set(reasons) == {f"session-{n}.json{'l' * (n == 3)}" for n in range(1, 5)}


def test_a_project_hash_that_is_written_later_is_noticed(tmp: Path, workspace: Workspace) -> None:
    # The directory does not say to which project the session belongs; its last record does.
    chats = tmp / "project/chats"
    chats.mkdir(parents=True)
    path = chats / "session-1.jsonl"
    head = {name: value for name, value in HEAD.items() if name != "projectHash"}
    path.write_text(f"{json.dumps(user('a', 'hi'))}\n{json.dumps(head)}\n")
    gemini_cli = GeminiCliFormat()
    assert gemini_cli.find_stored_conversations(workspace) == ([], [])
    with path.open("a") as file:
        file.write(json.dumps({"$set": {"projectHash": hash_project_path(str(workspace.root))}}))
    found, _ = gemini_cli.find_stored_conversations(workspace)
    assert [one.id for one in found] == [ID]


def test_hostile_id(chats: Path, workspace: Workspace) -> None:
    head = HEAD | {"sessionId": "../a b\u001b[31m\u2028é"}
    (chats / "session-x.jsonl").write_text(json.dumps(head, ensure_ascii=False) + "\n")
    head = HEAD | {"sessionId": "../a/b c"}
    (chats / "session-y.json").write_text(json.dumps(head | {"messages": []}, indent=2))
    for info in list_infos(workspace):
        assert not set(info.id) & set("/ \x1b\u2028é")
        assert info.id.startswith("gemini-")


def test_a_changed_file_has_another_signature(chats: Path, workspace: Workspace) -> None:
    path = write_log(chats, user("a", "hi"))
    before = list_infos(workspace)[0].signature
    write_log(chats, user("a", "hi"), gemini("b", "hello"))
    os.utime(path, (0, 0))
    assert list_infos(workspace)[0].signature != before


# Logs.


def test_log_is_replayed(chats: Path, workspace: Workspace) -> None:
    call = {"id": "c1", "name": "read_file", "args": {"path": "x"}, "status": "executing"}
    done = call | {
        "status": "success",
        "result": [{"functionResponse": {"id": "c1", "response": {"output": "text"}}}],
    }
    tokens = {"input": 100, "output": 7, "cached": 40, "thoughts": 3, "tool": 2, "total": 112}
    write_log(
        chats,
        user("a", [{"text": "read "}, {"text": "x"}]),
        gemini("b", "I read it.", toolCalls=[call]),
        {"$set": {"lastUpdated": "2026-05-01T10:00:05.000Z"}},
        gemini("b", "I read it.", toolCalls=[done], tokens=tokens),
        {"$set": {"summary": "Reading x"}},
    )
    (info,) = list_infos(workspace)
    assert info.title == "Reading x"
    conversation = load(workspace)
    assert list_texts(conversation, "chat_request") == ["read x"]
    assert list_texts(conversation, "message") == ["I read it."]
    assert count_kinds(conversation, "tool_call_request") == 1
    assert list_texts(conversation, "tool_call_response") == ["text"]
    assert read_token_usage(GeminiCliFormat(), info) == TokenUsage(62, 10, 40, None, 112)


def test_rewound_turns_stay_and_are_marked(chats: Path, workspace: Workspace) -> None:
    tokens = {"input": 1, "output": 1, "total": 2}
    write_log(
        chats,
        user("a", "one"),
        gemini("b", "1", tokens=tokens),
        user("c", "two"),
        gemini("d", "2", tokens=tokens),
        {"$rewindTo": "c"},
        user("e", "three"),
        gemini("f", "3", tokens=tokens),
    )
    conversation = load(workspace)
    assert [(turn.events[0].text, turn.is_rewound) for turn in conversation.turns] == [
        ("one", False),
        ("two", True),
        ("three", False),
    ]
    usage = read_token_usage(GeminiCliFormat(), conversation.info)
    assert usage is not None
    assert usage.total_tokens == 6


def test_rewinding_to_an_unknown_message_rewinds_all(chats: Path, workspace: Workspace) -> None:
    write_log(chats, user("a", "one"), {"$rewindTo": "?"}, user("a", "again"))
    assert [turn.is_rewound for turn in load(workspace).turns] == [True, False]


def test_compression_keeps_the_conversation(chats: Path, workspace: Workspace) -> None:
    summary = "<state_snapshot>We did one.</state_snapshot>"
    history = [
        user("s", [{"text": summary}]),
        gemini("t", [{"text": "Got it. Thanks for the additional context!"}]),
        user("c", "two"),
    ]
    write_log(
        chats,
        user("a", "one"),
        gemini("b", "1"),
        user("c", "two"),
        {"$set": {"messages": history, "lastUpdated": "2026-05-01T10:00:05.000Z"}},
        gemini("d", "2"),
    )
    conversation = load(workspace)
    assert list_texts(conversation, "chat_request") == ["one", "two"]
    assert list_texts(conversation, "message") == ["1", "2"]
    (compaction,) = conversation.compactions
    assert (compaction.first, compaction.last, compaction.summary) == (1, 1, summary)
    assert conversation.unknown_events == []


def test_shortened_outputs_stay_whole(chats: Path, workspace: Workspace) -> None:
    response = {"functionResponse": {"id": "c1", "response": {"output": "all of it"}}}
    call = {"id": "c1", "name": "x", "args": {}, "status": "success", "result": [response]}
    short = {"functionResponse": {"id": "c1", "response": {"output": "…"}}}
    history = [
        user("a", "one"),
        gemini("b", "", toolCalls=[call | {"result": [short]}]),
        user("r", [short]),
    ]
    write_log(
        chats,
        user("a", "one"),
        gemini("b", "", toolCalls=[call]),
        {"$set": {"messages": history}},
    )
    conversation = load(workspace)
    assert list_texts(conversation, "tool_call_response") == ["all of it"]
    assert len(conversation.turns) == 1
    assert conversation.unknown_events == []


def test_undone_request_is_marked(chats: Path, workspace: Workspace) -> None:
    write_log(
        chats,
        user("a", "one"),
        gemini("b", "1"),
        user("c", "two"),
        {"$set": {"messages": [user("a", "one"), gemini("b", "1")]}},
        user("d", "three"),
    )
    assert [turn.is_rewound for turn in load(workspace).turns] == [False, True, False]


def test_history_at_the_start(chats: Path, workspace: Workspace) -> None:
    context = "<session_context>\nToday is Friday.\n</session_context>"
    history = [user("s", [{"text": context}]), user("a", "one")]
    write_log(chats, {"$set": {"messages": history}}, gemini("b", "1"))
    (info,) = list_infos(workspace)
    assert info.title == "one"
    assert list_texts(load(workspace), "chat_request") == ["one"]


# Messages.


def test_what_a_person_typed_is_shown(chats: Path, workspace: Workspace) -> None:
    sent = [{"text": "explain @a.py"}, {"text": "\n--- Content of a.py ---"}]
    write_log(chats, user("a", sent, displayContent="explain @a.py"))
    event = load(workspace).turns[0].events[0]
    assert event.text == "explain @a.py"
    assert event.metadata == {"context": "explain @a.py\n--- Content of a.py ---"}


def test_images_are_one_line(chats: Path, workspace: Workspace) -> None:
    image = {"mimeType": "image/png", "data": "aGVsbG8=", "displayName": "a.png"}
    file = {"mimeType": "application/pdf", "fileUri": "gs://b.pdf"}
    write_log(chats, user("a", [{"text": "see"}, {"inlineData": image}, {"fileData": file}]))
    assert load(workspace).turns[0].events[0].text == (
        "see\n[image: a.png, image/png, 5 bytes]\n[file: gs://b.pdf, application/pdf]"
    )


def test_thoughts_are_reasoning(chats: Path, workspace: Workspace) -> None:
    thoughts = [{"subject": "Plan", "description": "Do it."}, {"description": "Then stop."}]
    parts = [{"text": "hm", "thought": True}, {"text": "Yes."}]
    write_log(chats, user("a", "q"), gemini("b", parts, thoughts=thoughts))
    conversation = load(workspace)
    assert list_texts(conversation, "reasoning") == ["**Plan**\n\nDo it.", "Then stop.", "hm"]
    assert list_texts(conversation, "message") == ["Yes."]


def test_notices_and_unknown_records(chats: Path, workspace: Workspace) -> None:
    write_log(
        chats,
        {"new": 1},
        user("a", "q"),
        user("i", "Saved.") | {"type": "info"},
        user("x", "?") | {"type": "poll"},
        {"$set": 7},
    )
    conversation = load(workspace)
    assert [turn.number for turn in conversation.turns] == [1]
    assert list_texts(conversation, "notice") == ["[info: Saved.]"]
    assert [event.name for event in conversation.unknown_events] == ["record", "poll", "record"]


def test_wrong_types_show_what_can_be_read(chats: Path, workspace: Workspace) -> None:
    write_log(
        chats,
        [1],
        user("a", "q"),
        user("b", 7),
        gemini("c", "ok", thoughts=7),
        gemini("d", "ok", toolCalls=["x"], model=7, tokens="many"),
        gemini("e", "fine"),
    )
    conversation = load(workspace)
    assert len(conversation.problems) >= 3
    assert "fine" in list_texts(conversation, "message")
    assert list_texts(conversation, "chat_request") == ["q"]


def test_calls_without_results(chats: Path, workspace: Workspace) -> None:
    call = {"id": "c1", "name": "x", "args": {}, "status": "executing"}
    shown = {"name": "y", "args": "text", "status": "error", "resultDisplay": "failed"}
    write_log(chats, user("a", "q"), gemini("b", "", toolCalls=[call, shown]))
    events = load(workspace).turns[0].events
    assert [event.kind for event in events[1:]] == [
        "tool_call_request",
        "tool_call_request",
        "tool_call_response",
    ]
    assert events[1].result is None
    assert (events[3].text, events[3].is_error, events[3].request) == ("failed", True, events[2])
    assert [event.call for event in events] == [None, 1, 2, 2]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("text", ("text", False)),
        ([{"functionResponse": {"response": {"error": "no"}}}], ("no", True)),
        ([{"text": "a"}, {"text": "b"}], ("ab", False)),
        ({"fileDiff": "@@ -1 +1 @@", "fileName": "x"}, ("@@ -1 +1 @@", False)),
        ([{"functionResponse": {"response": {"n": 1}}}], ('{\n  "n": 1\n}', False)),
    ],
)
def test_results(result: Any, expected: tuple[str, bool]) -> None:
    assert extract_tool_result_text_and_failure(result) == expected


def test_hostile_text_stays(chats: Path, workspace: Workspace) -> None:
    text = "\x1b[31mred\u202e\x00"
    write_log(chats, user("a", text))
    assert load(workspace).turns[0].events[0].text == text


def test_half_characters(chats: Path, workspace: Workspace) -> None:
    path = write_log(chats, user("a", "cut \ud83d"), gemini("b", "ok"))
    conversation = load(workspace)
    assert list_texts(conversation, "chat_request") == ["cut \ufffd"]
    assert conversation.problems == []
    path.rename(chats / "session-old.json")
    whole = HEAD | {"messages": [user("a", "cut \ud83d")]}
    (chats / "session-old.json").write_text(json.dumps(whole))
    conversation = load(workspace)
    assert list_texts(conversation, "chat_request") == ["cut \ufffd"]
    assert conversation.problems == []


def test_log_cut_anywhere(chats: Path, workspace: Workspace) -> None:
    path = write_log(chats, user("a", "one"), gemini("b", "1"), user("c", "two"))
    data = path.read_bytes()
    (info,) = list_infos(workspace)
    counts = []
    for end in range(len(data) + 1):
        path.write_bytes(data[:end])
        conversation = GeminiCliFormat().load_conversation(info)
        assert conversation.problems == []
        counts.append(len(conversation.turns))
        list_infos(workspace)
    assert counts == sorted(counts)
    assert counts[-1] == 2


def test_file_that_disappeared(chats: Path, workspace: Workspace) -> None:
    path = write_log(chats, user("a", "one"))
    (info,) = list_infos(workspace)
    path.unlink()
    formats = GeminiCliFormat()
    assert formats.load_conversation(info).problems == ["there is no such file"]
    assert read_token_usage(formats, info) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "type", "content", "text", "messages", "functionResponse", "inlineData"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
records = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from("abc") | json_values,
        "type": st.sampled_from(["user", "gemini", "info", "x"]) | json_values,
        "content": json_values,
        "displayContent": json_values,
        "timestamp": json_values,
        "thoughts": json_values,
        "toolCalls": st.lists(json_values, max_size=2) | json_values,
        "tokens": json_values,
        "$rewindTo": st.sampled_from("abc") | json_values,
        "$set": json_values,
        "sessionId": json_values,
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records | json_values, max_size=6))
def test_any_values_are_read(chats: Path, workspace: Workspace, values: list[Any]) -> None:
    path = write_log(chats, *values)
    formats = GeminiCliFormat()
    for info in list_infos(workspace, ID):
        formats.load_conversation(info)
        formats.add_event_count(info)
    whole = HEAD | {"messages": values}
    path.with_name("session-whole.json").write_text(json.dumps(whole))
    for info in list_infos(workspace):
        formats.load_conversation(info)
