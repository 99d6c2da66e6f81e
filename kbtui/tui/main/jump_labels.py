"""Jump labels: letters on rows and links, digits on panes; typing a label goes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.segment import Segment
from textual.strip import Strip

from kbtui.tui.framework.styled_widget import StyledScreen, StyledWidget
from kbtui.tui.main.pane_layout import FOCUS_TARGETS
from kbtui.tui.reader.document_blocks import FoldHeadingBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual import events
    from textual.app import ComposeResult

    from kbtui.tui.framework.row_list import RowList
    from kbtui.tui.main.pane_layout import PaneLayout
    from kbtui.tui.reader.document_view import LinePosition

LETTERS = "asdfghjklqwertyuiopzxcvbnm"


class JumpLabel(NamedTuple):
    """A label: its position on the screen, its letters, and the function to call when they are typed."""

    x: int
    y: int
    label: str
    go: Callable[[], object]


def find_jump_targets(panes: PaneLayout, open_link: Callable[[], object]) -> list[JumpLabel]:
    """Return labels for everything visible: digits for panes, letters for rows and links."""
    found: list[JumpLabel] = []
    shown = (panes.library, panes.reader, panes.citations, panes.results)
    for digit, pane in zip("1234", shown, strict=True):
        if pane.region.width:
            go = lambda name=pane.id: panes.focus_widget(FOCUS_TARGETS[name])  # noqa: E731
            found.append(JumpLabel(pane.region.right - 3, pane.region.y, digit, go))
    places = [*_find_row_labels(panes), *_find_link_labels(panes, open_link)]
    return found + [
        JumpLabel(x, y, label, go)
        for (x, y, go), label in zip(places, _make_letter_labels(len(places)), strict=False)
    ]


def _make_letter_labels(count: int) -> list[str]:
    if count <= len(LETTERS):
        return list(LETTERS)
    return [one + other for one in LETTERS for other in LETTERS]


def _find_row_labels(
    panes: PaneLayout,
) -> Iterator[tuple[int, int, Callable[[], object]]]:
    for pane in (panes.library, panes.results, panes.citations):
        found: RowList = pane.list
        if not found.region.width:
            continue
        for line, row in found.iterate_visible_rows():

            def open_row(found: RowList = found, key: str = row.key, owner: object = pane) -> None:
                panes.focus_widget(f"#{found.id}")
                found.select_row(key)
                owner.action_open()  # type: ignore[attr-defined]

            yield found.region.x, found.region.y + line, open_row


def _find_link_labels(
    panes: PaneLayout, open_link: Callable[[], object]
) -> Iterator[tuple[int, int, Callable[[], object]]]:
    """Yield a target for each visible line of the reader that has a fold or a link."""
    reader = panes.reader.document_view
    if not reader.region.width:
        return
    for y, (position, line) in enumerate(reader.viewport.rows):
        block = reader.document.blocks[position.block]
        head = position.line == block.above and (isinstance(block, FoldHeadingBlock) or block.link)
        link = any("link" in roles.split() for _, roles in line.spans)
        if not (head or link):
            continue

        def go_to_link(position: LinePosition = position, head: bool = bool(head)) -> None:
            panes.focus_widget("#document")
            reader.viewport.cursor = position
            reader.update_view()
            if head:
                panes.reader.action_fold()
            else:
                open_link()

        yield reader.region.x, reader.region.y + y, go_to_link


class _ScreenPictureWithLabels(StyledWidget):
    """A copy of the screen below, with labels on it."""

    def __init__(self, strips: list[Strip], places: list[JumpLabel]) -> None:
        super().__init__(id="labelled")
        self._strips, self._spots = strips, places
        self.typed = ""

    def render_line(self, y: int) -> Strip:
        """Draw a line of the copied screen with its labels."""
        strip = self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)
        screen = self.screen
        assert isinstance(screen, StyledScreen)
        style = self.base_style + screen.get_role_style("found-here")
        for target in self._spots:
            if target.y == y and target.label.startswith(self.typed):
                label = target.label[len(self.typed) :]
                after = strip.crop(target.x + len(label))
                strip = Strip.join([strip.crop(0, target.x), Strip([Segment(label, style)]), after])
        return strip


class JumpLabelScreen(StyledScreen):
    """A screen that shows the labels; its result is the function of the label that the user types.

    Any other key or a click cancels.
    """

    INHERIT_BINDINGS: ClassVar[bool] = False

    def __init__(
        self, below: StyledScreen, panes: PaneLayout, open_link: Callable[[], object]
    ) -> None:
        super().__init__()
        self.targets = find_jump_targets(panes, open_link)
        self._picture = _ScreenPictureWithLabels(
            list(below._compositor.render_strips()), self.targets
        )

    def compose(self) -> ComposeResult:
        """Yield a copy of the screen below, with the labels drawn over it."""
        yield self._picture

    def on_key(self, event: events.Key) -> None:
        """Handle a letter of a label."""
        event.stop()
        event.prevent_default()
        typed = self._picture.typed + (event.character or " ")
        fitting = [target for target in self.targets if target.label.startswith(typed)]
        if not fitting:
            self.dismiss(None)
        elif fitting[0].label == typed:
            self.dismiss(fitting[0].go)
        else:
            self._picture.typed = typed
            self._picture.refresh()

    def on_click(self) -> None:
        """Cancel."""
        self.dismiss(None)

    def on_resize(self, event: events.Resize) -> None:
        """Cancel, because the copied lines have the old size."""
        if self.is_current and len(self._picture._strips) not in (0, event.size.height):
            self.dismiss(None)
