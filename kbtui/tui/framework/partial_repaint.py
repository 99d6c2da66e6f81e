"""Views that repaint only the lines that changed, where Textual would lay out or paint all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from collections.abc import Collection

    from textual.content import Content


class StableScrollView(ScrollView, inherit_bindings=False):
    """A view that is told how much there is to scroll, again and again, while one reads in it."""

    def say_size(self, size: Size) -> None:
        """Let the scroll bar know, without laying out the screen for it.

        That is only needed where the bar comes and goes, or where its own size depends on this.
        """
        if size == self.virtual_size:
            return
        if self.styles.overflow_y == "auto" or self.styles.auto_dimensions:
            self.virtual_size = size
            return
        self.set_reactive(Widget.virtual_size, size)
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.window_virtual_size = size.height

    def paint_lines(self, changed: Collection[int] | None) -> None:
        """Paint the changed lines of what is in sight; None: all of it."""
        if changed is None or 2 * len(changed) > self.scrollable_content_region.height:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Paint again: only the regions, unless the view is hidden.

        A hidden view has no size, so the changed lines are unknown, and Textual would show it
        again with the lines that it painted last.
        """
        if not self.region:
            regions = ()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


class BorderOnlyPane(Widget, inherit_bindings=False):
    """A pane that its children cover: only its border is to be seen, and what that says changes often."""

    _edge: Region | None = None

    def say_below(self, words: Content | str) -> None:
        """Say something in the lower border, which alone is painted."""
        if getattr(self, "_below", None) == words:
            return
        self._below = words
        size = self.outer_size
        last = Region(0, size.height - 1, size.width, 1)
        self._edge = last.translate(-self.content_offset) if size else None
        try:
            self.border_subtitle = words
        finally:
            self._edge = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """The border's first line and its last; between them one line, again and again.

        As one strip it is cut only once for what covers it.
        """
        last = self.outer_size.height - 1
        lines: dict[int, Strip] = {}
        for y in {0 if y == 0 else last if y == last else 1 for y in crop.line_range}:
            lines[y] = super().render_lines(Region(crop.x, y, crop.width, 1))[0]
        return [lines[y if y in (0, last) else 1] for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        """Nothing, which is covered."""
        return Strip.blank(self.size.width, self.visual_style.rich_style)

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Paint again; while the border is changed, only that."""
        if self._edge is not None and not (regions or layout or recompose):
            regions = (self._edge,)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
