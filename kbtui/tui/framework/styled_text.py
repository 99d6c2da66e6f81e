"""Wraps, cuts, aligns and highlights styled text, without a terminal library.

A span is a pair of a string and its style roles. The roles are separated by spaces ("h1", "code
keyword"), and `base_screens_and_widgets.TEXT_STYLES` defines their look. Widths are in terminal
cells.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Span = tuple[str, str]
Spans = list[Span]


class StyledLine:
    """One line on the screen.

    * `source_line` is the 1-based number of the line in the source text, or 0 if there is no source
      text. All lines of a paragraph have the number of its first line.
    * `covered_source_lines` is set for the lines of a paragraph with several source lines. It holds
      the numbers of the first and the last source line that the line on the screen shows.
      Otherwise, it is None.
    * `full_text` is the whole line if sideways scrolling hides part of a line of code; otherwise,
      it is "".
    * `continues_right` says whether the line continues beyond the right edge.
    """

    __slots__ = "continues_right", "covered_source_lines", "full_text", "source_line", "spans"

    def __init__(
        self,
        spans: Spans | None = None,
        source_line: int = 0,
        full_text: str = "",
        continues_right: bool = False,
    ) -> None:
        self.spans = [] if spans is None else spans
        self.source_line = source_line
        self.full_text = full_text
        self.continues_right = continues_right
        self.covered_source_lines: tuple[int, int] | None = None

    @property
    def plain(self) -> str:
        """The text without roles."""
        return join_span_texts(self.spans)


StyledLines = list[StyledLine]


def join_span_texts(spans: Iterable[Span]) -> str:
    """Return the text of `spans` without roles."""
    return "".join(text for text, _ in spans)


def measure_cell_width(spans: Iterable[Span]) -> int:
    """Return the width of `spans` in cells."""
    return sum(_measure_text_width(text) for text, _ in spans)


def _measure_text_width(text: str) -> int:
    # Rich counts no cells for a tab or a line break, which `render_spans` draws as a space.
    return len(text) if text.isascii() else cell_len(text)


def add_style_role(spans: Iterable[Span], role: str) -> Spans:
    """Add a role to each span."""
    return [(text, f"{had} {role}" if had else role) for text, had in spans]


def add_role_to_ranges(spans: Sequence[Span], ranges: Iterable[tuple[int, int, str]]) -> Spans:
    """Add a role to each range of characters. Each element of `ranges` is a tuple (start, end (exclusive), role).

    The ranges must be in ascending order.
    """
    marked: Spans = []
    position = 0
    for start, end, role in ranges:
        marked += slice_spans(spans, position, start)
        marked += add_style_role(slice_spans(spans, start, end), role)
        position = end
    return [*marked, *slice_spans(spans, position, sys.maxsize)] if position else list(spans)


def slice_spans(spans: Sequence[Span], start: int, end: int) -> Spans:
    """Return the part of `spans` from character `start` to `end` (exclusive)."""
    return next(slice_spans_by_ranges(spans, [(start, end)]))


def slice_spans_by_ranges(
    spans: Sequence[Span], bounds: Iterable[tuple[int, int]]
) -> Iterator[Spans]:
    """Yield the part of `spans` in each range (start, end) of characters.

    The ranges must be in ascending order.
    """
    number, position = 0, 0
    for start, end in bounds:
        kept: Spans = []
        while number < len(spans) and position + len(spans[number][0]) <= start:
            position += len(spans[number][0])
            number += 1
        at, before = number, position
        while at < len(spans) and before < end:
            text, role = spans[at]
            if part_text := text[max(0, start - before) : end - before]:
                kept.append((part_text, role))
            before += len(text)
            at += 1
        yield kept


MIN_PATH_CELLS = 8
"""When the start of a path is cut, at least this many cells of the path are kept."""


def truncate_spans(spans: Sequence[Span], width: int) -> Spans:
    """Cut `spans` to at most `width` cells; `…` marks the cut.

    A path (spans with the role `path`) is cut first, at its start, because the end of a path tells
    the user more.
    """
    if width <= 0:
        return []
    if (excess := measure_cell_width(spans) - width) <= 0:
        return list(spans)
    if any("path" in role.split() for _, role in spans):
        spans = _truncate_start_of_path(spans, excess)
        if measure_cell_width(spans) <= width:
            return list(spans)
    end = _find_fitting_text_end(join_span_texts(spans), 0, width - 1)
    return [*slice_spans(spans, 0, end), ("…", spans[-1][1])]


def _truncate_start_of_path(spans: Sequence[Span], excess: int) -> Sequence[Span]:
    """Cut `excess` cells off the start of the first path in `spans`.

    At least `MIN_PATH_CELLS` cells of the path are kept. A path can consist of several spans,
    because highlighted matches divide it.
    """
    is_path = ["path" in role.split() for _, role in spans]
    start = is_path.index(True)
    end = next((n for n in range(start, len(spans)) if not is_path[n]), len(spans))
    path = join_span_texts(spans[start:end])
    kept = truncate_text_start(path, max(MIN_PATH_CELLS, _measure_text_width(path) - excess))
    if kept == path:
        return spans
    tail = slice_spans(spans[start:end], len(path) - len(kept) + 1, len(path))
    return [*spans[:start], ("…", spans[start][1]), *tail, *spans[end:]]


def truncate_text_start(text: str, width: int) -> str:
    """Cut the beginning of `text` so that the rest has at most `width` cells; `…` marks the cut."""
    if _measure_text_width(text) <= width:
        return text
    text = text[max(0, len(text) - width + 1) :]
    while _measure_text_width(text) > width - 1:
        text = text[1:]
    return "…" + text


_PLAIN_WORD = re.compile(r"(?!(?:kbtui|jp)\b)[a-z]+(?=[ ,;]|\.?$)")


def capitalize_first_word_unless_name(text: str) -> str:
    """Capitalize the first word of a message, unless the word is a name, reference, path or id.

    Error messages begin with a lower-case letter, because the command line prints them after a
    colon. On the screen, nothing precedes them.
    """
    return text[0].upper() + text[1:] if _PLAIN_WORD.match(text) else text


def align_spans_to_edges(left: Sequence[Span], right: Sequence[Span], width: int) -> Spans:
    """Align `left` and `right` to the edges of a line of `width` cells.

    If `right` would leave fewer than four cells, it is omitted. If `left` does not fit into the
    rest of the line, `left` is cut.
    """
    right_width = measure_cell_width(right)
    if right_width and right_width + 4 > width:
        right, right_width = [], 0
    gap = 1 if right_width else 0
    kept = truncate_spans(left, width - right_width - gap)
    space = width - right_width - measure_cell_width(kept)
    return [*kept, (" " * space, ""), *right] if right_width else kept


def _find_fitting_text_end(text: str, start: int, width: int) -> int:
    """Return the index at which to cut `text`.

    The part from `start` to this index is the longest that fits into `width` cells.
    """
    if text.isascii():
        return min(len(text), start + width)
    used = 0
    for position in range(start, len(text)):
        used += cell_len(text[position])
        if used > width:
            return position
    return len(text)


_WORD = re.compile(r"\s*(?P<word>\S+)")


def _find_wrapped_line_bounds(
    text: str, width: int, first: int, hang: int
) -> list[tuple[int, int]]:
    """Return the range of characters (start, end) of each wrapped line.

    The first line is indented by `first` cells, the others by `hang` cells.
    """
    lines: list[tuple[int, int]] = []
    start = end = 0
    room = width - first
    used = 0
    for match in _WORD.finditer(text):
        size = _measure_text_width(match[0])
        if used + size <= room:
            used += size
            end = match.end()
            continue
        if end > start:
            lines.append((start, end))
            room = width - hang
        start = match.start("word")
        # Break a word that is longer than a line.
        while (reach := _find_fitting_text_end(text, start, max(1, room))) < match.end():
            reach = max(reach, start + 1)
            lines.append((start, reach))
            room = width - hang
            start = reach
        end = match.end()
        used = _measure_text_width(text[start:end])
    lines.append((start, end))
    return lines


def wrap_spans(
    spans: Sequence[Span],
    width: int,
    first: Sequence[Span] = (),
    hang: Sequence[Span] = (),
    source: int = 0,
) -> StyledLines:
    """Wrap prose at `width` cells.

    Put `first` before the first line, and `hang` before each of the other lines. `source` is the
    number of the source line.
    """
    text = join_span_texts(spans)
    indents = measure_cell_width(first), measure_cell_width(hang)
    bounds = _find_wrapped_line_bounds(text, max(width, max(indents) + 1), *indents)
    return [
        StyledLine([*(hang if number else first), *part], source)
        for number, part in enumerate(slice_spans_by_ranges(spans, bounds))
    ]


def wrap_code_line(
    spans: Sequence[Span], width: int, source: int = 0, code_offset: int | None = None
) -> StyledLines:
    """Wrap a line of code into lines of at most `width` cells, without changing its white space.

    All lines except the first are indented by two cells. If `code_offset` is not None, the line is
    not wrapped, but scrolled to the left by this number of cells.
    """
    text = join_span_texts(spans)
    width = max(width, 4)
    if code_offset is not None:
        return [_cut_scrolled_code_line(spans, text, width, code_offset, source)]
    if _measure_text_width(text) <= width:
        return [StyledLine(list(spans), source)]
    bounds: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        room = width - (2 if bounds else 0)
        end = max(_find_fitting_text_end(text, start, room), start + 1)
        space = text.rfind(" ", start + room // 2, end)
        if end < len(text) and space > start:
            end = space + 1
        bounds.append((start, end))
        start = end
    return [
        StyledLine([("  ", ""), *part] if number else part, source)
        for number, part in enumerate(slice_spans_by_ranges(spans, bounds))
    ]


def _cut_scrolled_code_line(
    spans: Sequence[Span], text: str, width: int, code_offset: int, source: int
) -> StyledLine:
    """Return `width` cells of a line, starting at cell `code_offset`. `‹` and `›` mark hidden text."""
    total = measure_cell_width(spans)
    if total <= width and not code_offset:
        return StyledLine(list(spans), source)
    if not text.strip():
        return StyledLine([], source, text)
    start = _find_fitting_text_end(text, 0, code_offset) if code_offset else 0
    before = cell_len(text[:start])
    more = total - before > width - (code_offset > 0)
    # A character that is two cells wide may not fit at the right edge; a space fills its place.
    room = width - (code_offset > 0) - more
    end = _find_fitting_text_end(text, start, room)
    shown = slice_spans(spans, start, end)
    if code_offset:
        shown = [("‹", "marker"), *shown]
    if more:
        gap = room - cell_len(text[start:end])
        shown.append((" " * gap + "›", "marker"))
    return StyledLine(shown, source, text, more)


class HighlightPattern:
    """The pattern to highlight in a block.

    `current` is the index of the current match, or -1 if no match is current.
    """

    def __init__(self, pattern: re.Pattern[str], current: int = -1) -> None:
        self.pattern = pattern
        self.current = current
        self.seen_count = 0
        """The number of matches in the block that have been highlighted so far."""


def highlight_matches(spans: Sequence[Span], found: HighlightPattern | None) -> Spans:
    """Add the style role "found" to each match in `spans`, but "found-here" to the current match."""
    if found is None:
        return list(spans)
    ranges = []
    for match in found.pattern.finditer(join_span_texts(spans)):
        if match[0]:
            role = "found-here" if found.seen_count == found.current else "found"
            found.seen_count += 1
            ranges.append((*match.span(), role))
    return add_role_to_ranges(spans, ranges)
