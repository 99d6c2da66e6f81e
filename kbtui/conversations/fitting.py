"""Shortening one turn to a size: its longest texts in the middle (decisions B4)."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from kbtui.conversations.encoding import pretty
from kbtui.conversations.xml import escape, event_xml, turn_xml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WRAPPING = 200
"""Characters that a turn takes around its events."""
_LEAST = 200
"""Characters that a text keeps before whole events are left out."""


class _Text:
    """One text of an event that may be shortened; `put` puts another in its place."""

    def __init__(self, text: str, put: Callable[[str], None], json: bool) -> None:
        self.text, self.put, self.json = text, put, json
        self.size = self.measure(text)

    def measure(self, text: str) -> int:
        """Characters that the text takes in the envelope."""
        return len(escape(pretty(text) if self.json else text))

    def shorten(self, size: int) -> None:
        """Put the text in at most `size` characters, saying how many are left out."""
        if self.size <= size:
            return
        keep = min(size, len(self.text))
        while keep > 0:
            shown = _cut_middle(self.text, keep)
            taken = self.measure(shown)
            if taken <= size:
                break
            keep = min(keep - 1, keep * size // taken)
        self.put(_cut_middle(self.text, max(0, keep)))


def fit_turn(turn: dict[str, Any], room: int) -> tuple[list[dict[str, Any]], str]:
    """The turn in at most `room` characters of XML, as a list of one, and what to say of it.

    Long texts lose their middle, the longest the most. Where even that does not
    do, events in the middle of the turn are left out.
    """
    events = turn["events"]
    kept = _events_that_fit(events, room)
    shortened = {**turn, "events": deepcopy(kept)}
    texts = [text for event in shortened["events"] for text in _texts(event)]
    fixed = len(turn_xml(shortened)) + 1 - sum(text.size for text in texts)
    level = _level([text.size for text in texts], room - fixed)
    for text in texts:
        text.shorten(level)
    said = f"turn {turn['turn']} is shortened: ask with include for fewer kinds of event"
    if len(kept) < len(events):
        left = len(events) - len(kept)
        said = f"{left} of its {len(events)} events are left out in the middle; {said}"
    return [shortened], said


def _cut_middle(text: str, keep: int) -> str:
    left = len(text) - keep
    if left <= 0:
        return text
    head = (keep + 1) // 2
    tail = text[len(text) - (keep - head) :]
    return f"{text[:head]}\n[… {left:,} characters left out …]\n{tail}"


def _level(sizes: list[int], room: int) -> int:
    """The height to which the longest are cut so that all together take `room`."""
    rest, count = room, len(sizes)
    for size in sorted(sizes):
        share = rest // count if count else 0
        if size > share:
            return max(0, share)
        rest -= size
        count -= 1
    return max(sizes, default=0)


def _events_that_fit(events: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """As many from both ends as fit when each text keeps little."""
    sizes = []
    for event in events:
        spare = sum(max(0, text.size - _LEAST) for text in _texts(event))
        sizes.append(len(event_xml(event)) + 1 - spare)
    first, final, used = 0, len(events), _WRAPPING
    while first < final:
        at_front = first <= len(events) - final
        used += sizes[first] if at_front else sizes[final - 1]
        if used > room:
            return events[:first] + events[final:]
        if at_front:
            first += 1
        else:
            final -= 1
    return events


def _texts(event: dict[str, Any]) -> Iterator[_Text]:
    if isinstance(content := event["content"], str):
        yield _Text(content, _setter(event, "content"), json=False)
    if "arguments" in event:
        yield from _strings(event["arguments"])


def _strings(value: Any) -> Iterator[_Text]:
    """The strings in a JSON value, at any depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        if isinstance(item, str):
            yield _Text(item, _setter(value, key), json=True)
        elif isinstance(item, dict | list):
            yield from _strings(item)


def _setter(container: Any, key: Any) -> Callable[[str], None]:
    def put(text: str) -> None:
        container[key] = text

    return put
