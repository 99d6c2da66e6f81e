"""Keeps the garbage collector from looking again and again at what stays anyway.

A full collection looks at every object there is, with all threads stopped: with
twenty thousand subjects it takes a fifth of a second, which a person who is
typing notices. What was read and stays is therefore set aside.
"""

from __future__ import annotations

import gc

MANY = 5_000
"""Things that are worth it."""
SELDOM = 100
"""Collections of what is newer that come before one of everything; Python's own number is 10."""

_settled = 0


def settle(count: int) -> None:
    """Set aside what lives now, if since the last time `count` things became many more.

    Not more often, because whatever is garbage at this moment stays too.
    """
    global _settled
    if count >= _settled + MANY:
        _settled = count
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], SELDOM)
