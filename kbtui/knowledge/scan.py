"""Walks a topic's directory and names what it finds: slugs, hidden, collisions, links.

Twenty thousand subjects are a size to be met without a pause, so the walk keeps
plain strings; `Subject` records are made of those that are asked for.
"""

# ruff: noqa: PTH  (a Path for each of twenty thousand names would cost more than the walk)
from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass, field

LINKED_MOST = 10_000
"""Directories that are entered through links: links may multiply without ever looping."""

_FIRST = {ending: rank for rank, ending in enumerate((".md", ".txt", ".text", ""))}


@dataclass
class Scan:
    """What lies in one topic's directory.

    `slugs` is sorted; `relative` gives each one's path inside the directory.
    `shadowed` maps the losers of collisions (named by their path as written)
    to the slug that they lost. `mistakes` has (message, path) of what was left out.
    """

    base: str
    slugs: list[str] = field(default_factory=list)
    relative: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    shadowed: dict[str, str] = field(default_factory=dict)
    mistakes: list[tuple[str, str]] = field(default_factory=list)


def split_name(name: str) -> tuple[str, str]:
    """A file name's stem and last extension with its dot; leading dots begin no extension."""
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem.strip(".") else (name, "")


def slug_of(relative: str) -> str:
    """The slug of a path inside a topic's directory (KB, "Subject Resolution"; decisions A2)."""
    *folders, name = relative.split("/")
    return "/".join(_bare(part) for part in (*folders, split_name(name)[0]))


def is_hidden(relative: str) -> bool:
    """Whether a component of the path starts with a dot (KB, "Hidden Subjects")."""
    return relative.startswith(".") or "/." in relative


def _bare(component: str) -> str:
    return component.lstrip(".") or component


def inside(path: str, folder: str) -> bool:
    """Whether a real path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def scan(root: str, base: str) -> Scan:
    """Walk `base`, a real directory inside the real workspace `root`.

    Links are followed as long as their targets stay inside the workspace; one
    that leads back to a directory above itself is cut (decisions A10). Raises
    `OSError` when `base` itself cannot be listed.
    """
    found = Scan(base)
    paths: list[str] = []  # relative path of each subject, beside its natural slug
    natural: list[str] = []
    linked = 0
    # (relative prefix, slug prefix, hidden, real path, real paths above when inside a link)
    todo: list[tuple[str, str, bool, str, tuple[str, ...] | None]] = [("", "", False, base, None)]
    while todo:
        prefix, slugs, hidden, real, above = todo.pop()
        names: list[str] = []
        folders: list[tuple[str, str, tuple[str, ...] | None]] = []
        try:
            with os.scandir(real) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        names.append(entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        chain = None if above is None else (*above, real)
                        folders.append((entry.name, entry.path, chain))
                    elif entry.is_symlink():
                        _follow(root, base, prefix, entry, above, real, names, folders, found)
        except OSError as error:
            if not prefix:
                raise
            found.mistakes.append((error.strerror or "cannot be read", prefix[:-1]))
        if folders:
            for name, path, chain in folders:
                if chain is not None:
                    linked += 1
                    if path in chain:
                        found.mistakes.append(("a link leads back to it; cut here", prefix + name))
                        continue
                    if linked > LINKED_MOST:
                        continue
                if not name.isprintable() and (wrong := _wrong(name)):
                    found.mistakes.append((wrong, prefix + name))
                    continue
                dotted = name.startswith(".")
                todo.append(
                    (f"{prefix}{name}/", f"{slugs}{_bare(name)}/", hidden or dotted, path, chain)
                )
        if names:
            _name(prefix, slugs, hidden, names, found, paths, natural)
    if linked > LINKED_MOST:
        found.mistakes.append((f"more than {LINKED_MOST:,} directories behind links; cut", ""))
    found.relative = dict(zip(natural, paths, strict=True))
    if len(found.relative) != len(natural):
        _settle(found, paths, natural)
    found.slugs = sorted(found.relative)
    return found


def _name(
    prefix: str,
    slugs: str,
    hidden: bool,
    names: list[str],
    found: Scan,
    paths: list[str],
    natural: list[str],
) -> None:
    """Add the files of one directory."""
    if not "".join(names).isprintable():
        good = []
        for name in names:
            wrong = None if name.isprintable() else _wrong(name)
            if wrong:
                found.mistakes.append((wrong, prefix + name))
            else:
                good.append(name)
        names = good
    dotted = [name for name in names if name[0] == "."]
    if dotted:
        names = [name for name in names if name[0] != "."]
        for name in dotted:
            slug = slugs + _bare(split_name(name)[0])
            natural.append(slug)
            paths.append(prefix + name)
            found.hidden.add(slug)
    # The same as split_name for a name that does not start with a dot, without the call.
    new = [slugs + (name.rpartition(".")[0] or name) for name in names]
    natural += new
    paths += [prefix + name for name in names]
    if hidden:
        found.hidden.update(new)


def _wrong(name: str) -> str | None:
    for sign in name:
        category = unicodedata.category(sign)
        if category == "Cs":
            return "the name is not UTF-8"
        if category == "Cc":
            return "the name has a control character"
    return None


def _follow(
    root: str,
    base: str,
    prefix: str,
    entry: os.DirEntry[str],
    above: tuple[str, ...] | None,
    real: str,
    names: list[str],
    folders: list[tuple[str, str, tuple[str, ...] | None]],
    found: Scan,
) -> None:
    """Sort a link by its target: a file, a directory, or nothing for us."""
    try:
        target = os.path.realpath(entry.path, strict=True)
    except OSError:
        return  # leads nowhere or in a circle: editors leave such links as locks
    if not inside(target, root):
        found.mistakes.append(("a link leads out of the workspace", prefix + entry.name))
    elif os.path.isdir(target):
        chain = (*(above if above is not None else _chain(base, real)), real)
        folders.append((entry.name, target, chain))
    elif os.path.isfile(target):
        names.append(entry.name)


def _chain(base: str, real: str) -> tuple[str, ...]:
    """The directories from `base` down to just above `real`."""
    chain = []
    while real != base:
        real = os.path.dirname(real)
        chain.append(real)
    return tuple(chain)


def _settle(found: Scan, paths: list[str], natural: list[str]) -> None:
    """Give each contested slug to one file; the others go by their path as written.

    Where that path is itself a slug (`LICENSE` beside `LICENSE.md`), it gets `./` in front.
    """
    claims: dict[str, list[str]] = {}
    for slug, path in zip(natural, paths, strict=True):
        claims.setdefault(slug, []).append(path)
    for slug, rivals in claims.items():
        first, *losers = sorted(rivals, key=_precedence)
        found.relative[slug] = first
        for path in losers:
            name = f"./{path}" if path in claims else path
            found.shadowed[name] = slug
    for name in found.shadowed:
        found.relative[name] = name.removeprefix("./")
    found.hidden = {slug for slug, path in found.relative.items() if is_hidden(path)}


def _precedence(path: str) -> tuple[bool, int, str]:
    ending = split_name(path.rpartition("/")[2])[1]
    return (is_hidden(path), _FIRST.get(ending.lower(), len(_FIRST)), path)
