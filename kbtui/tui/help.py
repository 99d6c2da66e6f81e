"""Help pages: what the keys do, made from the commands themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.commands import SCOPES, SCREENS, commands_of
from kbtui.tui.library.rows import MARKS
from kbtui.tui.reader.blocks import Block, FactsBlock, HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbtui.tui.commands import Scope
    from kbtui.tui.framework.styled_text import Spans


def help_document(scopes: tuple[Scope, ...], keymap: Mapping[str, str] | None = None) -> Document:
    """The keys of some scopes first, then those of the others."""
    order = [*[s for s in scopes if s != "everywhere"], "moving", "everywhere"]
    order += [scope for scope in SCOPES if scope not in order]
    blocks: list[Block] = []
    for place, scope in enumerate(order):
        heading = SCOPES[scope]  # type: ignore[index]
        blocks.append(HeadBlock(f"head:{scope}", [(heading, "h2")], above=int(place > 0)))
        facts: list[tuple[str, Spans]] = [
            ("  ".join(command.shown_keys), [(command.help, "")])
            for command in commands_of(scope, keymap=keymap)  # type: ignore[arg-type]
        ]
        blocks.append(FactsBlock(f"keys:{scope}", facts, names="key"))
    blocks.append(HeadBlock("head:marks", [("Marks in the library", "h2")], above=1))
    marks: list[tuple[str, Spans]] = [(sign, [(name, "")]) for name, (sign, _) in MARKS.items()]
    blocks.append(FactsBlock("marks", marks))
    text = "In an input letters are text: Esc leaves it, and letters are keys again."
    blocks.append(NoteBlock("input", [(text, "dim")], above=1))
    return Document("help", "Help", blocks)


def screen_help_document(
    scope: Scope, notes: Sequence[str], keymap: Mapping[str, str], more: Sequence[Block] = ()
) -> Document:
    """The help page of a screen: its keys, `more`, and remarks."""
    facts: list[tuple[str, Spans]] = [
        ("  ".join(command.shown_keys), [(command.help, "")])
        for command in commands_of(scope, keymap=keymap)
    ]
    blocks: list[Block] = [
        HeadBlock("head", [(SCREENS[scope], "h2")]),
        FactsBlock("keys", facts, names="key"),
        *more,
    ]
    for number, text in enumerate(notes):
        blocks.append(NoteBlock(f"note:{number}", [(text, "dim")], above=1))
    return Document("help", "Help", blocks)
