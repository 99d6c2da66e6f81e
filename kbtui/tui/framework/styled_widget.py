"""Screens, widgets and scroll views that draw spans of styled text.

Text is made safe here once more, so that a terminal never obeys a file's contents, even
where the code that built the spans forgot to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rich.segment import Segment
from rich.style import Style
from textual.await_complete import AwaitComplete
from textual.color import Color
from textual.content import Content
from textual.geometry import Region, Size
from textual.keys import key_to_character
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from kbtui.text import one_line, sanitize
from kbtui.tui.framework.command import PUNCTUATION_KEYS
from kbtui.tui.framework.styled_text import cell_width, truncate_spans

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from textual.binding import Binding, BindingsMap
    from textual.dom import DOMNode

    from kbtui.tui.framework.styled_text import Span


class TextStyle(NamedTuple):
    """Names of a theme's colours (`kb-dim`), "" for none; `letters` as Rich writes styles."""

    color: str = ""
    attributes: str = ""
    background: str = ""


TEXT_STYLES: dict[str, TextStyle] = {
    "dim": TextStyle("kb-dim"),
    "strong": TextStyle(attributes="bold"),
    "emph": TextStyle(attributes="italic"),
    "struck": TextStyle(attributes="strike"),
    "accent": TextStyle("kb-accent"),
    "error": TextStyle("kb-error"),
    "warning": TextStyle("kb-warning"),
    "key": TextStyle("kb-primary", "bold"),
    "section": TextStyle("kb-dim", "bold"),
    "day": TextStyle("kb-dim", "italic"),
    "rule": TextStyle("kb-line"),
    "marker": TextStyle("kb-primary"),
    "turn": TextStyle("kb-primary", "bold"),
    "user": TextStyle("kb-secondary"),
    "assistant": TextStyle("kb-primary"),
    "tool": TextStyle("kb-text"),
    "note": TextStyle("kb-accent", "bold"),
    "cursor": TextStyle(background="kb-cursor"),
    "cursor-off": TextStyle(background="kb-cursor-off"),
    "found": TextStyle("kb-found-text", "bold", "kb-found"),
    "found-here": TextStyle("kb-here-text", "bold", "kb-accent"),
    "h1": TextStyle("kb-primary", "bold"),
    "h2": TextStyle("kb-primary", "bold"),
    "h3": TextStyle("kb-text", "bold"),
    "h4": TextStyle("kb-text", "bold italic"),
    "h5": TextStyle("kb-text", "bold italic"),
    "h6": TextStyle("kb-text", "bold italic"),
    "link": TextStyle("kb-primary", "underline"),
    "quote": TextStyle("kb-dim"),
    "html": TextStyle("kb-dim"),
    "code": TextStyle(background="kb-surface"),
    "code-inline": TextStyle("kb-accent"),
    "comment": TextStyle("kb-dim", "italic"),
    "keyword": TextStyle("kb-primary"),
    "string": TextStyle("kb-secondary"),
    "number": TextStyle("kb-accent"),
    "function": TextStyle("kb-text", "bold"),
    "type": TextStyle("kb-accent"),
    "inserted": TextStyle("kb-success"),
    "deleted": TextStyle("kb-error"),
}


def resolve_style(roles: str, colours: Mapping[str, str]) -> Style:
    """The style of one role or several, later ones winning; what is no role says nothing.

    What was found stands out in whatever it was found, so its roles win over all.

    `colours` are a theme's variables, as `KbApp.get_css_variables` gives them.
    """
    style = Style()
    for role in sorted(roles.split(), key=lambda role: role.startswith("found")):
        if look := TEXT_STYLES.get(role):
            text, ground = (
                Color.parse(colours[name]).rich_color if name else None
                for name in (look.color, look.background)
            )
            letters = dict.fromkeys(look.attributes.split(), True)
            style += Style(color=text, bgcolor=ground, **letters)  # type: ignore[arg-type]
    return style


ALWAYS_AVAILABLE_ACTIONS = {"leave", "back", "help"}
"""Actions that are of use before anything is read."""


def plain_content(text: str) -> Content:
    """Foreign text for a title or a label: safe, on one line, never parsed as markup."""
    return Content(one_line(text))


def configured_keys(node: DOMNode) -> Mapping[str, str]:
    """The keys set in the configuration: command id -> Textual's key names."""
    found: Mapping[str, str] = getattr(node.app, "keys", {})
    return found


class StyledScreen(Screen[Any]):
    """A screen that knows how each role looks.

    Textual would work out the styles of all component classes whenever a class
    changes somewhere. Roles depend on the theme alone, so each is worked out once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._role_styles: dict[tuple[str, str], Style] = {}

    @property
    def configured_keys(self) -> Mapping[str, str]:
        """The keys set in the configuration: command id -> Textual's key names."""
        return configured_keys(self)

    @property
    def _binding_chain(self) -> list[tuple[DOMNode, BindingsMap]]:
        """Who has which keys, from what has the focus outwards.

        A person's own keys come first, and then an input takes those that are letters. Textual
        does it the other way round: a command whose usual key is a letter is then no command in
        an input, whatever key it was given, and one that is at once takes letters from inputs.
        """
        focused = self.focused
        nodes = [self, self.app] if focused is None else focused.ancestors_with_self
        keymap = self.app._keymap
        chain: list[tuple[DOMNode, BindingsMap]] = []
        for node in nodes:
            bindings = node._bindings.copy()
            if keymap:
                bindings.apply_keymap(keymap)
            for key in list(bindings.key_to_bindings):
                # Textual has no character for those that it calls by a shorter name.
                character = PUNCTUATION_KEYS.get(key) or key_to_character(key)
                if any(inner.check_consume_key(key, character) for inner, _ in chain):
                    del bindings.key_to_bindings[key]
            chain.append((node, bindings))
        return chain

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Leave with a result, once: a second key may come before the screen is gone."""
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def should_key_wait(self, key: str) -> bool:
        """Whether a key has to wait for something that is still being read."""
        return False

    def _find_binding(self, key: str) -> tuple[DOMNode | None, Binding | None]:
        """The node that a key is bound to from the focus outwards, and the binding; None if unbound."""
        for node, bindings in self._binding_chain:
            for binding in bindings.key_to_bindings.get(key, ()):
                return node, binding
        return None, None

    def _find_action(self, key: str) -> tuple[DOMNode | None, str]:
        """The node and the action that a key is bound to from the focus outwards; None if unbound."""
        node, binding = self._find_binding(key)
        return node, binding.action if binding else ""

    def handle_files_changed(self, event: dict[str, Any]) -> None:
        """Called on the top screen with the engine's `changed` event."""

    def can_leave(self) -> bool:
        """Whether nothing would be lost by leaving; a screen that says no asks."""
        return True

    def get_role_style(self, roles: str) -> Style:
        """The style of one role or several, later ones winning."""
        key = (self.app.theme, roles)
        style = self._role_styles.get(key)
        if style is None:
            style = self._role_styles[key] = resolve_style(roles, self.app.get_css_variables())
        return style


class StyledWidget(Widget, inherit_bindings=False):
    """A widget that draws lines with roles."""

    _base_style: Style | None = None

    def notify_style_update(self) -> None:
        """Forget the colours of the ground."""
        super().notify_style_update()
        self._base_style = None

    @property
    def base_style(self) -> Style:
        """The widget's own style, on which roles are put."""
        if self._base_style is None:
            self._base_style = self.rich_style
        return self._base_style

    def render_spans(
        self, spans: Sequence[Span], width: int, base: str = "", indent: int = 0
    ) -> Strip:
        """A strip of exactly `width` cells; `base` is a role for the whole of it."""
        screen = self.screen
        if not isinstance(screen, StyledScreen):
            return Strip.blank(width)
        ground = self.base_style + screen.get_role_style(base) if base else self.base_style
        segments: list[Segment] = [Segment(" " * indent, ground)] if indent else []
        room = width - indent
        for text, roles in spans if cell_width(spans) <= room else truncate_spans(spans, room):
            clean = sanitize(text)
            if "\n" in clean or "\t" in clean:
                clean = clean.replace("\n", " ").replace("\t", " ")
            if clean:
                segments.append(
                    Segment(clean, ground + screen.get_role_style(roles) if roles else ground)
                )
        return Strip(segments).adjust_cell_length(width, ground)


class StableScrollView(ScrollView, inherit_bindings=False):
    """A view that is told how much there is to scroll, again and again, while one reads in it."""

    def set_content_size(self, size: Size) -> None:
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

    def repaint_lines(self, changed: Collection[int] | None) -> None:
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

    _repaint_region: Region | None = None

    def set_border_subtitle(self, words: Content | str) -> None:
        """Say something in the lower border, which alone is painted."""
        if getattr(self, "_below", None) == words:
            return
        self._below = words
        size = self.outer_size
        last = Region(0, size.height - 1, size.width, 1)
        self._repaint_region = last.translate(-self.content_offset) if size else None
        try:
            self.border_subtitle = words
        finally:
            self._repaint_region = None

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
        if self._repaint_region is not None and not (regions or layout or recompose):
            regions = (self._repaint_region,)
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
