"""Walks a topic's directory and gives each file its slug; detects hidden files and collisions.

A topic with 20,000 subjects must be listed without a noticeable pause: the walk handles strings
only, and `Subject` objects are made on demand.
"""

# Making a Path for each of 20,000 names would take longer than the walk.
# ruff: noqa: PTH112, PTH113, PTH120
from __future__ import annotations

import os
import unicodedata
from bisect import bisect_left
from operator import eq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINKED_DIRECTORIES = 10_000
"""The maximum number of directories that are read through links. Even without a loop, links can lead to
one directory by very many paths."""

_EXTENSION_RANKS = {ending: rank for rank, ending in enumerate((".md", ".txt", ".text", ""))}


class TopicScan:
    """The files found in a topic's directory `base`.

    `slugs` is sorted. If several files would have the same slug, one of them gets it, and
    `shadowed` maps the paths of the others to it. `mistakes` has pairs of message and path for the
    files that were left out.
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self.slugs: list[str] = []
        self.hidden: set[str] = set()
        self.shadowed: dict[str, str] = {}
        self.mistakes: list[tuple[str, str]] = []
        self._folders: list[_ScannedFolder] = []
        self._relative_paths: dict[str, str] | None = None

    def __contains__(self, slug: str) -> bool:
        position = bisect_left(self.slugs, slug)
        return position < len(self.slugs) and self.slugs[position] == slug

    @property
    def relative_paths(self) -> dict[str, str]:
        """The path of each slug's file inside the directory; computed on first use."""
        if self._relative_paths is None:
            self._relative_paths = dict(_iterate_slugs(self._folders))
        return self._relative_paths

    def compute_slugs(self, folders: list[_ScannedFolder]) -> None:
        """Compute the slugs after the walk."""
        text = _join_slugs(folders)
        if not text.isprintable():
            folders = [folder.exclude_unprintable_names(self.mistakes) for folder in folders]
            text = _join_slugs(folders)
        self._folders = folders
        self.slugs = sorted(text.split("//")) if text else []
        for folder in folders:
            if folder.hidden:
                self.hidden.update(slug for slug, _ in _iterate_slugs([folder]))
            elif folder.dotted:
                self.hidden.update(
                    slug for slug, path in _iterate_slugs([folder]) if is_hidden_path(path)
                )
        if any(map(eq, self.slugs, self.slugs[1:])):
            self._resolve_slug_collisions()

    def _resolve_slug_collisions(self) -> None:
        """If files share a slug, give it to one of them, and give the others their paths as slugs.

        If such a path is itself a slug (`LICENSE` next to `LICENSE.md`), it is prefixed with `./`.
        """
        claims: dict[str, list[str]] = {}
        for slug, path in _iterate_slugs(self._folders):
            claims.setdefault(slug, []).append(path)
        self._relative_paths = {}
        for slug, rivals in claims.items():
            first, *losers = sorted(rivals, key=_get_collision_rank)
            self._relative_paths[slug] = first
            for path in losers:
                self.shadowed[f"./{path}" if path in claims else path] = slug
        self._relative_paths.update((name, name.removeprefix("./")) for name in self.shadowed)
        self.hidden = {slug for slug, path in self._relative_paths.items() if is_hidden_path(path)}
        self.slugs = sorted(self._relative_paths)


class _ScannedFolder:
    """The files of one directory; its path and its slug are empty or end with `/`."""

    __slots__ = ("dotted", "hidden", "names", "path", "slug")

    def __init__(self, path: str, slug: str, hidden: bool, names: list[str]) -> None:
        self.path = path
        self.slug = slug
        self.hidden = hidden
        self.names = names
        self.dotted = False

    def exclude_unprintable_names(self, mistakes: list[tuple[str, str]]) -> _ScannedFolder:
        """Return the folder without names that cannot be shown; add these to `mistakes`."""
        good = []
        for name in self.names:
            wrong = None if name.isprintable() else find_file_name_problem(name)
            if wrong:
                mistakes.append((wrong, self.path + name))
            else:
                good.append(name)
        return _ScannedFolder(self.path, self.slug, self.hidden, good)


def _join_slugs(folders: list[_ScannedFolder]) -> str:
    """Return the slugs of all files, joined by `//`, which no slug contains.

    String operations on whole directories are several times faster than a loop over the files.
    """
    pieces = []
    for folder in folders:
        names = folder.names
        if not names:
            continue
        ended = "/".join(names) + "/"
        if ended[0] == "." or "/." in ended:
            folder.dotted = True
            stems = "/".join([_strip_leading_dots(split_file_extension(name)[0]) for name in names])
        elif ended.count(".md/") == len(names):
            stems = ended.replace(".md/", "/")[:-1]
        else:
            stems = "/".join([name.rpartition(".")[0] or name for name in names])
        pieces.append(folder.slug + stems.replace("/", f"//{folder.slug}"))
    return "//".join(pieces)


def _iterate_slugs(folders: list[_ScannedFolder]) -> Iterator[tuple[str, str]]:
    """Yield slug and path of every file."""
    for folder in folders:
        slug, path = folder.slug, folder.path
        for name in folder.names:
            # Fast path of `split_file_extension` for names without a leading dot.
            stem = (
                _strip_leading_dots(split_file_extension(name)[0])
                if name[0] == "."
                else name.rpartition(".")[0] or name
            )
            yield slug + stem, path + name


def split_file_extension(name: str) -> tuple[str, str]:
    """Split a file name into stem and last extension; leading dots do not start an extension."""
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem.strip(".") else (name, "")


def is_hidden_path(relative: str) -> bool:
    """Return whether a component of the path starts with a dot."""
    return relative.startswith(".") or "/." in relative


def _strip_leading_dots(component: str) -> str:
    return component.lstrip(".") or component


def is_inside_folder(path: str, folder: str) -> bool:
    """Return whether a real path is the folder or is below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def scan_topic(root: str, base: str) -> TopicScan:
    """Walk `base`, a real directory inside the real workspace `root`.

    Links are followed if their target is inside the workspace and is not a directory above the
    link. Raises `OSError` if `base` itself cannot be listed.
    """
    found = TopicScan(base)
    folders: list[_ScannedFolder] = []
    linked = 0
    # Each item: path, slug, hidden flag, real path, and inside a link the real paths of the parents.
    todo: list[tuple[str, str, bool, str, tuple[str, ...] | None]] = [("", "", False, base, None)]
    while todo:
        path, slug, hidden, real, above = todo.pop()
        names: list[str] = []
        below: list[tuple[str, str, tuple[str, ...] | None]] = []
        try:
            with os.scandir(real) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        names.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        chain = None if above is None else (*above, real)
                        below.append((entry.name, entry.path, chain))
                    elif entry.is_symlink() and (target := _resolve_symlink(entry)):
                        if not is_inside_folder(target, root):
                            message = "the link leads out of the workspace"
                            found.mistakes.append((message, path + entry.name))
                        elif os.path.isdir(target):
                            parents = _list_parent_folders(base, real) if above is None else above
                            below.append((entry.name, target, (*parents, real)))
                        elif os.path.isfile(target):
                            names.append(entry.name)
        except OSError as error:
            if not path:
                raise
            found.mistakes.append((error.strerror or "cannot be read", path[:-1]))
        if names:
            folders.append(_ScannedFolder(path, slug, hidden, names))
        for name, target, chain in below:
            if chain is not None:
                linked += 1
                if target in chain:
                    found.mistakes.append(("a link back to a parent is not followed", path + name))
                    continue
                if linked > MAX_LINKED_DIRECTORIES:
                    continue
            if not name.isprintable() and (wrong := find_file_name_problem(name)):
                found.mistakes.append((wrong, path + name))
            elif name[0] == ".":
                todo.append(
                    (f"{path}{name}/", f"{slug}{_strip_leading_dots(name)}/", True, target, chain)
                )
            else:
                todo.append((f"{path}{name}/", f"{slug}{name}/", hidden, target, chain))
    if linked > MAX_LINKED_DIRECTORIES:
        found.mistakes.append(
            (f"only {MAX_LINKED_DIRECTORIES:,} directories behind links are read", "")
        )
    found.compute_slugs(folders)
    return found


def find_file_name_problem(name: str) -> str | None:
    """Return why a file's name cannot be a slug, or None.

    Bytes that are not UTF-8 cannot be sent as JSON, and a line break would forge lines in a
    listing.
    """
    for sign in name:
        category = unicodedata.category(sign)
        if category == "Cs":
            return "the name is not UTF-8"
        if category == "Cc":
            return "the name has a control character"
    return None


def _resolve_symlink(link: os.DirEntry[str]) -> str | None:
    """Return the real path of a link's target, or None if it is broken or circular.

    Editors use such links as locks, so they are not reported as mistakes.
    """
    try:
        return os.path.realpath(link.path, strict=True)
    except OSError:
        return None


def _list_parent_folders(base: str, real: str) -> tuple[str, ...]:
    """Return the directories from just above `real` up to `base`."""
    chain = []
    while real != base:
        real = os.path.dirname(real)
        chain.append(real)
    return tuple(chain)


def _get_collision_rank(path: str) -> tuple[bool, int, str]:
    """Return a sort key for paths with the same slug; the path that sorts first gets the slug."""
    ending = split_file_extension(path.rpartition("/")[2])[1]
    return (is_hidden_path(path), _EXTENSION_RANKS.get(ending.lower(), len(_EXTENSION_RANKS)), path)
