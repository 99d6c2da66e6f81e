"""The line above a text: where in it one is, in parts that can be clicked on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from kbtui.tui.framework.styled_text import between, width_of
from kbtui.tui.framework.text_line import TextLine

if TYPE_CHECKING:
    from textual import events
    from textual.strip import Strip


class Header(TextLine):
    """The line above the text; what is clicked on its left may mean something."""

    class Clicked(Message):
        """A part of it was clicked on."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def render_line(self, y: int) -> Strip:
        """The line; where there is little room, of the size only the tokens."""
        width, right = self.content_size.width, self.right
        if width_of(self.left) + width_of(right) >= width:
            right = [
                (text[text.find("≈") :] if "≈" in text else text, role) for text, role in right
            ]
        return self.paint(between(self.left, right, width) if y == 0 else [], width)

    def on_click(self, event: events.Click) -> None:
        """Find the part."""
        edge = self.gutter.left
        for text, _ in self.left:
            edge += width_of([(text, "")])
            if event.x < edge:
                self.post_message(self.Clicked(text))
                return
