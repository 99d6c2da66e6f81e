"""Edits `kb.toml` and `kb-sources.toml`, keeping their comments and order."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.file_reading_and_writing import parse_toml_with_limited_key_depth, write_file_atomically
from kbtui.knowledge.knowledge_base import (
    TOPIC_FIELDS,
    KnowledgeBase,
    load_knowledge,
)
from kbtui.workspace.paths import KBTUI_DIRECTORY, TOPICS_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kbtui.knowledge.knowledge_data_types import PreloadOrDisableChange, Topic


def edit_toml_tables(
    old: str | None,
    parents: list[str],
    edits: Mapping[str, Mapping[str, object] | None],
    path: Path,
) -> str:
    """Return the TOML text `old` with edited tables.

    * `old` is None if there is no file yet.
    * `parents` are the names of the tables around the edited tables.
    * `edits` maps the name of each edited table to its keys and their new values. A key with the
      value None is removed. A table that is mapped to None is removed.
    * `path` is the file's path, for error messages.

    Raises `ConfigError` if the text is not valid TOML or cannot be edited safely.
    """
    import tomlkit

    try:
        expected = parse_toml_with_limited_key_depth(old or "")
    except (ValueError, RecursionError) as error:
        message = f"not valid TOML: {error}"
        raise ConfigError(message, where=str(path), hint="fix it first") from error
    try:
        tables = expected
        for parent in parents:
            tables = tables.setdefault(parent, {})
        for name, values in edits.items():
            table = {**tables.get(name, {}), **(values or {})}
            tables[name] = {key: value for key, value in table.items() if value is not None}
            if values is None:
                del tables[name]
        if not tables:
            del expected[parents[0]]
        if old is None:
            import tomli_w

            return tomli_w.dumps(expected)
        for careful in (True, False):
            with suppress(tomlkit.exceptions.TOMLKitError, ValueError):
                new = _edit_toml_document(old, parents, edits, careful=careful)
                if tomllib.loads(new) == expected and not _find_lost_comments(old, new, edits):
                    return new
    except (AttributeError, TypeError):  # a parent is not a table, as in `kb = 1`
        pass
    raise ConfigError("the file cannot be edited safely", where=str(path), hint="edit it by hand")


def _find_lost_comments(
    old: str, new: str, edits: Mapping[str, Mapping[str, object] | None]
) -> Counter[str]:
    """Return the comments that an edit would lose, each with the number of lost occurrences.

    If the edit removes a table or key, no comment counts as lost.
    """
    if any(values is None or None in values.values() for values in edits.values()):
        return Counter()
    return _count_toml_comments(old) - _count_toml_comments(new)


def _edit_toml_document(
    old: str, parents: list[str], edits: Mapping[str, Mapping[str, object] | None], *, careful: bool
) -> str:
    """Apply `edits` to the TOML text `old`, and return the new text.

    If `careful` is true, comments in an edited array stay in their places. If it is false, they
    move above the items.
    """
    import tomlkit

    document = tomlkit.parse(old)
    tables: Any = document
    for parent in parents:
        tables = tables.setdefault(parent, tomlkit.table(is_super_table=True))
    for name, values in edits.items():
        if values is None:
            del tables[name]
            continue
        table = tables.setdefault(name, tomlkit.table())
        for key, value in values.items():
            current = table.get(key)
            if value is None:
                table.pop(key, None)
            elif isinstance(value, list) and isinstance(current, tomlkit.items.Array):
                if careful:
                    _edit_toml_array(current, value)
                else:
                    table[key] = _rebuild_toml_array(current, value)
            elif current is None:
                _insert_toml_key(table, key, value)
            elif current != value:
                table[key] = value
    if not tables:
        del document[parents[0]]
    new = tomlkit.dumps(document)
    if "\r\n" in old and "\n" not in old.replace("\r\n", ""):
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    return new


def _insert_toml_key(table: Any, key: str, value: Any) -> None:
    """Insert a key after the last key of a table.

    Comments after the last key belong to the next table, so they come after the new key.
    """
    import tomlkit
    from tomlkit.items import InlineTable, Table

    keys = [name for name, item in table.items() if not isinstance(item, dict)]
    if isinstance(table, Table) and keys:
        table.value._insert_after(keys[-1], key, tomlkit.item(value))
    elif isinstance(table, InlineTable):
        table.append(key, value)
    else:
        table[key] = value


def _edit_toml_array(array: Any, wanted: list[str]) -> None:
    """Change an array so that it contains the wanted strings.

    The comment of a removed string moves to a separate line.
    """
    before = _count_toml_comments(array.as_string())
    for position in range(len(array) - 1, -1, -1):
        if array[position] not in wanted:
            del array[position]
    kept = list(array)
    if kept == wanted[: len(kept)]:
        for value in wanted[len(kept) :]:
            array.append(value)
    else:
        array.clear()
        array.extend(wanted)
    lost = before - _count_toml_comments(array.as_string())
    for comment in lost.elements():
        array.add_line(indent="  ", comment=comment.lstrip("# "))


def _rebuild_toml_array(array: Any, wanted: list[str]) -> Any:
    """Return a new array with the old array's comments first, then the wanted strings.

    Each comment and each string has its own line.
    """
    import tomlkit

    found = tomlkit.array()
    for comment in _count_toml_comments(array.as_string()).elements():
        found.add_line(indent="  ", comment=comment.lstrip("# "))
    for value in wanted:
        found.add_line(value, indent="  ")
    found.add_line(indent="")
    return found


_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|(\#[^\r\n]*)""",
    re.DOTALL,
)


def _count_toml_comments(text: str) -> Counter[str]:
    """Return how often each comment occurs in a piece of TOML."""
    found = (match[1] for match in _COMMENT.finditer(text) if match[1])
    return Counter(f"# {comment.lstrip('# ').rstrip()}" for comment in found)


@dataclass(frozen=True)
class TomlFileChange:
    """A change to a TOML file.

    `old` is the text before the change, and `new` is the text after it; None means no file.
    """

    path: Path
    old: str | None
    new: str | None

    @property
    def has_no_changes(self) -> bool:
        """Whether the text stays the same."""
        return self.old == self.new

    @property
    def name(self) -> str:
        """The path as messages show it: relative to the workspace's root."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def diff(self) -> str:
        """The change as a unified diff; "" if nothing changes."""
        from difflib import unified_diff

        before = (self.old or "").splitlines(keepends=True)
        after = (self.new or "").splitlines(keepends=True)
        source = self.name if self.old is not None else "/dev/null"
        target = self.name if self.new is not None else "/dev/null"
        lines = unified_diff(before, after, source, target)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def plan_toml_change_for_preload_or_disable_changes(
    knowledge: KnowledgeBase, marks: Iterable[PreloadOrDisableChange]
) -> TomlFileChange:
    """Return the change to `kb.toml` that applies the changes `marks`.

    Command-line options such as `-k` are ignored. Raises `NothingFound`, `UsageError` or
    `ConfigError` if a state cannot be set.
    """
    base = load_knowledge(knowledge.workspace)
    wanted = base.copy_with_preload_or_disable_changes(marks).topics
    return _make_kb_toml_change_for_topics(
        base, {name: (base.topics[name], wanted[name]) for name in wanted}
    )


def plan_toml_change_that_declares_topic(knowledge: KnowledgeBase, topic: Topic) -> TomlFileChange:
    """Return the change to `kb.toml` that declares a topic.

    Raises `UsageError` or `ConfigError`.
    """
    if topic.id in load_knowledge(knowledge.workspace).topics:
        raise UsageError("the topic already exists", where=topic.id)
    return _make_kb_toml_change_for_topics(
        knowledge, {topic.id: (type(topic)(topic.id, ""), topic)}
    )


def _make_kb_toml_change_for_topics(
    knowledge: KnowledgeBase, topics: dict[str, tuple[Topic, Topic]]
) -> TomlFileChange:
    """Return the change to `kb.toml` that replaces topics.

    `topics` maps the id of each topic to the topic before and after the change.
    """
    edits: dict[str, dict[str, object] | None] = {}
    for name, (before, after) in topics.items():
        changed = [key for key in TOPIC_FIELDS if getattr(before, key) != getattr(after, key)]
        values = {key: getattr(after, key) for key in changed}
        if values:
            edits[name] = {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in values.items()
            }
    path = knowledge.workspace.config_directory / TOPICS_FILE
    old = read_toml_file_as_text(path)
    new = edit_toml_tables(old, ["kb", "topic"], edits, path) if edits else old
    return TomlFileChange(path, old, new)


def write_toml_file_change(change: TomlFileChange) -> None:
    """Write a planned change to its file in one step.

    Raises `KbtuiError` if the file no longer contains the old text, or cannot be written. The
    directory `.kbtui` is created together with its first file, and removed together with its last
    file.
    """
    if read_toml_file_as_text(change.path) != change.old:
        raise KbtuiError(
            "the file was changed by another program; nothing was written",
            where=str(change.path),
            hint="review the change and try again",
        )
    if change.has_no_changes:
        return
    try:
        directory = change.path.parent
        is_own_directory = directory.name == KBTUI_DIRECTORY
        if change.new is None:
            change.path.unlink()
            if is_own_directory:
                with suppress(OSError):
                    directory.rmdir()
        else:
            if is_own_directory:
                directory.mkdir(exist_ok=True)
            write_file_atomically(change.path, change.new.encode("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise KbtuiError(f"the file cannot be written: {reason}", where=str(change.path)) from error


def undo_toml_change(change: TomlFileChange) -> None:
    """Undo a written change; raises the same errors as `write_toml_file_change`."""
    write_toml_file_change(TomlFileChange(change.path, change.new, change.old))


def read_toml_file_as_text(path: Path) -> str | None:
    """Return the text of a TOML file with unchanged line endings; None if there is no file."""
    if path.is_symlink():
        message = "the file is a symbolic link; kbtui writes only regular files"
        raise ConfigError(message, where=str(path))
    from kbtui.workspace.jp_config import read_config_file_text

    try:
        return read_config_file_text(path)
    except ConfigError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
