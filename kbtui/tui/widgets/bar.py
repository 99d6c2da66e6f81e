"""One line of text, with something at its right edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kbtui.tui.document.lines import Spans, between
from kbtui.tui.widgets.paint import Painted

if TYPE_CHECKING:
    from textual.strip import Strip


class Bar(Painted):
    """A line whose text its owner sets."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.left: Spans = []
        self.right: Spans = []

    def say(self, left: Spans, right: Spans | None = None) -> None:
        """Show other text."""
        right = right or []
        if (left, right) != (self.left, self.right):
            self.left, self.right = left, right
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        width = self.content_size.width
        return self.paint(between(self.left, self.right, width) if y == 0 else [], width)

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(part for part, _ in [*self.left, *self.right])
