"""The ids of conversations by their directories' names alone: no file of one is looked at."""

from __future__ import annotations

import os

from kbtui.workspace import places


def live_names(path: str | None) -> dict[int, str]:
    """The live conversations of the workspace at or above `path` (default: the current directory).

    An id has what its directory's name says after it. Empty without a workspace.
    """
    root = places.nearest_root(os.path.realpath("." if path is None else path))
    if root is None:
        return {}
    folders = [f"{root}/.jp/conversations"]
    if os.path.isdir(places.jp_data_home() + "/workspace"):  # noqa: PTH112
        # JP keeps something of some workspace there: it takes more to know whether of this one.
        from pathlib import Path

        from kbtui.workspace.root import Workspace

        user_dir = Workspace(Path(root)).user_dir
        if user_dir is not None:
            folders.append(f"{user_dir}/conversations")
    found: dict[int, str] = {}
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if _is_folder(entry)]
        except OSError:
            continue
        for name in names:
            digits, _, rest = name.partition("-")
            if digits.isascii() and digits.isdigit() and len(digits) <= 12:
                found[int(digits)] = rest
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle
        return False
