"""What may be typed next in a query: keys, and the values that each of them can have here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.search.filters import KINDS, ROLE_GROUPS, ROLES
from kbtui.search.query_parser import ALIASES, KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.index import IndexReader
    from kbtui.knowledge import Knowledge

MOST = 20
DATES = {
    "today": "since midnight",
    "yesterday": "since the midnight before",
    "3d": "three days",
    "2w": "two weeks",
    "1m": "a month",
    "1y": "a year",
}

_TYPED = re.compile(
    rf"(?:^|(?<=\s))-?(?:(?P<key>{'|'.join((*KEYS, *ALIASES))}):(?P<done>(?:[^\s\",]*,)*))?"
    r'(?P<part>"[^"]*|[^\s",]*)$',
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Suggestion:
    """Put `text` in place of characters `start` to `end`; `note` says what it is."""

    start: int
    end: int
    text: str
    note: str


def complete(
    text: str, cursor: int, knowledge: Knowledge, reader: IndexReader | None = None
) -> list[Suggestion]:
    """Suggestions for the word before the cursor, the likeliest first; at most `MOST`.

    Types, tools and arguments come from the index, where there is one. Nothing
    hidden or disabled is suggested.
    """
    match = _TYPED.search(text[:cursor])
    if match is None:
        return []
    start, part = match.start("part"), match["part"].lstrip('"').lower()
    if match["key"] is None:
        if match["part"].startswith('"') or not (part or not text.strip()):
            return []
        found: Iterable[tuple[str, str]] = ((f"{key}:", note) for key, note in KEYS.items())
        return [
            Suggestion(start, cursor, value, note)
            for value, note in found
            if value.startswith(part) and value != part
        ]
    key = ALIASES.get(match["key"].lower(), match["key"].lower())
    values = _values(key, part, knowledge, reader)
    begun = [pair for pair in values if pair[0].lower().startswith(part)]
    other = [
        pair for pair in values if pair not in begun and part in f"{pair[0]} {pair[1]}".lower()
    ]
    return [
        Suggestion(start, cursor, _quoted(value), note)
        for value, note in [*begun, *other][:MOST]
        if value.lower() != part
    ]


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"[\s,]", value) else value


def _values(
    key: str, part: str, knowledge: Knowledge, reader: IndexReader | None
) -> list[tuple[str, str]]:
    if key == "topic":
        return [(topic.id, topic.name) for topic in knowledge.topics.values() if topic.enable]
    if key == "in":
        return [(name, "") for name in KINDS if name.endswith("s")]
    if key == "role":
        groups = {name: " and ".join(roles) for name, roles in ROLE_GROUPS.items()}
        return [*((role, "") for role in ROLES), *groups.items()]
    if key in {"after", "before"}:
        return list(DATES.items())
    if key in {"type", "tool", "arg"} and reader is not None:
        searcher = reader.lexical().searcher()
        terms = searcher.terms_with_prefix(key, part if key == "arg" else "", limit=200)
        return [(term, f"{count} passages") for term, count in terms]
    return []
