"""The insights screen: top queries, queries without a good match, cited and uncited entries, a daily chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kbtui.dates import format_iso_day
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import find_key_label, make_scope_bindings
from kbtui.tui.entries.subject_file_editor import SubjectFileEditor
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.styled_text import MatchHighlight, StyledLine
from kbtui.tui.reader.document import Document, format_count
from kbtui.tui.reader.document_blocks import HeadingBlock, ParagraphBlock
from kbtui.tui.secondary_screen import SecondaryScreen
from kbtui.userdata import UserData
from kbtui.userdata.insights import draw_day_chart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.binding import BindingType

    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.document_blocks import DocumentBlock
    from kbtui.userdata.insights import EntryCitationCount, InsightsReport
    from kbtui.userdata.query_log import LoggedQuery


PERIODS = (30, 90, 7)
"""The lengths of the periods in days, in the order in which the `days` command cycles through them."""
LIST_LIMIT = 15
"""The maximum number of rows in each list."""
ORIGIN_LABELS = {
    "dashboard": "from the TUI", "cli": "from the command line", "mcp": "from assistants",
    "sdk": "from programs",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class QueryGapBlock(HeadingBlock):
    """A gap: a query without a good match; opening it creates an entry with the query as its title."""

    query: str = ""


@dataclass(slots=True, eq=False)
class DailyActivityChartBlock(ParagraphBlock):
    """A chart of the searches and citations of each day, as wide as the page."""

    insights: InsightsReport | None = None

    def layout(self, width: int, found: MatchHighlight | None, opened: bool) -> list[StyledLine]:
        """Lay out one line for each day."""
        if self.insights is None:
            return []
        # The two bars of a line share the width that the date and the numbers leave.
        bar_width = max(4, min(36, (width - 28) // 2))
        return [StyledLine([(line, "")]) for line in draw_day_chart(self.insights, bar_width)]

    def estimate_height(self, width: int) -> int:
        """Return the number of lines: one for each day, and one for the heading."""
        return self.above + 1 + (self.insights.days if self.insights else 0)


def build_insights_document(found: InsightsReport, create_key: str = "Enter") -> Document:
    """Return the page: a section for each list, then the chart.

    `create_key` is the label of the key that creates an entry for a query.
    """
    searches, stale_days = found.searches, format_count(found.stale_days, "day")
    create_hint = f"{create_key} creates the entry" if create_key else ""
    days = format_count(found.days, "day")
    blocks: list[DocumentBlock] = [
        *_make_list_section("top", "Top queries", map(_make_query_line, searches.top), len(searches.top)),
        *_make_list_section(
            "gap", "Gaps: queries without a good match", map(_make_gap_line, searches.gaps), len(searches.gaps), create_hint
        ),
        *_make_list_section("most", "Most cited", map(_make_cited_entry_line, found.most_cited), len(found.most_cited)),
        *_make_list_section("never", "Never cited", map(_make_uncited_entry_line, found.never_cited), found.never_cited_total),
        *_make_list_section(
            "stale", f"Cited, unchanged for {stale_days}", map(_make_cited_entry_line, found.stale), len(found.stale)
        ),
        HeadingBlock("chart", [("By day", "h2")], [(f"last {days}", "dim")], above=1),
        DailyActivityChartBlock("days", [], insights=found),
    ]  # fmt: skip
    return Document("insights", f"The last {days}", blocks)


def _make_list_section(
    name: str, heading: str, lines: Iterable[tuple[str, DocumentBlock]], count: int, hint: str = ""
) -> list[DocumentBlock]:
    """Return the blocks of a list: a heading with a count or a hint at its right, then the lines."""
    right: Spans = [(hint or f"{count:,}", "key" if hint else "dim")] if count else []
    above = int(name != "top")
    blocks: list[DocumentBlock] = [
        HeadingBlock(f"head:{name}", [(heading, "h2")], right, above=above)
    ]
    for key, block in lines:
        block.key = f"{name}:{key}"
        blocks.append(block)
    if len(blocks) == 1:
        blocks.append(ParagraphBlock(f"none:{name}", [("  none", "dim")]))
    elif name == "never" and count > len(blocks) - 1:
        blocks.append(
            ParagraphBlock("never-more", [(f"  and {count - len(blocks) + 1:,} more", "dim")])
        )
    return blocks


def _format_count_cell(number: int) -> Spans:
    return [(f"{number:>5,}  ", "number")]


def _make_query_line(query: LoggedQuery) -> tuple[str, DocumentBlock]:
    is_found = query.results and not query.is_meaning_only
    right: Spans = [(query.result_phrase, "dim" if is_found else "warning")]
    left: Spans = [*_format_count_cell(query.times), (one_line(query.query), "")]
    return query.query, HeadingBlock("", left, right)


def _make_gap_line(query: LoggedQuery) -> tuple[str, DocumentBlock]:
    left: Spans = [*_format_count_cell(query.times), (one_line(query.query), "")]
    return query.query, QueryGapBlock("", left, [("create an entry", "link")], query=query.query)


def _make_cited_entry_line(use: EntryCitationCount) -> tuple[str, DocumentBlock]:
    return _make_entry_usage_line(use, _format_count_cell(use.cites))


def _make_uncited_entry_line(use: EntryCitationCount) -> tuple[str, DocumentBlock]:
    return _make_entry_usage_line(use, [("       ", "")])


def _make_entry_usage_line(use: EntryCitationCount, count: Spans) -> tuple[str, DocumentBlock]:
    left: Spans = [*count, (one_line(use.title), ""), (f"  {one_line(use.ref)}", "dim")]
    right: Spans = [(f"changed {format_iso_day(use.changed)}", "dim")]
    return use.ref, HeadingBlock("", left, right, link=use.ref)


class InsightsScreen(SecondaryScreen):
    """The insights of this workspace. Its result is the reference to open, or None."""

    HEADING = "Insights"
    SCOPE = "insights"
    NOTES = (
        "A query is a gap if, the last time it ran without filters, it found nothing or "
        "only texts that seem to be about something else.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [*make_scope_bindings("insights", "moving")]

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library)
        self.insights: InsightsReport | None = None
        self.writer = SubjectFileEditor(self, library, self.show_message, self._on_entry_written)
        self._clock = clock
        self._days = PERIODS[0]
        self._hidden = False
        self._erase_worker = LatestOnlyWorker(self)

    def on_mount(self) -> None:
        """Show that the insights are being read."""
        self.reader.focus()
        self.show_totals([("reading …", "dim")])

    @property
    def is_loaded(self) -> bool:
        """Whether the insights have been loaded."""
        return self.insights is not None

    # reading

    def action_reload(self) -> None:
        """Read everything again."""
        self.worker.submit(self._read_insights, self._show_insights, self.show_error)

    def _read_insights(self) -> tuple[InsightsReport, Document]:
        """Collect the insights and build their page; called in a thread."""
        from kbtui.userdata.insights import collect_insights

        library = self.library
        found = collect_insights(
            library.workspace,
            UserData(library.workspace),
            library.open_index_reader(),
            days=self._days,
            limit=LIST_LIMIT,
            hidden=self._hidden,
            now=self._clock().timestamp(),
        )
        return found, build_insights_document(
            found, find_key_label("insights.open", self.configured_keys)
        )

    def _show_insights(self, made: tuple[InsightsReport, Document]) -> None:
        self.insights, document = made
        self.show_document(document)
        searches, citations = (
            self.insights.searches,
            format_count(self.insights.citations, "citation"),
        )
        left = [(f"{_format_search_count(searches.total)}, {citations}", "strong")]
        left.append((f" in {format_count(self.insights.days, 'day')}", "dim"))
        origins = [f"{n:,} {ORIGIN_LABELS.get(name, name)}" for name, n in searches.by_origin.items()]  # fmt: skip
        right = [(" · ".join(origins), "dim")]
        if not self.library.settings.query_log:
            right = [("searches are not logged (query_log = false)", "warning")]
        self.show_totals(left, right)

    def action_days(self) -> None:
        """Show the next period."""
        self._days = PERIODS[(PERIODS.index(self._days) + 1) % len(PERIODS)]
        self.action_reload()

    def action_hidden(self) -> None:
        """Include or leave out hidden subjects."""
        self._hidden = not self._hidden
        self.show_message(f"hidden subjects are {'' if self._hidden else 'not '}included")
        self.action_reload()

    # the current line

    def action_open(self) -> None:
        """Open the entry on the current line; on a query without a good match, create an entry."""
        block = self.cursor_block
        if isinstance(block, QueryGapBlock):
            self.writer.create_entry(" ".join(block.query.split()))
        elif block and (link := block.link):
            # The link is the reference of an existing entry, so a colon in it cannot start a line number.
            self.dismiss(parse_ref(link, lambda topic, slug: f"{topic}/{slug}" == link))
        elif block:
            self.show_message("This line has nothing to open.", "dim")

    def _on_entry_written(self, ref: str) -> None:
        self.action_reload()

    def action_next(self, step: int) -> None:
        """Go to the next section, or to the previous one if `step` is negative."""
        self.go_to_block(
            step, lambda block: block.key.startswith("head:") or block.key == "chart", lead=0
        )

    # erasing

    def action_erase(self) -> None:
        """Ask, then delete all logged searches."""

        def erase_if_confirmed(answer: str | None) -> None:
            if answer == "y":
                erase = UserData(self.library.workspace).query_log.erase_all_searches
                self._erase_worker.submit(erase, self._show_erased_count, self.show_error)

        question = "Delete all logged searches of this workspace? Citations stay, because they are stored in the conversations."
        self.ask_question(question, {"y": "delete"}, erase_if_confirmed)

    def _show_erased_count(self, count: int) -> None:
        self.show_message(f"deleted {_format_search_count(count)}")
        self.action_reload()


def _format_search_count(number: int) -> str:
    return "1 search" if number == 1 else f"{number:,} searches"
