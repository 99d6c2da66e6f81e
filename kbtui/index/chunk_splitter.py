"""Splits texts into chunks at boundaries that depend on the content.

A chunk ends before a heading. Once a chunk is long enough, it also ends before a paragraph whose
checksum meets a condition. An edit therefore moves only nearby boundaries. The method is known as
content-defined chunking (Muthitacharoen et al., "A Low-bandwidth Network File System", 2001).

The model reads only the first 256 tokens of a text, so chunks must not be larger. Their size is
measured in characters, because a token has about four of them. In a language without spaces, a
character is at least one token, so it counts as three characters.
"""

from __future__ import annotations

import re
import zlib
from hashlib import sha256
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from kbtui.conversations.conversation_data_types import format_event_text
from kbtui.conversations.conversation_event_kinds import EVENT_KINDS
from kbtui.index.entry_and_chunk_data_types import Chunk
from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import format_json_value_on_one_line, strip_escape_sequences

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator

    from kbtui.conversations.conversation_data_types import Conversation, ConversationEvent
    from kbtui.knowledge.front_matter import FrontMatterAndBody

# Chunks of tool calls and results may be larger than other chunks, because they are not embedded.
MIN_CHUNK_SIZE, MAX_CHUNK_SIZE = 450, 1200
MAX_TOOL_CHUNK_SIZE = 2400
MAX_ARGUMENT_LENGTH, MAX_ARGUMENTS = 200, 20

_HEADING = re.compile(r"#{1,6}\s")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_WORD_END = re.compile(r"\s+|(?<=[。！？])")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
# Compiled on first use, because English texts do not need it.
_WIDE_CHARACTER = "[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0002ffff]"
_WIDE_CHARACTER_SIZE = 3


def count_weighted_characters(text: str) -> int:
    """Return a text's size in characters. A character of a script without spaces counts as three."""
    if text.isascii():
        return len(text)
    return len(text) + (_WIDE_CHARACTER_SIZE - 1) * len(re.findall(_WIDE_CHARACTER, text))


class TextPartWithLineNumbers(NamedTuple):
    """A part of a text with the numbers of its first and last line, counted from 1."""

    text: str
    first: int
    last: int


def split_text_into_chunks(
    text: str, max_size: int = MAX_CHUNK_SIZE
) -> list[TextPartWithLineNumbers]:
    """Split a text into chunks. Nothing is lost except white space.

    The size of a chunk, measured by `count_weighted_characters`, is at most `max_size`.
    """
    lines = list(map(str.rstrip, text.split("\n")))
    if "#" not in text and "```" not in text and "~~~" not in text and all(lines):
        # A single paragraph, like most messages, needs no splitting into blocks.
        text = "\n".join(lines)
        if count_weighted_characters(text) <= max_size:
            return [TextPartWithLineNumbers(text, 1, len(lines))]
    found: list[TextPartWithLineNumbers] = []
    held: list[TextPartWithLineNumbers] = []
    size = 0
    for block in _split_lines_into_blocks(lines, max_size):
        heading = _HEADING.match(block.text) is not None
        worth = count_weighted_characters(block.text)
        full = size + worth + 2 > max_size
        chosen = (
            size >= MIN_CHUNK_SIZE and zlib.crc32(block.text.encode("utf-8", "replace")) % 3 == 0
        )
        # A heading starts a new chunk, unless the current chunk contains only headings.
        opens = heading and any(not _HEADING.match(part.text) for part in held)
        if held and (full or chosen or opens):
            found.append(_join_blocks_into_text_part(held))
            held, size = [], 0
        held.append(block)
        size += worth + 2
    if held:
        found.append(_join_blocks_into_text_part(held))
    return found


def _join_blocks_into_text_part(blocks: list[TextPartWithLineNumbers]) -> TextPartWithLineNumbers:
    parts = [blocks[0].text]
    for before, block in pairwise(blocks):
        # Parts of one long line are joined by a space, blocks by the line breaks between them.
        parts += ["\n" * min(2, block.first - before.last) or " ", block.text]
    return TextPartWithLineNumbers("".join(parts), blocks[0].first, blocks[-1].last)


def _split_lines_into_blocks(lines: list[str], max_size: int) -> Iterator[TextPartWithLineNumbers]:
    """Yield paragraphs, headings and fenced blocks. A block larger than `max_size` is split."""
    start = 0
    fence: str | None = None
    for at, line in enumerate(lines):
        mark = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if fence is not None:
            if mark and mark[1].startswith(fence):
                fence = None
            continue
        is_heading = line[:1] == "#" and _HEADING.match(line) is not None
        if not line or is_heading or mark:
            yield from _split_large_block(lines[start:at], start + 1, max_size)
            start = at
        if not line or is_heading:
            yield from _split_large_block([line], at + 1, max_size)
            start = at + 1
        elif mark:
            fence = mark[1]
    yield from _split_large_block(lines[start:], start + 1, max_size)


def _split_large_block(
    lines: list[str], first: int, max_size: int
) -> Iterator[TextPartWithLineNumbers]:
    """Yield parts of a block that are no larger than `max_size`. `first` is the line number of `lines[0]`."""
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        return
    text = "\n".join(lines)
    if count_weighted_characters(text) <= max_size:
        yield TextPartWithLineNumbers(text, first, first + len(lines) - 1)
        return
    held: list[str] = []
    size, start = 0, first
    for number, line in enumerate(lines, first):
        worth = count_weighted_characters(line)
        if held and size + worth + 1 > max_size:
            yield TextPartWithLineNumbers("\n".join(held).rstrip(), start, start + len(held) - 1)
            held, size = [], 0
        if worth > max_size:
            for part in _split_long_line(line, max_size):
                yield TextPartWithLineNumbers(part, number, number)
            continue
        if not held:
            if not line:
                continue
            start = number
        held.append(line)
        size += worth + 1
    if held:
        yield TextPartWithLineNumbers("\n".join(held).rstrip(), start, start + len(held) - 1)


def _split_long_line(line: str, max_size: int) -> Iterator[str]:
    """Split a long line, if possible between sentences or words, and yield its parts."""
    at = 0
    while (
        count_weighted_characters(line[at : at + max_size]) > max_size or len(line) - at > max_size
    ):
        reach = at + max_size
        if (over := count_weighted_characters(line[at:reach])) > max_size:
            reach = at + max(1, max_size * max_size // over)
            while count_weighted_characters(line[at:reach]) > max_size:
                reach -= 1
        middle = (at + reach) // 2
        ends = [match.start() for match in _SENTENCE_END.finditer(line, middle, reach)]
        ends = ends or [match.start() for match in _WORD_END.finditer(line, middle, reach)]
        end = ends[-1] if ends and ends[-1] > at else reach
        if part := line[at:end].strip():
            yield part
        at = end
    if rest := line[at:].strip():
        yield rest


def make_chunk_id(entry: str, text: str, repeat: int) -> str:
    """Return a chunk id of 16 hex digits.

    `repeat` is the number of earlier chunks of the entry that have the same text.
    """
    parts = f"{entry}\0{text}\0{repeat}"
    return sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def make_chunk_ids(
    entry: str, chunks: Iterable[Chunk], seen: Counter[str] | None = None
) -> list[str]:
    """Return the ids of an entry's chunks.

    The id of a chunk depends on how many earlier chunks of the entry have the same text. If the
    entry has chunks before `chunks`, `seen` must say how often each of their texts occurs.
    """
    counts: dict[str, int] = {} if seen is None else seen
    ids = []
    for chunk in chunks:
        text = chunk.text
        repeat = counts.get(text, 0)
        counts[text] = repeat + 1
        ids.append(make_chunk_id(entry, text, repeat))
    return ids


def split_subject_into_chunks(text: FrontMatterAndBody) -> list[Chunk]:
    """Return the chunks of a subject's body, without ids and ordinals."""
    above = text.lines
    return [
        Chunk("", one.text, 0, (one.first + above, one.last + above))
        for one in split_text_into_chunks(text.body)
    ]


def split_conversation_into_chunks(
    conversation: Conversation, *, embed_tool_results: bool = False
) -> Iterator[Chunk]:
    """Yield the chunks of a conversation's turns, without ids and ordinals.

    Each chunk belongs to one event. Tool calls and their results are embedded only if
    `embed_tool_results` is true.
    """
    make_tuple = tuple.__new__
    called: ConversationEvent | None = None
    args: dict[str, str] | None = None
    for turn in conversation.turns:
        for event in turn.events:
            kind = EVENT_KINDS[event.kind]
            if not kind.is_indexed:
                continue
            embed = kind.is_embedded or (embed_tool_results and kind.role_group == "tool")
            max_size = MAX_CHUNK_SIZE if embed else MAX_TOOL_CHUNK_SIZE
            when = event.timestamp.timestamp() if event.timestamp else None
            request = event.request or event
            tool, call = event.name or request.name, event.call or request.call
            if request is not called:  # a call and its result have the same arguments
                called = request
                args = extract_short_tool_arguments(request) if request.arguments else None
            text = strip_escape_sequences(format_event_text(event))
            before = (0, None, turn.number, kind.role, tool, when, embed, 0, None, call, args)
            for piece in split_text_into_chunks(text, max_size):
                yield make_tuple(Chunk, ("", piece.text, *before))


def extract_short_tool_arguments(request: ConversationEvent) -> dict[str, str] | None:
    """Map the names of a tool call's short arguments to their values as text; None if there are none.

    The filter `arg:` finds these arguments.
    """
    short = (
        (key, text)
        for key, value in (request.arguments or {}).items()
        if len(text := format_json_value_on_one_line(value)) <= MAX_ARGUMENT_LENGTH
        and len(key) <= MAX_ARGUMENT_LENGTH
    )
    return dict(islice(short, MAX_ARGUMENTS)) or None
