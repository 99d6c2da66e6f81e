"""Conversations of several agents in one search: the filter `agent:`, notices, and subagents."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from claude_sessions import answered, session_id, typed, write_session
from support import Builder, asked, kill_engine, said

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.cli.main import main
from kbtui.conversations.conversation_data_types import ConversationToolsAndModels
from kbtui.conversations.conversation_repository import list_conversations
from kbtui.engine.embedding_worker import make_vector_filter_of_request
from kbtui.library import open_workspace
from kbtui.search.query_completion import list_query_completions
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.tui.library_pane import parse_library_filter

MAIN, OTHER = f"claude-{session_id(1)}", "jp-c17800000001"
SUBAGENT = f"{MAIN}~a1b2c3"


@pytest.fixture
def built(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / "ws")
    builder.topics(guide={})
    builder.subject("guide/start.md", "# Start\n\nThe engine starts.\n")
    builder.conversation(1, [[asked("Which engine?"), said("The guide's.")]], title="JP talk")
    root, session = builder.root, session_id(1)
    write_session(
        home,
        root,
        session,
        [
            typed("Repair the engine"),
            answered("The engine runs."),
            typed("[Request interrupted by user] engine"),
            {**typed("So far: the engine and a wombat"), "isCompactSummary": True},
        ],
    )
    task = [typed("Find every engine"), answered("One engine, in the hall.")]
    write_session(home, root, session, task, subagent="a1b2c3")
    yield builder
    kill_engine(builder)


def find(
    built: Builder, capfd: pytest.CaptureFixture[str], *words: str, command: str = "search"
) -> set[str]:
    capfd.readouterr()
    assert main(["-w", str(built.root), command, "--json", *words]) in (0, 1)
    answer = json.loads(capfd.readouterr().out)
    return {
        row["ref"].split(":")[0] for row in answer["hits" if command == "search" else "entries"]
    }


def shorten(id_: str) -> str:
    """Return the shortest form of an id: eight characters after the prefix; a subagent's part as a whole."""
    session, sign, part = id_.partition("~")
    return session[: len("claude-") + 8] + sign + part


def test_lists_show_shortened_ids_and_json_whole_ones(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in (["search", "hall"], ["entries", "hall"], ["conversation", "grep", "hall"]):
        assert main(["-w", str(built.root), *words]) == 0
        said = capfd.readouterr().out
        assert shorten(SUBAGENT) in said
        assert SUBAGENT not in said
        form = ["--format", "json"] if words[0] == "conversation" else ["--json"]
        assert main(["-w", str(built.root), *words, *form]) == 0
        said = capfd.readouterr().out
        assert SUBAGENT in said
        assert f'"{shorten(SUBAGENT)}' not in said


@pytest.mark.parametrize("command", ["search", "entries"])
def test_the_name_of_an_agent_or_its_beginning_selects_its_conversations(
    built: Builder, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    for chosen in ("agent:claude-code", "agents:cla", "agent:Claude", "--agent=claude"):
        assert find(built, capfd, "engine", chosen, command=command) == {MAIN, SUBAGENT}, chosen
    assert find(built, capfd, "engine", "agent:jp", command=command) == {OTHER}
    assert find(built, capfd, "engine", "agent:jp,claude", command=command) == {
        MAIN, SUBAGENT, OTHER,
    }  # fmt: skip


def test_the_library_has_the_same_rule(built: Builder) -> None:
    infos = list_conversations(built.workspace)
    summary = ConversationToolsAndModels()
    for text, ids in (
        ("agent:claude", {MAIN, SUBAGENT}),
        ("agent:Claude-Code", {MAIN, SUBAGENT}),
        ("agent:cod", set()),
        ("-agent:claude", {OTHER}),
    ):
        shown = parse_library_filter(text, datetime.now(UTC))
        assert {one.id for one in infos if shown.matches_conversation(one, summary)} == ids, text


def test_an_agent_can_be_excluded(built: Builder, capfd: pytest.CaptureFixture[str]) -> None:
    assert find(built, capfd, "engine -agent:claude") == {"guide/start", OTHER}


UNKNOWN_AGENT = "unknown agent 'clod-code'"
KNOWN_AGENTS = "did you mean claude-code? the agents are jp, claude-code, codex, "


@pytest.mark.parametrize(
    "words",
    [
        ["search", "engine agent:clod-code"],
        ["search", "engine", "--agent", "clod-code"],
        ["entries", "agent:clod-code"],
        ["entries", "--agent", "clod-code"],
        ["conversation", "ls", "--agent", "clod-code"],
        ["conversation", "grep", "engine", "--agent", "clod-code"],
    ],
)
def test_every_command_names_the_agents_if_one_is_unknown(
    built: Builder, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["-w", str(built.root), *words]) == 2
    said = capfd.readouterr().err
    assert UNKNOWN_AGENT in said
    assert KNOWN_AGENTS in said


def test_the_library_names_the_agents_if_one_is_unknown() -> None:
    (mistake,) = parse_library_filter("agent:clod-code", datetime.now(UTC)).errors
    assert mistake.message == UNKNOWN_AGENT
    assert mistake.hint.startswith(KNOWN_AGENTS)


@pytest.mark.parametrize("command", ["search", "entries"])
def test_an_agent_that_the_settings_exclude_is_not_silently_empty(
    built: Builder, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    assert main(["-w", str(built.root), command, "engine agent:llm"]) == 2
    assert "conversations of llm are not read" in capfd.readouterr().err


def test_the_names_of_agents_are_completed(built: Builder) -> None:
    with open_workspace(built.root) as library:
        library.request_index_update_and_wait()
        reader = library.open_index_reader()
        found = list_query_completions("agent:cl", 8, library.load_knowledge(), reader)
    assert [one.text for one in found] == ["claude-code"]


def test_the_vectors_are_filtered_by_agent() -> None:
    request = SearchRequest("x", agents=("claude-code",))
    assert "agent IN ('claude-code')" in make_vector_filter_of_request(request)


def test_notices_are_a_role(built: Builder, capfd: pytest.CaptureFixture[str]) -> None:
    assert find(built, capfd, "engine role:notice") == {MAIN}
    assert find(built, capfd, "wombat role:notice") == {MAIN}


def test_a_hit_in_a_subagent_names_the_conversation_that_it_belongs_to(
    built: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["-w", str(built.root), "search", "hall"]) == 0
    head = capfd.readouterr().out.splitlines()[0]
    assert head.startswith(
        f"{shorten(SUBAGENT)}:1  Find every engine (part of “Repair the engine”)"
    )
    assert main(["-w", str(built.root), "search", "hall", "--json"]) == 0
    hit = json.loads(capfd.readouterr().out)["hits"][0]
    facts = (hit["agent"], hit["parent_id"], hit["parent_title"])
    assert facts == ("claude-code", MAIN, "Repair the engine")
    with open_workspace(built.root) as library:
        text = answer_tool_call("knowledge_search", {"query": "hall"}, library).text
    assert "Find every engine (part of “Repair the engine”)" in text
    assert main(["-w", str(built.root), "entries", "hall"]) == 0
    assert "(part of “Repair the engine”)" in capfd.readouterr().out


def test_search_says_what_other_commands_say_of_a_conversation(
    built: Builder, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_session(home, built.root, f"{session_id(1)[:-1]}0", [typed("Repair another engine")])
    capital = f"claude-{session_id(1).upper()}"
    for ref, code, wording in (
        ("claude-158", 2, "the id of a conversation needs at least 8 characters after claude-"),
        ("claude-158c7280", 2, "2 conversations match: "),
        ("claude-00000000", 1, "there is no conversation claude-00000000"),
        (capital, 0, ""),
    ):
        for words in (["show", ref], ["search", "--like", ref], ["search", "engine", "--why", ref]):
            found = main(["-w", str(built.root), *words])
            out, err = capfd.readouterr()
            if "--why" in words and code == 1:
                assert f"not a hit: {wording}" in out, (words, out)
            elif code:
                assert (found, wording in err) == (code, True), (words, err)
            else:
                assert found == 0, (words, err)
