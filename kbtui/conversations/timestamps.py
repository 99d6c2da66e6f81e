"""Times as JP writes them, ids as times, and times as kbtui prints them."""

from datetime import UTC, datetime

_LARGEST_ID = 253402300799 * 10
"""The last second of the year 9999; a larger number is no time."""


def parse_time(text: object) -> datetime | None:
    """An aware time in UTC, None for what is no time.

    Accepts `YYYY-MM-DD HH:MM:SS[.f]` without a zone, which is UTC, with any
    number of fraction digits, and RFC 3339 with any offset.
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


def id_time(conversation: str) -> datetime:
    """When a JP conversation was created: its id counts tenths of seconds."""
    seconds, tenths = divmod(int(conversation.removeprefix("jp-c")), 10)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=tenths * 100_000)


def is_id(number: int) -> bool:
    """Whether a number can be a conversation's id."""
    return 0 <= number <= _LARGEST_ID


def show_time(time: datetime | None) -> str | None:
    """RFC 3339 in UTC, with three fraction digits: at one width text order is time order."""
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
