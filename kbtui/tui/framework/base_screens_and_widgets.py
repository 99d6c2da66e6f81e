"""Screens and widgets that draw styled text: scroll views, lines, paragraphs, messages and inputs.

All text is sanitized when it is drawn, so the content of a file never controls the terminal, even
if other code forgets to sanitize it.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from rich.highlighter import Highlighter
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingsMap, BindingType
from textual.color import Color
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import Region, Size
from textual.keys import key_to_character
from textual.message import Message
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import sanitize, sanitize_to_one_line
from kbtui.tui.framework.styled_text import (
    Spans,
    StyledLines,
    align_spans_to_edges,
    join_span_texts,
    measure_cell_width,
    truncate_spans,
    wrap_spans,
)
from kbtui.tui.framework.tui_command_definition import PUNCTUATION_KEYS, find_hinted_key_at

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rich.text import Text
    from textual.dom import DOMNode
    from textual.scrollbar import ScrollBarRender

    from kbtui.tui.framework.styled_text import Span


class StyleRoleAppearance(NamedTuple):
    """The look of a style role. An empty `color` or `background` leaves the colour unchanged."""

    color: str = ""
    attributes: str = ""
    background: str = ""


_ROLES: dict[StyleRoleAppearance, str] = {
    StyleRoleAppearance("kb-dim"): "dim quote html",
    StyleRoleAppearance("kb-dim", "bold"): "section",
    StyleRoleAppearance("kb-dim", "italic"): "day comment",
    StyleRoleAppearance("kb-text"): "tool",
    StyleRoleAppearance("kb-text", "bold"): "h3 function",
    StyleRoleAppearance("kb-text", "bold italic"): "h4 h5 h6",
    StyleRoleAppearance("kb-primary"): "marker assistant keyword",
    StyleRoleAppearance("kb-primary", "bold"): "key turn h1 h2",
    StyleRoleAppearance("kb-primary", "underline"): "link",
    StyleRoleAppearance("kb-secondary"): "user string",
    StyleRoleAppearance("kb-accent"): "accent code-inline number type",
    StyleRoleAppearance("kb-accent", "bold"): "note",
    StyleRoleAppearance("kb-success"): "inserted",
    StyleRoleAppearance("kb-warning"): "warning",
    StyleRoleAppearance("kb-error"): "error deleted",
    StyleRoleAppearance("kb-line"): "rule",
    StyleRoleAppearance(attributes="bold"): "strong",
    StyleRoleAppearance(attributes="bold underline"): "changed-word",
    StyleRoleAppearance(attributes="italic"): "emph",
    StyleRoleAppearance(attributes="strike"): "struck",
    StyleRoleAppearance(background="kb-cursor"): "cursor",
    StyleRoleAppearance(background="kb-cursor-off"): "cursor-off",
    StyleRoleAppearance(background="kb-surface"): "code",
    StyleRoleAppearance("kb-found-text", "bold", "kb-found"): "found",
    StyleRoleAppearance("kb-here-text", "bold", "kb-accent"): "found-here",
}
TEXT_STYLES = {role: style for style, roles in _ROLES.items() for role in roles.split()}


def resolve_style_roles(roles: str, colours: Mapping[str, str]) -> Style:
    """Return the style of space-separated roles; `colours` maps the theme's variables to colours.

    Later roles win, but the roles of highlighted matches (`found…`) win over all others. Unknown
    roles are ignored.
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


ALWAYS_AVAILABLE_ACTIONS = {"leave", "back", "help", "report_escape"}
"""Actions whose keys do not wait until the screen is loaded."""


def make_plain_label_text(text: str) -> Content:
    """Return `text` for a title or label: sanitized, on one line, and not parsed as markup."""
    return Content(sanitize_to_one_line(text))


def get_configured_keys(node: DOMNode) -> Mapping[str, str]:
    """Return the keys that the settings assign to each command, by command id.

    The keys have the names that Textual uses.
    """
    found: Mapping[str, str] = getattr(node.app, "keys", {})
    return found


class StyledScreen(Screen[Any]):
    """A screen that converts style roles to styles, once for each theme.

    It does not use Textual's component classes, because Textual resolves all of them again whenever
    a CSS class of a widget changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._role_styles: dict[tuple[str, str], Style] = {}

    @property
    def configured_keys(self) -> Mapping[str, str]:
        """The keys that the settings assign to each command, by command id.

        The keys have the names that Textual uses.
        """
        return get_configured_keys(self)

    @property
    def _binding_chain(self) -> list[tuple[DOMNode, BindingsMap]]:
        """The key bindings from the focused widget outwards.

        This property first applies the keys from the settings. Then it removes the letters that are
        typed into a focused input. Textual does these steps in the opposite order, which is wrong
        for an input. A command whose default key is a letter would lose its binding, so a key from
        the settings would not reach it either. A letter from the settings would run its command
        instead of being typed.
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
                # key_to_character() returns None for punctuation keys that Textual renames.
                character = PUNCTUATION_KEYS.get(key) or key_to_character(key)
                if any(inner.check_consume_key(key, character) for inner, _ in chain):
                    del bindings.key_to_bindings[key]
            chain.append((node, bindings))
        return chain

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close the screen with a result.

        While the screen is closing, keys can cause more calls of this method. They are ignored.
        """
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def should_key_wait(self, key: str) -> bool:
        """Return whether a key must wait because it depends on data that is still loading."""
        return False

    def clear_unavailable_key_message(self) -> None:
        """Remove the message that says why the last key did nothing, if there is one.

        Called for every key.
        """

    def _find_key_binding(self, key: str) -> tuple[DOMNode | None, Binding | None]:
        """Return the innermost node that binds a key, and the binding; both are None for an unbound key."""
        for node, bindings in self._binding_chain:
            for binding in bindings.key_to_bindings.get(key, ()):
                return node, binding
        return None, None

    def _find_key_action(self, key: str) -> tuple[DOMNode | None, str]:
        """Return the innermost node that binds a key, and the action of the binding.

        For an unbound key, return (None, "").
        """
        node, binding = self._find_key_binding(key)
        return node, binding.action if binding else ""

    def can_close_or_ask_first(self) -> bool:
        """Return whether the screen can close now.

        If closing it would discard or stop something, ask the user, and return False.
        """
        return True

    def get_role_style(self, roles: str) -> Style:
        """Return the style of one or more roles; later roles win."""
        key = (self.app.theme, roles)
        if key not in self._role_styles:
            self._role_styles[key] = resolve_style_roles(roles, self.app.get_css_variables())
        return self._role_styles[key]


class StyledTextWidget(Widget, inherit_bindings=False):
    """A widget that draws styled text. By default, the mouse cannot select the text."""

    ALLOW_SELECT: ClassVar[bool] = False

    @property
    def base_style(self) -> Style:
        """The widget's own style. The styles of roles are added to it."""
        return self.visual_style.rich_style

    def render_spans(self, spans: Sequence[Span], width: int, base: str = "") -> Strip:
        """Return a strip of exactly `width` cells; the role `base` applies to the whole strip."""
        screen = self.screen
        if not isinstance(screen, StyledScreen):
            return Strip.blank(width)
        ground = self.base_style + screen.get_role_style(base) if base else self.base_style
        segments: list[Segment] = []
        for text, roles in truncate_spans(spans, width):
            clean = sanitize(text).replace("\n", " ").replace("\t", " ")
            style = ground + screen.get_role_style(roles) if roles else ground
            segments += [Segment(clean, style)] if clean else []
        return Strip(segments).adjust_cell_length(width, ground)


class ScrollBarWithCheapBlank(ScrollBar):
    """A scroll bar that draws one line and repeats it while there is nothing to scroll."""

    def render_lines(self, crop: Region) -> list[Strip]:
        if self.window_size < self.window_virtual_size:
            return super().render_lines(crop)
        return super().render_lines(Region(crop.x, crop.y, crop.width, 1)) * crop.height

    def render_line(self, y: int) -> Strip:
        if self.window_size < self.window_virtual_size:
            return super().render_line(y)
        bar = cast("ScrollBarRender", self.render())
        return Strip.blank(self.size.width, cast("Style", bar.style).background_style)


class ScrollViewWithoutRelayout(ScrollView, inherit_bindings=False):
    """A scroll view whose content can change its size without a new layout of the screen.

    A new layout is still needed if the scroll bar appears or disappears, or if the size of the view
    depends on its content.
    """

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        """The scroll bar at the right edge. It is created when it is first needed."""
        if self._vertical_scrollbar is None:
            self._vertical_scrollbar = bar = ScrollBarWithCheapBlank(name="vertical")
            bar.display = False
            self.app._start_widget(self, bar)
        return self._vertical_scrollbar

    @property
    def lines_until_end_of_text(self) -> int:
        """The number of lines from the top of the view to the end of its text. All lines below look the same."""
        return self.size.height

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render the lines of a region. Below the text, render one line and repeat it."""
        equal = crop.bottom - max(crop.y, self.lines_until_end_of_text)
        if equal < 2:
            return super().render_lines(crop)
        strips = super().render_lines(Region(crop.x, crop.y, crop.width, crop.height - equal + 1))
        return strips + strips[-1:] * (equal - 1)

    def set_content_size(self, size: Size) -> None:
        """Set the size of the content and update the scroll bar."""
        if self.styles.overflow_y == "auto" or self.styles.auto_dimensions:
            # A new layout is needed if the scroll bar appears or disappears, or if the view's size
            # depends on its content.
            self.virtual_size = size
        elif size != self.virtual_size:
            self.set_reactive(Widget.virtual_size, size)
            if self.show_vertical_scrollbar:
                self.vertical_scrollbar.window_virtual_size = size.height

    def repaint_lines(self, changed: Collection[int] | None) -> None:
        """Repaint those visible lines whose numbers are in `changed`.

        If `changed` is None, repaint all visible lines.
        """
        if changed is None or 2 * len(changed) > self.scrollable_content_region.height:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def refresh(self, *regions: Region, **options: bool) -> Self:
        """Repaint `regions`, or the whole view if no regions are passed.

        A hidden view is repainted as a whole when it is shown again.
        """
        # A hidden view has no size, so Textual would ignore the regions and later show the old lines.
        return super().refresh(*(regions if self.region else ()), **options)


class PaneCoveredByChildren(Widget, inherit_bindings=False):
    """A pane that paints only its border, because its children cover everything else."""

    _repaint_region: Region | None = None
    _subtitle: Content | str | None = None

    def set_border_subtitle(self, words: Content | str) -> None:
        """Set the text in the bottom border, and repaint only the bottom line."""
        if self._subtitle == words:
            return
        self._subtitle, size = words, self.outer_size
        last = Region(0, size.height - 1, size.width, 1)
        self._repaint_region = last.translate(-self.content_offset) if size else None
        self.border_subtitle = words
        self._repaint_region = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render the top line, the bottom line and one middle line.

        All middle lines look the same, so the rendered one is used for all of them.
        """
        last = self.outer_size.height - 1
        strips: dict[int, Strip] = {}
        for y in crop.line_range:
            if (line := y if y in (0, last) else 1) not in strips:
                strips[line] = super().render_lines(Region(crop.x, line, crop.width, 1))[0]
        return [strips[y if y in (0, last) else 1] for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        """Return a blank line, because children cover the pane."""
        return Strip.blank(self.size.width, self.visual_style.rich_style)

    def refresh(self, *regions: Region, **options: bool) -> Self:
        """Repaint `regions`, or the whole pane if no regions are passed.

        While `set_border_subtitle` runs, repaint only the bottom line.
        """
        if self._repaint_region is not None:
            regions = (self._repaint_region,)
        return super().refresh(*regions, **options)


class LeftAndRightTextLine(StyledTextWidget):
    """A line with text at its left and right edges.

    If the line has several variants, it shows the first one that fits, or else the last one.
    """

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.left: Spans = []
        self.right: Spans = []
        self._shorter_variants: list[tuple[Spans, Spans]] = []

    def set_edge_texts(self, left: Spans, right: Spans | None = None) -> None:
        """Set the texts at the left and the right edge of the line."""
        self.set_line_variants([(left, right or [])])

    def set_line_variants(self, forms: list[tuple[Spans, Spans]]) -> None:
        """Set the variants of the line, the longest first. A variant is a left and a right text."""
        if forms != [(self.left, self.right), *self._shorter_variants]:
            (self.left, self.right), *self._shorter_variants = forms
            self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        for left, right in ((self.left, self.right), *self._shorter_variants):
            if measure_cell_width([*left, *right]) + bool(right) <= width:
                break
        return self.render_spans(align_spans_to_edges(left, right, width) if y == 0 else [], width)

    @property
    def text(self) -> str:
        """The text without styles."""
        return join_span_texts([*self.left, *self.right])


def press_hinted_key(widget: Widget, spans: Spans, x: int) -> None:
    """Press the key whose hint covers cell `x` of a line of key hints."""
    if key := find_hinted_key_at(spans, x):
        character = PUNCTUATION_KEYS.get(key) or (key if len(key) == 1 else None)
        widget.app.post_message(events.Key(key, character))


class WrappedTextBarAboveWidget(StyledTextWidget):
    """A bar of wrapped paragraphs above the widget `below`. Without paragraphs, the bar takes up no space."""

    DEFAULT_CSS = "WrappedTextBarAboveWidget { height: auto; padding: 0 1; background: $surface; }"

    def __init__(self, below: Widget) -> None:
        super().__init__()
        self._widget_below = below
        self._paragraphs: list[Spans] = []
        self.display = False

    def set_paragraphs(self, paragraphs: list[Spans]) -> None:
        """Show `paragraphs`, or hide the bar if there are none."""
        if paragraphs != self._paragraphs:
            self._paragraphs = paragraphs
            self.display = bool(paragraphs)
            pane = self._widget_below.parent
            if self.display and isinstance(pane, Widget) and not self.is_attached:
                pane.mount(self, before=self._widget_below)
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._wrap_paragraphs(width))

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        lines = self._wrap_paragraphs(width)
        return self.render_spans(lines[y].spans if y < len(lines) else [], width)

    def _wrap_paragraphs(self, width: int) -> StyledLines:
        return [line for spans in self._paragraphs for line in wrap_spans(spans, max(8, width))]


class SanitizedInput(Input):
    """An input that sanitizes pasted text and joins its lines with spaces."""

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        # Terminals paste line breaks as carriage returns, which sanitizing would remove.
        text = " ".join(event.text.splitlines())
        self.insert_text_at_cursor(sanitize_to_one_line(text, "strip"))


class TextInputInPane(SanitizedInput):
    """An input in a pane.

    Esc always leaves the input, even if the user has changed the keys of the pane.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "report_escape", show=False)]

    class EscapePressed(Message):
        """The user pressed Esc in the input."""

    def action_report_escape(self) -> None:
        self.post_message(self.EscapePressed())


class CompletingInput(TextInputInPane):
    """An input in a pane of the main screen. Tab runs the action `accept_completion` of the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "screen.accept_completion", show=False)]


class QueryErrorHighlighter(Highlighter):
    """Underlines the mistakes in an input; `spans` are their start and end offsets."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def highlight(self, text: Text) -> None:
        for start, end in self.spans:
            text.stylize("bold underline", start, end)


class LabeledInput(Horizontal):
    """A label and an input, hidden until `show_input` is called."""

    def __init__(
        self,
        name: str,
        label: str,
        highlighter: Highlighter | None = None,
        input_class: type[TextInputInPane] = TextInputInPane,
    ) -> None:
        super().__init__(classes="entry")
        self._label = label
        self._create_input = partial(input_class, id=name, compact=True, highlighter=highlighter)
        self.display = False

    @cached_property
    def input(self) -> TextInputInPane:
        """The input widget. It is created when this property is first read."""
        return self._create_input()

    def on_mount(self) -> None:
        """Mount the label and the input after the first paint, because they are hidden at first."""
        self.call_after_refresh(self._mount_label_and_input)

    def _mount_label_and_input(self) -> None:
        if self.is_attached and not self.input.is_attached:
            sign = LeftAndRightTextLine(classes="entry-word")
            sign.left = [(self._label, "key")]
            self.mount(sign, self.input)

    def show_input(self) -> None:
        """Show the input and focus it."""
        self._mount_label_and_input()
        self.display = True
        self.screen.set_focus(self.input)
        self.input.action_end()

    def hide_input(self) -> None:
        """Hide and clear the input."""
        self.display = False
        self.input.value = ""
