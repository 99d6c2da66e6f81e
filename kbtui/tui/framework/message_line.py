"""What was said last: a line, or as many as its words need."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kbtui.text import one_line
from kbtui.tui.framework.styled_text import wrap
from kbtui.tui.framework.styled_widget import StyledWidget

if TYPE_CHECKING:
    from textual.strip import Strip

    from kbtui.tui.framework.styled_text import StyledLine

LINES_MOST = 4


class MessageLine(StyledWidget):
    """Words that are wrapped, because an error's hint stands at its end."""

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = "MessageLine { height: 1; padding: 0 1; background: $background; }"

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.text = ""
        self._role = ""
        self._lines: list[StyledLine] = []

    def say(self, text: str, role: str) -> None:
        """Say something else."""
        self.text, self._role = one_line(text), role
        self._lay_out()

    def on_resize(self) -> None:
        """Wrap anew."""
        self._lay_out()

    def _lay_out(self) -> None:
        width = self.content_size.width
        if width and self.text:
            self._lines = wrap([(self.text, self._role)], width)[:LINES_MOST]
        else:
            self._lines = []
        self.styles.height = max(1, len(self._lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One of the lines."""
        spans = self._lines[y].spans if y < len(self._lines) else []
        return self.paint(spans, self.content_size.width)
