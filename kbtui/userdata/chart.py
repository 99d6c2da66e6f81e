"""Bars of plain text: searches and citations by day."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbtui.userdata.models import Insights

BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(value: int, most: int, width: int = BAR_CELLS) -> str:
    """A bar of up to `width` cells, in eighths of a cell; a value above 0 always shows."""
    if value <= 0 or most <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / most))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def day_chart(found: Insights, width: int = BAR_CELLS) -> list[str]:
    """A line for each day: its date, searches and citations, each with a bar to one scale a column."""
    searches, citations = found.searches.by_day, found.citations_by_day
    scales = [max(column.values(), default=0) for column in (searches, citations)]
    digits = [len(str(scale)) for scale in scales]
    lines = [f"{'':10}  {'searches':<{width + digits[0] + 1}}  citations"]
    for day, count in searches.items():
        left = f"{count:>{digits[0]}} {bar(count, scales[0], width)}"
        right = f"{citations[day]:>{digits[1]}} {bar(citations[day], scales[1], width)}"
        lines.append(f"{day}  {left:<{width + digits[0] + 1}}  {right}".rstrip())
    return lines
