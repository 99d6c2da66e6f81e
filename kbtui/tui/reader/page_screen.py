"""A page to read over another screen: help, an explanation, a change to agree to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import Vertical

from kbtui.tui.framework.command import MOVING_BINDINGS
from kbtui.tui.framework.styled_widget import StyledScreen, plain
from kbtui.tui.reader.document_view import DocumentView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.tui.reader.document import Document


class PageScreen(StyledScreen):
    """A page over another screen; `y` gives back True where `yes` says what that does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n,question_mark", "dismiss", show=False),
        Binding("y", "yes", show=False),
        *MOVING_BINDINGS,
    ]

    def __init__(self, title: str, page: Document, yes: str = "") -> None:
        super().__init__()
        self._title, self._page, self._yes = title, page, yes
        self.reader = DocumentView()

    def compose(self) -> ComposeResult:
        """The page, and what the keys do."""
        with Vertical(id="page", classes="pane") as pane:
            pane.border_title = plain(self._title)
            leave = "Esc closes" if not self._yes else f"y: {self._yes} · n or Esc: no"
            pane.border_subtitle = plain(leave)
            yield self.reader

    def on_mount(self) -> None:
        """Show it."""
        self.reader.show(self._page)
        self.reader.focus()

    def action_yes(self) -> None:
        """Say yes."""
        if self._yes:
            self.dismiss(True)
