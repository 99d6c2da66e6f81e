"""`kbtui conversation info` gives the totals of the sample sessions, which were counted independently."""

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from claude_sessions import claude_folder
from support import Builder

from kbtui.cli.main import main
from kbtui.conversations import conversation_statistics
from kbtui.index.catalog_query import open_catalog_snapshot
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.workspace import Settings

SAMPLES = Path(__file__).parents[1] / "data/agent_sessions"
CLAUDE = "4d5611e5-241a-462a-8d15-5122611a9569"
CODEX_LONG = "rollout-2025-09-25T08-02-05-0199812e-64f0-7f73-91fc-095dda01c36e.jsonl"


@pytest.fixture
def root(home: Path, workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace in which the samples were held."""

    def place(source: Path, target: Path, cwd: str) -> None:
        data = source.read_bytes()
        text = lzma.decompress(data) if source.suffix == ".xz" else data
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.replace(cwd.encode(), str(workspace_root).encode()))

    folder = claude_folder(home, workspace_root)
    cwd = "/home/USER/projects/spotter-worktrees/spotter-dov"
    place(SAMPLES / f"claude/{CLAUDE}.jsonl.xz", folder / f"{CLAUDE}.jsonl", cwd)
    for name in ("agent-a2898e3.jsonl", "agent-acompact-e1f845.jsonl"):
        place(SAMPLES / f"claude/{name}.xz", folder / CLAUDE / "subagents" / name, cwd)
    day = home / "home/.codex/sessions/2025/09/25"
    cwd = "/Users/jnarowski/Dev/spectora/src/spectora-labs-monorepo-v2"
    for path in (SAMPLES / "codex").glob("*.jsonl"):
        place(path, day / path.name, cwd)
    digest = hashlib.sha256(str(workspace_root).encode()).hexdigest()
    for path in (SAMPLES / "gemini").glob("*.json"):
        place(path, home / "home/.gemini/tmp" / digest / "chats" / path.name, "no such directory")
    monkeypatch.chdir(workspace_root)
    return workspace_root


def info(id_: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["conversation", "info", id_, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in parts"])
@pytest.mark.parametrize(
    ("id_", "counts", "usage"),
    [
        ("claude-4d5611e5", (2, 150, 150, 1, 1), {"output_tokens": 28_755}),
        ("codex-01997ea4", (2, 16, 16, 0, 0), {"total_tokens": 154_257}),
        ("codex-0199812e", (2, 57, 57, 0, 0), {"total_tokens": 1_400_951}),
        ("gemini-981c87cb", (3, 13, 13, 0, 0), {"total_tokens": 109_261}),
    ],
)
def test_totals(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    id_: str,
    counts: tuple[int, ...],
    usage: dict[str, int],
    whole: bool,
) -> None:
    if not whole:
        monkeypatch.setattr(conversation_statistics, "WHOLE_BYTES_MAX", 100_000)
    found = info(id_, capsys)
    names = ("turns", "tool_calls", "tool_results", "compactions", "subagents")
    assert tuple(found[name] for name in names) == counts
    assert found["usage"].items() >= usage.items()


def test_what_a_growing_session_used_is_indexed_as_it_grows(home: Path, root: Path) -> None:
    """The counter of this session starts again in its second turn, after reading has resumed."""
    path = home / "home/.codex/sessions/2025/09/25" / CODEX_LONG
    lines = path.read_bytes().splitlines(keepends=True)
    builder = Builder(root)
    for end in (len(lines) // 2, len(lines) - 5, len(lines)):
        path.write_bytes(b"".join(lines[:end]))
        index = WorkspaceIndexWriter(builder.workspace, Settings(model="off"))
        index.refresh_index()
        index.close()
    reader = IndexReader(builder.workspace.cache_dir)
    with open_catalog_snapshot(reader) as db:
        query = "SELECT turn, total_tokens FROM usage WHERE conversation LIKE 'codex-0199812e%'"
        assert db.execute(query).fetchall() == [(1, 1_363_408), (2, 37_543)]
    reader.close()
