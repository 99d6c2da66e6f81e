"""The query grammar: words, "phrases", -not, key:value. No text reaches an engine's own parser.

A quotation mark that is never closed opens a phrase that runs to the end, a lone
`-` is nothing, `--flag` is a word, and an unknown key is text: every text is a
query. What may stand before a colon is in `kbtui.search.filters`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kbtui.notices import Notice
from kbtui.search.filters import VALUE, filters_for, split_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbtui.search.filters import Surface

_SURROGATES = re.compile(r"[\ud800-\udfff]")
_ALMOST = re.compile(r"([a-z]{2,8}):(?![:/\\])\S")


class QueryError(NamedTuple):
    """What is wrong with a part of a query: characters `start` to `end` of it, or -1 twice for an
    option that is not of the text."""

    start: int
    end: int
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def notice(self) -> Notice:
        """The mistake as a notice of the answer."""
        return Notice("query_mistake", {"detail": str(self)})


class QueryFilter(NamedTuple):
    """One `key:value,value`; `start` and `end` are its place in the text.

    `unfinished` says that it may still be typed on: what is wrong with it is no mistake yet.
    """

    key: str
    values: tuple[str, ...]
    excluded: bool
    start: int
    end: int
    unfinished: bool = False


class AlmostFilter(NamedTuple):
    """A word that looks like a filter and is none, at `start` to `end` of the text."""

    start: int
    end: int
    notice: Notice


class ParsedQuery(NamedTuple):
    """A query, read: what should be there, what must, what must not, and what narrows.

    `open` says that the text ends in a word that may still be typed on, `spoken`
    is the question for the semantic leg: words and phrases as they were typed.
    """

    text: str
    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    filters: tuple[QueryFilter, ...] = ()
    almost_filters: tuple[AlmostFilter, ...] = ()
    spoken: str = ""
    open: bool = False

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What to say of the words that look like filters."""
        return tuple(word.notice for word in self.almost_filters)


class _Reading:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.phrases: list[str] = []
        self.excluded: list[str] = []
        self.filters: list[QueryFilter] = []
        self.almost_filters: list[AlmostFilter] = []
        self.spoken: list[str] = []


def _part(names: Iterable[str]) -> re.Pattern[str]:
    """The pattern of one part of a query; `re` keeps it compiled."""
    return re.compile(
        r"(?P<no>(?<!\S)-(?=[^\s-]))?"
        rf"(?:(?P<key>(?<![^\s-])(?:{'|'.join(names)})):(?P<values>{VALUE}(?:,{VALUE})*)"
        r'|"(?P<phrase>[^"]*)(?:"|$)|(?P<word>[^\s"]+))',
        re.IGNORECASE,
    )


def parse_query(text: str, *, partial: bool = False, surface: Surface = "search") -> ParsedQuery:
    """Read a query, with a surface's filters; every text is one.

    `partial` says that it is being typed: a filter that ends it may be unfinished.
    """
    found = _Reading()
    known = filters_for(surface)
    # What is no Unicode text could be in no document, and tantivy does not take it.
    text = _SURROGATES.sub("\ufffd", text)
    for match in _part(known).finditer(text):
        typing = partial and match.end() == len(text)
        if match["key"]:
            key = known[match["key"].lower()].key
            values = split_values(match["values"])
            found.filters.append(
                QueryFilter(key, values, bool(match["no"]), match.start(), match.end(), typing)
            )
            continue
        part = match["phrase"] if match["phrase"] is not None else match["word"]
        if not part.strip() or part == "-":
            continue
        if match["no"]:
            found.excluded.append(part)
            continue
        found.spoken.append(" ".join(part.split()))
        if match["phrase"] is not None:
            found.phrases.append(part)
        else:
            is_bare = part.endswith(":") and part[:-1].lower() in known
            # A search looks for every word; a filter line ignores a key that waits for its value.
            if surface == "search" or not is_bare:
                found.words.append(part)
            if not typing and (notice := _notice_almost_filter(part, known)):
                found.almost_filters.append(AlmostFilter(match.start(), match.end(), notice))
    typed = text[-1:]
    return ParsedQuery(
        text,
        tuple(found.words),
        tuple(found.phrases),
        tuple(found.excluded),
        tuple(found.filters),
        tuple(found.almost_filters),
        spoken=" ".join(found.spoken),
        open=bool(found.words) and not typed.isspace() and typed != '"',
    )


def _notice_almost_filter(word: str, known: Iterable[str]) -> Notice | None:
    """What to say of a word that looks like a filter and is none."""
    if word.endswith(":") and word[:-1].lower() in known:
        return Notice("filter_without_value", {"word": word})
    if match := _ALMOST.match(word.lower()):
        from difflib import get_close_matches

        if near := get_close_matches(match[1], known, n=1, cutoff=0.79):
            return Notice("unknown_filter", {"word": match[1], "suggestion": near[0]})
    return None
