"""Changes are noticed by polling at the system's limit of watches, and `doctor` says so."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder, kill_engine

LIMITED = "echo {limit} > /proc/sys/user/max_inotify_watches && {then}"
"""Runs a process in its own user namespace, which has its own limits."""

FOLLOWS = """
import sys, time
from pathlib import Path
from kbtui.library import open_workspace
from kbtui.library.diagnostics import run_diagnostics as examine
from kbtui.search.search_request_and_answer import SearchRequest

root = Path(sys.argv[1])
with open_workspace(root) as library:
    def is_found(word, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if library.search(SearchRequest(word, mode="lexical")).hits:
                return True
            time.sleep(0.2)
        return False

    assert is_found("otter"), "the first index"
    for number, folder in enumerate(sys.argv[2:]):
        place = root / "docs" / folder
        place.mkdir(parents=True, exist_ok=True)
        time.sleep(0.5)  # the directory is reported before the file is written
        (place / "new.md").write_text(f"# New\\n\\nThe heron{number}.\\n")
        assert is_found(f"heron{number}"), folder
    print(*(finding for finding in examine(library) if finding.area == "engine"))
"""


def limited(limit: int, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["unshare", "-Ur", "sh", "-c", LIMITED.format(limit=limit, then='exec "$@"'), "sh", *command],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    if not shutil.which("unshare") or limited(5, "true").returncode:
        pytest.skip("this system gives no user namespace with limits of its own")
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for name in ("start", "a/one", "b/two", "c/three", "d/four"):
        builder.subject(f"guide/{name}.md", "# One\n\nThe otter.\n")
    yield builder
    kill_engine(builder)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("limit", "folders"),
    [
        (3, ["guide/a", "guide/b", "guide/c", "guide/d"]),
        # Enough watches for the existing directories, but not for new ones.
        (8, ["guide/e", "guide/f", "guide/g"]),
    ],
    ids=["at the start", "later"],
)
def test_where_watches_run_out_files_are_followed_by_polling(
    built: Builder, limit: int, folders: list[str]
) -> None:
    done = limited(limit, sys.executable, "-c", FOLLOWS, str(built.root), *folders)
    assert done.returncode == 0, done.stderr
    assert "fs.inotify.max_user_watches" in done.stdout
    log = built.workspace.engine_log_file.read_text()
    assert log.count("fs.inotify.max_user_watches") == 1
