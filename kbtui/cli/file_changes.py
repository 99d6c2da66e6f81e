"""The command `conversation changes`: what the turns of a conversation did to files."""

from __future__ import annotations

import sys

from kbtui.cli.command_output import (
    WaitingLine,
    are_colors_off,
    print_json_result,
    print_result,
    print_through_pager,
    print_to_stderr,
)
from kbtui.text import sanitize, sanitize_to_one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from kbtui.citations.file_changes import FileAction, TurnActivity
    from kbtui.library import Library

_DIFF_COLORS = {"+": 32, "-": 31, "@": 36}
"""First character of a line in a diff -> its colour in an escape sequence for the terminal."""


def print_conversation_changes(library: Library, args: Namespace) -> int:
    """Print what a conversation, a turn or a call did to files: as a diff, by file, or as JSON."""
    from kbtui.conversations.conversation_repository import (
        check_turn_and_call_exist,
        find_conversation,
        load_conversation,
    )
    from kbtui.library.file_history import summarize_turns
    from kbtui.refs import make_conversation_ref, parse_conversation_ref

    ref = parse_conversation_ref(args.id, library.workspace.id)
    with WaitingLine("reading"):
        info = find_conversation(library.workspace, ref.conversation or "")
        conversation = load_conversation(info)
        if ref.turn is not None:
            check_turn_and_call_exist(conversation, ref)
        activities = {
            turn: _select_activity(activity, ref.call, args.file)
            for turn, activity in summarize_turns(library.workspace, conversation).items()
            if ref.turn in (None, turn)
        }
    changes = [
        (str(make_conversation_ref(info.id, turn, one.call)), turn, one)
        for turn, activity in activities.items()
        for one in activity.files
        if one.kind != "read"
    ]
    if args.json:
        print_json_result(
            {
                "id": info.id,
                "title": info.title,
                "turns": [
                    {"turn": turn, **make_activity_json(activity)}
                    for turn, activity in activities.items()
                ],
            }
        )
    elif args.stat:
        print_result("".join(f"{line}\n" for line in _format_files(changes)))
    else:
        _print_diff("".join(_format_change(source, one) for source, _, one in changes))
    for problem in conversation.problems:
        print_to_stderr(f"{info.ref}: {problem}")
    if not changes and not args.json:
        print_to_stderr(f"no files changed in {ref}")
    return 0 if changes else 1


def _select_activity(activity: TurnActivity, call: int | None, path: str | None) -> TurnActivity:
    """Return the part of an activity that belongs to one call and one file; None means all."""
    from kbtui.citations.file_changes import TurnActivity

    return TurnActivity(
        tuple(
            one
            for one in activity.files
            if call in (None, one.call) and path in (None, one.path, one.old_path)
        ),
        tuple(one for one in activity.commands if path is None and call in (None, one.call)),
        tuple(one for one in activity.failures if path is None and call in (None, one.call)),
    )


def make_activity_json(activity: TurnActivity) -> dict[str, Any]:
    """Return what a turn did as JSON."""
    return {
        "files": [make_file_action_json(one) for one in activity.files],
        "commands": [
            {"call": one.call, "command": one.text, "failed": one.has_failed}
            for one in activity.commands
        ],
        "failures": [{"call": one.call, "tool": one.name} for one in activity.failures],
    }


def make_file_action_json(action: FileAction) -> dict[str, Any]:
    """Return an action on a file as JSON; `diff` is None if the call does not show the change."""
    return {
        "kind": action.kind,
        "path": action.path,
        "old_path": action.old_path,
        "call": action.call,
        "added": action.added,
        "removed": action.removed,
        "diff": action.format_diff() if action.hunks else None,
    }


def format_line_counts(added: int, removed: int) -> str:
    """Return the numbers of added and removed lines: `+3 −1`, `+3`, `−1`, or "" if both are 0."""
    return " ".join([*([f"+{added:,}"] if added else []), *([f"−{removed:,}"] if removed else [])])


def _format_files(changes: list[tuple[str, int, FileAction]]) -> Iterator[str]:
    """Yield a line for each changed file: the path, what was done to it, its lines, and the turns."""
    by_path: dict[str, list[tuple[int, FileAction]]] = {}
    for _, turn, one in changes:
        by_path.setdefault(one.path, []).append((turn, one))
    width = max((len(sanitize_to_one_line(path)) for path in by_path), default=0)
    for path, found in by_path.items():
        kinds = ", ".join(dict.fromkeys(one.kind for _, one in found))
        counts = format_line_counts(
            sum(one.added for _, one in found), sum(one.removed for _, one in found)
        )
        turns = list(dict.fromkeys(turn for turn, _ in found))
        noun = "turn" if len(turns) == 1 else "turns"
        where = f"{noun} {', '.join(map(str, turns))}"
        parts = [kinds, *([counts] if counts else []), where]
        yield f"{sanitize_to_one_line(path):<{width}}  {'  '.join(parts)}"


def _format_change(source: str, action: FileAction) -> str:
    """Return a change as a diff, after a line that says which call made it."""
    moved = f" from {action.old_path}" if action.old_path else ""
    counts = format_line_counts(action.added, action.removed)
    head = sanitize_to_one_line(f"{source}  {action.kind} {action.path}{moved}")
    diff = action.format_diff() if action.hunks else ""
    return f"{head}{f'  {counts}' if counts else ''}\n{diff}\n"


def _print_diff(text: str) -> None:
    """Print a diff, on a terminal in colours and through the pager."""
    if not sys.stdout.isatty():
        print_result(text)
        return
    text = sanitize(text)
    if not are_colors_off():
        text = "\n".join(map(_color_diff_line, text.split("\n")))
    print_through_pager(text)


def _color_diff_line(line: str) -> str:
    code = _DIFF_COLORS.get(line[:1])
    if line.startswith(("--- ", "+++ ")):
        code = 1
    return f"\x1b[{code}m{line}\x1b[0m" if code else line
