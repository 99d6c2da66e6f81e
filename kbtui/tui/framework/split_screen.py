"""What the platform's screens have in common: two sides, what was said, the keys, questions."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Horizontal, Vertical

from kbtui.tui.framework.dialogs import ConfirmDialog
from kbtui.tui.framework.styled_widget import StyledScreen, plain
from kbtui.tui.framework.text_line import MessageLine, TextLine
from kbtui.tui.framework.workers import LatestOnlyWorker
from kbtui.tui.help import HelpScreen
from kbtui.tui.key_hints import help_of, hints_of
from kbtui.tui.reader.document_view import DocumentView
from kbtui.tui.workshop.layout import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.widget import Widget

    from kbtui.library import Library
    from kbtui.tui.commands import Scope
    from kbtui.tui.reader.document import Document


class SplitScreen(StyledScreen):
    """A list at the left, what is selected at the right; one of them where there is little room.

    Gives back a reference that is to be opened, or None.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (110, "-broad")]  # noqa: RUF012
    TITLE_WORDS: ClassVar[str] = ""
    SCOPE: ClassVar[Scope]
    NOTES: ClassVar[Sequence[str]] = ()
    DEFAULT_CSS = """
    SplitScreen {
        #sides { height: 1fr; }
        #listed { width: 5fr; }
        #detail { width: 3fr; }
        &.-slim #detail { display: none; width: 1fr; }
        &.-slim.detailed #detail { display: block; }
        &.-slim.detailed #listed { display: none; }
        #columns, #totals { height: 1; padding: 0 1; background: $background; }
        #keys { height: 1; padding: 0 1; background: $surface; }
    }
    """

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.library = library
        self.reader = DocumentView()
        self.said = MessageLine("said")
        self.work_lane = LatestOnlyWorker(self)

    @abstractmethod
    def left_side(self) -> list[Widget]:
        """What stands in the left pane."""

    @property
    def offers(self) -> frozenset[str]:
        """What keys can need."""
        return frozenset()

    def compose(self) -> ComposeResult:
        """The two sides, the totals, what was said, the keys."""
        with Horizontal(id="sides"):
            with Vertical(id="listed", classes="pane") as pane:
                pane.border_title = self.TITLE_WORDS
                yield from self.left_side()
            with Vertical(id="detail", classes="pane"):
                yield self.reader
        yield TextLine(id="totals")
        yield self.said
        yield TextLine(id="keys")

    def on_resize(self) -> None:
        """Other keys fit."""
        self.call_after_refresh(self.say_keys)

    # saying

    def say(self, text: str = "", role: str = "strong") -> None:
        """Say something until something else is said."""
        self.said.say(text, role)

    def failed(self, error: Exception) -> None:
        """Say why something did not work."""
        self.say(words_of(error, self.library.workspace.root), "error")

    def say_keys(self) -> None:
        """Show the keys that matter now."""
        bar = self.query_one("#keys", TextLine)
        bar.say(hints_of(self.SCOPE, bar.content_size.width, self.offers, self.own_keys))

    def show(self, document: Document) -> None:
        """Show a page at the right, where one was reading when it is the same one."""
        if self.reader.document.key == document.key:
            self.reader.reload(document)
        else:
            self.reader.show(document)
        self.query_one("#detail", Vertical).border_title = plain(document.title)

    def ask(
        self, question: str, answers: Mapping[str, str], then: Callable[[str | None], Any]
    ) -> None:
        """Ask; `then` is told the key of the answer, None for Esc."""
        self.app.push_screen(ConfirmDialog(question, answers), then)

    # sides

    @property
    def detailed(self) -> bool:
        """Whether one is at the right."""
        return self.focused is self.reader

    def go_right(self) -> None:
        """Go to what is selected."""
        self.add_class("detailed")
        self.set_focus(self.reader)
        self.say_keys()

    def go_left(self, to: Widget) -> None:
        """Go back to the list."""
        self.remove_class("detailed")
        self.set_focus(to)
        self.say_keys()

    def action_help(self) -> None:
        """Explain the keys."""
        self.app.push_screen(HelpScreen(page=help_of(self.SCOPE, self.NOTES, self.own_keys)))

    def action_leave(self) -> None:
        """Leave the screen."""
        if self.may_leave():
            self.dismiss(None)
