"""The tools on conversations of several agents: chosen by agent, named by short ids, secrets masked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import answered, call, result, session_id, typed, write_session
from support import Builder, asked, kill_engine, said

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.library import Library, open_workspace

CLAUDE, JP = f"claude-{session_id(1)}", "jp-c17800000001"
SUBAGENT = f"{CLAUDE}~a1b2c3"
SECRET = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"


@pytest.fixture
def library(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / "ws")
    builder.conversation(1, [[asked("Where is the badger?"), said("Here.")]], title="JP talk")
    records = [
        typed(f"Find the badger with {SECRET}"),
        answered("I look.", call(1, "Bash", command=f"TOKEN={SECRET} find badger")),
        result(1, f"badger {SECRET}"),
    ]
    write_session(home, builder.root, session_id(1), records)
    task = [typed(f"Look for a badger of {SECRET}"), answered("A badger sleeps.")]
    write_session(home, builder.root, session_id(1), task, subagent="a1b2c3")
    with open_workspace(builder.root) as opened:
        yield opened
    kill_engine(builder)


def ask(library: Library, name: str, masked: bool = False, **arguments: Any) -> str:
    reply = answer_tool_call(name, arguments, library, masked=masked)
    assert not reply.is_error, reply.text
    return reply.text


def refuse(library: Library, name: str, **arguments: Any) -> str:
    reply = answer_tool_call(name, arguments, library)
    assert reply.is_error
    return reply.text


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("conversation_list", {}), ("conversation_grep", {"pattern": "badger"})],
)
def test_the_argument_agents_chooses_conversations(
    library: Library, name: str, arguments: dict[str, Any]
) -> None:
    for agents, found in (
        (None, {JP, CLAUDE, SUBAGENT}),
        (["jp"], {JP}),
        (["Claude"], {CLAUDE, SUBAGENT}),
        (["jp", "claude-code"], {JP, CLAUDE, SUBAGENT}),
        (["codex"], set()),
    ):
        text = ask(library, name, agents=agents, **arguments)
        assert {id_ for id_ in (JP, CLAUDE, SUBAGENT) if f"<id>{id_}</id>" in text} == found
    text = ask(library, name, agents="claude", **arguments)
    assert "<agent>claude-code</agent>" in text
    assert f"<parent_id>{CLAUDE}</parent_id>" in text


def test_an_unknown_agent_is_refused_with_the_known_names(library: Library) -> None:
    assert refuse(library, "conversation_list", agents=["cloud-code"]).startswith(
        "`agents`: unknown agent 'cloud-code' (did you mean claude-code? the agents are jp, claude-code, "
    )
    text = refuse(library, "conversation_grep", pattern="x", agents=["zzz"])
    assert "the agents are jp, claude-code, " in text


def test_a_short_id_is_enough(library: Library) -> None:
    text = ask(library, "conversation_read", id=f"{CLAUDE[:15]}:1", include=["chat"])
    assert text.startswith(
        f"<conversation_read>\n  <id>{CLAUDE}</id>\n  <agent>claude-code</agent>"
    )
    text = ask(library, "conversation_read", id=f"{CLAUDE[:15]}~a1b2c3")
    assert f"<parent_id>{CLAUDE}</parent_id>" in text
    text = ask(library, "conversation_grep", pattern="badger", ids=[CLAUDE[:15], CLAUDE])
    assert f"<id>{JP}</id>" not in text
    assert text.count("<scope>user</scope>") == 1


def test_the_current_session_is_left_out_under_every_form_of_its_id(library: Library) -> None:
    for id_ in (CLAUDE, CLAUDE[:15]):
        reply = answer_tool_call("conversation_read", {"id": id_}, library, CLAUDE)
        assert "is the current conversation" in reply.text
        arguments = {"pattern": "badger", "ids": [id_]}
        text = answer_tool_call("conversation_grep", arguments, library, CLAUDE).text
        assert f"{CLAUDE} is the current conversation: use include_current=true" in text
        assert "<total>0</total>" in text
    library.request_index_update_and_wait()
    text = answer_tool_call("knowledge_search", {"query": "badger"}, library, CLAUDE).text
    assert f"[entry {CLAUDE} " not in text
    assert f"[entry {JP} " in text


def test_the_error_for_a_wrong_id_names_the_forms_of_ids(library: Library) -> None:
    text = refuse(library, "conversation_read", id="that one")
    assert "jp-c17457886043" in text
    assert "claude-258c7280" in text
    assert "`kbtui" not in text
    assert "`conversation_list` lists the ids" in refuse(
        library, "conversation_read", id="claude-ffffffff1"
    )


def test_secrets_in_sessions_are_masked_as_in_conversations_of_jp(library: Library) -> None:
    library.request_index_update_and_wait()
    for name, arguments in (
        ("conversation_list", {}),
        ("conversation_grep", {"pattern": "badger"}),
        ("conversation_read", {"id": CLAUDE}),
        ("conversation_read", {"id": SUBAGENT}),
        ("knowledge_search", {"query": "badger"}),
    ):
        assert SECRET in ask(library, name, **arguments), name
        assert SECRET not in ask(library, name, masked=True, **arguments), name
    assert "<hit>" not in ask(library, "conversation_grep", masked=True, pattern=SECRET)


@pytest.mark.parametrize("before", [20, 50, 70, 78, 79, 80])
def test_a_title_never_has_a_part_of_a_secret(library: Library, home: Path, before: int) -> None:
    request = f"{'Use this to find the badger, please, and then tell me what it did there: ' * 2}"
    records = [typed(f"{request[:before]} {SECRET} quickly, and write about it."), answered("Yes.")]
    write_session(home, library.workspace.root, session_id(2), records)
    titles = ask(library, "conversation_list", masked=True, agents=["claude"])
    assert SECRET[:8] not in titles
    assert f"<title>{request[:10]}" in titles


def test_a_call_that_does_not_exist_is_refused(library: Library) -> None:
    assert "badger" in ask(library, "conversation_read", id=f"{CLAUDE}:1.1")
    for wrong in ("1.9999", "1.0"):
        text = refuse(library, "conversation_read", id=f"{CLAUDE}:{wrong}")
        assert "turn 1 has 1 call" in text
    assert "turn 1 has no calls" in refuse(library, "conversation_read", id=f"{JP}:1.1")
