"""Finds the project that a conversation or a workspace belongs to.

The module compares directories and reads Git's files.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from kbtui.file_reading_and_writing import read_regular_file, write_file_atomically
from kbtui.light_named_tuple import NamedTuple
from kbtui.workspace import Workspace, paths

if TYPE_CHECKING:
    from collections.abc import Iterable

REMEMBERED_WORKTREES = 500
"""At most this many worktrees are remembered for a workspace: the most recent ones."""
_WORKTREES_FILE = "worktrees.json"


class ProjectDirectory(NamedTuple):
    """A directory whose conversations belong to a workspace.

    `worktree` is the name of the Git worktree that contains the directory; None for the workspace
    itself.
    """

    path: str
    worktree: str | None


class WorkspaceAndWorktreeDirectories:
    """The directories whose conversations belong to one workspace.

    They are the workspace itself, and the same directory in the other worktrees of its Git
    repository. Worktrees that were removed after the engine saw them are included.

    Some directories inside these directories belong to other workspaces:

    * A directory with its own configuration belongs to another workspace.
    * A repository inside the workspace belongs to another workspace in two cases: the workspace is
      the home directory, or the workspace is itself a repository and has no configuration.
    """

    def __init__(self, workspace: Workspace) -> None:
        root = str(workspace.root)
        self._excludes_repositories = (
            paths.is_user_home_without_jp_directory(root)
            if paths.contains_jp_or_kbtui_directory(root)
            else paths.is_git_root(root)
        )
        worktrees = find_other_worktrees(root)
        worktrees += _list_removed_worktrees(workspace, worktrees)
        self.directories = [
            ProjectDirectory(root, None),
            *(ProjectDirectory(path, os.path.basename(top)) for top, path in worktrees),  # noqa: PTH119
        ]
        self.find_directory_of = lru_cache(maxsize=None)(self._find_project_directory_of)

    def _find_project_directory_of(self, working_directory: str) -> ProjectDirectory | None:
        """Return the project directory that contains `working_directory`, or None."""
        path = os.path.normpath(working_directory)
        containing = [
            one
            for one in self.directories
            if path == one.path or path.startswith(one.path.rstrip("/") + "/")
        ]
        if not containing:
            return None
        found = max(containing, key=lambda one: len(one.path))
        while path != found.path:
            if paths.contains_jp_or_kbtui_directory(path):
                return None
            if self._excludes_repositories and paths.is_git_root(path):
                return None
            path = os.path.dirname(path)  # noqa: PTH120
        return found


def list_workspace_and_worktree_paths(workspace: Workspace) -> list[str]:
    """Return the paths of a workspace and of the same directory in every other worktree."""
    return [one.path for one in WorkspaceAndWorktreeDirectories(workspace).directories]


def make_path_relative_to_project(path: str, directories: Iterable[str]) -> str:
    """Return a path relative to the innermost of `directories` that contains it.

    A path outside all of them is only normalized.
    """
    path = os.path.normpath(path)
    around = [one.rstrip("/") for one in directories if path.startswith(f"{one.rstrip('/')}/")]
    return path[len(max(around, key=len)) + 1 :] if around else path


def find_other_worktrees(root: str) -> list[tuple[str, str]]:
    """Return the other worktrees of the repository around `root`.

    Each worktree is a pair: its root, and the path in it that corresponds to `root`. Git's files
    are read directly, because starting `git` would take longer.
    """
    top = paths.find_git_root(root)
    if top is None:
        return []
    common = _find_common_git_directory(top)
    if common is None:
        return []
    tops = []
    if os.path.basename(common) == ".git":  # noqa: PTH119
        tops.append(os.path.dirname(common))  # noqa: PTH120
    try:
        with os.scandir(f"{common}/worktrees") as entries:
            folders = sorted(entry.path for entry in entries)
    except OSError:
        folders = []
    for folder in folders:
        # `gitdir` contains the path of the worktree's `.git` file.
        if link := _read_first_line(f"{folder}/gitdir"):
            tops.append(os.path.dirname(os.path.join(folder, link)))  # noqa: PERF401, PTH118, PTH120
    inside = os.path.relpath(root, top)
    others = dict.fromkeys(map(os.path.normpath, tops))
    return [(other, os.path.normpath(f"{other}/{inside}")) for other in others if other != top]


def remember_worktrees(workspace: Workspace) -> None:
    """Store the worktrees of a workspace in its data directory.

    This is necessary because Git forgets removed worktrees.
    """
    found = [list(one) for one in find_other_worktrees(str(workspace.root))]
    data = make_content_of_remembered_worktrees_file(workspace, found)
    if data is not None:
        with suppress(OSError):
            paths.make_private_directory(workspace.user_data_directory)
            write_file_atomically(get_remembered_worktrees_path(workspace), data)


def make_content_of_remembered_worktrees_file(
    workspace: Workspace, added: list[list[str]]
) -> bytes | None:
    """Add the worktrees `added` to the remembered ones, and return the new content of their file.

    The result is None if the content would not change, or if a path is not UTF-8 and therefore
    cannot be stored.
    """
    kept = read_remembered_worktrees(workspace)
    known = [*(one for one in kept if one not in added), *added][-REMEMBERED_WORKTREES:]
    if known == kept:
        return None
    with suppress(TypeError):
        return orjson.dumps(known)
    return None


def get_remembered_worktrees_path(workspace: Workspace) -> Path:
    """Return the path of the file that stores remembered worktrees. The file may not exist."""
    return workspace.user_data_directory / _WORKTREES_FILE


def _list_removed_worktrees(
    workspace: Workspace, existing: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the root of each removed worktree, and the workspace's path in this worktree."""
    return [
        (top, path)
        for top, path in read_remembered_worktrees(workspace)
        if (top, path) not in existing and not os.path.exists(top)  # noqa: PTH110
    ]


def read_remembered_worktrees(workspace: Workspace) -> list[list[str]]:
    """Return the root of each remembered worktree, and the workspace's path in this worktree."""
    try:
        kept = orjson.loads(get_remembered_worktrees_path(workspace).read_bytes())
        return [[str(top), str(path)] for top, path in kept]
    except (OSError, ValueError, TypeError):
        return []


def _find_common_git_directory(top: str) -> str | None:
    """Return the `.git` directory that all worktrees of a repository share."""
    git = f"{top}/.git"
    if os.path.isdir(git):  # noqa: PTH112
        return git
    line = _read_first_line(git) or ""
    if not line.startswith("gitdir:"):
        return None
    own = os.path.normpath(os.path.join(top, line.removeprefix("gitdir:").strip()))  # noqa: PTH118
    common = _read_first_line(f"{own}/commondir")
    return os.path.normpath(os.path.join(own, common)) if common else own  # noqa: PTH118


MAX_CLONES_FOLLOWED = 5
"""If a repository was cloned from another clone, at most this many originals are looked up in turn."""


class ProjectIdentity(NamedTuple):
    """Identifies the project of a workspace.

    Worktrees and clones of one repository are one project. Directories outside of repositories are
    one project if they have the same JP workspace id, because JP stores their conversations
    together.

    All workspaces of a project have the same `key`. `name` is a human-readable name, which several
    projects can share.
    """

    key: str
    name: str


def identify_project(root: str) -> ProjectIdentity:
    """Return the project of the workspace at `root`, read from Git's files.

    Clones belong together if their remote `origin` has the same address. Their first commits are
    not compared, because kbtui would have to read the whole history to find them.
    """
    top = paths.find_git_root(root)
    common = _find_common_git_directory(top) if top else None
    if top is None or common is None:
        jp_id = Workspace(Path(root)).id
        return ProjectIdentity(f"jp:{jp_id}" if jp_id else root, os.path.basename(root) or root)  # noqa: PTH119
    inside = os.path.relpath(root, top)
    address = ""
    for _ in range(MAX_CLONES_FOLLOWED):
        address = _read_origin_remote_address(common)
        # The directory that the repository was cloned from may itself be a clone.
        original = os.path.normpath(os.path.join(os.path.dirname(common), address))  # noqa: PTH118, PTH120
        found = _find_common_git_directory(original) if address and "//" not in address else None
        if found is None or found == common:
            break
        common, address = found, ""
    if address:
        key, name = (
            _normalize_repository_address(address),
            re.split("[/:]", address.rstrip("/"))[-1],
        )
        name = name.removesuffix(".git")
    else:
        key = common
        is_usual = os.path.basename(common) == ".git"  # noqa: PTH119
        name = os.path.basename(os.path.dirname(common) if is_usual else top)  # noqa: PTH119, PTH120
    if inside != ".":
        key, name = f"{key}\0{inside}", f"{name}/{inside}"
    return ProjectIdentity(key, name or root)


def _read_origin_remote_address(common: str) -> str:
    """Return the address of the remote `origin` in a repository's configuration, or ""."""
    try:
        text = read_regular_file(f"{common}/config").decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    section = re.search(r'^\s*\[remote "origin"\][^\n]*\n([^\[]*)', text, re.MULTILINE)
    found = re.search(r"^\s*url\s*=\s*(.+)$", section[1], re.MULTILINE) if section else None
    return found[1].strip().strip('"').removeprefix("file://") if found else ""


def _normalize_repository_address(address: str) -> str:
    """Return an address without its protocol, user, port and `.git` suffix.

    For example, `git@host:a/b.git` becomes `host/a/b`.
    """
    rest = re.sub(r"^\w[\w+.-]*://", "", address)
    if rest == address:
        rest = re.sub(r"^([^/:]+):(?!//)", r"\1/", rest)
    host, slash, path = rest.partition("/")
    host = re.sub(r":\d+$", "", host.rpartition("@")[2]).lower()
    return f"{host}{slash}{path.rstrip('/').removesuffix('.git')}"


def _read_first_line(path: str) -> str | None:
    try:
        lines = Path(path).read_text("utf-8", "surrogateescape").splitlines()
    except (OSError, ValueError):
        return None
    return lines[0].strip() if lines else None
