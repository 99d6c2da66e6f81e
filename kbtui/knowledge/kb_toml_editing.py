"""Edits `.jp/kb.toml`, keeping its comments and order."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.files import parse_toml, read_regular_file, write_file
from kbtui.knowledge.loader import Knowledge, load_knowledge

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kbtui.knowledge.models import PreloadOrDisableMark, Topic


def set_toml_values(old: str | None, edits: dict[str, dict[str, Any]], path: Path) -> str:
    """Return the text of `kb.toml` with fields of topics set.

    `edits` maps topics to fields to values. Raises `ConfigError`, which names `path`, if the
    text is not TOML or if it cannot be edited without losing something.
    """
    if old is None:
        import tomli_w

        return tomli_w.dumps({"kb": {"topic": edits}})
    try:
        expected = parse_toml(old)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"not valid TOML: {error}", where=str(path), hint="fix it first"
        ) from error
    import tomlkit

    unsafe = ConfigError(
        "the file cannot be edited safely", where=str(path), hint="edit it by hand"
    )
    try:
        topics = expected.setdefault("kb", {}).setdefault("topic", {})
        for name, values in edits.items():
            topics.setdefault(name, {}).update(values)
    except AttributeError:  # `kb = 1` and the like
        raise unsafe from None
    for careful in (True, False):
        try:
            new = _edit_toml_document(old, edits, careful=careful)
        except (tomlkit.exceptions.TOMLKitError, ValueError):
            continue
        if _is_lossless_edit(old, new, expected):
            return new
    raise unsafe


def _is_lossless_edit(old: str, new: str, expected: dict[str, Any]) -> bool:
    """Return whether the new text parses to the expected values and keeps every comment."""
    import tomllib

    try:
        return tomllib.loads(new) == expected and not _count_toml_comments(
            old
        ) - _count_toml_comments(new)
    except ValueError:
        return False


def _edit_toml_document(old: str, edits: dict[str, dict[str, Any]], *, careful: bool) -> str:
    """Return the text with values set and everything around them unchanged.

    If `careful` is false, arrays are rewritten and their comments are moved above the items. This is
    the fallback for layouts that tomlkit cannot edit.
    """
    import tomlkit

    document = tomlkit.parse(old)
    topics = _get_or_add_table(_get_or_add_table(document, "kb", parent=True), "topic", parent=True)
    for name, values in edits.items():
        table = _get_or_add_table(topics, name)
        for key, value in values.items():
            current = table.get(key)
            if isinstance(value, list) and isinstance(current, tomlkit.items.Array):
                if careful:
                    _edit_toml_array(current, value)
                else:
                    table[key] = _rebuild_toml_array(current, value)
            elif current is not None:
                table[key] = value
            else:
                _insert_toml_key(table, key, value)
    new = tomlkit.dumps(document)
    if "\r\n" in old and "\n" not in old.replace("\r\n", ""):
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    return new


def _get_or_add_table(holder: Any, name: str, *, parent: bool = False) -> Any:
    """Return the table with this name, created if missing; a `parent` gets no header of its own."""
    import tomlkit

    if name not in holder:
        holder[name] = tomlkit.table(is_super_table=parent)
    return holder[name]


def _insert_toml_key(table: Any, key: str, value: Any) -> None:
    """Insert a key after the table's last key, before comments that belong to the next table."""
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
    """Make an array contain the wanted strings, changing as few items as possible.

    The comment of a removed item is kept on a line of its own.
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
    """Return an array of the wanted strings, one per line, below the comments of the old array."""
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
    """Count the comments in a piece of TOML by their text."""
    found = (match[1] for match in _COMMENT.finditer(text) if match[1])
    return Counter(f"# {comment.lstrip('# ').rstrip()}" for comment in found)


_MARKED_FIELDS = ("enable", "learned", "disabled")
_TOPIC_FIELDS = (
    "enable",
    "title",
    "introduction",
    "description",
    "subjects",
    "learned",
    "disabled",
)


@dataclass(frozen=True)
class TomlChange:
    """A change of a TOML file: its text before and after, None if there is no file."""

    path: Path
    old: str | None
    new: str | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return self.old == self.new

    @property
    def diff(self) -> str:
        """The change as a unified diff, empty if there is none."""
        from difflib import unified_diff

        name = f".jp/{self.path.name}"
        before = (self.old or "").splitlines(keepends=True)
        after = (self.new or "").splitlines(keepends=True)
        source = name if self.old is not None else "/dev/null"
        target = name if self.new is not None else "/dev/null"
        lines = unified_diff(before, after, source, target)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def propose_preload_or_disable_marks(
    knowledge: Knowledge, marks: Iterable[PreloadOrDisableMark]
) -> TomlChange:
    """Return the change of `.jp/kb.toml` that applies marks, without writing it.

    It is based on the current files and ignores `-k` and `--cfg`. Raises `NothingFound` or
    `UsageError` for a mark that cannot be applied, and `ConfigError` if the file is not valid TOML.
    """
    base = load_knowledge(knowledge.workspace)
    wanted = base.copy_with_marks(marks).topics
    edits: dict[str, dict[str, Any]] = {}
    for name, topic in wanted.items():
        for field in _MARKED_FIELDS:
            value = getattr(topic, field)
            if value != getattr(base.topics[name], field):
                edits.setdefault(name, {})[field] = _to_toml_value(value)
    return _make_toml_change(base.workspace.jp / "kb.toml", edits)


def propose_new_topic(knowledge: Knowledge, topic: Topic) -> TomlChange:
    """Return the change of `.jp/kb.toml` that declares a new topic, without writing it.

    Raises `UsageError` if the id is taken, and `ConfigError` if the file is not valid TOML.
    """
    if topic.id in load_knowledge(knowledge.workspace).topics:
        raise UsageError("the topic already exists", where=topic.id)
    default = type(topic)(topic.id, "")
    values = {field: getattr(topic, field) for field in _TOPIC_FIELDS}
    written = {
        field: _to_toml_value(value)
        for field, value in values.items()
        if value != getattr(default, field)
    }
    return _make_toml_change(knowledge.workspace.jp / "kb.toml", {topic.id: written})


def _to_toml_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _make_toml_change(path: Path, edits: dict[str, dict[str, Any]]) -> TomlChange:
    old = read_toml_text(path)
    return TomlChange(path, old, set_toml_values(old, edits, path) if edits else old)


def apply_toml_change(change: TomlChange) -> None:
    """Write a change in one step.

    Raises `KbtuiError` and leaves the file unchanged if it cannot be written, or if another program
    changed it after the change was proposed.
    """
    if read_toml_text(change.path) != change.old:
        raise KbtuiError(
            "the file was changed by another program; nothing was written",
            where=str(change.path),
            hint="review the change and try again",
        )
    if change.is_empty:
        return
    try:
        if change.new is None:
            change.path.unlink()
        else:
            write_file(change.path, change.new.encode("utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise KbtuiError(f"the file cannot be written: {reason}", where=str(change.path)) from error


def undo_toml_change(change: TomlChange) -> None:
    """Undo an applied change; raises `KbtuiError` like `apply_toml_change`."""
    apply_toml_change(TomlChange(change.path, change.new, change.old))


def read_toml_text(path: Path) -> str | None:
    """Return the text of a TOML file with its line endings, None if there is no file."""
    if path.is_symlink():
        raise ConfigError(
            "the file is a symbolic link; kbtui writes only regular files", where=str(path)
        )
    try:
        return read_regular_file(path).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8", where=str(path)) from error
    except OSError as error:
        raise ConfigError(
            f"the file cannot be read: {error.strerror or error}", where=str(path)
        ) from error
