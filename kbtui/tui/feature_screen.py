"""What the screens beside the main one share: a page or two panes, totals, a message, the keys."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Horizontal, Vertical

from kbtui.errors import describe_error
from kbtui.tui.commands import commands_of, own_key
from kbtui.tui.framework.command import format_command_hints
from kbtui.tui.framework.dialogs import ConfirmDialog
from kbtui.tui.framework.styled_widget import StyledScreen, plain_content
from kbtui.tui.framework.text_widgets import MessageLine, TextLine
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.pages import screen_help_document
from kbtui.tui.reader.document_view import DocumentView, PageScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.widget import Widget

    from kbtui.library import Library
    from kbtui.tui.commands import Scope
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block
    from kbtui.tui.reader.document import Document


class FeatureScreen(StyledScreen):
    """One page; gives back a reference that is to be opened, or None."""

    TITLE_WORDS: ClassVar[str]
    SCOPE: ClassVar[Scope]
    NOTES: ClassVar[Sequence[str]] = ()
    DEFAULT_CSS = """
    FeatureScreen {
        #totals { height: 1; padding: 0 1; background: $background; }
        #keys { height: 1; padding: 0 1; background: $surface; }
    }
    """

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.library = library
        self.reader = DocumentView()
        self.said = MessageLine("said")
        self.worker = LatestOnlyWorker(self)

    def compose_panes(self) -> ComposeResult:
        """The panes: one with the page, unless a subclass has others."""
        with Vertical(id="page-pane", classes="pane") as pane:
            pane.border_title = self.TITLE_WORDS
            yield self.reader

    def below_panes(self) -> Iterable[Widget]:
        """Widgets between the panes and the totals."""
        return ()

    def compose(self) -> ComposeResult:
        """The panes, the totals, the message, the keys."""
        with Horizontal(id="panes"):
            yield from self.compose_panes()
        yield from self.below_panes()
        yield TextLine(id="totals")
        yield self.said
        yield TextLine(id="keys")

    def on_resize(self) -> None:
        """Show the keys that fit the new width."""
        self.call_after_refresh(self.show_keys)

    # keys

    @property
    def offers(self) -> frozenset[str]:
        """What commands can need (`Command.needs`) and the screen has now."""
        return frozenset()

    def key_of(self, name: str) -> str:
        """The first key of a command of this screen, as people write it."""
        return own_key(f"{self.SCOPE}.{name}", self.own_keys) or "no key"

    def show_keys(self) -> None:
        """Show the keys that are of use now."""
        bar = self.query_one("#keys", TextLine)
        commands = commands_of(self.SCOPE, keymap=self.own_keys)
        bar.say(format_command_hints(commands, bar.content_size.width, self.offers))

    def help_blocks(self) -> Sequence[Block]:
        """Blocks of the help page between keys and notes."""
        return ()

    def help_notes(self) -> Sequence[str]:
        """Remarks at the end of the help page."""
        return self.NOTES

    def action_help(self) -> None:
        """Explain the keys."""
        blocks, notes = self.help_blocks(), self.help_notes()
        page = screen_help_document(self.SCOPE, notes, self.own_keys, blocks)
        self.app.push_screen(PageScreen("Help", page))

    # messages

    def say(self, text: str = "", role: str = "strong") -> None:
        """Show a message until there is another one."""
        self.said.say(text, role)

    def show_totals(self, left: Spans, right: Spans | None = None) -> None:
        """Show what the page adds up to."""
        self.query_one("#totals", TextLine).say(left, right)

    def describe_error(self, error: Exception) -> str:
        """An error on one line, with paths seen from the workspace."""
        return describe_error(error, self.library.workspace.root)

    def failed(self, error: Exception) -> None:
        """Say why something did not work."""
        self.say(self.describe_error(error), "error")

    def ask(
        self, question: str, answers: Mapping[str, str], then: Callable[[str | None], Any]
    ) -> None:
        """Ask; `then` is called with the key of the answer, None for Esc."""
        self.app.push_screen(ConfirmDialog(question, answers), then)

    # the page

    def show(self, document: Document) -> None:
        """Show a page; one that is shown already stays at the line being read."""
        if self.reader.document.key == document.key:
            self.reader.reload(document)
        else:
            self.reader.show(document)

    def go_to_block(
        self, step: int, is_wanted: Callable[[Block], bool], lead: int | None = None
    ) -> None:
        """Go to the next wanted block of the page, or with a negative `step` to the one before."""
        port = self.reader.port
        here = port.cursor.block
        numbers = [n for n, block in enumerate(port.document.blocks) if is_wanted(block)]
        beyond = [n for n in numbers if (n > here if step > 0 else n < here)]
        if beyond:
            target = beyond[0 if step > 0 else -1]
            port.go_to(target, port.document.blocks[target].above, lead)
            self.reader.changed()

    def action_leave(self) -> None:
        """Leave the screen."""
        if self.may_leave():
            self.dismiss(None)


class SplitScreen(FeatureScreen):
    """A list at the left, what is selected at the right; one of them where there is little room."""

    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (110, "-broad")]  # noqa: RUF012
    DEFAULT_CSS = """
    SplitScreen {
        #listed { width: 5fr; }
        #detail { width: 3fr; }
        &.-slim #detail { display: none; width: 1fr; }
        &.-slim.detailed #detail { display: block; }
        &.-slim.detailed #listed { display: none; }
    }
    """

    @abstractmethod
    def left_side(self) -> Iterable[Widget]:
        """The widgets of the left pane."""

    def compose_panes(self) -> ComposeResult:
        """The list, and the page of what is selected."""
        with Vertical(id="listed", classes="pane") as pane:
            pane.border_title = self.TITLE_WORDS
            yield from self.left_side()
        with Vertical(id="detail", classes="pane"):
            yield self.reader

    def show(self, document: Document) -> None:
        """Show a page at the right."""
        super().show(document)
        self.query_one("#detail", Vertical).border_title = plain_content(document.title)

    @property
    def detailed(self) -> bool:
        """Whether the right pane has the focus."""
        return self.focused is self.reader

    def go_right(self) -> None:
        """Go to what is selected."""
        self.add_class("detailed")
        self.set_focus(self.reader)
        self.show_keys()

    def go_left(self, to: Widget) -> None:
        """Go back to the list."""
        self.remove_class("detailed")
        self.set_focus(to)
        self.show_keys()
