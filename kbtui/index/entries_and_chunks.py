"""Entries and chunks, their ids, and the order of ranked chunks.

Chunk numbers and the positions of rows in an index depend on the order in which files were indexed;
scores and chunk ids depend on the files alone. Equal scores are therefore ordered by chunk id, so
that the same files give the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence


class Chunk(NamedTuple):
    """A passage of an entry, small enough for the model to read whole.

    `id` is a hash of the entry, the text and the number of equal texts before it, so an edit
    elsewhere in the entry rarely changes it; `number` is the chunk's key in the index. Chunks of
    subjects have `lines` (first and last, 1-based). Chunks of conversations have `turn`, `role`,
    `tool`, `timestamp` (Unix seconds), `call` (the tool call's number in its turn) and `args` (its
    short arguments). `embed` says whether the chunk gets a vector; `vector_hash` changes whenever
    the chunk's row in the table of vectors must be written again.
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


class CatalogEntry(NamedTuple):
    """A subject or a conversation in the catalog.

    `signature` identifies the state of the files that it was read from, `stat` that of `path`
    alone (`format_file_state`), for a cheap comparison before a hit is shown. Times are Unix
    seconds. `error` says why the entry is not indexed, or which part of it could not be read.
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
    tags: Sequence[str] = ()
    source_url: str | None = None
    created: float = 0.0
    changed: float = 0.0
    size: int = 0
    hidden: bool = False
    archived: bool = False
    error: str | None = None
    stat: str = ""


def format_file_state(status: os.stat_result) -> str:
    """Return a file's state as text: inode, size and modification time in nanoseconds."""
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def make_subject_id(topic: str, slug: str) -> str:
    """Return the entry id of a subject: `s` and 12 hex digits."""
    return "s" + _hash_strings(topic, slug)[:12]


def make_chunk_id(entry: str, text: str, repeat: int) -> str:
    """Return the id of a chunk, 16 hex digits; `repeat` counts equal texts before it in the entry."""
    return _hash_strings(entry, text, str(repeat))[:16]


def hash_embedded_text(text: str) -> bytes:
    """Return the key of a text's embedding in the cache: 16 bytes."""
    from hashlib import sha256

    return sha256(text.encode("utf-8", "replace")).digest()[:16]


def _hash_strings(*parts: str) -> str:
    from hashlib import sha256  # a search does not need it

    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


SCORE_TOLERANCE = 5e-6
"""The relative difference below which two scores count as equal. Both indexes add 32-bit floats in an
order that depends on the positions of their rows, so that the last digits of a score vary."""


class RankedChunk(NamedTuple):
    """A chunk found by keywords or by meaning.

    `owner` identifies its entry. `tie` orders equal scores: it is the chunk's id as a number.
    """

    number: int
    score: float
    owner: object
    tie: int


def sort_ranked_chunks(
    rows: Iterable[RankedChunk],
    *,
    tolerance: float = SCORE_TOLERANCE,
    least: float = 0.0,
    cut: bool = False,
) -> list[RankedChunk]:
    """Sort chunks by score, best first, and equal scores by chunk id.

    Scores count as equal if they differ by at most `tolerance` times the score, or `tolerance` times
    `least` if that is larger. `cut` says that the search stopped at a limit: the last group of equal
    scores may then be incomplete and is left out.
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
