"""Files of small workspaces for the tests of knowledge."""

from collections.abc import Callable, Mapping
from pathlib import Path

from kbtui.knowledge import KnowledgeBase

Build = Callable[..., KnowledgeBase]


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


# The directory layout example of KB, "Subject Resolution", with contents of our own.
LAYOUT = {
    ".jp/kb/project/maintainers/jean.md": "...file content...\n",
    ".jp/kb/project/maintainers/ryan.md": "...file content...\n",
    ".jp/kb/project/code-quality.md": "# Code quality\n",
    ".jp/kb/project/.internal-notes.md": "# Notes\n",
    ".jp/kb/skills/ast-grep.md": "...content...\n",
    ".jp/kb/skills/ast-grep/.rules.md": "# Rules\n",
}
TOPICS = """\
[kb.topic.project]
title = "General Project Knowledge"
introduction = "foo bar baz..."
subjects = ".jp/kb/project"

[kb.topic.skills]
title = "Learnable Assistant Skills"
subjects = ".jp/kb/skills"
"""
