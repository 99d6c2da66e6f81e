"""The registry of the workspaces that this user has opened. A search of all workspaces uses it.

Each workspace has its own file in its data directory. Therefore a damaged file affects only one
workspace, and processes that open different workspaces do not overwrite each other's records.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.conversations.workspace_and_worktree_directories import ProjectIdentity, identify_project
from kbtui.errors import UsageError
from kbtui.file_reading_and_writing import read_regular_file, write_file_atomically
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace import paths
from kbtui.workspace.user_settings import get_directories_excluded_from_registry
from kbtui.workspace.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kbtui.workspace import Settings

_REGISTRY_FILE = "workspace.json"


class RegisteredWorkspace(NamedTuple):
    """A workspace in the registry.

    * `opened` is the time when an engine last opened the workspace, in Unix seconds.
    * `project` is the displayed name of the workspace's project. It is unique within one list.
    * `project_key` is the same for all workspaces of a project, such as the worktrees and clones of
      a repository.
    * `label` identifies the workspace in references for assistants (`[label] topic/slug`). It is
      the project's name or, if the project has several workspaces, the end of the workspace's path.
    """

    workspace: Workspace
    opened: float
    project: str
    project_key: str
    label: str

    @property
    def is_missing(self) -> bool:
        """Whether the workspace's directory does not exist."""
        return not os.path.isdir(self.workspace.root)  # noqa: PTH112  (never raises)


def register_workspace(workspace: Workspace, settings: Settings) -> None:
    """Record that a workspace has just been opened, unless the settings exclude it.

    The demo workspace is not recorded. Errors are ignored, because a workspace that cannot be
    recorded can still be used.
    """
    root = str(workspace.root)
    if _is_in_directories(root, [os.path.realpath(paths.get_kbtui_cache_directory())]):
        return
    if _is_in_directories(root, get_directories_excluded_from_registry(settings)):
        unregister_workspace(workspace.root)
        return
    identity = identify_project(root)
    record = {
        "root": paths.convert_path_to_utf8(root),
        "opened": round(time.time(), 3),
        # Once the directory is missing, Git's files can no longer identify its project.
        "project": list(map(paths.convert_path_to_utf8, identity)),
    }
    with suppress(OSError, ValueError):
        paths.make_private_directory(workspace.user_data_directory)
        data = json.dumps(record).encode("ascii")
        write_file_atomically(workspace.user_data_directory / _REGISTRY_FILE, data)


def is_workspace_registered(workspace: Workspace) -> bool:
    """Return whether a workspace has a record in the registry."""
    return (workspace.user_data_directory / _REGISTRY_FILE).exists()


def list_registered_workspaces(
    settings: Settings, here: Workspace | None = None
) -> list[RegisteredWorkspace]:
    """Return the workspaces of the registry that the settings do not exclude, grouped by project.

    The project of `here` comes first, and `here` comes first in its project, even if `here` is not
    registered yet. Other projects and workspaces are sorted by the time when they were last opened,
    newest first. Damaged records are left out, as are records that were written while JP used
    different directories.
    """
    excluded = get_directories_excluded_from_registry(settings)
    found: dict[str, tuple[float, ProjectIdentity]] = {}
    with suppress(OSError):
        for path in Path(paths.get_kbtui_data_directory()).glob(f"*/{_REGISTRY_FILE}"):
            if (record := _read_registry_record_of_workspace(path)) is not None:
                root, opened, identity = record
                found[root] = opened, identity
    first = str(here.root) if here else ""
    if here and first not in found:
        found[first] = 0.0, identify_project(first)
    kept = {root: facts for root, facts in found.items() if not _is_in_directories(root, excluded)}
    names = _make_unique_project_names({root: identity for root, (_, identity) in kept.items()})
    newest: dict[str, float] = {}
    for opened, identity in kept.values():
        newest[identity.key] = max(newest.get(identity.key, 0.0), opened)
    first_key = kept[first][1].key if first in kept else None

    def make_sort_key(root: str) -> tuple[object, ...]:
        opened, (key, _) = kept[root]
        return (key != first_key, -newest[key], key, root != first, -opened, root)

    def make_workspace_label(root: str) -> str:
        key = kept[root][1].key
        siblings = [other for other in kept if kept[other][1].key == key and other != root]
        return _make_distinct_path_ending(root, siblings) if siblings else names[key]

    return [
        RegisteredWorkspace(
            Workspace(Path(root)),
            kept[root][0],
            names[kept[root][1].key],
            kept[root][1].key,
            make_workspace_label(root),
        )
        for root in sorted(kept, key=make_sort_key)
    ]


_LABELLED_REFERENCE = re.compile(r"\[([^\n]+?)\] (?=\S)")


def split_off_workspace_label(reference: str) -> tuple[str | None, str]:
    """Split `[label] topic/slug` into the label of a workspace and the reference.

    If the text has no label, the first value is None.
    """
    text = reference.strip()
    found = _LABELLED_REFERENCE.match(text)
    return (found[1], text[found.end() :]) if found else (None, reference)


def find_workspace_by_label(
    label: str, settings: Settings, here: Workspace | None = None
) -> Workspace:
    """Return the workspace with this label, or else the first workspace of the project with this name.

    Workspaces that the settings exclude are ignored. Raises `UsageError` if no workspace is found.
    """
    registered = list_registered_workspaces(settings, here)
    for one in registered:
        if one.label == label:
            return one.workspace
    for one in registered:
        if one.project == label:
            return one.workspace
    raise UsageError(f"there is no project {label!r} in the list of opened workspaces")


def unregister_workspace(root: Path) -> bool:
    """Remove a workspace from the registry; return False if it was not registered.

    Its bookmarks, query log and index are not deleted. When an engine next refreshes the index of
    the workspace, the workspace is registered again.
    """
    directory = Workspace(root).user_data_directory
    try:
        (directory / _REGISTRY_FILE).unlink()
    except OSError:
        return False
    with suppress(OSError):
        directory.rmdir()  # fails if there are bookmarks or a query log
    return True


def _read_registry_record_of_workspace(path: Path) -> tuple[str, float, ProjectIdentity] | None:
    """Return the root, the time and the project in a registry file; None if it is not valid."""
    try:
        record = json.loads(read_regular_file(path))
        root = paths.convert_utf8_path_to_process_encoding(record["root"])
        key, name = map(paths.convert_utf8_path_to_process_encoding, record["project"])
        opened = float(record["opened"])
        is_valid = root.startswith("/") and path.parent.name == paths.make_workspace_key(root)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if not is_valid:
        return None
    identity = identify_project(root) if os.path.isdir(root) else ProjectIdentity(key, name)  # noqa: PTH112
    return root, opened, identity


def _is_in_directories(root: str, directories: Iterable[str]) -> bool:
    """Return whether a path is one of these directories, or is inside one of them."""
    return any(f"{root}/".startswith(f"{one.rstrip('/')}/") for one in directories)


def _make_unique_project_names(projects: dict[str, ProjectIdentity]) -> dict[str, str]:
    """Map the key of each project to a unique name.

    `projects` maps the root of each workspace to its project. If several projects have the same
    name, the name of each is derived from the path of one of its workspaces.
    """
    roots: dict[str, dict[str, str]] = {}
    for root, (key, name) in sorted(projects.items()):
        roots.setdefault(name, {}).setdefault(key, root)
    names = {}
    for name, same in roots.items():
        for key, root in same.items():
            others = [other for other in same.values() if other != root]
            names[key] = _make_distinct_path_ending(root, others) if others else name
    return names


def _make_distinct_path_ending(path: str, others: Collection[str]) -> str:
    """Return the shortest trailing part of `path` that no path in `others` ends with.

    This part has at least two directories.
    """
    steps: Sequence[str] = path.strip("/").split("/")
    for count in range(2, len(steps)):
        ending = "/".join(steps[-count:])
        if not any(f"/{ending}" == other[-len(ending) - 1 :] for other in others):
            return ending
    return path
