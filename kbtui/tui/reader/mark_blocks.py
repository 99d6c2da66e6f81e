"""The lines that show the user's marks on a turn, in lists and in documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.conversations.turn_marks import MARK_SIGNS
from kbtui.tui.reader.reader_blocks import ParagraphBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.conversations.turn_marks import MarkState, PlacedMark
    from kbtui.tui.framework.styled_text import Spans

MARK_ROLES: dict[MarkState, str] = {
    "decided": "success",
    "rejected": "error",
    "superseded": "warning",
}
"""State of a mark -> the style role of its line."""


def make_mark_spans(placed: PlacedMark) -> Spans:
    """Return the line of a mark: its sign, and the whole mark as text."""
    role = MARK_ROLES[placed.mark.state]
    return [(f"{MARK_SIGNS[placed.mark.state]} ", role), (placed.label_in_turn, role)]


def make_mark_blocks(
    marks: Iterable[PlacedMark], indent: str = "", key: str = ""
) -> Iterator[ParagraphBlock]:
    """Yield a block for each mark. It links to the reference that supersedes the turn, if there is one.

    The keys of the blocks begin with `key`.
    """
    for placed in marks:
        mark = placed.mark
        block = ParagraphBlock(
            f"{key}mark:{mark.id}", make_mark_spans(placed), link=mark.superseded_by
        )
        if indent:
            block.lead = [(indent, "")]
        yield block
