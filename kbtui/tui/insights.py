"""Insights: top queries, gaps to be written, what is cited and what never, by day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kbtui.dates import format_iso_day
from kbtui.refs import parse_ref
from kbtui.text import one_line
from kbtui.tui.commands import bindings, own_key
from kbtui.tui.entries.editor import EntryWriter
from kbtui.tui.feature_screen import FeatureScreen
from kbtui.tui.framework.styled_text import StyledLine, TextMatches
from kbtui.tui.framework.styled_widget import ALWAYS_AVAILABLE_ACTIONS
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.reader.blocks import HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document, format_count
from kbtui.userdata import UserData
from kbtui.userdata.insights import draw_day_chart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.binding import BindingType

    from kbtui.dates import Clock
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block
    from kbtui.userdata.insights import EntryUse, Insights
    from kbtui.userdata.query_log import LoggedQuery


@dataclass(slots=True, eq=False)
class GapBlock(HeadBlock):
    """A query that found nothing: its words are the title of an entry that is missing."""

    query: str = ""


@dataclass(slots=True, eq=False)
class ChartBlock(NoteBlock):
    """The searches and citations of each day, with bars as long as there is room."""

    insights: Insights | None = None

    def layout(self, width: int, found: TextMatches | None, opened: bool) -> list[StyledLine]:
        """A line a day."""
        if self.insights is None:
            return []
        return [
            StyledLine([(line, "")]) for line in draw_day_chart(self.insights, bar_cells(width))
        ]

    def estimate(self, width: int) -> int:
        """A line a day."""
        return self.above + 1 + (self.insights.days if self.insights else 0)


def bar_cells(width: int) -> int:
    """Cells of a bar where a line has `width`: two of them stand beside date and numbers."""
    return max(4, min(36, (width - 28) // 2))


def insights_document(found: Insights, writes: str = "Enter") -> Document:
    """A part for each list, then the chart; `writes` is the key that writes an entry."""
    days = format_count(found.days, "day")
    blocks: list[Block] = [
        *_part("top", "Asked most", map(_asked, found.searches.top), len(found.searches.top)),
        *_part(
            "gap", "Found nothing that fits", map(_gap, found.searches.gaps),
            len(found.searches.gaps), f"{writes} writes the entry" if writes else "",
        ),
        *_part("most", "Cited most", map(_used, found.most_cited), len(found.most_cited)),
        *_part("never", "Never cited", map(_unused, found.never_cited), found.never_cited_total),
        *_part(
            "stale", f"Cited, unchanged for {format_count(found.stale_days, 'day')}", map(_used, found.stale),
            len(found.stale),
        ),
        HeadBlock("chart", [("By day", "h2")], [(f"last {days}", "dim")], above=1),
        ChartBlock("days", [], insights=found),
    ]  # fmt: skip
    return Document("insights", f"The last {days}", blocks)


def _part(
    name: str, heading: str, lines: Iterable[tuple[str, Block]], count: int, right: str = ""
) -> list[Block]:
    shown: Spans = [(right or f"{count:,}", "key" if right and count else "dim")] if count else []
    blocks: list[Block] = [
        HeadBlock(f"head:{name}", [(heading, "h2")], shown, above=int(name != "top"))
    ]
    for key, block in lines:
        block.key = f"{name}:{key}"
        blocks.append(block)
    if len(blocks) == 1:
        blocks.append(NoteBlock(f"none:{name}", [("  nothing", "dim")]))
    elif name == "never" and count > len(blocks) - 1:
        blocks.append(NoteBlock("never-more", [(f"  and {count - len(blocks) + 1:,} more", "dim")]))
    return blocks


def _times(number: int) -> Spans:
    return [(f"{number:>5,}  ", "number")]


def _asked(asked: LoggedQuery) -> tuple[str, Block]:
    right: Spans = [(f"{asked.results:,} found", "dim" if asked.results else "warning")]
    return asked.query, HeadBlock("", [*_times(asked.times), (one_line(asked.query), "")], right)


def _gap(asked: LoggedQuery) -> tuple[str, Block]:
    left: Spans = [*_times(asked.times), (one_line(asked.query), "")]
    right: Spans = [("write this entry", "link")]
    return asked.query, GapBlock("", left, right, query=asked.query)


def _used(use: EntryUse) -> tuple[str, Block]:
    right: Spans = [(f"changed {format_iso_day(use.changed)}", "dim")]
    return use.ref, HeadBlock("", [*_times(use.cites), *_name(use)], right, link=use.ref)


def _unused(use: EntryUse) -> tuple[str, Block]:
    right: Spans = [(f"changed {format_iso_day(use.changed)}", "dim")]
    return use.ref, HeadBlock("", [("       ", ""), *_name(use)], right, link=use.ref)


def _name(use: EntryUse) -> Spans:
    return [(one_line(use.title), ""), (f"  {one_line(use.ref)}", "dim")]


SPANS = (30, 90, 7)
"""Days to look at, in the order of their key; what is older than the log keeps is gone."""
ROWS = 15


ASKED = {
    "dashboard": "on the screen", "cli": "by command", "mcp": "by assistants", "sdk": "by programs",
}  # fmt: skip
"""Where a search came from -> how that is said."""


class InsightsScreen(FeatureScreen):
    """A page; gives back the reference that one chose to open."""

    TITLE_WORDS = "Insights"
    SCOPE = "insights"
    NOTES = ("A gap is a query whose last search found nothing, or nothing by its words.",)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("insights", "moving")]

    def __init__(self, library: Library, clock: Clock) -> None:
        super().__init__(library)
        self.found: Insights | None = None
        self.writer = EntryWriter(self, library, self.say, self._wrote)
        self._clock = clock
        self._days = SPANS[0]
        self._hidden = False
        self._erasing = LatestOnlyWorker(self)

    def on_mount(self) -> None:
        """Begin to read, once something is on the screen."""
        self.reader.focus()
        self.show_totals([("reading …", "dim")])
        self.call_after_refresh(self.action_reload)

    def is_unsettled(self, key: str) -> bool:
        """Until the page is read, there is nothing for a key to be about."""
        return self.found is None and self._meant_by(key)[1] not in ALWAYS_AVAILABLE_ACTIONS

    # reading

    def action_reload(self) -> None:
        """Read everything again."""
        self.worker.submit(self._read, self._show_insights, self.failed)

    def files_changed(self, event: dict[str, Any]) -> None:
        """Reload when files change."""
        self.action_reload()

    def _read(self) -> tuple[Insights, Document]:
        """Called in a thread."""
        from kbtui.userdata.insights import collect_insights

        library = self.library
        found = collect_insights(
            library.workspace,
            UserData(library.workspace),
            library.reader(),
            days=self._days,
            limit=ROWS,
            hidden=self._hidden,
            now=self._clock().timestamp(),
        )
        return found, insights_document(found, own_key("insights.open", self.own_keys))

    def _show_insights(self, made: tuple[Insights, Document]) -> None:
        self.found, document = made
        self.show(document)
        found = self.found
        searches = "1 search" if found.searches.total == 1 else f"{found.searches.total:,} searches"
        origins = " · ".join(
            f"{count:,} {ASKED.get(name, name)}" for name, count in found.searches.by_origin.items()
        )
        left = [(f"{searches}, {format_count(found.citations, 'citation')}", "strong")]
        left.append((f" in {format_count(found.days, 'day')}", "dim"))
        right = [(origins, "dim")]
        if not self.library.settings.query_log:
            right = [("searches are not logged (query_log = false)", "warning")]
        self.show_totals(left, right)

    def action_days(self) -> None:
        """Look at other days."""
        self._days = SPANS[(SPANS.index(self._days) + 1) % len(SPANS)]
        self.action_reload()

    def action_hidden(self) -> None:
        """Count hidden subjects too, or not."""
        self._hidden = not self._hidden
        self.say(f"hidden subjects are {'' if self._hidden else 'not '}counted", "strong")
        self.action_reload()

    # the line one is at

    def action_open(self) -> None:
        """Open the entry, or write the missing one."""
        port = self.reader.port
        if not port.document.blocks:
            return
        block = port.document.blocks[port.cursor.block]
        if isinstance(block, GapBlock):
            self.writer.new(" ".join(block.query.split()))
        elif block.link:
            # It is in the index, whatever stands in its name.
            self.dismiss(parse_ref(block.link, lambda topic, slug: f"{topic}/{slug}" == block.link))

    def _wrote(self, ref: str) -> None:
        self.action_reload()

    def action_next(self, step: int) -> None:
        """To the next part, or the one before."""
        self.go_to_block(
            step, lambda block: block.key.startswith("head:") or block.key == "chart", lead=0
        )

    # erasing

    def action_erase(self) -> None:
        """Ask, and remove every logged search."""

        def answered(answer: str | None) -> None:
            if answer == "y":
                journal = UserData(self.library.workspace)
                self._erasing.submit(journal.query_log.erase, self._erased, self.failed)

        question = "Erase every logged search of this workspace? Citations stay: they are in the conversations."
        self.ask(question, {"y": "erase them"}, answered)

    def _erased(self, count: int) -> None:
        self.say("1 search is erased" if count == 1 else f"{count:,} searches are erased", "strong")
        self.action_reload()
