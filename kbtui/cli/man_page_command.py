"""The command `man`: the manual page, generated from the commands' parsers."""

from __future__ import annotations

import inspect
from argparse import _SubParsersAction

from kbtui.cli.cli_output import print_result
from kbtui.version import __version__
from kbtui.workspace.user_settings import SETTING_KEYS, format_toml_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace
    from collections.abc import Iterator

EXIT_CODES = {
    "0": "done",
    "1": "nothing found",
    "2": "a mistake in the command line or in a configuration file",
    "3": "the workspace or the index cannot be used, or the output cannot be written",
    "130": "interrupted",
}
VARIABLES = {
    "XDG_CACHE_HOME, XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR": "base directories; `kbtui paths` prints the directories in use",
    "JP_USER_DATA_DIR, JP_GLOBAL_CONFIG_DIR": "JP's own directories",
    "NO_COLOR": "no colours",
    "PAGER": "the program that shows long text on a terminal: less by default, none if the variable is empty",
    "VISUAL, EDITOR": "the editor for subjects",
}


def declare_man_command_arguments(parser: ArgumentParser) -> None:
    pass


def run_man_command(args: Namespace) -> int:
    """Print the manual page in roff format."""
    print_result(format_man_page())
    return 0


def format_man_page() -> str:
    """Return the manual page as roff, generated from the commands' help texts."""
    from kbtui.cli.main import COMMANDS

    lines = [
        f'.TH KBTUI 1 "" "kbtui {__version__}" "User Commands"',
        ".ad l",
        ".SH NAME",
        r"kbtui \- browse, search and read what a workspace knows and remembers",
        ".SH SYNOPSIS",
        r".B kbtui",
        r"[\fB\-w\fR \fIPATH\fR] [\fICOMMAND\fR] [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        *_format_man_paragraphs(
            "Without a command, kbtui opens the nearest workspace: the directory at or above "
            "the current one that contains a directory named .jp or .kbtui. If there is none, "
            "it opens the Git repository around the current directory, or else the current directory itself. "
            "`kbtui demo` opens an example, "
            "which has the user guide as its first topic.\n\nResults go to standard output, "
            "everything else to standard error."
        ),
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        lines += _format_man_command(name)
    lines += [".SH CONFIGURATION", *_format_man_settings()]
    lines += [".SH EXIT STATUS", *_format_man_definitions(EXIT_CODES)]
    lines += [".SH ENVIRONMENT", *_format_man_definitions(VARIABLES)]
    return "\n".join(lines) + "\n"


def _format_man_command(name: str) -> Iterator[str]:
    from kbtui.cli.main import load_command_parser_and_runner

    parser, _ = load_command_parser_and_runner(name)
    yield f".SS kbtui {name}"
    yield from _format_man_paragraphs(parser.description or "")
    actions = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    if not actions:
        yield from _format_command_usage(parser)
        return
    for action in actions[0]._get_subactions():
        text = action.help or ""
        yield from _format_command_usage(
            actions[0].choices[action.dest], f"{text[:1].upper()}{text[1:]}."
        )


def _format_command_usage(parser: ArgumentParser, text: str = "") -> Iterator[str]:
    arguments = _list_parser_arguments(parser)
    parts = [_format_man_bold(parser.prog)]
    if any(action.option_strings for action in arguments):
        parts.append("[\\fIOPTION\\fR]...")
    for action in arguments:
        if not action.option_strings:
            dots = "..." if action.nargs in {"*", "+"} else ""
            value = _format_argument_placeholder(action) + dots
            parts.append(f"[{value}]" if action.nargs in {"?", "*"} else value)
    yield from (".PP", " ".join(parts))
    if text:
        yield from _format_man_paragraphs(text)
    for action in arguments:
        names = ", ".join(map(_format_man_bold, action.option_strings))
        value = "" if action.nargs == 0 else _format_argument_placeholder(action)
        choices = f" ({', '.join(action.choices)})" if action.choices and action.metavar else ""
        text = (action.help or "") + choices
        yield from _format_man_definition(f"{names} {value}".strip(), text or "one of these values")


def _list_parser_arguments(parser: ArgumentParser) -> list[Action]:
    """Return a parser's arguments except `--help`, `--workspace` and the subcommands."""
    return [
        action
        for action in parser._actions
        if action.dest not in {"help", "workspace"} and not isinstance(action, _SubParsersAction)
    ]


def _format_argument_placeholder(action: Action) -> str:
    value = action.metavar or ("|".join(action.choices) if action.choices else action.dest.upper())
    if isinstance(value, tuple):
        value = " ".join(value)
    return f"\\fI{_escape_roff(value)}\\fR"


def _format_man_settings() -> Iterator[str]:
    yield from _format_man_paragraphs(
        "`kbtui config` shows each key with its value, and the path of the file, usually "
        "~/.config/kbtui/config.toml. `kbtui config --example` prints an example file."
    )
    for key in SETTING_KEYS:
        variable = f"; the environment variable {key.variable} overrides it" if key.variable else ""
        choices = f" ({', '.join(map(format_toml_value, key.choices))})" if key.choices else ""
        term = f"{_format_man_bold(key.name)} = {_escape_roff(format_toml_value(key.default))}"
        yield from _format_man_definition(term, f"{key.text}{choices}{variable}.")


def _format_man_definitions(rows: dict[str, str]) -> Iterator[str]:
    for name, text in rows.items():
        yield from _format_man_definition(_format_man_bold(name), f"{text}.")


def _format_man_definition(term: str, text: str) -> Iterator[str]:
    yield from (".TP", term, _escape_man_line(text))


def _format_man_bold(text: str) -> str:
    return f"\\fB{_escape_roff(text)}\\fR"


def _format_man_paragraphs(text: str) -> Iterator[str]:
    """Format paragraphs. Only paragraphs with example commands retain their line breaks."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ".PP"
        shown = paragraph.startswith("kbtui ") or "  " in paragraph
        if shown:
            yield ".nf"
        yield from (_escape_man_line(line) for line in paragraph.splitlines())
        if shown:
            yield ".fi"


def _escape_man_line(text: str) -> str:
    """Escape a line of text, so that roff does not read it as a command."""
    text = _escape_roff(text)
    return rf"\&{text}" if text[:1] in {".", "'"} else text


def _escape_roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha")
    text = text.replace("~", "\\(ti").replace("'", "\\(aq").replace('"', "\\(dq")
    return "".join(sign if sign.isascii() else f"\\[u{ord(sign):04X}]" for sign in text)
