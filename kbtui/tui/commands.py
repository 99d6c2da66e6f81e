"""Every command, declared once: its key, hint, palette entry, help text and id."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from kbtui.tui.framework.command import (
    KEY_LABELS,
    MOVE_COMMANDS,
    PUNCTUATION_KEYS,
    Command,
    apply_keymap,
    define_command,
    format_key,
    make_bindings,
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
        define_command("open", "enter", "open", "Open what is selected.", 9, about="item"),
        define_command("expand", "l,right", "expand", "Show what a topic or folder holds."),
        define_command("collapse", "h,left", "collapse", "Hide what a topic or folder holds, or go to what it lies in."),
        define_command("toggle", "space", "expand or collapse", "Expand or collapse.", action="expand_or_collapse", palette=False),
        define_command("filter", "f", "filter", "Show only what has these words in its title, or label:, tool:, model:, after:, before:, is:.", 7),
        define_command("sort", "o", "order", "Sort conversations by activity, creation, update, title or turns."),
        define_command("clear", "escape", "all titles", "Take the filter away.", palette=False),
    ),
    *within(
        "reader",
        define_command("fold", "enter", "unfold", "Unfold or fold what is at the line being read, or open it.", 8, needs="folds"),
        define_command("next", "n", "next turn", "Go to the next turn; while finding, to the next match.", 6, needs="turns"),
        define_command("previous", "N", "previous turn", "Go to the previous turn or match.", needs="turns"),
        define_command("next_request", "u", "next request", "Go to the next thing that a person said.", needs="turns", action="landmark('request',1)"),
        define_command("previous_request", "U", "previous request", "Go to the thing before that a person said.", needs="turns", action="landmark('request',-1)"),
        define_command("next_error", "w", "next error", "Go to the next tool call that failed.", needs="turns", action="landmark('error',1)"),
        define_command("previous_error", "W", "previous error", "Go to the tool call before that failed.", needs="turns", action="landmark('error',-1)"),
        define_command("follow", "F", "follow", "Go to the end, and stay there while more is written.", needs="turns"),
        define_command("find", "f,ctrl+f", "find", "Find words in what is being read.", 7),
        define_command("tools", "t", "tool calls", "Unfold or fold all tool calls and results.", 4, needs="turns"),
        define_command("reasoning", "r", "reasoning", "Unfold or fold all reasoning.", 3, needs="turns"),
        define_command("compacted", "c", "what the model sees", "Show what the model sees after compaction, or all again.", needs="turns"),
        define_command("facts", "a", "facts", "About the conversation: model, labels, attachments, turns, place, size.", 2, needs="turns"),
        define_command("view", "v", "other view", "Change between rendered, source and what `learn` gives.", 5, needs="views"),
        define_command("link", "o", "open link", "Open a link or image of the line being read; another program only after showing what it gets.", action="screen.link"),
        define_command("wrap", "x", "wrap or scroll code", "Wrap lines of code that are too wide, or cut them to be scrolled.", action="wrap"),
        define_command("code_right", "l,right", "code to the right", "Show more of wide code at its right.", action="sideways(1)", palette=False),
        define_command("code_left", "h,left", "code to the left", "Show more of wide code at its left.", action="sideways(-1)", palette=False),
        define_command("clear", "escape", "clear marks", "End finding and clear the marks.", palette=False),
    ),
    *within(
        "citations",
        define_command("open", "enter", "open", "Open what was used, at the passage, or the turn that used it.", 9),
        define_command("markdown", "c", "copy as Markdown", "Copy the citations as Markdown.", 6, action="copy_as('markdown')"),
        define_command("json", "J", "copy as JSON", "Copy the citations as JSON.", 5, action="copy_as('json')"),
    ),
    *within(
        "results",
        define_command("open", "enter", "open", "Open the hit where it matches.", 9),
        define_command("explain", "x", "explain", "Explain this result's rank.", 7, action="screen.explain_hit"),
        define_command("why", "w", "why isn't X here?", "Explain why something is not in the results; asks for its reference.", 3, action="screen.explain_missing"),
        define_command("mode", "m", "mode", "Switch the search mode: both, keywords, meaning.", 6, action="screen.change_search_mode"),
        define_command("close", "escape", "close", "Close the results.", 8, action="screen.close_results"),
    ),
    *MOVE_COMMANDS,
    *within(
        "everywhere",
        define_command("search", "slash", "search", "Search everything; Esc leaves the input.", 10, is_immediate=True),
        define_command("palette", "ctrl+p,colon", "palette", "Find a command, topic, subject or conversation by name.", 2),
        define_command("go", "number_sign,ctrl+g", "go to", "Go to a turn by its number, or to any reference.", about="item"),
        define_command("jump", "semicolon", "jump", "Jump to a pane, row or link by the letter shown on it.", about="item"),
        define_command("back", "left_square_bracket", "back", "Back to what was read before."),
        define_command("forward", "right_square_bracket", "forward", "Forward again, to what one went back from."),
        define_command("similar", "s", "more like this", "Show more like what is selected or being read.", about="item"),
        define_command("bookmark", "B", "bookmark", "Bookmark what is selected or being read, with a note.", about="item"),
        define_command("bookmarks", "apostrophe", "bookmarks", "Show the bookmarks, to open, change or remove one."),
        define_command("copy", "y", "copy reference", "Copy the reference of what is selected or being read.", 1, about="item"),
        define_command("copy_more", "Y", "copy text", "Copy the line, block, turn or document, or the command that shows it.", about="item"),
        define_command("edit", "e", "edit", "Open the subject in $EDITOR at the line being read.", about="item"),
        define_command("prompt", "p", "prompt", "Show the whole <knowledge> prompt and what it costs."),
        define_command("workshop", "P", "prompt workshop", "Shape the prompt: mark subjects, try patterns, see what it costs."),
        define_command("doctor", "D", "doctor", "See what is wrong with topics, conversations, index, engine and model."),
        define_command("hidden", "full_stop", "hidden subjects", "Show or hide hidden subjects."),
        define_command("entries", "E", "entries", "See all entries as a table; filter, write, edit, delete them."),
        define_command("sources", "S", "sources", "See what fetches documents; run, approve, add, change, remove it."),
        define_command("insights", "I", "insights", "See what was asked, found, used and missing."),
        define_command("new", "plus", "new entry", "Write a new entry."),
        define_command("export", "X", "export", "Write the conversation with its sources to a Markdown file.", about="item"),
        define_command("first", "i", "first topic", "Show what a first .jp/kb.toml could be, and write it on yes."),
        define_command("home", "H", "home", "Show the home page."),
        define_command("pane.library", "1", "library", "Go to the library; from there: fold it away.", action="pane('library')"),
        define_command("pane.reader", "2", "reader", "Go to the reader.", action="pane('reader')"),
        define_command("pane.citations", "3", "citations", "Go to the citations; from there: fold them away.", action="pane('citations')"),
        define_command("pane.search", "4", "search results", "Go to the search input, with its results.", action="pane('search')"),
        define_command("pane.next", "tab", "next pane", "Go to the next pane.", action="next_pane", palette=False),
        define_command("pane.previous", "shift+tab", "previous pane", "Go to the previous pane.", action="previous_pane", palette=False),
        define_command("pane.wider", "greater_than_sign", "wider", "Make the pane wider.", action="widen(2)"),
        define_command("pane.narrower", "less_than_sign", "narrower", "Make the pane narrower.", action="widen(-2)"),
        define_command("pane.usual", "equals_sign", "usual widths", "Give all panes their usual widths, and unfold them.", action="usual_widths"),
        define_command("pane.zoom", "z", "this pane alone", "Show this pane alone, or all of them again.", action="zoom"),
        define_command("theme", "T", "light or dark", "Change between the dark and the light theme.", action="app.theme"),
        define_command("reload", "ctrl+r", "read again", "Read lists and document again from the files."),
        define_command("help", "question_mark", "help", "Explain the keys of where you are.", 11),
        define_command("quit", "q", "quit", "Leave kbtui.", 12, action="app.quit"),
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

_THEME = define_command("theme", "T", "light or dark", "Change between the dark and the light theme.", action="app.theme")  # fmt: skip
_HELP = define_command("help", "question_mark", "help", "Explain these keys.", 11)

SCREEN_COMMANDS: tuple[Command, ...] = (
    *within(
        "workshop",
        define_command("learn", "space,l", "pre-load", "Pre-load the subject, or no longer.", 9, action="mark('learned')"),
        define_command("disable", "x", "disable", "Disable the subject, or no longer.", 8, action="mark('disabled')"),
        define_command("switch", "e", "on/off", "Switch the selected entry's topic off or on.", 5),
        define_command("write", "w", "write", "Show what would be written to .jp/kb.toml; again: write it.", 10),
        define_command("undo", "u", "undo", "Take back what was last written from here.", 4, needs="written"),
        define_command("drop", "U", "drop", "Take back all marks that are not written.", 3, needs="marks"),
        define_command("try", "slash", "try", "Try a glob, TOPIC/GLOB or -k TOPIC/GLOB.", 7),
        define_command("view", "v", "view", "Change between what `learn` returns and the whole prompt.", 6),
        define_command("open", "enter", "open", "Open a topic or folder; go to the text of a subject; write what is shown."),
        define_command("expand", "right", "expand", "Show what a topic or folder holds."),
        define_command("collapse", "left,h", "collapse", "Hide it again, or go to its parent."),
        define_command("filter", "f", "filter", "Show only slugs with these words."),
        define_command("hidden", "full_stop", "hidden", "Show or hide hidden subjects."),
        define_command("next", "tab,shift+tab", "other side", "Go between list and text.", action="other_side"),
        define_command("reload", "ctrl+r", "read again", "Read everything again; marks stay."),
        _THEME,
        _HELP,
        define_command("back", "escape", "back", "One step back: pattern, filter, shown change, then leave."),
        define_command("leave", "q", "leave", "Leave; asks when marks are not written.", 12),
    ),
    *within(
        "doctor",
        define_command("open", "enter", "open", "Open what the finding is about.", 10),
        define_command("next", "n", "next", "Go to the next finding that is wrong or to be looked at.", 9, action="next(1)"),
        define_command("previous", "N", "previous", "Go to the one before.", action="next(-1)"),
        define_command("look", "r,ctrl+r", "look again", "Look at everything again.", 8),
        _THEME,
        _HELP,
        define_command("leave", "escape,q,D", "close", "Close the page.", 12),
    ),
    *within(
        "entries",
        define_command("enter", "enter", "details", "Go to the details; there: unfold a passage, open a turn.", 9),
        define_command("read", "r", "read it", "Open it in the reader.", 8),
        define_command("filter", "f,slash", "filter", "Filter by words, type:, is:, topic:, after: and before:.", 10, is_immediate=True),
        define_command("type", "t", "type", "The next type or source kind.", 5, action="turn('type')"),
        define_command("status", "s", "status", "The next status.", 4, action="turn('is')"),
        define_command("new", "n", "new", "Write a new entry.", 7),
        define_command("edit", "e", "edit", "Edit it in $EDITOR; id and citations stay.", 6),
        define_command("remove", "d,delete", "delete", "Move it to the trash, after asking.", 3),
        define_command("address", "o", "address", "Open the address that it was fetched from.", 2, needs="address"),
        define_command("retry", "R", "try again", "Read and embed again what could not be.", 9, needs="errors"),
        define_command("copy", "y", "copy", "Copy its reference."),
        define_command("hidden", "full_stop", "hidden", "Show or hide hidden subjects.", action="flag('hidden')"),
        define_command("archived", "a", "archived", "Show or hide archived conversations.", action="flag('archived')"),
        define_command("reload", "ctrl+r", "read again", "Read everything again."),
        _THEME,
        _HELP,
        define_command("back", "escape", "back", "One step back: details, filter, then leave."),
        define_command("leave", "q,E", "leave", "Leave.", 12),
    ),
    *within(
        "sources",
        define_command("agree", "y", "approve it", "Approve exactly what is shown.", 13, needs="approving"),
        define_command("run", "r", "run", "Run it now.", 10, needs="source"),
        define_command("stop", "x", "stop", "End the run; what was fetched is kept.", 11, needs="running"),
        define_command("approve", "a", "look at, approve", "Show exactly what it would do, and approve it.", 10, needs="unapproved"),
        define_command("new", "n", "add", "Add a source.", 8),
        define_command("edit", "e", "change", "Change it.", 6, needs="source"),
        define_command("remove", "d,delete", "remove", "Remove it; asks whether its documents stay.", 5, needs="source"),
        define_command("enter", "enter", "details", "Go to its page.", 7),
        define_command("reload", "ctrl+r", "read again", "Read everything again."),
        _THEME,
        _HELP,
        define_command("back", "escape", "back", "One step back."),
        define_command("leave", "q,S", "leave", "Leave; asks when something runs.", 12),
    ),
    *within(
        "insights",
        define_command("open", "enter", "open, write", "Open the entry; at a query that found nothing: write it.", 10),
        define_command("next", "n", "next", "To the next part of the page.", 7, action="next(1)"),
        define_command("previous", "N", "part before", "To the part before.", action="next(-1)"),
        define_command("days", "d", "days", "Look at other days: 30, 90, 7.", 8),
        define_command("hidden", "full_stop", "hidden", "Count hidden subjects too, or not."),
        define_command("erase", "x", "erase searches", "Remove every logged search, after asking.", 5),
        define_command("reload", "ctrl+r,r", "read again", "Read everything again."),
        _THEME,
        _HELP,
        define_command("leave", "escape,q,I", "close", "Close the page.", 12),
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
    return apply_keymap((command for command in ALL if command.scope in scopes), keymap)


def bindings(*scopes: Scope) -> list[Binding]:
    """The key bindings of the commands of some scopes, for a class's `BINDINGS`."""
    return make_bindings(commands_of(*scopes))


def own_key(name: str, keymap: Mapping[str, str]) -> str:
    """The first key of the command with this id, as people write it; "" where it has none."""
    (command,) = apply_keymap((one for one in ALL if one.id == name), keymap)
    return next(iter(command.key_labels), "")


NO_KEY = "no-key"
"""What Textual is told for a command that is to have no key."""
RESERVED = {"ctrl+q": "leaves kbtui from everywhere", "ctrl+c": "copies what is selected"}

_KEYS = {shown.casefold(): key for key, shown in KEY_LABELS.items()}
_KEYS |= {key: key for key in KEY_LABELS} | {shown: key for key, shown in PUNCTUATION_KEYS.items()}
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
    elif last in PUNCTUATION_KEYS:
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
        usual = " ".join(loser.key_labels) or "no key"
        keymap.problems.append(
            f"{loser.id}: {format_key(key)} is already {other.id} ({other.label}); it keeps {usual}"
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
                    first, second = (outer, inner) if outer.is_immediate else (inner, outer)
                    found.append(
                        f"{second.id}: {format_key(pressed)} is {first.id} ({first.label}) "
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
