"""A format of conversations from another package: the example of the documentation, installed."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/conversation-formats.md"


def read_example(name: str) -> str:
    """Return the file of the documented package with this name."""
    found = re.search(rf"`{re.escape(name)}`:\n\n```\w+\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert found is not None
    return found[1]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment in which the example is installed beside kbtui."""
    package = tmp_path / "package"
    package.mkdir()
    for name in ("pyproject.toml", "kbtui_parrot.py"):
        (package / name).write_text(read_example(name), "utf-8")
    place = tmp_path / "env"
    venv.create(place, with_pip=False)
    site = next((place / "lib").glob("python*/site-packages"))
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "zz-dependencies.pth").write_text(f"{here}\n{ROOT}\n")
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
            "--no-build-isolation", "--target", site, package,
        ],
        check=True,
        capture_output=True,
        timeout=100,
    )  # fmt: skip
    return place / "bin/python"


def test_its_conversations_are_listed_read_and_searched(
    python: Path, home: Path, workspace_root: Path
) -> None:
    root = workspace_root.resolve()
    chats = Path(os.environ["HOME"], ".parrot/chats")
    chats.mkdir(parents=True)
    lines = [
        {"who": "person", "text": "Which seeds do you like?"},
        {"who": "parrot", "text": "Sunflower seeds, and wombat stories."},
        {"who": "ghost", "text": "boo"},
    ]
    chat = {"dir": str(root), "started": "2026-11-20T10:00:00Z", "title": "Seeds", "lines": lines}
    (chats / "chat-2026-0001.json").write_text(json.dumps(chat))
    (chats / "chat-2026-0002.json").write_text(json.dumps(chat | {"dir": "/elsewhere"}))

    def run(*words: str) -> str:
        code = "import sys; from kbtui.cli.main import main; sys.exit(main())"
        done = subprocess.run(
            [python, "-P", "-c", code, *words],
            cwd=root,
            env={**os.environ, "KBTUI_MODEL": "off"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = json.loads(run("conversation", "ls", "--json"))
    conversations = listed["conversations"] if isinstance(listed, dict) else listed
    assert [one["id"] for one in conversations] == ["x-parrot-chat-2026-0001"]
    assert "Sunflower seeds" in run("conversation", "read", "x-parrot-chat-2026:1")
    assert "ghost" in run("conversation", "read", "x-parrot-chat-2026-0001")
    assert "x-parrot-chat-202:1" in run("search", "wombat stories")
    run("engine", "stop")
