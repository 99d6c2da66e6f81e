"""Reads subjects and conversations, and converts them to entries and chunks for the index."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.file_reading_and_writing import format_inode_size_and_mtime, get_inode_size_and_mtime
from kbtui.index.chunk_splitter import (
    make_chunk_ids,
    split_conversation_into_chunks,
    split_subject_into_chunks,
)
from kbtui.index.entry_and_chunk_data_types import (
    CatalogEntry,
    Chunk,
    make_subject_id,
)
from kbtui.knowledge.front_matter import split_front_matter

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kbtui.conversations.conversation_data_types import (
        Conversation,
        ConversationInfo,
        ConversationSegment,
        ParsingResumePoint,
    )
    from kbtui.conversations.formats.conversation_format import ConversationFormat
    from kbtui.index.catalog_database import CatalogDatabase
    from kbtui.knowledge.front_matter import FrontMatterAndBody
    from kbtui.knowledge.knowledge_data_types import Subject


SUBJECT_BYTES_MAX = 20_000_000
"""The text of a subject with more bytes than this is not indexed, but the subject is still listed."""


@dataclass
class IndexableEntryOrPart:
    """An entry, or a part of an entry, that is ready to be written to the index.

    * `first_ordinal` is the position in the entry at which `chunks` begin.
    * `conversation` contains the turns of this part, which follow turn number `after_turn`. It is None
      for a subject. For a conversation, it becomes None when the citations and the usage have been extracted.
    * The first `after_call` calls in the first of these turns belong to earlier parts.
    * `mark` says where reading resumes after this part.
    * `citations` and `usage` are rows of the catalog's tables with these names.
    """

    entry: CatalogEntry
    chunks: list[Chunk]
    first_ordinal: int = 0
    conversation: Conversation | None = None
    after_turn: int = 0
    after_call: int = 0
    mark: str | None = None
    is_last: bool = True
    citations: list[tuple[object, ...]] = field(default_factory=list)
    usage: list[tuple[object, ...]] = field(default_factory=list)


def make_subject_change_signature(subject: Subject) -> str:
    """Return a string that changes whenever a subject must be indexed again.

    It includes the inode, because a file that replaces another may have the same size and time.
    """
    # The format `d` takes longer than `int`, which matters for thousands of subjects.
    return (
        f"{subject.relative}:{subject.inode}:{subject.size}:{subject.mtime_ns}"
        f":{int(subject.hidden)}{int(subject.shadowed)}"
    )


def read_subject_entry(subject: Subject) -> IndexableEntryOrPart:
    """Read a subject, and return its entry and chunks.

    If the subject cannot be read, the entry has an `error`.
    """
    entry = CatalogEntry(
        id=make_subject_id(subject.topic, subject.slug),
        kind="subject",
        title=subject.slug.rpartition("/")[2],
        signature=make_subject_change_signature(subject),
        path=subject.file,
        type="note",
        topic=subject.topic,
        slug=subject.slug,
        created=subject.mtime_ns / 1e9,
        changed=subject.mtime_ns / 1e9,
        size=subject.size,
        hidden=subject.hidden,
    )
    try:
        status = os.stat(subject.file)  # noqa: PTH116  (thousands)
        entry = entry._replace(stat=format_inode_size_and_mtime(get_inode_size_and_mtime(status)))
        if subject.size > SUBJECT_BYTES_MAX:
            raise KbtuiError(f"not indexed: larger than {SUBJECT_BYTES_MAX // 1_000_000} MB")
        return _read_subject_entry_or_raise(subject, entry)
    except Exception as error:
        return IndexableEntryOrPart(entry._replace(error=describe_indexing_error(error)), [])


def _read_subject_entry_or_raise(subject: Subject, entry: CatalogEntry) -> IndexableEntryOrPart:
    """Read the text of a subject, and return its entry and chunks; may raise any error."""
    from kbtui.citations.cited_text_comparison import ComparableSubjectText
    from kbtui.knowledge.subject_files import read_subject_text

    whole = read_subject_text(subject)
    text = split_front_matter(whole)
    digests = ComparableSubjectText(whole, subject.relative).digests
    entry = _add_front_matter_and_digests(entry, text, digests)
    return IndexableEntryOrPart(entry, complete_chunks(entry, split_subject_into_chunks(text)))


def describe_indexing_error(error: Exception) -> str:
    """Return the reason why an entry cannot be indexed, as a phrase for the user."""
    if isinstance(error, KbtuiError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"not indexed: kbtui cannot read it ({type(error).__name__}: {error})"


def _add_front_matter_and_digests(
    entry: CatalogEntry, text: FrontMatterAndBody, digests: str
) -> CatalogEntry:
    """Return a subject's entry, with its digests filled in.

    The fields derived from the subject's title and front matter are also filled in.
    """
    kind, tags, url = (text.facts.get(key) for key in ("type", "tags", "source_url"))
    if isinstance(tags, list):
        entry = entry._replace(
            tags=[str(tag) for tag in tags if isinstance(tag, str | int | float)]
        )
    elif isinstance(tags, str):
        entry = entry._replace(tags=tags.replace(",", " ").replace(";", " ").split())
    created = _parse_front_matter_date(text.facts.get("created"))
    return entry._replace(
        title=text.title or entry.title,
        type=(kind.strip() if isinstance(kind, str) else "") or entry.type,
        source_url=url if isinstance(url, str) else entry.source_url,
        created=entry.created if created is None else created,
        digests=digests,
    )


def _parse_front_matter_date(value: object) -> float | None:
    """Convert a date from front matter to Unix seconds; the default time zone is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return None


def _make_conversation_entry_from_metadata(info: ConversationInfo) -> CatalogEntry:
    """Return the entry of a conversation, with the fields that are known without reading its events."""
    entry = CatalogEntry(
        id=info.id,
        kind="conversation",
        title=info.name,
        signature=info.signature,
        path=str(info.events_path or info.directory),
        type="conversation",
        conversation=info.id,
        created=info.created_at.timestamp(),
        changed=(info.updated_at or info.created_at).timestamp(),
        size=info.size,
        archived=info.archived,
        error=info.problem,
        agent=info.agent,
        parent=info.parent,
    )
    if info.events_path:
        with suppress(OSError):
            return entry._replace(
                stat=format_inode_size_and_mtime(get_inode_size_and_mtime(info.events_path.stat()))
            )
    return entry


NEIGHBOURS, NEIGHBOUR_CHARACTERS = 2, 500
"""The limits on a chunk's neighbours, whose texts the chunk's vector also represents.

On each side, there are up to `NEIGHBOURS` of them, with at most `NEIGHBOUR_CHARACTERS` characters together.
"""


def find_neighbours_embedded_with_chunk(chunks: list[Chunk], position: int) -> list[Chunk]:
    """Return the neighbours whose texts are embedded together with the chunk at `position`."""
    found = []
    for step in (-1, 1):
        room = NEIGHBOUR_CHARACTERS
        for at in range(position + step, position + step * (NEIGHBOURS + 1), step):
            if not 0 <= at < len(chunks):
                break
            neighbour = chunks[at]
            if not neighbour.embed:
                continue
            if len(neighbour.text) > room:
                break
            room -= len(neighbour.text)
            found.append(neighbour)
    return found


def complete_chunks(
    entry: CatalogEntry,
    chunks: list[Chunk],
    *,
    indexed: Sequence[Chunk] = (),
    first: int = 0,
    seen: Counter[str] | None = None,
) -> list[Chunk]:
    """Fill in the ids, ordinals (positions in the entry) and vector hashes of an entry's new `chunks`.

    If the entry already has chunks, `indexed` are the last of them, and `seen` says how often each text
    of `chunks` occurs in all of them. The result begins with `indexed[first:]`, whose vector hashes are
    computed again because they have new neighbours; then come the new chunks. A chunk that is not to be
    embedded has no vector hash.
    """
    common = f"{entry.title}\0{entry.kind}\0{entry.topic}\0{entry.type}\0{entry.hidden}\0{entry.archived}"
    ids = [chunk.id for chunk in indexed]
    ids += make_chunk_ids(entry.id, chunks, seen)
    ordinal = indexed[first].ordinal if first < len(indexed) else 0
    make_tuple = tuple.__new__
    completed = []
    for position, chunk in enumerate(chain(indexed[first:], chunks), first):
        digest = None
        if chunk.embed:
            # Hash the ids instead of the texts from which they are computed. Some of these chunks may be
            # too long to be embedded as neighbours. If only such a chunk changes, the hash changes, too,
            # but the vector is taken from the cache.
            around = " ".join(ids[max(0, position - NEIGHBOURS) : position + NEIGHBOURS + 1])
            made = f"{common}\0{around}\0{chunk.role}\0{chunk.timestamp}"
            digest = blake2b(made.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        # `_replace` takes eight times as long, and calling `Chunk` a third longer.
        rest = chunk[_HASH_POSITION + 1 :]
        fields = (ids[position], chunk[1], ordinal, *chunk[3:_HASH_POSITION], digest, *rest)
        completed.append(make_tuple(Chunk, fields))
        ordinal += 1
    return completed


_HASH_POSITION = Chunk._fields.index("vector_hash")

BATCH_BYTES = 512 << 10
"""A long conversation is indexed in parts of about this many bytes."""
WHOLE_BYTES_MAX = 2 << 20
"""A conversation of at most this many bytes is indexed as a whole, not in parts."""
UNFINISHED_SUFFIX = " …"
"""Until all parts of a conversation are indexed, the `signature` of its entry ends with this suffix."""


@dataclass(frozen=True)
class _ConversationIndexingProgress:
    """The part of a conversation that is indexed already.

    * `mark` is the position at which reading resumes, or None if reading must start again.
    * `chunks` is the number of chunks in this part.
    * `latest` is the time of the latest chunk.
    * `rewound` contains the numbers of the rewound turns.
    """

    mark: ParsingResumePoint | None = None
    chunks: int = 0
    latest: float = 0.0
    rewound: tuple[int, ...] = ()


def read_unindexed_conversation_parts(
    catalog: CatalogDatabase, info: ConversationInfo, *, embed_tool_results: bool = False
) -> Iterator[IndexableEntryOrPart]:
    """Yield the parts of a conversation that are not indexed yet.

    The caller must write each part before it requests the next one. Damaged events are left out, and
    the `error` of the entry names the first problem. If the conversation cannot be read at all, a part
    without chunks is yielded, so that the entry has no chunks.
    """
    from kbtui.conversations.conversation_repository import get_conversation_format

    form = get_conversation_format(info)
    has_segments = form.should_load_conversation_in_segments(info)
    known = _find_conversation_indexing_progress(catalog, info) if has_segments else None
    known = known or _ConversationIndexingProgress()
    max_bytes = BATCH_BYTES if info.size > WHOLE_BYTES_MAX else WHOLE_BYTES_MAX
    split = partial(split_conversation_into_chunks, embed_tool_results=embed_tool_results)
    while True:
        entry = _make_conversation_entry_from_metadata(info)
        try:
            segment = _load_conversation_segment(
                form, info, known.mark, max_bytes if has_segments else None
            )
            chunks = list(split(segment.conversation))
            settled = _count_chunks_before_resume_point(segment, chunks, split)
        except Exception as error:
            # A format from another package may raise any error; the other entries must still be
            # indexed.
            yield IndexableEntryOrPart(entry._replace(error=describe_indexing_error(error)), [])
            return
        if segment.start is None:
            known = _ConversationIndexingProgress()
        entry_part, known = _make_conversation_entry_part(
            catalog, entry, segment, known, chunks, settled
        )
        yield entry_part
        if segment.is_last:
            return
        if known.mark is None:
            # Without a mark, reading cannot resume, so read the rest at once.
            max_bytes = info.size


def _load_conversation_segment(
    form: ConversationFormat,
    info: ConversationInfo,
    mark: ParsingResumePoint | None,
    size: int | None,
) -> ConversationSegment:
    """Load about `size` bytes of a conversation, from `mark` on; may raise any error.

    If `size` is None, or the conversation cannot be loaded in segments, load the whole conversation.
    """
    from kbtui.conversations.conversation_data_types import ConversationSegment

    segment = form.load_conversation_segment(info, mark, size) if size is not None else None
    if segment is None:
        conversation = form.load_conversation(info)
        segment = ConversationSegment(conversation, start=None, resume_point=None, is_last=True)
    return segment


def _count_chunks_before_resume_point(
    segment: ConversationSegment,
    chunks: list[Chunk],
    split: Callable[[Conversation], Iterable[Chunk]],
) -> int:
    """Count the chunks of a segment that come before its mark, at which the next segment starts."""
    mark = segment.resume_point
    if mark is None:
        return 0
    if mark.open_turn is None:
        return sum((chunk.turn or 0) <= mark.turns for chunk in chunks)
    later = [
        replace(turn, events=[event for event in turn.events if event.index >= mark.elements])
        for turn in segment.conversation.turns
        if turn.number > mark.turns
    ]
    return len(chunks) - sum(1 for _ in split(replace(segment.conversation, turns=later)))


def _find_conversation_indexing_progress(
    catalog: CatalogDatabase, info: ConversationInfo
) -> _ConversationIndexingProgress | None:
    """Return the indexed part of a conversation; None if the whole conversation must be indexed again."""
    from kbtui.conversations.conversation_data_types import ParsingResumePoint

    kept, text = catalog.get_entry(info.id), catalog.get_reading_resume_point(info.id)
    if not kept or not text or (kept.title, kept.archived) != (info.name, info.archived):
        return None
    mark, chunks, latest = json.loads(text)
    mark["waiting"] = tuple(mark["waiting"])
    point = ParsingResumePoint(**mark)
    rewound = tuple(turn for turn in kept.rewound if turn <= point.turns)
    return _ConversationIndexingProgress(point, chunks, latest, rewound)


def _make_conversation_entry_part(
    catalog: CatalogDatabase,
    entry: CatalogEntry,
    segment: ConversationSegment,
    known: _ConversationIndexingProgress,
    new_chunks: list[Chunk],
    settled_count: int,
) -> tuple[IndexableEntryOrPart, _ConversationIndexingProgress]:
    """Return the part to write, and the indexing progress after this part is written.

    `known` describes what is indexed now. `new_chunks` are the chunks of `segment`, still without ids.
    The first `settled_count` of them are final; the rest are read again with the next segment. The
    part to write also contains the last indexed chunks, because their neighbours change.
    """
    count = known.chunks
    rewritten = min(NEIGHBOURS, count)
    around: list[Chunk] = []
    seen = None
    if count:
        first = max(0, count - rewritten - NEIGHBOURS)
        around = catalog.list_entry_chunks(entry.id, first, count)
        texts = {chunk.text for chunk in new_chunks}
        seen = catalog.count_repeats_of_chunk_texts(texts, entry.id, count)
    first = len(around) - rewritten
    chunks = complete_chunks(entry, new_chunks, indexed=around, first=first, seen=seen)
    if chunks and chunks[-1].timestamp:
        changed = max(known.latest, *(chunk.timestamp or 0.0 for chunk in chunks))
        entry = entry._replace(changed=changed)
    rewound = tuple(turn.number for turn in segment.conversation.turns if turn.is_rewound)
    entry = entry._replace(rewound=(*known.rewound, *rewound))
    if segment.conversation.problems and not entry.error:
        entry = entry._replace(error=segment.conversation.problems[0])
    if not segment.is_last:
        # No file has this signature, so the next refresh continues here. Until then, each hit of the
        # entry is compared with the file.
        entry = entry._replace(signature=f"{entry.signature}{UNFINISHED_SUFFIX}", stat="")
    now = _ConversationIndexingProgress()
    if segment.resume_point is not None:
        times = [chunk.timestamp or 0.0 for chunk in new_chunks[:settled_count]]
        # A chunk without a time has the time of its entry, which changes when the entry grows. Such
        # chunks must be written again, so reading cannot resume after them.
        if all(times):
            latest = max([known.latest, *times])
            settled_turns = tuple(
                turn for turn in entry.rewound if turn <= segment.resume_point.turns
            )
            now = _ConversationIndexingProgress(
                segment.resume_point, known.chunks + len(times), latest, settled_turns
            )
    entry_part = IndexableEntryOrPart(
        entry,
        chunks,
        count - rewritten,
        segment.conversation,
        segment.start.turns if segment.start else 0,
        segment.start.open_turn["calls"] if segment.start and segment.start.open_turn else 0,
        json.dumps((now.mark._asdict(), now.chunks, now.latest)) if now.mark else None,
        segment.is_last,
    )
    return entry_part, now
