"""Makes topics of the layers' `kb` tables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kbtui.errors import UsageError
from kbtui.knowledge.models import Problem, Topic

if TYPE_CHECKING:
    from pathlib import Path

    from kbtui.workspace.jp_config import Layer

# JP's root keys; an assignment to one of them is JP's business.
_ROOT_KEYS = {
    "inherit",
    "config_load_paths",
    "extends",
    "assistant",
    "conversation",
    "style",
    "interrupt",
    "editor",
    "template",
    "providers",
    "plugins",
    "user",
}

_TEXT, _FLAG, _LIST = "a string", "true or false", "a list of strings"
FIELDS = {
    "enable": _FLAG,
    "title": _TEXT,
    "introduction": _TEXT,
    "description": _TEXT,
    "subjects": _TEXT,
    "learned": _LIST,
    "disabled": _LIST,
}


@dataclass
class TopicDeclarations:
    """The topics as merged so far.

    `values` has each topic's fields, `origins` the file that declared it first,
    `broken` the topics with a mistake: these are left out, for a mistyped
    `disabled` must not publish what it was to hide.
    """

    root: Path
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    origins: dict[str, Path | None] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def wrong(
        self,
        message: str,
        where: Path | None,
        key: str,
        topic: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Note a mistake; with a topic, that topic is broken."""
        place = shown(self.root, where) if where else None
        self.problems.append(Problem(message, where=place, key=key, topic=topic, hint=hint))
        if topic is not None:
            self.broken.add(topic)


def shown(root: Path, path: Path) -> str:
    """A path for people: relative to the workspace where it lies in it."""
    normal = os.path.normpath(path)
    inside = str(root).rstrip("/") + "/"
    return normal[len(inside) :] if normal.startswith(inside) else normal


def nearest(key: str, known: list[str]) -> str:
    """A hint that names the nearest known key, or all of them."""
    from difflib import get_close_matches

    near = get_close_matches(key, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(known)


def add_layer(declared: TopicDeclarations, layer: Layer) -> None:
    """Merge the `kb` table of a layer; nothing else of it is read."""
    kb = layer.data.get("kb")
    if kb is None:
        return
    if not isinstance(kb, dict):
        declared.wrong("must be a table", layer.path, "kb")
        return
    for key in kb:
        if key != "topic":
            hint = nearest(str(key), ["topic"]) + " Topics are declared as [kb.topic.ID]"
            declared.wrong(f"unknown key {key!r}", layer.path, f"kb.{key}", hint=hint)
    topics = kb.get("topic")
    if topics is None:
        return
    if not isinstance(topics, dict):
        declared.wrong("must be a table of topics", layer.path, "kb.topic")
        return
    for name, table in topics.items():
        _add_topic(declared, layer.path, str(name), table)


def _add_topic(declared: TopicDeclarations, where: Path, name: str, table: Any) -> None:
    key = f"kb.topic.{name}"
    values = declared.values.setdefault(name, {})
    declared.origins.setdefault(name, where)
    if not name or "/" in name or not name.isprintable():
        message = "a topic's id must not be empty nor hold `/` or control characters"
        declared.wrong(message, where, key, name)
        return
    if not isinstance(table, dict):
        declared.wrong("must be a table", where, key, name)
        return
    for entry, value in table.items():
        if entry not in FIELDS:
            hint = nearest(str(entry), list(FIELDS))
            declared.wrong(f"unknown key {entry!r}", where, f"{key}.{entry}", name, hint)
        elif value is None:
            values.pop(entry, None)  # JSON's and YAML's way of saying nothing
        elif not _fits(FIELDS[entry], value):
            declared.wrong(f"must be {FIELDS[entry]}", where, f"{key}.{entry}", name)
        else:
            values[entry] = value


def _fits(kind: str, value: Any) -> bool:
    if kind == _LIST:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, bool if kind == _FLAG else str)


def assign(declared: TopicDeclarations, text: str) -> str | None:
    """Apply one `--cfg` assignment: `kb.topic.<id>.<key>` with `=`, `+=`, `:=` or `+:=`.

    The colon means that the value is JSON. Keys outside `kb` are JP's and are
    left alone. Returns the topic's id, if any; raises `UsageError`.
    """
    key, _, value = text.partition("=")
    as_json = key.endswith(":")
    key = key.removesuffix(":")
    adds = key.endswith("+")
    key = key.removesuffix("+").strip()
    root = key.partition(".")[0]
    if root in _ROOT_KEYS:
        return None
    where = f"--cfg {text}"
    head, _, entry = key.rpartition(".")
    name = head.removeprefix("kb.topic.").strip("\"'")
    if not head.startswith("kb.topic.") or not name:
        raise UsageError(
            f"{key!r} names nothing", where=where, hint="write kb.topic.ID.KEY=VALUE, or += to add"
        )
    if entry not in FIELDS:
        raise UsageError(f"unknown key {entry!r}", where=where, hint=nearest(entry, list(FIELDS)))
    values = declared.values.setdefault(name, {})
    declared.origins.setdefault(name, None)
    kind = FIELDS[entry]
    new = _value(kind, value, as_json, where)
    if kind == _LIST and adds:
        new = [*values.get(entry, []), *new]
    elif adds:
        raise UsageError(f"{entry} is {kind}: nothing can be added", where=where)
    values[entry] = new
    return name


def _value(kind: str, text: str, as_json: bool, where: str) -> Any:
    value: Any = text
    if as_json:
        import json

        try:
            value = json.loads(text)
        except ValueError as error:
            raise UsageError(f"not valid JSON: {error}", where=where) from error
    elif kind == _FLAG and text in ("true", "false"):
        value = text == "true"
    if kind == _LIST and isinstance(value, str):
        value = [value]
    if not _fits(kind, value):
        raise UsageError(f"must be {kind}", where=where)
    return value


def topics_of(declared: TopicDeclarations) -> dict[str, Topic]:
    """The sound topics in order of declaration; notes what is wrong with the others."""
    topics = {}
    for name, values in declared.values.items():
        key, where = f"kb.topic.{name}.subjects", declared.origins[name]
        if name not in declared.broken:
            message, hint = _misplaced(values.get("subjects"))
            if message:
                declared.wrong(message, where, key, name, hint)
        if name in declared.broken:
            continue
        topics[name] = Topic(
            id=name,
            subjects=values["subjects"],
            enable=values.get("enable", True),
            title=values.get("title") or None,
            introduction=values.get("introduction") or None,
            description=values.get("description") or None,
            learned=tuple(values.get("learned", ())),
            disabled=tuple(values.get("disabled", ())),
            origin=where,
        )
    return topics


def _misplaced(subjects: str | None) -> tuple[str | None, str | None]:
    """What is wrong with a `subjects` value, and what to do."""
    if not subjects:
        return "missing: the topic has no directory", 'add subjects = "DIRECTORY", from the root'
    if "\0" in subjects:
        return "has a NUL character", None
    if subjects.startswith("/"):
        return "must be relative to the workspace", "a path such as .jp/kb/project"
    if os.path.normpath(subjects).split("/")[0] == "..":
        return "leads out of the workspace", "a path such as .jp/kb/project"
    return None, None


def preload(topics: dict[str, Topic], value: str) -> None:
    """Apply one `-k TOPIC/GLOB` value; raises `UsageError`."""
    name, slash, pattern = value.partition("/")
    where = f"-k {value}"
    if not slash or not pattern:
        raise UsageError("needs a topic and a pattern", where=where, hint="write TOPIC/GLOB")
    topic = topics.get(name)
    if topic is None or not topic.enable:
        raise unknown_topic(topics, name, where)
    if pattern not in topic.learned:
        topics[name] = replace(topic, learned=(*topic.learned, pattern))


def unknown_topic(topics: dict[str, Topic], name: str, where: str) -> UsageError:
    """The error for an argument whose topic does not exist or is switched off."""
    known = [topic.id for topic in topics.values() if topic.enable]
    hint = nearest(name, known) if known else "no topics are configured"
    return UsageError(f"unknown topic {name!r}", where=where, hint=hint)
