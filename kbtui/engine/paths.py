"""Where an engine is found: its socket and its lock file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.workspace import paths

if TYPE_CHECKING:
    from kbtui.workspace import Workspace


def lock_path(workspace: Workspace) -> Path:
    """The lock file, in the index directory; its holder is the engine."""
    return workspace.cache_dir / "engine.lock"


def socket_path(workspace: Workspace) -> Path:
    """Where an engine started here listens; its directory is made, for this user alone.

    Raises `WorkspaceError` where that cannot be.
    """
    paths.make_runtime_folder()
    return Path(paths.socket_path(str(workspace.root)))


def announced(workspace: Workspace) -> dict[str, Any] | None:
    """What the lock file says: pid, version, host, socket; None when it says nothing.

    Clients whose XDG_RUNTIME_DIR differs (ssh, cron) find the engine by it.
    """
    try:
        found = json.loads(lock_path(workspace).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("socket"), str):
        return None
    return {**found, "socket": paths.from_wire(found["socket"])}
