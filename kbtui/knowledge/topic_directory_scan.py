"""Walks a topic's directory and assigns a slug to each file.

Also detects hidden files, and files that would have the same slug.
"""

# Making a Path for each of 20,000 names would take longer than the walk.
# ruff: noqa: PTH110
from __future__ import annotations

import os
import unicodedata

MAX_LINKED_DIRECTORIES = 10_000
"""At most this many directories of a topic are read through links, because links could multiply the topic's paths."""

_EXTENSIONS_BY_RANK = [".md", ".txt", ".text", ""]


class TopicDirectoryScan:
    """The files found in a topic's directory.

    * `slugs` is sorted, and `relative_paths` maps each slug to the file's path in the directory.
    * `shadowed` concerns files that would have the same slug as another file. The slug of such a
      file is its path; `shadowed` maps this path to the slug that the other file has.
    * `mistakes` contains a pair `(message, path)` for each file that was left out.
    * `published` contains the slugs of files that are only in the mirror of the published library.
    """

    def __init__(
        self, files_by_slug: dict[str, list[str]], mistakes: list[tuple[str, str]]
    ) -> None:
        self.mistakes = mistakes
        self.relative_paths: dict[str, str] = {}
        self.shadowed: dict[str, str] = {}
        for slug, paths in files_by_slug.items():
            if len(paths) > 1:
                paths.sort(key=_get_slug_collision_rank)
            self.relative_paths[slug] = paths[0]
            for path in paths[1:]:
                # The path can itself be a slug: `LICENSE` next to `LICENSE.md`.
                other = f"./{path}" if path in files_by_slug else path
                self.relative_paths[other] = path
                self.shadowed[other] = slug
        self.published = set[str]()
        self.slugs = sorted(self.relative_paths)
        self.hidden = {slug for slug, path in self.relative_paths.items() if is_hidden_path(path)}

    def __contains__(self, slug: str) -> bool:
        return slug in self.relative_paths

    def add_published_files(self, mirror: TopicDirectoryScan) -> None:
        """Add the files of a mirror whose slugs are not the slugs of files in the workspace."""
        for slug, path in mirror.relative_paths.items():
            if slug not in self.relative_paths:
                self.relative_paths[slug] = path
                self.published.add(slug)
                if slug in mirror.shadowed:
                    self.shadowed[slug] = mirror.shadowed[slug]
        self.slugs = sorted(self.relative_paths)


def split_file_extension(name: str) -> tuple[str, str]:
    """Split a file name into stem and last extension. A dot at the start begins no extension."""
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem.strip(".") else (name, "")


def is_hidden_path(relative: str) -> bool:
    """Return whether a component of the path starts with a dot."""
    return relative.startswith(".") or "/." in relative


def is_inside_directory(path: str, folder: str) -> bool:
    """Return whether a real path is `folder` or is under it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def scan_topic_directory(root: str, base: str) -> TopicDirectoryScan:
    """Find the files under `base`, a real directory inside the real workspace `root`.

    A link is followed if its target is inside the workspace, unless the target is a directory above
    the link. Raises `OSError` if `base` cannot be read.
    """
    files_by_slug: dict[str, list[str]] = {}
    mistakes: list[tuple[str, str]] = []
    linked = 0
    # Each element: a directory's path, its slug, the real paths from `base` to it, whether links lead to it.
    todo: list[tuple[str, str, tuple[str, ...], bool]] = [("", "", (base,), False)]
    while todo:
        folder, folder_slug, chain, is_linked = todo.pop()
        linked += is_linked
        if is_linked and linked > MAX_LINKED_DIRECTORIES:
            continue
        try:
            entries = list(os.scandir(chain[-1]))
        except OSError as error:
            if not folder:
                raise
            mistakes.append((error.strerror or "cannot be read", folder[:-1]))
            continue
        for entry in entries:
            name, path, real = entry.name, folder + entry.name, entry.path
            if entry.is_symlink():
                # Skip broken links: editors use them as locks.
                if not os.path.exists(real):
                    continue
                real = os.path.realpath(real)
                if not is_inside_directory(real, root):
                    mistakes.append(("the link points outside the workspace", path))
                    continue
            if problem := find_file_name_problem(name):
                mistakes.append((problem, path))
            elif entry.is_dir():
                if real in chain:
                    mistakes.append(
                        ("the link leads back to a parent directory, so it is not followed", path)
                    )
                    continue
                slug = f"{folder_slug}{_strip_leading_dots(name)}/"
                todo.append((f"{path}/", slug, (*chain, real), is_linked or entry.is_symlink()))
            elif entry.is_file():
                slug = folder_slug + _make_last_part_of_slug(name)
                files_by_slug.setdefault(slug, []).append(path)
    if linked > MAX_LINKED_DIRECTORIES:
        message = f"only {MAX_LINKED_DIRECTORIES:,} linked directories are read"
        mistakes.append((message, ""))
    return TopicDirectoryScan(files_by_slug, mistakes)


def make_slug_of_path(relative: str) -> str:
    """Return the slug for a file, derived from its path in the topic's directory.

    The file gets this slug unless another file has it.
    """
    *folders, name = relative.split("/")
    return "/".join([*map(_strip_leading_dots, folders), _make_last_part_of_slug(name)])


def _make_last_part_of_slug(name: str) -> str:
    return _strip_leading_dots(split_file_extension(name)[0])


def _strip_leading_dots(name: str) -> str:
    return name.lstrip(".") or name


def find_file_name_problem(name: str) -> str | None:
    """Return the reason why a file's name cannot be used, or None.

    A name must be valid Unicode, so that JSON can contain it, and must have no control characters.
    """
    categories = () if name.isprintable() else set(map(unicodedata.category, name))
    if "Cs" in categories:
        return "the name is not UTF-8"
    return "the name has a control character" if "Cc" in categories else None


def _get_slug_collision_rank(path: str) -> tuple[bool, int, str]:
    """Return a sort key for the paths of files that would have the same slug.

    The file whose path has the smallest key gets the slug.
    """
    ending = split_file_extension(path.rpartition("/")[2])[1].lower()
    known = ending in _EXTENSIONS_BY_RANK
    rank = _EXTENSIONS_BY_RANK.index(ending) if known else len(_EXTENSIONS_BY_RANK)
    return is_hidden_path(path), rank, path
