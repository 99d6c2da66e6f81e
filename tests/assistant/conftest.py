"""Fixtures: the workspace of the tests of the tools."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from assistant_support import fill
from support import Builder, kill_engine

from kbtui.library import Library
from kbtui.workspace import load_settings


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    # An engine starts faster without a model, which other tests cover.
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    fill(builder)
    yield builder
    kill_engine(builder)


@pytest.fixture
def library(built: Builder) -> Iterator[Library]:
    opened = Library(built.workspace, load_settings())
    yield opened
    opened.close()
