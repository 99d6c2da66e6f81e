"""The query grammar: words, "phrases", -not, key:value. No text reaches an engine's own parser.

A quotation mark that is never closed opens a phrase that runs to the end, a lone
`-` is nothing, `--flag` is a word, and a key that is not known is text: every
text is a query. What is wrong with a filter is a `Mistake` that says where.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kbtui.notices import Notice

KEYS: dict[str, str] = {
    "topic": "subjects of this topic, by id or title",
    "in": "subjects or conversations",
    "type": "entries of this type",
    "title": "entries with this in their title",
    "role": "what this role said",
    "tool": "calls of this tool and their results",
    "arg": "calls with this argument: arg:path=a.md",
    "after": "from this day on: after:2026-11-01, after:2w",
    "before": "before this day: before:yesterday",
}
"""What may stand before a colon, and what it asks for."""

ALIASES = {"since": "after", "until": "before", "kind": "in", "topics": "topic"}

_VALUE = r'(?:"[^"]*(?:"|$)|[^\s",]+)'
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_PART = re.compile(
    r"(?P<no>(?<!\S)-(?=[^\s-]))?"
    rf"(?:(?P<key>(?<![^\s-])(?:{'|'.join((*KEYS, *ALIASES))})):(?P<values>{_VALUE}(?:,{_VALUE})*)"
    r'|"(?P<phrase>[^"]*)(?:"|$)|(?P<word>[^\s"]+))',
    re.IGNORECASE,
)
_ONE_VALUE = re.compile(r'"([^"]*)(?:"|$)|([^\s",]+)')
_ALMOST = re.compile(r"([a-z]{3,8}):(?![:/\\])\S")


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
    notices: tuple[Notice, ...] = ()
    spoken: str = ""
    open: bool = False


class _Reading:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.phrases: list[str] = []
        self.excluded: list[str] = []
        self.filters: list[QueryFilter] = []
        self.notices: list[Notice] = []
        self.spoken: list[str] = []


def parse_query(text: str, *, partial: bool = False) -> ParsedQuery:
    """Read a query; every text is one.

    `partial` says that it is being typed: a filter that ends it may be unfinished.
    """
    found = _Reading()
    # What is no Unicode text could be in no document, and tantivy does not take it.
    text = _SURROGATES.sub("\ufffd", text)
    for match in _PART.finditer(text):
        typing = partial and match.end() == len(text)
        if match["key"]:
            found.filters.append(_filter(match, typing))
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
            found.words.append(part)
            if not typing:
                _note_almost_filter(part, found)
    typed = text[-1:]
    return ParsedQuery(
        text,
        tuple(found.words),
        tuple(found.phrases),
        tuple(found.excluded),
        tuple(found.filters),
        tuple(found.notices),
        spoken=" ".join(found.spoken),
        open=bool(found.words) and not typed.isspace() and typed != '"',
    )


def _filter(match: re.Match[str], typing: bool) -> QueryFilter:
    key = match["key"].lower()
    values = tuple(
        " ".join((one[1] if one[1] is not None else one[2]).split())
        for one in _ONE_VALUE.finditer(match["values"])
    )
    key = ALIASES.get(key, key)
    return QueryFilter(key, values, bool(match["no"]), match.start(), match.end(), typing)


def _note_almost_filter(word: str, found: _Reading) -> None:
    """Say so where a word looks like a filter and is none."""
    key = word.removesuffix(":").lower()
    if word.endswith(":") and (key in KEYS or key in ALIASES):
        found.notices.append(Notice("filter_without_value", {"word": word}))
    elif match := _ALMOST.match(word.lower()):
        from difflib import get_close_matches

        near = get_close_matches(match[1], (*KEYS, *ALIASES), n=1, cutoff=0.79)
        if near:
            found.notices.append(
                Notice("unknown_filter", {"word": match[1], "suggestion": near[0]})
            )
