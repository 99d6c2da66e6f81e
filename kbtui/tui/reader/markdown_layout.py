"""Splits, highlights and lays out Markdown and source text, and removes Markdown marks."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from kbtui.terminal_text import sanitize
from kbtui.tui.framework.styled_text import (
    HighlightPattern,
    Spans,
    StyledLine,
    StyledLines,
    add_style_role,
    highlight_matches,
    join_span_texts,
    measure_cell_width,
    wrap_code_line,
    wrap_spans,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.tree import SyntaxTreeNode


SECTION_CHARACTERS = 6_000
"""The maximum number of characters of a section of plain text.

A section of Markdown can have twice as many.
"""

_FENCE_LINE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)")
_LIST_ITEM = re.compile(r"(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)")


@dataclass(slots=True)
class SeparatelyLaidOutSection:
    """A section of a text: the range of its characters, and the number of its first line.

    A fenced code block that is too long for one section is split into several. In each of these
    sections, `code` is true, and `language` is the block's language or "". `continued` means that
    the section continues a block that began in an earlier section.
    """

    start: int
    end: int
    first_line: int
    code: bool = False
    language: str = ""
    continued: bool = False


def split_source_text_into_sections(
    text: str, max_characters: int = SECTION_CHARACTERS
) -> Iterator[SeparatelyLaidOutSection]:
    """Split `text` at line breaks into sections. A line longer than `max_characters` is split at a space."""
    start, line = 0, 1
    while start < len(text):
        end = min(start + max_characters, len(text))
        if end < len(text):
            cut = text.rfind("\n", start, end) + 1
            end = cut or text.rfind(" ", start + max_characters // 2, end) + 1 or end
        yield SeparatelyLaidOutSection(start, end, line)
        line += text.count("\n", start, end)
        start = end


def split_markdown_into_sections_at_blank_lines(
    text: str, max_characters: int = SECTION_CHARACTERS
) -> Iterator[SeparatelyLaidOutSection]:
    """Split a Markdown text at blank lines, so that only the visible sections need to be laid out.

    Blank lines inside fenced code or a short list do not split the text. A block that is too long
    for one section is split into several. If the block is fenced code, `code` is true for each of
    these sections.
    """
    if len(text) <= max_characters:
        if text.strip():
            yield SeparatelyLaidOutSection(0, len(text), 1)
        return
    for section in _iterate_sections_between_blank_lines(text, max_characters):
        if section.end - section.start <= 2 * max_characters:
            section.code = False
            yield section
        else:
            yield from _split_long_section(text, section, max_characters)


def _iterate_sections_between_blank_lines(
    text: str, max_characters: int
) -> Iterator[SeparatelyLaidOutSection]:
    start = position = 0
    line = first_line = 1
    fence = ""
    whole_fence = blank = list_open = False
    while position < len(text):
        after = text.find("\n", position) + 1 or len(text)
        row = text[position:after]
        opening = _FENCE_LINE.match(row)
        if fence:
            if opening and opening[1].startswith(fence) and not opening[2].strip():
                fence = ""
                if whole_fence:
                    yield SeparatelyLaidOutSection(start, after, first_line, code=True)
                    start, first_line, whole_fence = after, line + 1, False
        else:
            item = bool(_LIST_ITEM.match(row))
            # A new block begins after a blank line, unless the next line is indented (as in a list
            # item) or is the next item of a list that is still short enough.
            new = (
                blank
                and not row[0].isspace()
                and not (item and list_open and position - start < 2 * max_characters)
            )
            if start < position and new:
                long_enough = position - start >= max_characters // 2
                if long_enough or (
                    opening
                    and _count_characters_before_closing_fence(text, after, opening[1])
                    > max_characters
                ):
                    yield SeparatelyLaidOutSection(start, position, first_line)
                    start, first_line = position, line
            if opening:
                fence = opening[1]
                whole_fence = start == position
            if row.strip() and not row[0].isspace():
                list_open = item
        blank = not row.strip()
        position = after
        line += 1
    if start < len(text):
        yield SeparatelyLaidOutSection(start, len(text), first_line, code=whole_fence)


def _count_characters_before_closing_fence(text: str, start: int, fence: str) -> int:
    end = text.find("\n" + fence, start)
    return (end if end >= 0 else len(text)) - start


def _split_long_section(
    text: str, section: SeparatelyLaidOutSection, max_characters: int
) -> Iterator[SeparatelyLaidOutSection]:
    """Split a section that is one long block. The fences around a code block are left out."""
    start, end, first_line, language = section.start, section.end, section.first_line, ""
    if section.code and (opening := _FENCE_LINE.match(text, start)):
        language = (opening[2].split() or [""])[0]
        start = text.find("\n", start) + 1
        first_line += 1
        last_line = text.rfind("\n", start, end - 1) + 1
        if last_line > start and _FENCE_LINE.match(text[last_line:end]):
            end = last_line
    for part in split_source_text_into_sections(text[start:end], max_characters):
        part.continued = part.start > 0
        part.start, part.end = part.start + start, part.end + start
        part.first_line += first_line - 1
        part.code, part.language = section.code, language
        yield part


TAB_WIDTH = 4
MAX_HIGHLIGHTED_CHARACTERS = 60_000
"""In a text with more characters than this, the syntax is not highlighted, because that would take too long."""


def highlight_source_code(text: str, language: str | None) -> list[Spans]:
    """Sanitize `text`, and return its lines as spans, highlighted if Pygments knows the language."""
    text = sanitize(text).expandtabs(TAB_WIDTH)
    lexer = None
    if language and len(text) <= MAX_HIGHLIGHTED_CHARACTERS:
        lexer = _find_pygments_lexer(language)
    if lexer is None:
        return [[(line, "")] if line else [] for line in text.split("\n")]
    lines: list[Spans] = [[]]
    # The lexer for diffs does not recognize a last line without a line break.
    for kind, value in lexer.get_tokens(f"{text}\n"):
        role = _find_style_role_of_token(kind)
        first, *others = value.split("\n")
        lines[-1] += [(first, role)] if first else []
        lines += [[(part, role)] if part else [] for part in others]
    # Lexers may add a final newline.
    wanted = text.count("\n") + 1
    return [*lines, *([] for _ in range(wanted))][:wanted]


def _find_pygments_lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


_TOKEN_ROLES = {
    "comment": ("Comment.",),
    "keyword": ("Keyword.", "Name.Tag.", "Operator.Word."),
    "string": ("Literal.String.",),
    "number": ("Literal.Number.", "Literal.Date."),
    "function": ("Name.Function.", "Name.Attribute.", "Name.Decorator."),
    "type": ("Name.Class.", "Name.Builtin.", "Name.Namespace."),
    "h3": ("Generic.Heading.", "Generic.Subheading."),
    "strong": ("Generic.Strong.",),
    "emph": ("Generic.Emph.",),
    "inserted": ("Generic.Inserted.",),
    "deleted": ("Generic.Deleted.",),
}
"""The Pygments token types of each style role. Subtypes of these types have the same role."""


def _find_style_role_of_token(kind: Any) -> str:
    name = "".join(f"{part}." for part in kind)
    return next((role for role, kinds in _TOKEN_ROLES.items() if name.startswith(kinds)), "")


_COLUMN_GAP = 3  # " │ "
_MIN_COLUMN_WIDTH = 6


def fit_column_widths(wanted: list[int], width: int) -> list[int]:
    """Return column widths with which a table fits into `width` cells.

    `wanted` are the widths without a limit. The widest columns are reduced first.
    """
    widths = list(wanted)
    for _ in range(sum(widths) + _COLUMN_GAP * (len(widths) - 1) - width):
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] > _MIN_COLUMN_WIDTH:
            widths[widest] -= 1
    return widths


def lay_out_table(
    rows: Sequence[list[Spans]], aligns: list[str], width: int, sources: list[int]
) -> StyledLines:
    """Lay out a table whose first row contains the headings.

    `aligns` has "left", "right", "center" or "" for each column. `sources` has the number of the
    source line for each row.
    """
    wanted = [max(1, *map(measure_cell_width, column)) for column in zip(*rows, strict=True)]
    widths = fit_column_widths(wanted, width)
    laid = [
        [wrap_spans(cell, room) for cell, room in zip(row, widths, strict=True)] for row in rows
    ]
    # If any cell has several lines, separate all rows by blank lines.
    tall = any(len(cell) > 1 for cells in laid[1:] for cell in cells)
    lines: StyledLines = []
    for number, (cells, source) in enumerate(zip(laid, sources, strict=True)):
        if tall and number > 1:
            lines.append(StyledLine([(" │ ".join(" " * w for w in widths), "rule")], source))
        for parts in zip_longest(*cells, fillvalue=StyledLine()):
            spans: Spans = []
            for part, room, align in zip(parts, widths, aligns, strict=True):
                spans += [(" │ ", "rule")] if spans else []
                spans += _align_table_cell(part.spans, room, align)
            lines.append(StyledLine(spans if number else add_style_role(spans, "strong"), source))
        if number == 0:
            lines.append(StyledLine([("─┼─".join("─" * w for w in widths), "rule")], source))
    return lines


def _align_table_cell(spans: Spans, width: int, align: str) -> Spans:
    space = max(0, width - measure_cell_width(spans))
    before = {"right": space, "center": space // 2}.get(align, 0)
    return [(" " * before, ""), *spans, (" " * (space - before), "")]


SHORT_LINE = 45
"""A line break in a paragraph is shown only after a line with fewer characters than this.

After a longer line, an editor probably inserted the line break.
"""

_TASK = re.compile(r"\[([ xX])\] ")
_LINK_DEFINITION = re.compile(r"^ {0,3}\[([^\]\n]{1,200})\]:[ \t]*(\S+)", re.MULTILINE)


def find_link_definitions(text: str) -> dict[str, dict[str, str]]:
    """Return the link definitions of a text in the form that `parse_markdown` expects."""
    if "]:" not in text:
        return {}
    return {
        " ".join(name.split()).upper(): {"href": url.strip("<>"), "title": ""}
        for name, url in _LINK_DEFINITION.findall(text)
    }


def lay_out_markdown(
    text: str,
    width: int,
    *,
    found: HighlightPattern | None = None,
    links: dict[str, dict[str, str]] | None = None,
    breaks: bool = False,
    first_line: int = 1,
    code_offset: int | None = None,
) -> StyledLines:
    """Lay out Markdown in lines of `width` cells.

    Raw HTML is shown as text, and images are not loaded.

    * `links` are the link definitions of the whole document.
    * If `breaks` is true, line breaks after short lines of a paragraph are kept (see
      `SHORT_LINE`).
    * `first_line` is the number of the text's first line in its file.
    * If `code_offset` is not None, code is not wrapped, but scrolled to the left by this number of
      cells.
    """
    from markdown_it.tree import SyntaxTreeNode

    tokens = parse_markdown(sanitize(text).expandtabs(TAB_WIDTH), links)
    layout = _MarkdownToStyledLinesRenderer(found, breaks, first_line, code_offset)
    return layout.lay_out_markdown_nodes(SyntaxTreeNode(tokens).children, width)


def parse_markdown(text: str, links: dict[str, dict[str, str]] | None = None) -> list[Token]:
    """Parse Markdown. `links` are the link definitions of the whole document."""
    return _get_markdown_parser().parse(text, {"references": dict(links or {})})


@lru_cache(maxsize=1)
def _get_markdown_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


@dataclass
class _MarkdownToStyledLinesRenderer:
    matches: HighlightPattern | None
    breaks: bool
    first_line: int
    code_offset: int | None

    def lay_out_markdown_nodes(
        self, nodes: list[SyntaxTreeNode], width: int, tight: bool = False
    ) -> StyledLines:
        """Lay out blocks. Blank lines separate them unless `tight` is true."""
        lines: StyledLines = []
        for node in nodes:
            made = self._lay_out_markdown_node(node, max(width, 8))
            if made and lines and not tight:
                lines.append(StyledLine(source_line=made[0].source_line))
            lines += made
        return lines

    def _find_source_line_of_node(self, node: SyntaxTreeNode) -> int:
        return self.first_line + node.map[0] if node.map else 0

    def _lay_out_markdown_node(self, node: SyntaxTreeNode, width: int) -> StyledLines:
        kind, source = node.type, self._find_source_line_of_node(node)
        if kind == "paragraph":
            return self._lay_out_paragraph_with_line_breaks(
                self._render_child_nodes(node), width, source
            )
        if kind == "heading":
            spans = add_style_role(self._render_child_nodes(node), node.tag)
            lines = self._lay_out_paragraph_with_line_breaks(spans, width, source)
            if node.tag == "h1":
                rule = "━" * min(width, max(measure_cell_width(line.spans) for line in lines))
                lines.append(StyledLine([(rule, "h1 rule")], source))
            return lines
        if kind in ("bullet_list", "ordered_list"):
            return self._lay_out_markdown_list(node, width)
        if kind == "blockquote":
            lines = self.lay_out_markdown_nodes(node.children, width - 2)
            for line in lines:
                line.spans = [("▎ ", "marker"), *add_style_role(line.spans, "quote")]
            return lines
        if kind in ("fence", "code_block"):
            language = (node.info.split() or [""])[0] if kind == "fence" else ""
            text, start = node.content.removesuffix("\n"), source + (kind == "fence")
            return lay_out_code_panel(text, language, width, start, self.matches, self.code_offset)
        if kind == "hr":
            return [StyledLine([("─" * width, "rule")], source)]
        if kind == "table":
            return self._lay_out_table_node(node, width)
        lines = []
        for number, text in enumerate(node.content.rstrip("\n").split("\n"), source):
            lines += wrap_code_line(
                highlight_matches([(text, "html")], self.matches), width, number
            )
        return lines

    def _lay_out_paragraph_with_line_breaks(
        self, spans: Spans, width: int, source: int
    ) -> StyledLines:
        lines: StyledLines = []
        number = source
        for paragraph in _split_paragraph_at_breaks(spans):
            made = wrap_spans(highlight_matches(paragraph, self.matches), width, source=source)
            ends = list(_count_nonspace_characters_up_to_line_ends(paragraph))
            if ends or number > source:
                _set_source_lines_covered_by_lines(made, ends, number)
            lines += made
            number += len(ends) + 1
        return lines

    def _lay_out_markdown_list(self, node: SyntaxTreeNode, width: int) -> StyledLines:
        number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        digits = len(str(number + len(node.children) - 1)) if number is not None else 0
        lines: StyledLines = []
        blocks = [block for item in node.children for block in item.children]
        tight = all(block.hidden for block in blocks if block.type == "paragraph")
        for offset, item in enumerate(node.children):
            marker = "• " if number is None else f"{number + offset:>{digits}}. "
            made = self.lay_out_markdown_nodes(item.children, width - len(marker), tight)
            made = made or [StyledLine(source_line=self._find_source_line_of_node(item))]
            for index, line in enumerate(made):
                lead = (" " * len(marker), "") if index else (marker, "marker")
                line.spans = [lead, *line.spans]
            lines += [StyledLine(), *made] if lines and not tight else made
        return lines

    def _lay_out_table_node(self, node: SyntaxTreeNode, width: int) -> StyledLines:
        rows = [row for part in node.children for row in part.children]
        cells = [[self._render_child_nodes(cell) for cell in row.children] for row in rows]
        cells = [[highlight_matches(cell, self.matches) for cell in row] for row in cells]
        styles = [str(cell.attrs.get("style", "")) for cell in rows[0].children]
        aligns = [style.partition(":")[2] for style in styles]
        return lay_out_table(cells, aligns, width, list(map(self._find_source_line_of_node, rows)))

    def _render_child_nodes(self, node: SyntaxTreeNode) -> Spans:
        spans: Spans = []
        for child in node.children:
            is_inline = child.type == "inline"
            render = self._render_child_nodes if is_inline else self._render_inline_node
            spans += render(child)
        if spans and (match := _TASK.match(spans[0][0])):
            box = "☐ " if match[1] == " " else "☑ "
            spans[0] = (box + spans[0][0][match.end() :], spans[0][1])
        return spans

    def _render_inline_node(self, node: SyntaxTreeNode) -> Spans:
        kind = node.type
        roles = {"html_inline": "html", "code_inline": "code-inline"}
        if kind in ("text", "text_special", *roles):
            return [(node.content, roles.get(kind, ""))]
        if kind == "softbreak":
            return [("\n" if self.breaks else " ", "soft")]
        if kind == "hardbreak":
            return [("\n", "")]
        if kind == "image":
            return [(f"[image: {node.content or node.attrs.get('src', '')}]", "link")]
        inner = self._render_child_nodes(node)
        if kind == "link":
            url = str(node.attrs.get("href", ""))
            text = join_span_texts(inner)
            shown = add_style_role(inner, "link")
            if "://" in url and url not in (text, f"mailto:{text}"):
                shown.append((f" ({url})", "dim"))
            return shown
        role = {"strong": "strong", "em": "emph", "s": "struck"}.get(kind, "")
        return add_style_role(inner, role) if role else inner


def _count_nonspace_characters_up_to_line_ends(spans: Spans) -> Iterator[int]:
    """For each source line of a paragraph except the last, yield how many characters precede its end.

    White space is not counted, because wrapping removes some of it.
    """
    count = 0
    for text, role in spans:
        if "soft" in role:
            yield count
        count += len("".join(text.split()))


def _set_source_lines_covered_by_lines(lines: StyledLines, ends: list[int], first: int) -> None:
    """Set `covered_source_lines` in each line of a paragraph.

    `ends` comes from `_count_nonspace_characters_up_to_line_ends`, and `first` is the number of the
    first source line.
    """
    count = 0
    for line in lines:
        start, count = count, count + len("".join(line.plain.split()))
        line.covered_source_lines = (
            first + bisect_right(ends, start),
            first + bisect_left(ends, max(count, start + 1)),
        )


def _split_paragraph_at_breaks(spans: Spans) -> list[Spans]:
    """Split a paragraph at its hard line breaks, and at newlines that follow a short line.

    A newline after a short line is probably meant as a line break. A newline after a long line
    probably comes from an editor that wraps lines.
    """
    parts: list[Spans] = [[]]
    written = 0
    for text, role in spans:
        if "soft" in role:
            if text == " " or written >= SHORT_LINE:
                parts[-1].append((" ", role))
            else:
                parts.append([])
            written = 0
            continue
        written += len(text)
        first, *others = text.split("\n")
        if first:
            parts[-1].append((first, role))
        parts += [[(part, role)] if part else [] for part in others]
    return parts


def lay_out_code_panel(
    text: str,
    language: str,
    width: int,
    first_line: int = 0,
    found: HighlightPattern | None = None,
    code_offset: int | None = None,
) -> StyledLines:
    """Lay out code on a coloured background that is `width` cells wide."""
    lines: StyledLines = []
    for number, spans in enumerate(highlight_source_code(text, language)):
        source = first_line + number if first_line else 0
        for line in wrap_code_line(highlight_matches(spans, found), width - 3, source, code_offset):
            space = " " * (width - 2 - measure_cell_width(line.spans))
            line.spans = add_style_role([("  ", ""), *line.spans, (space, "")], "code")
            lines.append(line)
    return lines


CharacterRange = tuple[int, int]
"""A range of characters: the index of the first one, and the index after the last one."""

_POSSIBLE_MARK = re.compile(r"[*_`~>#\[|]|---|^[ \t]*[-+] ", re.MULTILINE)
_FENCE_MARK = re.compile(r"^ {0,3}(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
_LINE_MARK = re.compile(
    r"^(?:(?P<quote>(?: {0,3}>[ \t]?)+)(?:\[!(?P<note>\w+)\])?"
    r"|(?P<heading> {0,3}\#{1,6}[ \t]+)"
    r"|(?P<rule>[ \t|:]*-{3}[-|: \t]*|[ \t]*\*{3}[* \t]*|[ \t]*_{3}[_ \t]*)$"
    r"|(?P<item>[ \t]*[-*+][ \t]+)(?=\S)"
    r"|(?P<row>[ \t]*\|[^\n]*\|[ \t]*$))",
    re.MULTILINE,
)
_INLINE_MARK = re.compile(
    r"(?=[\\`!\[*_~])(?:"
    r"\\(?P<escaped>[!-/:-@\[-`{-~])|"
    r"(?P<code>`{1,2})(?!`)(?P<coded>(?:[^`\n]|\n(?!\n)){1,300})(?P=code)(?!`)"
    r"|!?\[(?P<linked>(?:[^\[\]\n]|\n(?!\n)){1,300})\]\([^()\s]{0,500}(?: \"[^\"\n]{0,200}\")?\)"
    r"|(?<![\w\])])!?\[(?P<referred>(?:[^\[\]\n]|\n(?!\n)){1,300})\]\[[^\[\]\n]{1,100}\](?!\()"
    r"|(?<![\w*])\*\*(?![\s*])(?P<bold>(?:[^*\n]|\n(?!\n)|\*(?!\*)){1,300})(?<!\s)\*\*(?![\w*])"
    r"|(?<![\w*])\*(?![\s*])(?P<star>(?:[^*\n]|\n(?!\n)){1,300})(?<!\s)\*(?![\w*])"
    # Keep double underscores, because they may be part of a Python name.
    r"|(?<!\w)_(?![\s_])(?P<low>(?:[^_\n]|\n(?!\n)){1,300})(?<!\s)_(?!\w)"
    r"|(?<!~)~~(?![\s~])(?P<struck>(?:[^~\n]|\n(?!\n)){1,300})(?<!\s)~~(?!~)"
    r")"
)
_TABLE_BAR = re.compile(r"(?<!\\)\|")
_NESTED_GROUPS = ("linked", "referred", "bold", "star", "low", "struck")
_MAX_NESTING = 3
"""The maximum nesting depth of inline marks that are removed."""


def strip_markdown_and_move_matches(
    text: str, matches: list[CharacterRange], reach: int | None = None
) -> tuple[str, list[CharacterRange]]:
    """Remove Markdown marks from a text; return the text and the new positions of `matches`.

    `matches` are the positions of matches of a query, in ascending order. Marks inside code,
    unclosed marks, and marks that overlap a match are not removed. List bullets and table bars
    become dots, so that the text is readable on one line. Only the first `reach` characters are
    searched for marks; None means the whole text.
    """
    if not _POSSIBLE_MARK.search(text):
        return text, matches
    dots: list[int] = []
    end = len(text) if reach is None else reach
    gone = sorted(
        mark
        for group in _find_markup_ranges(text, end, dots)
        if not any(start < b and a < end for start, end in group for a, b in matches)
        for mark in group
    )
    signs = list(text)
    for at in dots:
        if not any(start <= at < end for start, end in matches):
            signs[at] = "·"
    for start, end in gone:
        signs[start:end] = [""] * (end - start)
    moved = []
    for start, end in matches:
        lost = sum(after - at for at, after in gone if after <= start)
        moved.append((start - lost, end - lost))
    return "".join(signs), moved


def _find_markup_ranges(text: str, reach: int, dots: list[int]) -> Iterator[list[CharacterRange]]:
    """Yield each group of Markdown marks that belong together, as a list of their ranges.

    For example, an opening `**` and its closing `**` are one group. Only the first `reach`
    characters of the text are searched. The positions of list bullets and table bars are added to
    `dots`.
    """
    position = 0
    opened = ""
    for fence in _FENCE_MARK.finditer(text, 0, reach):
        sign, words = fence[1], fence[2].strip()
        if opened and (not sign.startswith(opened) or words):
            continue
        if not opened:
            yield from _find_prose_markup_ranges(text, position, fence.start(), dots)
        yield [fence.span(1)]
        if words:
            yield [fence.span(2)]
        opened = "" if opened else sign
        position = fence.end()
    if not opened:
        yield from _find_prose_markup_ranges(text, position, reach, dots)


def _find_prose_markup_ranges(
    text: str, start: int, end: int, dots: list[int]
) -> Iterator[list[CharacterRange]]:
    for line in _LINE_MARK.finditer(text, start, end):
        if line["item"]:
            dots.append(line.start("item") + len(line["item"]) - len(line["item"].lstrip()))
        elif line["row"]:
            first, *others = (
                bar.start() for bar in _TABLE_BAR.finditer(text, line.start(), line.end())
            )
            # A row gets one dot at its start, and one dot after each cell except the last.
            dots += [first, *others[:-1]]
            if others:
                yield [(others[-1], others[-1] + 1)]
        elif line["note"]:
            yield [line.span("quote")]
            at, after = line.span("note")
            yield [(at - 2, at), (after, after + 1)]
        elif line.end() > line.start():
            yield [line.span()]
    yield from _find_inline_markup_ranges(text, start, end, _MAX_NESTING)


def _find_inline_markup_ranges(
    text: str, start: int, end: int, depth: int
) -> Iterator[list[CharacterRange]]:
    for found in _INLINE_MARK.finditer(text, start, end):
        name = found.lastgroup or ""
        at, after = found.span(name)
        yield [(found.start(), at), (after, found.end())]
        if name in _NESTED_GROUPS and depth:
            yield from _find_inline_markup_ranges(text, at, after, depth - 1)
