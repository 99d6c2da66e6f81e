"""The layout of the main screen's panes: visibility, widths and focus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.geometry import Size
    from textual.screen import Screen
    from textual.widget import Widget

    from kbtui.tui.citations_pane import CitationsPane
    from kbtui.tui.library_pane import LibraryPane
    from kbtui.tui.reader.reader_pane import ReaderPane
    from kbtui.tui.search_pane import ResultsPane


WIDTH_CLASSES = [(0, "-one"), (72, "-two"), (104, "-three"), (150, "-wide")]
"""The minimum width of a screen in cells, and its CSS class; `-one` shows one pane at a time."""
HEIGHT_CLASSES = [(0, "-low"), (14, "-high")]
"""The minimum height of a screen in lines, and its CSS class."""
DEFAULT_WIDTHS = {
    "-two": {"library": 30, "citations": 32},
    "-three": {"library": 34, "citations": 28},
    "-wide": {"library": 42, "citations": 40},
}
"""Width class -> the widths of the panes in cells; the reader gets the remaining width."""
READER_MAX_WIDTH = 110
"""The maximum width of the reader in cells in a wide terminal.

The citations get the remaining width (see `kbtui.tcss`).
"""
MIN_WIDTH = 16
"""The minimum width of a pane in cells; the minimum of the reader is twice this width."""

FOCUS_TARGETS = {
    "library": "#library-list",
    "reader": "#document",
    "citations": "#citations-list",
    "results": "#results-list",
}
"""Pane id -> the selector of the widget to focus; the id is also the scope of the pane's commands."""

FOLDABLE = ("library", "citations")


class PaneLayoutController:
    """Shows, folds, resizes and focuses the panes of a screen.

    It sets CSS classes on the screen; `kbtui.tcss` defines the layout for them.
    """

    def __init__(
        self,
        screen: Screen[Any],
        library: LibraryPane,
        results: ResultsPane,
        reader: ReaderPane,
        citations: CitationsPane,
    ) -> None:
        self._screen = screen
        self.library, self.results = library, results
        self.reader, self.citations = reader, citations
        self.extra_widths: dict[str, int] = {}
        """Pane id -> how many cells the pane is wider than its default, negative if narrower."""
        self._grabbed_border: tuple[str, int] | None = None
        self._size: Size | None = None

    # focus

    @property
    def focused_pane(self) -> str | None:
        """The id of the focused pane, or None if no pane has the focus."""
        return self._find_pane_name(self._screen.focused)

    def _find_pane_name(self, widget: Widget | None) -> str | None:
        while widget is not None and widget is not self._screen:
            if widget.id in FOCUS_TARGETS:
                return widget.id
            widget = widget.parent  # type: ignore[assignment]
        return None

    def focus_widget(self, selector: str) -> None:
        """Focus a widget by its CSS selector, and show its pane."""
        target = self._screen.query_one(selector)
        self.show_pane(self._find_pane_name(target))
        self._screen.set_focus(target)

    def show_pane(self, name: str | None) -> None:
        """Unfold a pane, and make it the visible pane if the terminal has room for only one."""
        if name is None:
            return
        screen = self._screen
        for other in FOCUS_TARGETS:
            screen.set_class(other == name, f"at-{other}")
        screen.remove_class(f"no-{name}")
        if name == "citations":
            screen.add_class("citing")
        elif name == "library":
            screen.remove_class("citing")

    def focus_next_pane(self, step: int) -> None:
        """Focus the next pane (1) or the previous one (-1)."""
        if self._screen.has_class("searching"):
            order = ["#search", "#results-list", "#document"]
        else:
            order = [
                FOCUS_TARGETS[name]
                for name in ("library", "reader", "citations")
                if name not in self.folded_panes or name == self.focused_pane
            ]
        here = [
            self._find_pane_name(self._screen.query_one(name)) == self.focused_pane
            for name in order
        ]
        now = here.index(True) if True in here else -1
        self.focus_widget(order[(now + step) % len(order)])

    # folding

    @property
    def folded_panes(self) -> list[str]:
        """The ids of the folded panes."""
        return [name for name in FOLDABLE if self._screen.has_class(f"no-{name}")]

    def fold_pane_if_focused(self, name: str) -> bool:
        """Fold a pane; return False if it is not focused or cannot be folded."""
        if name not in FOLDABLE or self.focused_pane != name:
            return False
        screen = self._screen
        if screen.has_class("-one"):
            self.focus_widget("#document")
            return True
        screen.remove_class("zoomed")
        if name == "citations":
            screen.remove_class("citing")
        if not (name == "citations" and screen.has_class("-two")):
            screen.add_class(f"no-{name}")
        self.focus_widget("#document")
        self.apply_widths()
        return True

    def restore_layout(self, folded: list[str], extra_widths: dict[str, int]) -> None:
        """Fold and resize the panes as in the saved session."""
        for name in folded:
            self._screen.add_class(f"no-{name}")
        if self.focused_pane in folded and not self._screen.has_class("-one"):
            self.focus_widget("#document")  # A hidden pane cannot keep the focus.
        self.extra_widths = dict(extra_widths)
        self.apply_widths()

    def toggle_zoom(self) -> None:
        """Show the focused pane alone, or all panes again."""
        self._screen.toggle_class("zoomed")
        self.apply_widths()

    # widths

    def get_css_size_classes(self, size: Size) -> dict[str, bool]:
        """Map each size class to whether a screen of this size has it."""
        classes = {}
        for room, breakpoints in ((size.width, WIDTH_CLASSES), (size.height, HEIGHT_CLASSES)):
            has = max(one for one in breakpoints if room >= one[0])
            classes.update({one[1]: one is has for one in breakpoints})
        return classes

    def update_size(self) -> None:
        """Set the size classes before Textual does, to avoid a second layout."""
        size = self._screen.app.size
        before, self._size = self._size, size
        if before is not None and before != size:
            self._screen.update_classes(self.get_css_size_classes(size), animate=False)
            self.apply_widths()
        self._screen.call_after_refresh(self.apply_widths)

    @property
    def _get_css_width_class(self) -> str | None:
        return next((name for name in DEFAULT_WIDTHS if self._screen.has_class(name)), None)

    def _get_default_width(self, name: str) -> int:
        kind, total = self._get_css_width_class, self._screen.app.size.width
        if name == "results":
            return total // 2
        width = DEFAULT_WIDTHS[kind][name] if kind else 0
        if name == "citations" and kind == "-wide":
            return max(width, total - self._get_neighbour_width(name) - READER_MAX_WIDTH)
        return width

    def _get_neighbour_width(self, name: str) -> int:
        """Return the width of the pane on the other side of the reader, or 0 if it is hidden."""
        other = {"library": "citations", "citations": "library"}.get(name)
        if other is None or not self._screen.query_one(f"#{other}").display:
            return 0
        return max(MIN_WIDTH, self._get_default_width(other) + self.extra_widths.get(other, 0))

    def apply_widths(self) -> None:
        """Set the widths of the panes for the size of the screen."""
        kind, total = self._get_css_width_class, self._screen.app.size.width
        alone = self._screen.has_class("zoomed")
        for name in ("library", "citations", "results"):
            pane = self._screen.query_one(f"#{name}")
            wanted = name in self.extra_widths or (name == "citations" and kind == "-wide")
            usable = kind is not None and not alone and wanted
            if not usable or (name == "results" and kind == "-two"):
                if pane.styles.inline.has_rule("width"):
                    pane.styles.clear_rule("width")
                    pane.refresh(layout=True)
                continue
            most = total - 2 * MIN_WIDTH - self._get_neighbour_width(name)
            width = self._get_default_width(name) + self.extra_widths.get(name, 0)
            pane.styles.width = max(MIN_WIDTH, min(width, most))

    def widen_pane(self, name: str | None, by: int) -> bool:
        """Widen a pane by `by` cells and narrow the reader; return False if this is impossible."""
        if self._get_css_width_class is None or name is None:
            return False
        if name == "reader":
            name, by = ("results" if self._screen.has_class("searching") else "library"), -by
        pane = self._screen.query_one(f"#{name}")
        if not pane.display or pane.size.width == 0:
            return False
        before = pane.outer_size.width
        self.extra_widths[name] = before - self._get_default_width(name) + by
        self.apply_widths()
        # Store the width after limiting it, so that the opposite command takes effect immediately.
        if (width := pane.styles.width) is not None:
            self.extra_widths[name] = int(width.value) - self._get_default_width(name)
        return True

    def reset_layout(self) -> None:
        """Reset the widths of the panes, and unfold them."""
        self._screen.remove_class("zoomed", *(f"no-{name}" for name in FOLDABLE))
        self.extra_widths.clear()
        self.apply_widths()

    # dragging a border

    def grab_border(self, x: int, y: int) -> bool:
        """Grab the border at this position; return False if there is no border."""
        if self._get_css_width_class is None:
            return False
        for name, edge in (("library", "right"), ("results", "right"), ("citations", "left")):
            region = self._screen.query_one(f"#{name}").region
            if not region.width or not region.y <= y < region.bottom:
                continue
            at = region.right - 1 if edge == "right" else region.x
            beyond = at + 1 if edge == "right" else at - 1
            if x in (at, beyond) and 0 < x < self._screen.size.width - 1:
                self._grabbed_border = (name, x)
                return True
        return False

    def drag_border(self, x: int) -> None:
        """Move the grabbed border to a column."""
        if self._grabbed_border is None:
            return
        name, before = self._grabbed_border
        by = x - before if name != "citations" else before - x
        if by and self.widen_pane(name, by):
            self._grabbed_border = (name, x)

    def release_border(self) -> bool:
        """Release the grabbed border; return False if there was none."""
        grabbed, self._grabbed_border = self._grabbed_border is not None, None
        return grabbed
