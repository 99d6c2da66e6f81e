"""Which folds of a document are open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbtui.tui.document.blocks import FoldBlock

if TYPE_CHECKING:
    from kbtui.tui.document.document import Document


@dataclass
class Folds:
    """Which folds are open: one by one, or all of a kind."""

    kinds: dict[str, str] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    opened_kinds: set[str] = field(default_factory=set)

    def is_open(self, key: str) -> bool:
        """Whether the fold with this key is open."""
        # Both together mean: opened with its kind, then closed by itself.
        return (key in self.opened) != (self.kinds.get(key) in self.opened_kinds)

    def toggle(self, key: str) -> None:
        """Open or close one."""
        self.opened ^= {key}

    def toggle_kind(self, kind: str) -> None:
        """Open or close all of a kind."""
        self.opened = {key for key in self.opened if self.kinds.get(key) != kind}
        self.opened_kinds ^= {kind}

    def adopt(self, document: Document) -> None:
        """Know the folds of a document; those that it no longer has are forgotten."""
        self.kinds = {b.key: b.kind for b in document.blocks if isinstance(b, FoldBlock)}
        self.opened &= self.kinds.keys()
