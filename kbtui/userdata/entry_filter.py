"""The entries' filter as it is typed and as options give it: words and filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.errors import UsageError
from kbtui.search.filters import FilterError, filters_for
from kbtui.search.query_parser import parse_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbtui.index.entry_query import EntryFilter
    from kbtui.search.filters import Filter


def parse_entry_filter(
    text: str,
    options: Mapping[str, Sequence[str]] | None = None,
    *,
    hidden: bool = False,
    archived: bool = False,
) -> EntryFilter:
    """What a typed filter means; raises `UsageError`.

    `options` has more values by option, such as `--type`.
    """
    from kbtui.index.entry_query import EntryFilter

    query = parse_query(text, surface="entries")
    known = filters_for("entries")
    fields: dict[str, Any] = {}
    for part in query.filters:
        where = f"{part.key}:"
        if part.excluded:
            raise UsageError(
                f"-{where} is not supported for entries",
                where=text[part.start : part.end],
                hint=f"write {where} without the -, and the values to keep",
            )
        _add(fields, known[part.key], part.values, where)
    for name, values in (options or {}).items():
        row = next(row for row in known.values() if name in row.options)
        _add(fields, row, values, name)
    return EntryFilter(
        q=" ".join(query.words),
        phrases=query.phrases,
        without=query.excluded,
        hidden=hidden,
        archived=archived,
        **fields,
    )


def _add(fields: dict[str, Any], row: Filter, values: Sequence[str], where: str) -> None:
    """Narrow the fields of an `EntryFilter` by a filter's values."""
    try:
        for value in filter(None, values):
            if row.kind == "date":
                moment = row.read_date(value).timestamp()
                narrower = max if row.entries == "since" else min
                fields[row.entries] = narrower(fields.get(row.entries, moment), moment)
            else:
                meant = row.read_choice(value) if row.kind == "choice" else (value,)
                fields[row.entries] = (*fields.get(row.entries, ()), *meant)
    except FilterError as error:
        raise UsageError(error.message, where=where, hint=error.hint) from error


def with_value(text: str, key: str, value: str | None) -> str:
    """The filter with another value for `key`; None removes it."""
    rest = text
    for part in reversed(parse_query(text, surface="entries").filters):
        if part.key == key:
            rest = rest[: part.start] + rest[part.end :]
    rest = " ".join(rest.split())
    if value is None:
        return rest
    shown = f'"{value}"' if " " in value else value
    return f"{rest} {key}:{shown}".strip()


def value_of(text: str, key: str) -> str | None:
    """The last value of `key` in a typed filter; None where there is none."""
    found = [
        part.values[-1] for part in parse_query(text, surface="entries").filters if part.key == key
    ]
    return (found[-1] if found else None) or None
