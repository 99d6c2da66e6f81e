"""Places: one number for an entry and the ordinal of a passage in the entry.

The passages before and after a passage have the adjacent numbers. Eight places are a block, a number
by which the keyword index finds the passages around a passage.
"""

from __future__ import annotations

from functools import lru_cache

_ORDINAL_BITS = 20
_MAX_ORDINAL = (1 << _ORDINAL_BITS) - 1
BLOCK_PASSAGES = 8
"""The number of places in a block; a power of two, so that no block has places of two entries."""


@lru_cache(maxsize=8)
def make_first_passage_place(entry_id: str) -> int:
    """Return the place of an entry's first passage: a hash of the id, followed by 20 zero bits.

    The place of another passage is the sum of this place and the passage's ordinal. A place has at most
    63 bits.
    """
    from hashlib import blake2b  # imported here because a search does not need it

    digest = blake2b(entry_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> (_ORDINAL_BITS + 1) << _ORDINAL_BITS


def make_passage_place(entry_place: int, ordinal: int) -> int:
    """Return the place of the passage at `ordinal`."""
    return entry_place + min(ordinal, _MAX_ORDINAL)


def get_entry_number_of_place(place: int) -> int:
    """Return the number of the entry that has a passage at `place`."""
    return place >> _ORDINAL_BITS


def get_place_range_of_entry(owner: int) -> tuple[int, int]:
    """Return the first and the last possible place in an entry; `owner` is the number of the entry."""
    return owner << _ORDINAL_BITS, (owner << _ORDINAL_BITS) + _MAX_ORDINAL


def get_block_of_place(place: int) -> int:
    """Return the block that contains a place: the first of its places."""
    return place & -BLOCK_PASSAGES
