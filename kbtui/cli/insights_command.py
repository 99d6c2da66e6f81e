"""The command `insights`: frequent queries, queries without a good match, citations, and activity."""

from __future__ import annotations

from kbtui.cli.cli_output import (
    StderrWaitIndicator,
    ask_for_confirmation,
    print_text_or_json,
    print_to_stderr,
    update_and_open_index,
)
from kbtui.cli.turn_mark_command import (
    format_turn_mark_lines,
    print_notice_of_unreadable_turn_marks,
)
from kbtui.dates import format_unix_time_as_iso
from kbtui.errors import UsageError
from kbtui.terminal_text import (
    cut_to_width,
    format_counted_noun,
    format_reference_of_outdated_subject,
    sanitize_to_one_line,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from kbtui.userdata.query_log import QueryWithSearchCount
    from kbtui.userdata.search_and_citation_insights import (
        EntryCitationCount,
        TitledTurnWithOutdatedCitations,
        TokenCountAndCost,
        UsageStatistics,
    )
    from kbtui.userdata.user_data_store import UserData


def declare_insights_command_arguments(parser: ArgumentParser) -> None:
    add, text = parser.add_argument, "show the insights, or erase the query log"
    add("action", choices=["show", "erase"], nargs="?", default="show", help=text)
    add("--days", type=int, default=30, metavar="N", help="days to look back (default: 30)")
    add("--limit", type=int, default=10, metavar="N", help="rows per list (default: 10)")
    text = "an entry that has not changed for this many days is stale (default: 180)"
    add("--stale-days", type=int, default=180, metavar="N", help=text)
    add("--hidden", action="store_true", help="include hidden subjects")
    add("--yes", action="store_true", help="do not ask for confirmation")
    add("--json", action="store_true", help="print one JSON document")


def run_insights_command(args: Namespace) -> int:
    """Show frequent queries, gaps (queries without a good match), citations, and activity by day.

    `kbtui insights erase` asks for confirmation and erases all logged searches.
    """
    from kbtui.conversations.conversation_statistics import PricesByModel
    from kbtui.library import open_workspace
    from kbtui.userdata.search_and_citation_insights import collect_usage_statistics
    from kbtui.userdata.user_data_store import UserData

    for option, number, minimum, maximum in (
        ("--days", args.days, 1, 3660),
        ("--limit", args.limit, 1, 1000),
        ("--stale-days", args.stale_days, 0, 36600),
    ):
        if not minimum <= number <= maximum:
            raise UsageError(f"must be from {minimum} to {maximum}, not {number}", where=option)
    library = open_workspace(args.workspace)
    userdata = UserData(library.workspace)
    if args.action == "erase":
        return _delete_logged_searches(userdata, args)
    reader = update_and_open_index(library)
    with StderrWaitIndicator("counting"):
        found = collect_usage_statistics(
            library.workspace,
            userdata,
            reader,
            prices=PricesByModel(library.settings),
            days=args.days,
            limit=args.limit,
            stale_days=args.stale_days,
            hidden=args.hidden,
        )
    print_notice_of_unreadable_turn_marks(found.marks)
    library.close()
    is_logging = library.settings.query_log
    facts = {**found.as_json(), "logging": is_logging}
    print_text_or_json(format_insights_report(found), facts, args.json)
    if not (is_logging or args.json):
        print_to_stderr("searches are not logged (setting query_log = false)")
    return 0


def _delete_logged_searches(userdata: UserData, args: Namespace) -> int:
    if not args.yes and not ask_for_confirmation("erase every logged search of this workspace?"):
        print_to_stderr("nothing was erased")
        return 1
    count = userdata.query_log.delete_all_logged_searches()
    text = f"erased {format_counted_noun(count, 'search', 'searches')}\n"
    print_text_or_json(text, {"erased": count}, args.json)
    return 0


def format_insights_report(found: UsageStatistics) -> str:
    """Return the report that `kbtui insights` prints as text."""
    from kbtui.userdata.search_and_citation_insights import draw_daily_searches_and_citations

    never = f"Never cited ({found.never_cited_total})"
    stale = f"Cited, but unchanged for {format_counted_noun(found.stale_days, 'day')}"
    before = found.tokens.day_before
    lists = {
        "Top queries": map(_format_query_with_search_count, found.searches.top),
        "Gaps: queries without a good match": map(_format_query_gap, found.searches.gaps),
        "Most cited": map(_format_cited_entry, found.most_cited),
        never: map(_format_uncited_entry, found.never_cited),
        stale: map(_format_cited_entry, found.stale),
        f"Turns based on knowledge that has since changed ({found.outdated_turns_total})": [
            _format_outdated_turn(turn, found.marks.get_mark_labels_of_turn(turn.ref))
            for turn in found.outdated_turns
        ],
        **{
            heading: map(_format_token_total_with_name_and_title, counts)
            for heading, counts in (
                ("Tokens by day", found.tokens.by_day),
                ("Tokens by agent", found.tokens.by_agent),
                ("Tokens by model", found.tokens.by_model),
                ("Tokens by project", found.tokens.by_project),
                ("Tokens by cited subject", found.tokens.subjects),
            )
            if counts
        },
        **(
            {"Tokens": [f"  no tokens in this period; the last were used on {before}"]}
            if before
            else {}
        ),
        "By day": [f"  {line}" for line in draw_daily_searches_and_citations(found)],
    }
    days = format_counted_noun(found.days, "day")
    searches = format_counted_noun(found.searches.total, "search", "searches")
    texts = [f"Last {days}: {searches}, {format_counted_noun(found.citations, 'citation')}"]
    texts += ["\n".join([heading, *(list(rows) or ["  none"])]) for heading, rows in lists.items()]
    return "\n\n".join(texts) + "\n"


def _format_query_with_search_count(asked: QueryWithSearchCount) -> str:
    return f"{asked.times:>5}  {cut_to_width(sanitize_to_one_line(asked.query), 60)}  ({asked.last_result_count_text})"


def _format_query_gap(asked: QueryWithSearchCount) -> str:
    import shlex

    query = cut_to_width(sanitize_to_one_line(asked.query), 60)
    return f"{asked.times:>5}  {query}\n       kbtui entry new --title {shlex.quote(query)}"


def _format_cited_entry(use: EntryCitationCount) -> str:
    return f"{use.cites:>5}  {sanitize_to_one_line(use.short_ref)}  {cut_to_width(sanitize_to_one_line(use.title), 60)}"


def _format_uncited_entry(use: EntryCitationCount) -> str:
    changed = (format_unix_time_as_iso(use.changed) or "")[:10]
    title = cut_to_width(sanitize_to_one_line(use.title), 60)
    return f"       {sanitize_to_one_line(use.ref)}  {title}  (changed {changed})"


def _format_outdated_turn(turn: TitledTurnWithOutdatedCitations, marks: Iterable[str]) -> str:
    day = (format_unix_time_as_iso(turn.time) or "no date")[:10]
    title = cut_to_width(sanitize_to_one_line(turn.title), 60)
    subjects = ", ".join(
        format_reference_of_outdated_subject(sanitize_to_one_line(ref), state)
        for ref, state in turn.subjects
    )
    mark_lines = format_turn_mark_lines(marks, " " * 9)
    return f"       {turn.short_ref}  {day}  {title}\n{mark_lines}         given {subjects}"


def _format_token_total_with_name_and_title(count: TokenCountAndCost) -> str:
    name = sanitize_to_one_line(count.name or "unknown")
    title = f"  {cut_to_width(sanitize_to_one_line(count.title), 60)}" if count.title else ""
    return f"{count.usage.total_tokens or 0:>15,}  {name}{title}  ({', '.join(count.list_token_count_phrases())})"
