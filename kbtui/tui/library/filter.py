"""The library's filter line: words for titles, and key:value for conversations.

Every text is a filter; what is wrong with a part of it is a `Slip` that says where,
and that part narrows nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from kbtui.conversations.formats.jp.summary import ConversationSummary
    from kbtui.conversations.models import ConversationInfo

KEYS: dict[str, str] = {
    "label": "conversations with this label: label:area, label:area=ui",
    "tool": "conversations that called a tool with this in its name",
    "model": "conversations that a model with this in its name answered",
    "after": "those with anything said from this day on: after:2026-11-01, after:2w",
    "before": "those with nothing said from this day on: before:yesterday",
    "is": "is:pinned, is:archived, is:local, is:external, is:damaged",
}
"""What may stand before a colon, and what it lets through."""

STATES: dict[str, Callable[[ConversationInfo], bool]] = {
    "pinned": lambda info: info.pinned_at is not None,
    "archived": lambda info: info.archived,
    "live": lambda info: not info.archived,
    "local": lambda info: info.presence == "user_local",
    "external": lambda info: info.presence == "external",
    "damaged": lambda info: info.problem is not None,
}
_ALIASES = {"labels": "label", "tools": "tool", "models": "model", "since": "after", "until": "before"}  # fmt: skip
_NAMES = "|".join((*KEYS, *_ALIASES))
_PART = (
    rf'(?P<no>(?<!\S)-(?=\S))?(?:(?P<key>(?<![^\s-])(?:{_NAMES})):(?P<value>"[^"]*(?:"|$)|[^\s"]*)'
    r'|"(?P<phrase>[^"]*)(?:"|$)|(?P<word>[^\s"]+))'
)


class FilterError(NamedTuple):
    """What is wrong with characters `start` to `end` of a filter."""

    start: int
    end: int
    part: str
    message: str


class FilterCondition(NamedTuple):
    """One condition on conversations."""

    key: str
    value: str
    excluded: bool
    moment: datetime | None = None


class LibraryFilter(NamedTuple):
    """A filter, read. `words` must stand in a title or slug, `without` must not."""

    words: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    parts: tuple[FilterCondition, ...] = ()
    slips: tuple[FilterError, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.words or self.without or self.parts)

    @property
    def needs_traits(self) -> bool:
        """Whether it asks for what only reading the conversations tells."""
        return any(part.key in ("tool", "model") for part in self.parts)

    def titled(self, text: str) -> bool:
        """Whether a title or slug has the words."""
        folded = text.casefold()
        return all(word in folded for word in self.words) and not any(
            word in folded for word in self.without
        )

    def passes(self, info: ConversationInfo, traits: ConversationSummary | None) -> bool:
        """Whether a conversation is let through; without its traits, not by tool or model."""
        return self.titled(info.name) and all(
            _holds(part, info, traits) != part.excluded for part in self.parts
        )


def read_filter(text: str, present: datetime, *, typing: bool = False) -> LibraryFilter:
    """Read a filter; while one is `typing`, its last part may be unfinished and is no slip yet."""
    from kbtui.dates import parse_moment

    words: list[str] = []
    without: list[str] = []
    parts: list[FilterCondition] = []
    slips: list[FilterError] = []
    for match in re.finditer(_PART, text, re.IGNORECASE):
        unfinished = typing and match.end() == len(text)
        if match["key"]:
            key = match["key"].lower()
            key = _ALIASES.get(key, key)
            value = match["value"].strip('"').strip().casefold()
            moment = parse_moment(value, present) if key in ("after", "before") else None
            if wrong := _wrong(key, value, moment):
                if not unfinished:
                    slips.append(FilterError(match.start(), match.end(), match[0], wrong))
                continue
            parts.append(FilterCondition(key, value, bool(match["no"]), moment))
            continue
        word = (match["phrase"] if match["phrase"] is not None else match["word"]).casefold()
        if not word.strip():
            continue
        (without if match["no"] else words).append(word)
        if match["word"] and not unfinished and (meant := _meant(word)):
            slips.append(FilterError(match.start(), match.end(), match[0], meant))
    return LibraryFilter(tuple(words), tuple(without), tuple(parts), tuple(slips))


def _wrong(key: str, value: str, moment: datetime | None) -> str | None:
    if not value:
        return f"has no value: {KEYS[key]}"
    if key in ("after", "before") and moment is None:
        from kbtui.dates import HINT

        return f"is no date: {HINT}"
    if key == "is" and value not in STATES:
        return f"is not known: {KEYS['is']}"
    return None


def _meant(word: str) -> str | None:
    match = re.match(r"([a-z]{2,8}):\S", word)
    if match is None:
        return None
    from difflib import get_close_matches

    near = get_close_matches(match[1], list(KEYS), n=1, cutoff=0.75)
    return f"was looked for in titles; did you mean {near[0]}:?" if near else None


def _holds(
    part: FilterCondition, info: ConversationInfo, traits: ConversationSummary | None
) -> bool:
    if part.key == "label":
        return any(
            part.value in (key.casefold(), value.casefold(), f"{key}={value}".casefold())
            for key, value in info.labels.items()
        )
    if part.key == "is":
        return STATES[part.value](info)
    if part.moment is not None:
        last = info.last_event_at or info.created_at
        return last >= part.moment if part.key == "after" else last < part.moment
    if traits is None:
        return part.excluded  # not known yet: not shown
    names = traits.tools if part.key == "tool" else traits.models
    return any(part.value in name.casefold() for name in names)
