"""The workshop's list: rows whose words are made when they come into sight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.prompt.entries import Entry
from kbtui.tui.widgets.rows import RowList

if TYPE_CHECKING:
    from textual.strip import Strip

    from kbtui.tui.prompt.faces import Faces

WIDE = 52
"""Columns from which there is room for whole numbers."""


class EntryList(RowList):
    """Entries of the workshop; there may be tens of thousands, each of one line."""

    def __init__(self, faces: Faces) -> None:
        super().__init__("entries")
        self._faces = faces
        self.empty = [("Reading the workspace …", "dim")]

    @property
    def entry(self) -> Entry:
        """The selected entry; the whole prompt while there is none."""
        row = self.selected
        return row.data if row is not None else Entry("whole")

    def render_line(self, y: int) -> Strip:
        """Line `y` of what is in sight."""
        number = y + round(self.scroll_y)
        if 0 <= number < len(self.rows):
            row = self.rows[number]
            if row.selectable:
                wide = self.scrollable_content_region.width >= WIDE
                row.left, row.right = self._faces.describe(row.data, wide=wide)
        return super().render_line(y)
