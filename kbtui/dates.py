"""Parses and formats dates as people write and read them: `3d`, `yesterday`, `31 Jul`.

Lists show a short form: `14:05`, `31 Jul` or `13 May 2024`. All other places show the full form:
`2024-05-13 14:05`, or `2024-05-13` for a day.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DATE_HINT = (
    "write 2026-11-01, 2026-11, today, yesterday, monday or an age such as 12h, 3d, 2w, 6m, 1y"
)

DAY_SECONDS = 86_400.0

# `re` compiles these patterns on first use: most commands that import this module parse no dates.
_AGE = r"(\d{1,6})([hdwmy])"
_HOURS = {"h": 1, "d": 24, "w": 168, "m": 730, "y": 8766}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = rf"\d{{4}}-\d\d-\d\d|today|yesterday|{'|'.join(_DAYS)}"
_MONTH = r"(\d{4})(?:-(\d{1,2}))?"


def parse_date_or_age(
    text: str,
    now: datetime | None = None,
    zone: tzinfo | None = None,
    *,
    to_end_of_day: bool = False,
) -> datetime | None:
    """Parse a date, a time or an age; return it in UTC, or None if `text` is none of these.

    A day without a time means the midnight at the start of the day; if `to_end_of_day` is true, it
    means the midnight at the end. If the text contains no time zone, `zone` applies; None means
    local time. An age such as `3d` is subtracted from `now`, which must have a time zone. A weekday
    means the last such day before today.
    """
    now = now or datetime.now(UTC)
    text = text.strip().lower()
    try:
        if match := re.fullmatch(_AGE, text):
            return now.astimezone(UTC) - timedelta(hours=int(match[1]) * _HOURS[match[2]])
        moment = now.astimezone(zone).replace(
            hour=0, minute=0, second=0, microsecond=0, tzinfo=None
        )
        if text in {"today", "yesterday"}:
            moment -= timedelta(days=text == "yesterday")
        elif text in _DAYS:
            moment -= timedelta(days=(moment.weekday() - _DAYS.index(text) - 1) % 7 + 1)
        elif match := re.fullmatch(_MONTH, text):
            moment = datetime(int(match[1]), int(match[2] or 1), 1)
        else:
            moment = datetime.fromisoformat(text.upper())
        if to_end_of_day and re.fullmatch(_DAY, text):
            moment += timedelta(days=1)
        if moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def can_begin_date_or_age(text: str) -> bool:
    """Return whether a text may be the beginning of a date, a time or an age."""
    text = text.strip().lower()
    words = ("today", "yesterday", *_DAYS)
    return not text or text[0].isdigit() or any(word.startswith(text) for word in words)


def parse_timestamp(text: object) -> datetime | None:
    """Parse a timestamp; return an aware time in UTC, or None if `text` is not a timestamp.

    Accepts RFC 3339 with any offset. Also accepts `YYYY-MM-DD HH:MM:SS[.f]` without a time zone;
    such a time is in UTC. The fraction may have any number of digits.
    """
    if type(text) is not str:
        return None
    try:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            # RFC 3339 also allows lower-case letters and leap seconds.
            time = datetime.fromisoformat(text.upper().replace(":60", ":59", 1))
        if time.tzinfo is None:
            try:
                # `replace` takes ten times as long, which matters for conversations with many events.
                zoned = datetime.fromisoformat(f"{text}+00:00")
            except ValueError:  # a leap second
                zoned = time
            # If `text` is only a date, `fromisoformat` reads `+00:00` as a time, and `zoned` has no
            # time zone.
            return zoned if zoned.tzinfo else time.replace(tzinfo=UTC)
        return time if time.tzinfo is UTC else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def format_time_as_rfc3339_utc(time: datetime | None) -> str | None:
    """Format a time as RFC 3339 in UTC with milliseconds. Return None for None.

    The results sort in the same order as the times.
    """
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def convert_unix_time_to_datetime(value: Any, units_per_second: int = 1) -> datetime | None:
    """Convert a Unix time to a time in UTC. Return None if `value` is not a valid number.

    `units_per_second` is 1000 if `value` is in milliseconds.
    """
    if type(value) not in (int, float):
        return None
    try:
        return datetime.fromtimestamp(value / units_per_second, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def format_unix_time_as_iso(seconds: float | None) -> str | None:
    """Format Unix seconds as ISO 8601 in UTC. Return None if the number is None or out of range."""
    time = convert_unix_time_to_datetime(seconds)
    return time.isoformat(timespec="seconds") if time else None


def parse_time_zone(name: str) -> tzinfo:
    """Return the time zone that `name`, a value of the environment variable `TZ`, stands for.

    Raises `ValueError` for an unknown time zone.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name.removeprefix(":") or "UTC")
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"unknown time zone {name!r}") from error


Clock = Callable[[], datetime]
"""A function that returns the current time with its time zone."""

_MONTH_NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def get_current_local_time() -> datetime:
    """Return the current time in the local time zone."""
    return datetime.now(UTC).astimezone()


def format_date_with_month_name(day: date, today: date) -> str:
    """Format a date of this year as `31 Jul`, any other date as `13 May 2024`."""
    label = f"{day.day} {_MONTH_NAMES[day.month - 1]}"
    return label if day.year == today.year else f"{label} {day.year}"


def format_time_or_date(when: datetime, present: datetime) -> str:
    """Format a time for a row of a list: `14:05` if its day is today, otherwise only its date.

    `present` is the current time. The result is in the time zone of `present`.
    """
    local = when.astimezone(present.tzinfo)
    is_today = local.date() == present.date()
    return (
        f"{local:%H:%M}" if is_today else format_date_with_month_name(local.date(), present.date())
    )


def format_time_with_date(when: datetime, present: datetime) -> str:
    """Format a time as `2026-05-13 14:05`, in the time zone of `present`."""
    return f"{when.astimezone(present.tzinfo):%Y-%m-%d %H:%M}"


def format_unix_time_as_day(seconds: float) -> str:
    """Format Unix seconds as a local date such as `2026-05-13`. Return `?` if the number is out of range."""
    try:
        return datetime.fromtimestamp(seconds).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "?"
