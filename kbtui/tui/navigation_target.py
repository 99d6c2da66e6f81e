"""Places: what can be opened, and the way back through what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbtui.refs import Ref
    from kbtui.search.models import Hit


class ScrollAnchor(NamedTuple):
    """A position that survives another width, or a reload.

    The block's key and number, the line, and the letters and digits before it.
    """

    key: str
    block: int
    line: int
    letters: int


class NavigationTarget(NamedTuple):
    """Something to open, and where in it.

    `key` is a document's: `home`, `prompt`, `topic:ID`, `topic/slug` or
    `jp-c…`. `ref` names the thing and the lines, turn or call in it; `words` are to be marked
    there, and `text` is a passage in which they stand. `mark` is where one was reading.
    """

    key: str
    view: str = "read"
    ref: Ref | None = None
    words: tuple[str, ...] = ()
    text: str = ""
    mark: ScrollAnchor | None = None

    def same_document(self, other: NavigationTarget | None) -> bool:
        """Whether the other one is in the same document, seen the same way."""
        return other is not None and (self.key, self.view) == (other.key, other.view)


HOME = NavigationTarget("home")
PROMPT = NavigationTarget("prompt", "prompt")


def place_of(ref: Ref) -> NavigationTarget:
    """Where a reference leads; chunks have to be looked up first."""
    if ref.kind == "topic":
        return NavigationTarget(f"topic:{ref.topic}", ref=ref)
    if ref.kind == "subject":
        return NavigationTarget(str(ref._replace(lines=None)), ref=ref)
    return NavigationTarget(ref.conversation or "", ref=ref)


def place_of_hit(hit: Hit) -> NavigationTarget:
    """Where a search hit leads, with the words that matched."""
    words = tuple(dict.fromkeys(hit.text[start:end] for start, end in hit.matches))
    return place_of(hit.target)._replace(words=words, text=hit.text)


class NavigationHistory:
    """Back and forward history, like a browser's; `at` is the index of the current place."""

    def __init__(self, places: list[NavigationTarget] | None = None, at: int = -1) -> None:
        self.places = places or []
        self.at = at

    @property
    def here(self) -> NavigationTarget | None:
        """The place being read."""
        return self.places[self.at] if self.places else None

    def leave(self, mark: ScrollAnchor | None) -> None:
        """Remember where one was reading."""
        if self.places:
            self.places[self.at] = self.places[self.at]._replace(mark=mark)

    def go(self, place: NavigationTarget) -> None:
        """Read another place; what lay ahead is forgotten."""
        del self.places[self.at + 1 :]
        self.places.append(place)
        self.at = len(self.places) - 1

    def step(self, by: int) -> NavigationTarget | None:
        """The place `by` steps forward (or back, when negative), which one then reads."""
        if not 0 <= self.at + by < len(self.places):
            return None
        self.at += by
        return self.places[self.at]
