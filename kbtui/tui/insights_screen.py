"""The insights screen: frequent queries, gaps, cited and uncited entries, tokens, and a daily chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.dates import Clock, format_unix_time_as_day
from kbtui.references import parse_ref
from kbtui.terminal_text import format_counted_noun, sanitize_to_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.dialogs import ConfirmDialog
from kbtui.tui.framework.styled_text import HighlightPattern, Span, Spans, StyledLine, StyledLines
from kbtui.tui.reader.reader_blocks import (
    LeftAndRightLineBlock,
    ParagraphReaderBlock,
    ReaderBlock,
    make_blocks_of_users_marks,
    make_heading_block_with_note,
)
from kbtui.tui.reader.reader_document import ReaderDocument
from kbtui.tui.secondary_screen import SecondaryScreen
from kbtui.tui.subject_file_actions import SubjectFileActions
from kbtui.tui.tui_command_table import find_key_label_of_command
from kbtui.userdata.search_and_citation_insights import (
    EntryCitationCount,
    PeriodTokenStatistics,
    TitledTurnWithOutdatedCitations,
    TokenCountAndCost,
    UsageStatistics,
    collect_usage_statistics,
    draw_daily_searches_and_citations,
)
from kbtui.userdata.user_data_store import UserData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.library import Library
    from kbtui.userdata.query_log import QueryWithSearchCount
    from kbtui.userdata.turn_mark_lookup import MarksOfTurns


PERIODS = (30, 90, 7)
"""The periods, in days. The screen starts with the first one; the command `days` switches to the next."""
LIST_LIMIT = 15
"""The maximum number of rows in each list on the screen."""
ORIGIN_LABELS = {
    "dashboard": "from the TUI",
    "cli": "from the command line",
    "mcp": "from assistants",
    "sdk": "from programs",
}
GAP_PREFIX = "gap:"
"""The key of a gap's block is this prefix followed by the query."""


@dataclass(slots=True, eq=False)
class DailySearchesAndCitationsChartBlock(ReaderBlock):
    """A chart that shows how many searches and citations there were on each day."""

    insights: UsageStatistics

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        # A line has a date and numbers (28 cells), and two bars that share the other cells.
        bar_width = max(4, min(36, (width - 28) // 2))
        lines = draw_daily_searches_and_citations(self.insights, bar_width)
        return [StyledLine([(line, "")]) for line in lines]

    def estimate_line_count(self, width: int) -> int:
        return self.above + 1 + self.insights.days


def build_insights_screen_document(found: UsageStatistics, create_key: str) -> ReaderDocument:
    """Return a page with a section for each list, followed by the chart.

    `create_key` is the label of the key that creates an entry for a gap, or "" if there is no key.
    """
    searches, days = found.searches, format_counted_noun(found.days, "day")
    create: Span = ("create an entry", "link")
    hint = f"{create_key} creates the entry" if create_key else ""
    stale_heading = f"Cited, but unchanged for {format_counted_noun(found.stale_days, 'day')}"
    top = [
        _make_query_with_count_block("top:", query, _format_result_count_of_last_search(query))
        for query in searches.top
    ]
    gaps = [_make_query_with_count_block(GAP_PREFIX, query, create) for query in searches.gaps]
    most = _make_citation_count_rows("most", found.most_cited)
    never = _make_citation_count_rows("never", found.never_cited)
    stale = _make_citation_count_rows("stale", found.stale)
    blocks = [
        *_make_insights_section("top", "Top queries", top),
        *_make_insights_section("gap", "Gaps: queries without a good match", gaps, hint=hint),
        *_make_insights_section("most", "Most cited", most),
        *_make_insights_section("never", "Never cited", never, found.never_cited_total),
        *_make_insights_section("stale", stale_heading, stale),
        *_make_insights_section(
            "outdated",
            "Turns based on knowledge that has since changed",
            [
                block
                for turn in found.outdated_turns
                for block in _make_rows_of_turn_with_outdated_citations(turn, found.marks)
            ],
            found.outdated_turns_total,
            left_out=found.outdated_turns_total - len(found.outdated_turns),
        ),
        *_make_token_sections(found.tokens),
        make_heading_block_with_note("head:chart", "By day", f"last {days}"),
        DailySearchesAndCitationsChartBlock("days", found),
    ]
    return ReaderDocument("insights", f"The last {days}", blocks)


def _make_insights_section(
    name: str,
    heading: str,
    rows: list[ReaderBlock],
    total: int | None = None,
    hint: str = "",
    left_out: int | None = None,
) -> list[ReaderBlock]:
    """Return a heading with the total or a hint on its right, followed by `rows`.

    `total` is the number of items in the section, by default the number of rows. `left_out` is the
    number of items without a row, by default `total` minus the number of rows.
    """
    total = len(rows) if total is None else total
    left_out = total - len(rows) if left_out is None else left_out
    right: Spans = [(hint, "key") if hint else (f"{total:,}", "dim")] if rows else []
    above = int(name != "top")
    blocks = [LeftAndRightLineBlock(f"head:{name}", [(heading, "h2")], right, above=above), *rows]
    if not rows:
        blocks.append(ParagraphReaderBlock(f"none:{name}", [("  none", "dim")]))
    elif left_out > 0:
        more = f"  and {left_out:,} more"
        blocks.append(ParagraphReaderBlock(f"{name}-more", [(more, "dim")]))
    return blocks


def _make_query_with_count_block(
    prefix: str, query: QueryWithSearchCount, right: Span
) -> ReaderBlock:
    left: Spans = [(f"{query.times:>5,}  ", "number"), (sanitize_to_one_line(query.query), "")]
    return LeftAndRightLineBlock(prefix + query.query, left, [right])


def _format_result_count_of_last_search(query: QueryWithSearchCount) -> Span:
    is_found = query.results and not query.is_meaning_only
    return query.last_result_count_text, "dim" if is_found else "warning"


def _make_citation_count_rows(section: str, uses: list[EntryCitationCount]) -> list[ReaderBlock]:
    blocks: list[ReaderBlock] = []
    for use in uses:
        count = (f"{use.cites:>5,}  ", "number") if use.cites else (" " * 7, "")
        left: Spans = [
            count,
            (sanitize_to_one_line(use.title), ""),
            (f"  {sanitize_to_one_line(use.short_ref)}", "dim"),
        ]
        right: Spans = [(f"changed {format_unix_time_as_day(use.changed)}", "dim")]
        blocks.append(LeftAndRightLineBlock(f"{section}:{use.ref}", left, right, link=use.ref))
    return blocks


def _make_rows_of_turn_with_outdated_citations(
    turn: TitledTurnWithOutdatedCitations, marks: MarksOfTurns
) -> Iterator[ReaderBlock]:
    """Yield the row of a turn, and a row for each mark on the turn."""
    left: Spans = [(" " * 7, ""), (sanitize_to_one_line(turn.title), "")]
    left.append((f"  {turn.short_ref}  ", "dim"))
    for number, (ref, state) in enumerate(turn.subjects):
        name = f"{', ' if number else ''}{sanitize_to_one_line(ref)}"
        left.append((name, "dim struck" if state == "gone" else "warning"))
    right: Spans = [(format_unix_time_as_day(turn.time), "dim")] if turn.time else []
    key = f"outdated:{turn.ref}"
    yield LeftAndRightLineBlock(key, left, right, link=turn.ref)
    yield from make_blocks_of_users_marks(marks.get_marks_of_turn(turn.ref), " " * 7, f"{key}:")


def _make_token_sections(tokens: PeriodTokenStatistics) -> list[ReaderBlock]:
    """Return a section for each non-empty list of token counts."""
    blocks: list[ReaderBlock] = []
    for name, heading, counts in (
        ("days", "Tokens by day", tokens.by_day),
        ("agents", "Tokens by agent", tokens.by_agent),
        ("models", "Tokens by model", tokens.by_model),
        ("projects", "Tokens by project", tokens.by_project),
        ("subjects", "Tokens by cited subject", tokens.subjects),
    ):
        if counts:
            rows = [_make_row_of_token_section(f"tokens-{name}", count) for count in counts]
            blocks += _make_insights_section(f"tokens-{name}", heading, rows)
    if tokens.day_before is not None:
        text = f"  no tokens in this period; the last were used on {tokens.day_before}"
        blocks.append(make_heading_block_with_note("head:tokens", "Tokens"))
        blocks.append(ParagraphReaderBlock("none:tokens", [(text, "dim")]))
    return blocks


def _make_row_of_token_section(section: str, count: TokenCountAndCost) -> ReaderBlock:
    left: Spans = [(f"{count.usage.total_tokens or 0:>15,}  ", "number")]
    left += [(sanitize_to_one_line(count.title or count.name or "unknown"), "")]
    left += [(f"  {sanitize_to_one_line(count.name or '')}", "dim")] if count.title else []
    right: Spans = [(", ".join(count.list_token_count_phrases()), "dim")]
    key = f"{section}:{count.name}:{count.usage.is_estimate}"
    link = count.name if count.title is not None else None
    return LeftAndRightLineBlock(key, left, right, link=link)


class InsightsScreen(SecondaryScreen):
    """The insights screen: statistics about searches, citations and tokens.

    When it closes, it returns the reference that the user wants to open, or None.
    """

    HEADING = "Insights"
    SCOPE = "insights"
    NOTES = (
        "A query is a gap if its last search without filters found nothing, or found "
        "only texts that seem to be about something else.",
    )

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library)
        self.insights: UsageStatistics | None = None
        self.subject_actions = SubjectFileActions(
            self, library, self.show_message, lambda ref: self.action_reload()
        )
        self._clock = clock
        self._days = PERIODS[0]
        self._hidden = False
        self._delete_worker = LatestOnlyWorker(self)

    def on_mount(self) -> None:
        self.reader.focus()
        self.show_totals_line(([("reading …", "dim")], []))

    @property
    def has_loaded_content(self) -> bool:
        return self.insights is not None

    def action_reload(self) -> None:
        self.run_in_thread(self._collect_insights_and_build_page, self._show_insights)

    def _collect_insights_and_build_page(self) -> tuple[UsageStatistics, ReaderDocument]:
        """Collect the statistics and build their page. Called in a background thread."""
        from kbtui.conversations.conversation_statistics import PricesByModel

        library = self.library
        found = collect_usage_statistics(
            library.workspace,
            UserData(library.workspace),
            library.open_index_reader(),
            prices=PricesByModel(library.settings),
            days=self._days,
            limit=LIST_LIMIT,
            hidden=self._hidden,
            now=self._clock().timestamp(),
        )
        create_key = find_key_label_of_command("insights.open", self.configured_keys)
        return found, build_insights_screen_document(found, create_key)

    def _show_insights(self, made: tuple[UsageStatistics, ReaderDocument]) -> None:
        self.insights, document = made
        self.show_document(document)
        searches, citations = self.insights.searches, self.insights.citations
        counts = f"{format_counted_noun(searches.total, 'search', 'searches')}, {format_counted_noun(citations, 'citation')}"
        period = f" in {format_counted_noun(self.insights.days, 'day')}"
        by_origin = searches.by_origin.items()
        origins = [f"{count:,} {ORIGIN_LABELS.get(name, name)}" for name, count in by_origin]
        right = (" · ".join(origins), "dim")
        if not self.library.settings.query_log:
            right = ("searches are not logged (setting query_log = false)", "warning")
        self.show_totals_line(([(counts, "strong"), (period, "dim")], [right]))

    def action_change_period(self) -> None:
        self._days = PERIODS[(PERIODS.index(self._days) + 1) % len(PERIODS)]
        self.action_reload()

    def action_toggle_hidden_subjects(self) -> None:
        self._hidden = not self._hidden
        self.show_message(f"hidden subjects are {'' if self._hidden else 'not '}included")
        self.action_reload()

    def action_open_or_create_entry(self) -> None:
        """Open the entry on the current line. If the line is a gap, create an entry for the query."""
        block = self.cursor_block
        if block is None:
            return
        if block.key.startswith(GAP_PREFIX):
            self.subject_actions.ask_for_and_create_subject(
                " ".join(block.key.removeprefix(GAP_PREFIX).split())
            )
        elif link := block.link:
            # The entry exists, so a colon in its reference does not start a line number.
            self.dismiss(parse_ref(link, lambda topic, slug: f"{topic}/{slug}" == link))
        else:
            self.show_message("There is nothing to open on this line.", "dim")

    def action_go_to_next_section(self, step: int) -> None:
        """Go to the next section, or to the previous one if `step` is negative."""
        self.go_to_next_wanted_block(step, lambda block: block.key.startswith("head:"), lead=0)

    def action_delete_logged_searches(self) -> None:
        def delete_searches_if_confirmed(answer: str | None) -> None:
            if answer is not None:
                delete = UserData(self.library.workspace).query_log.delete_all_logged_searches
                self.run_in_thread(delete, self._show_deleted_search_count, self._delete_worker)

        question = "Delete all logged searches of this workspace? Citations are kept, because they are stored in the conversations."
        self.app.push_screen(ConfirmDialog(question, {"y": "delete"}), delete_searches_if_confirmed)

    def _show_deleted_search_count(self, count: int) -> None:
        self.show_message(f"deleted {format_counted_noun(count, 'search', 'searches')}")
        self.action_reload()
