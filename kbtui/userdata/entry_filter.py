"""The entries' filter as people type it: words, and `type:`, `status:`, `topic:`, `from:`, `to:`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kbtui.errors import UsageError

if TYPE_CHECKING:
    from kbtui.index.entry_query import EntryFilter

KEYS = ("type", "status", "topic", "from", "to")
_PART = re.compile(rf'(?:^|(?<=\s))({"|".join(KEYS)}):("[^"]*"?|\S*)', re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def moment(text: str | None, where: str, *, ends: bool = False) -> float | None:
    """A day or a time as Unix seconds; with `ends`, a day is meant to its end.

    Raises `UsageError` that names `where`.
    """
    if not text:
        return None
    from datetime import date, timedelta

    from kbtui.dates import HINT, parse_moment

    wanted = text.strip()
    if ends and _DAY.fullmatch(wanted):
        try:
            wanted = (date.fromisoformat(wanted) + timedelta(days=1)).isoformat()
        except (ValueError, OverflowError):
            wanted = ""
    found = parse_moment(wanted)
    if found is None:
        raise UsageError(f"{text!r} is not a date", where=where, hint=HINT)
    return found.timestamp()


def check_statuses(statuses: tuple[str, ...], where: str) -> tuple[str, ...]:
    """The statuses themselves; raises `UsageError` for a word that is none."""
    from kbtui.index.entry_query import STATUSES

    for status in statuses:
        if status not in STATUSES:
            raise UsageError(f"{status!r} is no status", where=where, hint=", ".join(STATUSES))
    return statuses


def parse_filter(text: str, *, hidden: bool = False, archived: bool = False) -> EntryFilter:
    """What a typed filter means; raises `UsageError`. Several values stand with commas between."""
    from kbtui.index.entry_query import EntryFilter

    values: dict[str, list[str]] = {key: [] for key in KEYS}
    for name, value in _PART.findall(text):
        values[name.lower()] += [part for part in value.strip('"').split(",") if part]

    def last(key: str) -> str | None:
        return values[key][-1] if values[key] else None

    return EntryFilter(
        q=" ".join(_PART.sub(" ", text).split()),
        types=tuple(values["type"]),
        statuses=check_statuses(tuple(values["status"]), "status:"),
        topics=tuple(values["topic"]),
        since=moment(last("from"), "from:"),
        until=moment(last("to"), "to:", ends=True),
        hidden=hidden,
        archived=archived,
    )


def with_value(text: str, key: str, value: str | None) -> str:
    """The filter with another value for `key`; None takes it away."""
    rest = " ".join(
        _PART.sub(lambda match: "" if match[1].lower() == key else match[0], text).split()
    )
    if value is None:
        return rest
    shown = f'"{value}"' if " " in value else value
    return f"{rest} {key}:{shown}".strip()


def value_of(text: str, key: str) -> str | None:
    """The value of `key` in a typed filter; None where there is none."""
    found = [value.strip('"') for name, value in _PART.findall(text) if name.lower() == key]
    return (found[-1] if found else None) or None
