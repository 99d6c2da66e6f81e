"""Checks whether the installed definition of the tool `learn` for JP describes the current topics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from kbtui.files import parse_toml, read_regular_file

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.knowledge.knowledge_base import KnowledgeBase

TOOLS_DIRECTORY = ".jp/mcp/tools/kbtui"
"""The directory in the workspace where JP finds the definitions of kbtui's tools."""
LEARN_TOOL_FILE = f"{TOOLS_DIRECTORY}/learn.toml"
_MAX_DEFINITION_BYTES = 1 << 20

LearnToolProblem = Literal["missing", "outdated", "unneeded"]
"""What is wrong with the installed tools.

* `missing`: other tools are installed, but not `learn`, although a topic has subjects to learn.
* `outdated`: the definition of `learn` describes other topics.
* `unneeded`: `learn` is installed, but no topic has a subject to learn.
"""


def find_learn_tool_problem(root: Path, knowledge: KnowledgeBase) -> LearnToolProblem | None:
    """Return what is wrong with the tools that are installed in a workspace; None if nothing is wrong.

    Nothing is wrong if no tools are installed, or if somebody else defined `learn`.
    """
    try:
        names = os.listdir(root / TOOLS_DIRECTORY)  # noqa: PTH208
    except OSError:
        return None
    definition = knowledge.make_learn_tool_definition()
    if "learn.toml" not in names:
        has_tools = any(name.endswith(".toml") for name in names)
        return "missing" if has_tools and definition is not None else None
    try:
        data = read_regular_file(root / LEARN_TOOL_FILE, _MAX_DEFINITION_BYTES)
        installed = parse_toml(data.decode("utf-8"))["conversation"]["tools"]["learn"]["summary"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if definition is None:
        return "unneeded"
    return "outdated" if installed != definition["description"] else None
