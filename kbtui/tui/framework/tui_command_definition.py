"""The `TuiCommand` type: the id, keys, action, key hint and help text of a command."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any, Literal

from textual.binding import Binding, BindingType
from textual.keys import _character_to_key

from kbtui.light_named_tuple import NamedTuple
from kbtui.tui.framework.styled_text import Spans, measure_cell_width

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


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
"""The label of each key on the screen, by Textual's name of the key."""


PUNCTUATION_KEYS = {_character_to_key(character): character for character in string.punctuation}
"""The character that each punctuation key types, by Textual's name of the key."""


def format_key_label(key: str) -> str:
    """Return the label of a key, such as `^p` for Textual's `ctrl+p`."""
    return KEY_LABELS.get(key) or PUNCTUATION_KEYS.get(key) or key.replace("ctrl+", "^")


class TuiCommand(NamedTuple):
    """A command of a screen or widget.

    * `id`: the name of the command in keymaps.
    * `keys`: Textual's names of its keys, separated by commas.
    * `action`: the Textual action to run.
    * `label`: a short name for key hints and the palette.
    * `help`: a sentence for the help page.
    * `scope`: the screen, pane or group that the command belongs to.
    * `hint`: the priority of the key hint; 0 means no hint. If the line is too narrow, the hints
      with the lowest priorities are left out.
    * `palette`: whether the palette lists the command.
    * `needs`: a feature of the document, such as "turns" or "folds". The hint is shown only for a
      document that has this feature.
    * `is_immediate`: whether the command overrides all other bindings of its key and runs at once,
      so that the next keys go to the widget that it opens.
    * `about`: "item" means that the command acts on the selected or open item. Its key waits while
      this item is loading.
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
        return [format_key_label(key) for key in self.keys.split(",") if key]


def define_command(
    name: str, keys: str, label: str, explained: str, hint: int = 0, **more: Any
) -> TuiCommand:
    """Return a command without a scope.

    * `name` is its id.
    * `explained` is its help text.
    * `more` contains other fields of `TuiCommand`.
    * If `action` is not among them, the action is `name`.
    """
    action = more.pop("action", name)
    return TuiCommand(name, keys, action, label, explained, hint=hint, **more)


def apply_keymap_to_commands(
    commands: Iterable[TuiCommand], keymap: Mapping[str, str] | None
) -> list[TuiCommand]:
    """Return the commands with the keys that a keymap assigns to them."""
    keymap = keymap or {}
    return [command._replace(keys=keymap.get(command.id, command.keys)) for command in commands]


def make_textual_bindings(commands: Iterable[TuiCommand]) -> list[BindingType]:
    """Return Textual's bindings for commands."""
    return [
        Binding(c.keys, c.action, c.label, id=c.id, show=False, priority=c.is_immediate)
        for c in commands
    ]


def format_fitting_key_hints(
    commands: Iterable[TuiCommand], width: int, offers: Collection[str] = frozenset()
) -> Spans:
    """Return as many key hints of commands as fit into `width` cells.

    If not all hints fit, those with the lowest priorities are left out. A command that needs a
    feature of the document has a hint only if this feature is in `offers`.
    """
    wanted = [
        command
        for command in commands
        if command.hint and command.key_labels and (not command.needs or command.needs in offers)
    ]
    while True:
        spans = format_key_hints((command.key_labels[0], command.label) for command in wanted)
        if not wanted or measure_cell_width(spans) <= width:
            return spans
        wanted.remove(min(wanted, key=lambda command: command.hint))


def format_key_hints(pairs: Iterable[tuple[str, str]]) -> Spans:
    """Return key hints as spans; `pairs` are keys and their meanings."""
    spans: Spans = []
    for pressed, meaning in pairs:
        spans += [("  " if spans else "", ""), (pressed, "key"), (f" {meaning}", "dim")]
    return spans


_KEYS_BY_LABEL = {label: key for key, label in KEY_LABELS.items()}
_KEYS_BY_LABEL |= {character: key for key, character in PUNCTUATION_KEYS.items()}


def find_hinted_key_at(spans: Spans, x: int) -> str | None:
    """Return Textual's name of the key whose hint covers cell `x` of a line of key hints.

    The result is None if no hint covers the cell, or if the hint is for several keys, such as `↑↓`.
    """
    label, end = "", 0
    for text, role in spans:
        if role == "key":
            label = text
        elif not text.strip():
            label = ""
        end += measure_cell_width([(text, role)])
        if x < end:
            if label.startswith("^") and len(label) == 2:
                return f"ctrl+{label[1].lower()}"
            is_letter = len(label) == 1 and label.isalnum()
            return _KEYS_BY_LABEL.get(label) or (label if is_letter else None)
    return None


MOVE_COMMANDS: tuple[TuiCommand, ...] = tuple(
    TuiCommand(f"move.{name}", keys, action, label, f"Go {label}.", "moving", palette=False)
    for name, keys, action, label in (
        ("down", "j,down", "down", "down"),
        ("up", "k,up", "up", "up"),
        ("half_down", "ctrl+d", "scroll_pages(0.5)", "half a page down"),
        ("half_up", "ctrl+u", "scroll_pages(-0.5)", "half a page up"),
        ("page_down", "pagedown", "scroll_pages(1)", "one page down"),
        ("page_up", "pageup,b", "scroll_pages(-1)", "one page up"),
        ("top", "g,home", "top", "to the top"),
        ("bottom", "G,end", "bottom", "to the end"),
    )
)
"""The commands that move in a list or document. Each widget implements their actions."""

MOVE_BINDINGS = make_textual_bindings(MOVE_COMMANDS)


def make_list_movement_bindings_for_focused_input(
    action: str, *, priority: bool = False
) -> list[BindingType]:
    """Return key bindings that call `action` to move in a list while an input has the focus."""
    up, down = "'scroll_pages', -1", "'scroll_pages', 1"
    moves = {"down,ctrl+n": "'down'", "up": "'up'", "pagedown": down, "pageup": up}
    return [Binding(key, f"{action}({moves[key]})", show=False, priority=priority) for key in moves]


DIALOG_COMMANDS: tuple[TuiCommand, ...] = tuple(
    TuiCommand(name, keys, action, "", "", name.partition(".")[0], is_immediate=is_immediate)
    for name, keys, action, is_immediate in (
        ("dialog.cancel", "escape", "dismiss", False),
        ("options.cancel", "escape,q", "dismiss", False),
        ("options.choose", "enter", "choose_option", False),
        ("form.cancel", "escape", "dismiss", False),
        ("form.down", "down", "app.focus_next", False),
        ("form.up", "up", "app.focus_previous", False),
        # Immediate commands have priority, so that the keys typed after them go to the next field.
        ("form.choose", "enter", "go_to_next_field", True),
        ("form.next", "tab", "app.focus_next", True),
        ("form.write", "ctrl+s", "save_form", True),
        ("choice.fold", "left", "step_choice(-1)", False),
        ("choice.unfold", "right", "step_choice(1)", False),
        ("choice.toggle", "space", "step_choice(1)", False),
        ("page.cancel", "escape,q,n,question_mark", "dismiss", False),
        ("page.agree", "y", "confirm", False),
    )
)
"""The commands of dialogs. Their keys are fixed, so that the answer to a question is always the same key."""


def make_dialog_bindings(scope: str) -> list[BindingType]:
    """Return the key bindings of the dialog commands in a scope."""
    return make_textual_bindings(one for one in DIALOG_COMMANDS if one.scope == scope)
