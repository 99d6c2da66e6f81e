"""A command: what a key does, with its hint, help and keymap id."""

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
"""Textual's names of keys, and how people write them."""


def _key_name(character: str) -> str:
    name = unicodedata.name(character).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


PUNCTUATION_KEYS = {_key_name(character): character for character in string.punctuation}
"""Textual's names of keys, and the characters that they type."""


def format_key(key: str) -> str:
    """A key of Textual's as people write it."""
    return KEY_LABELS.get(key) or PUNCTUATION_KEYS.get(key) or key.replace("ctrl+", "^")


class Command(NamedTuple):
    """Something that a key does.

    `id` names it in keymaps. `keys` are Textual's names, separated by commas;
    `action` is a method `action_…` of the widget that owns the scope. `label` is
    for hints and the palette, `help` a sentence. `hint` puts it in the bottom
    line; a higher one is dropped later when there is little room. `needs` names what a
    document must have for the command to be of use: "turns", "folds" or "views". `at_once`
    is for what takes the keys that follow: it happens before they are handed out. `about` is
    "item" for a command of a list or of "everywhere" that acts on what is selected or being
    read: typed while that is still loading, it waits.
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
        """The keys as people write them."""
        return [format_key(key) for key in self.keys.split(",") if key]


def define_command(
    name: str, keys: str, label: str, explained: str, hint: int = 0, **more: Any
) -> Command:
    """A command of no scope yet; `more` has other fields. Its action has its name unless given."""
    action = more.pop("action", name)
    return Command(name, keys, action, label, explained, hint=hint, **more)


def apply_keymap(commands: Iterable[Command], keymap: Mapping[str, str] | None) -> list[Command]:
    """Commands with the keys that a keymap gives them."""
    return [
        command._replace(keys=keymap[command.id]) if keymap and command.id in keymap else command
        for command in commands
    ]


def make_bindings(commands: Iterable[Command]) -> list[Binding]:
    """The key bindings of commands."""
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
    """The keys of commands that have a hint and what they need, as many as fit into `width` cells."""
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
    """Keys, each with what it does."""
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
"""Moving in a list or a page: whatever scrolls has these keys and their actions."""

MOVE_BINDINGS = make_bindings(MOVE_COMMANDS)
