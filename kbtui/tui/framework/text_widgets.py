"""Small widgets: a line of text, paragraphs, a message, and inputs."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

from rich.highlighter import Highlighter
from textual import events
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from kbtui.text import sanitize_to_one_line
from kbtui.tui.framework.styled_text import (
    Spans,
    StyledLines,
    align_spans_to_edges,
    capitalize_first_word_unless_name,
    join_span_texts,
    wrap_spans,
)
from kbtui.tui.framework.styled_widget import StyledWidget
from kbtui.tui.framework.tui_command import PUNCTUATION_KEYS, find_hinted_key_at

if TYPE_CHECKING:
    from rich.text import Text
    from textual.binding import BindingType
    from textual.geometry import Size
    from textual.strip import Strip


class LeftAndRightTextLine(StyledWidget):
    """A line with text at its left and right edges."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.left: Spans = []
        self.right: Spans = []

    def set_edge_texts(self, left: Spans, right: Spans | None = None) -> None:
        """Set the texts at the left and the right edge of the line."""
        if (left, right or []) != (self.left, self.right):
            self.left, self.right = left, right or []
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        spans = align_spans_to_edges(self.left, self.right, width) if y == 0 else []
        return self.render_spans(spans, width)

    @property
    def text(self) -> str:
        """The text without styles."""
        return join_span_texts([*self.left, *self.right])


def press_hinted_key(widget: Widget, spans: Spans, x: int) -> None:
    """Press the key whose hint covers cell `x` of a line of key hints."""
    if key := find_hinted_key_at(spans, x):
        character = PUNCTUATION_KEYS.get(key) or (key if len(key) == 1 else None)
        widget.app.post_message(events.Key(key, character))


class ClickableHintLine(LeftAndRightTextLine):
    """A line of key hints. A click on a hint presses its key."""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        press_hinted_key(self, self.left, event.x - self.gutter.left)


class WrappedParagraphs(StyledWidget):
    """A widget with wrapped paragraphs, shown in place of the widget `covered` while there are paragraphs."""

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = "WrappedParagraphs { height: auto; padding: 0 1; background: $surface; }"

    def __init__(self, covered: Widget) -> None:
        super().__init__()
        self._covered = covered
        self._paragraphs: list[Spans] = []
        self.display = False

    def set_paragraphs(self, paragraphs: list[Spans]) -> None:
        """Set the paragraphs."""
        if paragraphs != self._paragraphs:
            self._paragraphs = paragraphs
            self.display = bool(paragraphs)
            pane = self._covered.parent
            if self.display and isinstance(pane, Widget) and not self.is_attached:
                pane.mount(self, before=self._covered)
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._wrap_paragraphs(width))

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        lines = self._wrap_paragraphs(width)
        return self.render_spans(lines[y].spans if y < len(lines) else [], width)

    def _wrap_paragraphs(self, width: int) -> StyledLines:
        return [line for spans in self._paragraphs for line in wrap_spans(spans, max(8, width))]


MAX_MESSAGE_LINES = 4


class MessageLine(StyledWidget):
    """A message on at most `MAX_MESSAGE_LINES` wrapped lines. Any further lines are cut off."""

    ALLOW_SELECT: ClassVar[bool] = False
    DEFAULT_CSS = "MessageLine { height: 1; padding: 0 1; background: $background; }"

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.text = ""
        self._role = ""
        self._lines: StyledLines = []

    def set_message(self, text: str, role: str) -> None:
        """Set the message."""
        # The name of a key must not be capitalized.
        self.text = (
            sanitize_to_one_line(text)
            if role == "key"
            else capitalize_first_word_unless_name(sanitize_to_one_line(text))
        )
        self._role = role
        self._wrap_message()

    def on_resize(self) -> None:
        self._wrap_message()

    def _wrap_message(self) -> None:
        width = self.content_size.width
        lines = wrap_spans([(self.text, self._role)], width) if width and self.text else []
        self._lines = lines[:MAX_MESSAGE_LINES]
        self.styles.height = max(1, len(self._lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        spans = self._lines[y].spans if y < len(self._lines) else []
        return self.render_spans(spans, self.content_size.width)


class SanitizedInput(Input):
    """An input that sanitizes pasted text and joins it to one line."""

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert_text_at_cursor(sanitize_to_one_line(event.text, "strip"))


class PaneInput(SanitizedInput):
    """An input in a pane.

    Esc always leaves the input, whatever keys the user has assigned to the pane.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    class EscapePressed(Message):
        """The user pressed Esc in the input."""

    def action_leave(self) -> None:
        self.post_message(self.EscapePressed())


class CompletingInput(PaneInput):
    """An input in a pane of the main screen; Tab accepts the suggested completion."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "accept_completion", show=False)]

    async def action_accept_completion(self) -> None:
        """Accept the suggested completion. If there is none, focus the next pane."""
        if self._suggestion and self.cursor_at_end:
            self.action_cursor_right()
        else:
            await self.screen.run_action("focus_next_pane(1)")


class QueryErrorHighlighter(Highlighter):
    """Underlines the mistakes in an input, at the offsets in `spans`."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def highlight(self, text: Text) -> None:
        for start, end in self.spans:
            text.stylize("bold underline", start, end)


class LabeledInput(Horizontal):
    """A label and an input, hidden until `show_input` is called."""

    def __init__(
        self,
        name: str,
        label: str,
        highlighter: Highlighter | None = None,
        input_class: type[PaneInput] = PaneInput,
    ) -> None:
        super().__init__(classes="entry")
        self._label = label
        self._create_input = partial(input_class, id=name, compact=True, highlighter=highlighter)
        self.display = False

    @cached_property
    def input(self) -> PaneInput:
        """The input widget. It is created when this property is first read."""
        return self._create_input()

    def on_mount(self) -> None:
        """Mount the label and the input after the first paint, because they are hidden at first."""
        self.call_after_refresh(self._mount_label_and_input)

    def _mount_label_and_input(self) -> None:
        if self.is_attached and not self.input.is_attached:
            sign = LeftAndRightTextLine(classes="entry-word")
            sign.left = [(self._label, "key")]
            self.mount(sign, self.input)

    def show_input(self) -> None:
        """Show the input and focus it."""
        self._mount_label_and_input()
        self.display = True
        self.screen.set_focus(self.input)
        self.input.action_end()

    def hide_input(self) -> None:
        """Hide and clear the input."""
        self.display = False
        self.input.value = ""
