"""The outline of a document: the turns of a conversation, the changes of a diff, or the headings of a text."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from kbtui.conversations.models import Conversation, add_up_usage
from kbtui.text import sanitize_to_one_line
from kbtui.tui.framework.styled_text import join_span_texts
from kbtui.tui.reader.reader_blocks import HeadingBlock, MarkdownBlock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from kbtui.conversations.models import ConversationUsage, Turn
    from kbtui.tui.reader.reader_document import ReaderDocument

MAX_WORDS_CHARACTERS = 200
"""The maximum number of characters of a request or heading that the outline shows."""
MAX_SEARCHED_CHARACTERS = 4_000
"""The maximum number of characters of a request that the filter of the outline searches."""


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """The facts about a turn that the outline shows.

    `seconds` is the time from the start of the turn to its last event; None if the agent stores no
    times. `tokens` is None if the agent does not count them. `tools` has the name of each called
    tool once.
    """

    number: int
    started_at: datetime | None
    seconds: float | None
    calls: int
    failed: int
    tools: tuple[str, ...]
    tokens: int | None
    is_rewound: bool


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A part of a document: the key of its first block, and the words that describe it.

    `line` is a line of the source text inside the block, counted from 1; 0 means the start of the block.
    `depth` is the level of a heading, counted from 0. `searched` is the text that the filter searches.
    """

    block: str
    words: str
    line: int = 0
    depth: int = 0
    turn: TurnFacts | None = None
    searched: str = field(default="", repr=False)

    @property
    def key(self) -> str:
        """The key of the entry, which a reload does not change."""
        return f"{self.block}:{self.line}"


def make_document_outline(document: ReaderDocument) -> list[OutlineEntry]:
    """Return the entries of a document's outline, from top to bottom.

    The function reads the whole document, so call it in a thread.
    """
    if isinstance(document.record, Conversation) and document.view == "read":
        return [_make_turn_entry(turn) for turn in document.record.turns]
    if changes := document.block_indices_by_kind.get("change"):
        blocks = [document.blocks[index] for index in changes]
        return [
            _make_heading_entry(block.key, block.get_searchable_text(), 0, 0) for block in blocks
        ]
    return list(_iterate_headings(document))


def find_outline_entry_at(
    document: ReaderDocument, entries: list[OutlineEntry], block: int, line: int
) -> int | None:
    """Return the index of the entry that contains a position, or None if the position is before all entries.

    The position is the block at index `block`, at the source line `line`.
    """
    if entries and entries[0].turn is not None:
        turn = document.blocks[block].turn
        return None if turn is None else min(turn, len(entries)) - 1
    found = None
    for number, entry in enumerate(entries):
        index = document.find_block_index(entry.block)
        if index is None or index > block or (index == block and entry.line > line):
            break
        found = number
    return found


def _make_turn_entry(turn: Turn) -> OutlineEntry:
    from kbtui.tui.reader.markdown_layout import strip_markdown_marks

    calls = [event for event in turn.events if event.kind == "tool_call_request"]
    failed = sum(bool(call.result and call.result.is_error) for call in calls)
    tools = tuple(dict.fromkeys(call.name or "a tool" for call in calls))
    usage = add_up_usage(turn.usage.values())
    times = [event.timestamp for event in turn.events[-3:] if event.timestamp is not None]
    seconds = None
    if times and turn.started_at is not None:
        seconds = max(0.0, (max(times) - turn.started_at).total_seconds())
    requests = (event.text for event in turn.events if event.kind == "chat_request")
    request = next(requests, "") or next((event.text for event in turn.events), "")
    facts = TurnFacts(
        turn.number,
        turn.started_at,
        seconds,
        len(calls),
        failed,
        tools,
        _count_tokens(usage) if usage else None,
        turn.is_rewound,
    )
    words = strip_markdown_marks(request[:MAX_WORDS_CHARACTERS], [])[0]
    searched = [request[:MAX_SEARCHED_CHARACTERS], *tools, *(["failed"] if failed else [])]
    return OutlineEntry(
        f"turn:{turn.number}",
        sanitize_to_one_line(words),
        turn=facts,
        searched=" ".join(searched).casefold(),
    )


def _count_tokens(usage: ConversationUsage) -> int | None:
    """Return the total number of tokens; if the agent does not state a total, add up the numbers that it states."""
    if usage.total_tokens is not None:
        return usage.total_tokens
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _iterate_headings(document: ReaderDocument) -> Iterator[OutlineEntry]:
    from kbtui.tui.reader.markdown_layout import parse_markdown

    for block in document.blocks:
        if isinstance(block, HeadingBlock):
            yield _make_heading_entry(block.key, join_span_texts(block.left), 0, 0)
        elif isinstance(block, MarkdownBlock) and "#" in block.get_searchable_text():
            tokens = parse_markdown(block.get_searchable_text())
            for token, inside in pairwise(tokens):
                if token.type == "heading_open" and token.level == 0 and token.map:
                    line, depth = (block.first_line or 1) + token.map[0], int(token.tag[1]) - 1
                    yield _make_heading_entry(block.key, inside.content, line, depth)


def _make_heading_entry(block: str, text: str, line: int, depth: int) -> OutlineEntry:
    words = sanitize_to_one_line(text.strip()[:MAX_WORDS_CHARACTERS])
    return OutlineEntry(block, words, line, depth, searched=words.casefold())
