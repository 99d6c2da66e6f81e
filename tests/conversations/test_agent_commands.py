"""What agents can do with a conversation: the words, the directory, and nothing that a shell would run."""

import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Builder

from kbtui.conversations.agent_commands_for_conversations import (
    list_agent_commands_for_conversation,
    make_agent_command_for_conversation,
    run_agent_command,
)
from kbtui.conversations.conversation_data_types import ConversationInfo
from kbtui.conversations.formats.stored_session import make_conversation_id
from kbtui.errors import KbtuiError, NothingFound


def info(agent: str, id_: str, directory: str | None, archived: bool = False) -> ConversationInfo:
    return ConversationInfo(
        id=id_,
        title=None,
        directory=Path("/nowhere"),
        events_path=None,
        base_config_path=None,
        archived=archived,
        presence=None,
        created_at=datetime(2026, 5, 1, tzinfo=UTC),
        agent=agent,
        working_directory=directory,
    )


@pytest.fixture
def builder(workspace_root: Path) -> Builder:
    return Builder(workspace_root)


@pytest.mark.parametrize(
    ("agent", "id_", "expected"),
    [
        (
            "jp",
            "jp-c17800000001",
            [
                "jp q --id jp-c17800000001",
                "jp c fork jp-c17800000001 --first 3 --activate",
                "jp q --new --attachment jp://jp-c17800000001?select=u,a:3",
            ],
        ),
        (
            "claude-code",
            "claude-258c7280-241a-462a-8d15-5122611a9569",
            [
                "claude --resume 258c7280-241a-462a-8d15-5122611a9569",
                "claude --resume 258c7280-241a-462a-8d15-5122611a9569 --fork-session",
            ],
        ),
        ("codex", "codex-0199812e-1", ["codex resume 0199812e-1", "codex fork 0199812e-1"]),
        ("gemini-cli", "gemini-0199812e-1", ["gemini --resume 0199812e-1"]),
        (
            "opencode",
            "opencode-ses_12345678",
            ["opencode --session ses_12345678", "opencode --session ses_12345678 --fork"],
        ),
        ("aider", "aider-2026-05-01-10-00-00", ["aider --restore-chat-history"]),
        ("llm", "llm-01jabcdefgh", ["llm chat --conversation 01jabcdefgh"]),
    ],
)
def test_each_agent_has_its_own_commands_and_runs_in_the_conversations_directory(
    builder: Builder, agent: str, id_: str, expected: list[str]
) -> None:
    directory = None if agent == "jp" else "/my projects/shop"
    found = list_agent_commands_for_conversation(builder.workspace, info(agent, id_, directory), 3)
    assert [" ".join(command.words) for command in found] == expected
    root = str(builder.root) if agent == "jp" else "/my projects/shop"
    assert {command.directory for command in found} == {root}


def test_an_archived_jp_conversation_says_how_to_restore_it(builder: Builder) -> None:
    with pytest.raises(NothingFound) as raised:
        make_agent_command_for_conversation(
            builder.workspace, info("jp", "jp-c17800000001", None, archived=True), None, "resume"
        )
    assert "jp c unarchive jp-c17800000001" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("own", "directory", "reason"),
    [
        ("0199812e-1", "/a\x1bb", "that a terminal does not show"),
        ("0199812e-1", "a/b", "not an absolute path"),
        ("--help", "/a", "could be mistaken for an option"),
    ],
)
def test_a_command_that_is_not_offered_says_why(
    builder: Builder, own: str, directory: str, reason: str
) -> None:
    made = info("codex", make_conversation_id("codex-", own), directory)
    assert list_agent_commands_for_conversation(builder.workspace, made, None) == []
    with pytest.raises(NothingFound) as raised:
        make_agent_command_for_conversation(builder.workspace, made, None, "resume")
    assert reason in str(raised.value.hint)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    own=st.text(min_size=1) | st.sampled_from(["--help", "-x", "$(id)", "a;b", "a b", "a\nb", "'"]),
    directory=st.text().map("/".__add__) | st.sampled_from(["relative", "/a'b", "/a\nb", "/$(id)"]),
    agent=st.sampled_from(
        ["claude-code claude-", "codex codex-", "opencode opencode-", "llm llm-"]
    ),
)
def test_no_id_and_no_directory_becomes_a_shell_command_or_an_option(
    builder: Builder, own: str, directory: str, agent: str
) -> None:
    name, prefix = agent.split()
    made = info(name, make_conversation_id(prefix, own), directory)
    for command in list_agent_commands_for_conversation(builder.workspace, made, 1):
        line = command.shell_command
        assert line.isprintable()
        # What a shell reads is what would be run without a shell.
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        assert list(lexer) == ["cd", directory, "&&", *command.words]
        assert directory.startswith("/")
        assert own in command.words
        assert not own.startswith("-")


def test_a_directory_that_is_gone_and_a_missing_program_are_errors_and_nothing_runs(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    made = info("codex", "codex-0199812e-1", str(tmp_path / "gone"))
    [command, _] = list_agent_commands_for_conversation(builder.workspace, made, None)
    with pytest.raises(KbtuiError, match="no longer exists"):
        run_agent_command(command)
    with pytest.raises(KbtuiError, match="not installed"):
        run_agent_command(command._replace(directory=str(tmp_path)))


def test_a_program_in_the_conversations_directory_is_not_run(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    trap = foreign / "codex"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    monkeypatch.setenv("PATH", ".")
    monkeypatch.chdir(tmp_path)
    [command, _] = list_agent_commands_for_conversation(
        builder.workspace, info("codex", "codex-0199812e-1", str(foreign)), None
    )
    with pytest.raises(KbtuiError, match="not installed"):
        run_agent_command(command)
    assert not (tmp_path / "sprung").exists()
