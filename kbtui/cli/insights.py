"""The command `insights`: what was searched, found, cited and missing."""

from __future__ import annotations

from kbtui.cli.output import WaitingLine, confirm, print_json_result, print_result, print_to_stderr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.userdata import UserData
    from kbtui.userdata.insights import EntryCitationCount, InsightsReport
    from kbtui.userdata.query_log import LoggedQuery


def declare_insights_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `kbtui insights`."""
    add = parser.add_argument
    add(
        "action",
        choices=["show", "erase"],
        nargs="?",
        default="show",
        help="show the insights, or erase the query log",
    )
    add("--days", type=int, default=30, metavar="N", help="days to look back, 1 to 3660 (30)")
    add("--limit", type=int, default=10, metavar="N", help="rows per list, 1 to 1000 (10)")
    add(
        "--stale-days",
        type=int,
        default=180,
        metavar="N",
        help="days without a change that make an entry stale (180)",
    )
    add("--hidden", action="store_true", help="include hidden subjects")
    add("--yes", action="store_true", help="do not ask for confirmation")
    add("--json", action="store_true", help="print one JSON document")


def run_insights_command(args: Namespace) -> int:
    """Show what was searched, found, cited and missing: top queries, gaps, citations, activity by day.

    `kbtui insights erase` asks for confirmation and deletes all logged searches.
    """
    from kbtui.errors import UsageError
    from kbtui.library import open_workspace
    from kbtui.userdata import UserData
    from kbtui.userdata.insights import collect_insights

    for option, number, least, most in (
        ("--days", args.days, 1, 3660),
        ("--limit", args.limit, 1, 1000),
        ("--stale-days", args.stale_days, 0, 36600),
    ):
        if not least <= number <= most:
            raise UsageError(f"must be from {least} to {most}, not {number}", where=option)
    library = open_workspace(args.workspace)
    userdata = UserData(library.workspace)
    if args.action == "erase":
        return _erase_query_log(userdata, args)
    with WaitingLine("bringing the index up to date"):
        library.update_index()
    with WaitingLine("counting"):
        found = collect_insights(
            library.workspace,
            userdata,
            library.open_index_reader(),
            days=args.days,
            limit=args.limit,
            stale_days=args.stale_days,
            hidden=args.hidden,
        )
    if library.index_notices_phrase:
        print_to_stderr(library.index_notices_phrase)
    library.close()
    if args.json:
        print_json_result({**found.as_json(), "logging": library.settings.query_log})
    else:
        print_result(format_insights(found))
        if not library.settings.query_log:
            print_to_stderr("searches are not logged (query_log = false)")
    return 0


def _erase_query_log(userdata: UserData, args: Namespace) -> int:
    if not args.yes and not confirm("erase every logged search of this workspace?"):
        print_to_stderr("nothing was erased")
        return 1
    count = userdata.query_log.erase_all_searches()
    if args.json:
        print_json_result({"erased": count})
    else:
        print_result(f"erased {_format_count(count, 'search')}\n")
    return 0


def _format_count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def format_insights(found: InsightsReport) -> str:
    """Format insights as text, with one block for each list."""
    from kbtui.userdata.insights import draw_day_chart

    blocks = [
        [
            f"Last {_format_count(found.days, 'day')}: {_format_count(found.searches.total, 'search')}, "
            f"{_format_count(found.citations, 'citation')}"
        ],
        ["Top queries", *map(_format_logged_query, found.searches.top)],
        ["Gaps: queries without a good match", *map(_format_query_gap, found.searches.gaps)],
        ["Most cited", *map(_format_cited_entry, found.most_cited)],
        [
            f"Never cited ({found.never_cited_total})",
            *map(_format_uncited_entry, found.never_cited),
        ],
        [
            f"Cited, unchanged for {_format_count(found.stale_days, 'day')}",
            *map(_format_cited_entry, found.stale),
        ],
        ["By day", *(f"  {line}" for line in draw_day_chart(found))],
    ]
    texts = ["\n".join([*block, "  none"] if len(block) == 1 else block) for block in blocks[1:]]
    return "\n\n".join([*blocks[0], *texts]) + "\n"


def _format_logged_query(asked: LoggedQuery) -> str:
    from kbtui.text import cut_to_width, one_line

    return f"{asked.times:>5}  {cut_to_width(one_line(asked.query), 60)}  ({asked.result_phrase})"


def _format_query_gap(asked: LoggedQuery) -> str:
    import shlex

    from kbtui.text import cut_to_width, one_line

    query = cut_to_width(one_line(asked.query), 60)
    return f"{asked.times:>5}  {query}\n       kbtui entry new --title {shlex.quote(query)}"


def _format_cited_entry(use: EntryCitationCount) -> str:
    from kbtui.text import cut_to_width, one_line

    return f"{use.cites:>5}  {one_line(use.ref)}  {cut_to_width(one_line(use.title), 60)}"


def _format_uncited_entry(use: EntryCitationCount) -> str:
    from kbtui.dates import format_unix_time
    from kbtui.text import cut_to_width, one_line

    changed = (format_unix_time(use.changed) or "")[:10]
    return (
        f"       {one_line(use.ref)}  {cut_to_width(one_line(use.title), 60)}  (changed {changed})"
    )
