"""The workshop's keys and what they do: for its bindings, its bottom line and its help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.binding import Binding

from kbtui.tui.commands import Command
from kbtui.tui.document.blocks import FactsBlock, HeadBlock, NoteBlock
from kbtui.tui.document.document import Document
from kbtui.tui.library_rows import MARKS
from kbtui.tui.prompt.faces import UNWRITTEN

if TYPE_CHECKING:
    from kbtui.tui.document.blocks import Block
    from kbtui.tui.document.lines import Spans


def _key(
    name: str, keys: str, action: str, label: str, explained: str, hint: int = 0, needs: str = ""
) -> Command:
    # Everywhere in this screen: none of them is among the commands of the main one.
    return Command(
        f"workshop.{name}", keys, action, label, explained, "everywhere", hint, needs=needs
    )


COMMANDS = (
    _key("learn", "space,l", "mark('learned')", "pre-load", "Pre-load the subject, or no longer.", 9),
    _key("disable", "x", "mark('disabled')", "disable", "Disable the subject, or no longer.", 8),
    _key("switch", "e", "switch", "on/off", "Switch the selected entry's topic off or on.", 5),
    _key("write", "w", "write", "write", "Show what would be written to .jp/kb.toml; again: write it.", 10),
    _key("undo", "u", "undo", "undo", "Take back what was last written from here.", 4, "written"),
    _key("drop", "U", "drop", "drop", "Take back all marks that are not written.", 3, "marks"),
    _key("try", "slash", "try", "try", "Try a glob, TOPIC/GLOB or -k TOPIC/GLOB.", 7),
    _key("view", "v", "view", "view", "Change between what `learn` returns and the whole prompt.", 6),
    _key("open", "enter", "open", "open", "Open a topic or folder; go to the text of a subject; write what is shown."),
    _key("expand", "right", "expand", "expand", "Show what a topic or folder holds."),
    _key("collapse", "left,h", "collapse", "collapse", "Hide it again, or go to its parent."),
    _key("filter", "f", "filter", "filter", "Show only slugs with these words."),
    _key("hidden", "full_stop", "hidden", "hidden", "Show or hide hidden subjects."),
    _key("next", "tab,shift+tab", "other_side", "other side", "Go between list and text."),
    _key("reload", "ctrl+r", "reload", "read again", "Read everything again; marks stay."),
    _key("theme", "T", "app.theme", "light or dark", "Change between the dark and the light theme."),
    _key("help", "question_mark", "help", "help", "Explain these keys.", 11),
    _key("back", "escape", "back", "back", "One step back: pattern, filter, shown change, then leave."),
    _key("leave", "q", "leave", "leave", "Leave; asks when marks are not written.", 12),
)  # fmt: skip


def workshop_bindings() -> list[Binding]:
    """The key bindings of the screen."""
    return [
        Binding(command.keys, command.action, command.label, id=command.id, show=False)
        for command in COMMANDS
    ]


def hints(width: int, offers: frozenset[str]) -> Spans:
    """The keys that matter, as many as fit into `width` cells."""
    wanted = [c for c in COMMANDS if c.hint and (not c.needs or c.needs in offers)]
    while wanted and len(_plain(wanted)) > width:
        wanted.remove(min(wanted, key=lambda command: command.hint))
    spans: Spans = []
    for command in wanted:
        gap = "  " if spans else ""
        spans += [(gap, ""), (command.shown_keys[0], "key"), (f" {command.label}", "dim")]
    return spans


def _plain(commands: list[Command]) -> str:
    return "  ".join(f"{command.shown_keys[0]} {command.label}" for command in commands)


def help_page() -> Document:
    """The keys and the signs."""
    facts: list[tuple[str, Spans]] = [
        ("  ".join(command.shown_keys), [(command.help, "")]) for command in COMMANDS
    ]
    names = ("pre-loaded", "disabled", "hidden")
    signs: list[tuple[str, Spans]] = [(MARKS[name][0], [(name, "")]) for name in names]
    signs.append((UNWRITTEN, [("marked, and not written yet", "")]))
    signs.append(("~", [("guessed from the file's size; the text is not counted yet", "")]))
    signs.append(("≈", [("characters at its left, estimated tokens at its right", "")]))
    text = (
        "Marks change nothing until they are written: w shows the change of .jp/kb.toml, "
        "w or Enter then writes it. In an input letters are text: Esc leaves it."
    )
    blocks: list[Block] = [
        HeadBlock("head:keys", [("In the prompt workshop", "h2")]),
        FactsBlock("keys", facts, names="key"),
        HeadBlock("head:signs", [("Signs", "h2")], above=1),
        FactsBlock("signs", signs),
        NoteBlock("note", [(text, "dim")], above=1),
    ]
    return Document("help", "Help", blocks)
