"""Edits `.jp/kb.toml` and keeps its comments and order."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError, KbtuiError, UsageError
from kbtui.files import parse_toml, read_regular, write_file
from kbtui.knowledge.loader import Knowledge, load_knowledge

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kbtui.knowledge.models import SubjectMark, Topic


def set_toml_values(old: str | None, edits: dict[str, dict[str, Any]], path: Path) -> str:
    """The text of `kb.toml` with fields of topics set; `edits` is topic → field → value.

    `path` is for messages. Raises `ConfigError` where the text is no TOML, or
    where no way of setting the values is found that loses nothing.
    """
    if old is None:
        import tomli_w

        return tomli_w.dumps({"kb": {"topic": edits}})
    try:
        expected = parse_toml(old)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"is not valid TOML: {error}", where=str(path), hint="mend it first"
        ) from error
    import tomlkit

    unsafe = ConfigError("cannot be edited safely", where=str(path), hint="change it by hand")
    try:
        topics = expected.setdefault("kb", {}).setdefault("topic", {})
        for name, values in edits.items():
            topics.setdefault(name, {}).update(values)
    except AttributeError:  # `kb = 1` and the like
        raise unsafe from None
    for careful in (True, False):
        try:
            new = _edit_document(old, edits, careful=careful)
        except (tomlkit.exceptions.TOMLKitError, ValueError):
            continue
        if _is_lossless(old, new, expected):
            return new
    raise unsafe


def _is_lossless(old: str, new: str, expected: dict[str, Any]) -> bool:
    """Whether the new text says what it should and has every comment: the parser has the word."""
    import tomllib

    try:
        return tomllib.loads(new) == expected and not _count_comments(old) - _count_comments(new)
    except ValueError:
        return False


def _edit_document(old: str, edits: dict[str, dict[str, Any]], *, careful: bool) -> str:
    """The text with values set, everything that a person wrote around them in place.

    Without `careful` arrays are written anew, with their comments in front:
    for layouts that tomlkit cannot edit.
    """
    import tomlkit

    document = tomlkit.parse(old)
    topics = _get_table(_get_table(document, "kb", parent=True), "topic", parent=True)
    for name, values in edits.items():
        table = _get_table(topics, name)
        for key, value in values.items():
            current = table.get(key)
            if isinstance(value, list) and isinstance(current, tomlkit.items.Array):
                if careful:
                    _edit_array(current, value)
                else:
                    table[key] = _rebuild_array(current, value)
            elif current is not None:
                table[key] = value
            else:
                _insert_key(table, key, value)
    new = tomlkit.dumps(document)
    if "\r\n" in old and "\n" not in old.replace("\r\n", ""):
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    return new


def _get_table(holder: Any, name: str, *, parent: bool = False) -> Any:
    """The table of this name, made where there is none; a `parent` gets no header of its own."""
    import tomlkit

    if name not in holder:
        holder[name] = tomlkit.table(is_super_table=parent)
    return holder[name]


def _insert_key(table: Any, key: str, value: Any) -> None:
    """Add a key after the table's last one, before comments that belong to what follows."""
    import tomlkit
    from tomlkit.items import InlineTable, Table

    keys = [name for name, item in table.items() if not isinstance(item, dict)]
    if isinstance(table, Table) and keys:
        table.value._insert_after(keys[-1], key, tomlkit.item(value))
    elif isinstance(table, InlineTable):
        table.append(key, value)
    else:
        table[key] = value


def _edit_array(array: Any, wanted: list[str]) -> None:
    """Make an array hold the wanted strings, touching as few items as that takes.

    The comment of an item that goes stays, on a line of its own.
    """
    before = _count_comments(array.as_string())
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
    lost = before - _count_comments(array.as_string())
    for comment in lost.elements():
        array.add_line(indent="  ", comment=comment.lstrip("# "))


def _rebuild_array(array: Any, wanted: list[str]) -> Any:
    """An array of the wanted strings, one a line, under the old one's comments."""
    import tomlkit

    found = tomlkit.array()
    for comment in _count_comments(array.as_string()).elements():
        found.add_line(indent="  ", comment=comment.lstrip("# "))
    for value in wanted:
        found.add_line(value, indent="  ")
    found.add_line(indent="")
    return found


_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|(\#[^\r\n]*)""",
    re.DOTALL,
)


def _count_comments(text: str) -> Counter[str]:
    """The comments in a piece of TOML, by their words."""
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
    """What `apply` would do to a file: its text before and after; None is no file."""

    path: Path
    old: str | None
    new: str | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.old == self.new

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty where there is none."""
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


def propose_marks(knowledge: Knowledge, marks: Iterable[SubjectMark]) -> TomlChange:
    """What setting marks would write to `.jp/kb.toml`; writes nothing.

    Works from the files as they are now: what `-k` and `--cfg` added is not
    written. Raises `NothingFound` or `UsageError` for a mark that cannot be
    set, `ConfigError` where the file cannot be read as TOML.
    """
    base = load_knowledge(knowledge.workspace)
    wanted = base.with_marks(marks).topics
    edits: dict[str, dict[str, Any]] = {}
    for name, topic in wanted.items():
        for field in _MARKED_FIELDS:
            value = getattr(topic, field)
            if value != getattr(base.topics[name], field):
                edits.setdefault(name, {})[field] = _to_toml_value(value)
    return _make_change(base.workspace.jp / "kb.toml", edits)


def propose_topic(knowledge: Knowledge, topic: Topic) -> TomlChange:
    """What declaring a new topic would write to `.jp/kb.toml`; writes nothing.

    Raises `UsageError` where the id is taken, `ConfigError` as `propose` does.
    """
    if topic.id in load_knowledge(knowledge.workspace).topics:
        raise UsageError("there is such a topic already", where=topic.id)
    default = type(topic)(topic.id, "")
    values = {field: getattr(topic, field) for field in _TOPIC_FIELDS}
    written = {
        field: _to_toml_value(value)
        for field, value in values.items()
        if value != getattr(default, field)
    }
    return _make_change(knowledge.workspace.jp / "kb.toml", {topic.id: written})


def _to_toml_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _make_change(path: Path, edits: dict[str, dict[str, Any]]) -> TomlChange:
    old = read_toml_text(path)
    return TomlChange(path, old, set_toml_values(old, edits, path) if edits else old)


def apply_change(change: TomlChange) -> None:
    """Write a change, in one step for whoever reads the file meanwhile.

    Raises `KbtuiError` when the file is not what it was when the change was
    proposed, or cannot be written; it is untouched then.
    """
    if read_toml_text(change.path) != change.old:
        raise KbtuiError(
            "changed meanwhile; nothing was written",
            where=str(change.path),
            hint="look at the change again",
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
        raise KbtuiError(f"cannot be written: {reason}", where=str(change.path)) from error


def undo_change(change: TomlChange) -> None:
    """Take an applied change back; raises `KbtuiError` as `apply` does."""
    apply_change(TomlChange(change.path, change.new, change.old))


def read_toml_text(path: Path) -> str | None:
    """The file's text with its line ends, None where there is none."""
    if path.is_symlink():
        raise ConfigError("is a link, which is not written through", where=str(path))
    try:
        return read_regular(path).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", where=str(path)) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
