"""The query grammar: words, "phrases", -not. User text never reaches an engine's own parser.

A quotation mark that is never closed opens a phrase that runs to the end, and a
lone `-` is nothing: every text is a query.
"""

import re
from dataclasses import dataclass

_PART = re.compile(r'(?P<no>(?<!\S)-)?(?:"(?P<phrase>[^"]*)(?:"|$)|(?P<word>[^\s"]+))')


@dataclass(frozen=True)
class Query:
    """A query, read: what should be there, what must, and what must not.

    `open` says that the text ends in a word that may still be typed on.
    """

    text: str
    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    open: bool = False

    @property
    def spoken(self) -> str:
        """The question for the semantic leg: words and phrases in the order they were typed."""
        return " ".join(
            " ".join((match["phrase"] or match["word"] or "").split())
            for match in _PART.finditer(self.text)
            if not match["no"]
        ).strip()


def parse_query(text: str) -> Query:
    """Read a query; every text is one."""
    text = " ".join(text.split())
    words: list[str] = []
    phrases: list[str] = []
    excluded: list[str] = []
    for match in _PART.finditer(text):
        part = match["phrase"] if match["phrase"] is not None else match["word"]
        if not part.strip() or part == "-":
            continue
        if match["no"]:
            excluded.append(part)
        elif match["phrase"] is not None:
            phrases.append(part)
        else:
            words.append(part)
    last = text[-1:] if text else ""
    return Query(
        text,
        tuple(words),
        tuple(phrases),
        tuple(excluded),
        open=bool(words) and last not in {'"', ""},
    )
