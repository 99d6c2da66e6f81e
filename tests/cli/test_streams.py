"""Tests with closed standard streams, and in locales without most characters."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder, kill_engine

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
KBTUI = f"'{sys.executable}' -m kbtui.cli.main"


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "Größen"})
    builder.subject("guide/one.md", "# Größe · eins\n\nEin Otter wächst.\n")
    yield builder
    kill_engine(builder)


def shell(builder: Builder, command: str, **more: str) -> tuple[bytes, int]:
    done = subprocess.run(
        command,
        shell=True,
        cwd=builder.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=110,
        env={**os.environ, **more},
    )
    return done.stdout, done.returncode


@pytest.mark.parametrize(
    ("redirected", "code"),
    [("nonsense 2>&-", 2), ("topics >&-", 3), ("tui <&-", 2), ("topics <&- >&- 2>&-", 3)],
)
def test_only_a_result_that_cannot_be_printed_changes_the_exit_code(
    built: Builder, redirected: str, code: int
) -> None:
    assert shell(built, f"{KBTUI} {redirected}") == (b"", code)


def test_a_pipe_gets_utf_8_whatever_the_locale_says(
    built: Builder, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "Zwischenspeicher für 索引"))
    assert shell(built, f"{KBTUI} index --no-vectors")[1] == 0
    for command in ("topics", "show guide/one", "search --mode lexical Otter"):
        out, code = shell(built, f"{KBTUI} {command} 2>&1", **ASCII)
        assert (code, "Größe" in out.decode()) == (0, True), command
        assert "the index may be out of date" not in out.decode()  # it found the engine
