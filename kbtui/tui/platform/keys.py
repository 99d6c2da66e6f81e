"""Keys of one screen: their bindings, its bottom line and its help, out of one declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding

from kbtui.tui.commands import Command
from kbtui.tui.document.blocks import FactsBlock, HeadBlock, NoteBlock
from kbtui.tui.document.document import Document
from kbtui.tui.document.lines import width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtui.tui.document.blocks import Block
    from kbtui.tui.document.lines import Spans


def key(
    keys: str,
    action: str,
    label: str,
    explained: str,
    hint: int = 0,
    needs: str = "",
    *,
    at_once: bool = False,
) -> Command:
    """A key of the screen; `hint` above 0 puts it in the bottom line, higher ones stay longest.

    With `needs` it shows there only while the screen offers that. `at_once` is for what takes
    the keys that follow: the screen's `check_action` leaves it alone in inputs.
    """
    name = f"platform.{action}"
    return Command(
        name, keys, action, label, explained, "everywhere", hint, needs=needs, at_once=at_once
    )


def bindings_of(commands: Sequence[Command]) -> list[Binding]:
    """The key bindings of a screen."""
    return [
        Binding(command.keys, command.action, command.label, show=False, priority=command.at_once)
        for command in commands
    ]


def hints_of(commands: Sequence[Command], width: int, offers: frozenset[str]) -> Spans:
    """The keys that matter, as many as fit into `width` cells."""
    wanted = [c for c in commands if c.hint and (not c.needs or c.needs in offers)]
    while wanted and width_of(_spans(wanted)) > width:
        wanted.remove(min(wanted, key=lambda command: command.hint))
    return _spans(wanted)


def _spans(commands: Sequence[Command]) -> Spans:
    spans: Spans = []
    for command in commands:
        gap = "  " if spans else ""
        spans += [(gap, ""), (command.shown_keys[0], "key"), (f" {command.label}", "dim")]
    return spans


def help_of(title: str, commands: Sequence[Command], notes: Sequence[str]) -> Document:
    """The help page of a screen."""
    facts: list[tuple[str, Spans]] = [
        ("  ".join(command.shown_keys), [(command.help, "")]) for command in commands
    ]
    blocks: list[Block] = [
        HeadBlock("head", [(title, "h2")]),
        FactsBlock("keys", facts, names="key"),
    ]
    for number, text in enumerate(notes):
        blocks.append(NoteBlock(f"note:{number}", [(text, "dim")], above=1))
    return Document("help", "Help", blocks)
