"""Tool calls in one line, and their arguments as something one can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.text import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

# Arguments that say what a call is about, best first; then the first short text will do.
_MAIN = (
    "path",
    "file",
    "topic",
    "query",
    "pattern",
    "command",
    "cmd",
    "url",
    "id",
    "name",
    "title",
    "package",
)
_SHOWN = 120


def main_argument(arguments: dict[str, Any] | None) -> str:
    """What a call is about, on one line; empty when it has no arguments."""
    if not arguments:
        return ""
    if "topic" in arguments:
        subjects = arguments.get("subjects")
        names = ", ".join(map(str, subjects)) if isinstance(subjects, list) else str(subjects or "")
        return cut(
            one_line(f"{arguments['topic']}/{names}" if names else str(arguments["topic"])), _SHOWN
        )
    keys = [name for name in _MAIN if name in arguments] or list(arguments)
    for name in keys:
        if text := _brief(arguments[name]):
            return cut(text, _SHOWN)
    return ""


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value[: _SHOWN * 4])
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return ", ".join(filter(None, map(_brief, value[:5])))
    return ""


def readable(value: Any, indent: int = 0) -> str:
    """A value as indented text: names, then values; texts of several lines as they are."""
    return "\n".join(_readable(value, "  " * indent))


def _readable(value: Any, pad: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _entry(f"{pad}{name}:", item, pad)
    elif isinstance(value, list):
        for item in value:
            yield from _entry(f"{pad}-", item, pad)
    else:
        yield f"{pad}{_scalar(value)}"


def _entry(head: str, item: Any, pad: str) -> Iterator[str]:
    if isinstance(item, str) and "\n" in item:
        yield head
        yield from (f"{pad}  {line}" for line in item.rstrip("\n").split("\n"))
    elif isinstance(item, dict | list) and item:
        yield head
        yield from _readable(item, pad + "  ")
    else:
        yield f"{head} {_scalar(item)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)
