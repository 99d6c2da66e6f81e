"""Files that kbtui creates outside the workspace are private, whatever the umask is."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Builder, asked, kill_engine, said

NOTHING_SET = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


@pytest.fixture
def built(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """A workspace and a home directory without any XDG directory."""
    for variable in NOTHING_SET:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(tmp_path / "ws")
    builder.topics(project={})
    builder.subject("project/a.md", "# Heron\n\nHerons wade.\n")
    builder.conversation(0, [[asked("What wades?"), said("A heron.")]])
    yield builder
    kill_engine(builder)


def run(root: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kbtui.cli.main", "-w", str(root), *words],
        capture_output=True, text=True, timeout=100, check=False, umask=0,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def open_to_others(folder: Path) -> list[str]:
    return [
        f"{stat.S_IMODE(path.lstat().st_mode):o} {path.relative_to(folder)}"
        for path in sorted(folder.rglob("*"))
        if not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]


def test_nothing_is_open_to_others_under_an_open_umask(built: Builder, home: Path) -> None:
    run(built.root, "index")
    assert "Herons wade" in run(built.root, "search", "heron")
    assert "keywords: ready" in run(built.root, "engine", "status")
    made = {path.name for path in (home / "home").rglob("*")}
    assert {".cache", ".local", "catalog.sqlite", "engine.lock"} <= made
    assert any(name.endswith(".log") for name in made)
    assert open_to_others(home / "home") == []


def test_the_copy_of_the_demo_is_as_private(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbtui.cli.tui_start_commands import copy_demo_workspace

    for variable in NOTHING_SET:
        monkeypatch.delenv(variable)
    umask = os.umask(0)
    try:
        assert (copy_demo_workspace() / ".jp/kb.toml").exists()
    finally:
        os.umask(umask)
    assert open_to_others(home / "home") == []
