"""What is wrong around a workspace: terminal, settings, packages, and the directories that kbtui writes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.library.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution

    from kbtui.library.findings import State
    from kbtui.library.library import Library

SMALLEST = (60, 15)
"""Columns and rows below which the screen is cramped."""
ROOM_LEAST = 300_000_000
"""Bytes that should be free where the index lies."""


def look_at_terminal(library: Library | None) -> Iterator[Finding]:
    """TERM, colours, locale and size, as a program sees them here."""
    import locale
    import shutil

    name = os.environ.get("TERM", "")
    if sys.__stdout__ is None or not sys.__stdout__.isatty():
        text = "standard output is no terminal: commands print plain text, and the screen cannot be drawn"
        yield Finding("terminal", "note", text)
    elif name in {"", "dumb", "unknown"}:
        text = f"TERM is {name or 'not set'}: the screen cannot be drawn; a common value is xterm-256color"
        yield Finding("terminal", "wrong", text)
    else:
        columns, rows = shutil.get_terminal_size()
        yield Finding("terminal", "ok", f"{name}, {columns} columns, {rows} rows")
        if columns < SMALLEST[0] or rows < SMALLEST[1]:
            text = f"it is small: the panes need {SMALLEST[0]} columns and {SMALLEST[1]} rows"
            yield Finding("terminal", "note", text)
    if os.environ.get("NO_COLOR"):
        yield Finding("terminal", "note", "NO_COLOR is set: no colours")
    elif os.environ.get("COLORTERM") not in {"truecolor", "24bit"}:
        text = "the terminal does not say that it has all colours (COLORTERM=truecolor): the nearest of 256 are used"
        yield Finding("terminal", "note", text)
    encoding = locale.getencoding()
    if encoding.lower().replace("-", "") != "utf8":
        text = f"the locale's encoding is {encoding}: lines and letters are lost; try LANG=C.UTF-8"
        yield Finding("terminal", "wrong", text)
    if os.environ.get("TMUX"):
        text = "in tmux, copying needs: set -g set-clipboard on"
        yield Finding("terminal", "note", text)


def look_at_settings(library: Library | None) -> Iterator[Finding]:
    """Mistakes in the file, and what is set; a mistake is raised as `ConfigError`."""
    from kbtui.workspace.settings import explain_settings, settings_path

    found = [one.key.name for one in explain_settings() if one.origin != "default"]
    where = settings_path() if settings_path().exists() else "there is no file"
    named = f"not the defaults: {', '.join(found)}" if found else "every key has its default"
    yield Finding("settings", "ok", f"{where}; {named}")


def look_at_packages(library: Library | None) -> Iterator[Finding]:
    """Whether every package that kbtui needs is installed, complete and of a version that fits."""
    from importlib.metadata import PackageNotFoundError, distribution, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    try:
        waiting = [(Requirement(text), "", "kbtui") for text in requires("kbtui") or []]
    except PackageNotFoundError:
        yield Finding(
            "packages", "note", "kbtui runs without being installed: nobody says what it needs"
        )
        return
    seen: dict[str, set[str]] = {}
    problems = []
    while waiting:
        wanted, extra, by = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        fresh = {"", *map(canonicalize_name, wanted.extras)} - seen.setdefault(name, set())
        seen[name] |= fresh
        exact = f"'{wanted.name}{wanted.specifier}'"
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            if fresh:
                problems.append(_package(wanted.name, "wrong", "is not installed", by, exact))
            continue
        needs = [Requirement(text) for text in found.requires or []]
        waiting += [(one, each, wanted.name) for one in needs for each in sorted(fresh)]
        if not wanted.specifier.contains(found.version, prereleases=True):
            text = f"has version {found.version}, not {wanted.specifier}"
            problems.append(_package(wanted.name, "note", text, by, exact))
        if "" in fresh and (gone := _missing_module(found)):
            how = f"--force-reinstall --no-deps {wanted.name}=={found.version}"
            problems.append(_package(wanted.name, "wrong", f"lacks its file {gone}", by, how))
    yield from problems
    if not problems:
        yield Finding("packages", "ok", f"all {len(seen)} that kbtui needs are installed")


def _package(name: str, state: State, problem: str, by: str, how: str) -> Finding:
    text = f"{name} {problem}; {by} needs it: {sys.executable} -m pip install {how}"
    return Finding("packages", state, text)


def _missing_module(found: Distribution) -> str | None:
    """The first module of a distribution whose file is gone."""
    for file in found.files or ():
        is_package = len(file.parts) == 2 and file.name == "__init__.py"
        is_module = len(file.parts) == 1 and file.suffix in (".py", ".so")
        if (is_package or is_module) and not Path(file.locate()).exists():
            return str(file)
    return None


def look_at_workspace(library: Library) -> Iterator[Finding]:
    """The root, JP's id, and whether what kbtui keeps can be written."""
    from kbtui.workspace import paths

    workspace = library.workspace
    if not workspace.jp.is_dir():
        yield Finding("workspace", "wrong", f"it is gone: {workspace.root} was moved or deleted")
        return
    yield Finding("workspace", "ok", str(workspace.root))
    if workspace.id is None:
        text = ".jp/.id is missing or not an id: conversations that JP keeps outside are not found"
        yield Finding("workspace", "note", text)
    for name, folder in {
        "index": workspace.cache_dir,
        "query log": workspace.data_dir,
        "log": paths.state_home(),
    }.items():
        there = _existing(folder)
        if not os.access(there, os.W_OK | os.X_OK):
            yield Finding("workspace", "wrong", f"the {name} cannot be written: {there}")
    yield from _room(workspace.cache_dir)


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


def _room(folder: Path) -> Iterator[Finding]:
    import shutil

    free = shutil.disk_usage(_existing(folder)).free
    if free < ROOM_LEAST:
        text = f"only {free // 1_000_000} MB are free where the index lies: {_existing(folder)}"
        yield Finding("workspace", "note", text)
