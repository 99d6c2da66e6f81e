"""The commands `export` and `conversation export`, which write a conversation for other people."""

from __future__ import annotations

import os
import sys

from kbtui.cli.cli_argument_parser import reword_errors_for_command, split_values_at_commas
from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    ask_for_confirmation,
    print_result,
    print_to_stderr,
    write_output_file,
)
from kbtui.errors import NothingFound, UsageError, WorkspaceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.conversations.conversation_data_types import Conversation, Turn
    from kbtui.library import Library
    from kbtui.references import Ref


def declare_export_command_arguments(parser: ArgumentParser) -> None:
    from kbtui.citations.masked_conversation_export import EXPORT_FORMATS
    from kbtui.conversations.conversation_event_kinds import map_include_groups_to_event_kinds

    text = "a conversation, turn or call: jp-c17457886043, claude-258c7280, …:3 or …:3.2"
    parser.add_argument("id", metavar="ID", help=text)
    text = "the output format (default: from the extension of FILE, else markdown)"
    parser.add_argument("--format", choices=EXPORT_FORMATS, help=text)
    text = "write to FILE (default: standard output)"
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    parser.add_argument("--turn", type=int, metavar="N", help="only this turn")
    parser.add_argument("--last", type=int, metavar="N", help="only the last N turns")
    text = "only these turns, such as 2-5 or 1,4,7-9"
    parser.add_argument("--turns", metavar="RANGES", help=text)
    groups = ", ".join(map_include_groups_to_event_kinds())
    text = f"only these kinds of events: {groups} (repeatable, or comma-separated)"
    parser.add_argument("--include", metavar="KIND", action="append", help=text)
    text = "do not mask secrets"
    parser.add_argument("--no-mask", action="store_true", help=text)
    text = "overwrite FILE without asking"
    parser.add_argument("--force", action="store_true", help=text)


def run_export_command(args: Namespace) -> int:
    """Write a conversation, or some of its turns, as one file for other people.

    Secrets that kbtui recognizes are masked, and standard error says which ones. The HTML file
    needs no other file and no network. An existing file is overwritten only with --force, or if you
    agree.

    kbtui export jp-c17457886043 -o talk.html            write one HTML file
    kbtui export claude-258c7280 --turns 2-5 -o talk.md  write some turns as Markdown
    kbtui export jp-c17457886043 --include chat --format jsonl
    """
    from kbtui.library import open_workspace

    with open_workspace(args.workspace) as library, reword_errors_for_command():
        return export_conversation(library, args)


def export_conversation(library: Library, args: Namespace) -> int:
    """Write the conversation that `args` describes; return the exit code."""
    from kbtui.assistant.conversation_tools import resolve_included_event_kinds
    from kbtui.citations.masked_conversation_export import (
        describe_masked_secrets,
        format_shared_conversation,
        get_export_format_of_path,
        prepare_shared_conversation,
    )
    from kbtui.cli.turn_mark_command import report_unreadable_marks
    from kbtui.conversations.conversation_repository import (
        find_conversation,
        load_conversation,
        parse_entered_conversation_reference,
    )

    ref = parse_entered_conversation_reference(library.workspace, args.id)
    kinds = resolve_included_event_kinds(split_values_at_commas(args.include))
    if args.output and not args.force and not _may_write_file(library, args.output):
        print_to_stderr("nothing was written")
        return 1
    with StderrWaitIndicator("reading"):
        conversation = load_conversation(
            find_conversation(library.workspace, ref.conversation or "")
        )
        if not conversation.turns and conversation.problems:
            reason = "; ".join(map(str, conversation.problems[:3]))
            raise WorkspaceError(
                f"the conversation is damaged: {reason}", where=conversation.info.ref
            )
        turns = _select_turns(conversation, ref, args)
        citations = [
            cite
            for cite in library.extract_citations(conversation)
            if ref.call in (None, cite.call)
        ]
        shared = prepare_shared_conversation(
            conversation,
            turns,
            kinds,
            citations,
            library.map_marks_by_turn(conversation),
            masks_secrets=not args.no_mask,
        )
        form = args.format or get_export_format_of_path(args.output or "")
        text = format_shared_conversation(shared, form)
    if args.output is None:
        print_result(text)
    else:
        write_output_file(library.workspace, args.output, text)
    for line in describe_masked_secrets(shared):
        print_to_stderr(f"masked: {line}")
    report_unreadable_marks(library)
    for problem in conversation.problems:
        print_to_stderr(f"{conversation.info.ref}: {problem}")
    return 0 if turns else 1


def _may_write_file(library: Library, path: str) -> bool:
    """Return whether the file may be written: it does not exist yet, or the user agrees to overwrite it.

    Raises `UsageError` for JP's files, and for an existing file if there is no terminal on which to ask.
    """
    from pathlib import Path

    from kbtui.workspace.workspace import check_export_path

    check_export_path(library.workspace, Path(path))
    if not os.path.isfile(path):  # noqa: PTH113  (never raises)
        return True
    if not sys.stdin.isatty():
        hint = "add --force to overwrite it, or choose another file"
        raise UsageError("the file exists already", where=path, hint=hint)
    return ask_for_confirmation(f"{path} exists already. Overwrite it?")


def _select_turns(conversation: Conversation, ref: Ref, args: Namespace) -> list[Turn]:
    from kbtui.assistant.conversation_tools import resolve_requested_turn, select_requested_turns
    from kbtui.citations.masked_conversation_export import parse_turn_ranges

    if args.turns is None:
        turn = resolve_requested_turn(ref, args.turn, args.last)
        return select_requested_turns(conversation, ref, turn, args.last)
    if args.turn is not None or args.last is not None or ref.turn is not None:
        raise UsageError("cannot be combined with --turn, --last or a turn in ID", where="--turns")
    try:
        numbers = parse_turn_ranges(args.turns)
    except UsageError as error:
        raise UsageError(error.message, where="--turns", hint=error.hint) from error
    turns = [turn for turn in conversation.turns if turn.number in numbers]
    if not turns:
        total = len(conversation.turns)
        raise NothingFound(f"{ref} has no such turn", hint=f"it has turns 1 to {total}")
    return turns
