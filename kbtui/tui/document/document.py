"""A document: blocks in order, and the ways to find a place in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.tui.document.blocks import Block, FoldBlock, TextBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbtui.tui.document.lines import Spans


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
    _index: dict[str, int] = field(default_factory=dict, repr=False)
    _heads: list[tuple[int, int]] = field(default_factory=list, repr=False)
    _folds: bool = False

    def __post_init__(self) -> None:
        # All at once and now: documents are made in threads, and asked on the event loop.
        self._index = {block.key: number for number, block in enumerate(self.blocks)}
        self._folds = any(isinstance(block, FoldBlock) or block.link for block in self.blocks)
        self._heads = [
            (block.turn, number)
            for number, block in enumerate(self.blocks)
            if block.turn is not None and block.key == f"turn:{block.turn}"
        ]

    @property
    def offers(self) -> frozenset[str]:
        """What commands can work with: "turns", "folds", "views"."""
        offers = {
            "turns": self.turns_total > 0,
            "folds": self._folds,
            "views": len(self.views) > 1,
        }
        return frozenset(name for name, has in offers.items() if has)

    def index_of(self, key: str) -> int | None:
        """The position of the block with `key`."""
        return self._index.get(key)

    def turn_heads(self) -> list[tuple[int, int]]:
        """Turn number and block position of every turn's first line."""
        return self._heads

    def block_of_turn(self, turn: int, call: int | None = None) -> int | None:
        """The block where turn `turn` begins, or its tool call `call`."""
        if call is not None:
            position = self.index_of(f"call:{turn}.{call}")
            if position is not None:
                return position
        return self.index_of(f"turn:{turn}")

    def block_of_line(self, line: int) -> int:
        """The block that shows source line `line`, else the nearest one before it."""
        best = 0
        for number, block in enumerate(self.blocks):
            if isinstance(block, TextBlock) and 0 < block.first_line <= line:
                best = number
        return best

    def ref_at(self, position: int, source: int) -> str | None:
        """The most exact reference of block `position` at source line `source`."""
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

    def search(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
        """Every match: its block, and which of the block's matches it is."""
        for number, block in enumerate(self.blocks):
            for count, _ in enumerate(pattern.finditer(block.search_text())):
                yield number, count

    def folds(self) -> list[int]:
        """The positions of all folds."""
        return [number for number, block in enumerate(self.blocks) if isinstance(block, FoldBlock)]


def finder(terms: list[str]) -> re.Pattern[str] | None:
    """A pattern for any of `terms`, whatever the case; a space in them is any white space."""
    parts = [
        r"\s+".join(re.escape(word) for word in term.split()) for term in terms if term.strip()
    ]
    if not parts:
        return None
    return re.compile("|".join(sorted(set(parts), key=len, reverse=True)), re.IGNORECASE)


def characters(number: int) -> str:
    """A size for people: 640, 3.4k, 1.2M."""
    if number < 1000:
        return str(number)
    if number < 999_500:
        return f"{number / 1000:.1f}k" if number < 99_950 else f"{number / 1000:.0f}k"
    return f"{number / 1_000_000:.1f}M"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 turn, 2 turns."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def cost(number: int) -> str:
    """Characters and the tokens they make, at four characters a token."""
    return f"{number:,} characters ≈ {round(number / 4):,} tokens"
