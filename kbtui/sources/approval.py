"""Approval: a source runs only after its user agreed to that very block.

What is agreed to is a hash of the block, kept in the journal outside the
workspace, so that opening somebody's clone runs nothing. For `mcp` the hash covers
the programs of the workspace that the command names, too: otherwise a change of
the script would be a change of what was approved.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbtui.sources.models import Source
    from kbtui.userdata import UserData
    from kbtui.workspace import Workspace

_FORM = 1
FILE_MOST = 50_000_000
_PROGRAMS = frozenset(
    [
        "py",
        "pyz",
        "js",
        "mjs",
        "cjs",
        "ts",
        "mts",
        "sh",
        "bash",
        "zsh",
        "fish",
        "rb",
        "pl",
        "php",
        "lua",
        "jar",
    ]
)
"""Endings of what an interpreter runs; data may change without being approved again."""


def digest_of(workspace: Workspace, source: Source) -> str:
    """The hash of what an approval of this source approves."""
    parts = {"form": _FORM, "name": source.name, "block": source.block}
    if source.kind == "mcp":
        parts["programs"] = {word: _program(workspace, word) for word in source.server}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "replace")).hexdigest()


def _program(workspace: Workspace, word: str) -> str | None:
    """The hash of a program of the workspace that a word of a command names, else None."""
    path = Path(workspace.root, word)
    try:
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(workspace.root) or not real.is_file():
            return None
        status = real.stat()
        if real.suffix[1:].lower() not in _PROGRAMS and not status.st_mode & 0o111:
            return None
        if status.st_size > FILE_MOST:
            return "too large"
        return hashlib.sha256(real.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def approve(workspace: Workspace, journal: UserData, source: Source) -> None:
    """Note that the user agreed to the source as it is now."""
    journal.approve(source.name, digest_of(workspace, source))


def approved_at(workspace: Workspace, journal: UserData, source: Source) -> float | None:
    """When the user agreed to the source as it is now, in Unix seconds; None when never."""
    return journal.approved(digest_of(workspace, source))


def block_text(source: Source) -> str:
    """The block as TOML, for showing what would be agreed to."""
    import tomli_w

    return tomli_w.dumps({"source": {source.name: source.block}})
