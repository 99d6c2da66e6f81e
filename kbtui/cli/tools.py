"""The tools for assistants: print their definitions, install them for JP, take them back.

`install` shows what it will write, and asks. It never touches a file that it
did not write, or that was edited since. The MCP server needs no installation.
"""

from __future__ import annotations

import sys

from kbtui.cli.output import emit, emit_json, note
from kbtui.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.assistant.install import FileChange
    from kbtui.assistant.tools import Tool
    from kbtui.workspace import Workspace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui tools` (decisions D)."""
    parser.add_argument("action", choices=["schema", "install", "uninstall"])
    parser.add_argument("--yes", "-y", action="store_true", help="install without asking")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    """Do one of the three."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    if args.action == "schema":
        from kbtui.assistant.tools import offered

        return _schema(offered(library.knowledge()), as_json=args.json)
    if args.action == "install":
        from kbtui.assistant.install import plan_install

        changes = plan_install(library.workspace, library.knowledge())
        return _install(library.workspace, changes, yes=args.yes, as_json=args.json)
    return _uninstall(library.workspace, as_json=args.json)


def _schema(tools: list[Tool], *, as_json: bool) -> int:
    if as_json:
        shapes = [
            {"name": tool.name, "description": tool.description, "parameters": tool.schema()}
            for tool in tools
        ]
        emit_json(shapes)
        return 0
    emit("\n\n".join(map(_described, tools)) + "\n")
    if not any(tool.name == "learn" for tool in tools):
        note("`learn` is not offered: no topic has anything to learn")
    return 0


def _described(tool: Tool) -> str:
    import textwrap

    paragraphs = [
        textwrap.fill(line, 96, initial_indent="  ", subsequent_indent="  ") if line else ""
        for line in tool.description.split("\n")
    ]
    lines = [tool.name, *paragraphs, ""]
    for one in tool.parameters:
        facts = ["/".join(one.types) + (f" of {one.items}" if one.types == ("array",) else "")]
        if one.required:
            facts.append("required")
        if one.default is not None:
            import json

            facts.append(f"default {json.dumps(one.default)}")
        if one.enum:
            facts.append("one of " + ", ".join(one.enum))
        lines.append(f"  {one.name} ({'; '.join(facts)})")
        lines.append(
            textwrap.fill(one.description, 96, initial_indent="      ", subsequent_indent="      ")
        )
    return "\n".join(lines)


_DOING = {
    "write": "write",
    "update": "update",
    "remove": "remove",
    "keep": "as it should be",
    "edited": "edited, left alone",
    "taken": "not ours, left alone",
}


def _install(workspace: Workspace, changes: list[FileChange], *, yes: bool, as_json: bool) -> int:
    from kbtui.assistant.install import apply

    todo = [change for change in changes if change.action in ("write", "update", "remove")]
    if not as_json:
        emit("".join(_shown(change) for change in changes))
    if todo:
        if not yes and not _agreed(len(todo)):
            note("nothing was written")
            return 0
        apply(workspace, todo)
    if as_json:
        emit_json(_as_json(changes))
    else:
        note(f"{len(todo)} files changed" if todo else "nothing to change")
    _say_how(workspace, changes)
    return 3 if any(change.action == "taken" for change in changes) else 0


def _uninstall(workspace: Workspace, *, as_json: bool) -> int:
    from kbtui.assistant.install import apply, plan_uninstall

    changes = plan_uninstall(workspace)
    apply(workspace, changes)
    if as_json:
        emit_json(_as_json(changes))
    else:
        emit("".join(_headline(change) for change in changes))
    removed = [change for change in changes if change.action == "remove"]
    if not removed:
        note("there is nothing of ours to remove")
    return 0 if removed else 1


def _agreed(count: int) -> bool:
    """Ask; raises `UsageError` where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UsageError("nothing was written: nobody to ask", hint="add --yes to install")
    sys.stderr.write(f"Write these {count} files? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _headline(change: FileChange) -> str:
    why = f": {change.why}" if change.why else ""
    return f"{change.path}: {_DOING[change.action]}{why}\n"


def _shown(change: FileChange) -> str:
    """A change with its text: the whole of a new file, the difference of an old one."""
    lines: list[str] = []
    if change.action == "write":
        lines = change.text.splitlines()
    elif change.action == "update":
        from difflib import unified_diff

        old, new = change.old_text.splitlines(), change.text.splitlines()
        lines = list(unified_diff(old, new, "there", "new", lineterm="", n=1))
    return _headline(change) + "".join(f"    {line}\n" if line else "\n" for line in lines)


def _as_json(changes: list[FileChange]) -> list[dict[str, object]]:
    return [
        {
            "path": change.path,
            "action": change.action,
            "why": change.why,
            "text": change.text if change.action in ("write", "update") else None,
        }
        for change in changes
    ]


def _say_how(workspace: Workspace, changes: list[FileChange]) -> None:
    """What is missing before JP offers the tools; nobody's configuration is edited."""
    import shutil

    from kbtui.workspace.jp_config import read_layers

    found = read_layers(workspace)
    read = {layer.path.resolve() for layer in found.layers}
    ours = [change for change in changes if "/mcp/tools/" in change.path]
    if any(
        (workspace.root / change.path).resolve() not in read
        for change in ours
        if change.action in ("write", "update", "keep", "edited")
    ):
        note('JP reads them once .jp/config.toml has extends = ["mcp/tools/**/*.toml"]')
    if ".jp/config" in [path.rstrip("/") for path in found.load_paths]:
        note("switch them on with `jp query --cfg skill/kbtui`, or in a persona's `extends`")
    else:
        note('a persona switches them on with extends = ["../skill/kbtui.toml"]')
    if shutil.which("kbtui") is None:
        note("`kbtui` is not on the PATH, where JP looks for it")
