"""The line where patterns are tried: an input, and under it what is wrong, or what it comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from kbtui.text import cells, one_line
from kbtui.tui.commands import own_key
from kbtui.tui.framework.styled_text import fit, width_of
from kbtui.tui.framework.styled_widget import keys_of
from kbtui.tui.framework.text_widgets import PaneInput, TextLine
from kbtui.tui.reader.document import counted

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.workshop.pattern import PatternRemark, PatternResult


class PatternInput(PaneInput):
    """The input; arrows move in the list without leaving it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n", "screen.entries('down')", show=False),
        Binding("up", "screen.entries('up')", show=False),
        Binding("pagedown", "screen.entries('page_down')", show=False),
        Binding("pageup", "screen.entries('page_up')", show=False),
    ]


class PatternBar(Vertical):
    """Says what is typed, and shows what comes of it."""

    class Typed(Message):
        """The pattern is another one."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Done(Message):
        """One wants to go to what it matches."""

    def __init__(self) -> None:
        super().__init__(id="trying")
        self.input = PatternInput(
            id="pattern",
            placeholder="a glob, TOPIC/GLOB, or -k TOPIC/GLOB as on the command line",
            compact=True,
        )
        self._remark = TextLine(id="remark")
        self._label = 4
        """Columns before the input."""

    def compose(self) -> ComposeResult:
        """The input and the line under it."""
        with Horizontal(id="pattern-line"):
            sign = TextLine(id="pattern-sign")
            sign.left = [(own_key("workshop.try", keys_of(self)) or "no key", "key")]
            self._label = 3 + width_of(sign.left)
            sign.styles.width = self._label
            yield sign
            yield self.input
        yield self._remark

    @property
    def said(self) -> str:
        """What the line under the input says."""
        return self._remark.text

    @on(Input.Changed, "#pattern")
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))

    @on(Input.Submitted, "#pattern")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done())

    def clear(self) -> None:
        """Try nothing."""
        self.input.value = ""
        self._remark.say([])

    def show(self, trial: PatternResult, outcome: str) -> None:
        """Say what a trial comes to, or point at where it is wrong."""
        if not trial.text.strip():
            self._remark.say([])
            return
        count = len(trial.matches)
        right: Spans = []
        if trial.usable:
            right = [(counted(count, "subject"), "strong"), (f", {outcome}", "")]
        remark = trial.remark
        if remark is None:
            self._remark.say([(f"{' ' * self._label}kbtui {one_line(trial.call)}", "dim")], right)
            return
        if remark.wrong and not count:
            right = []
        room = self.size.width - sum(cells(text) + 1 for text, _ in right)
        self._remark.say(pointing(remark, self._column(trial.text, remark.at), room), right)

    def _column(self, text: str, at: int) -> int:
        """The column under the character `at` of the input."""
        return max(0, self._label + cells(text[:at]) - round(self.input.scroll_x))


def pointing(remark: PatternRemark, column: int, width: int) -> Spans:
    """A remark with `^` in a column, its words at the side where they fit."""
    words = one_line(remark.message + (f"; {remark.hint}" if remark.hint else ""))
    role = "error" if remark.wrong else "warning"
    size = cells(words)
    if column + 2 + size <= width or column < size + 1:
        return fit([(" " * min(column, max(0, width - 2)), ""), ("^ ", role), (words, role)], width)
    return [(" " * (column - size - 1), ""), (f"{words} ^", role)]
