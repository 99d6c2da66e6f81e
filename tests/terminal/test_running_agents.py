"""Going on with a conversation in its agent: nothing runs before a yes, and the terminal comes back."""

import base64
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from claude_sessions import answered, session_id, typed, write_session
from pty_support import Terminal
from running import on_terminal, run_command
from support import Builder, asked, kill_engine, said

SESSION = session_id(1)


class StandIns:
    """Programs with the names of agents, which record their directory and their arguments."""

    def __init__(self, directory: Path) -> None:
        self.record = directory / "record"
        for name in ("claude", "jp"):
            program = directory / name
            program.write_text(
                f'#!/bin/sh\nprintf \'%s\\n\' {name} "$PWD" "$@" >> "{self.record}"\n'
                "test -t 0 && test -t 1 || exit 9\n"
                'printf "AGENT READY\\n"; read word; test "$word" = bye || exit 7\n'
            )
            program.chmod(0o755)

    @property
    def runs(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return StandIns(directory)


@pytest.fixture
def built(workspace_root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.conversation(1, [[asked("First?"), said("One.")], [asked("Second?"), said("Two.")]])
    write_session(home, workspace_root, SESSION, [typed("Hello"), answered("Hi.")])
    yield builder
    kill_engine(builder)


def test_a_key_copies_the_command_and_another_runs_it_after_a_yes(
    built: Builder, agents: StandIns
) -> None:
    terminal = Terminal(["-w", str(built.root), "open", "jp-c17800000001:2"], columns=160)
    terminal.until("Two.")
    terminal.keys("R")
    terminal.until("fork after turn 2")
    terminal.keys("f")
    terminal.until("Copied cd")
    copied = re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)", terminal.raw)
    fork = ["c", "fork", "jp-c17800000001", "--first", "2", "--activate"]
    command = f"cd {shlex.quote(str(built.root))} && {shlex.join(['jp', *fork])}"
    assert [base64.b64decode(one).decode() for one in copied] == [command]
    for answer in ("\x1b", "y"):
        terminal.keys("R")
        terminal.until("fork after turn 2")
        terminal.keys("F")
        terminal.until("run it")
        assert agents.runs == []
        terminal.keys(answer)
        # In place of the question: the screen again, or the program.
        terminal.until("AGENT READY" if answer == "y" else lambda shown: "run it" not in shown)
    terminal.keys("bye\r")
    terminal.until("has exited")
    assert agents.runs == ["jp", str(built.root), *fork]
    assert "Two." in terminal.read()
    terminal.keys("q")
    assert terminal.leave() == 0


def test_the_command_prints_by_default_and_runs_after_a_yes(
    built: Builder, agents: StandIns
) -> None:
    words = ["-w", str(built.root), "conversation", "resume"]
    printed = run_command(*words, f"claude-{SESSION[:8]}")
    directory = shlex.quote(str(built.root))
    assert printed.stdout == f"cd {directory} && claude --resume {SESSION}\n"
    printed = run_command(*words, "jp-c17800000001:2", "--attach")
    link = "jp://jp-c17800000001?select=u,a:2"
    assert printed.stdout == f"cd {directory} && jp q --new --attachment '{link}'\n"
    printed = run_command(*words, f"claude-{SESSION[:8]}:1", "--fork")
    assert printed.stdout.endswith(f" && claude --resume {SESSION} --fork-session\n")
    assert "has all turns" in printed.stderr
    assert "turn 2 is ignored" in run_command(*words, "jp-c17800000001:2").stderr
    assert run_command(*words, f"claude-{SESSION[:8]}", "--attach").returncode == 1
    assert run_command(*words, "jp-c17800000001:9", "--fork").returncode == 1
    assert run_command(*words, "jp-c17800000001", "--run").returncode == 2
    _, code = on_terminal([*words, "jp-c17800000001", "--run"], b"n\n")
    assert (code, agents.runs) == (0, [])
    out, code = on_terminal([*words, f"claude-{SESSION[:8]}", "--run"], b"y\nbye\n")
    assert b"AGENT READY" in out
    assert (code, agents.runs) == (0, ["claude", str(built.root), "--resume", SESSION])
    _, code = on_terminal([*words, "jp-c17800000001", "--run", "--yes"], b"no\n")
    assert code == 7
