"""The installed command in a real pseudo-terminal: start, ask, open, leave, terminal restored."""

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from claude_sessions import answered, session_id, typed, write_session
from pty_support import COMMAND, Terminal
from support import Builder, asked, called, kill_engine, said


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"})
    builder.subject("guide/start.md", "# Getting started\n\nThe aardvark wakes first.\n")
    builder.conversation(
        1,
        [
            [
                asked("Who wakes?"),
                *called("a", "learn", "x", topic="guide", subjects="start"),
                said("The wombat wakes at dusk."),
            ]
        ],
        title="Waking order",
    )
    yield builder
    kill_engine(builder)


def test_start_type_a_query_see_the_right_hit_open_it_and_leave(built: Builder) -> None:
    terminal = Terminal(["-w", str(built.root)])
    terminal.until(lambda shown: "The Guide" in shown and "Waking order" in shown)
    terminal.until("keywords only")
    terminal.keys("/")
    terminal.keys("wombat dusk q")
    terminal.until(lambda shown: "wombat dusk q" in shown and "turn 1 · 28 May" in shown)
    terminal.keys("\r")
    opened = terminal.until(
        lambda shown: "The wombat wakes at dusk." in shown and "turn 1 of 1" in shown
    )
    assert "Waking order" in opened
    terminal.keys("\x1b")
    time.sleep(0.3)
    terminal.keys("q")
    assert terminal.leave() == 0
    # The alternate screen was left, the cursor is back, the mouse is let go.
    for entered, left in (
        (b"\x1b[?1049h", b"\x1b[?1049l"),
        (b"\x1b[?25l", b"\x1b[?25h"),
        (b"\x1b[?1000h", b"\x1b[?1000l"),
    ):
        assert terminal.raw.count(entered) >= 1
        assert terminal.raw.rfind(left) > terminal.raw.rfind(entered)


def test_a_find_begun_at_the_first_paint_searches_the_document_that_opens(built: Builder) -> None:
    terminal = Terminal(["-w", str(built.root), "open", "jp-c17800000001"])
    terminal.until("Search topics")
    terminal.keys("fdusk")
    terminal.until("1 of 1")
    terminal.keys("\x1b")
    time.sleep(0.3)
    terminal.keys("q")
    assert terminal.leave() == 0


def test_what_is_saved_meanwhile_shows_without_a_key(built: Builder) -> None:
    terminal = Terminal(["-w", str(built.root)])
    terminal.until("keywords only")
    built.subject("guide/later.md", "# Added later\n\nA fresh numbat.\n")
    terminal.until("later")
    terminal.keys("/")
    terminal.keys("numbat")
    terminal.until("guide/later")
    terminal.keys("\x1b")
    time.sleep(0.3)
    terminal.keys("q")
    assert terminal.leave() == 0


def test_a_session_of_another_agent_is_followed_while_it_is_written(
    built: Builder, home: Path
) -> None:
    records = [typed("Who sleeps?"), answered("The dormouse sleeps.")]
    path = write_session(home, built.root, session_id(1), records)
    terminal = Terminal(["-w", str(built.root), "open", f"claude-{session_id(1)[:8]}"])
    terminal.until("The dormouse sleeps.")
    terminal.until("keywords only")
    line = json.dumps({**answered("The marmot sleeps longer."), "sessionId": session_id(1)})
    with path.open("a") as file:
        file.write(line[:40])
        file.flush()
        time.sleep(1)
        file.write(f"{line[40:]}\n")
        file.flush()
        terminal.until("The marmot sleeps longer.")
    terminal.keys("q")
    assert terminal.leave() == 0


@pytest.mark.parametrize(("columns", "lines"), [(40, 10), (20, 5), (200, 60)])
def test_any_size_of_terminal_works(built: Builder, columns: int, lines: int) -> None:
    terminal = Terminal(["-w", str(built.root)], columns, lines)
    terminal.until(lambda shown: bool(shown.strip()))
    terminal.keys("q")
    assert terminal.leave() == 0


def test_a_pipe_instead_of_a_terminal_is_told_what_to_use(built: Builder) -> None:
    import subprocess

    done = subprocess.run(
        [COMMAND, "-w", str(built.root)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2
    assert "kbtui search" in done.stderr


def test_a_file_as_workspace_is_refused_with_its_directory(built: Builder) -> None:
    file = built.root / "notes.md"
    file.touch()
    terminal = Terminal(["-w", str(file)])
    terminal.child.wait()
    terminal.read()
    said = terminal.raw.decode()
    assert f"{file}: this is a file, not a directory" in said
    assert f"give its directory: -w {shlex.quote(str(file.parent))}" in said
    assert b"\x1b[?1049h" not in terminal.raw
    terminal.child.close()
    assert terminal.child.exitstatus == 3


def test_a_missing_workspace_is_said_before_anything_is_drawn(tmp_path: Path) -> None:
    terminal = Terminal(["-w", str(tmp_path / "none")])
    terminal.child.wait()
    terminal.read()
    # As it was written: where the terminal wraps it depends on the length of the path before it.
    assert "no such directory" in terminal.raw.decode()
    assert b"\x1b[?1049h" not in terminal.raw
    terminal.child.close()
    assert terminal.child.exitstatus == 3


def test_a_killed_engine_is_replaced_while_one_reads(built: Builder) -> None:
    import psutil

    from kbtui.engine.engine_launcher import read_engine_lock_file

    terminal = Terminal(["-w", str(built.root)])
    terminal.until("keywords only")
    found = read_engine_lock_file()
    assert found
    psutil.Process(found["pid"]).send_signal(signal.SIGKILL)
    time.sleep(0.5)
    built.subject("guide/after.md", "# After the fall\n\nThe quokka smiles.\n")
    terminal.until("after", 30)
    terminal.keys("/")
    terminal.keys("quokka")
    terminal.until("guide/after", 30)
    terminal.keys("\x1b")
    time.sleep(0.3)
    terminal.keys("q")
    assert terminal.leave() == 0


@pytest.mark.parametrize(
    ("signals", "code"),
    [(signal.SIG_DFL, -signal.SIGHUP), (signal.SIG_IGN, 128 + signal.SIGHUP)],
    ids=["as usual", "below nohup"],
)
def test_it_ends_when_its_terminal_is_closed_without_a_signal(
    built: Builder, signals: signal.Handlers, code: int
) -> None:
    import os
    import pty

    master, slave = pty.openpty()
    # Not in a session of its own: nobody sends SIGHUP when the terminal goes.
    child = subprocess.Popen(
        [COMMAND, "-w", str(built.root)],
        stdin=slave, stdout=slave, stderr=slave, close_fds=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signals),
    )  # fmt: skip
    os.close(slave)
    shown = b""
    while b"\x1b[?1049h" not in shown:
        shown += os.read(master, 65536)
    os.close(master)
    try:
        assert child.wait(60) == code
    finally:
        child.kill()
