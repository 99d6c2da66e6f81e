"""Every command, declared once: its key, hint, palette entry, help text and keymap id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal["everywhere", "moving", "library", "reader", "citations", "results"]

SCOPES: dict[Scope, str] = {
    "library": "In the library",
    "reader": "In the reader",
    "citations": "In the citations",
    "results": "In the search results",
    "moving": "Moving inside a pane",
    "everywhere": "Everywhere",
}
"""The scopes, in the order of the help screen, with their headings."""


@dataclass(frozen=True)
class Command:
    """Something that a key does.

    `id` names it in keymaps. `keys` are Textual's names, separated by commas;
    `action` is a method `action_…` of the widget that owns the scope. `label` is
    for hints and the palette, `help` a sentence. `hint` puts it in the bottom
    line; a higher one is dropped later when there is little room. `needs` names what a
    document must have for the command to be of use: "turns", "folds" or "views". `at_once`
    is for what takes the keys that follow: it happens before they are handed out.
    """

    id: str
    keys: str
    action: str
    label: str
    help: str
    scope: Scope
    hint: int = 0
    palette: bool = True
    needs: str = ""
    at_once: bool = False

    @property
    def shown_keys(self) -> list[str]:
        """The keys as people write them."""
        return [_SHOWN.get(key, key.replace("ctrl+", "^")) for key in self.keys.split(",")]


_SHOWN = {
    "slash": "/",
    "question_mark": "?",
    "full_stop": ".",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "colon": ":",
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

COMMANDS: tuple[Command, ...] = (
    Command("library.open", "enter", "open", "open", "Open what is selected.", "library", 9),
    Command(
        "library.expand",
        "l,right",
        "expand",
        "expand",
        "Show what a topic or folder holds.",
        "library",
    ),
    Command(
        "library.collapse",
        "h,left",
        "collapse",
        "collapse",
        "Hide it again, or go to its parent.",
        "library",
    ),
    Command(
        "library.toggle",
        "space",
        "expand_or_collapse",
        "expand or collapse",
        "Expand or collapse.",
        "library",
        palette=False,
    ),
    Command(
        "library.filter",
        "f",
        "filter",
        "filter",
        "Show only titles and slugs with these words.",
        "library",
        7,
    ),
    Command(
        "library.clear",
        "escape",
        "clear",
        "all titles",
        "Take the filter away.",
        "library",
        palette=False,
    ),
    Command(
        "reader.fold",
        "enter",
        "fold",
        "unfold",
        "Unfold or fold what is at the line being read, or open it.",
        "reader",
        8,
        needs="folds",
    ),
    Command(
        "reader.next",
        "n",
        "next",
        "next turn",
        "Go to the next turn; while finding, to the next match.",
        "reader",
        6,
        needs="turns",
    ),
    Command(
        "reader.previous",
        "N",
        "previous",
        "previous turn",
        "Go to the previous turn or match.",
        "reader",
        needs="turns",
    ),
    Command(
        "reader.find", "f,ctrl+f", "find", "find", "Find words in what is being read.", "reader", 7
    ),
    Command(
        "reader.tools",
        "t",
        "tools",
        "tool calls",
        "Unfold or fold all tool calls and results.",
        "reader",
        4,
        needs="turns",
    ),
    Command(
        "reader.reasoning",
        "r",
        "reasoning",
        "reasoning",
        "Unfold or fold all reasoning.",
        "reader",
        3,
        needs="turns",
    ),
    Command(
        "reader.view",
        "v",
        "view",
        "other view",
        "Change between rendered, source and what `learn` gives.",
        "reader",
        5,
        needs="views",
    ),
    Command(
        "reader.clear",
        "escape",
        "clear",
        "clear marks",
        "End finding and clear the marks.",
        "reader",
        palette=False,
    ),
    Command(
        "citations.open",
        "enter",
        "open",
        "open",
        "Open what was used, or the turn that used it.",
        "citations",
        9,
    ),
    Command(
        "results.open", "enter", "open", "open", "Open the hit where it matches.", "results", 9
    ),
    Command(
        "results.mode",
        "m",
        "mode",
        "other mode",
        "Change between all results, keywords and meaning.",
        "results",
        6,
    ),
    Command(
        "results.close",
        "escape",
        "close",
        "close",
        "Leave the results, back to what was being read.",
        "results",
        8,
    ),
    Command(
        "move.down", "j,down", "down", "down", "One line or entry down.", "moving", palette=False
    ),
    Command("move.up", "k,up", "up", "up", "One line or entry up.", "moving", palette=False),
    Command(
        "move.half_down",
        "ctrl+d",
        "half_down",
        "half a page down",
        "Half a page down.",
        "moving",
        palette=False,
    ),
    Command(
        "move.half_up",
        "ctrl+u",
        "half_up",
        "half a page up",
        "Half a page up.",
        "moving",
        palette=False,
    ),
    Command(
        "move.page_down",
        "pagedown",
        "page_down",
        "page down",
        "A page down.",
        "moving",
        palette=False,
    ),
    Command(
        "move.page_up", "pageup,b", "page_up", "page up", "A page up.", "moving", palette=False
    ),
    Command(
        "move.top", "g,home", "top", "to the top", "To the beginning.", "moving", palette=False
    ),
    Command("move.bottom", "G,end", "bottom", "to the end", "To the end.", "moving", palette=False),
    Command(
        "search",
        "slash",
        "search",
        "search",
        "Search everything; Esc leaves the input.",
        "everywhere",
        10,
        at_once=True,
    ),
    Command(
        "palette",
        "ctrl+p,colon",
        "palette",
        "palette",
        "Find a command, topic, subject or conversation by name.",
        "everywhere",
        2,
    ),
    Command(
        "back", "left_square_bracket", "back", "back", "Back to what was read before.", "everywhere"
    ),
    Command(
        "forward", "right_square_bracket", "forward", "forward", "Forward again.", "everywhere"
    ),
    Command(
        "copy",
        "y",
        "copy",
        "copy reference",
        "Copy the reference of what is selected or being read.",
        "everywhere",
        1,
    ),
    Command(
        "prompt",
        "p",
        "prompt",
        "prompt",
        "Show the whole <knowledge> prompt and what it costs.",
        "everywhere",
    ),
    Command(
        "workshop",
        "P",
        "workshop",
        "prompt workshop",
        "Shape the prompt: mark subjects, try patterns, see what it costs.",
        "everywhere",
    ),
    Command(
        "doctor",
        "D",
        "doctor",
        "doctor",
        "See what is wrong with topics, conversations, index, engine and model.",
        "everywhere",
    ),
    Command(
        "hidden",
        "full_stop",
        "hidden",
        "hidden subjects",
        "Show or hide hidden subjects.",
        "everywhere",
    ),
    Command("pane.library", "1", "pane('library')", "library", "Go to the library.", "everywhere"),
    Command("pane.reader", "2", "pane('reader')", "reader", "Go to the reader.", "everywhere"),
    Command(
        "pane.citations",
        "3",
        "pane('citations')",
        "citations",
        "Show the citations, or hide them again.",
        "everywhere",
    ),
    Command(
        "pane.search",
        "4",
        "pane('search')",
        "search results",
        "Go to the search input, with its results.",
        "everywhere",
    ),
    Command(
        "pane.next",
        "tab",
        "next_pane",
        "next pane",
        "Go to the next pane.",
        "everywhere",
        palette=False,
    ),
    Command(
        "pane.previous",
        "shift+tab",
        "previous_pane",
        "previous pane",
        "Go to the previous pane.",
        "everywhere",
        palette=False,
    ),
    Command(
        "theme",
        "T",
        "app.theme",
        "light or dark",
        "Change between the dark and the light theme.",
        "everywhere",
    ),
    Command(
        "reload",
        "ctrl+r",
        "reload",
        "read again",
        "Read lists and document again from the files.",
        "everywhere",
    ),
    Command(
        "help",
        "question_mark",
        "help",
        "help",
        "Explain the keys of where you are.",
        "everywhere",
        11,
    ),
    Command("quit", "q", "app.quit", "quit", "Leave kbtui.", "everywhere", 12),
)


def bindings(*scopes: Scope) -> list[Binding]:
    """The key bindings of the commands of some scopes, for a class's `BINDINGS`."""
    return [
        Binding(
            command.keys,
            command.action,
            command.label,
            id=command.id,
            show=False,
            priority=command.at_once,
        )
        for command in COMMANDS
        if command.scope in scopes
    ]


def commands_of(*scopes: Scope) -> list[Command]:
    """The commands of some scopes, in the order of declaration."""
    return [command for command in COMMANDS if command.scope in scopes]
