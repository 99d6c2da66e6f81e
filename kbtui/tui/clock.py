"""Dates for people, in local time; the present moment can be replaced in tests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime

Clock = Callable[[], datetime]
"""Gives the present moment, aware."""

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def now() -> datetime:
    """The present moment in local time."""
    return datetime.now(UTC).astimezone()


def day_label(day: date, today: date) -> str:
    """`Today`, `Yesterday`, a weekday within the week, else a short date."""
    days = (today - day).days
    if days == 0:
        return "Today"
    if days == 1:
        return "Yesterday"
    if 1 < days < 7:
        return _DAYS[day.weekday()]
    return short_date(day, today)


def age_label(when: datetime, present: datetime) -> str:
    """`now`, `5 min` or `3 h` for what was today, else its day; `Dec 2025` of another year."""
    local = when.astimezone(present.tzinfo)
    if local.date() != present.date():
        label = day_label(local.date(), present.date())
        # Of another year the day matters less than the room that a title has.
        return label.partition(" ")[2] if local.year != present.year and " " in label else label
    minutes = int((present - local).total_seconds()) // 60
    if minutes < 1:
        return "now"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h"


def short_date(day: date, today: date) -> str:
    """`31 Jul` within the year, else `13 May 2024`."""
    label = f"{day.day} {_MONTHS[day.month - 1]}"
    return label if day.year == today.year else f"{label} {day.year}"


def day_or_time(when: datetime, present: datetime) -> str:
    """A point in time where room is scarce: `14:05` today, else its date alone."""
    local = when.astimezone(present.tzinfo)
    if local.date() == present.date():
        return f"{local:%H:%M}"
    return short_date(local.date(), present.date())


def moment(when: datetime, present: datetime) -> str:
    """A point in time: `14:05` today, else with its date."""
    local = when.astimezone(present.tzinfo)
    time = f"{local:%H:%M}"
    return (
        time
        if local.date() == present.date()
        else f"{short_date(local.date(), present.date())} {time}"
    )


def iso_day(seconds: float) -> str:
    """The local day of a time stamp, `2026-05-13`; `?` where there is no such day."""
    try:
        return datetime.fromtimestamp(seconds).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "?"
