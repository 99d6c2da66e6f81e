"""Entries and chunks, their ids and places, and the order of ranked chunks.

Chunks with equal scores are sorted by chunk id, which depends only on the files, so that the same
files give the same answers. Chunk numbers and row numbers are unsuitable, because they depend on the
order in which the files were indexed.

A place is a number that combines an entry and the ordinal of a passage in it. The passages before and
after a passage have the adjacent numbers. Eight adjacent places form a block. The keyword
index uses the block's number to find the passages around a passage.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kbtui.light_named_tuple import NamedTuple
from kbtui.references import make_conversation_ref, make_subject_ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kbtui.references import Ref


# This is not in `chunk_splitter`, because a search without an engine must not wait for that import.
CHUNKING_VERSION = 9
"""The version of the rules that split texts into chunks. Increase it when they change, so that the index is rebuilt."""
_ORDINAL_BITS = 20
_MAX_ORDINAL = (1 << _ORDINAL_BITS) - 1
BLOCK_PASSAGES = 8
"""The number of places in a block; a power of two, so that no block has places of two entries."""


class Chunk(NamedTuple):
    """A passage of an entry.

    A passage that is embedded is short enough for the model to read as a whole.

    * `id` is a hash of the entry id, the text, and the number of equal texts before it in the
      entry. Therefore, an edit elsewhere in the entry rarely changes the id.
    * `number` identifies the chunk in the index.
    * `lines` are the first and the last line of a subject's chunk, counted from 1.
    * `turn`, `role`, `tool`, `timestamp` (Unix seconds), `call` and `args` describe a
      conversation's chunk. `call` is the number of the tool call in its turn, and `args` contains
      the short arguments of the call.
    * `embed` says whether the chunk is embedded.
    * `vector_hash` changes whenever the row in the vector table must be written again.
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

    * `signature` changes whenever the entry must be indexed again.
    * `stat` is the state of the file `path` (see `format_inode_size_and_mtime`), for a quick comparison
      before a hit is shown.
    * `created` and `changed` are in Unix seconds.
    * `error` says why the entry is not indexed, or which part of it could not be read.
    * `agent` is the agent of a conversation.
    * `parent` is the id of the conversation to which this one belongs.
    * `rewound` contains the numbers of the conversation's rewound turns.
    * `digests` are the hashes of a subject's text, for comparison with the texts that turns were
      given.
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
    agent: str | None = None
    parent: str | None = None
    rewound: Sequence[int] = ()
    digests: str | None = None

    def make_chunk_ref(self, chunk: Chunk) -> Ref:
        """Return a reference to the lines, the turn or the tool call of a chunk of this entry."""
        if self.kind == "subject":
            return make_subject_ref(self.topic or "", self.slug or "", chunk.lines)
        return make_conversation_ref(self.conversation or "", chunk.turn, chunk.call)


def make_subject_id(topic: str, slug: str) -> str:
    """Return the entry id of a subject: `s` and 12 hex digits."""
    from kbtui.workspace.paths import sha256  # a search does not need OpenSSL

    digest = sha256(f"{topic}\0{slug}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"s{digest[:12]}"


def hash_embedded_text(text: str) -> bytes:
    """Return the 16-byte hash by which the embedding cache finds the vector of a text."""
    from hashlib import sha256

    return sha256(text.encode("utf-8", "replace")).digest()[:16]


@lru_cache(maxsize=8)
def compute_place_number_of_first_passage_in_entry(entry_id: str) -> int:
    """Return the place of an entry's first passage: a hash of the id, followed by 20 zero bits.

    The place of another passage is the sum of this place and the passage's ordinal. A place has at most
    63 bits.
    """
    import hashlib  # imported here because a search does not need it

    digest = hashlib.blake2b(entry_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> (_ORDINAL_BITS + 1) << _ORDINAL_BITS


def compute_passage_place_number(entry_place: int, ordinal: int) -> int:
    """Return the place of the passage at `ordinal` in the entry whose first passage is at `entry_place`."""
    return entry_place + min(ordinal, _MAX_ORDINAL)


def extract_entry_number_from_place_number(place: int) -> int:
    """Return the number of the entry that has a passage at `place`."""
    return place >> _ORDINAL_BITS


def get_place_number_range_of_entry(owner: int) -> tuple[int, int]:
    """Return the first and the last possible place in an entry; `owner` is the number of the entry."""
    return owner << _ORDINAL_BITS, (owner << _ORDINAL_BITS) + _MAX_ORDINAL


def get_passage_block_of_place(place: int) -> int:
    """Return the block that contains a place. A block is identified by the first of its places."""
    return place & -BLOCK_PASSAGES


Row = TypeVar("Row", bound="tuple[Any, ...]")

SCORE_TOLERANCE = 5e-6
"""Scores count as equal if their relative difference is at most this. Rounding causes such differences."""


class RankedChunk(NamedTuple):
    """A chunk found by keywords or by meaning.

    `owner` is the id or the number of the chunk's entry. `tie` is the chunk id as a number, by
    which chunks with equal scores are sorted.
    """

    number: int
    score: float
    owner: object
    tie: int


def sort_ranked_chunks(
    rows: Iterable[RankedChunk],
    *,
    score_tolerance: float = SCORE_TOLERANCE,
    least: float = 0.0,
    cut: bool = False,
) -> list[RankedChunk]:
    """Sort chunks by score, best first, and equal scores by chunk id.

    Two scores count as equal if they differ by at most `score_tolerance * max(least, score)`. `cut` says
    whether the search stopped at a limit. If so, the last group of equal scores is left out, because it may
    be incomplete.
    """
    ordered = sorted(rows, key=itemgetter(1), reverse=True)
    scores = [row[1] for row in ordered]
    # Where groups of equal scores end. A ranking has hundreds of chunks, most of them in a group of their own.
    pairs = enumerate(pairwise(scores), 1)
    if least or (scores and scores[-1] < 0):
        ends = [at for at, (a, b) in pairs if a - b > score_tolerance * max(least, abs(b))]
    else:
        ends = [at for at, (above, score) in pairs if above - score > score_tolerance * score]
    if ordered and not cut:
        ends.append(len(ordered))
    start = 0
    for end in ends:
        if end - start > 1:
            ordered[start:end] = sorted(ordered[start:end], key=itemgetter(3))
        start = end
    return ordered[:start]


def drop_last_row_and_ties(ordered: list[Row]) -> list[Row]:
    """Return sorted rows without the last row and the rows tied with it.

    A row is a tuple whose second value is its score.
    """
    end = len(ordered) - 1
    while end > 0 and ordered[end - 1][1] - ordered[end][1] <= SCORE_TOLERANCE * abs(
        ordered[end][1]
    ):
        end -= 1
    return ordered[: max(0, end)]


class UserRequestChunkPlace(NamedTuple):
    """The place of a chunk of a request, or of the assistant's reasoning about a request.

    The place consists of the entry, the turn, and the chunk's ordinal in the entry.
    """

    entry_id: str
    turn: int
    ordinal: int


MIN_LEG_ENTRIES = 50
"""If the best chunks of a leg belong to fewer entries than this, the best chunks of other entries are added."""


def select_best_chunks_and_best_of_further_entries(
    ranked: Sequence[RankedChunk], limit: int
) -> list[RankedChunk]:
    """Return the first `limit` chunks of a ranking, then the best chunk of each further entry.

    Chunks of further entries are added until there are `MIN_LEG_ENTRIES` entries, or `limit` entries
    if `limit` is less. Without these chunks, a long conversation could be the only entry in an answer.
    """
    kept = list(ranked[:limit])
    owners = {row.owner for row in kept}
    for row in ranked[limit:]:
        if len(owners) >= min(limit, MIN_LEG_ENTRIES):
            break
        if row.owner not in owners:
            owners.add(row.owner)
            kept.append(row)
    return kept
