"""Which panes of the main screen are shown, and how wide they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Input

from kbtui.tui.framework.styled_widget import StyledScreen
from kbtui.tui.main.status_bar import KeyHints

if TYPE_CHECKING:
    from textual import events
    from textual.geometry import Size
    from textual.widget import Widget

    from kbtui.tui.commands import Scope


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


class PaneWidths:
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
        if name == "reader":
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


SCOPES: dict[str, Scope] = {
    "library": "library",
    "reader": "reader",
    "citations": "citations",
    "results": "results",
}
"""Pane -> the scope of its commands."""

INSIDE = {
    "library": "#library-list",
    "reader": "#document",
    "citations": "#citations-list",
    "results": "#results-list",
}
"""Pane -> what has the focus in it."""

FOLDS = ("library", "citations")
"""Panes that can be folded away."""


_PAUSE = 0.005
"""Seconds between layout and paint for a new size."""


class PaneScreen(StyledScreen):
    """A screen of panes; the styles file says by the classes set here which are shown."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-one"),
        (72, "-two"),
        (104, "-three"),
        (150, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (14, "-high")]  # noqa: RUF012
    # Where there is room for one pane only, it is this one.
    DEFAULT_CLASSES = "at-library"

    def __init__(self) -> None:
        super().__init__()
        self.hints = KeyHints()
        self.widths = PaneWidths(self)
        self._fitted: Size | None = None
        self._waits = False
        """Whether what a new size looks like is still to be painted."""

    def fit(self, size: Size) -> None:
        """Have the classes of a size from the beginning: what follows is laid out once."""
        self.update_classes(self._classes_for(size), update=False)

    def _classes_for(self, size: Size) -> dict[str, bool]:
        """Which of the classes of sizes a size has."""
        classes = {}
        for room, breakpoints in (
            (size.width, self.HORIZONTAL_BREAKPOINTS),
            (size.height, self.VERTICAL_BREAKPOINTS),
        ):
            has = max(one for one in breakpoints if room >= one[0])
            classes.update({one[1]: one is has for one in breakpoints})
        return classes

    @property
    def pane(self) -> str | None:
        """The pane that has the focus."""
        return self._pane_of(self.focused)

    def _pane_of(self, widget: Widget | None) -> str | None:
        while widget is not None and widget is not self:
            if widget.id in SCOPES:
                return widget.id
            widget = widget.parent  # type: ignore[assignment]
        return None

    def go(self, selector: str) -> None:
        """Focus something, and show the pane that it is in."""
        target = self.query_one(selector)
        self._show_pane(self._pane_of(target))
        self.set_focus(target)

    def _show_pane(self, name: str | None) -> None:
        """Where there is no room for all panes, show this one."""
        if name is None:
            return
        for other in SCOPES:
            self.set_class(other == name, f"at-{other}")
        self.remove_class(f"no-{name}")
        if name == "citations":
            self.add_class("citing")
        elif name == "library":
            self.remove_class("citing")

    def action_next_pane(self) -> None:
        """Go to the next pane."""
        self._cycle(1)

    def action_previous_pane(self) -> None:
        """Go to the previous pane."""
        self._cycle(-1)

    def _cycle(self, step: int) -> None:
        if self.has_class("searching"):
            order = ["#search", "#results-list", "#document"]
        else:
            order = ["#library-list", "#document", "#citations-list"]
            folded = [INSIDE[name] for name in FOLDS if self.has_class(f"no-{name}")]
            order = [name for name in order if name not in folded or self._is_here(name)]
        now = next((n for n, name in enumerate(order) if self._is_here(name)), -1)
        self.go(order[(now + step) % len(order)])

    def _is_here(self, selector: str) -> bool:
        return self._pane_of(self.query_one(selector)) == self.pane

    # widths and folding

    def fold(self, name: str) -> bool:
        """Fold the pane away that one is in; False where it is the only one."""
        if name not in FOLDS or self.pane != name:
            return False
        if self.has_class("-one"):
            self.go("#document")
            return True
        self.remove_class("zoomed")
        if name == "citations":
            self.remove_class("citing")
        if not (name == "citations" and self.has_class("-two")):
            self.add_class(f"no-{name}")
        self.go("#document")
        self.widths.apply()
        return True

    @property
    def folded(self) -> list[str]:
        """The panes that were folded away."""
        return [name for name in FOLDS if self.has_class(f"no-{name}")]

    def action_zoom(self) -> None:
        """Show this pane alone, or all of them again."""
        self.toggle_class("zoomed")
        self.widths.apply()

    def action_widen(self, by: int) -> None:
        """Make the pane wider by so many cells, or narrower."""
        self.widths.change(self.pane, by)

    def action_usual_widths(self) -> None:
        """Give all panes their usual widths, and unfold them."""
        self.remove_class("zoomed", *(f"no-{name}" for name in FOLDS))
        self.widths.reset()

    def on_resize(self) -> None:
        """Give the panes what a new size means for them, before Textual does the rest.

        So all is laid out once, and painted afterwards: each as a piece of work of its own.
        """
        size = self.app.size
        before, self._fitted = self._fitted, size
        if before is not None and before != size:
            if not self._waits:
                self._waits = True
                self.set_timer(_PAUSE, self._paint)
            self.update_classes(self._classes_for(size), animate=False)
            self.widths.apply()
        self.call_after_refresh(self.widths.apply)

    def _paint(self) -> None:
        self._waits = False
        self.refresh()

    def _compositor_refresh(self) -> None:
        """Not right after the layout for a new size, but when others had their turn."""
        if not self._waits:
            super()._compositor_refresh()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Take hold of a border between panes."""
        if self.widths.grab(event.screen_x, event.screen_y):
            event.stop()
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the border that one holds."""
        self.widths.drag(event.screen_x)

    def on_mouse_up(self) -> None:
        """Let go of it."""
        if self.widths.let_go():
            self.release_mouse()

    def on_descendant_focus(self) -> None:
        """Show the keys that matter here."""
        self.point()

    def point(self) -> None:
        """Show the keys that matter where one is."""
        where = self.pane
        self._show_pane(where)
        typing = (self.focused.id or "input") if isinstance(self.focused, Input) else ""
        scopes: tuple[Scope, ...] = (SCOPES[where], "everywhere") if where else ("everywhere",)
        self.hints.point(*scopes, typing=typing, offers=self.offers())

    def offers(self) -> frozenset[str]:
        """What there is that commands can need."""
        return frozenset()
