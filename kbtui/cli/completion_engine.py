"""What may be typed next on a command line: answers one TAB of a shell.

`kbtui __complete SHELL …` is what the scripts in `scripts/` call. The first line
of the answer says what follows: `:words`, with a word and its description a line,
or `:files` and `:directories`, which the shell completes itself.
"""

from __future__ import annotations

import sys

from kbtui.cli.main import ALIASES, COMMANDS
from kbtui.cli.option_spec import Argument, declared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.cli.option_spec import CommandSpec

HELP = Argument("-h", "--help", action="store_true", help="explain the command")
WORKSPACE = Argument("-w", "--workspace", metavar="PATH", help="the workspace")
VERSION = Argument("-V", "--version", action="store_true", help="print the version")


class CursorContext:
    """Where the cursor stands: the command, what came before, and what is awaited there."""

    def __init__(self) -> None:
        self.workspace: str | None = None
        self.command: CommandSpec | None = None
        self.awaited: Argument | None = None
        self.given: list[str] = []
        self.used: set[str] = set()
        self.dashes = False


def answer(words: list[str]) -> int:
    """Print what may follow; nothing where nothing may, and never an error."""
    from kbtui.errors import KbtuiError

    shell, *rest = words
    try:
        if shell == "bash":
            from kbtui.cli.bash_quoting import ParsedLine

            line = ParsedLine(rest[0], rest[1])
            kind, found = complete(line.words[1:], line.current)
            found = [(line.completed(word), text) for word, text in _shown(found)]
        else:
            kind, found = complete(rest[1:-1], rest[-1])
            found = _shown(found)
    except (KbtuiError, OSError, ValueError, LookupError):
        return 1
    lines = [f"{word}\t{text}" for word, text in found]
    data = "".join(line + "\n" for line in (f":{kind}", *lines))
    sys.stdout.buffer.write(data.encode("utf-8", "surrogateescape"))
    return 0


def _shown(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What a shell may show: of other words it would show something else than it types."""
    if all(f"{word}{text}".isascii() and f"{word}{text}".isprintable() for word, text in found):
        return found
    from kbtui.text import one_line, safe

    return [(word, one_line(text, "strip")) for word, text in found if safe(word, "strip") == word]


def complete(words: list[str], current: str) -> tuple[str, list[tuple[str, str]]]:
    """The kind of what may follow (`words`, `files`, `directories`), and the words.

    `words` is what stands before the cursor, without `kbtui`; `current` is the word at it.
    """
    place = locate(words)
    prefix = ""
    if place.awaited is None and current.startswith("--") and "=" in current:
        name, _, current = current.partition("=")
        prefix = name + "="
        place = locate([*words, name])
    kind, found = _follow(place, current)
    kept = {
        prefix + word: " ".join(text.split())
        for word, text in found
        # A line a word: what has no line of its own cannot be offered.
        if word.startswith(current) and word.isprintable()
    }
    return kind, list(kept.items())


def locate(words: list[str]) -> CursorContext:
    """Read the words before the cursor as the parsers would."""
    place = CursorContext()
    while words and words[0].startswith("-"):
        name, sign, value = words[0].partition("=")
        if name not in WORKSPACE.names:
            break
        if not sign and len(words) == 1:
            place.awaited = WORKSPACE
            return place
        place.workspace, words = (value, words[1:]) if sign else (words[1], words[2:])
    if words:
        place.command = declared(ALIASES.get(words[0], words[0]))
        for word in words[1:]:
            _read(place, place.command, word)
    return place


def _read(place: CursorContext, command: CommandSpec, word: str) -> None:
    if place.awaited is not None:
        if place.awaited.dest == "workspace":
            place.workspace = word
        place.awaited = None
    elif not place.dashes and word == "--":
        place.dashes = True
    elif not place.dashes and word.startswith("-") and len(word) > 1:
        name, sign, value = word.partition("=")
        option = next((one for one in command.options() if name in one.names), None)
        if option is None:
            return
        place.used.update(option.names)
        if option.takes_value and not sign:
            place.awaited = option
        elif option.dest == "workspace":
            place.workspace = value
    elif not place.given and (action := command.action(word)) is not None:
        place.command = action
    else:
        place.given.append(word)


def _follow(place: CursorContext, current: str) -> tuple[str, Iterable[tuple[str, str]]]:
    command = place.command
    if place.awaited is not None:
        return _values(place, place.awaited, current)
    if command is None:
        if current.startswith("-"):
            return "words", _options([WORKSPACE, HELP, VERSION], place.used)
        commands = {name: what for name, (_, what) in COMMANDS.items()}
        return "words", commands.items()
    if current.startswith("-") and not place.dashes:
        return "words", _options([*command.options(), HELP], place.used)
    if command.actions:
        return "words", [(action.name, action.text) for action in command.actions]
    positionals = command.positionals()
    number = len(place.given)
    if number < len(positionals):
        return _values(place, positionals[number], current)
    if positionals and positionals[-1].repeats:
        return _values(place, positionals[-1], current)
    return "words", []


def _options(options: list[Argument], used: set[str]) -> list[tuple[str, str]]:
    found = {
        max(option.names, key=len): option.help
        for option in options
        if option.repeats or not used & set(option.names)
    }
    return list(found.items())


def _values(
    place: CursorContext, argument: Argument, current: str
) -> tuple[str, Iterable[tuple[str, str]]]:
    if argument.choices:
        return "words", [(choice, "") for choice in argument.choices]
    if argument.dest.startswith("filter_"):
        from kbtui.search.filters import FILTERS

        row = next(row for row in FILTERS if set(row.options) & set(argument.names))
        if row.kind == "choice":
            return "words", [(choice, "") for choice in row.shown_choices]
    if argument.metavar == "PATH":
        return "directories", []
    if argument.metavar in {"FILE", "WHAT"}:
        return "files", []
    from kbtui.cli import completion_values

    wanted = "TOPIC" if "--topic" in argument.names else argument.metavar
    if wanted == "NAME" and argument.names:
        return "words", []  # a tool's, which nobody lists
    look = completion_values.KINDS.get(wanted or "")
    return "words", look(place.workspace, place.given, current) if look else []
