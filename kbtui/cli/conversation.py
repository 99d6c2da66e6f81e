"""The commands `conversation ls`, `grep`, `read` and `export`."""

from __future__ import annotations

import sys

from kbtui.cli.output import columns, emit, emit_json, is_plain, note, save, working
from kbtui.errors import KbtuiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable

    from kbtui.assistant.conversation_tools import ConversationPage, GrepAnswer, ReadAnswer
    from kbtui.cli.conversation_format import ConversationWriter
    from kbtui.library import Library


def configure_conversation(parser: ArgumentParser) -> None:
    """The four commands and their arguments."""
    from kbtui.conversations.event_kinds import group_included_kinds

    commands = parser.add_subparsers(dest="action", required=True, metavar="ls|grep|read|export")
    ls = commands.add_parser("ls", aliases=["list"], help="list conversations, newest first")
    ls.add_argument("--limit", type=int, default=20, metavar="N", help="how many (20)")
    ls.add_argument("--offset", type=int, default=0, metavar="N", help="skip the first N (0)")
    ls.add_argument("--sort", choices=["created", "activity", "updated"], default="activity")
    ls.add_argument("--ascending", action="store_true", help="oldest first")
    ls.add_argument("--title", metavar="TEXT", help="only those with TEXT in their title")
    grep = commands.add_parser("grep", aliases=["g"], help="search them line by line")
    grep.add_argument("pattern", nargs="+", metavar="PATTERN", help="literal text within a line")
    grep.add_argument("--case-sensitive", action="store_true", help="capital letters count")
    _many(grep, ["-i", "--id"], "ids", "ID", "only this conversation")
    _many(grep, ["-s", "--scope"], "scopes", "SCOPE", "chat, tool, title, user, assistant, …")
    grep.add_argument(
        "-C", "--context", type=int, metavar="N", help="lines around (1 on a terminal, else 0)"
    )
    grep.add_argument("--limit", type=int, default=50, metavar="N", help="how many matches (50)")
    read = commands.add_parser("read", aliases=["print"], help="read one")
    read.add_argument("--max-chars", type=int, metavar="N", help="refuse a larger answer")
    export = commands.add_parser("export", help="write one as Markdown, with its sources")
    export.add_argument("-o", "--output", metavar="FILE", help="where to (default: stdout)")
    for command in (ls, grep):
        command.add_argument("--archived", action="store_true", help="archived ones, not live ones")
    for command in (read, export):
        command.add_argument("id", metavar="ID", help="jp-c17457886043, its digits, or jp-c…:TURN")
        command.add_argument("--turn", type=int, metavar="N", help="this turn alone")
        command.add_argument("--last", type=int, metavar="N", help="the last N turns")
        words = ", ".join(group_included_kinds())
        _many(command, ["--include"], "include", "KIND", words)
    for command in (ls, grep, read):
        command.add_argument("--format", choices=["text", "xml", "json"], default="text")
        command.add_argument(
            "--json", dest="format", action="store_const", const="json", help="as --format json"
        )


def _many(parser: ArgumentParser, names: list[str], dest: str, metavar: str, text: str) -> None:
    parser.add_argument(
        *names,
        dest=dest,
        action="append",
        metavar=metavar,
        help=f"{text} (repeat, or separate by commas)",
    )


def run_conversation(args: Namespace) -> int:
    """List, search, read and export conversations.

    kbtui conversation ls --title retry      those with "retry" in their title
    kbtui conversation grep retry policy     lines that contain "retry policy"
    kbtui conversation read jp-c17457886043  one conversation, or one turn of it (…:3)
    kbtui conversation export ID -o FILE     as Markdown, with what each turn used
    """
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    try:
        return _ACTIONS[args.action](library, args)
    except KbtuiError as error:
        from kbtui.cli.conversation_format import for_people

        shown = for_people(error)
        raise shown from (None if shown is error else error)
    finally:
        library.close()


def _ls(library: Library, args: Namespace) -> int:
    from kbtui.assistant.conversation_tools import list_answer
    from kbtui.conversations.repository import find_strays

    with working("listing conversations"):
        answer = list_answer(
            library.workspace,
            limit=args.limit,
            offset=args.offset,
            sort=args.sort,
            descending=not args.ascending,
            archived=args.archived,
            title_contains=args.title,
        )
    for stray in find_strays(library.workspace):
        note(f"{stray.path}: left out: {stray.reason}")
    _give("list", answer, args.format, lambda writer: writer.listing(answer))
    if args.format == "text" and not (answer.conversations or answer.notices):
        note("no conversation matches")
    return 0 if answer.conversations else 1


def _grep(library: Library, args: Namespace) -> int:
    from kbtui.assistant.conversation_tools import grep_answer
    from kbtui.conversations.grep import LinePattern

    pattern = " ".join(args.pattern)
    context = args.context
    if context is None:
        context = 1 if args.format == "text" and sys.stdout.isatty() else 0
    with working("searching conversations"):
        answer = grep_answer(
            library.workspace,
            pattern=pattern,
            ignore_case=not args.case_sensitive,
            ids=_words(args.ids),
            scopes=_words(args.scopes),
            context=context,
            limit=args.limit,
            archived=args.archived,
        )
    spans = LinePattern(pattern, not args.case_sensitive).find_spans
    _give(
        "grep",
        answer,
        args.format,
        lambda writer: writer.hits(answer, spans, separate=context > 0),
    )
    is_empty = not (answer.count or answer.notices)
    if args.format == "text" and is_empty and sys.stdout.isatty():
        note("no line contains it" if args.archived else "no line contains it; see --archived")
    return 0 if answer.count else 1


def _read(library: Library, args: Namespace) -> int:
    from kbtui.assistant.conversation_tools import read_answer

    with working("reading"):
        answer = read_answer(
            library.workspace,
            id=args.id,
            turn=args.turn,
            last=args.last,
            include=_words(args.include),
            max_chars=args.max_chars,
        )
    _give("read", answer, args.format, lambda writer: writer.reading(answer))
    return 0 if answer.turns else 1


def _export(library: Library, args: Namespace) -> int:
    from kbtui.assistant.conversation_tools import choose_turns, included_kinds, named_turn
    from kbtui.citations.export import format_conversation_markdown
    from kbtui.conversations.repository import find_conversation, load_conversation
    from kbtui.refs import parse_conversation_ref

    ref = parse_conversation_ref(args.id, library.workspace.id)
    kinds = included_kinds(_words(args.include))
    with working("reading"):
        info = find_conversation(library.workspace, ref.conversation or "")
        conversation = load_conversation(info)
        turns = choose_turns(conversation, named_turn(ref, args.turn, args.last), args.last)
        text = format_conversation_markdown(conversation, library.cited(conversation), turns, kinds)
    if args.output is None:
        emit(text)
    else:
        save(library.workspace, args.output, text)
    for problem in conversation.problems:
        note(f"{conversation.info.ref}: {problem}")
    return 0 if turns else 1


_ACTIONS: dict[str, Callable[[Library, Namespace], int]] = {
    "ls": _ls,
    "list": _ls,
    "grep": _grep,
    "g": _grep,
    "read": _read,
    "print": _read,
    "export": _export,
}


def _words(values: list[str] | None) -> list[str] | None:
    """Repeated arguments, each of which may be a list with commas."""
    if values is None:
        return None
    # Where nothing is named (an empty variable of a script), the empty word is refused later:
    # left out, it would mean all.
    return [word for value in values for word in value.split(",") if word] or [""]


def _give(
    kind: str,
    answer: ConversationPage | GrepAnswer | ReadAnswer,
    form: str,
    text: Callable[[ConversationWriter], Iterable[str]],
) -> None:
    """Print an answer in the form asked for, through a pager where that helps.

    What there is to say beside it is part of the two forms for programs.
    """
    if form == "json":
        emit_json(answer.as_json())
        return
    if form == "xml":
        from kbtui.assistant.xml import to_xml

        emit(to_xml(kind, answer.as_json()) + "\n")
        return
    from datetime import UTC, datetime

    from kbtui.cli.conversation_format import ConversationWriter, word_notice

    terminal = sys.stdout.isatty()
    writer = ConversationWriter(
        terminal=terminal,
        colours=not is_plain(),
        width=columns(),
        now=datetime.now(UTC),
    )
    with working("laying out"):
        shown = "".join(f"{line}\n" for line in text(writer))
    if terminal and shown:
        from kbtui.cli.output import page

        page(shown)
    else:
        emit(shown)
    if said := "; ".join(map(word_notice, answer.notices)):
        note(said)
