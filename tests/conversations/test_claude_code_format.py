"""Claude Code's sessions: found for their project, and read as the agent showed them."""

import json
import lzma
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_parts import read_in_parts, read_token_usage

from kbtui.conversations.conversation_data_types import (
    AgentCommand,
    Conversation,
    TokenUsage,
)
from kbtui.conversations.formats.claude_code_format import (
    ClaudeCodeFormat,
    ClaudeCodeParser,
    make_project_directory_name,
)
from kbtui.conversations.formats.jsonl_conversation_format import (
    JsonlRecord,
    _parse_record_and_report_damage,
)
from kbtui.conversations.formats.turn_builder import TurnBuilder
from kbtui.conversations.workspace_and_worktree_directories import remember_worktrees
from kbtui.workspace import Workspace

SAMPLES = Path(__file__).parents[1] / "data/agent_sessions/claude"
LONG = "4d5611e5-241a-462a-8d15-5122611a9569"


def read_sample(name: str) -> str:
    path = SAMPLES / name
    if path.exists():
        return path.read_text("utf-8")
    return lzma.decompress((SAMPLES / f"{name}.xz").read_bytes()).decode("utf-8")


def put_session(home: Path, root: Path, session: str, text: str, *, inside: str = "") -> Path:
    """Write a session as if the agent had run in `root`, or in `inside` below it."""
    text = re.sub(r'"cwd":"[^"]*"', lambda _: f'"cwd":{json.dumps(str(root / inside))}', text)
    folder = home / "projects" / make_project_directory_name(str(root / inside))
    path = folder / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@pytest.fixture
def agent_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return tmp_path / "claude"


@pytest.fixture
def root(workspace_root: Path) -> Path:
    return workspace_root.resolve()


def load(root: Path, id: str) -> Conversation:  # noqa: A002
    reader = ClaudeCodeFormat()
    (stored,) = reader.find_stored_conversations(Workspace(root), id)[0]
    return reader.load_conversation(stored.read_conversation_info())


def kinds(conversation: Conversation) -> Counter[str]:
    return Counter(event.kind for turn in conversation.turns for event in turn.events)


def record(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> str:
    role = "assistant" if kind == "assistant" else "user"
    values = {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "cwd": "/",
        "timestamp": "2026-02-10T21:12:00.000Z",
        "message": {"role": role, "content": content},
    }
    return json.dumps(values | more, separators=(",", ":"))


def test_a_long_session_has_the_requests_calls_and_tokens_that_its_file_has(
    agent_home: Path, root: Path
) -> None:
    put_session(agent_home, root, LONG, read_sample(f"{LONG}.jsonl"))
    reader = ClaudeCodeFormat()
    (stored,) = reader.find_stored_conversations(Workspace(root))[0]
    info = stored.read_conversation_info()
    conversation = reader.load_conversation(info)
    found = kinds(conversation)
    assert (len(conversation.turns), found["chat_request"]) == (2, 2)
    assert (found["tool_call_request"], found["tool_call_response"]) == (150, 150)
    calls = [
        event
        for turn in conversation.turns
        for event in turn.events
        if event.kind == "tool_call_request"
    ]
    assert all(call.result is not None and call.result.call_id == call.call_id for call in calls)
    assert [(one.first, one.last) for one in conversation.compactions] == [(1, 2)]
    assert conversation.problems == []
    usage = read_token_usage(reader, info)
    assert usage is not None
    assert usage.output_tokens == 28_755
    assert info.title is not None
    assert info.title.startswith("Work on bead spotter-dov.")


def test_subagents_belong_to_their_session_and_summarizers_are_left_out(
    agent_home: Path, root: Path
) -> None:
    path = put_session(agent_home, root, LONG, read_sample(f"{LONG}.jsonl"))
    folder = path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    for name in ("agent-a2898e3", "agent-acompact-e1f845"):
        text = re.sub(
            r'"cwd":"[^"]*"',
            lambda _: f'"cwd":{json.dumps(str(root))}',
            read_sample(f"{name}.jsonl"),
        )
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    found, _ = ClaudeCodeFormat().find_stored_conversations(Workspace(root))
    assert [one.id for one in found] == [f"claude-{LONG}", f"claude-{LONG}~a2898e3"]
    subagent = found[1].read_conversation_info()
    assert subagent.parent == f"claude-{LONG}"
    conversation = load(root, subagent.id)
    assert len(conversation.turns) == 1
    assert kinds(conversation)["tool_call_request"] == 33
    # The call that started it names it.
    calls = [event for turn in load(root, found[0].id).turns for event in turn.events]
    started = [(event.metadata or {}).get("subagent") for event in calls]
    assert [agent for agent in started if agent] == ["a2898e3"]


@pytest.mark.parametrize("sample", ["short", "tool_heavy", "subagent"])
def test_the_turns_show_no_less_than_the_agent_itself_showed(
    agent_home: Path, root: Path, sample: str
) -> None:
    put_session(agent_home, root, sample, read_sample(f"{sample}.jsonl"))
    conversation = load(root, f"claude-{sample}")
    text = "\n".join(
        f"{event.text} {json.dumps(event.arguments, ensure_ascii=False)}"
        for turn in conversation.turns
        for event in turn.events
    )
    words = set(re.findall(r"\w{4,}", text))
    shown = read_sample(f"{sample}.terminal.txt")
    # What stands before the first prompt and after the last rule is the terminal's own.
    body = shown.partition("❯ ")[2].partition("❯ ")[2].rpartition("─" * 20)[0]
    missing = []
    for line in body.splitlines():
        if line.startswith(("❯ ", "● ")) and "ctrl+o" not in line and "⎿" not in line:
            said = re.findall(r"\w{4,}", line)
            missing += [word for word in said if word not in words]
    names = {event.name for turn in conversation.turns for event in turn.events if event.name}
    # The agent puts spaces into the names of tools, and has words of its own for some.
    spaced = {part for name in names for part in re.findall(r"[A-Z][a-z]+", name)}
    assert [word for word in missing if word not in spaced | {"Fetch", "Exited", "Haiku"}] == []


def test_a_command_that_the_model_answers_is_a_request_and_others_are_notices(
    agent_home: Path, root: Path
) -> None:
    put_session(agent_home, root, "subagent", read_sample("subagent.jsonl"))
    put_session(agent_home, root, "tool_heavy", read_sample("tool_heavy.jsonl"))
    first = load(root, "claude-subagent").turns[0].events[0]
    assert first.text.startswith("/handgemacht:create-beads websearch to learn")
    heavy = load(root, "claude-tool_heavy")
    assert [turn.events[0].text[:20] for turn in heavy.turns] == [
        "start phoenix in bac",
        "scrolling back in xt",
    ]
    notices = [event.text for event in heavy.turns[0].events if event.kind == "notice"]
    assert "[Request interrupted by user]" in notices
    assert "/mcp" in notices
    assert "Reconnected to tidewave." in notices


def test_only_sessions_of_the_project_are_found(agent_home: Path, root: Path) -> None:
    text = read_sample("short.jsonl")
    put_session(agent_home, root, "inside", text)
    put_session(agent_home, root, "below", text, inside="deep/er")
    put_session(agent_home, root.parent / "other", "elsewhere", text)
    # The folder's name is the same as that of `deep/er`.
    put_session(agent_home, root.parent / "ws-deep", "beside", text)
    (root / "nested" / ".jp").mkdir(parents=True)
    put_session(agent_home, root, "nested", text, inside="nested")
    found, unusable = ClaudeCodeFormat().find_stored_conversations(Workspace(root))
    assert sorted(one.id for one in found) == ["claude-below", "claude-inside"]
    assert unusable == []
    (nested,), _ = ClaudeCodeFormat().find_stored_conversations(Workspace(root / "nested"))
    assert nested.id == "claude-nested"


def test_sessions_in_another_worktree_of_the_repository_say_which(
    agent_home: Path, root: Path, tmp_path: Path
) -> None:
    import subprocess

    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(root), *identity, *words], check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    tree = tmp_path.resolve() / "trees" / "feature"
    git("worktree", "add", "-q", str(tree))
    put_session(agent_home, root, "own", read_sample("short.jsonl"))
    put_session(agent_home, tree, "other", read_sample("short.jsonl"))
    found, _ = ClaudeCodeFormat().find_stored_conversations(Workspace(root))
    infos = {one.id: one.read_conversation_info() for one in found}
    assert {name: info.worktree for name, info in infos.items()} == {
        "claude-own": None,
        "claude-other": "feature",
    }
    # Seen from the worktree, the sessions of the main one are the other ones.
    found, _ = ClaudeCodeFormat().find_stored_conversations(Workspace(tree))
    worktrees = {one.id: one.read_conversation_info().worktree for one in found}
    assert worktrees == {"claude-own": "ws", "claude-other": None}


def test_sessions_of_a_worktree_that_was_removed_stay_if_the_engine_saw_it(
    agent_home: Path, root: Path, tmp_path: Path, home: Path
) -> None:
    import shutil

    tree = tmp_path.resolve() / "trees" / "feature"
    own = root / ".git" / "worktrees" / "feature"
    for directory in (tree, own):
        directory.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {own}\n")
    (own / "gitdir").write_text(f"{tree}/.git\n")
    put_session(agent_home, tree, "other", read_sample("short.jsonl"))
    workspace = Workspace(root)
    remember_worktrees(workspace)
    written = next(workspace.user_data_directory.iterdir()).stat()
    shutil.rmtree(tree)
    shutil.rmtree(own)
    remember_worktrees(workspace)
    assert next(workspace.user_data_directory.iterdir()).stat().st_mtime_ns == written.st_mtime_ns
    (stored,) = ClaudeCodeFormat().find_stored_conversations(workspace)[0]
    info = stored.read_conversation_info()
    assert (info.worktree, info.working_directory) == ("feature", str(tree))
    # Another project at its place has its own sessions.
    tree.mkdir()
    assert list_found(root) == []
    (next(workspace.user_data_directory.iterdir())).write_text("no list")
    assert list_found(root) == []


def test_turns_that_a_person_left_behind_are_marked_and_keep_their_numbers(
    agent_home: Path, root: Path
) -> None:
    lines = [
        record("user", "a", None, "first"),
        record("assistant", "b", "a", [{"type": "text", "text": "one"}]),
        record("user", "c", "b", "second"),
        record("assistant", "d", "c", [{"type": "text", "text": "two"}]),
        record("user", "e", "b", "second, asked otherwise"),
        record("assistant", "f", "e", [{"type": "text", "text": "three"}]),
    ]
    put_session(agent_home, root, "rewound", "\n".join(lines) + "\n")
    turns = load(root, "claude-rewound").turns
    assert [(turn.number, turn.is_rewound, turn.events[0].text) for turn in turns] == [
        (1, False, "first"),
        (2, True, "second"),
        (3, False, "second, asked otherwise"),
    ]


def test_a_request_without_a_parent_begins_anew_but_not_after_a_compaction(
    agent_home: Path, root: Path
) -> None:
    """The model sees only the path back from the last record, which ends where there is no parent."""
    lines = [
        record("user", "a", None, "first"),
        record("user", "b", None, "first, asked otherwise"),
        record("user", "c", None, "next", logicalParentUuid="b"),
    ]
    put_session(agent_home, root, "anew", "\n".join(lines) + "\n")
    assert [turn.is_rewound for turn in load(root, "claude-anew").turns] == [True, False, False]


def test_usage_counts_each_message_once(agent_home: Path, root: Path) -> None:
    def answer(uuid: str, message: str, output: int) -> str:
        usage = {"input_tokens": 5, "output_tokens": output, "cache_read_input_tokens": 7}
        content = [{"type": "text", "text": "so"}]
        return record(
            "assistant",
            uuid,
            None,
            content,
            message={"id": message, "model": "claude-x", "content": content, "usage": usage},
        )

    lines = [record("user", "a", None, "go"), answer("b", "m1", 3), answer("c", "m1", 9)]
    put_session(agent_home, root, "usage", "\n".join([*lines, answer("d", "m2", 1)]) + "\n")
    reader = ClaudeCodeFormat()
    (stored,) = reader.find_stored_conversations(Workspace(root))[0]
    info = stored.read_conversation_info()
    assert read_token_usage(reader, info) == TokenUsage(10, 10, 14, 0, 34)
    assert reader.load_conversation(info).turns[0].model == "claude-x"
    assert reader.make_resume_command(info) == AgentCommand(
        ("claude", "--resume", "usage"), str(root)
    )


def test_titles_come_from_the_person_then_the_agent_then_the_request(
    agent_home: Path, root: Path
) -> None:
    def title(lines: list[str]) -> str | None:
        put_session(agent_home, root, "titled", "\n".join(lines) + "\n")
        (stored,) = ClaudeCodeFormat().find_stored_conversations(Workspace(root))[0]
        return stored.read_conversation_info().title

    lines = [record("user", "a", None, "\n\nPlease fix the build.\nIt fails.")]
    assert title(lines) == "Please fix the build."
    lines.append('{"type":"summary","summary":"Build fix","leafUuid":"a"}')
    assert title(lines) == "Build fix"
    lines.append('{"type":"ai-title","aiTitle":"Repairing the build"}')
    assert title(lines) == "Repairing the build"
    lines.append('{"type":"custom-title","customTitle":"mine"}')
    assert title(lines) == "mine"


def test_what_is_not_known_is_shown_as_unknown(agent_home: Path, root: Path) -> None:
    lines = [
        record("user", "a", None, "go"),
        record("assistant", "b", "a", [{"type": "hologram", "beam": "blue"}]),
        '{"type":"weather","sky":"grey","uuid":"w"}',
    ]
    put_session(agent_home, root, "new", "\n".join(lines) + "\n")
    conversation = load(root, "claude-new")
    assert [event.name for event in conversation.unknown_events] == ["hologram", "weather"]
    assert "grey" in conversation.unknown_events[1].text


def test_images_show_their_type_and_size_and_patches_are_diffs(
    agent_home: Path, root: Path
) -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"},
    }
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-old", "+new"]}
    call = {"type": "tool_use", "id": "t", "name": "Edit", "input": {"file_path": "/a.md"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "updated"}
    lines = [
        record("user", "a", None, [{"type": "text", "text": "look"}, image]),
        record("assistant", "b", "a", [call]),
        record(
            "user",
            "c",
            "b",
            [result],
            toolUseResult={"filePath": "/a.md", "structuredPatch": [hunk]},
        ),
    ]
    put_session(agent_home, root, "edit", "\n".join(lines) + "\n")
    (turn,) = load(root, "claude-edit").turns
    assert turn.events[0].text == "look\n[image: image/png, 3 bytes]"
    assert turn.events[2].text.endswith("--- /a.md\n+++ /a.md\n@@ -1,1 +1,1 @@\n-old\n+new")


@pytest.mark.parametrize("sample", ["short", "tool_heavy"])
def test_a_file_that_is_cut_anywhere_is_read_as_far_as_it_goes(
    agent_home: Path, root: Path, sample: str
) -> None:
    path = put_session(agent_home, root, sample, read_sample(f"{sample}.jsonl"))
    data = path.read_bytes()
    ends = [at for at, byte in enumerate(data) if byte == 10]
    middles = [(a + b) // 2 for a, b in pairwise(ends)][::10]
    before = 0
    for end in sorted([*(at + 1 for at in ends), *middles]):
        path.write_bytes(data[:end])
        found, _ = ClaudeCodeFormat().find_stored_conversations(Workspace(root))
        if found:
            conversation = load(root, f"claude-{sample}")
            events = sum(kinds(conversation).values())
            assert events >= before
            assert conversation.problems == []
            before = events
    assert before >= 10


def test_a_damaged_line_is_named_and_the_others_are_read(agent_home: Path, root: Path) -> None:
    path = put_session(agent_home, root, "short", read_sample("short.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    whole = sum(kinds(load(root, "claude-short")).values())
    lines[6] = lines[6].replace(b'"', b"\xff", 1)
    lines.insert(4, b"[1, 2]\n")
    path.write_bytes(b"".join(lines))
    conversation = load(root, "claude-short")
    assert sum(kinds(conversation).values()) >= whole - 1
    assert any("line 5: it is not an object" in problem for problem in conversation.problems)
    assert any("line 8: it is not JSON" in problem for problem in conversation.problems)


def test_a_record_of_wrong_types_is_named_by_its_line_in_plain_words(
    agent_home: Path, root: Path
) -> None:
    lines = [record("user", "a", None, "hi"), "", record("assistant", "b", "a", 5)]
    lines += [record("user", "c", "b", "next")]
    put_session(agent_home, root, "types", "\n".join(lines) + "\n")
    conversation = load(root, "claude-types")
    assert conversation.problems == [
        "line 3: the record of type assistant has values of an unexpected type,"
        " so it is shown as JSON"
    ]
    assert kinds(conversation) == {"chat_request": 2, "unknown": 1}


def test_parts_of_a_file_with_empty_lines_make_up_the_whole(agent_home: Path, root: Path) -> None:
    lines = [record("user", str(n), str(n - 1), f"request {n}") for n in range(6)]
    lines[2:2] = ["", "", "[]"]
    lines.append('{"type": "assistant", "message": 5}')
    put_session(agent_home, root, "gaps", "\n\n".join(lines) + "\n")
    reader = ClaudeCodeFormat()
    (stored,) = reader.find_stored_conversations(Workspace(root), "claude-gaps")[0]
    info = stored.read_conversation_info()
    whole = reader.load_conversation(info)
    turns, mark = read_in_parts(reader, info, 1)
    assert [one.events[0].text for one in turns] == [one.events[0].text for one in whole.turns]
    assert [problem.partition(":")[0] for problem in whole.problems] == ["line 9", "line 19"]
    part = reader.load_conversation_segment(info, mark, 1)
    assert part is not None
    assert part.conversation.problems[-1] == whole.problems[-1]


def test_outcomes_are_what_the_terminal_shows(agent_home: Path, root: Path) -> None:
    put_session(agent_home, root, "tool_heavy", read_sample("tool_heavy.jsonl"))
    outcomes = {
        event.outcome
        for turn in load(root, "claude-tool_heavy").turns
        for event in turn.events
        if event.outcome
    }
    terminal = read_sample("tool_heavy.terminal.txt")
    assert {"Did 1 search in 6s", "Received 268KB (200 OK)"} <= outcomes
    assert all(outcome in terminal for outcome in outcomes)


@pytest.mark.parametrize(
    ("details", "outcome"),
    [
        ({"bytes": 12, "code": 404, "codeText": "Not Found"}, "Received 12 bytes (404 Not Found)"),
        ({"bytes": 3 << 20, "code": 200, "codeText": 5}, "Received 3MB (200)"),
        ({"durationSeconds": 0.25, "results": [{}, "x", {}]}, "Did 2 searches in 250ms"),
        (
            {"totalToolUseCount": 1, "totalTokens": 33_926, "totalDurationMs": 141_871},
            "Done (1 tool use · 33.9k tokens · 2m 22s)",
        ),
        ({"bytes": True, "code": 200}, None),
        ({"bytes": "12", "code": [], "durationSeconds": -1, "results": []}, None),
    ],
)
def test_an_outcome_is_made_of_numbers(
    agent_home: Path, root: Path, details: dict[str, Any], outcome: str | None
) -> None:
    use = {"type": "tool_use", "id": "t", "name": "Fetch", "input": {}}
    give = {"type": "tool_result", "tool_use_id": "t", "content": "text"}
    lines = [
        record("user", "1", None, "go"),
        record("assistant", "2", "1", [use]),
        record("user", "3", "2", [give], toolUseResult=details),
    ]
    put_session(agent_home, root, "outcome", "\n".join(lines))
    assert load(root, "claude-outcome").turns[0].events[-1].outcome == outcome


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("<bash-stdout>out</bash-stdout><bash-stderr>err</bash-stderr>", "out\nerr"),
        ("<bash-stdout>out\n</bash-stdout><bash-stderr>err</bash-stderr>", "out\nerr"),
        ("<bash-stdout>out</bash-stdout><bash-stderr></bash-stderr>", "out"),
        ("<bash-stdout></bash-stdout><bash-stderr>err</bash-stderr>", "err"),
    ],
)
def test_errors_of_a_command_begin_on_a_line_of_their_own(
    agent_home: Path, root: Path, output: str, shown: str
) -> None:
    put_session(agent_home, root, "bash", record("user", "1", None, output))
    assert load(root, "claude-bash").turns[0].events[0].text == shown


def test_a_half_line_is_a_problem_only_after_an_hour(agent_home: Path, root: Path) -> None:
    import os
    import time

    path = put_session(agent_home, root, "half", record("user", "1", None, "go") + '\n{"type":"us')
    assert load(root, "claude-half").problems == []
    past = time.time() - 7200
    os.utime(path, (past, past))
    assert load(root, "claude-half").problems == [
        "line 2: it is incomplete: the file ends in the middle of it"
    ]


def test_a_record_without_a_type_is_called_a_record() -> None:
    builder = TurnBuilder()
    builder.add_unreadable_record("record", {})
    builder.add_unreadable_record("assistant", {})
    assert [one.partition(" has ")[0] for one in builder.problems] == [
        "record 1: the record",
        "record 1: the record of type assistant",
    ]


def test_a_repeated_call_id_pairs_results_in_order(agent_home: Path, root: Path) -> None:
    def use(command: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": command}}

    def give(text: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": "t", "content": text}

    lines = [
        record("user", "a", None, "run both"),
        record("assistant", "b", "a", [use("one"), use("two")]),
        record("user", "c", "b", [give("1"), give("2")]),
    ]
    put_session(agent_home, root, "twice", "\n".join(lines) + "\n")
    conversation = load(root, "claude-twice")
    calls = [one for one in conversation.turns[0].events if one.kind == "tool_call_request"]
    assert [(one.arguments, one.result and one.result.text) for one in calls] == [
        ({"command": "one"}, "1"),
        ({"command": "two"}, "2"),
    ]
    assert [one.result and one.result.call for one in calls] == [1, 2]
    assert conversation.problems == []


@pytest.mark.parametrize("parent", [5, True, [], {}, "nowhere"])
def test_a_parent_that_is_no_record_marks_no_turn_as_left_behind(
    agent_home: Path, root: Path, parent: Any
) -> None:
    lines = [record("user", "a", None, "first"), record("user", "b", "a", "second")]
    lines.append(record("user", "c", parent, "third"))
    put_session(agent_home, root, "parent", "\n".join(lines) + "\n")
    conversation = load(root, "claude-parent")
    assert [(turn.is_rewound, turn.events[0].text) for turn in conversation.turns] == [
        (False, "first"),
        (False, "second"),
        (False, "third"),
    ]
    assert conversation.problems == []


def test_a_record_of_the_same_id_is_shown_if_its_text_differs(agent_home: Path, root: Path) -> None:
    lines = [record("user", "a", None, text) for text in ("first", "first", "second")]
    put_session(agent_home, root, "same", "\n".join(lines) + "\n")
    turns = load(root, "claude-same").turns
    assert [turn.events[0].text for turn in turns] == ["first", "second"]


def test_a_line_of_forty_megabytes_is_skipped_and_named(agent_home: Path, root: Path) -> None:
    path = put_session(agent_home, root, "short", read_sample("short.jsonl"))
    with path.open("ab") as file:
        file.write(b'{"type":"user","x":"' + b"y" * (40 << 20) + b'"}\n')
        file.write(record("user", "late", None, "after the long line").encode() + b"\n")
    conversation = load(root, "claude-short")
    assert conversation.turns[-1].events[0].text == "after the long line"
    assert any("is longer than 32 MB" in problem for problem in conversation.problems)


def test_a_last_line_that_is_too_long_is_a_problem_also_without_a_line_end(
    agent_home: Path, root: Path
) -> None:
    path = put_session(agent_home, root, "long", record("user", "1", None, "go") + "\n\n")
    with path.open("ab") as file:
        file.write(b'{"type":"user","x":"' + b"y" * (40 << 20) + b'"}')
    assert load(root, "claude-long").problems == ["line 3: it is longer than 32 MB"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "x"]) | JSON},
    optional=dict.fromkeys(
        ("text", "thinking", "id", "name", "input", "tool_use_id", "content", "source"), JSON
    ),
)
RECORD = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "system", "summary", "odd"]) | JSON},
    optional={
        "message": st.fixed_dictionaries(
            {"content": st.lists(BLOCK, max_size=3) | JSON},
            optional={"usage": JSON, "id": JSON, "model": JSON},
        )
        | JSON,
        "toolUseResult": JSON,
        **dict.fromkeys(("uuid", "parentUuid", "timestamp", "isMeta", "subtype", "content"), JSON),
    },
)


@given(st.lists(RECORD | JSON, max_size=5))
def test_no_record_raises_and_each_unknown_one_is_shown(records: list[Any]) -> None:
    builder = TurnBuilder()
    parser = ClaudeCodeParser(builder)
    for value in records:
        _parse_record_and_report_damage(parser, JsonlRecord(0, 0, b"", value))
    assert builder.count == len(records)


def list_found(root: Path) -> list[str]:
    return [one.id for one in ClaudeCodeFormat().find_stored_conversations(Workspace(root))[0]]


def list_skipped(root: Path) -> dict[str, str]:
    """The reasons of the files that cannot be listed, by name."""
    _, unusable = ClaudeCodeFormat().find_stored_conversations(Workspace(root))
    return {one.path.stem: one.reason for one in unusable}


@pytest.mark.parametrize("cwd_first", [True, False])
def test_a_session_that_begins_with_a_huge_image_is_listed_with_its_words_as_title(
    agent_home: Path, root: Path, cwd_first: bool
) -> None:
    image = {"type": "image", "source": {"media_type": "image/png", "data": "A" * (18 << 20)}}
    content = [image, {"type": "text", "text": "What is wrong in this image?"}]
    values = json.loads(record("user", "u1", None, content))
    if cwd_first:
        values = {"cwd": "/", **values}
    else:
        values["cwd"] = values.pop("cwd")  # after the message
    values["message"]["content"][1]["quoted"] = '{"cwd":"/elsewhere"}'
    text = json.dumps(values, separators=(",", ":"))
    put_session(agent_home, root, "huge", f"{text}\n")
    (stored,) = ClaudeCodeFormat().find_stored_conversations(Workspace(root))[0]
    info = stored.read_conversation_info()
    assert (info.id, info.title) == ("claude-huge", "What is wrong in this image?")
    assert info.working_directory == str(root)
    assert len(load(root, "claude-huge").turns) == 1


def test_the_directory_in_a_long_message_is_not_that_of_the_session(
    agent_home: Path, root: Path
) -> None:
    block = {"type": "tool_use", "input": {"cwd": str(root)}, "text": "A" * (300 << 10)}
    values = {"type": "user", "message": {"content": [block]}, "cwd": "/elsewhere"}
    path = put_session(agent_home, root, "foreign", "")
    path.write_text(json.dumps(values, separators=(",", ":")) + "\n")
    assert list_found(root) == []
    assert list_skipped(root) == {}


def test_files_without_a_dialogue_are_named_with_the_reason(agent_home: Path, root: Path) -> None:
    import os

    short = read_sample("short.jsonl")
    put_session(agent_home, root, "good", short)
    mark = put_session(agent_home, root, "mark", short)
    mark.write_bytes(b"\xef\xbb\xbf" + mark.read_bytes())
    utf16 = put_session(agent_home, root, "utf16", short)
    utf16.write_bytes(utf16.read_text("utf-8").encode("utf-16"))
    put_session(agent_home, root, "empty", "")
    put_session(agent_home, root, "zeros", "\0" * 4096)
    put_session(agent_home, root, "half", short[:40])
    put_session(agent_home, root, "nowhere", '{"type":"assistant","message":{"content":"Hi"}}\n')
    put_session(agent_home, root, "titles", '{"type":"summary","summary":"Old"}\n')
    put_session(agent_home, root, "start", '{"type":"user","message":{"content":"Hi"}}\n')
    # What the agent is just writing is no fault.
    skipped = list_skipped(root)
    assert {skipped[name] for name in ("empty", "half", "titles")} == {
        "the session has no turn yet"
    }
    for path in agent_home.glob("projects/*/*"):
        os.utime(path, (1e9, 1e9))
    assert sorted(list_found(root)) == ["claude-good", "claude-mark", "claude-start"]
    # No record says where it was held, but the name of its folder does.
    assert [turn.events[0].text for turn in load(root, "claude-start").turns] == ["Hi"]
    assert load(root, "claude-mark").problems == []
    assert list_skipped(root) == {
        "utf16": "the file is in UTF-16; Claude Code writes UTF-8",
        "empty": "the file is empty",
        "zeros": "the file starts with NUL bytes",
        "half": "the file has no readable record",
        "nowhere": "no record names the directory in which the session ran",
        "titles": "the session has no turn yet",
    }


def test_of_two_files_of_one_session_the_newer_is_read_and_the_other_is_named(
    agent_home: Path, root: Path
) -> None:
    import os

    short = read_sample("short.jsonl")
    older = put_session(agent_home, root, "same", short)
    newer = put_session(agent_home, root, "same", short, inside="docs")
    os.utime(older, (1e9, 1e9))
    (stored,), (left,) = ClaudeCodeFormat().find_stored_conversations(Workspace(root))
    assert stored.read_conversation_info().events_path == newer
    assert left.path == older
    assert str(newer) in left.reason


def test_a_broken_file_in_the_folder_of_another_project_is_not_named(
    agent_home: Path, root: Path
) -> None:
    put_session(agent_home, root.with_name(f"{root.name}-other"), "zeros", "\0" * 4096)
    assert list_skipped(root) == {}
