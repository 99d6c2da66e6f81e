"""A first index of agents' conversations, against agentsview on the same files."""

import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kbtui.index.index_reader import IndexReader
from tests.bench import workspaces
from tests.bench.measure import Row

VERSION = "0.46.1"
SESSIONS, MESSAGES = 1000, 50

INDEX = """
import sys
from pathlib import Path
from typing import Any
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings, open_workspace_at_root
root, cache = map(Path, sys.argv[1:])
index = WorkspaceIndexWriter(open_workspace_at_root(root), Settings(model="off"), cache_dir=cache)
index.refresh_index()
index.close()
"""


def agentsview(base: Path, times: int) -> Iterator[Row]:
    """Both read 50,000 messages in 1,000 sessions of Claude Code, each in a new process without an index.

    agentsview is installed from PyPI into an environment of its own, where `--keep` keeps it.
    """
    program = _install_agentsview(base / "environment")
    if program is None:
        return
    root, home = base / "project", base / "home"
    (root / ".jp").mkdir(parents=True, exist_ok=True)
    projects = home / ".claude/projects"
    _write_sessions(projects / re.sub(r"[^A-Za-z0-9]", "-", str(root)), root)
    environment = {**os.environ, "HOME": str(home), "AGENTSVIEW_NO_DAEMON": "1"}
    environment["CLAUDE_CONFIG_DIR"] = str(home / ".claude")
    ours, theirs = [], []
    for number in range(max(2, times // 4)):
        cache = base / f"index{number}"
        ours.append(_spend([sys.executable, "-c", INDEX, str(root), str(cache)], environment))
        reader = IndexReader(cache)
        assert reader.count_catalog_rows()["conversations"] == SESSIONS
        reader.close()
        shutil.rmtree(cache)
        shutil.rmtree(home / ".agentsview", ignore_errors=True)
        theirs.append(_spend([str(program), "sync"], environment))
    wall = Row("", [took for took, _ in ours], "", [took for took, _ in theirs], "")
    yield Row(
        f"first index of {SESSIONS * MESSAGES:,} messages, processor time",
        [spent for _, spent in ours],
        f"agentsview {VERSION} sync",
        [spent for _, spent in theirs],
        "<= 0.5",
        remark=f"on the clock {wall.ratio:.2f}x",
    )


def _install_agentsview(folder: Path) -> Path | None:
    """Return the path of the program, or None after a message if it cannot be installed."""
    program = folder / "bin" / "agentsview"
    if not program.exists():
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        steps = ([sys.executable, "-m", "venv", str(folder)], [*pip, f"agentsview=={VERSION}"])
        for words in steps:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["unknown"])[-1]
                print(f"agentsview: skipped, because it cannot be installed: {reason}")
                return None
    return program


def _write_sessions(folder: Path, root: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random_ = random.Random(4)
    for session in range(SESSIONS):
        name = f"{session:08x}-0000-4000-8000-000000000000"
        lines: list[dict[str, Any]] = []
        for number in range(MESSAGES):
            role = ("user", "assistant")[number % 2]
            text = workspaces.prose(random_, 40 + 60 * (number % 2))
            lines.append(
                {
                    "type": role,
                    "uuid": f"{session:08x}-{number:04x}-4000-8000-000000000000",
                    "parentUuid": lines[-1]["uuid"] if lines else None,
                    "sessionId": name,
                    "cwd": str(root),
                    "version": "2.0.0",
                    "timestamp": f"2026-{1 + session % 9:02}-01T10:{number:02}:00.000Z",
                    "message": {"role": role, "content": [{"type": "text", "text": text}]},
                }
            )
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)


def _spend(words: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds that a process takes on the clock, and those of processor time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, (words, done.stdout[-300:], done.stderr[-500:])
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, spent


BENCHES = {"agentsview": agentsview}
