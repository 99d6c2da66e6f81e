"""Makes reader blocks from the texts that tools returned.

The texts can contain fenced code, the contents of files, colours and diffs. The middle of a long
text is in a fold.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kbtui.light_named_tuple import NamedTuple
from kbtui.terminal_text import (
    format_counted_noun,
    format_json_value_on_one_line,
    sanitize,
    strip_escape_sequences,
    strip_escape_sequences_before_cutting,
)
from kbtui.text_difference import SIMILAR_WORDS_SHARE, ChangedWords, TextRange, find_changed_words
from kbtui.tui.framework.styled_text import (
    HighlightPattern,
    Spans,
    StyledLine,
    StyledLines,
    add_role_to_ranges,
    highlight_matches,
    join_span_texts,
    measure_cell_width,
    wrap_code_line,
)
from kbtui.tui.reader.reader_blocks import (
    FoldHeadingBlock,
    ReaderBlock,
    TextRangeReaderBlock,
    VerbatimTextReaderBlock,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kbtui.citations.turn_file_actions_and_commands import TurnFileAction
    from kbtui.conversations.patch_parser import FilePatch, PatchHunk


MAX_LINES = 60
"""A part of a text with more lines than this is not shown in full."""
HEAD_LINES, TAIL_LINES = 30, 12
"""The numbers of lines shown at the start and at the end of such a part. A fold contains the lines between them."""
MAX_JSON_CHARACTERS = 400_000
"""A text with more characters than this is not parsed as JSON."""
MAX_XML_CHARACTERS = 100_000
"""A text with more characters than this is not parsed as XML."""
LONG_LINE = 240
"""XML is pretty-printed if one of its lines has more characters than this."""
MAX_CHARACTERS = 9_000
"""A part of a text with more characters than this is not shown in full."""
HEAD_CHARACTERS, TAIL_CHARACTERS = 3_000, 1_200
"""The approximate numbers of characters shown at the start and at the end of such a part if its lines are few but long."""

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$", re.MULTILINE)
_NUMBERED_LINE = re.compile(r"[ \t]*(\d{1,7})(?:→|\t)")
_COLOUR = re.compile(r"\x1b\[([\d;:]*)m")
_LANGUAGES_BY_SUFFIX = {
    "bash": "sh", "cc": "cpp", "cjs": "js", "h": "c", "hpp": "cpp", "hs": "haskell", "htm": "html",
    "kt": "kotlin", "lock": "toml", "md": "markdown", "mdx": "markdown", "mjs": "js", "rst": "rst",
    "tcss": "css", "text": "", "txt": "", "yml": "yaml", "zsh": "sh",
}  # fmt: skip
_LANGUAGES_BY_NAME = {"makefile": "make", "dockerfile": "docker", "justfile": "make"}


def find_language_of_path(path: str) -> str:
    """Return Pygments' name for the language that a file's name suggests; "" for plain text."""
    name = PurePosixPath(path.replace("\\", "/")).name.lower()
    suffix = name.rpartition(".")[2] if "." in name else ""
    return _LANGUAGES_BY_NAME.get(name) or _LANGUAGES_BY_SUFFIX.get(suffix, suffix)


def format_json_value_as_text(value: Any, pad: str = "") -> str:
    """Format a JSON value as text, one line for each item, indented by `pad`.

    Line breaks in strings are kept.
    """
    if isinstance(value, dict):
        return "\n".join(
            _format_labeled_json_value(f"{pad}{name}:", item, pad) for name, item in value.items()
        )
    if isinstance(value, list):
        return "\n".join(_format_labeled_json_value(f"{pad}-", item, pad) for item in value)
    return f"{pad}{format_json_value_on_one_line(value)}"


def _format_labeled_json_value(head: str, item: Any, pad: str) -> str:
    if isinstance(item, str) and "\n" in item:
        return "\n".join([head, *(f"{pad}  {line}" for line in item.rstrip("\n").split("\n"))])
    if isinstance(item, dict | list) and item:
        return f"{head}\n{format_json_value_as_text(item, pad + '  ')}"
    return f"{head} {format_json_value_on_one_line(item)}"


class _ToolTextPart(NamedTuple):
    """A part of a text, from character `start` to `end` (exclusive).

    `is_fenced` means that the part was between fences.
    """

    start: int
    end: int
    language: str = ""
    is_fenced: bool = False


def _split_at_fences(text: str, is_one_file: bool) -> Iterator[_ToolTextPart]:
    """Split a text at its fences, and yield the parts without the fence lines.

    `is_one_file` means that the text is the content of one file. The content may have fences of its
    own, so only the outermost fences count.
    """
    if is_one_file:
        opening, closing = _FENCE.match(text), None
        if opening:
            closing = re.search(rf"^ {{0,3}}{opening[1]}[ \t]*\s*\Z", text, re.MULTILINE)
        if opening and closing and closing.start() > opening.end():
            yield _ToolTextPart(
                opening.end() + 1, closing.start(), _get_fence_language(opening), True
            )
        else:
            yield _ToolTextPart(0, len(text))
        return
    position, opened = 0, None
    for fence in _FENCE.finditer(text):
        if opened is None:
            yield _ToolTextPart(position, fence.start())
            opened, position = fence, min(fence.end() + 1, len(text))
        elif fence[1].startswith(opened[1]) and not fence[2].strip():
            yield _ToolTextPart(position, fence.start(), _get_fence_language(opened), True)
            opened, position = None, min(fence.end() + 1, len(text))
    language = _get_fence_language(opened) if opened else ""
    yield _ToolTextPart(position, len(text), language, opened is not None)


def _get_fence_language(opening: re.Match[str]) -> str:
    return (opening[2].split() or [""])[0].lower()


class TerminalStyleRange(NamedTuple):
    """The characters from `start` to `end` (exclusive) that a terminal shows in the style `role`."""

    start: int
    end: int
    role: str


# The style role for each of the eight colours of terminals. Roles have enough contrast in every theme.
_COLOUR_ROLES = ("dim", "error", "inserted", "warning", "link", "accent", "key", "")
_ATTRIBUTE_ROLES = {1: "strong", 2: "dim", 3: "emph", 4: "changed-word", 9: "struck"}
_ATTRIBUTE_ENDS = {22: (1, 2), 23: (3,), 24: (4,), 29: (9,)}


def extract_colours_and_remove_escapes(text: str) -> tuple[str, list[TerminalStyleRange]]:
    """Remove the escape sequences from a text.

    Return the rest of the text, and the ranges that the sequences colour.
    """
    parts: list[str] = []
    ranges: list[TerminalStyleRange] = []
    colour, attributes, length, position = "", dict[int, str](), 0, 0

    def add_text_with_colours(end: int) -> None:
        nonlocal length
        part = strip_escape_sequences(text[position:end])
        roles = " ".join(filter(None, [colour, *attributes.values()]))
        if part and roles:
            ranges.append(TerminalStyleRange(length, length + len(part), roles))
        parts.append(part)
        length += len(part)

    for found in _COLOUR.finditer(text):
        add_text_with_colours(found.start())
        position = found.end()
        codes = [int(code) for code in re.findall(r"\d+", found[1])] or [0]
        while codes:
            code = codes.pop(0)
            if code == 0:
                colour, attributes = "", {}
            elif code in _ATTRIBUTE_ROLES:
                attributes[code] = _ATTRIBUTE_ROLES[code]
            elif code in _ATTRIBUTE_ENDS:
                for end in _ATTRIBUTE_ENDS[code]:
                    attributes.pop(end, None)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                colour = _COLOUR_ROLES[code % 10] or ("dim" if code == 90 else "")
            elif code == 39:
                colour = ""
            elif code in (38, 48):
                role = _parse_extended_colour_code(codes)
                colour = role if code == 38 else colour
    add_text_with_colours(len(text))
    return "".join(parts), ranges


def _parse_extended_colour_code(codes: list[int]) -> str:
    """Remove the parameters of a 256-colour or true-colour code from `codes`.

    Return the style role whose colour is nearest.
    """
    kind = codes.pop(0) if codes else 0
    if kind == 5 and codes:
        index = codes.pop(0)
        if index < 16:
            return _COLOUR_ROLES[index % 8]
        if index >= 232:
            return "dim" if index < 246 else ""
        red, rest = divmod(index - 16, 36)
        rgb = (red, *divmod(rest, 6))
    elif kind == 2 and len(codes) >= 3:
        rgb = (codes.pop(0), codes.pop(0), codes.pop(0))
    else:
        return ""
    # Each of red, green and blue is on if it is more than half as strong as the strongest.
    most = max(rgb)
    bits = sum(1 << n for n, value in enumerate(rgb) if most and value * 2 > most)
    return _COLOUR_ROLES[bits] if bits else "dim"


@dataclass(slots=True, eq=False, repr=False)
class ColouredTextReaderBlock(TextRangeReaderBlock):
    """A part of a text, in the colours that a terminal would show.

    The ranges in `colours` are counted from the start of the whole text.
    """

    colours: list[TerminalStyleRange] = field(default_factory=list)

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        from kbtui.tui.reader.markdown_layout import highlight_source_code

        lines: StyledLines = []
        position = self.start
        for row in self.get_searchable_text().removesuffix("\n").split("\n"):
            spans = self._colour_line(position, row)
            (plain,) = highlight_source_code(row, "") or [[]]
            if join_span_texts(spans) != join_span_texts(plain):
                spans = plain  # Tabs or control characters would shift the colours, so show none.
            lines += wrap_code_line(highlight_matches(spans, found), width, 0, self.code_offset)
            position += len(row) + 1
        return lines or [StyledLine()]

    def _colour_line(self, start: int, row: str) -> Spans:
        end, at = start + len(row), start
        spans: Spans = []
        first = bisect_right(self.colours, start, key=lambda colour: colour.end)
        for colour in self.colours[first:]:
            if colour.start >= end:
                break
            left, right = max(colour.start, start), min(colour.end, end)
            spans += [(self.text[at:left], "")] if at < left else []
            spans.append((self.text[left:right], colour.role))
            at = right
        return [*spans, (self.text[at:end], "")] if at < end else spans


@dataclass(slots=True, eq=False, repr=False)
class HiddenLinesHeadingBlock(FoldHeadingBlock):
    """The heading of a fold that contains the middle of a long text.

    The heading is not part of the text.
    """

    def get_searchable_text(self) -> str:
        return ""


def make_tool_text_blocks(
    key: str, text: str, *, path: str | None = None, has_colours: bool = True
) -> list[ReaderBlock]:
    """Make the blocks of a text that a tool returned, with the keys `key:0` and so on.

    If the text is the content of a file, `path` is the path of this file. If `has_colours` is true,
    the text is shown in the colours that its escape sequences set. Otherwise, these escape
    sequences are sanitized like all others.
    """
    if has_colours and "\x1b[" in text:
        plain, ranges = extract_colours_and_remove_escapes(text)

        def make_coloured_block(name: str, start: int, end: int) -> ReaderBlock:
            return ColouredTextReaderBlock(name, plain, start, end, colours=ranges)

        return _make_blocks_with_long_middle_folded(key, plain, 0, len(plain), make_coloured_block)
    if path is None and (laid_out := _pretty_print_json(text) or _pretty_print_xml(text)):
        text = laid_out
    blocks: list[ReaderBlock] = []
    for number, part in enumerate(_split_at_fences(text, path is not None)):
        content = text[part.start : part.end]
        if not content.strip("\n") and (blocks or part.end < len(text)):
            continue
        language = part.language
        if not part.is_fenced:
            language = find_language_of_path(path) if path else _detect_xml_as_language(content)
        elif path and find_language_of_path(path):
            language = find_language_of_path(path)
        name = f"{key}:{number}" if number else key
        if path and (unnumbered := _remove_line_numbers(content)):
            plain, first_line = unnumbered
            blocks += _make_code_blocks(name, plain, 0, len(plain), language, first_line)
            continue
        start, end = _trim_blank_lines_at_end_and_after_fence(text, part)
        panel = part.is_fenced and path is None
        blocks += _make_code_blocks(name, text, start, end, language, 0, panel)
    return blocks


def _trim_blank_lines_at_end_and_after_fence(text: str, part: _ToolTextPart) -> tuple[int, int]:
    """Return the range of a part without the blank lines at its end.

    Blank lines between a fence and the part after it are excluded too. Those at the start of the
    text stay, because they belong to what the tool returned, such as the first lines of a file.
    """
    start, end = part.start, part.end
    while start > 0 and start < end and text[start] == "\n" and not part.is_fenced:
        start += 1
    while end > start and text[end - 1] == "\n":
        end -= 1
    return start, end


def _detect_xml_as_language(text: str) -> str:
    stripped = text.strip()
    return "xml" if re.match(r"<[A-Za-z_?]", stripped) and stripped.endswith(">") else ""


def _pretty_print_json(text: str) -> str | None:
    """Return a JSON object or list as text with one item on each line. Return None for any other text."""
    stripped = text.strip()
    is_candidate = stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]")
    if not is_candidate or len(stripped) > MAX_JSON_CHARACTERS:
        return None
    try:
        value = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    return format_json_value_as_text(value) if value else None


def _pretty_print_xml(text: str) -> str | None:
    """Return XML with one element on each line.

    Return None if the text is not XML, or has no long lines.
    """
    from xml.dom.minidom import parseString
    from xml.parsers.expat import ExpatError

    stripped = text.strip()
    is_candidate = re.match(r"<[A-Za-z_?]", stripped) and stripped.endswith(">")
    # A document type can define entities that expand to a huge text.
    is_small = len(stripped) <= MAX_XML_CHARACTERS and "<!DOCTYPE" not in stripped
    if not is_candidate or not is_small or max(map(len, stripped.split("\n"))) <= LONG_LINE:
        return None
    try:
        root = parseString(stripped).documentElement
        lines = root.toprettyxml(indent="  ").split("\n") if root else []
    except (ExpatError, ValueError, RecursionError):
        return None
    return "\n".join(line for line in lines if line.strip()) or None


def _remove_line_numbers(text: str) -> tuple[str, int] | None:
    """Return the text without its line numbers, and the first number.

    Return None if the lines are not numbered consecutively.
    """
    lines = text.strip("\n").split("\n")
    found = [_NUMBERED_LINE.match(line) for line in lines]
    # Some agents add remarks after the numbered lines; the numbers of such a text are not removed.
    count = next((n for n, match in enumerate(found) if match is None), len(lines))
    matches = [match for match in found[:count] if match]
    if not matches or any(line.strip() for line in lines[count:]):
        return None
    first = int(matches[0][1])
    if any(int(match[1]) != first + n for n, match in enumerate(matches)):
        return None
    bodies = (line[match.end() :] for line, match in zip(lines, matches, strict=False))
    return "\n".join(bodies), first


def _make_code_blocks(
    key: str,
    text: str,
    start: int,
    end: int,
    language: str,
    first_line: int,
    panel: bool = False,
) -> list[ReaderBlock]:
    digits = len(str(first_line + text.count("\n"))) if first_line else 0

    def make_code_block(name: str, left: int, right: int) -> ReaderBlock:
        line = first_line + text.count("\n", 0, left) if first_line else 0
        return VerbatimTextReaderBlock(
            name, text, left, right, line, language=language, numbers=digits, panel=panel
        )

    return _make_blocks_with_long_middle_folded(key, text, start, end, make_code_block)


def _make_blocks_with_long_middle_folded(
    key: str,
    text: str,
    start: int,
    end: int,
    make_block: Callable[[str, int, int], ReaderBlock],
) -> list[ReaderBlock]:
    """Make blocks for the characters of `text` from `start` to `end`. If this part of the text is long, a fold contains its middle."""
    from kbtui.tui.reader.markdown_layout import split_source_text_into_sections

    def make_section_blocks(name: str, left: int, right: int) -> Iterator[ReaderBlock]:
        for number, section in enumerate(split_source_text_into_sections(text[left:right])):
            yield make_block(f"{name}:{number}", left + section.start, left + section.end)

    count = text.count("\n", start, end) + 1
    if count <= MAX_LINES and end - start <= MAX_CHARACTERS:
        return list(make_section_blocks(key, start, end))
    if count > MAX_LINES:
        middle = _find_line_start_some_lines_later(text, start, HEAD_LINES)
        tail = _find_line_start_some_lines_later(text, middle, count - HEAD_LINES - TAIL_LINES)
        hidden = format_counted_noun(count - HEAD_LINES - TAIL_LINES, "more line")
    else:
        # The lines are few but long. There may be only one.
        middle = _find_split_position_near_end(text, start, start + HEAD_CHARACTERS)
        tail = _find_split_position_near_end(text, middle, end - TAIL_CHARACTERS)
        hidden = format_counted_noun(tail - middle, "more character")
    heading = HiddenLinesHeadingBlock(f"{key}:more", [(hidden, "dim")], kind="more")
    inside = list(make_section_blocks(f"{key}:middle", middle, tail))
    for block in inside:
        block.fold = heading.key
    return [
        *make_section_blocks(key, start, middle), heading, *inside, *make_section_blocks(f"{key}:tail", tail, end)
    ]  # fmt: skip


def _find_split_position_near_end(text: str, start: int, end: int) -> int:
    """Return the position at which to split the range from `start` to `end` near its end.

    This is the start of the last line that begins in the second half of the range. If no line
    begins there, it is the start of the last word there. If no word begins there either, it is
    `end`.
    """
    cut = text.rfind("\n", (start + end) // 2, end) + 1
    return cut or text.rfind(" ", (start + end) // 2, end) + 1 or end


def _find_line_start_some_lines_later(text: str, start: int, lines: int) -> int:
    """Return the position after the next `lines` line breaks, counted from `start`."""
    position = start
    for _ in range(lines):
        position = text.index("\n", position) + 1
    return position


LINES_PER_BLOCK = 80
"""The maximum number of lines of a `DiffHunkReaderBlock`.

A longer hunk is split, so that only its visible blocks are laid out.
"""
TWO_NUMBERS_WIDTH = 70
"""If the reader has at least this many cells, each line shows two numbers.

In a narrower reader, a removed line shows only its number in the old file, and any other line only
its number in the new file.
"""
MAX_MARKED_CHARACTERS = 2_000
"""In a line with more characters than this, changed words are not marked."""
MAX_PAIRS = 100
"""If there are at most this many possible pairs, each removed line is compared with all added lines.

Otherwise, each removed line is compared only with the added line at the same position.
"""
TAB_WIDTH = 4
_ROLES = {"+": "inserted", "-": "deleted"}


@dataclass(slots=True, eq=False, repr=False)
class DiffHunkReaderBlock(ReaderBlock):
    """Lines of a hunk, each beginning with " ", "-" or "+".

    * `old_number` and `new_number` are the numbers of the first line in the old and the new file; 0
      if they are unknown.
    * `digits` is the width of a number; 0 means that no numbers are shown.
    * If `continues` is true, a line above the block shows that lines are left out there.
    """

    lines: tuple[str, ...]
    old_number: int = 0
    new_number: int = 0
    digits: int = 0
    continues: bool = False

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
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
            changed = [(*one, "changed-word") for one in ranges.get(index, ())]
            words: Spans = [(text, role)] if text else []
            spans: Spans = [(mark, role), *add_role_to_ranges(words, changed)]
            numbers = (old if mark != "+" else None, new if mark != "-" else None)
            shown = highlight_matches(spans, found)
            for part, line in enumerate(wrap_code_line(shown, room, new, self.code_offset)):
                if columns:
                    label = _format_diff_line_numbers(
                        numbers, self.digits, columns, is_first=part == 0
                    )
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


def _format_diff_line_numbers(
    numbers: tuple[int | None, int | None], digits: int, columns: int, *, is_first: bool
) -> str:
    old, new = numbers if is_first else (None, None)
    shown = (old, new) if columns == 2 else (new if new is not None else old,)
    return "".join(f"{'' if one is None else one:>{digits}} " for one in shown)


def _find_changed_words_of_lines(
    marks: Sequence[str], texts: Sequence[str]
) -> dict[int, list[TextRange]]:
    """Return the changed words of each line.

    Removed lines are compared with the added lines that replace them.
    """
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
    """Pair removed lines with similar added lines.

    For each pair, yield the index of the removed line, the index of the added line, and the words
    that differ.
    """
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


def make_blocks_of_diff_hunks(
    key: str, hunks: Sequence[PatchHunk]
) -> Iterator[DiffHunkReaderBlock]:
    """Yield the blocks of hunks, with the keys `key:0`, `key:1` and so on."""
    ends = [max(hunk.old_start or 0, hunk.new_start or 0) + len(hunk.lines) for hunk in hunks]
    last = max(ends, default=0)
    number = 0
    for index, hunk in enumerate(hunks):
        is_numbered = hunk.old_start is not None and hunk.new_start is not None
        digits = len(str(last)) if is_numbered else 0
        old, new = hunk.old_start or 0, hunk.new_start or 0
        for start in range(0, len(hunk.lines), LINES_PER_BLOCK):
            part = hunk.lines[start : start + LINES_PER_BLOCK]
            lines = tuple(map(strip_escape_sequences_before_cutting, part))
            continues = index > 0 and start == 0
            yield DiffHunkReaderBlock(
                f"{key}:{number}", lines, old, new, digits, continues=continues
            )
            old += sum(line[0] != "+" for line in lines)
            new += sum(line[0] != "-" for line in lines)
            number += 1


def make_changed_line_count_spans(changes: Iterable[TurnFileAction | FilePatch]) -> Spans:
    """Return the numbers of lines that changes added and removed, such as `+3 −1`; [] if both are 0."""
    counts = [(change.added_line_count, change.removed_line_count) for change in changes]
    added, removed = sum(count for count, _ in counts), sum(count for _, count in counts)
    spans: Spans = [(f"+{added:,}", "inserted")] if added else []
    if removed:
        spans += [(" ", "")] if spans else []
        spans.append((f"−{removed:,}", "deleted"))
    return spans
