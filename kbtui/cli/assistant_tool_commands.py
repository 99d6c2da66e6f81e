"""The commands `tools`, `tool` and `mcp`, which provide tools for assistants."""

from __future__ import annotations

import json
import sys
import textwrap

from kbtui.cli.cli_output import (
    ask_for_confirmation,
    print_json_result,
    print_result,
    print_text_or_json,
    print_to_stderr,
)
from kbtui.errors import UsageError, WorkspaceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.assistant.assistant_tools import ToolDefinition
    from kbtui.assistant.jp_local_tools import PlannedFileChange
    from kbtui.workspace import Workspace


def declare_tools_command_arguments(parser: ArgumentParser) -> None:
    add, text = (
        parser.add_argument,
        "print the tools' definitions, or install or uninstall the tools for JP",
    )
    add("action", choices=["schema", "install", "uninstall"], help=text)
    add("--yes", "-y", action="store_true", help="do not ask for confirmation")
    text = "with install: change nothing; the exit code says whether the files are up to date"
    add("--check", action="store_true", help=text)
    add("--json", action="store_true", help="print one JSON document")


def run_tools_command(args: Namespace) -> int:
    """Print the definitions of the tools for assistants, or install or uninstall the tools for JP.

    `install` shows the files that it will write and asks for confirmation. It never changes a file
    that kbtui did not write or that you have edited. The MCP server needs no installation.

    When topics change, the description of `learn` changes too. The exit code of `install --check` tells a
    script whether the installed tools are up to date: 0 if they are, 1 if `install` would change files, 3 if
    a file that kbtui did not write is in the way, and 4 if only files that you edited are out of date.
    """
    from kbtui.library import open_workspace

    if args.check and args.action != "install":
        raise UsageError("`--check` works only with `install`", where="--check")
    library = open_workspace(args.workspace)
    if args.action == "schema":
        from kbtui.assistant.assistant_tools import list_offered_tools

        return _print_tool_schemas(list_offered_tools(library.load_knowledge()), as_json=args.json)
    if args.action == "install":
        from kbtui.assistant.jp_local_tools import plan_jp_tool_installation

        _check_is_jp_workspace(library.workspace)
        changes = plan_jp_tool_installation(library.workspace, library.load_knowledge())
        if args.check:
            return _print_tool_files_that_install_would_change(changes, as_json=args.json)
        return _install_tools(library.workspace, changes, yes=args.yes, as_json=args.json)
    return _uninstall_tools(library.workspace, as_json=args.json)


def _check_is_jp_workspace(workspace: Workspace) -> None:
    if not workspace.is_jp_workspace:
        raise WorkspaceError(
            "no JP workspace here: there is no .jp directory to install the tools in",
            where=str(workspace.root),
            hint="create one with `jp init`; other assistants can start `kbtui mcp`",
        )


def _print_tool_schemas(tools: list[ToolDefinition], *, as_json: bool) -> int:
    shapes = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.make_arguments_schema(),
        }
        for tool in tools
    ]
    text = "\n\n".join(map(_format_tool_description_for_terminal, tools)) + "\n"
    print_text_or_json(text, shapes, as_json)
    if not as_json and not any(tool.name == "learn" for tool in tools):
        print_to_stderr("`learn` is not offered: no topic has a subject to learn")
    return 0


def _format_tool_description_for_terminal(tool: ToolDefinition) -> str:
    lines = [
        tool.name,
        *(_wrap_indented_text(line, 2) for line in tool.description.split("\n")),
        "",
    ]
    for name, schema in tool.parameters.items():
        kind, items = schema["type"], schema.get("items", {})
        facts = ["/".join(kind) if isinstance(kind, list) else kind]
        if kind == "array":
            facts[0] += f" of {items['type']}"
        if name in tool.required:
            facts.append("required")
        if "default" in schema:
            facts.append(f"default {json.dumps(schema['default'])}")
        if allowed := schema.get("enum") or items.get("enum"):
            facts.append("one of " + ", ".join(allowed))
        lines += [f"  {name} ({'; '.join(facts)})", _wrap_indented_text(schema["description"], 6)]
    return "\n".join(lines)


def _wrap_indented_text(text: str, spaces: int) -> str:
    indent = " " * spaces
    return textwrap.fill(text, 96, initial_indent=indent, subsequent_indent=indent)


_ACTION_LABELS = {
    "write": "write",
    "update": "update",
    "remove": "remove",
    "keep": "up to date",
    "edited": "not changed, because you edited it",
    "taken": "not installed: the file exists, and kbtui did not write it",
}


def _install_tools(
    workspace: Workspace, changes: list[PlannedFileChange], *, yes: bool, as_json: bool
) -> int:
    from kbtui.assistant.jp_local_tools import apply_file_changes

    todo = [change for change in changes if change.is_change_needed]
    if not as_json:
        print_result("".join(_format_file_change(change) for change in changes))
    if todo:
        if not yes and not ask_for_confirmation("change these files?"):
            print_to_stderr("nothing was changed")
            return 0
        apply_file_changes(workspace, todo)
    if as_json:
        print_json_result(_serialize_planned_changes(changes))
    else:
        print_to_stderr(f"files changed: {len(todo)}" if todo else "nothing to change")
    _explain_tool_activation(workspace, changes)
    return 3 if any(change.action == "taken" for change in changes) else 0


def _print_tool_files_that_install_would_change(
    changes: list[PlannedFileChange], *, as_json: bool
) -> int:
    """Print which files `install` would change, and return the exit code."""
    text = "".join(map(_format_file_change_headline, changes))
    print_text_or_json(text, _serialize_planned_changes(changes), as_json)
    if any(change.is_change_needed for change in changes):
        print_to_stderr("the tools are not up to date; `kbtui tools install` updates them")
        return 1
    if any(change.action == "taken" for change in changes):
        return 3
    if any(change.is_outdated for change in changes):
        print_to_stderr(
            "files that you edited are out of date; `kbtui tools install` shows what is new"
        )
        return 4
    return 0


def _uninstall_tools(workspace: Workspace, *, as_json: bool) -> int:
    from kbtui.assistant.jp_local_tools import apply_file_changes, plan_tool_removal

    changes = plan_tool_removal(workspace)
    apply_file_changes(workspace, changes)
    text = "".join(map(_format_file_change_headline, changes))
    print_text_or_json(text, _serialize_planned_changes(changes), as_json)
    if any(change.action == "remove" for change in changes):
        return 0
    print_to_stderr("nothing to remove")
    return 1


def _format_file_change_headline(change: PlannedFileChange) -> str:
    label = _ACTION_LABELS[change.action]
    shown = f"{label.partition(':')[0]}: {change.why}" if change.why else label
    if change.is_outdated:
        shown += "; it is out of date. Copy what is new into the file, or delete the file and install again"
    return f"{change.path}: {shown}\n"


def _format_file_change(change: PlannedFileChange) -> str:
    """Format a planned change: all lines of a new file, or the changed lines of an existing file."""
    body = change.new_text if change.action == "write" else ""
    if change.action == "update" or change.is_outdated:
        body = change.make_diff()
    return _format_file_change_headline(change) + textwrap.indent(body, "    ")


def _serialize_planned_changes(changes: list[PlannedFileChange]) -> list[dict[str, object]]:
    return [
        {
            "path": change.path,
            "action": change.action,
            "why": change.why,
            "outdated": change.is_outdated or change.action in ("write", "update", "remove"),
            "text": change.new_text
            if change.action in ("write", "update") or change.is_outdated
            else None,
        }
        for change in changes
    ]


def _explain_tool_activation(workspace: Workspace, changes: list[PlannedFileChange]) -> None:
    """Print the steps that the user must still take before JP offers the tools."""
    import shutil

    from kbtui.workspace.jp_config import read_config_layers

    found = read_config_layers(workspace)
    read = {layer.path.resolve() for layer in found.layers}
    if any(
        "/mcp/tools/" in change.path and (workspace.root / change.path).resolve() not in read
        for change in changes
        if change.action in ("write", "update", "keep", "edited")
    ):
        print_to_stderr(
            'to make JP read these files, add extends = ["mcp/tools/**/*.toml"] to .jp/config.toml'
        )
    way = 'to enable the tools in a persona, add extends = ["../skill/kbtui.toml"] to its file'
    if ".jp/config" in [path.rstrip("/") for path in found.load_paths]:
        way = "enable the tools with `jp query --cfg skill/kbtui`, or in a persona's `extends`"
    print_to_stderr(way)
    if shutil.which("kbtui") is None:
        print_to_stderr("`kbtui` is not on the PATH, so JP cannot run it")


def declare_tool_command_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "context",
        metavar="CONTEXT_JSON",
        help="a JSON object with action, root and conversation_id",
    )
    parser.add_argument("tool", metavar="TOOL_JSON", help="a JSON object with name and arguments")


def run_tool_command(args: Namespace) -> int:
    """Answer one call to a JP local tool. JP runs this command with two JSON arguments.

    The answer goes to stdout as JSON. The exit code is 0 if the tool succeeded, 1 if not.
    """
    from kbtui.assistant.jp_local_tools import answer_jp_tool_call

    found = answer_jp_tool_call(args.context, args.tool)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0 if found["type"] == "success" else 1


def declare_mcp_command_arguments(parser: ArgumentParser) -> None:
    text = "the id of the conversation that calls the tools; searches leave this conversation out"
    parser.add_argument("--current", metavar="ID", help=text)


def run_mcp_command(args: Namespace) -> int:
    """Serve the tools over MCP on standard input and output, until the input ends.

    Only messages of the protocol go to stdout. In the configuration of an MCP client, write
    {"command": "kbtui", "args": ["mcp", "-w", "/path/to/workspace"]}.
    """
    from kbtui.conversations.conversation_repository import expand_conversation_reference
    from kbtui.library import open_workspace
    from kbtui.references import parse_conversation_ref

    current = None
    if args.current:
        parse_conversation_ref(args.current)
    library = open_workspace(args.workspace)
    if args.current:
        # Refuse a conversation of another workspace.
        ref = parse_conversation_ref(args.current, library.workspace.id)
        current = expand_conversation_reference(library.workspace, ref).conversation
    if sys.stdin.isatty():
        print_to_stderr(
            "serving MCP on standard input; usually an MCP client starts this command. "
            "Press Ctrl+D to stop"
        )
    from kbtui.assistant.mcp_server import serve_mcp

    return serve_mcp(library, current)
