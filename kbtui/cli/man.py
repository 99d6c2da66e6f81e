"""The command `man`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from kbtui.cli.option_spec import Argument, CommandSpec

EXIT_CODES = {
    "0": "done",
    "1": "nothing found",
    "2": "a mistake in the command line or in a configuration file",
    "3": "the workspace or the index cannot be used, or the output cannot be written",
    "130": "interrupted",
}
VARIABLES = {
    "XDG_CACHE_HOME, XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR": "the base directories of all that kbtui keeps; `kbtui paths` prints the places in use",
    "JP_USER_DATA_DIR, JP_GLOBAL_CONFIG_DIR": "JP's own directories",
    "NO_COLOR": "no colours",
    "PAGER": "what shows long text on a terminal; less when unset, nothing when empty",
    "VISUAL, EDITOR": "what edits a subject",
}


def configure_man(parser: ArgumentParser) -> None:
    """`kbtui man` has no arguments of its own."""


def run_man(args: Namespace) -> int:
    """Print the manual page, made of the same declarations as --help and the completions."""
    from kbtui.cli.output import emit

    emit(page())
    return 0


def page() -> str:
    """The whole page; the same for the same version."""
    from kbtui.cli.main import COMMANDS
    from kbtui.cli.option_spec import declared
    from kbtui.version import __version__

    lines = [
        f'.TH KBTUI 1 "" "kbtui {__version__}" "User Commands"',
        ".ad l",
        ".SH NAME",
        r"kbtui \- browse, search and read what a JP workspace knows and remembers",
        ".SH SYNOPSIS",
        r".B kbtui",
        r"[\fB\-w\fR \fIPATH\fR] [\fICOMMAND\fR] [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        *_prose(
            "Without a command, kbtui opens on the nearest workspace: the directory at or above "
            "the current one that holds a directory named .jp. `kbtui demo` opens an example, "
            "which has the user guide as its first topic.\n\nResults go to standard output, "
            "everything else to standard error."
        ),
        ".SH COMMANDS",
    ]
    for name in COMMANDS:
        lines += _command(name, declared(name))
    lines += [".SH CONFIGURATION", *_settings(), ".SH EXIT STATUS", *_table(EXIT_CODES)]
    lines += [".SH ENVIRONMENT", *_table(VARIABLES)]
    return "\n".join(lines) + "\n"


def _command(name: str, command: CommandSpec) -> Iterator[str]:
    from kbtui.cli.main import describe, load_command

    yield f".SS kbtui {name}"
    yield from _prose(describe(load_command(name)[1]))
    common = [one for one in command.options() if command.actions and one.dest != "workspace"]
    yield from _arguments(common)
    for words, one in command.walk():
        yield ".PP"
        yield _usage(words, one)
        if one is not command:
            yield from _prose(f"{one.text[:1].upper()}{one.text[1:]}.")
        yield from _arguments([arg for arg in one.arguments if arg.dest != "workspace"])


def _usage(words: str, command: CommandSpec) -> str:
    parts = [f"\\fBkbtui {_escaped(words)}\\fR"]
    if any(one.dest != "workspace" for one in command.options()):
        parts.append("[\\fIOPTION\\fR]...")
    for one in command.positionals():
        text = f"\\fI{_escaped(one.value)}\\fR" + ("..." if one.repeats else "")
        parts.append(f"[{text}]" if one.nargs in {"?", "*"} else text)
    return " ".join(parts)


def _arguments(arguments: list[Argument]) -> Iterator[str]:
    for one in arguments:
        value = f" \\fI{_escaped(one.value)}\\fR" if one.takes_value else ""
        names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in one.names) or value.strip()
        text = one.help
        if one.choices and one.metavar:
            text += f" ({', '.join(one.choices)})"
        yield ".TP"
        yield names + (value if one.names else "")
        yield _line(text or "one of these")


def _settings() -> Iterator[str]:
    from kbtui.workspace.settings import KEYS, toml

    yield from _prose(
        "`kbtui config` shows each key with its value, and where the file lies, usually "
        "~/.config/kbtui/config.toml; `kbtui config --example` prints one to begin with."
    )
    for key in KEYS:
        variable = f"; {key.variable} in the environment wins" if key.variable else ""
        choices = f" ({', '.join(map(toml, key.choices))})" if key.choices else ""
        yield ".TP"
        yield f"\\fB{_escaped(key.name)}\\fR = {_escaped(toml(key.default))}"
        yield _line(f"{key.text}{choices}{variable}.")


def _table(rows: dict[str, str]) -> Iterator[str]:
    for name, text in rows.items():
        yield ".TP"
        yield f"\\fB{_escaped(name)}\\fR"
        yield _line(f"{text}.")


def _prose(text: str) -> Iterator[str]:
    """Paragraphs; lines that show commands keep their form."""
    import inspect

    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ".PP"
        shown = paragraph.startswith("kbtui ") or "  " in paragraph
        if shown:
            yield ".nf"
        yield from (_line(line) for line in paragraph.splitlines())
        if shown:
            yield ".fi"


def _line(text: str) -> str:
    """A line of text: what roff would take for a request is not one."""
    text = _escaped(text)
    return rf"\&{text}" if text[:1] in {".", "'"} else text


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha")
    text = text.replace("~", "\\(ti").replace("'", "\\(aq").replace('"', "\\(dq")
    return "".join(sign if sign.isascii() else f"\\[u{ord(sign):04X}]" for sign in text)
