"""Tests that wrong arguments and failing outputs give one line and no traceback."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import Builder, end_engine


@pytest.fixture
def builder(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"})
    builder.subject("guide/start.md", "# Getting started\n\nThe aardvark wakes first.\n")
    return builder


def run(builder: Builder, *words: str | bytes) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "kbtui.cli.main", *words],
        cwd=builder.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=30,
        env=os.environ.copy(),
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-w"], "kbtui: -w: a path is missing"),
        (["--json", "topics"], "kbtui: unknown option '--json' before a command"),
        (["learn"], "kbtui: the following arguments are required: TOPIC\n"),
        (["search", "-cache"], "write words that begin with a dash after `--`"),
        (["search", "x", "--limit", "0"], "kbtui: --limit: must be from 1 to 100, not 0"),
        (["search", "x", "--limit", "101"], "kbtui: --limit: must be from 1 to 100, not 101"),
        (["search", "x", "--wait", "-1"], "kbtui: --wait: must be from 0 to 86400 seconds, not -1"),
        (["search", "x", "--wait", "nan"], "--wait: must be from 0 to 86400 seconds, not nan"),
        (["search", "x", "--wait", "inf"], "--wait: must be from 0 to 86400 seconds, not inf"),
        (["search", "x", "--wait", "1e300"], "--wait: must be from 0 to 86400 seconds, not 1e+300"),
        (["entries", "--limit", "501"], "kbtui: --limit: must be from 1 to 500, not 501"),
        (["insights", "--days", "0"], "kbtui: --days: must be from 1 to 3660, not 0"),
        (["show", "guide/start:0"], "kbtui: guide/start:0: 0 is not a valid range of lines"),
        (["show", "guide/start:9-3"], "kbtui: guide/start:9-3: 9-3 is not a valid range of lines"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_named_with_exit_code_2(
    builder: Builder, words: list[str], said: str
) -> None:
    code, out, err = run(builder, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert "\n  hint: " in err or "must be" in err


def test_a_topic_that_does_not_exist_is_nothing_found_and_not_a_result(builder: Builder) -> None:
    code, out, err = run(builder, "show", "nowhere")
    assert (code, out) == (1, "")
    assert 'kbtui: Unknown topic "nowhere".' in err
    assert "- guide (The Guide)" in err


@pytest.mark.parametrize(
    "words", [["entries", b"\xff"], ["cites", b"guide/\xff"]], ids=["entries", "cites"]
)
def test_an_argument_that_is_not_utf8_finds_nothing(
    builder: Builder, words: list[str | bytes]
) -> None:
    code, out, err = run(builder, *words)
    assert (code, out) == (1, "")
    assert "Traceback" not in err
    end_engine(builder)


def redirected(builder: Builder, words: str, how: str) -> tuple[int, str]:
    done = subprocess.run(
        ["sh", "-c", how.format(command=f"{sys.executable} -m kbtui.cli.main {words}")],
        cwd=builder.root,
        stderr=subprocess.PIPE,
        check=False,
        timeout=30,
        env=os.environ.copy(),
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("words", ["topics", "topics --json", "--help"])
def test_an_output_that_takes_no_more_is_said_in_one_line(
    builder: Builder, words: str, tmp_path: Path
) -> None:
    code, err = redirected(
        builder, words, f"ulimit -f 0; {{command}} > {shlex.quote(str(tmp_path))}/out"
    )
    assert code == 3
    assert err == "kbtui: the output cannot be written: file too large\n"


def test_a_result_that_is_lost_in_a_closed_output_is_an_error(builder: Builder) -> None:
    code, err = redirected(builder, "topics", "{command} >&-")
    assert (code, err) == (3, "kbtui: the output cannot be written: it is closed\n")


def test_the_model_switched_off_on_purpose_is_no_fault(builder: Builder) -> None:
    code, out, err = run(builder, "doctor")
    assert code == 0, out + err
    assert "note   model          switched off in the settings, so search uses keywords only" in out


def test_switching_the_model_off_for_one_command_needs_no_engine_without_it(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KBTUI_MODEL")
    assert run(builder, "index", "--no-vectors")[0] == 0
    monkeypatch.setenv("KBTUI_MODEL", "off")
    _, _, err = run(builder, "search", "who gets up before the others")
    assert "the model is switched off" in err
    assert run(builder, "engine", "stop")[0] == 0


def test_in_a_deleted_directory_the_engine_is_found_and_other_commands_say_what_is_wrong(
    builder: Builder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from kbtui.cli.main import main

    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["engine", "status"]) == 1
    assert "no engine is running" in capfd.readouterr().err
    assert main(["search", "aardvark"]) == 3
    assert "the current directory was deleted" in capfd.readouterr().err
