from collections.abc import Iterator
from pathlib import Path

import pytest
from web_support import Site, SourceWorkspace, serving


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as started:
        yield started


@pytest.fixture
def project(workspace_root: Path) -> SourceWorkspace:
    return SourceWorkspace(workspace_root)
