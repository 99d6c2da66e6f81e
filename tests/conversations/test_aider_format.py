"""aider's sessions: one Markdown file with all of them, to which aider only appends."""

import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_parts import read_token_usage

from kbtui.conversations.conversation_data_types import Conversation, ConversationInfo
from kbtui.conversations.formats.aider_format import AiderFormat, parse_aider_session_text
from kbtui.conversations.formats.turn_builder import TurnBuilder
from kbtui.workspace import Workspace, open_workspace_at_root

FIRST = """
# aider chat started at 2025-11-02 14:03:09

> /usr/bin/aider --model sonnet  \n\
> Aider v0.86.1  \n\
> Main model: anthropic/claude-sonnet-4 with diff edit format  \n\
> Git repo: .git with 3 files  \n\

#### /add foo.py  \n\

> Added foo.py to the chat  \n\

#### make foo faster  \n\
#### and nicer  \n\

Sure:

#### A heading in a reply

> a quotation

foo.py
```python
# aider chat started at 2025-01-01 00:00:00
x = 1
```

> Applied edit to foo.py  \n\
> pytest  \n\
> Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: n  \n\
> Tokens: 2.1k sent, 1.0k cache hit, 300 received. Cost: $0.01 message, $0.02 session.  \n\
"""
SECOND = """
# aider chat started at 2025-11-03 10:00:00

> Aider v0.86.1  \n\

#### hello  \n\

Hello!

> Tokens: 500 sent, 12k received. Cost: $0.01 message, $0.02 session.  \n\
"""
EMPTY = """
# aider chat started at 2025-11-03 09:00:00

> Aider v0.86.1  \n\
> Git repo: none  \n\
"""


@pytest.fixture(autouse=True)
def _no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIDER_CHAT_HISTORY_FILE", raising=False)


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    return open_workspace_at_root(workspace_root)


@pytest.fixture
def history(workspace: Workspace) -> Path:
    return workspace.root / ".aider.chat.history.md"


def find(workspace: Workspace, format_: AiderFormat | None = None) -> dict[str, str]:
    found, problems = (format_ or AiderFormat()).find_stored_conversations(workspace)
    assert problems == []
    return {one.id: one.signature for one in found}


def load(workspace: Workspace, conversation_id: str) -> Conversation:
    format_ = AiderFormat()
    [found] = format_.find_stored_conversations(workspace, conversation_id)[0]
    return format_.load_conversation(found.read_conversation_info())


def infos(workspace: Workspace, format_: AiderFormat) -> dict[str, ConversationInfo]:
    found = format_.find_stored_conversations(workspace)[0]
    return {one.id: one.read_conversation_info() for one in found}


def test_without_a_file_there_is_nothing(workspace: Workspace) -> None:
    assert AiderFormat().find_stored_conversations(workspace) == ([], [])
    assert AiderFormat().list_watched_files(workspace) == [
        workspace.root / ".aider.chat.history.md"
    ]
    assert AiderFormat().list_watched_directories(workspace) == []


def test_one_file_has_many_sessions(workspace: Workspace, history: Path) -> None:
    history.write_text(FIRST + EMPTY + SECOND)
    format_ = AiderFormat()
    found = infos(workspace, format_)
    assert list(found) == ["aider-2025-11-02T14-03-09", "aider-2025-11-03T10-00-00"]
    first, second = found.values()
    assert (first.title, second.title) == ("make foo faster", "hello")
    assert first.created_at == datetime(2025, 11, 2, 14, 3, 9).astimezone()
    assert second.updated_at is not None
    assert second.updated_at.timestamp() == pytest.approx(history.stat().st_mtime)
    loaded = format_.load_conversation(second)
    assert loaded.info.last_event_at == second.last_event_at == second.updated_at
    assert first.last_event_at is None  # aider writes no times
    assert first.size == len(FIRST.strip().encode())
    assert first.working_directory == str(workspace.root)
    assert first.problem is None


def test_a_session_with_an_invalid_date_began_after_the_one_before_it(
    workspace: Workspace, history: Path
) -> None:
    invalid = "# aider chat started at 2025-99-99 03:04:05\n\n#### what  \n\nthat\n"
    history.write_text(f"{FIRST}\n{invalid}{SECOND}")
    found = infos(workspace, AiderFormat())
    first, other, _ = found.values()
    assert other.id == "aider-2025-99-99T03-04-05"
    assert other.created_at == first.created_at
    [turn] = load(workspace, other.id).turns
    assert [event.text for event in turn.events] == ["what", "that"]
    history.write_text(f"\n{invalid}{SECOND}")
    other, _ = infos(workspace, AiderFormat()).values()
    assert other.created_at.timestamp() == pytest.approx(history.stat().st_mtime)


def test_a_session_is_read_as_turns(workspace: Workspace, history: Path) -> None:
    history.write_text(FIRST + SECOND)
    conversation = load(workspace, "aider-2025-11-02T14-03-09")
    assert conversation.problems == []
    first, second = conversation.turns
    assert [event.kind for event in first.events] == [
        "chat_request",
        "tool_call_response",
        "tool_call_response",
    ]
    assert first.started_at == conversation.info.created_at
    assert [event.kind for event in second.events] == [
        "chat_request",
        "message",
        "tool_call_response",
        "inquiry_request",
        "inquiry_response",
        "tool_call_response",
    ]
    request, reply, output, question, answer, report = second.events
    assert request.text == "make foo faster\nand nicer"
    assert reply.text.startswith("Sure:\n\n#### A heading in a reply\n\n> a quotation\n")
    assert reply.text.endswith("x = 1\n```")
    assert output.text == "Applied edit to foo.py\npytest"
    assert question.text == "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]:"
    assert (answer.text, answer.request) == ("n", question)
    assert report.text.startswith("Tokens: 2.1k sent")
    assert second.model == "anthropic/claude-sonnet-4"
    assert [event.index for event in second.events] == [3, 4, 5, 6, 7, 8]


def test_the_rounded_tokens_are_added_up(workspace: Workspace, history: Path) -> None:
    history.write_text(FIRST + SECOND + "\n#### more  \n\n> Tokens: 1.5k sent, 1 received.  \n")
    format_ = AiderFormat()
    first, second = [read_token_usage(format_, info) for info in infos(workspace, format_).values()]
    assert first is not None
    assert (first.input_tokens, first.output_tokens, first.cache_read_tokens) == (1100, 300, 1000)
    assert (first.total_tokens, first.is_estimate) == (2400, True)
    assert second is not None
    assert (second.input_tokens, second.output_tokens) == (2000, 12001)


def test_without_a_report_there_is_no_usage() -> None:
    builder = TurnBuilder()
    parse_aider_session_text("#### hello  \n\nTokens: 5 sent, 6 received.\n", builder, None)
    assert [turn.usage for turn in builder.turns] == [{}]


def test_a_later_session_does_not_change_the_earlier_ones(
    workspace: Workspace, history: Path
) -> None:
    format_ = AiderFormat()
    history.write_text(FIRST)
    before = find(workspace, format_)
    with history.open("a") as file:
        file.write(SECOND)
    after = find(workspace, format_)
    assert {id_: after[id_] for id_ in before} == before
    with history.open("a") as file:
        file.write("\n#### once more  \n")
    grown = find(workspace, format_)
    changed = [id_ for id_ in grown if grown[id_] != after[id_]]
    assert changed == ["aider-2025-11-03T10-00-00"]
    assert grown == find(workspace)


def test_a_file_that_was_written_anew_is_read_anew(workspace: Workspace, history: Path) -> None:
    format_ = AiderFormat()
    history.write_text(FIRST + SECOND)
    assert len(find(workspace, format_)) == 2
    history.write_text(SECOND.replace("hello", "goodbye") + SECOND.replace("11-03", "12-03") * 9)
    assert find(workspace, format_) == find(workspace)
    info = infos(workspace, format_)["aider-2025-11-03T10-00-00"]
    assert info.title == "goodbye"
    history.write_text(FIRST)
    assert "no longer" in format_.load_conversation(info).problems[0]
    assert read_token_usage(format_, info) is None


def test_sessions_of_the_same_second_have_different_ids(
    workspace: Workspace, history: Path
) -> None:
    history.write_text(SECOND + SECOND.replace("hello", "world"))
    format_ = AiderFormat()
    found = infos(workspace, format_)
    assert {id_: info.title for id_, info in found.items()} == {
        "aider-2025-11-03T10-00-00": "hello",
        "aider-2025-11-03T10-00-00-2": "world",
    }
    conversation = format_.load_conversation(found["aider-2025-11-03T10-00-00-2"])
    assert conversation.turns[0].events[0].text == "world"
    assert load(workspace, "aider-2025-11-03T10-00-00-2").turns[0].events[0].text == "world"
    # A process that has not listed the sessions finds them by their ids.
    texts = [AiderFormat().load_conversation(one).turns[0].events[0].text for one in found.values()]
    assert texts == ["hello", "world"]


def test_a_file_belongs_to_one_project(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    (root / "part/.jp").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".aider.chat.history.md").write_text(FIRST)
    (root / "part/.aider.chat.history.md").write_text(SECOND)
    (tmp_path / ".aider.chat.history.md").write_text(SECOND.replace("2025", "2024"))
    for place, id_ in (
        (root, "aider-2025-11-02T14-03-09"),
        (root / "part", "aider-2025-11-03T10-00-00"),
    ):
        found = infos(open_workspace_at_root(place), AiderFormat())
        assert {id_: info.working_directory for id_, info in found.items()} == {id_: str(place)}


def test_the_files_of_other_worktrees_count(tmp_path: Path) -> None:
    root, other = tmp_path / "main", tmp_path / "feature"
    (root / ".jp").mkdir(parents=True)
    git = ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(other)], check=True)
    (root / ".aider.chat.history.md").write_text(SECOND)
    (other / ".aider.chat.history.md").write_text(SECOND.replace("hello", "there"))
    format_ = AiderFormat()
    found = infos(open_workspace_at_root(root), format_)
    assert {id_: info.worktree for id_, info in found.items()} == {
        "aider-2025-11-03T10-00-00": None,
        "aider-2025-11-03T10-00-00-2": "feature",
    }
    loaded = format_.load_conversation(found["aider-2025-11-03T10-00-00-2"])
    assert loaded.turns[0].events[0].text == "there"


def test_the_file_may_have_another_name(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIDER_CHAT_HISTORY_FILE", "logs/chat.md")
    (workspace.root / "logs").mkdir()
    (workspace.root / "logs/chat.md").write_text(SECOND)
    assert list(find(workspace)) == ["aider-2025-11-03T10-00-00"]
    # Sessions of all projects: nothing says which of them belong here.
    (tmp_path / "all.md").write_text(SECOND)
    monkeypatch.setenv("AIDER_CHAT_HISTORY_FILE", str(tmp_path / "all.md"))
    assert find(workspace) == {}


def test_spaces_that_an_editor_removed_are_not_missed(workspace: Workspace, history: Path) -> None:
    lines = (FIRST + SECOND).split("\n")
    history.write_text("\r\n".join(line.rstrip() for line in lines))
    conversation = load(workspace, "aider-2025-11-03T10-00-00")
    assert conversation.turns[0].events[0].text == "hello"
    assert [event.kind for event in conversation.turns[0].events] == [
        "chat_request",
        "tool_call_response",
        "message",
        "tool_call_response",
    ]


def test_a_reply_without_a_request_is_shown(workspace: Workspace, history: Path) -> None:
    history.write_text(
        "# aider chat started at 2025-11-03 10:00:00\n\n> Aider  \n\nI saw a comment."
    )
    conversation = load(workspace, "aider-2025-11-03T10-00-00")
    kinds = [event.kind for event in conversation.turns[0].events]
    assert kinds == ["tool_call_response", "message"]
    assert conversation.info.title is None


def test_the_last_line_of_a_reply_is_no_request(workspace: Workspace, history: Path) -> None:
    history.write_text(SECOND + "\nSee:\n\n#### Notes\n" + SECOND.replace("11-03", "12-03"))
    conversation = load(workspace, "aider-2025-11-03T10-00-00")
    assert len(conversation.turns) == 1
    assert conversation.turns[0].events[-1].text == "See:\n\n#### Notes"


def test_text_without_a_session_is_a_problem(workspace: Workspace, history: Path) -> None:
    history.write_text("just notes")
    found, [problem] = AiderFormat().find_stored_conversations(workspace)
    assert (found, problem.path, problem.is_unreadable) == ([], history, True)
    history.unlink()
    history.mkdir()
    found, [problem] = AiderFormat().find_stored_conversations(workspace)
    assert (found, problem.reason) == ([], "it is not a regular file")
    history.rmdir()
    os.mkfifo(history)
    assert AiderFormat().find_stored_conversations(workspace)[1][0].is_unreadable


def test_an_empty_file_is_no_problem(workspace: Workspace, history: Path) -> None:
    history.touch()
    assert find(workspace) == {}


def test_a_file_cut_anywhere_is_read(workspace: Workspace, history: Path) -> None:
    data = (FIRST + SECOND).encode()
    for size in range(0, len(data), 2):
        history.write_bytes(data[:size])
        format_ = AiderFormat()
        for one in format_.find_stored_conversations(workspace)[0]:
            conversation = format_.load_conversation(one.read_conversation_info())
            assert conversation.problems == []
            assert conversation.turns


def test_flipped_bytes_are_read(workspace: Workspace, history: Path) -> None:
    data = (FIRST + SECOND).encode()
    for position in range(0, len(data), 3):
        history.write_bytes(data[:position] + bytes([data[position] ^ 0xAA]) + data[position + 1 :])
        format_ = AiderFormat()
        for one in format_.find_stored_conversations(workspace)[0]:
            info = one.read_conversation_info()
            assert info.problem is None
            format_.load_conversation(info)


@pytest.mark.parametrize(
    ("requests", "title"),
    [
        (["/add foo.py", "<blank>", "/ask how fast is it?", "other"], "how fast is it?"),
        (["/add foo.py", "!ls", "make it fast"], "make it fast"),
        (["/add foo.py", "/drop"], "/add foo.py"),
    ],
)
def test_a_command_is_no_title(
    workspace: Workspace, history: Path, requests: list[str], title: str
) -> None:
    lines = "".join(f"\n#### {request}  \n" for request in requests)
    history.write_text(f"# aider chat started at 2025-11-03 10:00:00\n\n{lines}")
    [info] = infos(workspace, AiderFormat()).values()
    assert info.title == title


def test_hostile_text_stays(workspace: Workspace, history: Path) -> None:
    history.write_text(SECOND.replace("hello", "\x1b[31m../\u202ehello\x00"))
    conversation = load(workspace, "aider-2025-11-03T10-00-00")
    assert conversation.turns[0].events[0].text == "\x1b[31m../\u202ehello\x00"


def test_an_impossible_time_is_no_error(workspace: Workspace, history: Path) -> None:
    history.write_text(
        SECOND.replace("2025-11-03", "2025-99-99") + SECOND.replace("2025-11-03", "0001-01-01")
    )
    found = infos(workspace, AiderFormat())
    assert list(found) == ["aider-2025-99-99T10-00-00", "aider-0001-01-01T10-00-00"]
    assert [info.problem for info in found.values()] == [None, None]


LINES = st.sampled_from(
    [
        "#### hello  ",
        "####",
        "####   ",
        "> out  ",
        ">",
        "> Main model: x",
        "> Tokens: 1k sent, 9.9.9k received  ",
        "> Tokens: 99999999999999999999M sent, 1 received",
        "> Ok? (Y)es/(N)o [Yes]: y  ",
        "",
        "text",
        "  > indented",
    ]
) | st.text(max_size=8)


@given(st.lists(LINES, max_size=12))
def test_any_text_is_read(lines: list[str]) -> None:
    text = "\n".join(lines)
    builder = TurnBuilder()
    parse_aider_session_text(text, builder, None)
    assert builder.problems == []
    shown = "".join(event.text for turn in builder.turns for event in turn.events)
    assert [word for word in ("hello", "out", "text") if word in text and word not in shown] == []
