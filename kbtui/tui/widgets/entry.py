"""An input with a word before it, shown only while it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from kbtui.text import one_line
from kbtui.tui.widgets.bar import Bar

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType


class SafeInput(Input):
    """An input that takes pasted text as one safe line."""

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert_text_at_cursor(one_line(event.text, "strip"))


class PaneInput(SafeInput):
    """An input within a pane: Esc leaves it, whatever other keys the pane's commands were given."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    class Left(Message):
        """Esc was pressed in the input."""

    def action_leave(self) -> None:
        """Leave the input."""
        self.post_message(self.Left())


class Entry(Horizontal):
    """A word and an input; hidden until it is asked for."""

    def __init__(self, name: str, word: str) -> None:
        super().__init__(classes="entry")
        self._sign = Bar(classes="entry-word")
        self._sign.left = [(word, "key")]
        self.input = PaneInput(id=name, compact=True)
        self.display = False

    def compose(self) -> ComposeResult:
        """The word, then the input; hidden ones are made when the first screen is there."""
        if self.display:
            yield self._sign
            yield self.input
        else:
            self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        if self.is_attached and not self.input.is_attached:
            self.mount(self._sign, self.input)

    def ask(self) -> None:
        """Show it, and type into it."""
        self._fill()
        self.display = True
        self.screen.set_focus(self.input)
        self.input.action_end()

    def put_away(self) -> None:
        """Hide and empty it."""
        self.display = False
        self.input.value = ""
