"""The command-line options that set filters, such as `--topic`, and the parsing of their values."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from kbtui.cli.argument_parser_base_class import CliArgumentParser
    from kbtui.search.filter_definitions import FilterDefinition, FilterInput


def add_filter_options(parser: CliArgumentParser, filter_input: FilterInput) -> None:
    """Add an option to `parser` for each filter that `filter_input` accepts.

    The help of the command also lists the filters that QUERY can contain.
    """
    from kbtui.search.filter_definitions import (
        format_filter_keys,
        list_filters_accepted_by_input_field,
    )

    parser.epilog = (
        f"filters that QUERY can contain, such as after:2w:\n  {format_filter_keys(filter_input)}"
    )
    for row in list_filters_accepted_by_input_field(filter_input):
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
    from kbtui.search.filter_definitions import (
        list_filters_accepted_by_input_field,
        split_filter_values,
    )

    for row in list_filters_accepted_by_input_field(filter_input):
        found: list[str] = []
        for given in getattr(args, f"filter_{row.key}", ()) if row.options else ():
            # Do not split at commas: a topic's title may contain them, and a date is a single value.
            is_single = row.kind in {"topic", "date"}
            values = (given,) if is_single else split_filter_values(given, at_spaces=False)
            if not any(value.strip() for value in values):
                # Refuse an empty value: an unset variable in a script must not select everything.
                raise UsageError(
                    "needs a value", where=row.joined_command_line_options, hint=row.about
                )
            found += [value for value in values if value.strip()]
        if found:
            yield row, found


def parse_filter_options(args: Namespace) -> dict[str, Any]:
    """Return the filters set by options, as fields of a `SearchRequest` in JSON.

    Dates remain text, because importing `datetime` would delay every search. Raises `UsageError` for an
    invalid value.
    """
    from kbtui.errors import UsageError
    from kbtui.search.filter_definitions import FilterValueError

    fields: dict[str, Any] = {}
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
            raise UsageError(
                error.message, where=row.joined_command_line_options, hint=error.hint
            ) from error
    return fields
