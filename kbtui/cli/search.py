"""The command `search`."""

from __future__ import annotations

import sys

from kbtui.cli.filter_options import add_filter_options, question_fields
from kbtui.cli.output import is_plain, note
from kbtui.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from kbtui.cli.parser import Parser
    from kbtui.search.models import Answer, Question


def configure_search(parser: Parser) -> None:
    """The arguments of `kbtui search` (decisions D)."""
    parser.hint = "a word that begins with a dash goes after `--`; `kbtui search --help` explains"
    add = parser.add_argument
    add("query", nargs="*", metavar="QUERY", help="what to look for")
    add("--mode", choices=["hybrid", "lexical", "semantic"], default="hybrid")
    add_filter_options(parser, "search")
    add("--archived", action="store_true", help="archived conversations too")
    add("--hidden", action="store_true", help="hidden subjects too")
    add("--limit", type=int, default=20, metavar="N", help="how many hits, 1 to 100 (20)")
    add("--wait", type=float, default=10.0, metavar="S", help="seconds to wait for the model (10)")
    add("--explain", action="store_true", help="say of each hit why it stands where it stands")
    add("--why", metavar="REF", help="say what kept a subject or a turn out")
    add("--like", metavar="REF", help="more like a subject or a turn, instead of a query")
    add("--json", action="store_true", help="one JSON document")


def run_search(args: Namespace) -> int:
    """Search subjects and conversations.

    Words find what has most of them; "a phrase" must be there; -word must not. topic:, in:, type:,
    title:, role:, tool:, arg:, after: and before: narrow: topic:guide after:2w.
    A query that begins with a dash goes after `--`.
    """
    from kbtui.library import open_workspace

    _check(args)
    library = open_workspace(args.workspace)
    if args.explain or args.why:
        from kbtui.cli.search_explain import explain

        return explain(library, _question(args), args)
    from kbtui.cli.output import working

    with working("searching"):
        if args.like:
            answer = library.related(library.resolve(args.like), _question(args), args.wait)
        else:
            answer = library.search(_question(args), wait=args.wait, origin="cli")
    library.close()
    refuse(answer)
    if args.json:
        from kbtui.search.format import as_document

        sys.stdout.write(as_document(answer, ascii_only=sys.stdout.isatty()))
    else:
        _print(answer, args.like or answer.query)
    return 0 if answer.hits else 1


def _check(args: Namespace) -> None:
    if not args.query and not args.like:
        raise UsageError("the following arguments are required: QUERY", hint="say what to look for")
    if args.like and (args.query or args.explain or args.why):
        raise UsageError("--like stands alone: it takes the place of a query", where="--like")
    if not 1 <= args.limit <= 100:
        raise UsageError(f"it must be 1 to 100, not {args.limit}", where="--limit")
    if not args.wait >= 0:
        raise UsageError(f"it must be 0 or more seconds, not {args.wait:g}", where="--wait")


def _question(args: Namespace) -> Question:
    from kbtui.search.models import Question

    return Question(
        query=" ".join(args.query),
        mode=args.mode,
        archived=args.archived,
        hidden=args.hidden,
        limit=args.limit,
        **question_fields(args),
    )


def _print(answer: Answer, asked: str) -> None:
    from kbtui.search.format import as_lines, remarks

    for remark in remarks(answer, asked):
        note(remark)
    sys.stdout.write(as_lines(answer, plain=is_plain()))


def refuse(answer: Answer) -> None:
    """Point at what is wrong with the query."""
    for mistake in answer.mistakes[:1]:
        where = None
        if mistake.start >= 0:
            where = (
                f"{answer.query[mistake.start : mistake.end]!r}, from character {mistake.start + 1}"
            )
        raise UsageError(mistake.message, where=where, hint=mistake.hint)
