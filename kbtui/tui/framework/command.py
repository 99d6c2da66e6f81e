"""Commands of the TUI: a key with its action, hint, help and keymap id."""

from __future__ import annotations

import string
import unicodedata
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS

from kbtui.tui.framework.styled_text import cell_width

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kbtui.tui.framework.styled_text import Spans


KEY_LABELS = {
    "enter": "Enter",
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "⇧Tab",
    "down": "↓",
    "up": "↑",
    "left": "←",
    "right": "→",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "home": "Home",
    "end": "End",
    "space": "Space",
}
"""Textual's names of keys, and their labels."""


def _get_key_name(character: str) -> str:
    """Return Textual's name of the key that types a character."""
    name = unicodedata.name(character).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


PUNCTUATION_KEYS = {_get_key_name(character): character for character in string.punctuation}
"""Textual's names of keys, and the characters that they type."""


def format_key(key: str) -> str:
    """Return the label of a key, such as `^p` for Textual's `ctrl+p`."""
    return KEY_LABELS.get(key) or PUNCTUATION_KEYS.get(key) or key.replace("ctrl+", "^")


class Command(NamedTuple):
    """A command of a screen or widget.

    `id` names it in keymaps. `keys` are Textual's names of keys, separated by commas. `action` is a method
    `action_…` of the widget that owns the scope. `label` is for key hints and the palette, `help` is a
    sentence. A command with a `hint` appears in the bottom line; if space is short, the lowest hints are
    dropped first. `needs` is a feature that the document must have: "turns", "folds" or "views".
    `is_immediate` commands run before queued keys are delivered, because those keys are meant for what
    the command opens. `about="item"` marks a command on the selected or open item: while that is still
    loading, the key waits.
    """

    id: str
    keys: str
    action: str
    label: str
    help: str
    scope: str = ""
    hint: int = 0
    palette: bool = True
    needs: str = ""
    is_immediate: bool = False
    about: Literal["", "item"] = ""

    @property
    def key_labels(self) -> list[str]:
        """The labels of the keys."""
        return [format_key(key) for key in self.keys.split(",") if key]


def define_command(
    name: str, keys: str, label: str, explained: str, hint: int = 0, **more: Any
) -> Command:
    """Make a command without a scope; `more` sets other fields. The action defaults to `name`."""
    action = more.pop("action", name)
    return Command(name, keys, action, label, explained, hint=hint, **more)


def apply_keymap(commands: Iterable[Command], keymap: Mapping[str, str] | None) -> list[Command]:
    """Replace the keys of commands that a keymap names."""
    return [
        command._replace(keys=keymap[command.id]) if keymap and command.id in keymap else command
        for command in commands
    ]


def make_bindings(commands: Iterable[Command]) -> list[Binding]:
    """Return Textual's bindings for commands."""
    return [
        Binding(
            command.keys,
            command.action,
            command.label,
            id=command.id,
            show=False,
            priority=command.is_immediate,
        )
        for command in commands
    ]


def format_command_hints(
    commands: Iterable[Command], width: int, offers: Collection[str] = frozenset()
) -> Spans:
    """Return the hints of the commands, as many as fit into `width` cells.

    `offers` are the features of the document. A command whose `needs` is not among them gets no hint.
    """
    wanted = [
        command
        for command in commands
        if command.hint and command.key_labels and (not command.needs or command.needs in offers)
    ]
    while True:
        spans = format_key_hints((command.key_labels[0], command.label) for command in wanted)
        if not wanted or cell_width(spans) <= width:
            return spans
        wanted.remove(min(wanted, key=lambda command: command.hint))


def format_key_hints(pairs: Iterable[tuple[str, str]]) -> Spans:
    """Return pairs of key and meaning as spans."""
    spans: Spans = []
    for pressed, meaning in pairs:
        spans += [("  " if spans else "", ""), (pressed, "key"), (f" {meaning}", "dim")]
    return spans


MOVE_COMMANDS: tuple[Command, ...] = tuple(
    Command(f"move.{name}", keys, action, label, f"{label.capitalize()}.", "moving", palette=False)
    for name, keys, action, label in (
        ("down", "j,down", "down", "down"),
        ("up", "k,up", "up", "up"),
        ("half_down", "ctrl+d", "scroll_pages(0.5)", "half a page down"),
        ("half_up", "ctrl+u", "scroll_pages(-0.5)", "half a page up"),
        ("page_down", "pagedown", "scroll_pages(1)", "page down"),
        ("page_up", "pageup,b", "scroll_pages(-1)", "page up"),
        ("top", "g,home", "top", "to the top"),
        ("bottom", "G,end", "bottom", "to the end"),
    )
)
"""Commands for moving in a list or page; every widget that scrolls has these actions."""

MOVE_BINDINGS = make_bindings(MOVE_COMMANDS)
