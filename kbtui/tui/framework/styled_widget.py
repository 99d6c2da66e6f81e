"""Screens and widgets that draw spans with roles: the one place where text meets the terminal.

Text is made safe here once more, so that a terminal never obeys a file's contents, even
where the code that built the spans forgot to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from textual.await_complete import AwaitComplete
from textual.content import Content
from textual.keys import key_to_character
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from kbtui.text import one_line, safe
from kbtui.tui.framework.command import SIGNS
from kbtui.tui.framework.styled_text import fit, width_of
from kbtui.tui.framework.text_styles import styled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.style import Style
    from textual.binding import Binding, BindingsMap
    from textual.dom import DOMNode

    from kbtui.tui.framework.styled_text import Span


LEAVING = {"leave", "back", "help"}
"""Actions that are of use before anything is read."""


def plain(text: str) -> Content:
    """Foreign text for a title or a label: safe, on one line, never parsed as markup."""
    return Content(one_line(text))


def keys_of(node: DOMNode) -> Mapping[str, str]:
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
    def own_keys(self) -> Mapping[str, str]:
        """The keys set in the configuration: command id -> Textual's key names."""
        return keys_of(self)

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
                character = SIGNS.get(key) or key_to_character(key)
                if any(inner.check_consume_key(key, character) for inner, _ in chain):
                    del bindings.key_to_bindings[key]
            chain.append((node, bindings))
        return chain

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Leave with a result, once: a second key may come before the screen is gone."""
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def is_unsettled(self, key: str) -> bool:
        """Whether a key has to wait for something that is still being read."""
        return False

    def _binding_at(self, key: str) -> tuple[DOMNode | None, Binding | None]:
        """The node that a key is bound to from the focus outwards, and the binding; None if unbound."""
        for node, bindings in self._binding_chain:
            for binding in bindings.key_to_bindings.get(key, ()):
                return node, binding
        return None, None

    def _meant_by(self, key: str) -> tuple[DOMNode | None, str]:
        """The node and the action that a key is bound to from the focus outwards; None if unbound."""
        node, binding = self._binding_at(key)
        return node, binding.action if binding else ""

    def files_changed(self, event: dict[str, Any]) -> None:
        """Called on the top screen with the engine's `changed` event."""

    def may_leave(self) -> bool:
        """Whether nothing would be lost by leaving; a screen that says no asks."""
        return True

    def role_style(self, roles: str) -> Style:
        """The style of one role or several, later ones winning."""
        key = (self.app.theme, roles)
        style = self._role_styles.get(key)
        if style is None:
            style = self._role_styles[key] = styled(roles, self.app.get_css_variables())
        return style


class StyledWidget(Widget, inherit_bindings=False):
    """A widget that draws lines with roles."""

    _ground: Style | None = None

    def notify_style_update(self) -> None:
        """Forget the colours of the ground."""
        super().notify_style_update()
        self._ground = None

    @property
    def ground(self) -> Style:
        """The widget's own style, on which roles are put."""
        if self._ground is None:
            self._ground = self.rich_style
        return self._ground

    def paint(self, spans: Sequence[Span], width: int, base: str = "", indent: int = 0) -> Strip:
        """A strip of exactly `width` cells; `base` is a role for the whole of it."""
        screen = self.screen
        if not isinstance(screen, StyledScreen):
            return Strip.blank(width)
        ground = self.ground + screen.role_style(base) if base else self.ground
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
