"""The layout of the main screen's panes: visibility, widths and focus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbtui.tui.citations_pane import CitationsPane
from kbtui.tui.library_pane import LibraryPane
from kbtui.tui.reader.reader_pane import ReaderPane
from kbtui.tui.search_pane import SearchResultsPane

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.geometry import Size
    from textual.screen import Screen
    from textual.widget import Widget

    from kbtui.dates import Clock
    from kbtui.library import Library


WIDTH_CLASSES = [(0, "-one"), (72, "-two"), (104, "-three"), (150, "-wide")]
"""Pairs of a width in cells and a CSS class. The screen has the class of the greatest width that fits.

With the class `-one`, the screen shows one pane at a time.
"""
HEIGHT_CLASSES = [(0, "-tiny"), (9, "-low"), (14, "-high")]
"""Pairs of a height in lines and a CSS class. The screen has the class of the greatest height that fits."""
DEFAULT_WIDTHS = {
    "-two": {"library": 30, "citations": 32},
    "-three": {"library": 34, "citations": 28, "outline": 48},
    "-wide": {"library": 42, "citations": 40, "outline": 50},
}
"""The default widths of the panes in cells, by width class. The reader gets the remaining width."""
READER_MAX_WIDTH = 110
"""The maximum width in cells of the reader in a wide terminal. `kbtui.tcss` contains the same number."""
MIN_WIDTH = 16
"""The minimum width of a pane in cells. The reader is at least twice as wide."""

FOCUS_TARGETS = {
    "library": "#library-list",
    "reader": "#document",
    "citations": "#citations-list",
    "results": "#results-list",
    "outline": "#outline-filter",
}
"""The CSS selector of the widget that gets the focus in each pane, by pane id.

The id is also the scope of the pane's commands.
"""

STYLES_AFTER_FIRST_PAINT = Path(__file__).parents[1] / "kbtui_after_first_paint.tcss"

FOLDABLE = ("library", "citations")
COVERING = ("results", "outline")
"""The panes that cover all other panes if the terminal has room for two panes."""


class PaneLayout:
    """Creates the panes of a screen, and shows, folds, resizes and focuses them.

    A `PaneLayout` sets CSS classes on the screen. The files `kbtui.tcss` and
    `kbtui_after_first_paint.tcss` define the layout for each class.
    """

    def __init__(self, screen: Screen[Any], library: Library, clock: Clock) -> None:
        self._screen = screen
        self.library = LibraryPane(library, clock)
        self.results = SearchResultsPane(clock)
        self.reader = ReaderPane()
        self.citations = CitationsPane(library, clock, self.reader.document_view)
        self.extra_widths: dict[str, int] = {}
        """The difference between each resized pane's width and its default width, in cells, by pane id."""
        self._grabbed_border: tuple[str, int] | None = None
        self._size: Size | None = None

    def load_remaining_styles(self) -> None:
        """Load the styles that the first paint usually does not need: those of dialogs and of other layouts."""
        styles, path = self._screen.app.stylesheet, STYLES_AFTER_FIRST_PAINT
        styles.add_source(path.read_text("utf-8"), (str(path), ""))
        # A key may have changed the layout already.
        styles.update_nodes(self._screen.query_one("#panes").children, animate=False)

    # focus

    @property
    def focused_pane_id(self) -> str | None:
        """The id of the focused pane, or None if no pane has the focus."""
        return self._find_pane_id(self._screen.focused)

    def _find_pane_id(self, widget: Widget | None) -> str | None:
        nodes = widget.ancestors_with_self if widget else ()
        return next((node.id for node in nodes if node.id in FOCUS_TARGETS), None)

    def focus_widget(self, selector: str) -> None:
        """Focus a widget by its CSS selector, and show its pane."""
        target = self._screen.query_one(selector)
        self.show_pane(self._find_pane_id(target))
        self._screen.set_focus(target)

    def show_pane(self, name: str | None) -> None:
        """Unfold a pane. If the terminal has room for only one pane, show this pane.

        If `name` is None, do nothing.
        """
        if name is None:
            return
        classes = {f"at-{other}": other == name for other in FOCUS_TARGETS} | {f"no-{name}": False}
        if name in ("citations", "library", "outline"):
            classes["citing"] = name == "citations"
        if name in ("library", "outline"):
            # The outline is in the place of the library.
            classes["outlining"] = name == "outline"
        elif self._screen.has_class("-one") or self._screen.has_class("-two"):
            classes["outlining"] = False
        self.update_layout_css_classes(classes)

    def update_layout_css_classes(self, classes: Mapping[str, bool]) -> None:
        """Set or remove layout classes of the screen.

        `classes` maps a class to True to set it, or to False to remove it.

        Only the styles of the panes are computed again, because there are no rules about other
        widgets for these classes. Textual's `update_classes` would compute the styles of all
        widgets, which takes nine times as long.
        """
        before = self._screen.classes
        self._screen.update_classes(classes, update=False)
        if self._screen.classes != before:
            panes = self._screen.query_one("#panes").children
            self._screen.app.stylesheet.update_nodes(panes, animate=False)

    def focus_next_pane(self, step: int) -> None:
        """Focus the next pane if `step` is 1, or the previous pane if `step` is -1."""
        if self._screen.has_class("searching"):
            order = ["#search", "#results-list", "#document"]
        else:
            order = [
                FOCUS_TARGETS[name]
                for name in (self.library_or_outline_pane_id, "reader", "citations")
                if name not in self.folded_pane_ids or name == self.focused_pane_id
            ]
        panes = [self._find_pane_id(self._screen.query_one(selector)) for selector in order]
        now = panes.index(self.focused_pane_id) if self.focused_pane_id in panes else -1
        self.focus_widget(order[(now + step) % len(order)])

    @property
    def library_or_outline_pane_id(self) -> str:
        """The id of the pane to the left of the reader: the library, or the outline that covers it."""
        return "outline" if self._screen.has_class("outlining") else "library"

    @property
    def is_outline_open(self) -> bool:
        """Whether the outline is open. In a narrow terminal, another pane may cover an open outline."""
        return self._screen.has_class("outlining")

    def close_outline(self) -> None:
        """Close the outline, and focus the reader. The library appears again."""
        self.focus_widget("#document")
        self.update_layout_css_classes({"outlining": False})
        self.apply_pane_widths()

    # folding

    @property
    def folded_pane_ids(self) -> list[str]:
        """The ids of the folded panes."""
        return [name for name in FOLDABLE if self._screen.has_class(f"no-{name}")]

    def fold_pane_if_focused(self, name: str) -> bool:
        """Fold a pane if it is focused and can be folded; return whether it was folded."""
        if name not in FOLDABLE or self.focused_pane_id != name:
            return False
        screen = self._screen
        if not screen.has_class("-one"):
            classes = {"zoomed": False}
            if name == "citations":
                classes["citing"] = False
            if name != "citations" or not screen.has_class("-two"):
                classes[f"no-{name}"] = True
            self.update_layout_css_classes(classes)
        self.focus_widget("#document")
        self.apply_pane_widths()
        return True

    def unfold_panes(self) -> None:
        """Unfold all folded panes. The focus stays where it is."""
        self._screen.remove_class(*(f"no-{name}" for name in FOLDABLE))
        self.apply_pane_widths()

    def restore_pane_layout(self, folded: list[str], extra_widths: dict[str, int]) -> None:
        """Fold and resize the panes as in the saved session."""
        self.update_layout_css_classes({f"no-{name}": True for name in folded})
        if self.focused_pane_id in folded and not self._screen.has_class("-one"):
            self.focus_widget("#document")  # A hidden pane cannot keep the focus.
        self.extra_widths = dict(extra_widths)
        self.apply_pane_widths()

    def toggle_pane_zoom(self) -> None:
        """Show the focused pane alone, or all panes again."""
        self.update_layout_css_classes({"zoomed": not self._screen.has_class("zoomed")})
        self.apply_pane_widths()

    # widths

    def set_screen_size_css_classes(self, size: Size, *, update: bool = True) -> None:
        """Set the CSS classes for a screen size before Textual does.

        If Textual set them, the screen would be laid out a second time.
        """
        classes: dict[str, bool] = {}
        for room, breakpoints in ((size.width, WIDTH_CLASSES), (size.height, HEIGHT_CLASSES)):
            fitting = max(one for one in breakpoints if room >= one[0])
            classes |= {one[1]: one is fitting for one in breakpoints}
        self._screen.update_classes(classes, update=update, animate=False)

    def adapt_layout_to_terminal_size(self) -> None:
        """Adapt the panes to the new size of the terminal."""
        size = self._screen.app.size
        if self._size not in (None, size):
            self.set_screen_size_css_classes(size)
            self.apply_pane_widths()
        self._size = size
        self._screen.call_after_refresh(self.apply_pane_widths)

    @property
    def _screen_width_css_class(self) -> str | None:
        return next((name for name in DEFAULT_WIDTHS if self._screen.has_class(name)), None)

    def _get_default_pane_width(self, name: str) -> int:
        width_class, total = self._screen_width_css_class, self._screen.app.size.width
        if name == "results":
            return total // 2
        width = DEFAULT_WIDTHS[width_class].get(name, 0) if width_class else 0
        if name == "citations" and width_class == "-wide":
            return max(
                width, total - self._get_width_of_pane_across_reader(name) - READER_MAX_WIDTH
            )
        return width

    def _get_width_of_pane_across_reader(self, name: str) -> int:
        """Return the width of the pane on the other side of the reader.

        If no pane is visible there, return 0. `name` is the id of the pane on this side of the
        reader.
        """
        opposites = {
            "library": "citations",
            "outline": "citations",
            "citations": self.library_or_outline_pane_id,
        }
        other = opposites.get(name)
        if other is None or not self._screen.query_one(f"#{other}").display:
            return 0
        return max(MIN_WIDTH, self._get_default_pane_width(other) + self.extra_widths.get(other, 0))

    def apply_pane_widths(self) -> None:
        """Set the widths of the panes for the current screen size."""
        width_class, total = self._screen_width_css_class, self._screen.app.size.width
        is_zoomed = self._screen.has_class("zoomed")
        for pane in self._screen.query("#library, #citations, #results, #outline"):
            name = pane.id or ""
            is_set = name in self.extra_widths or (name, width_class) == ("citations", "-wide")
            is_alone = width_class is None or (width_class == "-two" and name in COVERING)
            if is_set and not is_alone and not is_zoomed:
                most = total - 2 * MIN_WIDTH - self._get_width_of_pane_across_reader(name)
                width = self._get_default_pane_width(name) + self.extra_widths.get(name, 0)
                pane.styles.width = max(MIN_WIDTH, min(width, most))
            elif pane.styles.inline.has_rule("width"):
                pane.styles.clear_rule("width")
                pane.refresh(layout=True)

    def widen_focused_pane(self, by: int) -> None:
        """Widen the focused pane by `by` cells. If `by` is negative, the pane becomes narrower."""
        if self.focused_pane_id:
            self.widen_pane(self.focused_pane_id, by)

    def widen_pane(self, name: str, by: int) -> bool:
        """Widen a pane by `by` cells, and return whether this was possible.

        The reader becomes narrower. If `name` is the reader itself, the pane on its left becomes
        narrower.
        """
        if self._screen_width_css_class is None:
            return False
        if name == "reader":
            is_searching = self._screen.has_class("searching")
            name, by = ("results" if is_searching else self.library_or_outline_pane_id), -by
        pane = self._screen.query_one(f"#{name}")
        if not pane.display or pane.size.width == 0:
            return False
        before = pane.outer_size.width
        self.extra_widths[name] = before - self._get_default_pane_width(name) + by
        self.apply_pane_widths()
        # Store the width after limiting it, so that the opposite command takes effect immediately.
        if (width := pane.styles.width) is not None:
            self.extra_widths[name] = int(width.value) - self._get_default_pane_width(name)
        return True

    def reset_pane_layout(self) -> None:
        """Reset the widths of the panes, and unfold them."""
        self.update_layout_css_classes(
            {"zoomed": False, **{f"no-{name}": False for name in FOLDABLE}}
        )
        self.extra_widths.clear()
        self.apply_pane_widths()

    def start_dragging_pane_border(self, x: int, y: int) -> bool:
        """Start dragging the pane border at (`x`, `y`). Return whether there is a border at this position."""
        if self._screen_width_css_class is None or not 0 < x < self._screen.size.width - 1:
            return False
        for pane in self._screen.query("#library, #results, #citations, #outline"):
            name, region = pane.id or "", pane.region
            edge = region.x if name == "citations" else region.right
            if region.width and region.y <= y < region.bottom and x in (edge - 1, edge):
                self._grabbed_border = (name, x)
                return True
        return False

    def drag_pane_border(self, x: int) -> None:
        """Move the grabbed border to column `x` of the screen."""
        if self._grabbed_border:
            name, before = self._grabbed_border
            by = before - x if name == "citations" else x - before
            if by and self.widen_pane(name, by):
                self._grabbed_border = (name, x)

    def stop_dragging_pane_border(self) -> bool:
        """Stop dragging a border. Return False if no border was being dragged."""
        grabbed, self._grabbed_border = self._grabbed_border is not None, None
        return grabbed
