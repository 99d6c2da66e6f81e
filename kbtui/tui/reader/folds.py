"""Which folds of a document are open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbtui.tui.reader.document import Document


@dataclass
class Folds:
    """Which folds are open: one by one, or all of a kind."""

    kinds: Mapping[str, str] = field(default_factory=dict)
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
        self.kinds = document.fold_kinds
        self.opened = {key for key in self.opened if key in self.kinds}
