"""The entries as a table: rows whose words are made when they come into sight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from kbtui.text import cells, cut, one_line
from kbtui.tui.clock import iso_day
from kbtui.tui.framework.row_list import RowList
from kbtui.tui.reader.document import characters

if TYPE_CHECKING:
    from textual.strip import Strip

    from kbtui.index.entry_query import EntryRow as Entry
    from kbtui.tui.framework.styled_text import Spans

SIGNS = {"ready": ("●", "inserted"), "pending": ("◌", "warning"), "error": ("!", "error")}
COLUMNS: tuple[tuple[str, int, bool, int], ...] = (
    ("type", 12, False, 86),
    ("changed", 10, False, 58),
    ("passages", 8, True, 96),
    ("size", 6, True, 104),
    ("cites 30d", 9, True, 0),
)
"""Name, cells, whether it stands at the right, and the width from which there is room for it.

Titles come first: beside the type and all that follows it, 48 cells are left for them.
"""


class EntryTable(RowList):
    """Entries, one a line; there may be tens of thousands."""

    def __init__(self) -> None:
        super().__init__("entries")
        self.empty = [("Reading the entries …", "dim")]

    class AtEnd(Message):
        """One wants the last entry of all, read or not."""

    def action_bottom(self) -> None:
        """To the last entry."""
        super().action_bottom()
        self.post_message(self.AtEnd())

    @property
    def entry(self) -> Entry | None:
        """The selected entry."""
        row = self.selected
        return row.data if row is not None else None

    def render_line(self, y: int) -> Strip:
        """Line `y` of what is in sight."""
        number = y + round(self.scroll_y)
        if 0 <= number < len(self.rows):
            row = self.rows[number]
            width = self.scrollable_content_region.width
            row.left, row.right = _left(row.data), _right(row.data, width)
        return super().render_line(y)


def headings(width: int) -> tuple[Spans, Spans]:
    """The line above the table."""
    names = [_fitted(name, name, size, right) for name, size, right, _ in _shown(width)]
    return [("  entry  reference  #tags", "section")], [("  ".join(names), "section")]


def _shown(width: int) -> list[tuple[str, int, bool, int]]:
    return [column for column in COLUMNS if width >= column[3]]


def _left(entry: Entry) -> Spans:
    sign, role = SIGNS.get(entry.status, ("?", "dim"))
    flags = [name for name in ("hidden", "archived") if getattr(entry, name)]
    spans: Spans = [(f"{sign} ", role), (one_line(entry.title), "")]
    if flags:
        spans.append((f"  {', '.join(flags)}", "dim"))
    # Tags give way to everything else, and take no room where there are none.
    tags = "".join(f" #{one_line(tag)}" for tag in entry.tags)
    return [*spans, (f"  {one_line(entry.ref)}", "dim"), (f" {tags}" if tags else "", "note")]


def _right(entry: Entry, width: int) -> Spans:
    values = {
        "type": entry.type,
        "changed": iso_day(entry.changed),
        "passages": f"{entry.chunks:,}",
        "size": characters(entry.size),
        "cites 30d": f"{entry.cites_30d:,}",
    }
    spans: Spans = []
    for name, size, right, _ in _shown(width):
        role = "" if name == "cites 30d" and entry.cites_30d else "dim"
        spans.append(("  " if spans else "", ""))
        spans.append((_fitted(name, values[name], size, right), role))
    return spans


def _fitted(name: str, text: str, size: int, right: bool) -> str:
    text = cut(one_line(text), size)
    space = " " * (size - cells(text))
    return space + text if right else text + space
