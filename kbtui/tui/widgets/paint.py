"""From lines with roles to strips with colours: the one place where text meets the terminal.

Whatever reaches a strip is made safe here once more, so that nothing in a file
can be obeyed by a terminal, even if a builder forgot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from kbtui.text import one_line, safe
from kbtui.tui.document.lines import fit, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.tui.document.lines import Span

_NAMES = """
    accent assistant code code-inline comment cursor cursor-off day deleted dim emph error found
    found-here function h1 h2 h3 h4 h5 h6 html inserted key keyword link marker note number quote
    rule section string strong struck tool turn type user warning
"""
ROLES = frozenset(_NAMES.split())


def plain(text: str) -> Content:
    """Somebody else's text for a title or a label: safe, on one line, never read as markup."""
    return Content(one_line(text))


class RoleScreen(Screen[Any]):
    """A screen that knows how each role looks; the styles file says it as `.r-<role>`."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"r-{role}" for role in ROLES}

    def __init__(self) -> None:
        super().__init__()
        self._role_styles: dict[str, Style] = {}
        self.look = 0
        """Counts changes of style, so that widgets know when to paint again."""

    def notify_style_update(self) -> None:
        """Forget the roles' styles: the theme may be another one."""
        super().notify_style_update()
        self._role_styles = {}
        self.look += 1

    def files_changed(self) -> None:
        """Called on the screen on top when files of the workspace changed."""

    def may_leave(self) -> bool:
        """Whether nothing would be lost by leaving; a screen that says no asks."""
        return True

    def role_style(self, roles: str) -> Style:
        """The style of one role or several, later ones winning."""
        style = self._role_styles.get(roles)
        if style is None:
            style = Style()
            for role in roles.split():
                if role in ROLES:
                    style += self.get_component_rich_style(f"r-{role}", partial=True)
            self._role_styles[roles] = style
        return style


class Painted(Widget, inherit_bindings=False):
    """A widget that draws lines with roles."""

    def paint(self, spans: Sequence[Span], width: int, base: str = "", indent: int = 0) -> Strip:
        """A strip of exactly `width` cells; `base` is a role for the whole of it."""
        screen = self.screen
        if not isinstance(screen, RoleScreen):
            return Strip.blank(width)
        ground = self.rich_style + screen.role_style(base) if base else self.rich_style
        segments: list[Segment] = [Segment(" " * indent, ground)] if indent else []
        room = width - indent
        for text, roles in spans if width_of(spans) <= room else fit(spans, room):
            clean = safe(text)
            if "\n" in clean or "\t" in clean:
                clean = clean.replace("\n", " ").replace("\t", " ")
            if clean:
                segments.append(
                    Segment(clean, ground + screen.role_style(roles) if roles else ground)
                )
        return Strip(segments).adjust_cell_length(width, ground)
