"""Sets values in the text of `kb.toml` and keeps everything that a person wrote around them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from kbtui.errors import ConfigError
from kbtui.workspace.toml import parse_toml

if TYPE_CHECKING:
    from pathlib import Path


def set_values(old: str | None, edits: dict[str, dict[str, Any]], path: Path) -> str:
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
            new = _with_comments(old, edits, careful=careful)
        except (tomlkit.exceptions.TOMLKitError, ValueError):
            continue
        if _is_sound(old, new, expected):
            return new
    raise unsafe


def _is_sound(old: str, new: str, expected: dict[str, Any]) -> bool:
    """Whether the new text says what it should and has every comment: the parser has the word."""
    import tomllib

    try:
        return tomllib.loads(new) == expected and not _comments(old) - _comments(new)
    except ValueError:
        return False


def _with_comments(old: str, edits: dict[str, dict[str, Any]], *, careful: bool) -> str:
    """The text with values set, everything that a person wrote around them in place.

    Without `careful` arrays are written anew, with their comments in front:
    for layouts that tomlkit cannot edit.
    """
    import tomlkit

    document = tomlkit.parse(old)
    topics = _table(_table(document, "kb", parent=True), "topic", parent=True)
    for name, values in edits.items():
        table = _table(topics, name)
        for key, value in values.items():
            current = table.get(key)
            if isinstance(value, list) and isinstance(current, tomlkit.items.Array):
                if careful:
                    _fit(current, value)
                else:
                    table[key] = _anew(current, value)
            elif current is not None:
                table[key] = value
            else:
                _add(table, key, value)
    new = tomlkit.dumps(document)
    if "\r\n" in old and "\n" not in old.replace("\r\n", ""):
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    return new


def _table(holder: Any, name: str, *, parent: bool = False) -> Any:
    """The table of this name, made where there is none; a `parent` gets no header of its own."""
    import tomlkit

    if name not in holder:
        holder[name] = tomlkit.table(is_super_table=parent)
    return holder[name]


def _add(table: Any, key: str, value: Any) -> None:
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


def _fit(array: Any, wanted: list[str]) -> None:
    """Make an array hold the wanted strings, touching as few items as that takes.

    The comment of an item that goes stays, on a line of its own.
    """
    before = _comments(array.as_string())
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
    lost = before - _comments(array.as_string())
    for comment in lost.elements():
        array.add_line(indent="  ", comment=comment.lstrip("# "))


def _anew(array: Any, wanted: list[str]) -> Any:
    """An array of the wanted strings, one a line, under the old one's comments."""
    import tomlkit

    found = tomlkit.array()
    for comment in _comments(array.as_string()).elements():
        found.add_line(indent="  ", comment=comment.lstrip("# "))
    for value in wanted:
        found.add_line(value, indent="  ")
    found.add_line(indent="")
    return found


_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|(\#[^\r\n]*)""",
    re.DOTALL,
)


def _comments(text: str) -> Counter[str]:
    """The comments in a piece of TOML, by their words."""
    found = (match[1] for match in _COMMENT.finditer(text) if match[1])
    return Counter(f"# {comment.lstrip('# ').rstrip()}" for comment in found)
