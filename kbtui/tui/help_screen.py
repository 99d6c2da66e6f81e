"""The help screen: a page of keys, which can be filtered by words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from kbtui.tui.framework.styled_text import join_span_texts
from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.framework.text_widgets import LabeledInput, PaneInput
from kbtui.tui.framework.tui_command import MOVE_BINDINGS
from kbtui.tui.reader.document_view import DocumentView
from kbtui.tui.reader.reader_blocks import (
    FactTableBlock,
    HeadingBlock,
    ParagraphBlock,
    ReaderBlock,
)
from kbtui.tui.reader.reader_document import ReaderDocument

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType


def filter_help_document(page: ReaderDocument, words: str) -> ReaderDocument:
    """Return a help page with only the table rows that contain all words, and the headings of these rows."""
    wanted = words.casefold().split()
    if not wanted:
        return page
    blocks: list[ReaderBlock] = []
    heading: HeadingBlock | None = None
    for block in page.blocks:
        if isinstance(block, HeadingBlock):
            heading = block
        elif isinstance(block, FactTableBlock):
            title = heading.get_searchable_text() if heading else ""
            facts = [
                (name, value)
                for name, value in block.facts
                if _contains_all(f"{name} {join_span_texts(value)} {title}", wanted)
            ]
            if facts and heading is not None:
                above = int(bool(blocks))
                blocks.append(HeadingBlock(heading.key, heading.left, heading.right, above=above))
            if facts:
                blocks.append(FactTableBlock(block.key, facts, name_role=block.name_role))
    if not blocks:
        text = "No key does this. Esc clears the filter."
        blocks.append(ParagraphBlock("none", [(text, "dim")]))
    return ReaderDocument(f"help:{words}", page.title, blocks)


def _contains_all(text: str, words: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)


class HelpScreen(StyledScreen):
    """A screen with a help page; `f` or `/` filters it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "go_back", show=False),
        Binding("q,question_mark", "dismiss", show=False),
        Binding("f,slash", "filter", show=False),
        *MOVE_BINDINGS,
    ]

    def __init__(self, page: ReaderDocument) -> None:
        super().__init__()
        self._page = page
        self.reader = DocumentView()
        self.filter_bar = LabeledInput("help-filter", "filter")

    def compose(self) -> ComposeResult:
        with Vertical(id="page", classes="pane") as pane:
            pane.border_title = "Help"
            pane.border_subtitle = "f: filter · Esc: close"
            yield self.filter_bar
            yield self.reader

    def on_mount(self) -> None:
        self.reader.show_document(self._page)
        self.reader.focus()

    def action_filter(self) -> None:
        self.filter_bar.show_input()

    @on(Input.Changed)
    def _show_matching_keys(self, event: Input.Changed) -> None:
        self.reader.show_document(filter_help_document(self._page, event.value))

    @on(Input.Submitted)
    def _focus_page(self) -> None:
        self.reader.focus()

    @on(PaneInput.EscapePressed)
    def action_go_back(self) -> None:
        """Clear the filter; if there is none, close the help."""
        if self.filter_bar.display:
            self.filter_bar.hide_input()
            self.reader.focus()
        else:
            self.dismiss()
