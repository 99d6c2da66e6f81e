"""A document: blocks in order, and the ways to find a place in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.tui.reader.height_index import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block, Weight


MANY_BLOCKS = 4_000
"""Of a document with more blocks, heights are estimated by the chunk."""


@dataclass(eq=False)
class Document:
    """Something to read.

    `key` is the same for the same thing after a reload (`topic/slug`, `jp-c…`,
    `prompt`); `view` is which of the ways to look at it this is. `badges` stand beside
    the title. `ref` is its reference, None for pages of our own. `subject` is the
    record that it was made from.
    """

    key: str
    title: str
    blocks: list[Block]
    ref: str | None = None
    view: str = "read"
    views: tuple[str, ...] = ("read",)
    badges: Spans = field(default_factory=list)
    size: str = ""
    record: Any = None
    turns_total: int = 0
    landmarks: dict[str, list[int]] = field(default_factory=dict)
    """Positions to go to by kind, ascending: "turn", "request", "error"."""
    facts: list[tuple[str, Spans]] = field(default_factory=list)
    """What there is to know of it, names and values."""
    partial: bool = False
    """Whether more of it is still being read."""
    fold_kinds: dict[str, str] = field(default_factory=dict, repr=False)
    compacted: bool = False
    """Whether the model sees it otherwise (`Block.view`)."""
    weights: list[dict[tuple[str, str], Weight]] = field(default_factory=list, repr=False)
    """For each chunk of blocks, how much text it has by kind of fold and by view."""
    _index: dict[str, int] = field(default_factory=dict, repr=False)
    _fold_ends: dict[str, int] = field(default_factory=dict, repr=False)
    _links: bool = False

    def __post_init__(self) -> None:
        # All at once and now: documents are made in threads, and asked on the event loop.
        if self.blocks:
            self._look_through()

    def _look_through(self) -> None:
        from kbtui.tui.reader.blocks import FoldBlock

        heads: list[int] = []
        for number, block in enumerate(self.blocks):
            self._index[block.key] = number
            if isinstance(block, FoldBlock):
                self.fold_kinds[block.key] = block.kind
            if block.fold is not None:
                self._fold_ends[block.fold] = number + 1
            self._links = self._links or block.link is not None
            self.compacted = self.compacted or block.view != ""
            if block.turn is not None and block.key == f"turn:{block.turn}":
                heads.append(number)
        self.landmarks["turn"] = heads
        if len(self.blocks) > MANY_BLOCKS:
            self._weigh()

    def _weigh(self) -> None:
        for start in range(0, len(self.blocks), CHUNK):
            chunk: dict[tuple[str, str], Weight] = {}
            for block in self.blocks[start : start + CHUNK]:
                kind = self.fold_kinds.get(block.fold, "") if block.fold else ""
                lines, characters, newlines = block.weight()
                held = chunk.get((kind, block.view), (0, 0, 0))
                chunk[kind, block.view] = (
                    held[0] + lines,
                    held[1] + characters,
                    held[2] + newlines,
                )
            self.weights.append(chunk)

    def fold_end(self, fold: str) -> int:
        """The position after the last block of a fold."""
        return self._fold_ends.get(fold, 0)

    @property
    def offers(self) -> frozenset[str]:
        """What commands can work with: "turns", "folds" (or, where it has none, "links"), "views"."""
        offers = {
            "turns": self.turns_total > 0,
            "folds": bool(self.fold_kinds) or self._links,
            "links": self._links and not self.fold_kinds,
            "views": len(self.views) > 1,
        }
        return frozenset(name for name, has in offers.items() if has)

    def index_of(self, key: str) -> int | None:
        """The position of the block with `key`."""
        return self._index.get(key)

    def block_of_turn(self, turn: int, call: int | None = None) -> int | None:
        """The block where turn `turn` begins, or its tool call `call`."""
        if call is not None:
            position = self.index_of(f"call:{turn}.{call}")
            if position is not None:
                return position
        return self.index_of(f"turn:{turn}")

    def block_of_line(self, line: int) -> int:
        """The block that shows source line `line`, else the nearest one before it."""
        from kbtui.tui.reader.blocks import TextBlock

        best = 0
        for number, block in enumerate(self.blocks):
            if isinstance(block, TextBlock) and 0 < block.first_line <= line:
                best = number
        return best

    def ref_at(self, position: int, source: int) -> str | None:
        """The most exact reference of block `position` at source line `source`."""
        from kbtui.tui.reader.blocks import TextBlock

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

    def search(self, pattern: re.Pattern[str], model: bool = False) -> Iterator[tuple[int, int]]:
        """Every match: its block, and which of the block's matches it is.

        `model` looks at what the model sees.
        """
        for number, block in enumerate(self.blocks):
            if block.view and (block.view == "model") != model:
                continue
            for count, _ in enumerate(pattern.finditer(block.search_text())):
                yield number, count


def finder(terms: list[str]) -> re.Pattern[str] | None:
    """A pattern for any of `terms`, whatever the case; a space in them is any white space."""
    parts = [
        r"\s+".join(re.escape(word) for word in term.split()) for term in terms if term.strip()
    ]
    if not parts:
        return None
    return re.compile("|".join(sorted(set(parts), key=len, reverse=True)), re.IGNORECASE)


def characters(number: int, gap: str = "") -> str:
    """A size for people: 640, 3.4k, 1.2M; with a gap before the unit where one is given."""
    if number < 1000:
        return f"{number}{gap}"
    if number < 999_500:
        thousands = f"{number / 1000:.1f}" if number < 99_950 else f"{number / 1000:.0f}"
        return f"{thousands}{gap}k"
    return f"{number / 1_000_000:.1f}{gap}M"


def length(text: str) -> str:
    """How long a folded text is, in a word or two."""
    return f"{characters(len(text))} chars"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 turn, 2 turns."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def cost(number: int) -> str:
    """Characters and the tokens they make, at four characters a token."""
    return f"{number:,} characters ≈ {round(number / 4):,} tokens"
