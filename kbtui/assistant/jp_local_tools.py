"""Installs and removes the files that define kbtui's tools for JP, and answers JP's calls to the tools."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError, NothingFound, UsageError, WorkspaceError
from kbtui.file_reading_and_writing import (
    FileWriteOrRemoval,
    parse_toml_with_limited_key_depth,
    read_regular_file,
    write_and_remove_files_atomically,
)
from kbtui.knowledge.knowledge_lint import TOOLS_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from kbtui.assistant.assistant_tools import ToolDefinition
    from kbtui.knowledge import KnowledgeBase
    from kbtui.library import Library
    from kbtui.workspace import Workspace

    Action = Literal["write", "update", "remove", "keep", "edited", "taken"]


def format_tool_toml(tool: ToolDefinition) -> str:
    """Return the content of the file that defines a tool for JP."""
    table: dict[str, object] = {
        # The tool is off unless a conversation enables it by name. All versions of JP understand this value.
        "enable": "explicit",
        "run": "unattended",
        "source": "local",
        "command": "kbtui tool {{context}} {{tool}}",
        # JP always sends the summary, and the description only on request.
        "summary": tool.summary,
    }
    if tool.details:
        table["description"] = tool.details
    table["style"] = {
        "inline_results": "off",
        "results_file_link": "off",
        "parameters": "function_call",
    }
    table["parameters"] = {
        name: _make_toml_parameter_table(schema, is_required=name in tool.required)
        for name, schema in tool.parameters.items()
    }
    return _dump_toml({"conversation": {"tools": {tool.name: table}}})


def _make_toml_parameter_table(
    schema: Mapping[str, object], *, is_required: bool
) -> dict[str, object]:
    """Return a parameter as a TOML table with the keys that JP knows."""
    table = {"type": schema["type"], "summary": schema["description"]}
    if is_required:
        table["required"] = True
    return table | {key: schema[key] for key in ("default", "items", "enum") if key in schema}


def format_skill_toml(tools: Iterable[ToolDefinition]) -> str:
    """Return the content of JP's skill file, which enables the tools and adds a section to the prompt."""
    from kbtui.assistant.assistant_tools import DATA_WARNING

    sentences = {tool.name: tool.summary.split(". ")[0].rstrip(".") for tool in tools}
    listed = "".join(f"- {name}: {sentence}.\n" for name, sentence in sentences.items())
    content = (
        "You can look up what this workspace knows and what was said in past conversations:\n\n"
        f"{listed}\n"
        f"Look here before you ask the user what was decided or discussed. {DATA_WARNING}\n"
    )
    section = {"tag": "kbtui_skill", "title": "Skill: Knowledge and recall", "content": content}
    on = {"enable": True, "run": "unattended", "result": "unattended"}
    return _dump_toml(
        {
            "assistant": {"system_prompt_sections": [section]},
            "conversation": {"tools": dict.fromkeys(sentences, on)},
        }
    )


def _dump_toml(document: dict[str, object]) -> str:
    import tomli_w

    return tomli_w.dumps(document, multiline_strings=True)


SKILL_FILE = ".jp/config/skill/kbtui.toml"
TOOL_FILE_SIZE_LIMIT = 1 << 20

_MARK_LINE = re.compile(rb"# Written by `kbtui tools install`[^\n]* sha256:([0-9a-f]{64})\n")
_FOLDERS_LINE = re.compile(rb"# Folders (?:made with it|that kbtui created for it): ([^\n]+)\n")


@dataclass(frozen=True)
class PlannedFileChange:
    """A planned change to one file. The change is made only if the file's content is still `old`.

    `why` is an explanation for the user, or None. The actions `write`, `update` and `remove` change
    the file. The other actions leave the file as it is:

    * `keep`: the file is up to date.
    * `edited`: the user has edited the file. `new` is the text that kbtui would write now.
      `is_outdated` says whether `new` differs from what kbtui wrote before the edit.
    * `taken`: kbtui did not write the file, or another file defines the tool.
    """

    path: str
    action: Action
    new: bytes | None = None
    old: bytes | None = None
    why: str | None = None
    is_outdated: bool = False

    @property
    def is_change_needed(self) -> bool:
        """Whether the file must be written or removed."""
        return self.action in ("write", "update", "remove")

    def make_diff(self) -> str:
        """Return the change as a unified diff without a header; each line ends with a line break."""
        from difflib import unified_diff

        old = (self.old or b"").decode("utf-8", "replace").splitlines()
        lines = list(unified_diff(old, self.new_text.splitlines(), lineterm="", n=1))[2:]
        return "".join(f"{line}\n" for line in lines)

    @property
    def new_text(self) -> str:
        """The content after the change, as text."""
        return (self.new or b"").decode("utf-8")


def plan_jp_tool_installation(
    workspace: Workspace, knowledge: KnowledgeBase
) -> list[PlannedFileChange]:
    """Return the changes that `tools install` makes, sorted by path.

    Raises `WorkspaceError` if a directory is a link that points outside the workspace.
    """
    from kbtui.assistant.assistant_tools import list_offered_tools

    tools = list_offered_tools(knowledge)
    defined = _find_other_files_that_define_tools(workspace, {tool.name for tool in tools})
    changes, usable = [], []
    for tool in tools:
        path = _get_tool_file_path(tool)
        if tool.name in defined:
            why = f"{defined[tool.name]} defines a tool with the same name"
            changes.append(PlannedFileChange(path, "taken", why=why))
            continue
        change = _plan_file_change(workspace, path, format_tool_toml(tool))
        changes.append(change)
        if change.action != "taken":
            usable.append(tool)
    names = {_get_tool_file_path(tool) for tool in tools}
    for path in _list_possibly_installed_files(workspace):
        state, data = _read_tool_file_and_state(workspace, path)
        if state == "ours" and path not in names and path != SKILL_FILE:
            changes.append(PlannedFileChange(path, "remove", old=data))
    if usable:
        changes.append(_plan_file_change(workspace, SKILL_FILE, format_skill_toml(usable)))
    return sorted(changes, key=lambda change: change.path)


def plan_tool_removal(workspace: Workspace) -> list[PlannedFileChange]:
    """Return the changes that `tools uninstall` makes. Files that somebody has edited are not removed."""
    changes = []
    for path in _list_possibly_installed_files(workspace):
        state, data = _read_tool_file_and_state(workspace, path)
        if state == "ours":
            changes.append(PlannedFileChange(path, "remove", old=data))
        elif state == "edited":
            # JP cannot load a skill that enables tools without a definition.
            is_skill = path == SKILL_FILE
            why = "delete it, because it enables tools that no longer exist" if is_skill else None
            changes.append(PlannedFileChange(path, "edited", old=data, why=why))
    return changes


def apply_file_changes(workspace: Workspace, changes: Iterable[PlannedFileChange]) -> None:
    """Make all changes, or none if one of them fails.

    Raises `WorkspaceError` if a change fails, or if a file has changed since the plan was made.
    """
    todo = [change for change in changes if change.is_change_needed]
    folders: set[str] = set()
    for change in todo:
        _check_inside_workspace(workspace, change.path)
        if change.new is None and change.old is not None:
            folders |= _parse_created_directories(change.old)
    write_and_remove_files_atomically(
        [
            FileWriteOrRemoval(workspace.root / change.path, change.old, change.new)
            for change in todo
        ]
    )
    for folder in sorted(folders, key=len, reverse=True):
        # Remove only empty directories that were created for these files.
        if _is_inside_workspace(workspace, folder):
            with suppress(OSError):
                (workspace.root / folder).rmdir()


def add_checksum_comment(body: str, folders: Iterable[str] = ()) -> bytes:
    """Return `body` as file content, preceded by a comment with a checksum.

    The checksum reveals later edits by the user. `folders` are the directories that are created for
    the file; another comment lists them.
    """
    folders = sorted(folders)
    if folders:
        body = f"# Folders that kbtui created for it: {', '.join(folders)}\n{body}"
    data = body.encode("utf-8")
    digest = hashlib.sha256(data).hexdigest()
    mark = f"# Written by `kbtui tools install`; if you edit it, kbtui leaves it alone. sha256:{digest}\n"
    return mark.encode() + data


def _plan_file_change(workspace: Workspace, path: str, body: str) -> PlannedFileChange:
    """Plan the change that gives a file the content `body` and a checksum."""
    _check_inside_workspace(workspace, path)
    state, old = _read_tool_file_and_state(workspace, path)
    if state == "absent":
        new = add_checksum_comment(body, _list_missing_parent_directories(workspace, path))
        return PlannedFileChange(path, "write", new=new)
    if state == "taken":
        return PlannedFileChange(path, state)
    new = add_checksum_comment(body, _parse_created_directories(old))
    if state == "edited":
        is_outdated = _read_tool_file_checksum(old) != _read_tool_file_checksum(new)
        return PlannedFileChange(path, state, new=new, old=old, is_outdated=is_outdated)
    same = new == old.replace(b"\r\n", b"\n")
    return PlannedFileChange(path, "keep" if same else "update", new=new, old=old)


def _read_tool_file_checksum(data: bytes) -> bytes | None:
    """Return the checksum that kbtui stored in a file, or None.

    A user's edit of the file does not change this checksum.
    """
    match = _MARK_LINE.match(data.replace(b"\r\n", b"\n"))
    return match[1] if match else None


def _read_tool_file_and_state(
    workspace: Workspace, path: str
) -> tuple[Literal["absent", "ours", "edited", "taken"], bytes]:
    """Return the state of a file, and its content.

    The states:
    - "absent": The file does not exist.
    - "ours": kbtui wrote the file.
    - "edited": kbtui wrote the file, and somebody has changed it.
    - "taken": Somebody else wrote the file.
    """
    target = workspace.root / path
    try:
        status = target.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > TOOL_FILE_SIZE_LIMIT:
            return "taken", b""
        data = read_regular_file(target, TOOL_FILE_SIZE_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return "absent", b""
    except OSError as error:
        message = f"the file cannot be read: {error.strerror or error}"
        raise WorkspaceError(message, where=path) from error
    # Git may have changed the line endings.
    plain = data.replace(b"\r\n", b"\n")
    match = _MARK_LINE.match(plain)
    if match is None:
        return "taken", data
    good = hashlib.sha256(plain[match.end() :]).hexdigest().encode() == match[1]
    return ("ours" if good else "edited"), data


def _parse_created_directories(data: bytes) -> set[str]:
    """Return the directories that kbtui created for a file, according to the comments at the start of the file."""
    plain = data.replace(b"\r\n", b"\n")
    match = _MARK_LINE.match(plain)
    folders = _FOLDERS_LINE.match(plain, match.end()) if match else None
    return set(folders[1].decode("utf-8", "replace").split(", ")) if folders else set()


def _get_tool_file_path(tool: ToolDefinition) -> str:
    return f"{TOOLS_DIRECTORY}/{tool.name}.toml"


def _list_possibly_installed_files(workspace: Workspace) -> list[str]:
    """Return the files that kbtui may have written: the skill file and the tool files."""
    try:
        names = sorted(os.listdir(workspace.root / TOOLS_DIRECTORY))  # noqa: PTH208
    except OSError:
        names = []
    found = [f"{TOOLS_DIRECTORY}/{name}" for name in names if name.endswith(".toml")]
    return [path for path in (SKILL_FILE, *found) if _is_inside_workspace(workspace, path)]


def _list_missing_parent_directories(workspace: Workspace, path: str) -> list[str]:
    """Return the missing parent directories of a path."""
    folders = [str(parent) for parent in PurePosixPath(path).parents][:-1]
    return [folder for folder in folders if not (workspace.root / folder).exists()]


def _is_inside_workspace(workspace: Workspace, path: str) -> bool:
    """Return whether a path's directory, with all links resolved, is inside the workspace."""
    if path.startswith("/") or ".." in path.split("/"):
        return False
    real = Path(os.path.realpath((workspace.root / path).parent))
    return real.is_relative_to(os.path.realpath(workspace.root))


def _check_inside_workspace(workspace: Workspace, path: str) -> None:
    if not _is_inside_workspace(workspace, path):
        raise WorkspaceError(
            "a symbolic link in the path points outside the workspace",
            where=path,
            hint="replace the link with a directory",
        )


def _find_other_files_that_define_tools(workspace: Workspace, names: set[str]) -> dict[str, str]:
    """Map each tool in `names` that is also defined in another file to the path of that file.

    JP would merge the two definitions of such a tool.
    """
    found: dict[str, str] = {}
    tool_files = sorted((workspace.jp_directory / "mcp/tools").rglob("*.toml"))
    for file in (workspace.jp_directory / "config.toml", *tool_files):
        relative = file.relative_to(workspace.root).as_posix()
        if relative.startswith(TOOLS_DIRECTORY + "/"):
            continue
        try:
            data = read_regular_file(file, TOOL_FILE_SIZE_LIMIT)
            tools = parse_toml_with_limited_key_depth(data.decode("utf-8"))["conversation"]["tools"]
            named = [name for name in names if "source" in tools.get(name, {})]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        found.update(dict.fromkeys(named, relative))
    return found


MAX_ARGUMENT_WIDTH = 200
"""The maximum width of each argument in the answer to `format_arguments`, in columns."""


def answer_jp_tool_call(context_json: str, tool_json: str) -> dict[str, object]:
    """Answer a call from JP to a local tool. Both arguments are JSON objects as text.

    The workspace is exactly `context.root`; directories above it are not searched.
    `context.conversation_id`, if JP passes it, is the id of the calling conversation. Errors of the
    class `KbtuiError` become answers.
    """
    try:
        context = _parse_json_object(context_json, "the context")
        tool = _parse_json_object(tool_json, "the tool")
        name = tool.get("name")
        arguments = {} if tool.get("arguments") is None else tool["arguments"]
        if not isinstance(name, str):
            raise UsageError("the tool's `name` is missing")
        if not isinstance(arguments, dict):
            raise UsageError("the tool's `arguments` is not an object")
        action = context.get("action", "run")
        if action == "format_arguments":
            return {"type": "success", "content": format_tool_call_for_jp_terminal(name, arguments)}
        if action != "run":
            raise UsageError(f"unknown action {action!r}", hint="actions: run, format_arguments")
        return _run_jp_tool_call(context, name, arguments)
    except KbtuiError as error:
        return _make_error_answer_to_jp(str(error))


def _run_jp_tool_call(
    context: dict[str, Any], name: str, arguments: dict[str, Any]
) -> dict[str, object]:
    from kbtui.assistant.assistant_tools import answer_tool_call, should_mask_secrets

    with closing(_open_library_of_jp_workspace(context.get("root"))) as library:
        masked = should_mask_secrets(library.settings, "jp")
        current = _parse_current_conversation_id(context, library.workspace.id)
        reply = answer_tool_call(name, arguments, library, current, masked=masked)
    if reply.is_error:
        return _make_error_answer_to_jp(reply.text)
    return {"type": "success", "content": reply.text}


def _make_error_answer_to_jp(message: str) -> dict[str, object]:
    # `transient` would make JP repeat the call.
    return {"type": "error", "message": message, "trace": [], "transient": False}


def _parse_json_object(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{what} is not a JSON object")
    return found


def _open_library_of_jp_workspace(root: Any) -> Library:
    from kbtui.library.workspace_library import Library, load_checked_settings
    from kbtui.workspace.paths import get_jp_directory_of_workspace
    from kbtui.workspace.workspace import open_workspace_at_root

    if not isinstance(root, str) or not root or "\0" in root:
        raise UsageError("the context's `root` is missing")
    path = Path(root)
    # Unlike `Path.is_dir`, this never raises.
    if not path.is_absolute() or not os.path.isdir(get_jp_directory_of_workspace(root)):  # noqa: PTH112
        raise WorkspaceError("no JP workspace here", where=root)
    return Library(open_workspace_at_root(path), load_checked_settings())


def _parse_current_conversation_id(context: dict[str, Any], workspace: str | None) -> str | None:
    """Return the id of the calling conversation, or None if it is unknown. JP writes ids in several forms."""
    from kbtui.references import parse_conversation_id

    found = context.get("conversation_id")
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    try:
        return parse_conversation_id(found, workspace) if isinstance(found, str) else None
    except (UsageError, NothingFound):
        return None


def format_tool_call_for_jp_terminal(name: str, arguments: dict[str, Any]) -> str:
    """Format a call as one line that is safe to print in JP's terminal. Null arguments are left out."""
    from kbtui.terminal_text import cut_to_width, sanitize_to_one_line

    parts = []
    for key, value in arguments.items():
        if value is None:
            continue
        try:
            shown = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            shown = "…"
        value_shown = cut_to_width(sanitize_to_one_line(shown, "strip"), MAX_ARGUMENT_WIDTH)
        parts.append(f"{sanitize_to_one_line(key, 'strip')}: {value_shown}")
    return f"{sanitize_to_one_line(name, 'strip')}({', '.join(parts)})"
