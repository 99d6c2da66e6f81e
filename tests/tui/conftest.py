"""Fixtures for the TUI's tests."""

from pathlib import Path

import pytest
from support import Builder
from tui_support import handbook


@pytest.fixture
def book(workspace_root: Path) -> Builder:
    """A small workspace with one of everything that the library marks."""
    return handbook(Builder(workspace_root))
