"""The setting `keep`: the engine keeps sessions as it sees them change."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from claude_sessions import answered, session_id, typed, write_session
from running import run_command

from kbtui.conversations.session_archive import find_kept_session

ID = f"claude-{session_id(1)}"
TEXT = [typed("why does the walrus sleep?"), answered("It is full.")]


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def write_quiet_session(home: Path, root: Path, *more: str) -> Path:
    """Write a session that has not changed for an hour, so that it is kept at once."""
    path = write_session(home, root, session_id(1), [*TEXT, *map(typed, more)])
    os.utime(path, (time.time() - 3600,) * 2)
    return path


def test_the_engine_keeps_sessions_that_appear_and_grow(
    home: Path, workspace_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    settings = home / "config/kbtui/config.toml"
    settings.parent.mkdir()
    settings.write_text('[conversations]\nkeep = ["claude-code"]\n')
    path = write_quiet_session(home, workspace_root)
    try:
        assert run_command("index", cwd=workspace_root).returncode == 0
        wait_until(lambda: find_kept_session(ID))
        grown = write_quiet_session(home, workspace_root, "And the seal?").stat().st_size
        wait_until(lambda: getattr(find_kept_session(ID), "size", 0) == grown)
        path.unlink()
        assert ID[:15] in run_command("search", "seal", cwd=workspace_root).stdout
    finally:
        run_command("engine", "stop", cwd=workspace_root)


@pytest.mark.parametrize("value", ['["jp"]', '["nobody"]', '"claude-code"'])
def test_a_rule_that_cannot_be_applied_is_an_error(
    home: Path, workspace_root: Path, value: str
) -> None:
    settings = home / "config/kbtui/config.toml"
    settings.parent.mkdir()
    settings.write_text(f"[conversations]\nkeep = {value}\n")
    done = run_command("topics", cwd=workspace_root)
    assert done.returncode == 2
    assert "`keep` in the table [conversations]" in done.stderr
    assert f"{settings}:2" in done.stderr
