from collections.abc import Iterator
from pathlib import Path

import pytest
from web_support import Bench, Site, serving


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as started:
        yield started


@pytest.fixture
def bench(workspace_root: Path) -> Bench:
    return Bench(workspace_root)
