"""Checking what a tool was called with: assistants send any JSON."""

from collections.abc import Sequence
from typing import Any

from kbtui.errors import UsageError


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; raises `UsageError`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"it must be a whole number, not {_shown(value)}", where=name)
    if value < least:
        raise UsageError(f"it must be at least {least}, not {value}", where=name)
    return value


def optional_whole(name: str, value: Any, least: int) -> int | None:
    """The same, or None."""
    return None if value is None else whole(name, value, least)


def flag(name: str, value: Any) -> bool:
    """True or false; raises `UsageError`."""
    if not isinstance(value, bool):
        raise UsageError(f"it must be true or false, not {_shown(value)}", where=name)
    return value


def text(name: str, value: Any) -> str:
    """A string; raises `UsageError`."""
    if not isinstance(value, str):
        raise UsageError(f"it must be a string, not {_shown(value)}", where=name)
    return value


def texts(name: str, value: Any) -> list[str] | None:
    """A list of strings; a single string is a list of one, an empty list is None."""
    if value is None or value == []:
        return None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"it must be a list of strings, not {_shown(value)}", where=name)
    return list(value)


def one_of(name: str, value: Any, known: Sequence[str]) -> str:
    """One of some words; raises `UsageError` that lists them."""
    if value not in known:
        raise UsageError(f"it must be one of {', '.join(known)}, not {_shown(value)}", where=name)
    return str(value)


def _shown(value: Any) -> str:
    from kbtui.text import cut

    return cut(repr(value), 60)
