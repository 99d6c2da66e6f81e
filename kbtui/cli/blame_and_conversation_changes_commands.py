"""The commands `blame` and `conversation changes`, which show the file changes made in conversations."""

from __future__ import annotations

import sys
from pathlib import Path

from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    are_colors_off,
    decode_command_argument,
    get_terminal_width,
    print_json_result,
    print_result,
    print_through_pager,
    print_to_stderr,
)
from kbtui.cli.turn_mark_command import (
    format_turn_mark_lines,
    print_notice_of_unreadable_turn_marks,
)
from kbtui.terminal_text import (
    cut_to_width,
    format_added_and_removed_counts,
    sanitize,
    sanitize_to_one_line,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence
    from typing import Any

    from kbtui.citations.turn_file_actions_and_commands import (
        TurnActionsAndCommands,
        TurnFileAction,
    )
    from kbtui.conversations.turn_decision_marks import ConversationMarks
    from kbtui.library import Library
    from kbtui.library.file_turn_history import TurnTouchingFile
    from kbtui.workspace import Workspace

_DIFF_COLORS = {"+": 32, "-": 31, "@": 36}
"""Maps the first character of a diff line to the number of the line's colour in an escape sequence."""


def declare_blame_command_arguments(parser: ArgumentParser) -> None:
    text = "a file, or some of its lines: src/main.py, src/main.py:12 or src/main.py:12-20"
    parser.add_argument("file", metavar="FILE[:LINES]", help=text)
    parser.add_argument(
        "--changes",
        action="store_true",
        help="leave out turns that only read the file",
    )
    parser.add_argument("--diff", action="store_true", help="print the changes of each turn")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_blame_command(args: Namespace) -> int:
    """List the turns that changed or read a file, under any of its names, newest first.

    kbtui blame src/main.py          turns that changed or read the file
    kbtui blame src/main.py:12-20    turns whose edits wrote these lines
    """
    from kbtui.conversations.conversation_repository import list_conversation_change_signatures
    from kbtui.library import open_workspace
    from kbtui.library.file_turn_history import (
        describe_incompletely_read_conversations,
        describe_lines_not_written_by_turns,
    )
    from kbtui.references import shorten_conversation_ids

    with open_workspace(args.workspace) as library:
        with StderrWaitIndicator("reading conversations"):
            found = library.blame(decode_command_argument(args.file), str(Path.cwd()))
            ids = list_conversation_change_signatures(library.workspace)
        turns = [
            turn
            for turn in found.turns
            if not args.changes or any(one.kind != "read" for one in turn.actions)
        ]
        marks = library.find_all_marks_in_conversations_of_turns(turn.ref for turn in turns)
        if args.json:
            shape = found._replace(turns=turns).as_json()
            for row in shape["turns"]:
                row.update(marks.make_turn_marks_json_fields(row["ref"]))
            print_json_result(shape)
        else:
            short_ids = shorten_conversation_ids(ids)
            text = "\n".join(
                _format_turn_that_used_file(
                    turn, short_ids, marks.get_mark_labels_of_turn(turn.ref), shows_diff=args.diff
                )
                for turn in turns
            )
            _print_diff(text)
    if not args.json:
        for lines in describe_lines_not_written_by_turns(found.unexplained):
            print_to_stderr(lines)
    print_notice_of_unreadable_turn_marks(marks)
    print_git_problem(library.workspace)
    if found.problems and not args.json:
        print_to_stderr(describe_incompletely_read_conversations(found.problems))
    if not turns:
        what = "wrote these lines of" if found.lines else "changed or read"
        print_to_stderr(f"no turn {what} {found.path}")
    return 0 if turns else 1


def print_git_problem(workspace: Workspace) -> None:
    """If the history of the workspace's repository cannot be read, print the reason on stderr."""
    from kbtui.workspace.git_history import find_git_history_problem

    if problem := find_git_history_problem(str(workspace.root)):
        print_to_stderr(
            sanitize_to_one_line(f"the Git history cannot be read and is left out: git: {problem}")
        )


def _format_turn_that_used_file(
    turn: TurnTouchingFile, short_ids: dict[str, str], marks: Sequence[str], *, shows_diff: bool
) -> str:
    """Format a turn: a line with its reference, time and title, and indented lines below.

    The indented lines contain the user's marks, the request, and the actions of the turn on the file.
    """
    id_ = short_ids.get(turn.conversation, turn.conversation)
    time = turn.time.astimezone().strftime("%Y-%m-%d %H:%M") if turn.time else "-"
    rewound = "  rewound" if turn.rewound else ""
    lines = [f"{id_}:{turn.turn}  {time}  {sanitize_to_one_line(turn.title)}{rewound}"]
    if request := sanitize_to_one_line(turn.request[:2000]):
        lines.append(f"    asked: {cut_to_width(request, max(40, get_terminal_width() - 12))}")
    lines.append(f"    {turn.describe_written_lines_and_file_actions()}")
    text = "".join(f"{line}\n" for line in lines)
    head, _, rest = text.partition("\n")
    text = f"{head}\n{format_turn_mark_lines(marks)}{rest}"
    if shows_diff:
        text += "".join(one.format_diff() for one in turn.actions if one.hunks)
    return text


def print_conversation_changes(library: Library, args: Namespace) -> int:
    """Print the changes that a conversation, a turn or a call made to files, in the format that `args` selects."""
    from kbtui.conversations.conversation_repository import (
        check_turn_and_call_exist,
        find_conversation,
        load_conversation,
        parse_entered_conversation_reference,
    )
    from kbtui.conversations.turn_decision_marks import make_marks_json_field_of_turn
    from kbtui.library.file_turn_history import map_turns_to_actions_and_commands, resolve_file_name
    from kbtui.references import make_conversation_ref

    ref = parse_entered_conversation_reference(library.workspace, args.id)
    path = None
    if args.file is not None:
        path = resolve_file_name(
            library.workspace, decode_command_argument(args.file), str(Path.cwd())
        )
    with StderrWaitIndicator("reading"):
        info = find_conversation(library.workspace, ref.conversation or "")
        conversation = load_conversation(info)
        if ref.turn is not None:
            check_turn_and_call_exist(conversation, ref)
        activities = {
            turn: _select_actions_of_call_and_file(activity, ref.call, path)
            for turn, activity in map_turns_to_actions_and_commands(
                library.workspace, conversation
            ).items()
            if ref.turn in (None, turn)
        }
        marks = library.map_marks_by_turn(conversation)
    changes = [
        (str(make_conversation_ref(info.id, turn, one.call)), turn, one)
        for turn, activity in activities.items()
        for one in activity.files
        if one.kind != "read"
    ]
    if args.by_file:
        order: dict[str, int] = {}
        for _, _, one in changes:
            order.setdefault(one.path, len(order))
        changes.sort(key=lambda change: order[change[2].path])
    if args.json:
        print_json_result(
            {
                "id": info.id,
                "title": info.title,
                "turns": [
                    {
                        "turn": turn,
                        **make_turn_actions_json(activity),
                        **make_marks_json_field_of_turn(marks.by_turn.get(turn, ())),
                    }
                    for turn, activity in activities.items()
                ],
            }
        )
    elif args.stat:
        print_result("".join(_format_files_changed_by_turns(changes, marks)))
    else:
        _print_diff("".join(_format_changes_of_turns_as_diffs(changes, marks)))
    print_notice_of_unreadable_turn_marks(marks)
    for problem in conversation.problems:
        print_to_stderr(f"{info.ref}: {problem}")
    if not changes and not args.json:
        if path is None:
            print_to_stderr(f"no files changed in {ref}")
        else:
            print_to_stderr(sanitize_to_one_line(f"{path} was not changed in {ref}"))
    return 0 if changes else 1


def _select_actions_of_call_and_file(
    activity: TurnActionsAndCommands, call: int | None, path: str | None
) -> TurnActionsAndCommands:
    """Return the actions of a turn that belong to one call, to one file, or to both.

    None stands for all calls or all files. Commands and failures belong to no file, so they are
    left out if `path` is given.
    """
    from kbtui.citations.turn_file_actions_and_commands import TurnActionsAndCommands

    return TurnActionsAndCommands(
        tuple(
            one
            for one in activity.files
            if call in (None, one.call) and path in (None, one.path, one.old_path)
        ),
        tuple(one for one in activity.commands if path is None and call in (None, one.call)),
        tuple(one for one in activity.failures if path is None and call in (None, one.call)),
    )


def make_turn_actions_json(activity: TurnActionsAndCommands) -> dict[str, Any]:
    """Return the file actions, commands and failures of a turn as JSON."""
    return {
        "files": [one.as_json() for one in activity.files],
        "commands": [
            {"call": one.call, "command": one.text, "failed": one.has_failed}
            for one in activity.commands
        ],
        "failures": [{"call": one.call, "tool": one.name} for one in activity.failures],
    }


def _format_files_changed_by_turns(
    changes: list[tuple[str, int, TurnFileAction]], marks: ConversationMarks
) -> Iterator[str]:
    """Yield a line for each changed file: the path, the actions, the line counts, and the turns.

    Then yield a line for each mark on these turns.
    """
    by_path: dict[str, list[tuple[int, TurnFileAction]]] = {}
    for _, turn, one in changes:
        by_path.setdefault(one.path, []).append((turn, one))
    width = max((len(sanitize_to_one_line(path)) for path in by_path), default=0)
    for path, found in by_path.items():
        kinds = ", ".join(dict.fromkeys(one.kind for _, one in found))
        counts = format_added_and_removed_counts(
            sum(one.added_line_count for _, one in found),
            sum(one.removed_line_count for _, one in found),
        )
        turns = list(dict.fromkeys(turn for turn, _ in found))
        noun = "turn" if len(turns) == 1 else "turns"
        where = f"{noun} {', '.join(map(str, turns))}"
        parts = [kinds, *([counts] if counts else []), where]
        yield f"{sanitize_to_one_line(path):<{width}}  {'  '.join(parts)}\n"
    for turn in dict.fromkeys(turn for _, turn, _ in changes):
        yield format_turn_mark_lines(marks.get_mark_labels_of_turn(turn), f"turn {turn}  ")


def _format_changes_of_turns_as_diffs(
    changes: list[tuple[str, int, TurnFileAction]], marks: ConversationMarks
) -> Iterator[str]:
    """Yield each change as a diff. The marks of a turn precede its first change."""
    shown: set[int] = set()
    for source, turn, one in changes:
        if turn not in shown:
            yield format_turn_mark_lines(
                marks.get_mark_labels_of_turn(turn), f"{source.partition('.')[0]}  "
            )
        shown.add(turn)
        yield _format_change_of_turn_as_diff(source, one)


def _format_change_of_turn_as_diff(source: str, action: TurnFileAction) -> str:
    """Return a change as a diff, preceded by a line that names the call."""
    moved = f" from {action.old_path}" if action.old_path else ""
    counts = format_added_and_removed_counts(action.added_line_count, action.removed_line_count)
    head = sanitize_to_one_line(f"{source}  {action.kind} {action.path}{moved}")
    diff = action.format_diff() if action.hunks else ""
    return f"{head}{f'  {counts}' if counts else ''}\n{diff}\n"


def _print_diff(text: str) -> None:
    """Print a diff; on a terminal, show it in colour and in the pager."""
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
