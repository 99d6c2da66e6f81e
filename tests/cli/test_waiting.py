"""Tests that commands show what they wait for, and that Ctrl+C ends them cleanly."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import psutil
import pytest
from support import Builder, asked, end_engine

from kbtui.cli.cli_output import StderrWaitIndicator, format_time_left
from kbtui.cli.main import main
from kbtui.engine.engine_launcher import read_engine_lock_file


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """Build a workspace whose engine runs and does not answer."""
    monkeypatch.setenv("KBTUI_MODEL", "off")
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "120")
    builder = Builder(tmp_path / "ws")
    builder.topics(notes={})
    builder.subject("notes/plain.md", "# Plain\n\nText.\n")
    builder.conversation(1, [[asked("One?")]])
    assert main(["index", "-w", str(builder.root)]) == 0
    found = read_engine_lock_file()
    assert found is not None
    engine = psutil.Process(found["pid"])
    engine.suspend()
    yield builder
    engine.resume()
    end_engine(builder)


def started(builder: Builder, *words: str, model: str | None = None) -> pexpect.spawn:
    command = ["-m", "kbtui.cli.main", *words, "-w", str(builder.root)]
    environment = {name: value for name, value in os.environ.items() if name != "KBTUI_MODEL"}
    if model is not None:
        environment["KBTUI_MODEL"] = model
    return pexpect.spawn(
        sys.executable,
        command,
        env=environment,
        encoding="utf-8",
        timeout=60,
        dimensions=(24, 80),
        # What a shell starts in the background ignores Ctrl+C, and so does all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


WAITING = {
    "search text": "searching … ",
    "entries": "bringing the index up to date … ",
    "index": None,
    "engine status": None,
}


def test_who_waits_for_the_engine_says_so_and_can_be_interrupted(stopped: Builder) -> None:
    for line, said in WAITING.items():
        child = started(stopped, *line.split())
        if said is not None:
            child.expect_exact(said)
        else:
            wait_for_connection(child.pid)
        child.sendintr()
        child.expect(pexpect.EOF)
        child.close()
        assert interrupted(child), (line, child.before)
        assert "Traceback" not in child.before
        if said is not None:
            assert "\r\x1b[K" in child.before  # the line is taken away

    found = read_engine_lock_file()
    assert found is not None
    psutil.Process(found["pid"]).resume()
    child = started(stopped, "index", "--watch", model="off")
    child.expect_exact("watching for changes; press Ctrl+C to stop")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert interrupted(child)
    assert "Traceback" not in child.before


def interrupted(child: pexpect.spawn) -> bool:
    """Whether a process ended with what a shell reports as 130.

    Python ends itself by the signal in place of the code where Ctrl+C came in one of its own
    `exec`s (as a dataclass is made), caught or not.
    """
    return child.exitstatus == 130 or child.signalstatus == signal.SIGINT


def wait_for_connection(pid: int) -> None:
    """Wait until a process has started and asks the engine."""
    for _ in range(600):
        if psutil.Process(pid).net_connections("unix"):
            return
        time.sleep(0.1)
    raise AssertionError("it never asked")


@pytest.mark.parametrize("words", [["-w", "", "topics"], ["topics", "-w", ""]])
def test_an_empty_path_is_no_workspace(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "the path is empty" in capsys.readouterr().err


def test_nothing_is_said_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with StderrWaitIndicator("waiting"):
        time.sleep(0.7)  # longer than what is not worth a word
    assert capfd.readouterr() == ("", "")


def test_an_estimate_is_no_more_exact_than_it_can_be() -> None:
    assert format_time_left(4.2) == "a few seconds left"
    assert format_time_left(33) == "about 30 s left"
    assert format_time_left(200) == "about 3 min left"
