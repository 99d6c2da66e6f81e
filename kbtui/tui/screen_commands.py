"""The commands of the screens that open over the main one, declared as those in `commands` are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.commands import COMMANDS, Command, key, rekeyed, within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.tui.commands import Scope

SCREENS: dict[Scope, str] = {
    "workshop": "In the prompt workshop",
    "doctor": "In the doctor",
    "entries": "In the entries",
    "sources": "In the sources",
    "insights": "In the insights",
}
"""Their scopes, with headings. In these nothing of "everywhere" holds, only "moving"."""

_THEME = key("theme", "T", "light or dark", "Change between the dark and the light theme.", action="app.theme")  # fmt: skip
_HELP = key("help", "question_mark", "help", "Explain these keys.", 11)

SCREEN_COMMANDS: tuple[Command, ...] = (
    *within(
        "workshop",
        key("learn", "space,l", "pre-load", "Pre-load the subject, or no longer.", 9, action="mark('learned')"),
        key("disable", "x", "disable", "Disable the subject, or no longer.", 8, action="mark('disabled')"),
        key("switch", "e", "on/off", "Switch the selected entry's topic off or on.", 5),
        key("write", "w", "write", "Show what would be written to .jp/kb.toml; again: write it.", 10),
        key("undo", "u", "undo", "Take back what was last written from here.", 4, needs="written"),
        key("drop", "U", "drop", "Take back all marks that are not written.", 3, needs="marks"),
        key("try", "slash", "try", "Try a glob, TOPIC/GLOB or -k TOPIC/GLOB.", 7),
        key("view", "v", "view", "Change between what `learn` returns and the whole prompt.", 6),
        key("open", "enter", "open", "Open a topic or folder; go to the text of a subject; write what is shown."),
        key("expand", "right", "expand", "Show what a topic or folder holds."),
        key("collapse", "left,h", "collapse", "Hide it again, or go to its parent."),
        key("filter", "f", "filter", "Show only slugs with these words."),
        key("hidden", "full_stop", "hidden", "Show or hide hidden subjects."),
        key("next", "tab,shift+tab", "other side", "Go between list and text.", action="other_side"),
        key("reload", "ctrl+r", "read again", "Read everything again; marks stay."),
        _THEME,
        _HELP,
        key("back", "escape", "back", "One step back: pattern, filter, shown change, then leave."),
        key("leave", "q", "leave", "Leave; asks when marks are not written.", 12),
    ),
    *within(
        "doctor",
        key("open", "enter", "open", "Open what the finding is about.", 10),
        key("next", "n", "next", "Go to the next finding that is wrong or to be looked at.", 9, action="next(1)"),
        key("previous", "N", "previous", "Go to the one before.", action="next(-1)"),
        key("look", "r,ctrl+r", "look again", "Look at everything again.", 8),
        _THEME,
        _HELP,
        key("leave", "escape,q,D", "close", "Close the page.", 12),
    ),
    *within(
        "entries",
        key("enter", "enter", "details", "Go to the details; there: unfold a passage, open a turn.", 9),
        key("read", "r", "read it", "Open it in the reader.", 8),
        key("filter", "f,slash", "filter", "Filter by words, type:, status:, topic:, from: and to:.", 10, at_once=True),
        key("type", "t", "type", "The next type or source kind.", 5, action="turn('type')"),
        key("status", "s", "status", "The next status.", 4, action="turn('status')"),
        key("new", "n", "new", "Write a new entry.", 7),
        key("edit", "e", "edit", "Edit it in $EDITOR; id and citations stay.", 6),
        key("remove", "d,delete", "delete", "Move it to the trash, after asking.", 3),
        key("address", "o", "address", "Open the address that it was fetched from.", 2, needs="address"),
        key("retry", "R", "try again", "Read and embed again what could not be.", 9, needs="errors"),
        key("copy", "y", "copy", "Copy its reference."),
        key("hidden", "full_stop", "hidden", "Show or hide hidden subjects.", action="flag('hidden')"),
        key("archived", "a", "archived", "Show or hide archived conversations.", action="flag('archived')"),
        key("reload", "ctrl+r", "read again", "Read everything again."),
        _THEME,
        _HELP,
        key("back", "escape", "back", "One step back: details, filter, then leave."),
        key("leave", "q,E", "leave", "Leave.", 12),
    ),
    *within(
        "sources",
        key("agree", "y", "approve it", "Approve exactly what is shown.", 13, needs="approving"),
        key("run", "r", "run", "Run it now.", 10, needs="source"),
        key("stop", "x", "stop", "End the run; what came until then stays.", 11, needs="running"),
        key("approve", "a", "look at, approve", "Show exactly what it would do, and approve it.", 10, needs="unapproved"),
        key("new", "n", "add", "Add a source.", 8),
        key("edit", "e", "change", "Change it.", 6, needs="source"),
        key("remove", "d,delete", "remove", "Remove it; asks whether its documents stay.", 5, needs="source"),
        key("enter", "enter", "details", "Go to its page.", 7),
        key("reload", "ctrl+r", "read again", "Read everything again."),
        _THEME,
        _HELP,
        key("back", "escape", "back", "One step back."),
        key("leave", "q,S", "leave", "Leave; asks when something runs.", 12),
    ),
    *within(
        "insights",
        key("open", "enter", "open, write", "Open the entry; at a query that found nothing: write it.", 10),
        key("next", "n", "next", "To the next part of the page.", 7, action="next(1)"),
        key("previous", "N", "part before", "To the part before.", action="next(-1)"),
        key("days", "d", "days", "Look at other days: 30, 90, 7.", 8),
        key("hidden", "full_stop", "hidden", "Count hidden subjects too, or not."),
        key("erase", "x", "erase searches", "Remove every logged search, after asking.", 5),
        key("reload", "ctrl+r,r", "read again", "Read everything again."),
        _THEME,
        _HELP,
        key("leave", "escape,q,I", "close", "Close the page.", 12),
    ),
)  # fmt: skip
"""All commands of these screens. `key` takes name, keys, label, help and hint."""

ALL: tuple[Command, ...] = (*COMMANDS, *SCREEN_COMMANDS)
"""Every command that has an id."""


def screen_commands(scope: Scope, keymap: Mapping[str, str] | None = None) -> list[Command]:
    """The commands of a screen, in the order of declaration, with the keys of a keymap."""
    return rekeyed((command for command in SCREEN_COMMANDS if command.scope == scope), keymap)
