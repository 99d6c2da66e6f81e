"""Walks a topic's directory and names what it finds: slugs, hidden, collisions, links.

Twenty thousand subjects are a size to be met without a pause, so the walk keeps
plain strings; `Subject` records are made of those that are asked for.
"""

# A Path for each of twenty thousand names would cost more than the walk.
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
"""Directories that are entered through links: links may multiply without ever looping."""

_EXTENSION_RANKS = {ending: rank for rank, ending in enumerate((".md", ".txt", ".text", ""))}


class TopicScan:
    """What lies in one topic's directory `base`.

    `slugs` is sorted. `shadowed` maps the losers of collisions (named by their
    path as written) to the slug that they lost. `mistakes` has (message, path)
    of what was left out.
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self.slugs: list[str] = []
        self.hidden: set[str] = set()
        self.shadowed: dict[str, str] = {}
        self.mistakes: list[tuple[str, str]] = []
        self._folders: list[_ScannedFolder] = []
        self._relative: dict[str, str] | None = None

    def __contains__(self, slug: str) -> bool:
        position = bisect_left(self.slugs, slug)
        return position < len(self.slugs) and self.slugs[position] == slug

    @property
    def relative(self) -> dict[str, str]:
        """Each slug's path inside the directory; made when first asked for."""
        if self._relative is None:
            self._relative = dict(_iterate_slugs(self._folders))
        return self._relative

    def finish(self, folders: list[_ScannedFolder]) -> None:
        """Name everything that the walk found."""
        text = _join_slugs(folders)
        if not text.isprintable():
            folders = [folder.without_bad_names(self.mistakes) for folder in folders]
            text = _join_slugs(folders)
        self._folders = folders
        self.slugs = sorted(text.split("//")) if text else []
        for folder in folders:
            if folder.hidden:
                self.hidden.update(slug for slug, _ in _iterate_slugs([folder]))
            elif folder.dotted:
                self.hidden.update(
                    slug for slug, path in _iterate_slugs([folder]) if is_hidden(path)
                )
        if any(map(eq, self.slugs, self.slugs[1:])):
            self._resolve_collisions()

    def _resolve_collisions(self) -> None:
        """Give each contested slug to one file; the others go by their path as written.

        Where that path is itself a slug (`LICENSE` beside `LICENSE.md`), it gets
        `./` in front.
        """
        claims: dict[str, list[str]] = {}
        for slug, path in _iterate_slugs(self._folders):
            claims.setdefault(slug, []).append(path)
        self._relative = {}
        for slug, rivals in claims.items():
            first, *losers = sorted(rivals, key=_rank_collision)
            self._relative[slug] = first
            for path in losers:
                self.shadowed[f"./{path}" if path in claims else path] = slug
        self._relative.update((name, name.removeprefix("./")) for name in self.shadowed)
        self.hidden = {slug for slug, path in self._relative.items() if is_hidden(path)}
        self.slugs = sorted(self._relative)


class _ScannedFolder:
    """The files of one directory: its path and its slug, both ended by `/` or empty."""

    __slots__ = ("dotted", "hidden", "names", "path", "slug")

    def __init__(self, path: str, slug: str, hidden: bool, names: list[str]) -> None:
        self.path = path
        self.slug = slug
        self.hidden = hidden
        self.names = names
        self.dotted = False

    def without_bad_names(self, mistakes: list[tuple[str, str]]) -> _ScannedFolder:
        """The folder with the names that can be shown; notes what is wrong with the others."""
        good = []
        for name in self.names:
            wrong = None if name.isprintable() else find_name_problem(name)
            if wrong:
                mistakes.append((wrong, self.path + name))
            else:
                good.append(name)
        return _ScannedFolder(self.path, self.slug, self.hidden, good)


def _join_slugs(folders: list[_ScannedFolder]) -> str:
    """All slugs with `//` between them.

    One text, because most work can then be done on many names in one call. No
    name has a `/`, so a replacement at `/` falls between names.
    """
    pieces = []
    for folder in folders:
        names = folder.names
        if not names:
            continue
        ended = "/".join(names) + "/"
        if ended[0] == "." or "/." in ended:
            folder.dotted = True
            stems = "/".join([_strip_leading_dots(split_name(name)[0]) for name in names])
        elif ended.count(".md/") == len(names):
            stems = ended.replace(".md/", "/")[:-1]
        else:
            stems = "/".join([name.rpartition(".")[0] or name for name in names])
        pieces.append(folder.slug + stems.replace("/", f"//{folder.slug}"))
    return "//".join(pieces)


def _iterate_slugs(folders: list[_ScannedFolder]) -> Iterator[tuple[str, str]]:
    """Slug and path of every file."""
    for folder in folders:
        slug, path = folder.slug, folder.path
        for name in folder.names:
            # Without a leading dot, what stands before the last one is the stem, if anything does.
            stem = (
                _strip_leading_dots(split_name(name)[0])
                if name[0] == "."
                else name.rpartition(".")[0] or name
            )
            yield slug + stem, path + name


def split_name(name: str) -> tuple[str, str]:
    """A file name's stem and last extension with its dot; leading dots begin no extension."""
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem.strip(".") else (name, "")


def slug_of(relative: str) -> str:
    """The slug of a path inside a topic's directory."""
    *folders, name = relative.split("/")
    return "/".join(_strip_leading_dots(part) for part in (*folders, split_name(name)[0]))


def is_hidden(relative: str) -> bool:
    """Whether a component of the path starts with a dot."""
    return relative.startswith(".") or "/." in relative


def _strip_leading_dots(component: str) -> str:
    return component.lstrip(".") or component


def is_inside(path: str, folder: str) -> bool:
    """Whether a real path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def scan_topic(root: str, base: str) -> TopicScan:
    """Walk `base`, a real directory inside the real workspace `root`.

    Links are followed as long as their targets stay inside the workspace; one
    that leads back to a directory above itself is cut. Raises
    `OSError` when `base` itself cannot be listed.
    """
    found = TopicScan(base)
    folders: list[_ScannedFolder] = []
    linked = 0
    # Path and slug so far, hidden, the real path, and those above it when inside a link.
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
                    elif entry.is_symlink():
                        _classify_link(root, base, path, entry, above, real, names, below, found)
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
                    found.mistakes.append(("a link leads back to it; cut here", path + name))
                    continue
                if linked > MAX_LINKED_DIRECTORIES:
                    continue
            if not name.isprintable() and (wrong := find_name_problem(name)):
                found.mistakes.append((wrong, path + name))
            elif name[0] == ".":
                todo.append(
                    (f"{path}{name}/", f"{slug}{_strip_leading_dots(name)}/", True, target, chain)
                )
            else:
                todo.append((f"{path}{name}/", f"{slug}{name}/", hidden, target, chain))
    if linked > MAX_LINKED_DIRECTORIES:
        found.mistakes.append(
            (f"more than {MAX_LINKED_DIRECTORIES:,} directories behind links; cut", "")
        )
    found.finish(folders)
    return found


def find_name_problem(name: str) -> str | None:
    """Why a file's name cannot be a slug; None when it can.

    Bytes that are no text could not be sent, and a line break would forge lines
    in a listing.
    """
    for sign in name:
        category = unicodedata.category(sign)
        if category == "Cs":
            return "the name is not UTF-8"
        if category == "Cc":
            return "the name has a control character"
    return None


def _classify_link(
    root: str,
    base: str,
    prefix: str,
    entry: os.DirEntry[str],
    above: tuple[str, ...] | None,
    real: str,
    names: list[str],
    below: list[tuple[str, str, tuple[str, ...] | None]],
    found: TopicScan,
) -> None:
    """Sort a link by its target: a file, a directory, or nothing for us."""
    try:
        target = os.path.realpath(entry.path, strict=True)
    except OSError:
        return  # leads nowhere or in a circle: editors leave such links as locks
    if not is_inside(target, root):
        found.mistakes.append(("a link leads out of the workspace", prefix + entry.name))
    elif os.path.isdir(target):
        chain = (*(above if above is not None else _list_parents(base, real)), real)
        below.append((entry.name, target, chain))
    elif os.path.isfile(target):
        names.append(entry.name)


def _list_parents(base: str, real: str) -> tuple[str, ...]:
    """The directories from `base` down to just above `real`."""
    chain = []
    while real != base:
        real = os.path.dirname(real)
        chain.append(real)
    return tuple(chain)


def _rank_collision(path: str) -> tuple[bool, int, str]:
    ending = split_name(path.rpartition("/")[2])[1]
    return (is_hidden(path), _EXTENSION_RANKS.get(ending.lower(), len(_EXTENSION_RANKS)), path)
