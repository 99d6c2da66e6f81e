"""Keys of a screen over the main one: bindings, bottom line and help, as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.commands import SCREEN_COMMANDS, SCREENS, bindings_for, own_key, screen_commands
from kbtui.tui.framework.styled_text import width_of
from kbtui.tui.reader.blocks import FactsBlock, HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.binding import Binding

    from kbtui.tui.commands import Command, Scope
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block


def bindings_of(scope: Scope) -> list[Binding]:
    """The key bindings of a screen."""
    return bindings_for(screen_commands(scope))


def key_of(name: str, keymap: Mapping[str, str]) -> str:
    """The first key of the command with this id, as people write it."""
    return own_key(name, keymap, SCREEN_COMMANDS) or "no key"


def hints_of(scope: Scope, width: int, offers: frozenset[str], keymap: Mapping[str, str]) -> Spans:
    """The keys that matter, as many as fit into `width` cells."""
    wanted = [
        command
        for command in screen_commands(scope, keymap)
        if command.hint and command.shown_keys and (not command.needs or command.needs in offers)
    ]
    while wanted and width_of(_spans(wanted)) > width:
        wanted.remove(min(wanted, key=lambda command: command.hint))
    return _spans(wanted)


def _spans(commands: Sequence[Command]) -> Spans:
    spans: Spans = []
    for command in commands:
        gap = "  " if spans else ""
        spans += [(gap, ""), (command.shown_keys[0], "key"), (f" {command.label}", "dim")]
    return spans


def help_of(
    scope: Scope, notes: Sequence[str], keymap: Mapping[str, str], more: Sequence[Block] = ()
) -> Document:
    """The help page of a screen: its keys, `more`, and remarks."""
    facts: list[tuple[str, Spans]] = [
        ("  ".join(command.shown_keys), [(command.help, "")])
        for command in screen_commands(scope, keymap)
    ]
    blocks: list[Block] = [
        HeadBlock("head", [(SCREENS[scope], "h2")]),
        FactsBlock("keys", facts, names="key"),
        *more,
    ]
    for number, text in enumerate(notes):
        blocks.append(NoteBlock(f"note:{number}", [(text, "dim")], above=1))
    return Document("help", "Help", blocks)
