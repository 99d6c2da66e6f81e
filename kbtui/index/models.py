"""Entries and chunks, their ids, and the order of ranked chunks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable


@dataclass(slots=True)
class Chunk:
    """A piece of an entry, small enough for the model to read whole.

     `id` is made from the entry, the text and its ordinal among equal texts
    , so an edit elsewhere does not change it. `lines` belong to
     subjects, `turn`, `role`, `tool`, `timestamp` (Unix seconds) to
     conversations; `call` is the number of the tool call in its turn, `args` its
     short arguments. `embed` says whether it gets a vector; `vector_hash` changes
     whenever that vector or what it is filtered by would.
    """

    id: str
    text: str
    ordinal: int
    lines: tuple[int, int] | None = None
    turn: int | None = None
    role: str | None = None
    tool: str | None = None
    timestamp: float | None = None
    embed: bool = True
    number: int = 0
    vector_hash: bytes | None = None
    call: int | None = None
    args: dict[str, str] | None = None


@dataclass(slots=True)
class Entry:
    """A subject file or a conversation, as the catalog holds it.

    `signature` names the state of the files that it was read from, `stat` that of
    `path` alone (`stat_text`), for a cheap look before a hit is shown. Times are
    Unix seconds. `error` says why nothing of it is indexed.
    """

    id: str
    kind: Literal["subject", "conversation"]
    title: str
    signature: str
    path: str
    type: str = ""
    topic: str | None = None
    slug: str | None = None
    conversation: str | None = None
    tags: list[str] = field(default_factory=list)
    source_url: str | None = None
    created: float = 0.0
    changed: float = 0.0
    size: int = 0
    hidden: bool = False
    archived: bool = False
    error: str | None = None
    stat: str = ""


def format_file_state(status: os.stat_result) -> str:
    """The state of a file: inode, size, modification time in nanoseconds."""
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def make_subject_id(topic: str, slug: str) -> str:
    """The entry id of a subject: `s` and 12 hex digits."""
    return "s" + _hash_parts(topic, slug)[:12]


def make_chunk_id(entry: str, text: str, repeat: int) -> str:
    """The id of a chunk: 16 hex digits; `repeat` counts equal texts before it in the entry."""
    return _hash_parts(entry, text, str(repeat))[:16]


def hash_text(text: str) -> bytes:
    """What an embedding is remembered by."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()[:16]


def _hash_parts(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


SCORE_TOLERANCE = 5e-6
"""Scores that differ by less than this share are equal. Both indexes add 32-bit floats in an order
that depends on where their rows lie."""


class RankedChunk(NamedTuple):
    """A chunk that a leg found, with its score and what it belongs to; `tie` orders equal scores."""

    number: int
    score: float
    owner: object
    tie: int


def make_tie_breaker(make_chunk_id: str) -> int:
    """A chunk's id as a 64-bit number; the order is the same."""
    return int(make_chunk_id, 16)


def sort_ranked_chunks(
    rows: Iterable[RankedChunk],
    *,
    tolerance: float = SCORE_TOLERANCE,
    least: float = 0.0,
    cut: bool = False,
) -> list[RankedChunk]:
    """The rows by score, equal ones by chunk id.

    `tolerance` is a share of the score, or of `least` where the score is smaller. With `cut` the
    search stopped at a limit: the last group of equal scores may have more rows than were found,
    and is left out.
    """
    ordered = sorted(rows, key=lambda row: -row.score)
    result: list[RankedChunk] = []
    start = 0
    for at in range(1, len(ordered) + 1):
        if at < len(ordered):
            score = ordered[at].score
            if ordered[at - 1].score - score <= tolerance * max(least, abs(score)):
                continue
        elif cut:
            break
        result += sorted(ordered[start:at], key=lambda row: row.tie)
        start = at
    return result
