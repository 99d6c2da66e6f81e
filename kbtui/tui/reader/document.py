"""A document that consists of blocks, with methods to find positions in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kbtui.tui.reader.document_blocks import FoldHeadingBlock, TextBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kbtui.refs import Ref
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.navigation_target import NavigationTarget
    from kbtui.tui.reader.document_blocks import DocumentBlock, TextMeasure


BLOCKS_PER_CHUNK = 256
"""How many blocks form a chunk.

A chunk is so small that estimating all its blocks, once it scrolls into view, takes no time.
"""


class BlockHeightIndex:
    """The heights of `count` blocks in lines; each height is an estimate until the block is laid out.

    `height` estimates the height of one block. `chunks` has an estimate for each chunk of
    `BLOCKS_PER_CHUNK` blocks; if it is given, the blocks of a chunk are estimated only when the
    chunk is first used, otherwise all blocks are estimated at once.
    """

    def __init__(
        self,
        count: int = 0,
        height: Callable[[int], int] = lambda _: 0,
        chunks: Sequence[int] | None = None,
    ) -> None:
        self._count = count
        self._estimate_height = height
        number = -(-count // BLOCKS_PER_CHUNK)
        self._chunk_heights: list[list[int] | None] = [None] * number
        if chunks is None:
            self._chunk_heights = [self._measure_block_chunk(chunk) for chunk in range(number)]
            chunks = [sum(known or ()) for known in self._chunk_heights]
        self._chunk_totals = list(chunks)

    def _measure_block_chunk(self, chunk: int) -> list[int]:
        first = chunk * BLOCKS_PER_CHUNK
        return list(
            map(self._estimate_height, range(first, min(first + BLOCKS_PER_CHUNK, self._count)))
        )

    def _get_block_chunk(self, chunk: int) -> list[int]:
        """Return the heights of the blocks in a chunk; estimate them on first use."""
        known = self._chunk_heights[chunk]
        if known is None:
            known = self._chunk_heights[chunk] = self._measure_block_chunk(chunk)
            self._chunk_totals[chunk] = sum(known)
        return known

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return self._get_block_chunk(index // BLOCKS_PER_CHUNK)[index % BLOCKS_PER_CHUNK]

    def set_block_height(self, index: int, height: int) -> None:
        """Set the height of block `index`."""
        chunk, place = divmod(index, BLOCKS_PER_CHUNK)
        known = self._get_block_chunk(chunk)
        self._chunk_totals[chunk] += height - known[place]
        known[place] = height

    def count_lines_before_block(self, index: int) -> int:
        """Return the number of lines before block `index`."""
        chunk, place = divmod(index, BLOCKS_PER_CHUNK)
        inside = sum(self._get_block_chunk(chunk)[:place]) if place else 0
        return inside + sum(self._chunk_totals[:chunk])

    @property
    def total_lines(self) -> int:
        """The number of lines of all blocks."""
        return sum(self._chunk_totals)

    def find_block_at_line(self, line: int) -> tuple[int, int]:
        """Return the block that contains `line`, and the line within the block.

        For a line past the end, return the last line of the document.
        """
        totals = list(accumulate(self._chunk_totals))
        chunk = bisect_right(totals, max(0, line))
        left = max(0, line) - (totals[chunk - 1] if chunk else 0)
        while chunk < len(self._chunk_totals):
            # A chunk may have fewer lines than estimated.
            ends = list(accumulate(self._get_block_chunk(chunk)))
            if left < ends[-1]:
                place = bisect_right(ends, left)
                return chunk * BLOCKS_PER_CHUNK + place, left - (
                    ends[place] - self._get_block_chunk(chunk)[place]
                )
            left -= ends[-1]
            chunk += 1
        for chunk in range(len(self._chunk_totals) - 1, -1, -1):
            known = self._get_block_chunk(chunk)
            for place in range(len(known) - 1, -1, -1):
                if known[place]:
                    return chunk * BLOCKS_PER_CHUNK + place, known[place] - 1
        return 0, 0


MANY_BLOCKS = 4_000
"""The number of blocks above which a document estimates heights by chunk."""


@dataclass(eq=False)
class Document:
    """The content of the reader: a sequence of blocks with a title and badges.

    `key` identifies the document even after a reload: `topic/slug`, `jp-c…` or the name of a page. `view` is
    one of `views`. `ref` is the reference, None for a page such as the help that is not part of the workspace.
    `record` is the subject or conversation that the document was built from.
    """

    key: str
    title: str
    blocks: list[DocumentBlock]
    ref: str | None = None
    view: str = "read"
    views: tuple[str, ...] = ("read",)
    badges: Spans = field(default_factory=list)
    size: str = ""
    record: Any = None
    turns_total: int = 0
    lines_total: int = 0
    """The number of lines of the shown text; 0 if references cannot name its lines."""
    landmarks: dict[str, list[int]] = field(default_factory=dict)
    """Kind ("turn", "request", "error") -> ascending positions of blocks."""
    facts: list[tuple[str, Spans]] = field(default_factory=list)
    """Names and values of the details that the user can show above the document."""
    is_partial: bool = False
    """Whether the rest of the document is still loading."""
    is_missing: bool = False
    """Whether this page only says that the requested document does not exist."""
    fold_kinds: dict[str, str] = field(default_factory=dict, repr=False)
    is_compacted: bool = False
    """Whether the user and the model see different blocks (`DocumentBlock.view`)."""
    chunk_weights: list[dict[tuple[str, str], TextMeasure]] = field(
        default_factory=list, repr=False
    )
    """For each chunk of blocks: (kind of fold, view) -> amount of text."""
    _positions: dict[str, int] = field(default_factory=dict, repr=False)
    _fold_ends: dict[str, int] = field(default_factory=dict, repr=False)
    _has_links: bool = False

    def __post_init__(self) -> None:
        # Build the index here, because this runs in a thread; the first use is on the event loop.
        if self.blocks:
            self._index_blocks()

    def _index_blocks(self) -> None:
        heads: list[int] = []
        for number, block in enumerate(self.blocks):
            self._positions[block.key] = number
            if isinstance(block, FoldHeadingBlock):
                self.fold_kinds[block.key] = block.kind
            if block.fold is not None:
                self._fold_ends[block.fold] = number + 1
            self._has_links = self._has_links or block.link is not None
            self.is_compacted = self.is_compacted or block.view != ""
            if block.turn is not None and block.key == f"turn:{block.turn}":
                heads.append(number)
        self.landmarks["turn"] = heads
        if len(self.blocks) > MANY_BLOCKS:
            self._measure_block_chunks()

    def _measure_block_chunks(self) -> None:
        for start in range(0, len(self.blocks), BLOCKS_PER_CHUNK):
            chunk: dict[tuple[str, str], TextMeasure] = {}
            for block in self.blocks[start : start + BLOCKS_PER_CHUNK]:
                kind = self.fold_kinds.get(block.fold, "") if block.fold else ""
                lines, characters, newlines = block.measure_text()
                held = chunk.get((kind, block.view), (0, 0, 0))
                chunk[kind, block.view] = (
                    held[0] + lines,
                    held[1] + characters,
                    held[2] + newlines,
                )
            self.chunk_weights.append(chunk)

    def find_fold_end(self, fold: str) -> int:
        """Return the position of the block that follows the last block of a fold."""
        return self._fold_ends.get(fold, 0)

    @property
    def features(self) -> frozenset[str]:
        """The features that commands can need: "turns", "folds", "links", "views".

        A document with links also has the feature "folds", because one command unfolds blocks and opens links.
        """
        features = {
            "turns": self.turns_total > 0,
            "folds": bool(self.fold_kinds) or self._has_links,
            "links": self._has_links and not self.fold_kinds,
            "views": len(self.views) > 1,
        }
        return frozenset(name for name, has in features.items() if has)

    def find_block(self, key: str) -> int | None:
        """Return the position of the block with this key, or None."""
        return self._positions.get(key)

    def find_turn_block(self, turn: int, call: int | None = None) -> int | None:
        """Return the position of a tool call, else of the heading of its turn, else None."""
        if call is not None:
            position = self.find_block(f"call:{turn}.{call}")
            if position is not None:
                return position
        return self.find_block(f"turn:{turn}")

    def count_calls(self, turn: int) -> int:
        """Return the number of tool calls of a turn."""
        number = 0
        while self.find_block(f"call:{turn}.{number + 1}") is not None:
            number += 1
        return number

    def find_line_block(self, line: int) -> int:
        """Return the position of the block that shows source line `line`, or of the nearest block before it."""
        best = 0
        for number, block in enumerate(self.blocks):
            if isinstance(block, TextBlock) and 0 < block.first_line <= line:
                best = number
        return best

    def make_reference(self, position: int, source: int) -> str | None:
        """Return the most exact reference to source line `source` of the block at `position`."""
        if self.ref is None or not self.blocks:
            return self.ref
        block = self.blocks[position]
        if block.turn is not None:
            return f"{self.ref}:{block.turn}" + (f".{block.call}" if block.call else "")
        if (
            self.view in ("read", "source")
            and source
            and isinstance(block, TextBlock)
            and block.first_line
        ):
            return f"{self.ref}:{source}"
        return self.ref

    def find_matches(
        self, pattern: re.Pattern[str], model: bool = False
    ) -> Iterator[tuple[int, int]]:
        """For each match, yield the position of its block, and its number within the block.

        Search what the user sees, or what the model sees if `model` is true.
        """
        for number, block in enumerate(self.blocks):
            if block.view and (block.view == "model") != model:
                continue
            for count, _ in enumerate(pattern.finditer(block.get_searchable_text())):
                yield number, count


def compile_search_pattern(terms: list[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds any of `terms`, regardless of case and spacing; None if all are empty."""
    parts = [
        r"\s+".join(re.escape(word) for word in term.split()) for term in terms if term.strip()
    ]
    if not parts:
        return None
    return re.compile("|".join(sorted(set(parts), key=len, reverse=True)), re.IGNORECASE)


def count_lines(text: str) -> int:
    """Return the number of lines of a text; a line break at its end does not start another line."""
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def format_size(number: int, gap: str = "") -> str:
    """Format a number of characters or bytes as 640, 3.4k or 1.2M, with `gap` before the unit."""
    if number < 1000:
        return f"{number}{gap}"
    if number < 999_500:
        thousands = f"{number / 1000:.1f}" if number < 99_950 else f"{number / 1000:.0f}"
        return f"{thousands}{gap}k"
    return f"{number / 1_000_000:.1f}{gap}M"


def format_text_length(text: str) -> str:
    """Format the length of a text, such as "3.4k chars"."""
    return f"{format_size(len(text))} chars"


def format_count(number: int, noun: str) -> str:
    """Format a number with a noun: "1 turn", "2 turns"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_token_cost(number: int) -> str:
    """Format a number of characters and the estimated tokens, at four characters per token."""
    return f"{number:,} characters ≈ {round(number / 4):,} tokens"


def find_start_block(document: Document, place: NavigationTarget) -> tuple[int, int] | None:
    """Return the block at which to start reading, and a match in it; None means the top.

    The match is a number, -1 if the block contains none. For a turn or line that does not exist,
    return the block of the nearest one.
    """
    ref = place.ref
    if ref is None or not document.blocks:
        return None
    if ref.turn is not None:
        nearest = min(max(1, ref.turn), document.turns_total)
        first = document.find_turn_block(nearest, ref.call if nearest == ref.turn else None)
        if first is None:
            return None
        turn = _list_turn_blocks(document, first, nearest)
        span: Iterator[int] = (
            number for number in turn if ref.call in (None, document.blocks[number].call)
        )
    elif ref.lines is not None:
        first = document.find_line_block(ref.lines[0])
        span = iter(range(first, document.find_line_block(ref.lines[1]) + 1))
    elif place.text and not place.words:
        return _find_passage_block(document, place.text), -1
    else:
        first, span = 0, iter(range(len(document.blocks))) if place.words else iter(())
    pattern = compile_search_pattern(list(place.words))
    if pattern is None:
        return first, -1
    return _find_best_block(document, list(span), pattern, place.text) or (first, -1)


def describe_missing_place(document: Document, ref: Ref | None) -> str:
    """Return a message if the document lacks the turn, tool call or line in a reference, else ""."""
    if ref is None:
        return ""
    if ref.turn is not None:
        if not 1 <= ref.turn <= document.turns_total:
            total = format_count(document.turns_total, "turn")
            return f"no turn {ref.turn}: the conversation has {total}"
        if ref.call is not None and document.find_block(f"call:{ref.turn}.{ref.call}") is None:
            total = format_count(document.count_calls(ref.turn), "tool call")
            return f"no tool call {ref.call}: turn {ref.turn} has {total}"
    elif ref.lines is not None and not 1 <= ref.lines[0] <= document.lines_total:
        return describe_missing_line(document, ref.lines[0])
    return ""


def describe_missing_line(document: Document, line: int) -> str:
    """Return a message saying that the shown text has no line with this number."""
    # The output of `learn` has other line numbers than the subject.
    what = "subject" if document.view in ("read", "source") else "text"
    return f"no line {line}: the {what} has {format_count(document.lines_total, 'line')}"


def _list_turn_blocks(document: Document, first: int, turn: int) -> Iterator[int]:
    number = first
    while number < len(document.blocks) and document.blocks[number].turn == turn:
        yield number
        number += 1


def _find_best_block(
    document: Document, span: list[int], pattern: re.Pattern[str], passage: str
) -> tuple[int, int] | None:
    """Return the indices of the best block and of one match in it; None if no block contains a match.

    The best block contains the passage, or else the largest number of different matches.
    """
    probe = _compile_passage_start(passage)
    best: tuple[int, int, int] | None = None
    for number in span:
        block = document.blocks[number]
        text = block.get_searchable_text()
        found = {match[0].lower() for match in pattern.finditer(text)}
        if not found:
            continue
        near = probe.search(text) if probe and isinstance(block, TextBlock) else None
        score = len(found) + (1000 if near else 0)
        if best is None or score > best[0]:
            count = len(pattern.findall(text, 0, near.start())) if near else 0
            best = (score, number, count)
    return (best[1], best[2]) if best else None


def _find_passage_block(document: Document, passage: str) -> int:
    """Return the block that contains a line of the passage, trying the lines in order; else block 0."""
    for line in passage.split("\n"):
        probe = _compile_passage_start(line)
        if probe is None:
            continue
        for number, block in enumerate(document.blocks):
            if isinstance(block, TextBlock) and probe.search(block.get_searchable_text()):
                return number
    return 0


def _compile_passage_start(passage: str) -> re.Pattern[str] | None:
    """Return a pattern for the first eight words of a passage; None if it has fewer than three words."""
    words = [word for word in passage.split() if any(map(str.isalnum, word))][:8]
    return re.compile(r"\W+".join(map(re.escape, words))) if len(words) > 2 else None


def has_start_block(document: Document, place: NavigationTarget) -> bool:
    """Return whether a partly loaded document already contains the position to start at."""
    if place.mark is not None:
        return document.find_block(place.mark.key) is not None
    if place.ref is not None and place.ref.turn is not None:
        # The last turn may be incomplete.
        return place.ref.turn < document.turns_total
    return not place.words
