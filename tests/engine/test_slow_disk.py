"""Everything that waits for a slow comparison of the files ends in time."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder, end_engine

from kbtui.engine.engine_launcher import connect_or_start_engine
from kbtui.errors import EngineUnavailableError

SLOW_DISK = """
import os, sys, time
from pathlib import Path

scan = os.scandir

def slow_scan(path="."):
    if "docs/guide" in os.fspath(path):
        time.sleep(3)
    return scan(path)

os.scandir = slow_scan
from kbtui.engine.__main__ import run_engine
run_engine()
"""
"""An engine on a disk that needs three seconds to list the topic's directory."""


@pytest.fixture
def slow(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    monkeypatch.setenv("KBTUI_ENGINE_IDLE", "60")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/one.md", "# One\n\nThe badger is in its sett.\n")
    builder.workspace.cache_dir.mkdir(parents=True)
    engine = subprocess.Popen([sys.executable, "-c", SLOW_DISK, str(workspace_root)])
    try:
        end = time.monotonic() + 30
        while True:
            try:
                connect_or_start_engine(builder.workspace, start=False).close()
                break
            except EngineUnavailableError:
                assert time.monotonic() < end, "the engine does not start"
                time.sleep(0.05)
        yield builder
    finally:
        end_engine(builder)
        engine.wait(30)


def test_index_ends_although_a_comparison_takes_seconds(slow: Builder) -> None:
    command = [sys.executable, "-m", "kbtui.cli.main", "-w", str(slow.root), "index", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["subjects"] == 1
    assert facts["seconds_keywords"] >= 3, "the disk was not slow"
