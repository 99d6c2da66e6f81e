"""What TAB offers in a hostile workspace: a shell shows it as it is, so nothing of it may command."""

import shlex
from pathlib import Path

import pytest
from hostile import CANARY, hostile_workspace
from terminal_grammar import parse

from kbtui.cli.completion_engine import answer

WORDS = [
    ["show", "bad/"], ["show", ""], ["learn", ""], ["learn", "bad", ""], ["topics", ""], ["cites", ""],
    ["entry", "edit", "bad/"], ["source", "run", ""], ["search", "--topic", ""], ["c", "read", ""],
]  # fmt: skip


@pytest.mark.parametrize("policy", ["strip", "off"])
def test_nothing_that_is_offered_commands_the_terminal(
    workspace_root: Path, home: Path, capfdbinary: pytest.CaptureFixture[bytes], policy: str
) -> None:
    (home / "config/kbtui").mkdir()
    (home / "config/kbtui/config.toml").write_text(f'terminal_text = "{policy}"\n')
    root = str(hostile_workspace(workspace_root).root)
    offered = 0
    for words in WORDS:
        line = " ".join(["kbtui", "-w", shlex.quote(root), *words])
        for call in (["zsh", "kbtui", "-w", root, *words], ["bash", line, " \t\n\"'@><=;|&(:"]):
            assert answer(call) == 0
            shown = capfdbinary.readouterr().out
            assert CANARY.encode() not in shown
            list(parse(shown.replace(b"\n", b"\r\n"), screen=False))
            offered += shown.count(b"\n") - 1
    assert offered > 40
