"""How wide the panes of the main screen are: usual widths, what a person changed, dragging."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.widget import Widget

    from kbtui.tui.screens.panes import PaneScreen

USUAL = {
    "-two": {"library": 30, "citations": 32},
    "-three": {"library": 34, "citations": 28},
    "-wide": {"library": 42, "citations": 40},
}
"""Cells, by the screen's width class; the reader has what is left."""
READER_MOST = 110
"""Longer lines are hard to read; of a wide terminal the citations have what is left (kbtui.tcss)."""
LEAST = 16
"""No pane is made narrower, and the reader not narrower than twice that."""


class Widths:
    """Keeps the widths of a screen's panes; `more` are the cells that a pane has beyond the usual."""

    def __init__(self, screen: PaneScreen) -> None:
        self._screen = screen
        self.more: dict[str, int] = {}
        self._grabbed: tuple[str, int] | None = None

    @property
    def _class(self) -> str | None:
        return next((name for name in USUAL if self._screen.has_class(name)), None)

    def _usual(self, name: str) -> int:
        kind, total = self._class, self._screen.app.size.width
        if name == "results":
            return total // 2
        usual = USUAL[kind][name] if kind else 0
        if name == "citations" and kind == "-wide":
            return max(usual, total - self._beside(name) - READER_MOST)
        return usual

    def apply(self) -> None:
        """Give the panes their widths for the size that the screen has."""
        kind, total = self._class, self._screen.app.size.width
        alone = self._screen.has_class("zoomed")
        for name in ("library", "citations", "results"):
            pane = self._screen.query_one(f"#{name}")
            wanted = name in self.more or (name == "citations" and kind == "-wide")
            usable = kind is not None and not alone and wanted
            if not usable or (name == "results" and kind == "-two"):
                if pane.styles.inline.has_rule("width"):
                    pane.styles.clear_rule("width")
                    pane.refresh(layout=True)
                continue
            most = total - 2 * LEAST - self._beside(name)
            pane.styles.width = max(LEAST, min(self._usual(name) + self.more.get(name, 0), most))

    def _beside(self, name: str) -> int:
        """Cells of the pane that shares the screen with this one and the reader."""
        other = {"library": "citations", "citations": "library"}.get(name)
        if other is None or not self._screen.query_one(f"#{other}").display:
            return 0
        return max(LEAST, self._usual(other) + self.more.get(other, 0))

    def change(self, name: str | None, by: int) -> bool:
        """Make a pane wider by so many cells; the reader by taking them from its neighbour."""
        if self._class is None or name is None:
            return False
        if name == "reading":
            name, by = ("results" if self._screen.has_class("searching") else "library"), -by
        pane = self._screen.query_one(f"#{name}")
        if not pane.display or pane.size.width == 0:
            return False
        before = pane.outer_size.width
        self.more[name] = before - self._usual(name) + by
        self.apply()
        self._bound(name)
        return True

    def _bound(self, name: str) -> None:
        """Forget what lies beyond the bounds, so that the way back is as long as the way there."""
        width = self._screen.query_one(f"#{name}").styles.width
        if width is not None:
            self.more[name] = int(width.value) - self._usual(name)

    def reset(self) -> None:
        """The usual widths."""
        self.more.clear()
        self.apply()

    # dragging

    def grab(self, x: int, y: int) -> bool:
        """Take hold of the border between two panes at these cells; False where there is none."""
        if self._class is None:
            return False
        for name, edge in (("library", "right"), ("results", "right"), ("citations", "left")):
            pane: Widget = self._screen.query_one(f"#{name}")
            region = pane.region
            if not region.width or not region.y <= y < region.bottom:
                continue
            at = region.right - 1 if edge == "right" else region.x
            beyond = at + 1 if edge == "right" else at - 1
            if x in (at, beyond) and 0 < x < self._screen.size.width - 1:
                self._grabbed = (name, x)
                return True
        return False

    def drag(self, x: int) -> None:
        """Move the border that one holds."""
        if self._grabbed is None:
            return
        name, before = self._grabbed
        by = x - before if name != "citations" else before - x
        if by and self.change(name, by):
            self._grabbed = (name, x)

    def let_go(self) -> bool:
        """Let go of the border; says whether one held it."""
        held, self._grabbed = self._grabbed is not None, None
        return held
