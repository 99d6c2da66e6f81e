"""The help screen: what the keys do where one is, made from the commands themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import Vertical

from kbtui.tui.commands import SCOPES, bindings, commands_of
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.library.rows import MARKS
from kbtui.tui.reader.blocks import Block, FactsBlock, HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document
from kbtui.tui.reader.document_view import DocumentView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kbtui.tui.commands import Scope
    from kbtui.tui.framework.styled_text import Spans


def help_document(scopes: tuple[Scope, ...], keymap: Mapping[str, str] | None = None) -> Document:
    """The keys of some scopes first, then those of the others."""
    order = [*[s for s in scopes if s != "everywhere"], "moving", "everywhere"]
    order += [scope for scope in SCOPES if scope not in order]
    blocks: list[Block] = []
    for place, scope in enumerate(order):
        heading = SCOPES[scope]  # type: ignore[index]
        blocks.append(HeadBlock(f"head:{scope}", [(heading, "h2")], above=int(place > 0)))
        facts: list[tuple[str, Spans]] = [
            ("  ".join(command.shown_keys), [(command.help, "")])
            for command in commands_of(scope, keymap=keymap)  # type: ignore[arg-type]
        ]
        blocks.append(FactsBlock(f"keys:{scope}", facts, names="key"))
    blocks.append(HeadBlock("head:marks", [("Marks in the library", "h2")], above=1))
    marks: list[tuple[str, Spans]] = [(sign, [(name, "")]) for name, (sign, _) in MARKS.items()]
    blocks.append(FactsBlock("marks", marks))
    text = "In an input letters are text: Esc leaves it, and letters are keys again."
    blocks.append(NoteBlock("input", [(text, "dim")], above=1))
    return Document("help", "Help", blocks)


class HelpScreen(StyledScreen):
    """A page over the main screen; Esc, q or ? closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "close", show=False),
        *bindings("moving"),
    ]

    def __init__(
        self,
        scopes: tuple[Scope, ...] = (),
        page: Document | None = None,
        keymap: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._page = page or help_document(scopes, keymap)
        self.reader = DocumentView()

    def compose(self) -> ComposeResult:
        """The page."""
        with Vertical(id="help", classes="pane") as pane:
            pane.border_title = "Help"
            pane.border_subtitle = "Esc closes"
            yield self.reader

    def on_mount(self) -> None:
        """Show it."""
        self.reader.show(self._page)
        self.reader.focus()
