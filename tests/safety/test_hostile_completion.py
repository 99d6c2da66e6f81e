"""What TAB offers in a hostile workspace: a shell shows it as it is, so nothing of it may command."""

import shlex
from pathlib import Path

import pytest
from hostile import CANARY, hostile_workspace
from running import complete_line
from terminal_grammar import parse

WORDS = [
    ["show", "bad/"], ["show", ""], ["learn", ""], ["learn", "bad", ""], ["topics", ""], ["cites", ""],
    ["entry", "edit", "bad/"], ["source", "run", ""], ["search", "--topic", ""], ["c", "read", ""],
]  # fmt: skip


@pytest.mark.parametrize("policy", ["strip", "off"])
def test_nothing_that_is_offered_commands_the_terminal(
    workspace_root: Path, home: Path, policy: str
) -> None:
    (home / "config/kbtui").mkdir()
    (home / "config/kbtui/config.toml").write_text(f'terminal_text = "{policy}"\n')
    root = str(hostile_workspace(workspace_root).root)
    offered = 0
    for words in WORDS:
        line = " ".join(["kbtui", "-w", shlex.quote(root), *words])
        for shell in ("fish", "bash"):
            shown = complete_line(line, shell, " \t\n\"'@><=;|&(:").encode()
            assert CANARY.encode() not in shown
            list(parse(shown.replace(b"\n", b"\r\n"), screen=False))
            offered += len(shown.splitlines())
    assert offered > 40
