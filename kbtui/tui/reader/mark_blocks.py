"""The lines that show the user's marks on a turn, in lists and in documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.conversations.turn_marks import MARK_SIGNS, MAX_LISTED_CHARACTERS
from kbtui.text import cut_to_width
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


def make_mark_spans(placed: PlacedMark, *, is_cut: bool = True) -> Spans:
    """Return the line of a mark: its sign, and the mark as text. If `is_cut` is true, a long text is cut."""
    role, label = MARK_ROLES[placed.mark.state], placed.label_in_turn
    label = cut_to_width(label, MAX_LISTED_CHARACTERS) if is_cut else label
    return [(f"{MARK_SIGNS[placed.mark.state]} ", role), (label, role)]


def make_mark_blocks(
    marks: Iterable[PlacedMark], indent: str = "", key: str = ""
) -> Iterator[ParagraphBlock]:
    """Yield a block for each mark. The block of a superseded turn links to what applies instead.

    The keys of the blocks begin with `key`. If there is an `indent`, the blocks are below a row of
    a list, so long marks are cut.
    """
    for placed in marks:
        mark = placed.mark
        block = ParagraphBlock(
            f"{key}mark:{mark.id}",
            make_mark_spans(placed, is_cut=bool(indent)),
            link=mark.superseded_by,
        )
        if indent:
            block.lead = [(indent, "")]
        yield block
