"""Tables laid out in columns that fit the width."""

from __future__ import annotations

from kbtui.tui.framework.styled_text import Spans, StyledLine, width_of, with_role, wrap

_GAP = 3  # " │ "
_LEAST = 6


def column_widths(wanted: list[int], width: int) -> list[int]:
    """Widths that add up to at most `width`: narrow columns keep theirs, the widest give way."""
    widths = list(wanted)
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= _LEAST:
            break
        second = max((w for i, w in enumerate(widths) if i != widest), default=0)
        take = min(excess, max(1, widths[widest] - max(second, _LEAST)))
        widths[widest] -= take
        excess -= take
    return widths


def table_lines(
    rows: list[list[Spans]], aligns: list[str], width: int, sources: list[int]
) -> list[StyledLine]:
    """A table, its first row the heading; `aligns` has "left", "right", "center" or "" each."""
    if not rows or not rows[0]:
        return []
    columns = len(rows[0])
    wanted = [max(1, *(width_of(row[i]) for row in rows if i < len(row))) for i in range(columns)]
    widths = column_widths(wanted, width)
    laid = [
        [wrap(row[i] if i < len(row) else [], widths[i]) for i in range(columns)] for row in rows
    ]
    # Where a cell takes several lines, a blank one keeps the rows apart.
    tall = any(len(cell) > 1 for cells in laid[1:] for cell in cells)
    padded = [*aligns, *[""] * (columns - len(aligns))]
    lines: list[StyledLine] = []
    for number, (cells, source) in enumerate(zip(laid, sources, strict=True)):
        if tall and number > 1:
            lines.append(StyledLine([(" │ ".join(" " * w for w in widths), "rule")], source))
        made = [StyledLine(spans, source) for spans in _row(cells, widths, padded)]
        if number == 0:
            made = [StyledLine(with_role(line.spans, "strong"), source) for line in made]
            made.append(StyledLine([("─┼─".join("─" * w for w in widths), "rule")], source))
        lines += made
    return lines


def _row(cells: list[list[StyledLine]], widths: list[int], aligns: list[str]) -> list[Spans]:
    rows: list[Spans] = []
    for depth in range(max(len(cell) for cell in cells)):
        spans: Spans = []
        for i, cell in enumerate(cells):
            if i:
                spans.append((" │ ", "rule"))
            spans += _aligned(cell[depth].spans if depth < len(cell) else [], widths[i], aligns[i])
        rows.append(spans)
    return rows


def _aligned(spans: Spans, width: int, align: str) -> Spans:
    space = max(0, width - width_of(spans))
    before = space if align == "right" else space // 2 if align == "center" else 0
    return [(" " * before, ""), *spans, (" " * (space - before), "")]
