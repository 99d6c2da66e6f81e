"""What of an entry is put at once: all of it, or of a long conversation a part.

A conversation that has grown is read, cut, hashed and written from its last turn on. A long
one that is new comes in parts of about half a megabyte, each found as soon as it is put, so that
nothing waits for all of it. Both give what reading it whole gives.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from kbtui.index.chunking import number_chunks, spoken
from kbtui.index.entries import (
    conversation_entry,
    read_conversation_entry,
    read_subject_entry,
    with_vector_hashes,
)
from kbtui.index.identity import chunk_id
from kbtui.index.putting import AROUND
from kbtui.index.records import stat_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.conversations.parts import Mark, Part
    from kbtui.conversations.records import Conversation, ConversationInfo
    from kbtui.index.catalog import Catalog
    from kbtui.index.records import Chunk, Entry
    from kbtui.knowledge.records import Subject

PART = 512 << 10
"""Bytes: about so much of a long conversation is put at once."""
WHOLE_MOST = 2 << 20
"""Bytes: a shorter one comes in one part."""
UNFINISHED = " …"
"""At the end of the signature of an entry of which parts are still to come."""


@dataclass
class Piece:
    """An entry's chunks from ordinal `start` on; `before` are some that stand before them.

    `read` are the turns that they were made from, and `after` the number of the turn before
    those. `mark` says where to go on; `last` that nothing of the entry is still to come.
    """

    entry: Entry
    chunks: list[Chunk]
    before: list[Chunk] = field(default_factory=list)
    start: int = 0
    read: Conversation | None = None
    after: int = 0
    mark: str | None = None
    last: bool = True


def subject_piece(subject: Subject) -> Piece:
    """A subject, whole."""
    return Piece(*read_subject_entry(subject))


@dataclass(frozen=True)
class _Held:
    """What the catalog has of a conversation up to `mark`: so many chunks, the latest of a time."""

    mark: Mark
    chunks: int
    latest: float


def conversation_pieces(
    catalog: Catalog, info: ConversationInfo, *, embed_tool_results: bool = False
) -> Iterator[Piece]:
    """A conversation, or what of it is not in the catalog. Each piece must be put before the next."""
    from kbtui.conversations.parts import comes_in_parts, read_part

    if not comes_in_parts(info):
        yield _whole(info, embed_tool_results)
        return
    held = _held(catalog, conversation_entry(info))
    most = PART if info.size > WHOLE_MOST else WHOLE_MOST
    while True:
        entry = conversation_entry(info)
        with suppress(OSError):
            entry.stat = stat_text(info.events_path.stat()) if info.events_path else ""
        part = read_part(info, held.mark if held else None, most)
        if part is None:
            yield _whole(info, embed_tool_results)
            return
        piece, held = _piece(catalog, entry, part, held if part.began else None, embed_tool_results)
        yield piece
        if piece.last:
            return
        if held is None:
            # There is no mark to go on from: all at once then.
            most = info.size


def _whole(info: ConversationInfo, embed_tool_results: bool) -> Piece:
    entry, chunks, read = read_conversation_entry(info, embed_tool_results=embed_tool_results)
    return Piece(entry, chunks, read=read)


def _held(catalog: Catalog, entry: Entry) -> _Held | None:
    """What the catalog has, as long as its chunks would be the same today."""
    from kbtui.conversations.parts import Mark

    kept, text = catalog.entry(entry.id), catalog.mark(entry.id)
    if kept is None or text is None:
        return None
    if (kept.title, kept.archived) != (entry.title, entry.archived):
        return None
    facts, chunks, latest = json.loads(text)
    return _Held(Mark(**facts | {"waiting": tuple(facts["waiting"])}), chunks, latest)


def _piece(
    catalog: Catalog, entry: Entry, part: Part, held: _Held | None, embed_tool_results: bool
) -> tuple[Piece, _Held | None]:
    count = held.chunks if held else 0
    around = catalog.chunks_between(entry.id, max(0, count - 2 * AROUND), count) if count else []
    fresh = list(spoken(part.conversation, embed_tool_results))
    seen = _repeats(catalog, entry.id, {chunk.text for chunk in fresh}, count)
    number_chunks(entry.id, fresh, first=count, seen=seen)
    chunks = [*around, *fresh]
    given = min(AROUND, count)
    cut = len(around) - given
    with_vector_hashes(entry, chunks, first=cut)
    latest = held.latest if held else 0.0
    if chunks and chunks[-1].timestamp:
        entry.changed = max(latest, *(chunk.timestamp or 0.0 for chunk in chunks))
    if part.conversation.problems and not entry.error:
        entry.error = part.conversation.problems[0]
    if not part.last:
        # A state that no file has: it is taken up again, and its hits are not the last word.
        entry.signature, entry.stat = f"{entry.signature}{UNFINISHED}", ""
    now = _to_hold(part, held, fresh)
    piece = Piece(
        entry,
        chunks[cut:],
        chunks[:cut],
        count - given,
        part.conversation,
        part.began.turns if part.began else 0,
        json.dumps((asdict(now.mark), now.chunks, now.latest)) if now else None,
        part.last,
    )
    return piece, now


def _to_hold(part: Part, held: _Held | None, fresh: list[Chunk]) -> _Held | None:
    """What the catalog will have up to the part's mark.

    Chunks without a time have the entry's in the index, which moves: then nothing is held.
    """
    if part.mark is None:
        return None
    settled = [chunk for chunk in fresh if (chunk.turn or 0) <= part.mark.turns]
    if not all(chunk.timestamp for chunk in settled):
        return None
    times = [chunk.timestamp or 0.0 for chunk in settled]
    return _Held(
        part.mark,
        (held.chunks if held else 0) + len(settled),
        max([held.latest if held else 0.0, *times]),
    )


def _repeats(catalog: Catalog, entry_id: str, texts: Iterable[str], count: int) -> Counter[str]:
    """How often each text stands among the entry's first `count` chunks.

    Found by their ids, which count repeats from 0: by doubling, then by halving.
    """
    seen: Counter[str] = Counter()
    if not count:
        return seen

    def standing(wanted: dict[str, int]) -> set[str]:
        ids = {chunk_id(entry_id, text, repeat): text for text, repeat in wanted.items()}
        return {ids[id_] for id_ in catalog.standing_before(list(ids), count)}

    low = dict.fromkeys(standing(dict.fromkeys(texts, 0)), 0)
    high: dict[str, int] = {}
    reach, growing = 1, set(low)
    while growing:
        found = standing(dict.fromkeys(growing, reach))
        high |= dict.fromkeys(growing - found, reach)
        low |= dict.fromkeys(found, reach)
        growing, reach = found, reach * 2
    while open_ := {
        text: (low[text] + high[text]) // 2 for text in low if high[text] - low[text] > 1
    }:
        found = standing(open_)
        for text, middle in open_.items():
            (low if text in found else high)[text] = middle
    seen.update(high)
    return seen
