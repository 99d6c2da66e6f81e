"""The command `mark`: sets, lists, removes, exports and imports marks on turns and passages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kbtui.cli.cli_output import (
    print_json_result,
    print_result,
    print_text_or_json,
    print_to_stderr,
    write_output_file,
)
from kbtui.errors import KbtuiError, UsageError
from kbtui.terminal_text import cut_to_width, format_counted_noun, sanitize_to_one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator, Mapping

    from kbtui.conversations.turn_decision_marks import ConversationMarks, PlacedMark
    from kbtui.library import Library
    from kbtui.userdata.turn_mark_lookup import MarksOfTurns


def declare_mark_command_arguments(parser: ArgumentParser) -> None:
    from kbtui.search.filter_definitions import MARK_STATES

    commands = parser.add_subparsers(
        dest="action", required=True, metavar="add|ls|rm|export|import"
    )
    add = commands.add_parser("add", help="mark a turn, a tool call or a passage")
    add.add_argument("ref", metavar="REF", help="a turn or call: jp-c17457886043:3 or …:3.2")
    text = "decided, rejected or superseded"
    add.add_argument("state", choices=MARK_STATES, help=text)
    add.add_argument("--note", metavar="TEXT", default="", help="your note on the turn or passage")
    text = "a reference to the text that applies instead; required with superseded"
    add.add_argument("--by", metavar="REF", help=text)
    text = "mark only this passage of the turn; white space may differ"
    add.add_argument("--passage", metavar="TEXT", help=text)
    ls = commands.add_parser("ls", aliases=["list"], help="list the marks, newest first")
    text = "only marks on this conversation, turn or call"
    ls.add_argument("ref", metavar="REF", nargs="?", help=text)
    ls.add_argument("--state", choices=MARK_STATES, help="only this state")
    text = "only marks whose text can no longer be found"
    ls.add_argument("--unmatched", action="store_true", help=text)
    rm = commands.add_parser("rm", help="remove marks")
    text = "the id of the mark to remove, or a turn or call to unmark"
    rm.add_argument("names", metavar="ID|REF", nargs="+", help=text)
    export = commands.add_parser("export", help="write all marks as JSON")
    text = "write to FILE (default: standard output)"
    export.add_argument("-o", "--output", metavar="FILE", help=text)
    imported = commands.add_parser(
        "import", help="import marks from a file that `kbtui mark export` wrote"
    )
    imported.add_argument("file", metavar="FILE", help="the file to read; - reads standard input")
    for command, run in (
        (add, _add_turn_mark),
        (ls, _print_turn_marks),
        (rm, _remove_turn_marks),
        (export, _export_users_marks_on_turns),
        (imported, _import_users_marks_on_turns),
    ):
        command.set_defaults(run_action=run)
    for command in (add, ls):
        command.add_argument("--json", action="store_true", help="print one JSON document")


def run_mark_command(args: Namespace) -> int:
    """Mark turns and passages as decided, rejected or superseded.

    kbtui mark add jp-c17457886043:3 decided --note "RRF with k = 15"
    kbtui mark add jp-c17457886043:5 superseded --by jp-c17502219907:2
    kbtui mark add claude-258c7280:2 rejected --passage "use a global lock"
    kbtui mark ls --unmatched                list marks whose text was not found
    kbtui mark rm jp-c17457886043:3          remove the marks on a turn
    """
    from kbtui.library import open_workspace

    with open_workspace(args.workspace) as library:
        code: int = args.run_action(library, args)
        return code


def _add_turn_mark(library: Library, args: Namespace) -> int:
    if args.by is not None and args.state != "superseded":
        raise UsageError("only `superseded` takes a reference", where="--by")
    if args.by is None and args.state == "superseded":
        hint = "add --by REF, such as --by jp-c17457886043:3 or --by topic/slug; if nothing replaces the marked text, use `rejected`"
        raise UsageError(
            "`superseded` needs a reference to the text that applies instead",
            where="--by",
            hint=hint,
        )
    if args.passage is not None and not args.passage.strip():
        raise UsageError("the passage is empty", where="--passage")
    mark = library.mark(
        args.ref, args.state, note=args.note, superseded_by=args.by, passage=args.passage
    )
    (placed,) = library.find_marks_by_id_or_reference(mark.id)
    short_ids = {} if args.json else _map_conversation_ids_to_short_ids(library)
    print_text_or_json(f"{_format_turn_mark(placed, short_ids)}\n", placed.as_json(), args.json)
    return 0


def _print_turn_marks(library: Library, args: Namespace) -> int:
    marks = [
        one
        for one in library.marks(args.ref)
        if args.state in (None, one.mark.state) and not (args.unmatched and one.place)
    ]
    shape = {"total": len(marks), "marks": [one.as_json() for one in marks]}
    short_ids = _map_conversation_ids_to_short_ids(library) if marks and not args.json else {}
    text = "".join(f"{_format_turn_mark(one, short_ids)}\n" for one in marks)
    print_text_or_json(text, shape, args.json)
    if not marks and not args.json:
        print_to_stderr("no marks")
    return 0 if marks else 1


def _map_conversation_ids_to_short_ids(library: Library) -> dict[str, str]:
    from kbtui.conversations.conversation_repository import list_conversation_change_signatures
    from kbtui.references import shorten_conversation_ids

    return shorten_conversation_ids(list_conversation_change_signatures(library.workspace))


def _format_turn_mark(placed: PlacedMark, short_ids: Mapping[str, str]) -> str:
    """Format a mark on one line, with its id at the end.

    If the marked text is not found, more lines say why and quote the text. `short_ids` maps the ids
    of conversations to shorter ids.
    """
    mark = placed.mark
    if mark.superseded_by:
        id_, colon, rest = mark.superseded_by.partition(":")
        mark = mark._replace(superseded_by=f"{short_ids.get(id_, id_)}{colon}{rest}")
        placed = placed._replace(mark=mark)
    id_, colon, rest = placed.ref.partition(":")
    ref = f"{short_ids.get(id_, id_)}{colon}{rest}"
    title = sanitize_to_one_line(mark.title or "Untitled")
    lines = [f"{ref}  {cut_mark_label(placed.label)}  ({title}; {mark.id})"]
    if placed.problem == "conversation":
        lines.append("    the conversation no longer exists")
    elif placed.problem == "unreadable":
        lines.append("    the conversation or a part of it cannot be read")
    elif placed.problem == "text":
        lines.append("    no turn has the marked text any more")
    if placed.problem and mark.text and mark.passage is None:
        lines.append(
            f"    the marked text was: {cut_to_width(sanitize_to_one_line(mark.text), 200)}"
        )
    return "\n".join(lines)


def format_turn_mark_lines(labels: Iterable[str], indent: str = "    ") -> str:
    """Format the `labels` of a turn's marks, each on a line that begins with `indent`."""
    return "".join(f"{indent}mark: {cut_mark_label(label)}\n" for label in labels)


def cut_mark_label(label: str) -> str:
    """Shorten a mark's label, so that a long one does not hide the other rows of a list."""
    from kbtui.conversations.turn_decision_marks import MAX_LISTED_CHARACTERS

    return cut_to_width(sanitize_to_one_line(label), MAX_LISTED_CHARACTERS)


def print_notice_of_unreadable_turn_marks(marks: MarksOfTurns | ConversationMarks) -> None:
    """Print a notice on stderr if the marks could not be read."""
    if marks.notice is not None:
        from kbtui.notices import format_notice

        print_to_stderr(sanitize_to_one_line(format_notice(marks.notice)))


def warn_if_marks_cannot_be_read(library: Library) -> None:
    """If the marks cannot be read, say on stderr that they are not shown, and why."""
    from kbtui.userdata.turn_mark_store import MarkStore

    try:
        MarkStore(library.workspace).list_marks()
    except KbtuiError as error:
        print_to_stderr(f"marks are not shown: {error}")


def _remove_turn_marks(library: Library, args: Namespace) -> int:
    found = {
        one.mark.id: one
        for name in args.names
        for one in library.find_marks_by_id_or_reference(name)
    }
    for mark_id in found:
        library.unmark(mark_id)
    print_to_stderr(f"removed {format_counted_noun(len(found), 'mark')}")
    return 0


def _export_users_marks_on_turns(library: Library, args: Namespace) -> int:
    shape = {"kbtui_marks": 1, "marks": [one.as_json() for one in library.marks()]}
    if args.output is None:
        print_json_result(shape)
    else:
        text = json.dumps(shape, ensure_ascii=False, indent=2) + "\n"
        write_output_file(library.workspace, args.output, text)
    return 0


def _import_users_marks_on_turns(library: Library, args: Namespace) -> int:
    from kbtui.conversations.turn_decision_marks import parse_exported_mark
    from kbtui.userdata.turn_mark_store import MarkStore

    try:
        data = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=args.file) from error
    try:
        shape = json.loads(data)
        if not isinstance(shape, dict) or not isinstance(shape.get("marks"), list):
            raise ValueError("it has no list of marks")
        marks = [parse_exported_mark(one) for one in shape["marks"]]
    except (ValueError, RecursionError) as error:
        hint = "pass a file that `kbtui mark export` wrote"
        raise UsageError(
            f"the file does not contain exported marks: {error}", where=args.file, hint=hint
        ) from error
    store = MarkStore(library.workspace)
    saved = store.import_marks(marks)
    ids = {mark.id for mark in marks}
    lost = sum(not one.place for one in store.list_placed_marks() if one.mark.id in ids)
    print_result("".join(_format_mark_import_result(len(marks), saved, lost)))
    return 0


def _format_mark_import_result(total: int, saved: int, lost: int) -> Iterator[str]:
    yield f"{format_counted_noun(total, 'mark')}, {saved} new or newer than here\n"
    if lost:
        yield f"{format_counted_noun(lost, 'mark has', 'marks have')} no matching text here; "
        yield "`kbtui mark ls --unmatched` lists them\n"
