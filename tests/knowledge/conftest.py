"""Fixtures: small workspaces for the tests of knowledge."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from kb_support import LAYOUT, TOPICS, Build, write

from kbtui.knowledge import KnowledgeBase, load_knowledge
from kbtui.workspace import Workspace, open_workspace_at_root


@pytest.fixture
def workspace(workspace_root: Path) -> Workspace:
    return open_workspace_at_root(workspace_root)


@pytest.fixture
def build(workspace: Workspace) -> Build:
    """Write files and `.jp/kb.toml` into the workspace and load its knowledge."""

    def build(
        kb: str | None = None, files: Mapping[str, str | bytes] | None = None, **flags: list[str]
    ) -> KnowledgeBase:
        write(workspace.root, files or {})
        if kb is not None:
            write(workspace.root, {".jp/kb.toml": kb})
        return load_knowledge(workspace, **flags)

    return build


@pytest.fixture
def two_topics(build: Build) -> Build:
    """Return a workspace with two topics; `project` and `skills` are lines for their tables."""

    def two_topics(project: str = "", skills: str = "", **flags: list[str]) -> KnowledgeBase:
        first, second = TOPICS.split("\n\n")
        return build(f"{first}\n{project}\n\n{second}\n{skills}\n", LAYOUT, **flags)

    return two_topics
