"""A list widget that draws only its visible rows.

When the rows are replaced, the selection stays on the row with the same key.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from kbtui.tui.framework.base_screens_and_widgets import ScrollViewWithoutRelayout, StyledTextWidget
from kbtui.tui.framework.styled_text import Spans, align_spans_to_edges, wrap_spans
from kbtui.tui.framework.tui_command_definition import MOVE_BINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual import events


NEAR_END_LINES = 3
"""A list counts as scrolled near its end if at most this many lines follow the visible ones."""
WIDE_ROW = 36
"""If a row is at least this many cells wide, its first line also shows `wide_right`."""


class ListRow:
    """A row of one or more lines.

    * `left` and `right` are the texts at the edges of the first line. If there is not enough room
      for both, `left` is cut.
    * `wide_right` is added to `right` if the row has at least `WIDE_ROW` cells.
    * `below` contains the other lines.
    * `role` is the style of the whole row.
    * `data` is a value for the code that uses the list.
    """

    __slots__ = "below", "data", "key", "left", "right", "role", "selectable", "wide_right"

    def __init__(
        self,
        key: str,
        left: Spans,
        right: Spans | None = None,
        below: list[Spans] | None = None,
        *,
        selectable: bool = True,
        role: str = "",
        data: Any = None,
        wide_right: Spans | None = None,
    ) -> None:
        self.key = key
        self.left = left
        self.right = [] if right is None else right
        self.below = [] if below is None else below
        self.selectable = selectable
        self.role = role
        self.data = data
        self.wide_right = [] if wide_right is None else wide_right


def make_heading_row(key: str, text: str, right: str = "") -> ListRow:
    """Return a heading: a row that cannot be selected.

    `text` is the heading, and `right` is the text at the right edge.
    """
    return ListRow(f"head:{key}", [(text, "section")], [(right, "dim")], selectable=False)


class RowList(StyledTextWidget, ScrollViewWithoutRelayout, can_focus=True):
    """A list of rows, one of which is selected."""

    ALLOW_MAXIMIZE = False
    BINDINGS = MOVE_BINDINGS

    class RowClicked(Message):
        """The user clicked a row, which is selected now."""

    class SelectedRowChanged(Message):
        """Another row has been selected, or the list has become empty."""

        def __init__(self, row: ListRow | None) -> None:
            super().__init__()
            self.row = row

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.rows: list[ListRow] = []
        self.index = -1
        self.empty_text: Spans = []
        """The text shown while there are no rows."""
        self._empty_lines: list[Spans] = []
        self._empty_lines_key: object = None
        self._tops: list[int] = [0]

    # rows and selection

    def set_rows(
        self, rows: Sequence[ListRow], empty: Spans | None = None, select: str | None = None
    ) -> None:
        """Replace the rows. Select the row with the key `select`.

        If `select` is None, the row with the same key as before stays selected, and it stays on the
        same line of the screen. `empty` is the text to show if there are no rows; None leaves
        this text unchanged.
        """
        painted = self._list_visible_lines() if self.rows else None
        before = self.selected_row
        offset = self._tops[self.index] - round(self.scroll_y) if before else 0
        was_top = self.index <= self._find_next_selectable_row(-1, 1)
        self.rows = list(rows)
        self._tops = [0, *accumulate(1 + len(row.below) for row in self.rows)]
        if empty is not None:
            self.empty_text = empty
        wanted = select or (before.key if before else None)
        found = self._find_row_index(wanted)
        if found is None:
            start = 0 if before is None or was_top else self.index
            found = self._find_nearest_selectable_row(start)
        self.index = found
        self.set_content_size(Size(1, self._tops[-1]))
        if self.index >= 0 and before:
            self._scroll_to_list_line(max(0, self._tops[self.index] - offset))
        self._scroll_to_selected_row()
        self._repaint_changed_lines(painted)
        after = self.selected_row
        if (before and before.key) != (after and after.key):
            self.post_message(self.SelectedRowChanged(after))

    @property
    def selected_row(self) -> ListRow | None:
        """The selected row."""
        return self.rows[self.index] if 0 <= self.index < len(self.rows) else None

    @property
    def is_at_list_start(self) -> bool:
        """Whether the first row is selected and the list is scrolled to the top."""
        return self.index <= self._find_next_selectable_row(-1, 1) and not round(self.scroll_y)

    @property
    def is_scrolled_near_end(self) -> bool:
        """Whether at most `NEAR_END_LINES` lines follow the visible lines."""
        height = self.scrollable_content_region.height
        return height > 0 and self._tops[-1] <= round(self.scroll_y) + height + NEAR_END_LINES

    def select_row(self, key: str) -> bool:
        """Select the row with this key; return whether the row exists."""
        index = self._find_row_index(key)
        if index is not None:
            self._select_row_at_index(index)
        return index is not None

    def _find_row_index(self, key: str | None) -> int | None:
        return next(
            (n for n, row in enumerate(self.rows) if row.key == key and row.selectable), None
        )

    def _find_nearest_selectable_row(self, index: int) -> int:
        index = min(max(index, 0), len(self.rows) - 1)
        after = self._find_next_selectable_row(index - 1, 1)
        return after if after >= 0 else self._find_next_selectable_row(index + 1, -1)

    def _find_next_selectable_row(self, index: int, step: int) -> int:
        """Return the index of the next selectable row after or before `index`.

        If there is no such row, return -1. `step` is the direction: 1 for the next row below, -1
        for the next row above.
        """
        indices = range(max(0, index + 1), len(self.rows)) if step > 0 else range(index - 1, -1, -1)
        return next((index for index in indices if self.rows[index].selectable), -1)

    def _select_row_at_index(self, index: int) -> None:
        if index < 0:
            return
        changed = index != self.index
        painted = self._list_visible_lines()
        self.index = index
        self._scroll_to_selected_row()
        self._repaint_changed_lines(painted)
        if changed:
            self.post_message(self.SelectedRowChanged(self.selected_row))

    def _scroll_to_list_line(self, y: float) -> None:
        self.scroll_to(y=y, animate=False, force=True)

    def _scroll_to_selected_row(self) -> None:
        height = self.scrollable_content_region.height
        if self.index < 0 or height <= 0:
            return
        # For the first selectable row, also show the headings above it.
        top = 0 if self._find_next_selectable_row(self.index, -1) < 0 else self._tops[self.index]
        bottom = self._tops[self.index + 1]
        if bottom - self.scroll_y > height:
            self._scroll_to_list_line(bottom - height)
        elif top < self.scroll_y:
            self._scroll_to_list_line(top)

    def _find_row_at_line(self, line: int) -> tuple[int, int]:
        """Return the index of the row that contains line `line`, and the offset of the line in the row."""
        index = bisect_right(self._tops, line) - 1
        return index, line - self._tops[index]

    def _list_visible_lines(self) -> list[tuple[ListRow, int, bool] | None]:
        """Return a tuple (row, line in the row, is selected) for each visible line.

        For a line below the last row, the list contains None.
        """
        lines: list[tuple[ListRow, int, bool] | None] = []
        first = round(self.scroll_y)
        for line in range(first, first + self.scrollable_content_region.height):
            index, depth = self._find_row_at_line(line)
            is_row = index < len(self.rows)
            lines.append((self.rows[index], depth, index == self.index) if is_row else None)
        return lines

    def _repaint_changed_lines(
        self, painted: list[tuple[ListRow, int, bool] | None] | None
    ) -> None:
        """Repaint the visible lines that differ from `painted`, or all lines if `painted` is None."""
        now, changed = self._list_visible_lines(), None
        if now and self.rows and painted is not None and len(painted) == len(now):
            changed = [y for y, line in enumerate(now) if line != painted[y]]
        self.repaint_lines(changed)

    def iterate_visible_rows(self) -> Iterator[tuple[int, ListRow]]:
        """Yield (line, row) for each selectable row whose first line is visible.

        `line` is the zero-based number of the row's first line in the visible part of the list.
        """
        for y, line in enumerate(self._list_visible_lines()):
            if line and line[0].selectable and line[1] == 0:
                yield y, line[0]

    def prepare_row_text(self, row: ListRow) -> None:
        """Make the text of a row just before the row is drawn. By default, do nothing, because the text exists already."""

    @property
    def lines_until_end_of_text(self) -> int:
        """The number of lines from the top of the view to the end of its text."""
        if not self.rows:
            return len(self._wrap_empty_text())
        return max(0, self._tops[-1] - round(self.scroll_y))

    def _wrap_empty_text(self) -> list[Spans]:
        width = self.scrollable_content_region.width
        if self._empty_lines_key != (key := (width, tuple(self.empty_text))):
            indent = [(" ", "")]
            lines = wrap_spans(self.empty_text, max(8, width - 2), indent, indent)
            self._empty_lines_key, self._empty_lines = key, [line.spans for line in lines]
        return self._empty_lines

    def render_line(self, y: int) -> Strip:
        """Render the line that is `y` lines below the top of the list's visible part."""
        width = self.scrollable_content_region.width
        if not self.rows:
            lines = self._wrap_empty_text()
            spans = lines[y] if y < len(lines) else []
            return self.render_spans(spans, width) if spans else Strip.blank(width, self.base_style)
        index, depth = self._find_row_at_line(y + round(self.scroll_y))
        if index >= len(self.rows):
            return Strip.blank(width, self.base_style)
        row, chosen = self.rows[index], index == self.index
        self.prepare_row_text(row)
        base = ("cursor" if self.has_focus else "cursor-off") if chosen else row.role
        lead = ("▎", "accent") if chosen else (" ", "")
        if depth:
            spans = row.below[depth - 1]
        else:
            right = [*row.right, *row.wide_right] if width - 2 >= WIDE_ROW else row.right
            spans = align_spans_to_edges(row.left, right, width - 2)
        return self.render_spans([lead, *spans], width, base)

    def on_resize(self) -> None:
        """Scroll so that the selected row stays visible."""
        self._scroll_to_selected_row()

    # moving

    def action_down(self) -> None:
        self._select_row_at_index(self._find_next_selectable_row(self.index, 1))

    def action_up(self) -> None:
        before = self._find_next_selectable_row(self.index, -1)
        if before < 0:
            self._scroll_to_list_line(0)
        self._select_row_at_index(before)

    def action_top(self) -> None:
        self._select_row_at_index(self._find_next_selectable_row(-1, 1))

    def action_bottom(self) -> None:
        self._select_row_at_index(self._find_next_selectable_row(len(self.rows), -1))

    def action_scroll_pages(self, pages: float) -> None:
        """Move the selection down by `pages`, or up if `pages` is negative.

        A page is the height of the list minus one line.
        """
        height = self.scrollable_content_region.height
        lines = math.trunc(pages * height) if abs(pages) < 1 else int(pages) * (height - 1)
        if self.rows:
            line = min(max(0, self._tops[max(0, self.index)] + lines), self._tops[-1] - 1)
            index, _ = self._find_row_at_line(line)
            self._select_row_at_index(self._find_nearest_selectable_row(index))

    def on_click(self, event: events.Click) -> None:
        """Select the clicked row and post `RowClicked`."""
        index, _ = self._find_row_at_line(event.y + round(self.scroll_y))
        if index < len(self.rows) and self.rows[index].selectable:
            self._select_row_at_index(index)
            self.post_message(self.RowClicked())
