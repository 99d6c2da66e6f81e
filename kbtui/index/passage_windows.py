"""Windows: groups of six consecutive passages of an entry.

A passage is often too short to contain all words of a query; its neighbours may contain the rest.
Therefore each window is a document in a second keyword index, and a passage gets the score of its
window, too. Windows do not overlap, so each word is indexed only twice: in its passage and in its
window. Window n contains the passages with the ordinals 6n to 6n + 5. When a conversation grows, only
its last window changes.

The text of a window leaves out tool calls and their results, because they would outweigh the words of
the user and the assistant.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kbtui.records import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WINDOW_CHUNKS = 6
"""The number of passages in a window. The value was measured: docs/search-quality.md."""

_ORDINAL_BITS = 20
_MAX_ORDINAL = (1 << _ORDINAL_BITS) - 1


@lru_cache(maxsize=8)
def make_entry_place(entry_id: str) -> int:
    """Return the place of an entry's first passage: a hash of the id, followed by 20 zero bits.

    The place of another passage is the sum of this place and the passage's ordinal. A place has at most
    63 bits.
    """
    from hashlib import blake2b  # imported here because a search does not need it

    digest = blake2b(entry_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> (_ORDINAL_BITS + 1) << _ORDINAL_BITS


def make_chunk_place(entry_place: int, ordinal: int) -> int:
    """Return the place of the passage at `ordinal`; `entry_place` is the first passage's place."""
    return entry_place + min(ordinal, _MAX_ORDINAL)


def get_entry_number_of_place(place: int) -> int:
    """Return the number of the entry that has a passage or a window at `place`."""
    return place >> _ORDINAL_BITS


def get_place_limits(owner: int) -> tuple[int, int]:
    """Return the first and last possible place of a passage; `owner` is the number of the entry."""
    return owner << _ORDINAL_BITS, (owner << _ORDINAL_BITS) + _MAX_ORDINAL


def make_window_id(place: int) -> int:
    """Return the id of the window with the passage at `place`: the place of the window's first passage."""
    return place - (place & _MAX_ORDINAL) % WINDOW_CHUNKS


class WindowsAroundPassage(NamedTuple):
    """The window that contains a passage, and the adjacent window that is nearer to the passage.

    `share` says how much of the adjacent window's score counts: nothing (0) for a passage in the middle
    of its window, and nearly half (0.5) at the edge. The adjacent window may not exist.
    """

    own: int
    adjacent: int
    share: float


_STEPS_AND_SHARES = tuple(
    (
        WINDOW_CHUNKS if 2 * at + 1 > WINDOW_CHUNKS else -WINDOW_CHUNKS,
        abs((at + 0.5) / WINDOW_CHUNKS - 0.5),
    )
    for at in range(WINDOW_CHUNKS)
)
"""Two values about the adjacent window, for each position of a passage in its own window.

The values are the distance from the start of the own window to the start of the adjacent window, and
the share of the adjacent window's score that counts (`WindowsAroundPassage.share`).
"""


def find_windows_around(place: int) -> WindowsAroundPassage:
    """Return the windows that count for the passage at `place`."""
    position = (place & _MAX_ORDINAL) % WINDOW_CHUNKS
    step, share = _STEPS_AND_SHARES[position]
    return WindowsAroundPassage(place - position, place - position + step, share)


def score_texts_around(places: Iterable[int], scores: Mapping[int, float]) -> list[float]:
    """Return the score of the text around the passage at each place; `scores` maps window ids to scores.

    At the edge of a window, a part of the adjacent window's score counts, if that score is higher.
    The result is never less than the score of the passage's own window, so that an entry with a
    single passage has no disadvantage.
    """
    # A search scores hundreds of passages, so this makes no `WindowsAroundPassage`.
    found = []
    for place in places:
        position = (place & _MAX_ORDINAL) % WINDOW_CHUNKS
        step, share = _STEPS_AND_SHARES[position]
        own = scores.get(place - position, 0.0)
        adjacent = scores.get(place - position + step, 0.0)
        found.append(own + share * (adjacent - own) if adjacent > own else own)
    return found


def find_changed_windows(
    old: Iterable[tuple[int, str]], new: Iterable[tuple[int, str]]
) -> list[int]:
    """Return the numbers of an entry's windows that differ. The first window has the number 0.

    `old` and `new` contain the position and the id of each passage, in order.
    """
    before, after = _group_by_window(old), _group_by_window(new)
    return sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))


def _group_by_window(members: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for ordinal, chunk_id in members:
        found.setdefault(ordinal // WINDOW_CHUNKS, []).append(chunk_id)
    return found
