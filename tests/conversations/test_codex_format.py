"""Sessions of Codex: found by their directory, read from all versions, damaged or not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_parts import read_in_parts, read_token_usage

from kbtui.conversations.conversation_data_types import (
    Conversation,
    ConversationInfo,
    TokenUsage,
    Turn,
)
from kbtui.conversations.formats.codex_format import (
    CodexFormat,
    extract_tool_output_text_and_failure,
    split_ide_context,
)
from kbtui.workspace import Workspace, open_workspace_at_root

SAMPLES = Path(__file__).parents[1] / "data/agent_sessions/codex"
SHORT = SAMPLES / "rollout-2025-09-24T20-12-23-01997ea4-a70d-7da3-8c20-c736db82a7c5.jsonl"
LONG = SAMPLES / "rollout-2025-09-25T08-02-05-0199812e-64f0-7f73-91fc-095dda01c36e.jsonl"
RECORDED_IN = "/Users/jnarowski/Dev/spectora/src/spectora-labs-monorepo-v2"
UUID = "01990000-0000-7000-8000-000000000001"
OTHER_UUID = "01990000-0000-7000-8000-000000000002"
ID = f"codex-{UUID}"


@pytest.fixture
def codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of Codex."""
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    (tmp_path / "codex").mkdir()
    return tmp_path / "codex"


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    return open_workspace_at_root(workspace_root)


class Session:
    """Builds the records of a session, a second apart."""

    def __init__(self, cwd: str | Path, /, **meta: Any) -> None:
        self.records: list[Any] = []
        time = "2026-05-01T09:59:59.500Z"
        meta = {"id": UUID, "timestamp": time, "cwd": str(cwd), "cli_version": "0.99.0"} | meta
        self.add("session_meta", **meta)

    def add(self, kind: str, /, **payload: Any) -> "Session":
        time = f"2026-05-01T10:{len(self.records) // 60:02}:{len(self.records) % 60:02}.000Z"
        self.records.append({"timestamp": time, "type": kind, "payload": payload})
        return self

    def event(self, kind: str, /, **payload: Any) -> "Session":
        return self.add("event_msg", type=kind, **payload)

    def item(self, kind: str, **payload: Any) -> "Session":
        return self.add("response_item", type=kind, **payload)

    def says(self, role: str, *texts: str) -> "Session":
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text} for text in texts]
        return self.item("message", role=role, content=content)

    def ask(self, text: str, **payload: Any) -> "Session":
        """Add a request as Codex writes it: first to the history, then as an event."""
        return self.says("user", text).event("user_message", message=text, **payload)

    def reply(self, text: str) -> "Session":
        return self.event("agent_message", message=text).says("assistant", text)

    def call(self, call_id: str, output: Any) -> "Session":
        self.item("function_call", name="shell", arguments='{"command": "ls"}', call_id=call_id)
        return self.item("function_call_output", call_id=call_id, output=output)

    def write(self, codex: Path, uuid: str = UUID, below: str = "sessions/2026/05/01") -> Path:
        path = codex / below / f"rollout-2026-05-01T10-00-00-{uuid}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(one) + "\n" for one in self.records))
        return path


def copy_sample(sample: Path, codex: Path, workspace: Workspace) -> Path:
    """Copy a real session as if it had been recorded in the workspace."""
    path = codex / "sessions/2025/09/25" / sample.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sample.read_text().replace(RECORDED_IN, str(workspace.root)))
    return path


def list_infos(workspace: Workspace, only: str | None = None) -> list[ConversationInfo]:
    found, _ = CodexFormat().find_stored_conversations(workspace, only)
    return [one.read_conversation_info() for one in found]


def list_problems(workspace: Workspace) -> list[str]:
    return [one.reason for one in CodexFormat().find_stored_conversations(workspace)[1]]


def load(workspace: Workspace, only: str = ID) -> Conversation:
    (info,) = list_infos(workspace, only)
    return CodexFormat().load_conversation(info)


def read(session: Session, codex: Path, workspace: Workspace) -> Conversation:
    session.write(codex)
    return load(workspace)


def list_texts(conversation: Conversation, kind: str) -> list[str]:
    return [
        event.text for turn in conversation.turns for event in turn.events if event.kind == kind
    ]


def load_in_parts(info: ConversationInfo, size: int) -> list[Turn]:
    """Load a conversation in parts of about `size` bytes, and join the turns."""
    return read_in_parts(CodexFormat(), info, size)[0]


def describe(turns: list[Turn]) -> list[Any]:
    return [
        (turn.number, turn.model, turn.is_rewound, event.kind, event.text, event.call, event.index)
        for turn in turns
        for event in turn.events
    ]


# Real sessions.


@pytest.mark.parametrize(
    ("sample", "calls", "failed", "total"),
    [(SHORT, 16, 3, 154_257), (LONG, 57, 12, 1_400_951)],
    ids=["short", "long"],
)
def test_real_session(
    codex: Path, workspace: Workspace, sample: Path, calls: int, failed: int, total: int
) -> None:
    copy_sample(sample, codex, workspace)
    (info,) = list_infos(workspace)
    assert info.id == f"codex-{sample.stem[-36:]}"
    assert (info.agent, info.archived, info.problem) == ("codex", False, None)
    formats = CodexFormat()
    conversation = formats.load_conversation(info)
    assert conversation.problems == []
    assert conversation.unknown_events == []
    assert conversation.model == "gpt-5-codex"
    assert len(conversation.turns) == len(list_texts(conversation, "chat_request")) == 2
    results = [
        event
        for turn in conversation.turns
        for event in turn.events
        if event.kind == "tool_call_response"
    ]
    assert len(list_texts(conversation, "tool_call_request")) == len(results) == calls
    assert all(result.request and result.request.result is result for result in results)
    assert sum(result.is_error for result in results) == failed
    reasoning = list_texts(conversation, "reasoning")
    assert len(reasoning) == (17 if sample is SHORT else 57)
    usage = read_token_usage(formats, info)
    assert usage is not None
    assert usage.total_tokens == total
    assert usage.input_tokens is not None
    assert usage.output_tokens is not None
    assert usage.cache_read_tokens is not None
    assert usage.input_tokens + usage.output_tokens + usage.cache_read_tokens == total


def test_request_of_a_real_session(codex: Path, workspace: Workspace) -> None:
    copy_sample(SHORT, codex, workspace)
    conversation = load(workspace, f"codex-{SHORT.stem[-36:]}")
    assert conversation.info.title == (
        "When I load the dashboard, I see 4 queries. Are all of these necessary? I would…"
    )
    request = conversation.turns[0].events[0]
    assert request.text.startswith("When I load the dashboard, I see 4 queries.")
    assert request.text.endswith("\n[image: pasted, image/png, 88,907 bytes]")
    assert request.metadata is not None
    assert request.metadata["context"].startswith("# Context from my IDE setup:\n\n## Active file")
    assert "My request" not in request.metadata["context"]
    result = next(event for event in conversation.turns[0].events if event.request)
    assert result.text.startswith("bash: -c: line 0: syntax error")
    assert len(list_texts(conversation, "message")) == 2
    assert conversation.info.created_at.isoformat() == "2025-09-25T02:12:23.949000+00:00"
    assert conversation.info.last_event_at is not None
    assert CodexFormat().add_last_event_time(conversation.info) == conversation.info


def test_real_session_in_parts(codex: Path, workspace: Workspace) -> None:
    copy_sample(LONG, codex, workspace)
    (info,) = list_infos(workspace)
    formats = CodexFormat()
    assert formats.should_load_conversation_in_segments(info)
    whole = formats.load_conversation(info).turns
    for size in (1, 100_000, 10**9):
        assert describe(load_in_parts(info, size)) == describe(whole)


def test_real_session_cut_after_every_line(codex: Path, workspace: Workspace) -> None:
    path = copy_sample(SHORT, codex, workspace)
    (info,) = list_infos(workspace)
    lines = path.read_bytes().splitlines(keepends=True)
    formats = CodexFormat()
    counts = []
    for count in range(len(lines) + 1):
        path.write_bytes(b"".join(lines[:count]))
        conversation = formats.load_conversation(info)
        assert conversation.problems == []
        assert conversation.info.events_count == count
        counts.append(len(conversation.turns))
    assert counts == sorted(counts)


def test_session_cut_inside_lines(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("one").call("c1", "ok").reply("done").ask("two")
    path = session.write(codex)
    data = path.read_bytes()
    (info,) = list_infos(workspace)
    for end in range(0, len(data), 3):
        path.write_bytes(data[:end])
        conversation = CodexFormat().load_conversation(info)
        assert conversation.problems == []
        list_infos(workspace)
        CodexFormat().load_conversation_segment(info, None, 100)


def test_damaged_bytes(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("one").call("c1", "ok").reply("done").ask("two")
    path = session.write(codex)
    data = path.read_bytes()
    (info,) = list_infos(workspace)
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        CodexFormat().load_conversation(info)
        list_infos(workspace)


# Which sessions belong to the workspace.


def test_membership(codex: Path, workspace: Workspace, tmp_path: Path) -> None:
    Session(workspace.root / "inside").write(codex)
    Session("/elsewhere", id=OTHER_UUID).write(codex, OTHER_UUID)
    (info,) = list_infos(workspace)
    assert info.id == ID
    assert info.working_directory == f"{workspace.root}/inside"
    assert list_infos(workspace, f"codex-{OTHER_UUID}") == []
    assert list_problems(workspace) == []


def test_archived_sessions(codex: Path, workspace: Workspace) -> None:
    Session(workspace.root).ask("old").write(codex, below="archived_sessions")
    (info,) = list_infos(workspace, ID)
    assert info.archived
    formats = CodexFormat()
    assert formats.make_resume_command(info) is None
    assert formats.list_watched_directories(workspace) == [codex / "archived_sessions"]
    # Both at once, for example while it is being archived.
    Session(workspace.root).ask("old").write(codex)
    (info,) = list_infos(workspace)
    assert not info.archived
    assert len(list_problems(workspace)) == 1
    command = formats.make_resume_command(info)
    assert command is not None
    assert command == (("codex", "resume", UUID), str(workspace.root))


def test_no_directory(
    tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "none"))
    assert CodexFormat().find_stored_conversations(workspace) == ([], [])
    assert CodexFormat().list_watched_directories(workspace) == []


def test_directory_below_the_users_home(
    home: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CODEX_HOME", raising=False)
    Session(workspace.root).write(home / "home/.codex")
    assert [info.id for info in list_infos(workspace)] == [ID]


def test_renamed_file_is_found_by_its_id(codex: Path, workspace: Workspace) -> None:
    path = Session(workspace.root).write(codex)
    path.rename(path.with_name("rollout-copy.jsonl"))
    assert [info.id for info in list_infos(workspace, ID)] == [ID]


def test_first_records_are_read_once(codex: Path, workspace: Workspace) -> None:
    path = Session(workspace.root).ask("hi").write(codex)
    formats = CodexFormat()
    assert len(formats.find_stored_conversations(workspace)[0]) == 1
    path.write_bytes(b"x" * path.stat().st_size)
    assert len(formats.find_stored_conversations(workspace)[0]) == 1


def test_unusable_files(codex: Path, workspace: Workspace) -> None:
    directory = Session(workspace.root).write(codex).parent
    (directory / "rollout-a.jsonl").write_text("")
    (directory / "rollout-b.jsonl").write_text("{")
    (directory / "rollout-c.jsonl").write_text("[1]\n")
    (directory / "rollout-d.jsonl").write_text("{}\n")
    (directory / "rollout-e.jsonl").mkdir()
    (directory / "rollout-f.jsonl.zst").write_bytes(b"x")
    (directory / "notes.txt").write_text("x")
    assert [info.id for info in list_infos(workspace)] == [ID]
    assert sorted(list_problems(workspace)) == [
        "1 session is compressed; kbtui cannot read compressed sessions",
        "its first line is not JSON",
        "its first line is not an object",
        "neither its name nor its first line contains a session id",
        "the file is empty",
    ]


def test_a_link_says_which_directory_it_leaves(
    codex: Path, workspace: Workspace, tmp_path: Path
) -> None:
    path = Session(workspace.root).write(codex)
    path.symlink_to(path.rename(tmp_path / "elsewhere.jsonl"))
    place = path.parent.parent
    assert list_problems(workspace) == [f"it is a link to a file outside {place}"]


def test_hostile_id(codex: Path, workspace: Workspace) -> None:
    Session(workspace.root, id="../../x y\x1b").write(codex)
    assert [info.id for info in list_infos(workspace)] == [ID]


def test_subagents_and_summarizers(codex: Path, workspace: Workspace) -> None:
    Session(workspace.root).ask("hi").write(codex)
    spawn = {"thread_spawn": {"parent_thread_id": UUID, "depth": 1}}
    source = {"subagent": spawn}
    Session(workspace.root, id=OTHER_UUID, source=source).write(codex, OTHER_UUID)
    third = OTHER_UUID[:-1] + "3"
    Session(workspace.root, id=third, source={"subagent": "compact"}).write(codex, third)
    parents = {info.id: info.parent for info in list_infos(workspace)}
    assert parents == {ID: None, f"codex-{OTHER_UUID}": ID}


def test_fork_has_its_own_id_and_names_its_origin(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root, id=OTHER_UUID, forked_from_id=UUID)
    session.add("session_meta", id=UUID, cwd="/elsewhere")
    session.ask("copied").reply("yes").ask("new")
    session.write(codex, OTHER_UUID)
    (info,) = list_infos(workspace)
    assert info.id == f"codex-{OTHER_UUID}"
    assert info.labels == {"forked-from": ID}
    assert info.parent is None
    assert len(load(workspace, info.id).turns) == 2


def test_name_in_the_index_is_the_title(codex: Path, workspace: Workspace) -> None:
    Session(workspace.root).ask("hi").write(codex)
    formats = CodexFormat()

    def list_titles() -> list[tuple[str | None, str]]:
        found, _ = formats.find_stored_conversations(workspace)
        return [(one.read_conversation_info().title, one.signature) for one in found]

    ((title, signature),) = list_titles()
    assert title == "hi"
    lines = [{"id": UUID, "thread_name": name} for name in ("First", "Second")]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, [1], {"id": 7}])
    (codex / "session_index.jsonl").write_text(text + '{"id": "')
    ((title, new_signature),) = list_titles()
    assert title == "Second"
    assert new_signature != signature


# Requests.


def test_title_and_times(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root)
    session.says("user", "<environment_context>\n<cwd>/x</cwd>").says("developer", "Be nice.")
    session.ask("\n  Fix it\nnow").write(codex)
    (info,) = list_infos(workspace)
    assert info.title == "Fix it"
    assert info.created_at.isoformat() == "2026-05-01T09:59:59.500000+00:00"
    assert info.last_event_at is not None
    assert info.last_event_at.isoformat() == "2026-05-01T10:00:04+00:00"
    assert CodexFormat().add_event_count(info).events_count == 5


def test_each_request_begins_one_turn(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root)
    session.says("user", "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>Do</INSTRUCTIONS>")
    session.ask("one").reply("1").ask("one").reply("1")
    # Some versions write the event first.
    session.event("user_message", message="two").says("user", "two").reply("2")
    session.event("user_message", message="<environment_context>", kind="environment_context")
    conversation = read(session, codex, workspace)
    assert list_texts(conversation, "chat_request") == ["one", "one", "two"]
    assert list_texts(conversation, "message") == ["1", "1", "2"]
    assert conversation.unknown_events == []


def test_messages_that_nobody_typed(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).says("user", "Extra rules").ask("one").reply("1")
    session.says("user", "Injected").reply("2").ask("two")
    session.says("user", "<user_shell_command>\nls\n</user_shell_command>")
    conversation = read(session, codex, workspace)
    first, second = conversation.turns
    assert first.events[0].metadata == {"context": "Extra rules"}
    assert second.events[0].metadata is None
    assert [event.name for event in conversation.unknown_events] == [
        "user message",
        "user_shell_command",
    ]
    assert "Injected" in conversation.unknown_events[0].text


def test_what_a_person_typed_is_always_a_request(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("<environment_context> what is this?").reply("A tag.")
    conversation = read(session, codex, workspace)
    assert list_texts(conversation, "chat_request") == ["<environment_context> what is this?"]


def test_directory_that_links_to_itself(codex: Path, workspace: Workspace) -> None:
    Session(workspace.root).write(codex)
    (codex / "sessions/2026/06").symlink_to(codex / "sessions")
    assert [info.id for info in list_infos(workspace)] == [ID]


def test_ide_context() -> None:
    text = (
        "# Context from my IDE setup:\n\n## Open tabs:\n- a\n\n## My request for Codex:\nFix\nit\n"
    )
    assert split_ide_context(text) == (
        "# Context from my IDE setup:\n\n## Open tabs:\n- a",
        "Fix\nit",
    )
    assert split_ide_context("## My request for Codex:\nx") == (
        None,
        "## My request for Codex:\nx",
    )
    assert split_ide_context("# Context from my IDE setup:\nx")[0] is None


def test_images(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask(
        "see", images=["data:image/png;base64,aGVsbG8="], local_images=["/tmp/a b.jpg"]
    )
    assert list_texts(read(session, codex, workspace), "chat_request") == [
        "see\n[image: pasted, image/png, 5 bytes]\n[image: a b.jpg, image/jpeg]"
    ]


def test_image_only_in_the_history(codex: Path, workspace: Workspace) -> None:
    content = [
        {"type": "input_text", "text": "<image name=[Image #1]>"},
        {"type": "input_image", "image_url": "data:image/gif;base64,aGk="},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "see"},
    ]
    session = Session(workspace.root).item("message", role="user", content=content)
    session.event("user_message", message="see").reply("ok")
    conversation = read(session, codex, workspace)
    assert list_texts(conversation, "chat_request") == ["see\n[image: pasted, image/gif, 2 bytes]"]
    assert conversation.unknown_events == []


def test_history_without_events(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).says("user", "one").says("assistant", "1")
    session.says("user", "two").says("assistant", "2").says("user", "three")
    conversation = read(session, codex, workspace)
    assert list_texts(conversation, "chat_request") == ["one", "two"]
    assert "three" in conversation.unknown_events[0].text
    assert conversation.turns[0].started_at is not None


def test_oldest_version(codex: Path, workspace: Workspace) -> None:
    context = f"<environment_context>\nCurrent working directory: {workspace.root}\nShell: sh"
    records = [
        {"id": UUID, "timestamp": "2025-07-01T10:00:00.000Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": context}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]},
    ]
    session = Session(workspace.root)
    session.records = records
    session.write(codex)
    (info,) = list_infos(workspace)
    assert (info.id, info.title, info.working_directory) == (ID, "hi", str(workspace.root))
    assert info.created_at.isoformat() == "2025-07-01T10:00:00+00:00"
    conversation = load(workspace)
    assert [[event.kind for event in turn.events] for turn in conversation.turns] == [
        ["chat_request", "reasoning", "tool_call_request", "tool_call_response", "message"],
        ["chat_request"],
    ]
    assert conversation.problems == []
    assert conversation.unknown_events == []
    assert describe(load_in_parts(info, 1)) == describe(conversation.turns)
    assert read_token_usage(CodexFormat(), info) is None


# Answers.


def test_replies_and_reasoning_are_shown_once(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("q")
    session.event("agent_reasoning", text="**a**").event("agent_reasoning", text="**b**")
    parts = [{"type": "summary_text", "text": text} for text in ("**a**", "**b**")]
    session.item("reasoning", summary=parts, content=None, encrypted_content="x")
    # Only in the history, only as an event, and twice because it was said twice.
    session.item("reasoning", summary=[{"type": "summary_text", "text": "**c**"}])
    session.reply("same").reply("same").event("agent_message", message="event")
    session.says("assistant", "history")
    session.event("agent_message", message="cited")
    session.says("assistant", "cited\n<oai-mem-citation>x</oai-mem-citation>")
    conversation = read(session, codex, workspace)
    assert list_texts(conversation, "reasoning") == ["**a**", "**b**", "**c**"]
    assert list_texts(conversation, "message") == ["same", "same", "event", "history", "cited"]


def test_model_of_each_turn(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("one").add("turn_context", model="gpt-a").reply("1")
    session.ask("two").add("turn_context", model="gpt-b").reply("2").ask("three")
    session.add("turn_context", model="gpt-b").reply("3").write(codex)
    conversation = load(workspace)
    assert [turn.model for turn in conversation.turns] == ["gpt-a", "gpt-b", "gpt-b"]
    assert describe(load_in_parts(conversation.info, 1)) == describe(conversation.turns)
    found = CodexFormat().read_conversation_tools_and_models(conversation.info)
    assert found.models == {"gpt-a", "gpt-b"}


def test_kinds_of_calls(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("q").call("c1", '{"output": "a", "metadata": {}}')
    session.item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c2")
    session.item("custom_tool_call_output", call_id="c2", output="Success")
    session.event("patch_apply_end", call_id="c2", success=True)
    action = {"type": "exec", "command": ["ls"]}
    session.item("local_shell_call", call_id="c3", status="completed", action=action)
    session.item("function_call_output", call_id="c3", output={"content": "b", "success": False})
    session.item("web_search_call", status="completed", action={"type": "search", "query": "q"})
    session.event("web_search_end", call_id="ws", query="q", action={"query": "q"})
    session.item("function_call", name="broken", arguments="{", call_id="c4")
    session.event("image_generation_end", call_id="ig", revised_prompt="cat", result="aGk=")
    session.item("image_generation_call", id="ig", revised_prompt="cat", result="aGk=")
    conversation = read(session, codex, workspace)
    events = conversation.turns[0].events
    calls = [event for event in events if event.kind == "tool_call_request"]
    assert [(call.name, call.call) for call in calls] == [
        ("shell", 1),
        ("apply_patch", 2),
        ("local_shell", 3),
        ("web_search", 4),
        ("broken", 5),
        ("image_generation", 6),
    ]
    assert [call.result and call.result.text for call in calls] == [
        "a",
        "Success",
        "b",
        None,
        None,
        "[image: ig, image/png, 2 bytes]",
    ]
    assert (calls[1].text, calls[4].text) == ("*** Begin", "{")
    assert calls[2].result is not None
    assert calls[2].result.is_error
    assert conversation.problems == []
    assert conversation.unknown_events == []


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("text", ("text", False)),
        (None, ("", False)),
        ('{"output": "a\\n", "metadata": {"exit_code": 0}}', ("a\n", False)),
        ('{"output": "a", "metadata": {"exit_code": 2}}', ("a", True)),
        ('{"output": "a"}', ('{"output": "a"}', False)),
        ('{"output": "a", "metadata"', ('{"output": "a", "metadata"', False)),
        ("Exit code: 1\nWall time: 0 s\nOutput:\nx", ("Exit code: 1\nWall time: 0 s\nOutput:\nx", True)),
        ("Chunk ID: a\nProcess exited with code 0\nx", ("Chunk ID: a\nProcess exited with code 0\nx", False)),
        ("failed in sandbox X", ("failed in sandbox X", True)),
        ([{"type": "input_text", "text": "a"}], ("a", False)),
        ({"content": "a", "success": True}, ("a", False)),
        ([], ("[]", False)),
        (7, ("7", False)),
    ],
)  # fmt: skip
def test_outputs(output: Any, expected: tuple[str, bool]) -> None:
    assert extract_tool_output_text_and_failure(output) == expected


def test_result_without_a_call(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("q")
    session.item("function_call_output", call_id="c9", output="lost")
    conversation = read(session, codex, workspace)
    assert list_texts(conversation, "tool_call_response") == ["lost"]
    assert len(conversation.problems) == 1


def test_interruptions_and_errors_are_shown(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("q").event("turn_aborted", reason="interrupted")
    session.says("user", "<turn_aborted>\nThe user interrupted.</turn_aborted>")
    session.event("error", message="no network")
    session.event("entered_review_mode", user_facing_hint="changes")
    session.event("exited_review_mode", review_output={"overall_explanation": "Good."})
    conversation = read(session, codex, workspace)
    assert list_texts(conversation, "notice") == [
        "[turn aborted: interrupted]",
        "[error: no network]",
        "[review: changes]",
        "[review ended]\nGood.",
    ]
    assert conversation.unknown_events == []


def test_compactions(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("one").reply("1").ask("two").reply("2")
    session.add("compacted", message="Summary of two").event("context_compacted")
    session.ask("three").event("context_compacted").reply("3")
    conversation = read(session, codex, workspace)
    assert [(one.first, one.last, one.summary) for one in conversation.compactions] == [
        (1, 2, "Summary of two"),
        (1, 3, None),
    ]
    assert len(conversation.turns) == 3


def test_rolled_back_turns_are_marked(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("one").reply("1").ask("two").reply("2").ask("three")
    session.event("thread_rolled_back", num_turns=1).ask("four")
    session.event("thread_rolled_back", num_turns=2).ask("five").write(codex)
    conversation = load(workspace)
    assert [turn.is_rewound for turn in conversation.turns] == [False, True, True, True, False]
    formats = CodexFormat()
    part = formats.load_conversation_segment(conversation.info, None, 10**9)
    assert part is not None
    assert describe(part.conversation.turns) == describe(conversation.turns)
    # A part cannot mark turns of another part, so it becomes the whole.
    part = formats.load_conversation_segment(conversation.info, None, 1)
    assert part is not None
    while not part.is_last:
        part = formats.load_conversation_segment(conversation.info, part.resume_point, 1)
        assert part is not None
    assert part.start is None
    assert describe(part.conversation.turns) == describe(conversation.turns)


def test_part_after_the_file_has_grown(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root)
    for number in range(4):
        session.ask(f"question {number}").call(f"c{number}", "ok").reply(f"answer {number}")
    session.write(codex)
    (info,) = list_infos(workspace)
    formats = CodexFormat()
    part = formats.load_conversation_segment(info, None, 10**9)
    assert part is not None
    session.reply("more").ask("last").reply("end").write(codex)
    turns, _ = read_in_parts(formats, info, 10**9, part.resume_point, part.conversation.turns)
    assert describe(turns) == describe(formats.load_conversation(info).turns)


# Usage.


def count(session: Session, *values: int, last: bool = False) -> Session:
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "total_tokens")
    kind = "last_token_usage" if last else "total_token_usage"
    return session.event("token_count", info={kind: dict(zip(names, values, strict=True))})


def test_usage_is_summed_over_resets(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("q").event("token_count", info=None)
    count(session, 100, 40, 10, 110)
    count(session, 100, 40, 10, 110)
    count(session, 200, 90, 30, 230)
    count(session, 50, 0, 5, 55)
    conversation = read(session, codex, workspace)
    expected = TokenUsage(160, 35, 90, None, 285)
    assert read_token_usage(CodexFormat(), conversation.info) == expected


def test_usage_of_a_fork_excludes_what_was_copied(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root, id=OTHER_UUID, forked_from_id=UUID)
    session.add("session_meta", id=UUID, cwd="/elsewhere").ask("copied")
    count(session, 100, 40, 10, 110)
    for record in session.records:
        record["timestamp"] = "2026-05-01T10:00:00.100Z"
    count(session.ask("new"), 150, 60, 15, 165)
    session.write(codex, OTHER_UUID)
    (info,) = list_infos(workspace)
    assert read_token_usage(CodexFormat(), info) == TokenUsage(30, 5, 20, None, 55)


def test_usage_of_single_calls(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("q")
    count(session, 100, 40, 10, 110, last=True)
    count(session, 10, 0, 1, 11, last=True)
    conversation = read(session, codex, workspace)
    expected = TokenUsage(70, 11, 40, None, 121)
    assert read_token_usage(CodexFormat(), conversation.info) == expected


# Everything else.


def test_unknown_records_are_shown(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).add("news", a=1).ask("q").add("news", a=2)
    session.event("surprise", text="!").item("surprise").event("task_started", turn_id="1")
    session.event("exec_command_end", call_id="nobody", exit_code=0)
    conversation = read(session, codex, workspace)
    assert [event.name for event in conversation.unknown_events] == [
        "news",
        "news",
        "surprise",
        "surprise",
        "exec_command_end",
    ]
    assert '"!"' in conversation.unknown_events[2].text
    assert conversation.problems == []


def test_wrong_types_are_named(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("q")
    session.event("user_message", message=7).event("agent_message", message=None)
    session.item("reasoning", summary=7).item("function_call", name=7, arguments=[])
    session.records += [7, {"type": "event_msg", "payload": "x"}, {"type": 7, "payload": {}}]
    session.reply("still here")
    conversation = read(session, codex, workspace)
    assert len(conversation.problems) >= 5
    assert list_texts(conversation, "message") == ["still here"]


def test_a_call_of_wrong_types_is_shown_as_json(codex: Path, workspace: Workspace) -> None:
    session = Session(workspace.root).ask("q")
    session.item("function_call", name=5, arguments={"a": 1}, call_id=[])
    session.reply("still here")
    conversation = read(session, codex, workspace)
    assert conversation.problems == [
        "line 4: the record of type response_item has values of an unexpected type,"
        " so it is shown as JSON"
    ]
    [unknown] = conversation.unknown_events
    assert '"name": 5' in unknown.text
    assert list_texts(conversation, "message") == ["still here"]


def test_hostile_text_stays(codex: Path, workspace: Workspace) -> None:
    text = "\x1b[31mred\u202e\x00"
    conversation = read(Session(workspace.root).ask(text), codex, workspace)
    assert list_texts(conversation, "chat_request") == [text]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "output", "action", "query", "image_url"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
kinds = st.sampled_from(
    [
        *("user_message", "agent_message", "agent_reasoning", "token_count", "context_compacted"),
        *("thread_rolled_back", "item_completed", "web_search_end", "turn_aborted", "error"),
        *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call"),
        *("local_shell_call", "web_search_call", "image_generation_call", "tool_search_output"),
        *("exited_review_mode", "thread_name_updated", "image_generation_end"),
    ]
)
payloads = st.fixed_dictionaries(
    {"type": kinds},
    optional={
        "role": st.sampled_from(["user", "assistant", "developer", "x"]) | json_values,
        "num_turns": st.integers(-2, 3) | json_values,
        "call_id": st.sampled_from(["a", "b"]) | json_values,
        **dict.fromkeys(
            [
                *("message", "text", "content", "summary", "name", "arguments", "output", "info"),
                *("action", "item", "images", "model", "result", "review_output", "kind"),
            ],
            json_values,
        ),
    },
)
records = payloads | st.fixed_dictionaries(
    {
        "type": st.sampled_from(["event_msg", "response_item", "turn_context", "compacted"]),
        "payload": payloads | json_values,
    },
    optional={"timestamp": json_values},
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(records | json_values, max_size=8))
def test_any_values_are_read(codex: Path, workspace: Workspace, values: list[Any]) -> None:
    session = Session(workspace.root)
    session.records += values
    session.write(codex)
    formats = CodexFormat()
    (info,) = list_infos(workspace)
    conversation = formats.load_conversation(info)
    formats.add_last_event_time(info)
    formats.make_resume_command(info)
    assert describe(read_in_parts(formats, info, 1)[0]) == describe(conversation.turns)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["id", "cwd", "source", "timestamp"]), json_values))
def test_any_first_record_is_read(codex: Path, workspace: Workspace, meta: dict[str, Any]) -> None:
    Session(workspace.root, **meta).write(codex)
    list_infos(workspace)
    list_problems(workspace)
