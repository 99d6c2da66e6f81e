"""The generated tables of the documentation, and where each one is."""

from __future__ import annotations

import re
from argparse import _SubParsersAction
from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.cli.main import COMMANDS, load_command_parser_and_runner
from kbtui.tui.tui_command_table import ALL_COMMANDS, SCOPES, SCREENS
from kbtui.workspace.user_settings import SETTING_KEYS, format_toml_value

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser
    from collections.abc import Iterable, Iterator

    from kbtui.tui.tui_command_table import Scope

GUIDE = Path(__file__).parents[2] / "docs" / "guide"

COMMAND_PAGES = {
    "tui": "guide/reading",
    "demo": "guide/about",
    "search": "guide/commands/search",
    "index": "guide/commands/index",
    "topics": "guide/commands/knowledge",
    "learn": "guide/commands/knowledge",
    "prompt": "guide/commands/knowledge",
    "conversation": "guide/commands/conversation",
    "export": "guide/commands/conversation",
    "keep": "guide/commands/keep",
    "mark": "guide/commands/mark",
    "data": "guide/commands/data",
    "show": "guide/commands/references",
    "open": "guide/commands/references",
    "cites": "guide/commands/references",
    "blame": "guide/commands/references",
    "entries": "guide/commands/entries",
    "entry": "guide/commands/entries",
    "insights": "guide/commands/entries",
    "source": "guide/commands/source",
    "tools": "guide/assistants",
    "tool": "guide/assistants",
    "mcp": "guide/assistants",
    "serve": "guide/commands/serve",
    "publish": "guide/commands/publish",
    "library": "guide/commands/publish",
    "engine": "guide/commands/diagnosis",
    "workspaces": "guide/commands/workspaces",
    "doctor": "guide/commands/diagnosis",
    "paths": "guide/commands/diagnosis",
    "model": "guide/commands/diagnosis",
    "log": "guide/commands/diagnosis",
    "config": "guide/configuration",
    "completion": "guide/commands/shell",
    "man": "guide/commands/shell",
}
"""The page of the guide that explains each command."""

OPTION_PAGES = sorted({page for page in COMMAND_PAGES.values() if "/commands/" in page})
"""Pages with a section `## kbtui COMMAND [ACTION]` and a table of arguments in each."""


def make_tables() -> Iterator[tuple[str, str, str]]:
    """Yield every generated table as (page, heading of its section, table)."""
    for scope, heading in SCOPES.items():
        yield "guide/keys", heading, _keys_table(scope)
    for scope, heading in SCREENS.items():
        yield "guide/other-screens", heading, _keys_table(scope)
    yield "guide/command-line", "Commands", _commands_table()
    yield "guide/configuration", "Every setting", _settings_table()
    yield "guide/configuration", "Environment variables", _variables_table()
    yield "decisions/README", "Pages", _decisions_table()
    for name, page in COMMAND_PAGES.items():
        if page in OPTION_PAGES:
            for parser in _find_actions(load_command_parser_and_runner(name)[0]):
                if rows := _argument_rows(parser):
                    yield page, parser.prog, _format_table(("argument", "meaning"), rows)


def insert_table(text: str, heading: str, table: str) -> str:
    """Return a page with the first table of a section replaced.

    A section without a table gets one at its end. Raises `ValueError` if the page has no such
    section.
    """
    lines = text.splitlines()
    try:
        start = lines.index(f"## {heading}") + 1
    except ValueError:
        raise ValueError(f"no section {heading!r}") from None
    end = next(
        (n for n, line in enumerate(lines) if n > start and line.startswith("## ")), len(lines)
    )
    first = next((n for n in range(start, end) if lines[n].startswith("|")), None)
    if first is None:
        while not lines[end - 1]:
            end -= 1
        rest = lines[end:]
        lines[end:] = ["", *table.splitlines(), *rest]
    else:
        last = next((n for n in range(first, end) if not lines[n].startswith("|")), end)
        lines[first:last] = table.splitlines()
    return "\n".join(lines) + "\n"


def make_pages() -> dict[Path, str]:
    """Return every page that has generated tables, with them up to date."""
    pages: dict[Path, str] = {}
    for page, heading, table in make_tables():
        path = GUIDE.parent / f"{page}.md"
        text = pages.get(path) or path.read_text("utf-8")
        try:
            pages[path] = insert_table(text, heading, table)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return pages


def _format_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Format a Markdown table; `|` in a cell is escaped, and tags become code."""
    cells = [
        [re.sub(r"(?<!`)<\w+>(?!`)", r"`\g<0>`", cell.replace("|", "\\|")) for cell in row]
        for row in (head, *rows)
    ]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _code(text: str) -> str:
    """Format text as code, with two backticks where it has one."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _keys_table(scope: Scope) -> str:
    rows = []
    for command in ALL_COMMANDS:
        if command.scope == scope:
            shown = (
                key.replace("^", "ctrl+") if len(key) > 1 else key for key in command.key_labels
            )
            keys = " ".join(
                _code(key.replace("⇧", "shift+").replace("delete", "Del")) for key in shown
            )
            rows.append((keys, command.help.rstrip("."), _code(command.id)))
    return _format_table(("key", "what it does", "id"), rows)


def _commands_table() -> str:
    rows = []
    for name, (_, text) in COMMANDS.items():
        subparsers = _find_subparsers(load_command_parser_and_runner(name)[0])
        # Without the aliases that `choices` has too.
        actions = "|".join(one.dest for one in subparsers._get_subactions()) if subparsers else ""
        shown = "kbtui" if name == "tui" else f"kbtui {name}"
        rows.append((_code(f"{shown} {actions}".strip()), text, _code(COMMAND_PAGES[name])))
    return _format_table(("command", "what it does", "page"), rows)


def _settings_table() -> str:
    rows = []
    for key in SETTING_KEYS:
        choices = ", ".join(_code(format_toml_value(choice)) for choice in key.choices)
        meaning = f"{key.text} ({choices})" if choices else key.text
        rows.append((_code(key.name), _code(format_toml_value(key.default)), meaning))
    return _format_table(("key", "default", "meaning"), rows)


def _variables_table() -> str:
    rows = [(_code(key.variable), _code(key.name)) for key in SETTING_KEYS if key.variable]
    return _format_table(("variable", "setting"), rows)


def _decisions_table() -> str:
    rows = []
    for path in sorted((GUIDE.parent / "decisions").glob("[0-9]*.md")):
        number = path.name[:4]
        form = rf"# {number}: (.+)\n\nDate: (\S+)\n\n(Replaced by .+)?"
        head = re.match(form, path.read_text("utf-8"))
        assert head, f"{path} does not start with '# {number}: TITLE' and 'Date: YYYY-MM-DD'"
        title, date, replaced = head.groups()
        name = f"{title}. {replaced}" if replaced else title
        rows.append((f"[{number}]({path.name})", name, date))
    return _format_table(("number", "decision", "date"), rows)


def _find_subparsers(parser: ArgumentParser) -> _SubParsersAction[ArgumentParser] | None:
    return next((one for one in parser._actions if isinstance(one, _SubParsersAction)), None)


def _find_actions(parser: ArgumentParser) -> list[ArgumentParser]:
    """Return the parsers of a command's actions, or the command's own if it has none."""
    subparsers = _find_subparsers(parser)
    return list(dict.fromkeys(subparsers.choices.values())) if subparsers else [parser]


def _argument_rows(parser: ArgumentParser) -> list[tuple[str, str]]:
    shown = [one for one in parser._actions if one.dest not in {"help", "workspace"}]
    shown.sort(key=lambda one: bool(one.option_strings))
    return [(_format_argument(one), one.help or "") for one in shown]


def _format_argument(argument: Action) -> str:
    """Format `-i ID`, `--id ID` or `TOPIC`, with choices where there is no name for the value."""
    choices = "|".join(map(str, argument.choices or ()))
    value = argument.metavar or choices or argument.dest.upper()
    if isinstance(value, tuple):
        value = " ".join(value)
    if not argument.option_strings:
        return _code(f"{value}…" if argument.nargs in {"*", "+"} else value)
    suffix = "" if argument.nargs == 0 else f" {value}"
    return ", ".join(_code(f"{name}{suffix}") for name in argument.option_strings)
