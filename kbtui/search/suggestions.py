"""What may be typed next in a query: keys, and the values that each of them can have here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.search.filters import Filter, filters_for, list_filters

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

_TYPED = (
    r"(?:^|(?<=\s))-?(?:(?P<key>{}):(?P<done>(?:[^\s\",]*,)*))?"
    r'(?P<part>"[^"]*|[^\s",]*)$'
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
    known = filters_for("search")
    match = re.search(_TYPED.format("|".join(known)), text[:cursor], re.IGNORECASE)
    if match is None:
        return []
    start, part = match.start("part"), match["part"].lstrip('"').lower()
    if match["key"] is None:
        if match["part"].startswith('"') or not (part or not text.strip()):
            return []
        found: Iterable[tuple[str, str]] = (
            (f"{row.key}:", row.about) for row in list_filters("search")
        )
        return [
            Suggestion(start, cursor, value, note)
            for value, note in found
            if value.startswith(part) and value != part
        ]
    values = _values(known[match["key"].lower()], part, knowledge, reader)
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
    row: Filter, part: str, knowledge: Knowledge, reader: IndexReader | None
) -> list[tuple[str, str]]:
    if row.kind == "topic":
        return [(topic.id, topic.name) for topic in knowledge.topics.values() if topic.enable]
    if row.kind == "choice":
        groups = {name: " and ".join(row.choices[name]) for name in row.shown_choices}
        return [(name, "" if " " not in text else text) for name, text in groups.items()]
    if row.kind == "date":
        return list(DATES.items())
    if row.kind in {"term", "argument"} and reader is not None:
        searcher = reader.open_keyword_index().searcher()
        begun = part if row.kind == "argument" else ""
        terms = searcher.terms_with_prefix(row.term, begun, limit=200)
        return [(term, f"{count} passages") for term, count in terms]
    return []
