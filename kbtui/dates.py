"""Parses dates as people write them (`2026-11`, `3d`, `monday`), and timestamps of files."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

HINT = "write 2026-11-01, 2026-11, today, yesterday, monday or an age such as 12h, 3d, 2w, 6m, 1y"

_AGE = re.compile(r"(\d{1,6})([hdwmy])")
_HOURS = {"h": 1, "d": 24, "w": 168, "m": 730, "y": 8766}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = re.compile(rf"\d{{4}}-\d\d-\d\d|today|yesterday|{'|'.join(_DAYS)}")
_MONTH = re.compile(r"(\d{4})(?:-(\d{1,2}))?")


def parse_moment(
    text: str,
    now: datetime | None = None,
    zone: tzinfo | None = None,
    *,
    to_end_of_day: bool = False,
) -> datetime | None:
    """A moment in UTC, None when `text` is none.

    A day begins at midnight in `zone` (None: local time) where the text names no zone;
    `to_end_of_day` gives the midnight after it. An age is counted back from `now` (aware); a
    weekday is the last one before today.
    """
    moment = _parse_moment(text, now, zone)
    if moment is None or not to_end_of_day or not _DAY.fullmatch(text.strip().lower()):
        return moment
    try:
        return _utc(moment.astimezone(zone).replace(tzinfo=None) + timedelta(days=1), zone)
    except OverflowError:
        return None


def _parse_moment(text: str, now: datetime | None, zone: tzinfo | None) -> datetime | None:
    now = now or datetime.now(UTC)
    text = text.strip().lower()
    try:
        if match := _AGE.fullmatch(text):
            return now.astimezone(UTC) - timedelta(hours=int(match[1]) * _HOURS[match[2]])
        today = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        if text in {"today", "yesterday"}:
            return _utc(today - timedelta(days=text == "yesterday"), zone)
        if text in _DAYS:
            back = (today.weekday() - _DAYS.index(text) - 1) % 7 + 1
            return _utc(today - timedelta(days=back), zone)
        if match := _MONTH.fullmatch(text):
            return _utc(datetime(int(match[1]), int(match[2] or 1), 1), zone)
        return _utc(datetime.fromisoformat(text.upper()), zone)
    except (ValueError, OverflowError):
        return None


def _utc(moment: datetime, zone: tzinfo | None) -> datetime:
    if moment.tzinfo is None and zone is not None:
        moment = moment.replace(tzinfo=zone)
    return moment.astimezone(UTC)


def parse_timestamp(text: object) -> datetime | None:
    """Return an aware time in UTC, None if `text` is not a timestamp.

    Accepts RFC 3339 with any offset, and `YYYY-MM-DD HH:MM:SS[.f]` without a zone, which is UTC,
    with any number of fraction digits.
    """
    if type(text) is not str:
        return None
    try:
        # JP's own form first: eight times as fast as setting the zone afterwards.
        time = datetime.fromisoformat(text + "+00:00")
        if time.tzinfo is not None:
            return time
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        # RFC 3339 allows what `fromisoformat` does not: small letters, a leap second.
        try:
            time = datetime.fromisoformat(text.upper().replace(":60", ":59", 1))
        except ValueError:
            return None
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return None


def format_timestamp(time: datetime | None) -> str | None:
    """Format a time as RFC 3339 in UTC with three fraction digits; None for None.

    All results have the same width, so their text order is their time order.
    """
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_zone(name: str) -> tzinfo:
    """The zone that a value of the variable TZ names; raises `ValueError` where it is no name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name.removeprefix(":") or "UTC")
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"{name!r} names no time zone") from error
