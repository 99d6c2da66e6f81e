"""Blocks that show a diff: coloured lines with their numbers, and marked words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbtui.text import sanitize, strip_escape_sequences_before_cutting
from kbtui.text_difference import SIMILAR_WORDS_SHARE, find_changed_words
from kbtui.tui.framework.styled_text import (
    HighlightPattern,
    Spans,
    StyledLine,
    StyledLines,
    add_style_role,
    highlight_matches,
    measure_cell_width,
    slice_spans,
    wrap_code_line,
)
from kbtui.tui.reader.reader_blocks import ReaderBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbtui.conversations.patches import PatchHunk
    from kbtui.text_difference import ChangedWords, TextRange

LINES_PER_BLOCK = 80
"""The maximum number of lines of a block.

A longer hunk is split, so that only its visible blocks are laid out.
"""
TWO_NUMBERS_WIDTH = 70
"""The minimum width in cells of a reader that shows two numbers on each line.

In a narrower reader, a removed line shows only its number in the old file, and any other line only
its number in the new file.
"""
MAX_MARKED_CHARACTERS = 2_000
"""The maximum number of characters of a line in which changed words are marked."""
MAX_PAIRS = 100
"""Removed lines are paired with similar added lines if there are at most this many possible pairs.

If there are more, the lines are paired in order.
"""
TAB_WIDTH = 4
_ROLES = {"+": "inserted", "-": "deleted"}


@dataclass(slots=True, eq=False, repr=False)
class DiffBlock(ReaderBlock):
    """Lines of a hunk, each beginning with " ", "-" or "+".

    `old_number` and `new_number` are the numbers of the first line in the old and the new file; 0
    if they are unknown. `digits` is the width of a number; 0 means that no numbers are shown. If
    `continues` is true, a line above the block shows that lines are left out there.
    """

    lines: tuple[str, ...]
    old_number: int = 0
    new_number: int = 0
    digits: int = 0
    continues: bool = False

    def lay_out_lines(
        self, width: int, found: HighlightPattern | None, opened: bool
    ) -> StyledLines:
        """Return the lines, wrapped, with numbers, colours and marked words.

        The `source_line` of each returned line is its number in the new file.
        """
        texts = [sanitize(line[1:]).expandtabs(TAB_WIDTH) for line in self.lines]
        marks = [line[0] for line in self.lines]
        ranges = _find_changed_words_of_lines(marks, texts)
        old, new = self.old_number, self.new_number
        columns = 0 if not self.digits else 2 if width >= TWO_NUMBERS_WIDTH else 1
        room = max(8, width - columns * (self.digits + 1))
        made: StyledLines = [StyledLine([("⋯", "dim")])] if self.continues else []
        for index, (mark, text) in enumerate(zip(marks, texts, strict=True)):
            role = _ROLES.get(mark, "")
            spans: Spans = [(mark, role), *_mark_ranges(text, ranges.get(index, []), role)]
            numbers = (old if mark != "+" else None, new if mark != "-" else None)
            shown = highlight_matches(spans, found)
            for part, line in enumerate(wrap_code_line(shown, room, new, self.code_offset)):
                if columns:
                    label = _format_numbers(numbers, self.digits, columns, is_first=part == 0)
                    line.spans.insert(0, (label, "dim"))
                made.append(line)
            old += mark != "+"
            new += mark != "-"
        return made

    def estimate_line_count(self, width: int) -> int:
        """Estimate the number of lines without laying the block out."""
        width = max(8, width - measure_cell_width(self.lead) - 2 * (self.digits + 1))
        wrapped = sum(len(line) // width for line in self.lines)
        return self.above + self.continues + len(self.lines) + wrapped

    def get_searchable_text(self) -> str:
        return "\n".join(self.lines)


def _format_numbers(
    numbers: tuple[int | None, int | None], digits: int, columns: int, *, is_first: bool
) -> str:
    old, new = numbers if is_first else (None, None)
    shown = (old, new) if columns == 2 else (new if new is not None else old,)
    return "".join(f"{'' if one is None else one:>{digits}} " for one in shown)


def _find_changed_words_of_lines(
    marks: Sequence[str], texts: Sequence[str]
) -> dict[int, list[TextRange]]:
    """Return the changed words of each line. Removed lines are compared with the added lines that replace them."""
    found: dict[int, list[TextRange]] = {}
    at = 0
    while at < len(marks):
        removed = at
        while removed < len(marks) and marks[removed] == "-":
            removed += 1
        added = removed
        while added < len(marks) and marks[added] == "+":
            added += 1
        for old, new, changed in _pair_similar_lines(texts, (at, removed), (removed, added)):
            found[old], found[new] = changed.old, changed.new
        at = max(added, at + 1)
    return found


def _pair_similar_lines(
    texts: Sequence[str], removed: TextRange, added: TextRange
) -> Iterator[tuple[int, int, ChangedWords]]:
    """Yield each removed line with the most similar added line, and the words that differ."""
    olds = [n for n in range(*removed) if 0 < len(texts[n]) <= MAX_MARKED_CHARACTERS]
    news = [n for n in range(*added) if 0 < len(texts[n]) <= MAX_MARKED_CHARACTERS]
    compares_all = len(olds) * len(news) <= MAX_PAIRS
    for number, old in enumerate(olds):
        candidates = news if compares_all else news[number : number + 1]
        compared = ((new, find_changed_words(texts[old], texts[new])) for new in candidates)
        best = max(compared, key=lambda pair: pair[1].similarity, default=None)
        if best is not None and SIMILAR_WORDS_SHARE <= best[1].similarity < 1:
            yield old, *best
            if compares_all:
                news = news[news.index(best[0]) + 1 :]


def _mark_ranges(text: str, ranges: Sequence[TextRange], role: str) -> Spans:
    """Return a text in one role, with the words in `ranges` marked."""
    spans: Spans = [(text, role)] if text else []
    if not ranges:
        return spans
    marked: Spans = []
    position = 0
    for start, end in ranges:
        marked += slice_spans(spans, position, start)
        marked += add_style_role(slice_spans(spans, start, end), "changed-word")
        position = end
    return [*marked, *slice_spans(spans, position, len(text))]


def make_diff_blocks(key: str, hunks: Sequence[PatchHunk]) -> Iterator[DiffBlock]:
    """Yield the blocks of hunks, with the keys `key:0`, `key:1` and so on."""
    last = max(
        (max(hunk.old_start or 0, hunk.new_start or 0) + len(hunk.lines) for hunk in hunks),
        default=0,
    )
    number = 0
    for index, hunk in enumerate(hunks):
        is_numbered = hunk.old_start is not None and hunk.new_start is not None
        old, new = hunk.old_start or 0, hunk.new_start or 0
        for start in range(0, len(hunk.lines), LINES_PER_BLOCK):
            lines = tuple(
                map(
                    strip_escape_sequences_before_cutting,
                    hunk.lines[start : start + LINES_PER_BLOCK],
                )
            )
            yield DiffBlock(
                f"{key}:{number}",
                lines,
                old,
                new,
                len(str(last)) if is_numbered else 0,
                continues=index > 0 and start == 0,
            )
            old += sum(line[0] != "+" for line in lines)
            new += sum(line[0] != "-" for line in lines)
            number += 1


def make_line_count_spans(added: int, removed: int) -> Spans:
    """Return the numbers of added and removed lines, such as `+3 −1`; [] if both are 0."""
    spans: Spans = [(f"+{added:,}", "inserted")] if added else []
    if removed:
        spans += [(" ", "")] if spans else []
        spans.append((f"−{removed:,}", "deleted"))
    return spans
