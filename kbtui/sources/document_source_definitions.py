"""Reads, edits and approves the sources that `kb-sources.toml` declares."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbtui.errors import ConfigError, KbtuiError, NothingFound, UsageError, suggest_similar_key
from kbtui.knowledge.knowledge_base import find_superseded_config_file_problems
from kbtui.knowledge.knowledge_data_types import KnowledgeProblem
from kbtui.knowledge.toml_config_editor import (
    TomlFileChange,
    edit_toml_tables,
    read_toml_file_as_text,
    write_toml_file_change,
)
from kbtui.workspace.paths import SOURCES_FILE, find_client_time_zone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.userdata.user_data_store import UserData
    from kbtui.workspace import Workspace


SourceKind = Literal["url_crawl", "file_upload", "mcp"]


@dataclass(frozen=True)
class DocumentSourceDefinition:
    """One `[source.NAME]` table of `kb-sources.toml`.

    The source's documents are in the subdirectory `name` of the topic. Some of the table's keys
    are:

    * `depth`: how many links a crawl may follow from `url`
    * `allow_hosts`: the hosts that may be in a private network
    * `file`: the path of a file or directory
    * `server`: the command of an MCP server
    * `env`: the names of the environment variables that the server receives
    * `pattern`: a glob that selects resources by their URIs
    """

    name: str
    kind: SourceKind
    topic: str
    url: str | None = None
    depth: int = 1
    prefixes: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    file: str | None = None
    server: tuple[str, ...] = ()
    pattern: str | None = None
    env: tuple[str, ...] = ()
    cron: str | None = None
    block: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)

    @property
    def url_path_or_command(self) -> str:
        """The URL, path or command of the source, on one line."""
        import shlex

        if self.kind == "mcp":
            command = shlex.join(self.server)
            return f"{command} ({self.pattern})" if self.pattern else command
        return self.url or self.file or ""


@dataclass(frozen=True)
class SourceRunProgress:
    """The progress of a run.

    * `done` is the number of documents already processed.
    * `total` is the number of documents known so far.
    * `now` is the document that is being fetched.
    """

    source: str
    done: int
    total: int
    now: str


def check_cron_expression(expression: str) -> None:
    """Raise `ConfigError` if a cron expression is invalid or never matches."""
    from cronsim import CronSim, CronSimError

    reason = "it never matches"
    try:
        # cronsim accepts a sixth field for seconds, but a source must not run every few seconds.
        if len(expression) < 200 and len(expression.split()) == 5:
            next(CronSim(expression, datetime.now()))
            return
        reason = "it must have five fields"
    except (CronSimError, ValueError, AssertionError) as error:
        reason = str(error) or reason
    except StopIteration:
        pass
    raise ConfigError(
        f"{expression!r} is not a cron expression: {reason}",
        where="cron",
        hint='write minute, hour, day, month and weekday, such as "0 4 * * 1"',
    )


def find_next_cron_time(expression: str, after: float) -> float | None:
    """Return the next time that matches a cron expression and is later than `after`, or None.

    Both times are in Unix seconds. The expression is in local time. The time zone is the one that
    TZ names in the current client environment or, without TZ, that of this process.
    """
    from cronsim import CronSim

    zone = find_client_time_zone()
    for moment in CronSim(expression, datetime.fromtimestamp(after, zone).replace(tzinfo=None)):
        # When daylight saving time ends, an hour repeats: a later local time can be an earlier moment.
        if (seconds := moment.replace(tzinfo=zone).timestamp()) > after:
            return seconds
    return None


SOURCE_NAME_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
MAX_LINK_DEPTH = 20

_TEXT, _LIST, _NUMBER = "a string", "a list of strings", "a whole number"
_COMMON_KEYS = {"kind": _TEXT, "topic": _TEXT, "cron": _TEXT}
_KEYS_BY_KIND: dict[str, dict[str, str]] = {
    "url_crawl": {"url": _TEXT, "depth": _NUMBER, "prefixes": _LIST, "allow_hosts": _LIST},
    "file_upload": {"file": _TEXT},
    "mcp": {"server": _TEXT, "pattern": _TEXT, "env": _LIST},
}
MAIN_KEY = {"url_crawl": "url", "file_upload": "file", "mcp": "server"}
"""For each kind of source, the key that contains the source's URL, path or command."""
SOURCE_KINDS = tuple(_KEYS_BY_KIND)


@dataclass
class DocumentSourceDefinitions:
    """The valid sources of a workspace, keyed by name, and the problems in its other sources."""

    sources: dict[str, DocumentSourceDefinition] = field(default_factory=dict)
    problems: list[KnowledgeProblem] = field(default_factory=list)

    def find_source(self, name: str) -> DocumentSourceDefinition:
        """Return the source with this name.

        Raises `NothingFound` if there is no such source, and `ConfigError` if it is invalid.
        """
        if name in self.sources:
            return self.sources[name]
        for problem in self.problems:
            key = problem.key
            if key is None or f"{key}.".startswith(f"source.{name}."):
                where = ": ".join(filter(None, [problem.where, key]))
                raise ConfigError(problem.message, where=where, hint=problem.hint)
        known = ", ".join(self.sources)
        hint = f"sources: {known}" if known else "add one with `kbtui source add`"
        raise NothingFound(f"unknown source {name!r}", hint=hint)


def get_sources_file_path(workspace: Workspace) -> Path:
    """Return the path of `kb-sources.toml`, which declares the sources. The file may not exist."""
    return workspace.config_directory / SOURCES_FILE


def load_source_definitions(workspace: Workspace) -> DocumentSourceDefinitions:
    """Read the sources. Mistakes in the file raise no errors; they are listed in `problems`."""
    from kbtui.workspace.jp_config import load_config_file

    found = DocumentSourceDefinitions(
        problems=find_superseded_config_file_problems(workspace, SOURCES_FILE)
    )
    path = get_sources_file_path(workspace)

    def add_source_file_problem(
        message: str, key: str | None = None, hint: str | None = None
    ) -> None:
        found.problems.append(
            KnowledgeProblem(
                message, where=workspace.format_config_path(path.name), key=key, hint=hint
            )
        )

    if not path.is_symlink() and not path.exists():
        return found
    try:
        data = load_config_file(path)
    except ConfigError as error:
        add_source_file_problem(error.message, hint=error.hint)
        return found
    for key in data:
        if key != "source":
            add_source_file_problem(
                f"unknown key {key!r}", key, "sources are declared as [source.NAME]"
            )
    tables = data.get("source", {})
    if not isinstance(tables, dict):
        add_source_file_problem("must be a table of sources", "source")
        return found
    for name, block in tables.items():
        try:
            found.sources[name] = parse_source_table(name, block)
        except KbtuiError as error:
            add_source_file_problem(error.message, error.where, error.hint)
    return found


def parse_source_table(name: str, block: Any) -> DocumentSourceDefinition:
    """Parse the table of a source. Raises `ConfigError`, whose `where` contains the wrong key."""
    try:
        return _parse_source_keys(name, block)
    except ConfigError as error:
        where = f"source.{name}" + (f".{error.where}" if error.where else "")
        raise ConfigError(error.message, where=where, hint=error.hint) from error


def _parse_source_keys(name: str, block: Any) -> DocumentSourceDefinition:

    if not SOURCE_NAME_PATTERN.fullmatch(name) or ".." in name:
        message = "a source's name has at most 64 characters: lower-case letters, digits, `-`, `_` and `.`"
        raise ConfigError(message)
    if not isinstance(block, dict):
        raise ConfigError("must be a table")
    kind = block.get("kind")
    if kind not in _KEYS_BY_KIND:
        raise ConfigError(f"must be one of {', '.join(SOURCE_KINDS)}", where="kind")
    known = _COMMON_KEYS | _KEYS_BY_KIND[kind]
    for key, value in block.items():
        if key not in known:
            hint = suggest_similar_key(key, known)
            raise ConfigError(f"unknown key {key!r}", where=key, hint=hint)
        if not _is_value_of_type(known[key], value):
            raise ConfigError(f"must be {known[key]}", where=key)
    for key in ("topic", MAIN_KEY[kind]):
        if not block.get(key):
            raise ConfigError("the key is missing", where=key)
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in block.items()
    }
    if kind == "mcp":
        import shlex

        try:
            values["server"] = tuple(shlex.split(block["server"]))
        except ValueError as error:
            raise ConfigError(f"not a valid command line: {error}", where="server") from error
        if not values["server"]:
            raise ConfigError("the key is missing", where="server")
    source = DocumentSourceDefinition(name=name, block=dict(block), **values)
    _check_source_values(source)
    return source


def _is_value_of_type(kind: str, value: Any) -> bool:
    if kind == _LIST:
        return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    if kind == _NUMBER:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str) and "\0" not in value


def _check_source_values(source: DocumentSourceDefinition) -> None:
    from kbtui.sources.crawl_url_policy import check_url_is_allowed

    if source.kind == "url_crawl":
        for key, url in [("url", source.url or ""), *(("prefixes", p) for p in source.prefixes)]:
            try:
                check_url_is_allowed(url, source.allow_hosts)
            except ConfigError as error:
                text = f"{error.where}: {error.message}" if error.where else error.message
                raise ConfigError(text, where=key, hint=error.hint) from error
        if not 0 <= source.depth <= MAX_LINK_DEPTH:
            raise ConfigError(f"must be from 0 to {MAX_LINK_DEPTH}", where="depth")
    if source.cron is not None:
        check_cron_expression(source.cron)


_APPROVAL_FORMAT = 1
MAX_PROGRAM_BYTES = 50_000_000
_PROGRAM_EXTENSIONS = "py pyz js mjs cjs ts mts sh bash zsh fish rb pl php lua jar"
"""Files with these extensions count as programs. If a program changes, the source that runs it needs a new approval."""


def hash_source_for_approval(workspace: Workspace, source: DocumentSourceDefinition) -> str:
    """Return the hash that an approval of a source records.

    The hash covers the source's declaration. If words of the source's command are paths of programs
    in the workspace, the hash also covers the content of these programs. When any of this changes,
    the source needs a new approval.
    """
    parts = {"form": _APPROVAL_FORMAT, "name": source.name, "block": source.block}
    if source.kind == "mcp":
        parts["programs"] = {word: _hash_program_file(workspace, word) for word in source.server}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "replace")).hexdigest()


def _hash_program_file(workspace: Workspace, word: str) -> str | None:
    """Return the hash of the program whose path is `word`.

    Returns None if the workspace contains no such program.
    """
    try:
        real = Path(os.path.realpath(Path(workspace.root, word)))
        if not real.is_relative_to(workspace.root) or not real.is_file():
            return None
        status = real.stat()
        is_script = real.suffix[1:].lower() in _PROGRAM_EXTENSIONS.split()
        if not is_script and not status.st_mode & 0o111:
            return None
        if status.st_size > MAX_PROGRAM_BYTES:
            return "too large"
        return hashlib.sha256(real.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def record_source_approval(
    workspace: Workspace, userdata: UserData, source: DocumentSourceDefinition
) -> None:
    """Record that the user approves a source.

    The record is not part of the workspace, so clones do not contain it.
    """
    userdata.save_source_approval(source.name, hash_source_for_approval(workspace, source))


def find_source_approval_time(
    workspace: Workspace, userdata: UserData, source: DocumentSourceDefinition
) -> float | None:
    """Return the time, in Unix seconds, when the user approved exactly this version of the source; None if never."""
    return userdata.get_source_approval_time(hash_source_for_approval(workspace, source))


def format_source_as_toml(source: DocumentSourceDefinition) -> str:
    """Return the source's table as TOML. The user sees this text before approving the source."""
    import tomli_w

    return tomli_w.dumps({"source": {source.name: source.block}})


def add_source_definition(
    workspace: Workspace, name: str, block: Mapping[str, object]
) -> DocumentSourceDefinition:
    """Add a source to `kb-sources.toml`, and return the source.

    `block` has the keys and values of the source. Raises `UsageError` if the name is taken, and
    `ConfigError` if `block` is not valid.
    """
    if name in load_source_definitions(workspace).sources:
        hint = "choose another name with --name"
        raise UsageError("the source already exists", where=name, hint=hint)
    source = parse_source_table(name, block)
    _change_or_remove_source_table(workspace, name, block)
    return source


def change_source_definition_keys(
    workspace: Workspace, name: str, changes: Mapping[str, object]
) -> DocumentSourceDefinition:
    """Change keys of a source, and return the changed source. A key with the value None is removed.

    Raises `ConfigError` if the changed source is invalid, and `NothingFound` if there is no such
    source.
    """
    block = {**load_source_definitions(workspace).find_source(name).block, **changes}
    source = parse_source_table(
        name, {key: value for key, value in block.items() if value is not None}
    )
    _change_or_remove_source_table(workspace, name, changes)
    return source


def remove_source_definition(workspace: Workspace, name: str) -> None:
    """Remove a source from `kb-sources.toml`. Raises `NothingFound` or `ConfigError`."""
    load_source_definitions(workspace).find_source(name)
    _change_or_remove_source_table(workspace, name, None)


def suggest_source_name(kind: str, what: str) -> str:
    """Suggest a name for a new source.

    `what` is the URL, path or command of the source. If no name can be derived from it, the name
    is derived from `kind`.
    """
    from contextlib import suppress
    from urllib.parse import urlsplit

    from kbtui.knowledge.subject_files import make_safe_file_name

    if kind == "url_crawl":
        with suppress(ValueError):  # an invalid URL is reported when the source is parsed
            what = urlsplit(what).hostname or what
    elif kind == "file_upload":
        what = Path(what).stem or what
    else:
        what = "".join(what.split()[:1]).rpartition("/")[2]
    plain = re.sub(r"[^a-z0-9._-]+", "-", make_safe_file_name(what)).strip("-._")
    return plain[:40].rstrip("-._") or kind.replace("_", "-")


def _change_or_remove_source_table(
    workspace: Workspace, name: str, changes: Mapping[str, object] | None
) -> None:
    """Set and remove keys of a source in the file. If `changes` is None, remove the source."""
    path = get_sources_file_path(workspace)
    old = read_toml_file_as_text(path)
    write_toml_file_change(
        TomlFileChange(path, old, edit_toml_tables(old, ["source"], {name: changes}, path))
    )
