"""Entries written from the TUI in a real terminal: an editor that has it, the engine that sees the file."""

import shlex
import stat
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from pty_support import Terminal
from support import Builder, kill_engine


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"})
    builder.subject("guide/start.md", "# Getting started\n\nThe aardvark wakes first.\n")
    yield builder
    kill_engine(builder)


@pytest.mark.slow
def test_an_editor_gets_the_terminal_and_what_it_wrote_is_listed(
    built: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # An editor as people know them: it wants a terminal, and waits for a key.
    program = tmp_path / "my-editor"
    program.write_text(
        textwrap.dedent(
            f"""\
            #!{sys.executable}
            import sys
            assert sys.stdin.isatty() and sys.stdout.isatty()
            print("EDITING", flush=True)
            word = sys.stdin.readline().strip()
            with open(sys.argv[1], "a") as file:
                file.write(f"Said in the editor: {{word}}\\n")
            """
        )
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", shlex.quote(str(program)))
    monkeypatch.delenv("VISUAL", raising=False)
    terminal = Terminal(["-w", str(built.root)])
    terminal.until("The Guide")
    terminal.until("keywords only")
    terminal.keys("E")
    terminal.until("1 entry")
    terminal.keys("+")
    terminal.until("New entry")
    terminal.keys("Retry policy")
    terminal.keys("\x13")
    terminal.until("EDITING")
    terminal.keys("hippopotamus\r")
    terminal.until(lambda shown: "2 entries" in shown and "Created guide/retry-policy" in shown)
    terminal.keys("q")
    terminal.until("quit")
    terminal.keys("q")
    assert terminal.leave() == 0
    text = (built.root / "docs/guide/retry-policy.md").read_text()
    assert text.startswith("---\ntitle: Retry policy\n")
    assert text.endswith("Said in the editor: hippopotamus\n")


def test_an_editor_that_fails_gives_the_screen_back_and_keeps_the_text(
    built: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my-editor"
    program.write_text('#!/bin/sh\necho "A heron." >> "$1"\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("EDITOR", shlex.quote(str(program)))
    monkeypatch.delenv("VISUAL", raising=False)
    terminal = Terminal(["-w", str(built.root)])
    terminal.until("The Guide")
    terminal.until("keywords only")
    terminal.keys("E")
    terminal.until("1 entry")
    terminal.keys("+")
    terminal.until("New entry")
    terminal.keys("Retry policy")
    terminal.keys("\x13")
    # The message begins with the editor's path, and where it wraps depends on the path's length.
    terminal.until(lambda shown: "the editor failed with exit code 3" in " ".join(shown.split()))
    terminal.keys("q")
    terminal.until("quit")
    terminal.keys("q")
    assert terminal.leave() == 0
