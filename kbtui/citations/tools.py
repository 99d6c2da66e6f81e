"""Which tool calls use knowledge, and how their names are recognised."""

import re
from typing import Literal

Family = Literal["learn", "knowledge_search", "conversation_read", "conversation_grep"]

FILE_TOOLS: dict[str, str] = {"fs_read_file": "path"}
"""Tools that read one file, and the argument that names it (decisions C, "citation")."""

_OURS: tuple[Family, ...] = ("learn", "knowledge_search", "conversation_read", "conversation_grep")
# The same tools come from an MCP server under a name that its host makes: JP's
# configuration may say `kbtui_learn`, other hosts write `mcp__kbtui__learn` or
# `learn__kbtui`. Only names with `kbtui` in them count: `learn` and the rest are
# words that another server's tool may have (`duolingo_learn`), and a citation
# that nobody made is worse than one that is missed.
_SERVED = re.compile(
    rf"(?:mcp[_.:/-]+)?kbtui[_.:/-]+(?P<tail>{'|'.join(_OURS)})"
    rf"|(?P<head>{'|'.join(_OURS)})[_.:/-]+(?:mcp[_.:/-]+)?kbtui"
)


def family(name: str) -> Family | None:
    """Which of our tools a call's name means, None for any other."""
    for ours in _OURS:
        if name == ours:
            return ours
    match = _SERVED.fullmatch(name)
    if match is None:
        return None
    word = match["tail"] or match["head"]
    return next(ours for ours in _OURS if ours == word)
