"""Every command, declared once: its key, hint, palette entry, help text and id."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from kbtui.tui.framework.command import (
    MOVING,
    NAMED,
    PUNCTUATION,
    Command,
    bindings_for,
    key,
    rekeyed,
    shown_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from textual.binding import Binding


Scope = Literal[
    "everywhere", "moving", "library", "reader", "citations", "results",
    "workshop", "doctor", "entries", "sources", "insights",
]  # fmt: skip

SCOPES: dict[Scope, str] = {
    "library": "In the library",
    "reader": "In the reader",
    "citations": "In the citations",
    "results": "In the search results",
    "moving": "Moving inside a pane",
    "everywhere": "Everywhere",
}
"""The main screen's scopes, in the order of its help, with headings; others: `SCREENS`."""


def within(scope: Scope, *commands: Command) -> list[Command]:
    """Commands as those of a scope, with ids that say so."""
    prefix = "" if scope == "everywhere" else f"{scope}."
    palette = scope in SCOPES
    return [
        c._replace(id=f"{prefix}{c.id}", scope=scope, palette=palette and c.palette)
        for c in commands
    ]


COMMANDS: tuple[Command, ...] = (
    *within(
        "library",
        key("open", "enter", "open", "Open what is selected.", 9, about="item"),
        key("expand", "l,right", "expand", "Show what a topic or folder holds."),
        key("collapse", "h,left", "collapse", "Hide what a topic or folder holds, or go to what it lies in."),
        key("toggle", "space", "expand or collapse", "Expand or collapse.", action="expand_or_collapse", palette=False),
        key("filter", "f", "filter", "Show only what has these words in its title, or label:, tool:, model:, after:, before:, is:.", 7),
        key("sort", "o", "order", "Sort conversations by activity, creation, update, title or turns."),
        key("clear", "escape", "all titles", "Take the filter away.", palette=False),
    ),
    *within(
        "reader",
        key("fold", "enter", "unfold", "Unfold or fold what is at the line being read, or open it.", 8, needs="folds"),
        key("next", "n", "next turn", "Go to the next turn; while finding, to the next match.", 6, needs="turns"),
        key("previous", "N", "previous turn", "Go to the previous turn or match.", needs="turns"),
        key("next_request", "u", "next request", "Go to the next thing that a person said.", needs="turns", action="landmark('request',1)"),
        key("previous_request", "U", "previous request", "Go to the thing before that a person said.", needs="turns", action="landmark('request',-1)"),
        key("next_error", "w", "next error", "Go to the next tool call that failed.", needs="turns", action="landmark('error',1)"),
        key("previous_error", "W", "previous error", "Go to the tool call before that failed.", needs="turns", action="landmark('error',-1)"),
        key("follow", "F", "follow", "Go to the end, and stay there while more is written.", needs="turns"),
        key("find", "f,ctrl+f", "find", "Find words in what is being read.", 7),
        key("tools", "t", "tool calls", "Unfold or fold all tool calls and results.", 4, needs="turns"),
        key("reasoning", "r", "reasoning", "Unfold or fold all reasoning.", 3, needs="turns"),
        key("compacted", "c", "what the model sees", "Show what the model sees after compaction, or all again.", needs="turns"),
        key("facts", "a", "facts", "About the conversation: model, labels, attachments, turns, place, size.", 2, needs="turns"),
        key("view", "v", "other view", "Change between rendered, source and what `learn` gives.", 5, needs="views"),
        key("link", "o", "open link", "Open a link or image of the line being read; another program only after showing what it gets.", action="screen.link"),
        key("wrap", "x", "wrap or scroll code", "Wrap lines of code that are too wide, or cut them to be scrolled.", action="wrap"),
        key("code_right", "l,right", "code to the right", "Show more of wide code at its right.", action="sideways(1)", palette=False),
        key("code_left", "h,left", "code to the left", "Show more of wide code at its left.", action="sideways(-1)", palette=False),
        key("clear", "escape", "clear marks", "End finding and clear the marks.", palette=False),
    ),
    *within(
        "citations",
        key("open", "enter", "open", "Open what was used, at the passage, or the turn that used it.", 9),
        key("markdown", "c", "copy as Markdown", "Copy the citations as Markdown.", 6, action="copy_as('markdown')"),
        key("json", "J", "copy as JSON", "Copy the citations as JSON.", 5, action="copy_as('json')"),
    ),
    *within(
        "results",
        key("open", "enter", "open", "Open the hit where it matches.", 9),
        key("explain", "x", "explain", "Explain why this hit stands where it stands.", 7),
        key("why", "w", "why not", "Explain why something was not found; asks for its reference.", 3),
        key("mode", "m", "other mode", "Change between all results, keywords and meaning.", 6),
        key("close", "escape", "close", "Leave the results, back to what was being read.", 8),
    ),
    *MOVING,
    *within(
        "everywhere",
        key("search", "slash", "search", "Search everything; Esc leaves the input.", 10, at_once=True),
        key("palette", "ctrl+p,colon", "palette", "Find a command, topic, subject or conversation by name.", 2),
        key("go", "number_sign,ctrl+g", "go to", "Go to a turn by its number, or to any reference.", about="item"),
        key("jump", "semicolon", "jump", "Jump to a pane, row or link by the letter shown on it.", about="item"),
        key("back", "left_square_bracket", "back", "Back to what was read before."),
        key("forward", "right_square_bracket", "forward", "Forward again, to what one went back from."),
        key("similar", "s", "more like this", "Show more like what is selected or being read.", about="item"),
        key("bookmark", "B", "bookmark", "Bookmark what is selected or being read, with a note.", about="item"),
        key("bookmarks", "apostrophe", "bookmarks", "Show the bookmarks, to open, change or remove one."),
        key("copy", "y", "copy reference", "Copy the reference of what is selected or being read.", 1, about="item"),
        key("copy_more", "Y", "copy text", "Copy the line, block, turn or document, or the command that shows it.", about="item"),
        key("edit", "e", "edit", "Open the subject in $EDITOR at the line being read.", about="item"),
        key("prompt", "p", "prompt", "Show the whole <knowledge> prompt and what it costs."),
        key("workshop", "P", "prompt workshop", "Shape the prompt: mark subjects, try patterns, see what it costs."),
        key("doctor", "D", "doctor", "See what is wrong with topics, conversations, index, engine and model."),
        key("hidden", "full_stop", "hidden subjects", "Show or hide hidden subjects."),
        key("entries", "E", "entries", "See all entries as a table; filter, write, edit, delete them."),
        key("sources", "S", "sources", "See what fetches documents; run, approve, add, change, remove it."),
        key("insights", "I", "insights", "See what was asked, found, used and missing."),
        key("new", "plus", "new entry", "Write a new entry."),
        key("export", "X", "export", "Write the conversation with its sources to a Markdown file.", about="item"),
        key("first", "i", "first topic", "Show what a first .jp/kb.toml could be, and write it on yes."),
        key("home", "H", "home", "Show the home page."),
        key("pane.library", "1", "library", "Go to the library; from there: fold it away.", action="pane('library')"),
        key("pane.reader", "2", "reader", "Go to the reader.", action="pane('reader')"),
        key("pane.citations", "3", "citations", "Go to the citations; from there: fold them away.", action="pane('citations')"),
        key("pane.search", "4", "search results", "Go to the search input, with its results.", action="pane('search')"),
        key("pane.next", "tab", "next pane", "Go to the next pane.", action="next_pane", palette=False),
        key("pane.previous", "shift+tab", "previous pane", "Go to the previous pane.", action="previous_pane", palette=False),
        key("pane.wider", "greater_than_sign", "wider", "Make the pane wider.", action="widen(2)"),
        key("pane.narrower", "less_than_sign", "narrower", "Make the pane narrower.", action="widen(-2)"),
        key("pane.usual", "equals_sign", "usual widths", "Give all panes their usual widths, and unfold them.", action="usual_widths"),
        key("pane.zoom", "z", "this pane alone", "Show this pane alone, or all of them again.", action="zoom"),
        key("theme", "T", "light or dark", "Change between the dark and the light theme.", action="app.theme"),
        key("reload", "ctrl+r", "read again", "Read lists and document again from the files."),
        key("help", "question_mark", "help", "Explain the keys of where you are.", 11),
        key("quit", "q", "quit", "Leave kbtui.", 12, action="app.quit"),
    ),
)  # fmt: skip
"""All commands of the main screen. `key` takes name, keys, label, help and hint."""


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
        key("filter", "f,slash", "filter", "Filter by words, type:, is:, topic:, after: and before:.", 10, at_once=True),
        key("type", "t", "type", "The next type or source kind.", 5, action="turn('type')"),
        key("status", "s", "status", "The next status.", 4, action="turn('is')"),
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
_BY_ID = {command.id: command for command in ALL}


def command_by_id(command_id: str) -> Command | None:
    """The command with this id."""
    return _BY_ID.get(command_id)


def commands_of(*scopes: Scope, keymap: Mapping[str, str] | None = None) -> list[Command]:
    """The commands of some scopes, in the order of declaration, with the keys of a keymap."""
    return rekeyed((command for command in ALL if command.scope in scopes), keymap)


def bindings(*scopes: Scope) -> list[Binding]:
    """The key bindings of the commands of some scopes, for a class's `BINDINGS`."""
    return bindings_for(commands_of(*scopes))


def own_key(name: str, keymap: Mapping[str, str]) -> str:
    """The first key of the command with this id, as people write it; "" where it has none."""
    (command,) = rekeyed((one for one in ALL if one.id == name), keymap)
    return next(iter(command.shown_keys), "")


NO_KEY = "no-key"
"""What Textual is told for a command that is to have no key."""
RESERVED = {"ctrl+q": "leaves kbtui from everywhere", "ctrl+c": "copies what is selected"}

_KEYS = {shown.casefold(): key for key, shown in NAMED.items()}
_KEYS |= {key: key for key in NAMED} | {shown: key for key, shown in PUNCTUATION.items()}
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
    elif last in PUNCTUATION:
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
        for pressed in keymap.keys.get(command.id, command.keys).split(","):
            if pressed:
                uses.setdefault((command.scope, pressed), []).append(command)
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
    for (scope, pressed), commands in uses.items():
        for inner in commands:
            for outer_scope in _outside(scope):
                for outer in uses.get((outer_scope, pressed), ()):
                    if not {inner.id, outer.id} & set(keymap.keys):
                        continue
                    # A command that is at once comes before all others.
                    first, second = (outer, inner) if outer.at_once else (inner, outer)
                    found.append(
                        f"{second.id}: {shown_key(pressed)} is {first.id} ({first.label}) "
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
