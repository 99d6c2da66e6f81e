"""A mistake of kbtui's own is told as Python tells it, and what it quotes commands no terminal."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import Builder
from terminal_grammar import parse

from kbtui.assistant.assistant_tools import answer_tool_call
from kbtui.library import Library
from kbtui.workspace import Settings

QUOTED = "what \x1b]0;K4N4RY\x07a \x9b31mfile\u202e said\x1b"
CRASH = f"""
import sys
from kbtui.cli import topics_learn_and_prompt_commands
from kbtui.cli.main import main
def run(args):
    raise RuntimeError({QUOTED!r})
topics_learn_and_prompt_commands.run_topics_command = run
sys.argv = ["kbtui", "topics"]
sys.exit(main())
"""


def said_safely(text: bytes) -> str:
    return "".join(
        part for kind, part in parse(text.replace(b"\n", b"\r\n"), screen=False) if kind == "text"
    )


def test_a_crash_of_a_command_is_told_safely(workspace_root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH], cwd=workspace_root, capture_output=True, check=False, timeout=100
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == b""
    told = said_safely(done.stderr)
    assert "RuntimeError: what a file said" in told
    assert "in run" in told
    assert "K4N4RY" not in told.partition("RuntimeError: ")[2]


def test_a_crash_within_a_call_is_told_safely(
    workspace_root: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    library = Library(Builder(workspace_root).workspace, Settings(model="off"))

    def broken() -> None:
        raise RuntimeError(QUOTED)

    monkeypatch.setattr(library, "load_knowledge", broken)
    assert "K4N4RY" not in answer_tool_call("learn", {"topic": "guide"}, library).text
    assert "RuntimeError: what a file said" in said_safely(capfdbinary.readouterr().err)
