"""What there is to know of what is being read, above the text while one asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.framework.text_line import MultilineText
from kbtui.tui.reader.document import counted

if TYPE_CHECKING:
    from textual.strip import Strip

    from kbtui.tui.framework.styled_text import Spans, StyledLine


class FactsBar(MultilineText):
    """Names and values above the text, shown while they are asked for."""

    DEFAULT_CSS = "FactsBar { max-height: 75%; }"

    def tell(self, facts: list[tuple[str, Spans]]) -> None:
        """Show these."""
        from kbtui.tui.reader.blocks import FactsBlock

        self._block = FactsBlock("facts", facts)
        self.say([spans for _, spans in facts])

    def _lines(self, width: int) -> list[StyledLine]:
        return self._block.lines(width) if self.display else []

    def render_line(self, y: int) -> Strip:
        """A line; the last one says how many there is no room for."""
        width, height = self.content_size
        left = len(self._lines(width)) - height
        if y == height - 1 and left > 0:
            return self.paint([(f"… {counted(left + 1, 'more line')}", "dim")], width)
        return super().render_line(y)
