"""Small screens over the main one: type a line, choose by a letter, say yes to what is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from kbtui.tui.commands import bindings
from kbtui.tui.framework.labeled_input import SafeInput
from kbtui.tui.framework.row_list import ListRow, RowList
from kbtui.tui.framework.styled_text import fit, width_of
from kbtui.tui.framework.styled_widget import StyledScreen, plain
from kbtui.tui.framework.text_line import TextLine
from kbtui.tui.reader.document_view import DocumentView

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.tui.reader.document import Document


class LineScreen(StyledScreen):
    """Asks for a line of text; gives it back, or None when one thought better of it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", show=False)]

    def __init__(
        self,
        title: str,
        text: str = "",
        placeholder: str = "",
        hint: str = "",
        select: bool = False,
    ) -> None:
        super().__init__()
        self._title, self._text, self._placeholder, self._hint = title, text, placeholder, hint
        self._select = select

    def compose(self) -> ComposeResult:
        """The input, and what Enter and Esc do."""
        with Vertical(id="dialog", classes="pane low") as pane:
            pane.border_title = plain(self._title)
            yield SafeInput(
                self._text,
                id="dialog-input",
                placeholder=self._placeholder,
                compact=True,
                select_on_focus=self._select,
            )
            hint = TextLine()
            hint.left = [("Enter", "key"), (" done  ", "dim"), ("Esc", "key"), (" leave", "dim")]
            hint.right = [(self._hint, "dim")]
            yield hint

    def on_mount(self) -> None:
        """Type into it."""
        self.query_one("#dialog-input").focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())


@dataclass(frozen=True)
class DialogOption:
    """Something to choose: the letter that does, its name, what is given back."""

    key: str
    name: str
    right: str
    what: Any


class OptionsScreen(StyledScreen):
    """A few things to choose from, by letter or by row; gives back the one chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", show=False),
        Binding("enter", "take", show=False),
    ]

    def __init__(self, title: str, options: list[DialogOption]) -> None:
        super().__init__()
        self._title, self._options = title, options
        self.list = RowList("options-list")

    def compose(self) -> ComposeResult:
        """The list."""
        with Vertical(id="dialog", classes="pane") as pane:
            pane.border_title = plain(self._title)
            pane.border_subtitle = "a letter, or Enter · Esc leaves"
            pane.styles.height = len(self._options) + 2
            yield self.list

    def on_mount(self) -> None:
        """Show the options."""
        self._fill()
        self.list.focus()

    def on_resize(self) -> None:
        """Other previews fit."""
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        # Names are whole; what an option would give shows as far as there is room.
        width = self.list.scrollable_content_region.width or self.app.size.width * 9 // 10 - 4
        names = max((width_of([(one.name, "")]) for one in self._options), default=0)
        room = max(width - names - 8, width // 2 - 8)
        self.list.set_rows(
            [
                ListRow(
                    one.key,
                    [(f"{one.key}  ", "key"), (one.name, "")],
                    fit([(one.right, "dim")], room) if room > 8 else [],
                    data=one,
                )
                for one in self._options
            ]
        )

    def on_key(self, event: events.Key) -> None:
        """Choose by letter."""
        for one in self._options:
            if event.character == one.key:
                event.stop()
                self.dismiss(one.what)

    @on(RowList.Opened)
    def _clicked(self, event: RowList.Opened) -> None:
        event.stop()
        self.action_take()

    def action_take(self) -> None:
        """Choose the selected one."""
        if row := self.list.selected:
            self.dismiss(row.data.what)


class PageScreen(StyledScreen):
    """A page over the main screen to read; with `yes`, something that is done on `y` alone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "dismiss", show=False),
        Binding("y", "yes", show=False),
        *bindings("moving"),
    ]

    def __init__(self, title: str, page: Document, yes: str = "") -> None:
        super().__init__()
        self._title, self._page, self._yes = title, page, yes
        self.reader = DocumentView()

    def compose(self) -> ComposeResult:
        """The page, and what the keys do."""
        with Vertical(id="help", classes="pane") as pane:
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
