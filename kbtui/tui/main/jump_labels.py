"""Jump labels: letters on rows and links, and digits on panes. The user types a label to go to its place."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.strip import Strip

from kbtui.light_named_tuple import NamedTuple
from kbtui.tui.framework.base_screens_and_widgets import StyledScreen, StyledTextWidget
from kbtui.tui.framework.dialogs import LETTERS
from kbtui.tui.framework.tui_command_definition import format_key_hints
from kbtui.tui.main.pane_layout import FOCUS_TARGETS, PaneLayout
from kbtui.tui.reader.reader_blocks import FoldHeadingBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual import events

    from kbtui.tui.citations_pane import CitationsPane
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library_pane import LibraryPane
    from kbtui.tui.reader.document_view import DocumentLinePosition
    from kbtui.tui.search_pane import SearchResultsPane

    JumpTarget = tuple[int, int, int, Callable[[], object]]


class JumpLabel(NamedTuple):
    """A label: its position on the screen, and its letters.

    When the user types the letters, `go` is called.

    If `right` is 0, the label replaces the text at its position. Otherwise, the label is inserted,
    and the text from the label up to column `right` is shifted right. To make room, the last gap in
    this text becomes smaller. If the text has no gap, its end is cut.
    """

    x: int
    y: int
    label: str
    go: Callable[[], object]
    right: int = 0


def make_jump_labels(panes: PaneLayout, open_link: Callable[[], object]) -> list[JumpLabel]:
    """Return labels for everything visible: digits for panes, letters for rows and links."""
    found: list[JumpLabel] = []
    shown = (panes.library, panes.reader, panes.citations, panes.results)
    for digit, pane in zip("1234", shown, strict=True):
        if pane.region.width:
            go = partial(panes.focus_widget, FOCUS_TARGETS[pane.id or ""])
            found.append(JumpLabel(pane.region.right - 3, pane.region.y, digit, go))
    targets = [
        *_find_visible_row_targets(panes),
        *_find_visible_fold_and_link_targets_in_reader(panes, open_link),
    ]
    letters = list(LETTERS)
    if len(targets) > len(letters):
        letters = [one + other for one in LETTERS for other in LETTERS]
    pairs = zip(targets, letters, strict=False)
    return [*found, *(JumpLabel(x, y, label, go, right) for (x, y, right, go), label in pairs)]


def _find_visible_row_targets(panes: PaneLayout) -> Iterator[JumpTarget]:
    for pane in (panes.library, panes.results, panes.citations):
        rows = pane.list.iterate_visible_rows() if pane.list.region.width else ()
        for line, row in rows:

            def open_row(
                pane: LibraryPane | SearchResultsPane | CitationsPane = pane, key: str = row.key
            ) -> None:
                panes.focus_widget(f"#{pane.list.id}")
                pane.list.select_row(key)
                pane.action_open_selected_row()

            region = pane.list.scrollable_content_region
            yield pane.list.region.x, pane.list.region.y + line, region.right, open_row


def _find_visible_fold_and_link_targets_in_reader(
    panes: PaneLayout, open_link: Callable[[], object]
) -> Iterator[JumpTarget]:
    """For each visible fold heading and each visible line with a link in the reader, yield a target."""
    reader = panes.reader.document_view
    for y, (position, line) in enumerate(reader.viewport.rows if reader.region.width else ()):
        block = reader.document.blocks[position.block]
        can_open = isinstance(block, FoldHeadingBlock) or block.can_be_opened
        is_head = bool(position.line == block.above and can_open)

        def go_to_link(position: DocumentLinePosition = position, is_head: bool = is_head) -> None:
            panes.focus_widget("#document")
            reader.viewport.cursor = position
            reader.redraw_after_viewport_change()
            if is_head:
                panes.reader.action_toggle_fold_or_open_link()
            else:
                open_link()

        if is_head or any("link" in roles.split() for _, roles in line.spans):
            right = reader.scrollable_content_region.right
            yield reader.region.x, reader.region.y + y, right, go_to_link


def _make_room_for_label_in_row(strip: Strip, cells: int) -> Strip:
    """Shorten a row by `cells` cells, so that a label of this width can be inserted.

    Make the last gap of the row smaller. If it has no gap, cut more of a title that is already cut,
    or else the end of the row.
    """
    width = strip.cell_length
    for at in range(width - cells, -1, -1):
        if strip.crop(at, at + cells + 1).text == " " * (cells + 1):
            return Strip.join([strip.crop(0, at), strip.crop(at + cells)])
    end = strip.text.rfind("… ")
    if end > cells and width == len(strip.text):
        return Strip.join([strip.crop(0, end - cells), strip.crop(end)])
    return Strip.join([strip.crop(0, width - cells - 1), Strip([Segment("…")])])


class JumpLabelScreen(StyledScreen):
    """A screen that shows a copy of the screen below it, with jump labels.

    When the user types a label, the screen closes and returns the function of the label. A click,
    or a key that matches no label, closes the screen without a result.
    """

    def __init__(
        self, below: StyledScreen, panes: PaneLayout, open_link: Callable[[], object]
    ) -> None:
        super().__init__()
        self.labels = make_jump_labels(panes, open_link)
        self._strips = list(below._compositor.render_strips())
        self._typed = ""
        self._hint_line = below.query_one("#hints", StyledTextWidget)

    def _make_key_hints(self) -> Spans:
        """Return the key hints, which replace those of the screen below."""
        digits = [one.label for one in self.labels if one.label.isdigit()]
        letters = "letters" if not self._typed else f"{self._typed} + letter"
        pairs = [(letters, "open what they label")]
        if digits and not self._typed:
            pairs.append((f"{digits[0]}…{digits[-1]}", "pane"))
        return format_key_hints([*pairs, ("Esc", "leave")])

    def render_line(self, y: int) -> Strip:
        if self._hint_line.region and y == self._hint_line.region.y:
            hints = [(" ", ""), *self._make_key_hints()]
            return self._hint_line.render_spans(hints, self.size.width)
        strip = self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)
        style = self.visual_style.rich_style + self.get_role_style("found-here")
        for x, row, label, _, right in self.labels:
            if row == y and label.startswith(self._typed):
                left = label.removeprefix(self._typed)
                before, after = strip.crop(0, x), strip.crop(x + len(left))
                if right:
                    # The first column of a row has no text.
                    row_text = _make_room_for_label_in_row(strip.crop(x + 1, right), len(left))
                    after = Strip.join([Strip([Segment(" ")]), row_text, strip.crop(right)])
                strip = Strip.join([before, Strip([Segment(left, style)]), after])
        return strip

    def on_key(self, event: events.Key) -> None:
        """Add a letter to the typed label.

        Close the screen if the label is complete, or if no label begins with the letters typed so
        far.
        """
        event.stop()
        event.prevent_default()
        self._typed += event.character or " "
        fitting = [one for one in self.labels if one.label.startswith(self._typed)]
        if not fitting:
            self.dismiss(None)
        elif fitting[0].label == self._typed:
            self.dismiss(fitting[0].go)
        self.refresh()

    def on_click(self) -> None:
        """Close the screen without a result."""
        self.dismiss(None)

    def on_resize(self, event: events.Resize) -> None:
        """Close the screen without a result, because it shows the main screen in its old size."""
        if self.is_current and len(self._strips) not in (0, event.size.height):
            self.dismiss(None)
