"""The keys of the configuration file: read, checked, and given to Textual.

A mistake is said and otherwise does nothing: the application starts with the
keys that can be used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from kbtui.tui.commands import ALL, SCOPES, SCREENS
from kbtui.tui.framework.command import NAMED, SIGNS, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kbtui.tui.framework.command import Command

NO_KEY = "no-key"
"""What Textual is told for a command that is to have no key."""
RESERVED = {"ctrl+q": "leaves kbtui from everywhere", "ctrl+c": "copies what is selected"}

_KEYS = {shown.casefold(): key for key, shown in NAMED.items()}
_KEYS |= {key: key for key in NAMED} | {shown: key for key, shown in SIGNS.items()}
_KEYS |= {"escape": "escape", "return": "enter", "insert": "insert", "delete": "delete"}
_KEYS |= {"backspace": "backspace"} | {f"f{number}": f"f{number}" for number in range(1, 25)}


@dataclass
class Keymap:
    """Command id -> its keys in Textual's names, separated by commas; "" is none."""

    keys: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def textual(self) -> dict[str, str]:
        """As `App.set_keymap` takes it."""
        return {name: keys or NO_KEY for name, keys in self.keys.items()}


def read_keymap(table: Mapping[str, Any]) -> Keymap:
    """What the `keys` table of the configuration says, and what is wrong with it; never raises."""
    found = Keymap()
    known = {command.id: command for command in ALL}
    for name, value in _flat(table):
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = (
                f"; did you mean {near[0]!r}?" if near else "; the palette lists them: type `id:`"
            )
            found.problems.append(f"there is no command {name!r}{hint}")
            continue
        try:
            found.keys[name] = ",".join(dict.fromkeys(_parsed(value)))
        except ValueError as error:
            found.problems.append(f"{name}: {error}")
    _refuse_doubled(found)
    found.problems += _shadowed(found)
    return found


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values; `reader.find = "x"` without quotation marks is a table in TOML."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parsed(value: Any) -> list[str]:
    if isinstance(value, str):
        # A lone comma is a key; among others it separates them.
        names = [value] if value.strip() == "," else value.split(",") if value.strip() else []
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        names = value
    else:
        raise ValueError("write a key, or several in a list")
    return [_key_named(name) for name in names]


def _key_named(text: str) -> str:
    """Textual's name of a key; raises `ValueError` with the reason it is none."""
    name = text.strip()
    if name.startswith("^") and len(name) > 1:
        name = f"ctrl+{name[1:]}"
    *modifiers, last = name.split("+") if len(name) > 1 else [name]
    if len(last) == 1 and (last.isalnum() or last in _KEYS):
        key = _KEYS.get(last, last)
    elif last.casefold() in _KEYS:
        key = _KEYS[last.casefold()]
    elif last in SIGNS:
        key = last
    else:
        raise ValueError(f"{text!r} is no key")
    if not {modifier.casefold() for modifier in modifiers} <= {"ctrl", "alt", "shift"}:
        raise ValueError(f"{text!r} is no key; before it may stand ctrl+, alt+ and shift+")
    key = "+".join([*sorted(modifier.casefold() for modifier in modifiers), key])
    if key in RESERVED:
        raise ValueError(f"{text} {RESERVED[key]}")
    return key


def _uses(keymap: Keymap) -> dict[tuple[str, str], list[Command]]:
    """Who has a key in a scope, with the keys of the keymap."""
    uses: dict[tuple[str, str], list[Command]] = {}
    for command in ALL:
        for key in keymap.keys.get(command.id, command.keys).split(","):
            if key:
                uses.setdefault((command.scope, key), []).append(command)
    return uses


def _refuse_doubled(keymap: Keymap) -> None:
    """Of two commands with one key in one place, the one that was given it here goes without."""
    while True:
        doubled = next(
            (
                (key, [c for c in commands if c.id in keymap.keys], commands)
                for (_, key), commands in _uses(keymap).items()
                if len(commands) > 1 and any(c.id in keymap.keys for c in commands)
            ),
            None,
        )
        if doubled is None:
            return
        key, given, commands = doubled
        loser = given[-1]
        other = next(command for command in commands if command is not loser)
        usual = " ".join(loser.shown_keys) or "no key"
        keymap.problems.append(
            f"{loser.id}: {shown_key(key)} is already {other.id} ({other.label}); it keeps {usual}"
        )
        del keymap.keys[loser.id]


def _shadowed(keymap: Keymap) -> list[str]:
    """Keys that somewhere mean something else, because a pane's own commands come first."""
    uses = _uses(keymap)
    found = []
    for (scope, key), commands in uses.items():
        for inner in commands:
            for outer_scope in _outside(scope):
                for outer in uses.get((outer_scope, key), ()):
                    if not {inner.id, outer.id} & set(keymap.keys):
                        continue
                    # A command that is at once comes before all others.
                    first, second = (outer, inner) if outer.at_once else (inner, outer)
                    found.append(
                        f"{second.id}: {shown_key(key)} is {first.id} ({first.label}) "
                        f"{_where(first, second)}, and comes first"
                    )
    return found


def _outside(scope: str) -> tuple[str, ...]:
    """The scopes that keys of this one come before; a screen over the main one has none."""
    if scope == "moving":
        return (*(one for one in SCOPES if one != scope), *SCREENS)
    return () if scope in SCREENS or scope == "everywhere" else ("everywhere",)


def _where(first: Command, second: Command) -> str:
    scope = second.scope if first.scope == "everywhere" else first.scope
    return {"moving": "in every pane", "everywhere": "everywhere"}.get(scope, f"in the {scope}")
