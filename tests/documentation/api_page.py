"""The page `docs/api.md`, generated from the docstrings and annotations of the public Python API."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import kbtui

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"

SECTIONS = {
    "Opening a workspace": ["open_workspace", "create_memory_client"],
    "Clients": ["Library", "MemoryClient"],
    "Records": ["Topic", "SearchRequest", "SearchAnswer", "Hit", "KnowledgeHit", "Citations", "Citation", "ConversationInfo", "Mark", "PlacedMark"],
    "Errors": ["KbtuiError", "NothingFound", "UsageError", "ConfigError", "WorkspaceError", "IndexUnavailable"],
}  # fmt: skip
METHODS = {
    "Library": [
        "topics",
        "learn",
        "search",
        "read",
        "cites",
        "list_conversations",
        "mark",
        "marks",
        "unmark",
        "close",
    ],
    "SearchAnswer": ["degraded", "as_json"],
    "Hit": ["as_json"],
    "SearchRequest": [],
    "ConversationInfo": ["ref", "name"],
    "PlacedMark": ["ref", "label", "as_json"],
}
"""The members that are public, for classes with others that front ends use."""
INTRODUCTION = """# Python API

This page is generated from the docstrings by `make docs`. Everything listed here can be imported from `kbtui`. Other modules, classes and
methods are internal and may change in any version, except for [those that a package with a conversation format
imports](conversation-formats.md#what-a-package-may-import). [The guide](guide/python.md) has examples.

`kbtui.__version__` is the version as a string.
"""


def make_api_page() -> str:
    """Return the text of the page."""
    documented = {name for names in SECTIONS.values() for name in names}
    public = set(kbtui.__all__) - {"__version__"}
    assert documented == public, f"SECTIONS and kbtui.__all__ differ: {documented ^ public}"
    lines = [INTRODUCTION]
    for title, names in SECTIONS.items():
        lines.append(f"## {title}\n")
        for name in names:
            lines += _describe(name, getattr(kbtui, name))
    lines.append("## Types\n\n| name | values |\n|---|---|")
    for name, values in _find_literals().items():
        lines.append(f"| `{name}` | {', '.join(f'`{value!r}`' for value in values)} |")
    return "\n".join(lines).rstrip("\n") + "\n"


def _describe(name: str, thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield f"### `{name}`\n\n{_signature(name, thing)}\n\n{_docstring(thing)}\n"
        return
    base = thing.__mro__[1]
    yield f"### `{name}`" + (f" ({base.__name__})" if issubclass(thing, Exception) else "") + "\n"
    yield f"{_docstring(thing)}\n"
    if fields := _find_fields(thing):
        yield "| field | type | default |\n|---|---|---|"
        for field, kind, default in fields:
            cell = f"`{default}`" if default else ""
            yield f"| `{field}` | `{kind}` | {cell} |".replace(" | `", " | `").replace("  |", " |")
        yield ""
    for member in METHODS.get(name, _find_members(thing)):
        found = inspect.getattr_static(thing, member)
        if isinstance(found, property):
            kind = found.fget.__annotations__["return"]
            kind = kind if isinstance(kind, str) else inspect.formatannotation(kind)
            yield f"#### `{name}.{member}`: `{kind}`\n\n{_docstring(found)}\n"
        else:
            yield f"#### `{name}.{member}`\n\n{_signature(member, found)}\n\n{_docstring(found)}\n"


def _docstring(thing: Any) -> str:
    text = inspect.getdoc(thing)
    assert text, f"{thing} has no docstring"
    return text


def _signature(name: str, function: Any) -> str:
    """Format a function's signature from its source, one parameter a line if it is long."""
    (node,) = ast.parse(dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = node.args
    module = sys.modules[function.__module__]
    arguments.defaults = [_resolve(one, module) for one in arguments.defaults]
    arguments.kw_defaults = [one and _resolve(one, module) for one in arguments.kw_defaults]
    arguments.args = [one for one in arguments.args if one.arg != "self"]
    prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returned = ast.unparse(node.returns) if node.returns else "None"
    # `ast.unparse` writes `limit: int=20`.
    shown = re.sub(r"(?<=: )([^=,]+(?:\[[^\]]*\])?)=", r"\1 = ", ast.unparse(arguments))
    text = f"{prefix} {name}({shown}) -> {returned}"
    if len(text) > 100:
        inner = re.sub(r", (?![^\[(]*[\])])", ",\n    ", shown)
        text = f"{prefix} {name}(\n    {inner},\n) -> {returned}"
    return f"```python\n{text}\n```"


def _find_fields(kind: type) -> list[tuple[str, str, str]]:
    """Return name, type and default of each annotated field, as the source has them."""
    if issubclass(kind, Exception):
        return []
    (node,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    found = []
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            module = sys.modules[kind.__module__]
            default = ast.unparse(_resolve(line.value, module)) if line.value else ""
            factory = re.fullmatch(r"field\(default_factory=(\w+)\)", default)
            default = {"list": "[]", "dict": "{}"}.get(factory[1], default) if factory else default
            kind_text = ast.unparse(line.annotation).strip("'").replace("|", "\\|")
            found.append((line.target.id, kind_text, default))
    return found


def _resolve(value: ast.expr, module: ModuleType) -> ast.expr:
    """Return the value of a named constant, and any other expression as it is."""
    if isinstance(value, ast.Name):
        return ast.Constant(getattr(module, value.id))
    return value


def _find_literals() -> dict[str, tuple[object, ...]]:
    """Return the values of every `Literal` type that the fields of records name."""
    found = {}
    for record in SECTIONS["Records"]:
        kind = getattr(kbtui, record)
        for _, annotation, _ in _find_fields(kind):
            for name in re.findall(r"[A-Z]\w+", annotation):
                alias = getattr(sys.modules[kind.__module__], name, None)
                if get_origin(alias) is Literal:
                    found[name] = get_args(alias)
    return found


def _find_members(kind: type) -> list[str]:
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    ]
