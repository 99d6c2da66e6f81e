"""The help screen, and the base classes of other secondary screens."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import on
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from kbtui.errors import format_error_on_one_line
from kbtui.tui.framework.background_workers import LatestOnlyWorker
from kbtui.tui.framework.base_screens_and_widgets import (
    ALWAYS_AVAILABLE_ACTIONS,
    LabeledInput,
    LeftAndRightTextLine,
    StyledScreen,
    TextInputInPane,
    make_plain_label_text,
)
from kbtui.tui.framework.dialogs import ClickableHintLine, WrappedMessageWidget
from kbtui.tui.framework.styled_text import Spans, join_span_texts
from kbtui.tui.framework.tui_command_definition import (
    MOVE_BINDINGS,
    format_fitting_key_hints,
    format_key_hints,
    make_dialog_bindings,
)
from kbtui.tui.generated_reader_pages import build_screen_help_document
from kbtui.tui.reader.document_view import DocumentView
from kbtui.tui.reader.reader_blocks import (
    FactTableReaderBlock,
    LeftAndRightLineBlock,
    ParagraphReaderBlock,
    ReaderBlock,
)
from kbtui.tui.reader.reader_document import ReaderDocument
from kbtui.tui.tui_command_table import (
    find_key_label_of_command,
    list_commands_of_scopes,
    make_key_bindings_of_scopes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from textual.app import ComposeResult
    from textual.widget import Widget

    from kbtui.engine.engine_protocol import IndexChangedEvent
    from kbtui.library import Library
    from kbtui.tui.framework.row_list import RowList
    from kbtui.tui.framework.tui_command_definition import TuiCommand
    from kbtui.tui.tui_command_table import Scope


def filter_help_document(page: ReaderDocument, words: str) -> ReaderDocument:
    """Return a help page with only the table rows that match `words`.

    A row matches if the row and its heading together contain all words. A heading without rows is
    left out.
    """
    wanted = words.casefold().split()
    if not wanted:
        return page
    blocks: list[ReaderBlock] = []
    heading: LeftAndRightLineBlock | None = None
    for block in page.blocks:
        if isinstance(block, LeftAndRightLineBlock):
            heading = block
        elif isinstance(block, FactTableReaderBlock):
            title = heading.get_searchable_text() if heading else ""
            facts = [
                (name, value)
                for name, value in block.facts
                if contains_all_words(f"{name} {join_span_texts(value)} {title}", wanted)
            ]
            if facts and heading is not None:
                above = int(bool(blocks))
                blocks.append(
                    LeftAndRightLineBlock(heading.key, heading.left, heading.right, above=above)
                )
            if facts:
                blocks.append(FactTableReaderBlock(block.key, facts, name_role=block.name_role))
    if not blocks:
        text = "No key does this. Esc clears the filter."
        blocks.append(ParagraphReaderBlock("none", [(text, "dim")]))
    return ReaderDocument(f"help:{words}", page.title, blocks)


def contains_all_words(text: str, words: list[str]) -> bool:
    """Return whether a text contains all `words`, ignoring case. The words must be case-folded."""
    folded = text.casefold()
    return all(word in folded for word in words)


class DocumentOverlayScreen(StyledScreen):
    """A screen that shows a document over another screen.

    If there is a `confirm_label`, the key `y` closes the screen with the result True.
    """

    BINDINGS = make_dialog_bindings("page") + MOVE_BINDINGS

    def __init__(self, title: str, page: ReaderDocument, confirm_label: str = "") -> None:
        super().__init__()
        self._title, self._page, self._confirm_label = title, page, confirm_label
        self.reader = DocumentView()

    def compose(self) -> ComposeResult:
        with Vertical(id="page", classes="pane") as pane:
            pane.border_title = make_plain_label_text(self._title)
            confirm = f"y: {self._confirm_label} · n or Esc: no"
            keys = confirm if self._confirm_label else "Esc: close"
            pane.border_subtitle = make_plain_label_text(keys)
            yield self.reader

    def on_mount(self) -> None:
        self.reader.show_document(self._page)
        self.reader.focus()

    def action_confirm(self) -> None:
        """If the screen has a `confirm_label`, close it with the result True."""
        if self._confirm_label:
            self.dismiss(True)


class HelpScreen(StyledScreen):
    """A screen with a help page, which the user can filter by words."""

    BINDINGS = make_key_bindings_of_scopes("help") + MOVE_BINDINGS

    def __init__(self, page: ReaderDocument) -> None:
        super().__init__()
        self._page = page
        self.reader = DocumentView()
        self.filter_bar = LabeledInput("help-filter", "filter")

    def compose(self) -> ComposeResult:
        with Vertical(id="page", classes="pane") as pane:
            pane.border_title = "Help"
            keys = self.configured_keys
            names = {"help.filter": "filter", "help.back": "close"}
            labels = [(find_key_label_of_command(one, keys), does) for one, does in names.items()]
            pane.border_subtitle = " · ".join(f"{key}: {does}" for key, does in labels if key)
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

    @on(TextInputInPane.EscapePressed)
    def action_go_back(self) -> None:
        """Clear the filter. If there is no filter, close the help."""
        if self.filter_bar.display:
            self.filter_bar.hide_input()
            self.reader.focus()
        else:
            self.dismiss()


T = TypeVar("T")


class SecondaryScreen(StyledScreen):
    """The base class of screens with panes and with lines for totals, a message and key hints.

    Subclasses set `SCOPE` to the scope of their commands. The screen reads its data after it has been
    painted for the first time. When it closes, it returns the reference of an entry to open, or None.
    """

    HEADING: ClassVar[str]
    SCOPE: ClassVar[Scope]
    NOTES: ClassVar[Sequence[str]] = ()
    """Remarks at the end of the screen's help page."""
    DEFAULT_CSS = """
    SecondaryScreen {
        #totals { height: 1; padding: 0 1; background: $background; }
        #keys { height: 1; padding: 0 1; background: $surface; }
    }
    """

    def __init_subclass__(cls, **options: Any) -> None:
        if hasattr(cls, "SCOPE"):
            cls.BINDINGS = make_key_bindings_of_scopes(cls.SCOPE)
        super().__init_subclass__(**options)

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.library = library
        self.reader = DocumentView()
        self.message_line = WrappedMessageWidget("said")
        self.worker = LatestOnlyWorker(self)
        self._is_refusal = False
        """Whether the message says why the last key did nothing. The next key removes the message."""

    def compose_panes(self) -> ComposeResult:
        """Yield the panes: by default, one pane with a document."""
        with Vertical(id="page-pane", classes="pane") as pane:
            pane.border_title = self.HEADING
            yield self.reader

    def make_widgets_below_panes(self) -> Iterable[Widget]:
        """Return the widgets between the panes and the totals line."""
        return ()

    def compose(self) -> ComposeResult:
        with Horizontal(id="panes"):
            yield from self.compose_panes()
        yield from self.make_widgets_below_panes()
        yield LeftAndRightTextLine(id="totals")
        yield self.message_line
        yield ClickableHintLine(id="keys")

    def on_mount(self) -> None:
        self.call_after_refresh(self.action_reload)

    def on_resize(self) -> None:
        self.call_after_refresh(self.show_key_hints)

    @property
    def has_loaded_content(self) -> bool:
        """Whether the screen has loaded its data. Most keys wait until it has."""
        return True

    def should_key_wait(self, key: str) -> bool:
        return (
            not self.has_loaded_content
            and self._find_key_action(key)[1] not in ALWAYS_AVAILABLE_ACTIONS
        )

    def run_in_thread(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], Any],
        worker: LatestOnlyWorker | None = None,
    ) -> None:
        """Run `work` in a thread, then call `on_done` with its result.

        If `work` raises an error, show the error.
        """
        (worker or self.worker).submit_call(work, on_done, self.show_error)

    @abstractmethod
    def action_reload(self) -> None:
        """Reload the data that the screen shows."""

    def handle_files_changed(self, event: IndexChangedEvent) -> None:
        self.action_reload()

    @property
    def command_condition_states(self) -> dict[str, bool]:
        """For each condition of this screen's commands, whether it is met now.

        The conditions are values of `TuiCommand.needs`.
        """
        return {}

    def get_key_label(self, name: str) -> str:
        """Return the label of a command's first key, or "no key".

        `name` is the id of the command without the scope.
        """
        return find_key_label_of_command(f"{self.SCOPE}.{name}", self.configured_keys) or "no key"

    def list_hinted_commands(self) -> list[TuiCommand]:
        """Return the commands for which key hints may be shown."""
        return list_commands_of_scopes(self.SCOPE, keymap=self.configured_keys)

    def show_key_hints(self) -> None:
        """Show hints for the keys that work now. If an input has the focus, show only the input's keys."""
        bar = self.query_one("#keys", LeftAndRightTextLine)
        if isinstance(self.focused, Input):
            bar.set_edge_texts(format_key_hints([("Enter", "accept"), ("Esc", "leave the input")]))
            return
        commands, width = self.list_hinted_commands(), bar.content_size.width
        met = [need for need, is_met in self.command_condition_states.items() if is_met]
        bar.set_edge_texts(format_fitting_key_hints(commands, width, met))

    def on_descendant_focus(self) -> None:
        self.show_key_hints()

    def make_help_blocks(self) -> Sequence[ReaderBlock]:
        """Return extra blocks that the help page shows after the keys."""
        return ()

    def action_help(self) -> None:
        page = build_screen_help_document(
            self.SCOPE, self.NOTES, self.configured_keys, self.make_help_blocks()
        )
        self.app.push_screen(HelpScreen(page))

    def show_message(self, text: str = "", role: str = "strong") -> None:
        """Show a message. It stays until another message replaces it."""
        self.message_line.set_message(text, role)
        self._is_refusal = False

    def show_unavailable_key_message(self, text: str) -> None:
        """Show a message that says why a key does nothing here. The next key removes the message."""
        self.show_message(text, "warning")
        self._is_refusal = True

    def clear_unavailable_key_message(self) -> None:
        """Remove the message of `show_unavailable_key_message`, if it is still shown."""
        if self._is_refusal:
            self.show_message()

    def show_totals_line(self, *forms: tuple[Spans, Spans]) -> None:
        """Show totals at the left and right edges of the line below the panes.

        `forms` are variants of the line, longest first. The first one that fits is shown.
        """
        self.query_one("#totals", LeftAndRightTextLine).set_line_variants([*forms])

    def format_error_on_one_line(self, error: Exception) -> str:
        """Return an error on one line, with paths relative to the workspace."""
        return format_error_on_one_line(error, self.library.workspace.root)

    def show_error(self, error: Exception) -> None:
        """Show an error in the message line."""
        self.show_message(self.format_error_on_one_line(error), "error")

    @property
    def cursor_block(self) -> ReaderBlock | None:
        """The block under the cursor, or None if the page is empty."""
        port = self.reader.viewport
        return port.document.blocks[port.cursor.block] if port.document.blocks else None

    def show_document(self, document: ReaderDocument) -> None:
        """Show a document. If it is a new version of the shown document, keep the position."""
        if self.reader.document.key == document.key:
            self.reader.show_reloaded_document(document)
        else:
            self.reader.show_document(document)

    def go_to_next_wanted_block(
        self, step: int, is_wanted: Callable[[ReaderBlock], bool], lead: int | None = None
    ) -> None:
        """Go to the next block for which `is_wanted` returns true.

        If `step` is -1, go to the previous one. If there is no such block, do nothing. `lead` is the
        number of lines to show above that block.
        """
        port = self.reader.viewport
        here, blocks = port.cursor.block, port.document.blocks
        beyond = range(here + 1, len(blocks)) if step > 0 else range(here - 1, -1, -1)
        for number in beyond:
            if is_wanted(blocks[number]):
                port.go_to_block_line(number, blocks[number].above, lead)
                self.reader.redraw_after_viewport_change()
                return

    def action_leave(self) -> None:
        if self.can_close_or_ask_first():
            self.dismiss(None)


class ListDetailScreen(SecondaryScreen):
    """A screen with a list on the left and the details of the selected row on the right.

    In a narrow terminal, only one of the two panes is visible.
    """

    AUTO_FOCUS = "RowList"
    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (110, "-broad")]  # noqa: RUF012
    DEFAULT_CSS = """
    ListDetailScreen {
        #listed { width: 5fr; }
        #detail { width: 3fr; }
        &.-slim #detail { display: none; width: 1fr; }
        &.-slim.detailed #detail { display: block; }
        &.-slim.detailed #listed { display: none; }
    }
    """

    def __init__(self, library: Library, listing: RowList) -> None:
        super().__init__(library)
        self.list = listing

    def compose_list_pane(self) -> Iterable[Widget]:
        """Return the widgets of the left pane: by default, only the list."""
        return [self.list]

    @abstractmethod
    def action_back(self) -> None:
        """Close an open part of the screen, such as the filter. If no part is open, leave the screen."""

    def compose_panes(self) -> ComposeResult:
        """Yield the list pane and the detail pane."""
        with Vertical(id="listed", classes="pane") as pane:
            pane.border_title = self.HEADING
            yield from self.compose_list_pane()
        with Vertical(id="detail", classes="pane"):
            yield self.reader

    def show_document(self, document: ReaderDocument) -> None:
        """Show a document in the right pane."""
        super().show_document(document)
        self.query_one("#detail", Vertical).border_title = make_plain_label_text(document.title)

    @on(Input.Submitted)
    def _on_input_submitted(self) -> None:
        self.set_focus(self.list)

    @on(TextInputInPane.EscapePressed)
    def _on_input_escaped(self) -> None:
        self.action_back()

    @property
    def is_detail_pane_focused(self) -> bool:
        """Whether the right pane has the focus."""
        return self.focused is self.reader

    def focus_detail_pane(self) -> None:
        """Focus the right pane; in a narrow terminal, also show it."""
        self.add_class("detailed")
        self.set_focus(self.reader)
        self.show_key_hints()

    def focus_list_pane(self, widget: Widget | None = None) -> None:
        """Focus the list, or `widget` in the left pane; in a narrow terminal, also show the left pane."""
        self.remove_class("detailed")
        self.set_focus(widget or self.list)
        self.show_key_hints()
