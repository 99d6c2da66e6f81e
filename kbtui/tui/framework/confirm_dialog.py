"""A question over a screen, answered with one key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.screen import ModalScreen

from kbtui.text import one_line
from kbtui.tui.framework.message_line import MessageLine
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.framework.text_line import TextLine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual import events
    from textual.app import ComposeResult


class AskScreen(StyledScreen, ModalScreen[str | None]):
    """Asks at the bottom of what it stands over; gives back the key, None for Esc.

    `answers` are keys with what each does. Enter answers nothing: what cannot be
    taken back needs its own key.
    """

    DEFAULT_CSS = """
    AskScreen { align: left bottom; background: transparent; }
    #question { height: auto; border: round $warning; background: $background; padding: 0; }
    #answers { height: 1; padding: 0 1; }
    """

    def __init__(self, question: str, answers: Mapping[str, str]) -> None:
        super().__init__()
        self.question, self.answers = one_line(question), dict(answers)
        self._said = MessageLine("asked")

    def compose(self) -> ComposeResult:
        """The question and its answers."""
        with Vertical(id="question"):
            yield self._said
            yield TextLine(id="answers")

    def on_mount(self) -> None:
        """Ask."""
        self.styles.background = "transparent"
        self._said.say(self.question, "strong")
        bar = self.query_one("#answers", TextLine)
        for pressed, meaning in {**self.answers, "Esc": "leave it as it is"}.items():
            bar.left += [("  " if bar.left else "", ""), (pressed, "key"), (f" {meaning}", "dim")]

    def on_key(self, event: events.Key) -> None:
        """Take the answer; other keys do nothing."""
        event.stop()
        if event.key == "escape":
            self.dismiss(None)
        elif event.character in self.answers:
            self.dismiss(event.character)
