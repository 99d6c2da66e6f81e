"""The insights' page: what was asked, found, used and missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.text import one_line
from kbtui.tui.entries.table import day
from kbtui.tui.framework.styled_text import StyledLine, TextMatches
from kbtui.tui.reader.blocks import HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document, counted
from kbtui.userdata.chart import day_chart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block
    from kbtui.userdata.models import AskedQuery, EntryUse, Insights


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
        return [StyledLine([(line, "")]) for line in day_chart(self.insights, bar_cells(width))]

    def estimate(self, width: int) -> int:
        """A line a day."""
        return self.above + 1 + (self.insights.days if self.insights else 0)


def bar_cells(width: int) -> int:
    """Cells of a bar where a line has `width`: two of them stand beside date and numbers."""
    return max(4, min(36, (width - 28) // 2))


def insights_document(found: Insights, writes: str = "Enter") -> Document:
    """A part for each list, then the chart; `writes` is the key that writes an entry."""
    days = counted(found.days, "day")
    blocks: list[Block] = [
        *_part("top", "Asked most", map(_asked, found.searches.top), len(found.searches.top)),
        *_part(
            "gap", "Found nothing that fits", map(_gap, found.searches.gaps),
            len(found.searches.gaps), f"{writes} writes the entry" if writes else "",
        ),
        *_part("most", "Cited most", map(_used, found.most_cited), len(found.most_cited)),
        *_part("never", "Never cited", map(_unused, found.never_cited), found.never_cited_total),
        *_part(
            "stale", f"Cited, unchanged for {counted(found.stale_days, 'day')}", map(_used, found.stale),
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


def _asked(asked: AskedQuery) -> tuple[str, Block]:
    right: Spans = [(f"{asked.results:,} found", "dim" if asked.results else "warning")]
    return asked.query, HeadBlock("", [*_times(asked.times), (one_line(asked.query), "")], right)


def _gap(asked: AskedQuery) -> tuple[str, Block]:
    left: Spans = [*_times(asked.times), (one_line(asked.query), "")]
    right: Spans = [("write this entry", "link")]
    return asked.query, GapBlock("", left, right, query=asked.query)


def _used(use: EntryUse) -> tuple[str, Block]:
    right: Spans = [(f"changed {day(use.changed)}", "dim")]
    return use.ref, HeadBlock("", [*_times(use.cites), *_name(use)], right, link=use.ref)


def _unused(use: EntryUse) -> tuple[str, Block]:
    right: Spans = [(f"changed {day(use.changed)}", "dim")]
    return use.ref, HeadBlock("", [("       ", ""), *_name(use)], right, link=use.ref)


def _name(use: EntryUse) -> Spans:
    return [(one_line(use.title), ""), (f"  {one_line(use.ref)}", "dim")]
