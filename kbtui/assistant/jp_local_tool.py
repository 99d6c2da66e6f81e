"""JP's protocol for local tools: a call has two JSON arguments, and its answer is a JSON object."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.errors import KbtuiError, NothingFound, UsageError, WorkspaceError

if TYPE_CHECKING:
    from typing import Literal, TypedDict

    from kbtui.library import Library

    class JpToolSuccess(TypedDict):
        """The answer to a call that succeeded."""

        type: Literal["success"]
        content: str

    class JpToolError(TypedDict):
        """The answer to a call that failed. If `transient` is true, JP repeats the call."""

        type: Literal["error"]
        message: str
        trace: list[str]
        transient: bool


MAX_ARGUMENT_WIDTH = 200
"""Each argument in the answer to `format_arguments` is cut to this width, in columns."""


def answer_jp_tool_call(context_json: str, tool_json: str) -> JpToolSuccess | JpToolError:
    """Answer JP's call of a local tool. Both arguments are JSON objects as text.

    The workspace is exactly `context.root`; directories above it are not searched.
    `context.conversation_id`, if JP passes it, is the calling conversation. Errors of kbtui become
    answers.
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
            return {"type": "success", "content": format_tool_call(name, arguments)}
        if action != "run":
            raise UsageError(f"unknown action {action!r}", hint="actions: run, format_arguments")
        return _run_jp_tool_call(context, name, arguments)
    except KbtuiError as error:
        return _make_jp_error_outcome(str(error))


def _run_jp_tool_call(
    context: dict[str, Any], name: str, arguments: dict[str, Any]
) -> JpToolSuccess | JpToolError:
    from kbtui.assistant.assistant_tools import answer_tool_call, should_mask_secrets

    with closing(_open_library(context.get("root"))) as library:
        masked = should_mask_secrets(library.settings, "jp")
        current = _parse_current_conversation_id(context, library.workspace.id)
        reply = answer_tool_call(name, arguments, library, current, masked=masked)
    if reply.is_error:
        return _make_jp_error_outcome(reply.text)
    return {"type": "success", "content": reply.text}


def _make_jp_error_outcome(message: str) -> JpToolError:
    return {"type": "error", "message": message, "trace": [], "transient": False}


def _parse_json_object(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{what} is not a JSON object")
    return found


def _open_library(root: Any) -> Library:
    from kbtui.library.library import Library, load_checked_settings
    from kbtui.workspace.paths import find_jp_directory
    from kbtui.workspace.workspace import open_workspace_at_root

    if not isinstance(root, str) or not root or "\0" in root:
        raise UsageError("the context's `root` is missing")
    path = Path(root)
    # Unlike `Path.is_dir`, this never raises.
    if not path.is_absolute() or not os.path.isdir(find_jp_directory(root)):  # noqa: PTH112
        raise WorkspaceError("no JP workspace here", where=root)
    return Library(open_workspace_at_root(path), load_checked_settings())


def _parse_current_conversation_id(context: dict[str, Any], workspace: str | None) -> str | None:
    """Return the id of the calling conversation, which JP writes in several forms; None if unknown."""
    from kbtui.refs import parse_conversation_id

    found = context.get("conversation_id")
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    try:
        return parse_conversation_id(found, workspace) if isinstance(found, str) else None
    except (UsageError, NothingFound):
        return None


def format_tool_call(name: str, arguments: dict[str, Any]) -> str:
    """Format a call as one line that is safe for JP's terminal, without arguments that are null."""
    from kbtui.text import cut_to_width, sanitize_to_one_line

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
