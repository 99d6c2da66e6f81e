"""The argument parser of all commands, and helpers for options that set filters or lists."""

from __future__ import annotations

import argparse

from kbtui.cli.command_output import get_terminal_width
from kbtui.errors import KbtuiError, NothingFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any, NoReturn

    from kbtui.search.filter_definitions import FilterDefinition, FilterInput
    from kbtui.search.search_request_and_answer import SearchRequestJson

# All help is in English, so `argparse` need not look for translations.
argparse._ = str  # type: ignore[attr-defined]


class _CommandHelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help for the width of the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=get_terminal_width() - 2)


class CommandParser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UsageError` instead of printing a message and exiting.

    Every parser has the option `-w`, which can be before or after the command. The option has no
    default, because a default after the command would override a `-w` before it.
    """

    hint: str | None = None
    """The hint in usage errors. If it is None, the hint refers to `--help`."""

    def __init__(self, *, prog: str, **keys: Any) -> None:
        super().__init__(
            prog=prog, allow_abbrev=False, formatter_class=_CommandHelpFormatter, **keys
        )
        self.add_argument(
            "-w",
            "--workspace",
            metavar="PATH",
            default=argparse.SUPPRESS,
            help="the workspace (default: the one around the current directory)",
        )

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with argparse's message."""
        raise UsageError(message, hint=self.hint or f"`{self.prog} --help` explains the arguments")


def add_filter_options(parser: CommandParser, filter_input: FilterInput) -> None:
    """Add an option to `parser` for each filter that `filter_input` accepts.

    The help of the command also lists the filters that QUERY can contain.
    """
    from kbtui.search.filter_definitions import format_filter_keys, list_filters_of_input

    parser.epilog = (
        f"filters that QUERY can contain, such as after:2w:\n  {format_filter_keys(filter_input)}"
    )
    for row in list_filters_of_input(filter_input):
        if row.options:
            parser.add_argument(
                *row.options,
                dest=f"filter_{row.key}",
                action="append",
                default=[],
                metavar=row.metavar,
                help=row.about,
            )


def iterate_filters_from_options(
    args: Namespace, filter_input: FilterInput
) -> Iterator[tuple[FilterDefinition, list[str]]]:
    """Yield each filter that an option sets, with its values.

    Raises `UsageError` for an empty value.
    """
    from kbtui.errors import UsageError
    from kbtui.search.filter_definitions import list_filters_of_input, split_filter_values

    for row in list_filters_of_input(filter_input):
        found: list[str] = []
        for given in getattr(args, f"filter_{row.key}", ()) if row.options else ():
            # Do not split at commas: a topic's title may contain them, and a date is a single value.
            is_single = row.kind in {"topic", "date"}
            values = (given,) if is_single else split_filter_values(given, at_spaces=False)
            if not any(value.strip() for value in values):
                # Refuse an empty value: an unset variable in a script must not select everything.
                raise UsageError("needs a value", where=row.option_names, hint=row.about)
            found += [value for value in values if value.strip()]
        if found:
            yield row, found


def parse_filter_options(args: Namespace) -> SearchRequestJson:
    """Return the filters that options set, as fields of a `SearchRequest` in JSON.

    Dates remain text, because importing `datetime` would delay every search. Raises `UsageError` for an
    invalid value.
    """
    from kbtui.errors import UsageError
    from kbtui.search.filter_definitions import FilterValueError

    fields: Any = {}
    for row, values in iterate_filters_from_options(args, "search"):
        try:
            if row.kind == "date":
                fields[row.search] = values[-1]
            elif row.kind == "choice":
                fields[row.search] = tuple(
                    choice for name in values for choice in row.parse_choice_value(name)
                )
            else:
                fields[row.search] = tuple(values)
        except FilterValueError as error:
            raise UsageError(error.message, where=row.option_names, hint=error.hint) from error
    request: SearchRequestJson = fields
    return request


def split_values_at_commas(values: list[str] | None) -> list[str] | None:
    """Split each value of a repeatable option at its commas."""
    if values is None:
        return None
    # Keep an empty value (such as an unset variable in a script), which is refused later. Dropping
    # it would make the command include everything.
    return [word for value in values for word in value.split(",") if word] or [""]


_OPTIONS_BY_ARGUMENT = {
    "ids": "--id",
    "scopes": "--scope",
    "include": "--include",
    "max_chars": "--max-chars",
    "pattern": "PATTERN",
    "id": "ID",
    "agents": "--agent",
    "labels": "--label",
    "file": "--file",
    **{name: f"--{name}" for name in ("limit", "offset", "sort", "context", "turn", "last")},
}
"""Maps each argument of a conversation tool to the command's option or argument with the same meaning."""


def reword_error_for_command(error: KbtuiError) -> KbtuiError:
    """Reword a tool's error for the command line: name options instead of the tool's arguments."""
    from kbtui.assistant.conversation_tool_answers import ToolCallRefused

    where = _OPTIONS_BY_ARGUMENT.get(error.where or "")
    if isinstance(error, ToolCallRefused):
        kind = UsageError if isinstance(error, UsageError) else NothingFound
        return kind(error.command_message, where=where, hint=error.command_hint)
    return type(error)(error.message, where=where, hint=error.hint) if where else error
