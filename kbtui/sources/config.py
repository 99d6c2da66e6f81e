"""Reads `.jp/kb-sources.toml`, one table `[source.NAME]` a source."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, KbtuiError, NothingFound
from kbtui.knowledge.models import Problem
from kbtui.sources.models import Source

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.workspace import Workspace

NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
"""What a source may be called: it becomes a directory's name."""
DEPTH_MOST = 20

_TEXT, _LIST, _NUMBER = "a string", "a list of strings", "a whole number"
_COMMON = {"kind": _TEXT, "topic": _TEXT, "cron": _TEXT}
_KEYS: dict[str, dict[str, str]] = {
    "url_crawl": {"url": _TEXT, "depth": _NUMBER, "prefixes": _LIST, "allow_hosts": _LIST},
    "file_upload": {"file": _TEXT},
    "mcp": {"server": _TEXT, "pattern": _TEXT, "env": _LIST},
}
MAIN_KEY = {"url_crawl": "url", "file_upload": "file", "mcp": "server"}
"""The key that says what a source of this kind fetches."""
KINDS = tuple(_KEYS)


@dataclass
class Sources:
    """The sources of a workspace by name, in the file's order, and what is wrong with others."""

    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def find(self, name: str) -> Source:
        """The source of this name; raises `NothingFound`, or `ConfigError` for a broken one."""
        if name in self.sources:
            return self.sources[name]
        for problem in self.problems:
            key = f"source.{name}"
            if problem.key is None or problem.key == key or problem.key.startswith(f"{key}."):
                raise ConfigError(
                    problem.message,
                    where=f"{problem.where}: {problem.key or ''}",
                    hint=problem.hint,
                )
        known = ", ".join(self.sources)
        raise NothingFound(
            f"there is no source {name!r}",
            hint=f"sources: {known}" if known else "`kbtui source add` makes one",
        )


def sources_path(workspace: Workspace) -> Path:
    """The file that declares the sources; kbtui owns and writes it."""
    return workspace.jp / "kb-sources.toml"


def load_sources(workspace: Workspace) -> Sources:
    """Read the sources; never raises for what is wrong in the file."""
    from kbtui.workspace.jp_config import parse_config

    found = Sources()
    path = sources_path(workspace)
    where = f".jp/{path.name}"
    if not path.is_symlink() and not path.exists():
        return found
    try:
        data = parse_config(path)
    except ConfigError as error:
        found.problems.append(Problem(error.message, where=where, hint=error.hint))
        return found
    for key in data:
        if key != "source":
            hint = "sources are declared as [source.NAME]"
            found.problems.append(Problem(f"unknown key {key!r}", where=where, key=key, hint=hint))
    tables = data.get("source", {})
    if not isinstance(tables, dict):
        found.problems.append(Problem("must be a table of sources", where=where, key="source"))
        return found
    for name, block in tables.items():
        try:
            found.sources[name] = parse_source(name, block)
        except KbtuiError as error:
            key = f"source.{name}" + (f".{error.where}" if error.where else "")
            found.problems.append(Problem(error.message, where=where, key=key, hint=error.hint))
    return found


def parse_source(name: str, block: Any) -> Source:
    """A source of its table; raises `ConfigError` whose `where` is the key."""
    from kbtui.knowledge.topic_config import nearest

    if not NAME.fullmatch(name) or ".." in name:
        raise ConfigError(
            "a source's name has small letters, digits, `-`, `_` and `.`, at most 64",
        )
    if not isinstance(block, dict):
        raise ConfigError("must be a table")
    kind = block.get("kind")
    if kind not in _KEYS:
        raise ConfigError(f"must be one of {', '.join(KINDS)}", where="kind")
    known = _COMMON | _KEYS[kind]
    for key, value in block.items():
        if key not in known:
            raise ConfigError(f"unknown key {key!r}", where=key, hint=nearest(key, list(known)))
        if not _fits(known[key], value):
            raise ConfigError(f"must be {known[key]}", where=key)
    for key in ("topic", MAIN_KEY[kind]):
        if not block.get(key):
            raise ConfigError("is missing", where=key)
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in block.items()
    }
    if kind == "mcp":
        values["server"] = _command(block["server"])
    source = Source(name=name, block=dict(block), **values)
    _check(source)
    return source


def _fits(kind: str, value: Any) -> bool:
    if kind == _LIST:
        return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    if kind == _NUMBER:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str) and "\0" not in value


def _command(text: str) -> tuple[str, ...]:
    import shlex

    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"is not a command line: {error}", where="server") from error
    if not words:
        raise ConfigError("is missing", where="server")
    return words


def _check(source: Source) -> None:
    from kbtui.sources.url_policy import check_url

    if source.kind == "url_crawl":
        for key, url in [
            ("url", source.url or ""),
            *(("prefixes", one) for one in source.prefixes),
        ]:
            try:
                check_url(url, source.allow_hosts)
            except ConfigError as error:
                text = f"{error.where}: {error.message}" if error.where else error.message
                raise ConfigError(text, where=key, hint=error.hint) from error
        if not 0 <= source.depth <= DEPTH_MOST:
            raise ConfigError(f"must be between 0 and {DEPTH_MOST}", where="depth")
    if source.cron is not None:
        from kbtui.sources.cron import check_cron

        check_cron(source.cron)
