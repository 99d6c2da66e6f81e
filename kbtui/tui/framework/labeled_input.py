"""An input with a word before it, shown only while it is used."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from kbtui.text import one_line
from kbtui.tui.framework.text_line import TextLine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.highlighter import Highlighter
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widget import Widget


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


class LabeledInput(Horizontal):
    """A word and an input; hidden until it is asked for, and made when the first screen is there."""

    def __init__(self, name: str, word: str, highlighter: Highlighter | None = None) -> None:
        super().__init__(classes="entry")
        self._input_id, self._word, self._highlighter = name, word, highlighter
        self.display = False

    @cached_property
    def input(self) -> PaneInput:
        """What is typed into."""
        return PaneInput(id=self._input_id, compact=True, highlighter=self._highlighter)

    def compose(self) -> ComposeResult:
        """The word, then the input."""
        if self.display:
            yield from self._parts()
        else:
            self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        if self.is_attached and not self.input.is_attached:
            self.mount(*self._parts())

    def _parts(self) -> Iterator[Widget]:
        sign = TextLine(classes="entry-word")
        sign.left = [(self._word, "key")]
        yield sign
        yield self.input

    def ask(self) -> None:
        """Show it, and type into it."""
        self._fill()
        self.display = True
        self.screen.set_focus(self.input)
        self.input.action_end()

    def put_away(self) -> None:
        """Hide and empty it."""
        self.display = False
        if self.input.is_attached:
            self.input.value = ""
