"""What several tests of safety stand on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import hostile_workspace
from support import Builder, kill_engine


@pytest.fixture
def hostile(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    monkeypatch.setenv("KBTUI_MODEL", "off")
    # What opens other programs opens one that does nothing.
    for name in ("EDITOR", "VISUAL", "BROWSER"):
        monkeypatch.setenv(name, "true")
    builder = hostile_workspace(workspace_root)
    yield builder
    kill_engine(builder)
