"""The reader: draws what is in sight of a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from kbtui.tui.framework.command import MOVING_BINDINGS
from kbtui.tui.framework.partial_repaint import StableScrollView
from kbtui.tui.framework.styled_widget import StyledWidget
from kbtui.tui.reader.viewport import Position, Viewport

if TYPE_CHECKING:
    from textual import events
    from textual.binding import BindingType
    from textual.geometry import Region
    from textual.selection import Selection

    from kbtui.tui.framework.styled_text import StyledLine
    from kbtui.tui.navigation import ScrollAnchor
    from kbtui.tui.reader.document import Document


class DocumentView(StyledWidget, StableScrollView, can_focus=True):
    """Shows one document; its owner gives it, and hears where one is reading."""

    ALLOW_MAXIMIZE = False
    ALLOW_SELECT: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [*MOVING_BINDINGS]

    class Moved(Message):
        """Another line is being read, or another document is shown."""

    def __init__(self) -> None:
        super().__init__(id="document")
        self.port = Viewport()
        self._syncing = False
        self._painting = False
        self._painted: tuple[list[tuple[Position, StyledLine]], Position] = ([], Position())

    @property
    def document(self) -> Document:
        """What is shown."""
        return self.port.document

    def show(self, document: Document, at: ScrollAnchor | None = None) -> None:
        """Show a document from its top, or from a place in it."""
        self._measure()
        self.port.show(document, at)
        self.changed()

    def reload(self, document: Document) -> None:
        """Show the same document as it is now, where one was reading."""
        self.port.reload(document)
        self.changed()

    def _measure(self) -> None:
        region = self.scrollable_content_region
        if not region:
            return  # hidden: laid out for the size that it has when it is shown
        # One column belongs to the mark of the line being read.
        self.port.resize(max(8, region.width - 1), region.height)

    def changed(self) -> None:
        """Paint again after the viewport was moved or changed, and say so."""
        self._sync()
        self.paint_again()
        self.post_message(self.Moved())

    def paint_again(self) -> None:
        """Paint the lines that are not as they were painted last."""
        rows, cursor = self.port.rows, self.port.cursor
        (before, was), self._painted = self._painted, (rows, cursor)
        if not rows or len(before) != len(rows):
            self.paint_lines(None)
            return
        self.paint_lines(
            [
                y
                for y, (old, new) in enumerate(zip(before, rows, strict=True))
                if old[0] != new[0] or old[1] is not new[1] or new[0] in (was, cursor)
            ]
        )

    def _sync(self) -> None:
        """Tell the scroll bar, which knows lines of the whole document, by estimate."""
        port = self.port
        self._syncing = True
        try:
            self.say_size(Size(port.width, port.heights.total))
            if not self.is_vertical_scrollbar_grabbed:
                line = port.heights.before(port.top.block) + port.top.line
                self.scroll_y = self.scroll_target_y = line
        finally:
            self._syncing = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The scroll bar was moved."""
        super().watch_scroll_y(old_value, new_value)
        if not self._syncing and round(old_value) != round(new_value):
            self.port.scroll_to_line(round(new_value))
            self.changed()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size, at the line one was reading."""
        self._measure()
        self.changed()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines to be painted, for which nobody needs to know where in the text they are."""
        self._painting = True
        try:
            return super().render_lines(crop)
        finally:
            self._painting = False

    def render_line(self, y: int) -> Strip:
        """Line `y` of what is in sight; for the mouse, with where in the text each piece is.

        With that no two pieces look alike, and none that was painted before could be used again.
        """
        width = self.scrollable_content_region.width
        if y >= len(self.port.rows):
            return Strip.blank(width, self.ground)
        position, line = self.port.rows[y]
        here = position == self.port.cursor
        base = ("cursor" if self.has_focus else "cursor-off") if here else ""
        lead = ("▎" if here else " ", "accent" if here else "")
        strip = self.paint([lead, *line.spans], width, base)
        absolute = self.port.heights.before(position.block) + position.line
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(absolute)) is not None:
            strip = self._selected(strip, *span)
        return strip if self._painting else strip.apply_offsets(0, absolute)

    def _selected(self, strip: Strip, start: int, end: int) -> Strip:
        style = self.screen.get_component_rich_style("screen--selection")
        end = strip.cell_length if end == -1 else end
        middle = strip.crop(start, end).apply_style(style)
        return Strip.join([strip.crop(0, start), middle, strip.crop(end)])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without the cursor's column."""
        if selection.start is None or selection.end is None:
            return None
        texts = []
        for y in range(selection.start.y, selection.end.y + 1):
            block, number = self.port.heights.find(y)
            span = selection.get_span(y)
            lines = self.port.lines(block) if self.document.blocks else []
            if span is None or number >= len(lines):
                continue
            text = f" {lines[number].plain}"
            start, end = max(1, span[0]), span[1]
            texts.append((text[start:] if end == -1 else text[start:end]).rstrip())
        return "\n".join(texts), "\n"

    def text_select_all(self) -> None:
        """A double click selects nothing: all of a long document is never wanted."""

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint again."""
        self.refresh()

    # moving

    def action_down(self) -> None:
        """One line down."""
        self.port.move(1)
        self.changed()

    def action_up(self) -> None:
        """One line up."""
        self.port.move(-1)
        self.changed()

    def action_half_down(self) -> None:
        """Half a page down."""
        self.port.turn_page(max(1, self.port.height // 2))
        self.changed()

    def action_half_up(self) -> None:
        """Half a page up."""
        self.port.turn_page(-max(1, self.port.height // 2))
        self.changed()

    def action_page_down(self) -> None:
        """A page down; one line stays."""
        self.port.turn_page(max(1, self.port.height - 1))
        self.changed()

    def action_page_up(self) -> None:
        """A page up; one line stays."""
        self.port.turn_page(-max(1, self.port.height - 1))
        self.changed()

    def action_top(self) -> None:
        """To the beginning."""
        self.port.go_start()
        self.changed()

    def action_bottom(self) -> None:
        """To the end."""
        self.port.go_end()
        self.changed()

    # the mouse

    def _on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.port.scroll(3)
        self.changed()
        event.stop().prevent_default()

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.port.scroll(-3)
        self.changed()
        event.stop().prevent_default()

    def on_click(self, event: events.Click) -> None:
        """Read the line that was clicked; a click on a fold opens or closes it."""
        if not 0 <= event.y < len(self.port.rows):
            return
        self.port.cursor = Position(*self.port.rows[event.y][0])
        block = self.document.blocks[self.port.cursor.block]
        if block.key in self.document.fold_kinds and self.port.cursor.line >= block.above:
            self.port.toggle(block.key)
        self.changed()
