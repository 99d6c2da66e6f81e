"""Adds, changes and removes blocks of `.jp/kb-sources.toml`; comments around them stay."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, UsageError
from kbtui.files import parse_toml, read_regular
from kbtui.knowledge.editing import TomlChange, apply
from kbtui.sources.config import load_sources, parse_source, sources_path

if TYPE_CHECKING:
    from kbtui.sources.models import Source
    from kbtui.workspace import Workspace


def add_source(workspace: Workspace, name: str, block: dict[str, Any]) -> Source:
    """Write a new source; raises `UsageError` where the name is taken, `ConfigError` for a mistake."""
    if name in load_sources(workspace).sources:
        raise UsageError(
            "there is such a source already", where=name, hint="--name gives it another name"
        )
    source = _parsed(name, block)
    _write(workspace, name, block)
    return source


def edit_source(workspace: Workspace, name: str, changes: dict[str, Any]) -> Source:
    """Change keys of a source; None takes a key away. Raises as `add_source`, and `NothingFound`."""
    block = {**load_sources(workspace).find(name).block, **changes}
    block = {key: value for key, value in block.items() if value is not None}
    source = _parsed(name, block)
    _write(workspace, name, block)
    return source


def remove_source(workspace: Workspace, name: str) -> None:
    """Take a source out of the file; raises `NothingFound`, `ConfigError`."""
    load_sources(workspace).find(name)
    _write(workspace, name, None)


def name_for(kind: str, what: str) -> str:
    """A source's name made of the host, the file or the command, or else of the kind."""
    import re
    from contextlib import suppress
    from pathlib import PurePath
    from urllib.parse import urlsplit

    from kbtui.knowledge.subject_files import name_of

    if kind == "url_crawl":
        with suppress(ValueError):  # what is wrong with the address is said where it is parsed
            what = urlsplit(what).hostname or what
    elif kind == "file_upload":
        what = PurePath(what).stem or what
    else:
        what = "".join(what.split()[:1]).rpartition("/")[2]
    plain = re.sub(r"[^a-z0-9._-]+", "-", name_of(what)).strip("-._")
    return plain[:40].rstrip("-._") or kind.replace("_", "-")


def _parsed(name: str, block: dict[str, Any]) -> Source:
    try:
        return parse_source(name, block)
    except ConfigError as error:
        where = f"source.{name}" + (f".{error.where}" if error.where else "")
        raise ConfigError(error.message, where=where, hint=error.hint) from error


def _write(workspace: Workspace, name: str, block: dict[str, Any] | None) -> None:
    import tomlkit

    path = sources_path(workspace)
    if path.is_symlink():
        raise ConfigError("is a link, which is not written through", where=str(path))
    try:
        old = read_regular(path).decode("utf-8-sig") if path.exists() else None
        expected = parse_toml(old or "")
        document = tomlkit.parse(old or "")
    except (ValueError, RecursionError, OSError, tomlkit.exceptions.TOMLKitError) as error:
        raise ConfigError(
            f"is not valid TOML: {error}", where=str(path), hint="mend it first"
        ) from error
    unsafe = ConfigError("cannot be edited safely", where=str(path), hint="change it by hand")
    try:
        _set(expected, name, block, {})
        _set(document, name, block, tomlkit.table(is_super_table=True))
        new = tomlkit.dumps(document)
    except (AttributeError, TypeError, KeyError, tomlkit.exceptions.TOMLKitError) as error:
        raise unsafe from error
    # The parser has the word on whether nothing else changed.
    if tomllib.loads(new) != expected:
        raise unsafe
    apply(TomlChange(path, old, new))


def _set(document: Any, name: str, block: dict[str, Any] | None, fresh: Any) -> None:
    """Put a block into a parsed file, or take it out, touching only the keys that differ."""
    if block is None:
        del document["source"][name]
        if not document["source"]:
            del document["source"]
        return
    if "source" not in document:
        document["source"] = fresh
    table = document["source"].get(name)
    if table is None:
        document["source"][name] = block
        return
    for key in [key for key in table if key not in block]:
        del table[key]
    for key, value in block.items():
        if table.get(key) != value:
            table[key] = value
