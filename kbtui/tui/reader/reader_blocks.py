"""The blocks of a document, and the lines that show marks.

A block is laid out when it scrolls into view.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from kbtui.terminal_text import cut_to_width, sanitize, sanitize_to_one_line
from kbtui.tui.framework.styled_text import (
    HighlightPattern,
    Spans,
    StyledLine,
    StyledLines,
    align_spans_to_edges,
    highlight_matches,
    join_span_texts,
    measure_cell_width,
    wrap_code_line,
    wrap_spans,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kbtui.citations.tool_call_citations import CitationKey
    from kbtui.conversations.turn_decision_marks import MarkState, PlacedMark


@dataclass(slots=True, eq=False, repr=False)
class ReaderBlock:
    """A part of a document that is laid out separately.

    * `key` identifies the block, even after a reload.
    * `lead` is put before each line.
    * `above` is the number of blank lines before the block.
    * `fold` is the key of the fold that contains the block.
    * `turn` and `call` are the numbers of the turn and the tool call that the block belongs to.
    * `file` is the path of the file whose change the block shows; None for other blocks.
    * `link` is the reference that Enter opens.
    * `cite` is a citation. Enter shows how the cited subject has changed since the turn.
    * `view` is "user" for a block that compaction hides from the model, "model" for a block that
      only the model sees, and "" for all others.
    * `code_offset` is the number of cells by which code is scrolled to the left. If it is None,
      code is wrapped.
    """

    key: str
    _: KW_ONLY
    lead: Spans = field(default_factory=list)
    above: int = 0
    fold: str | None = None
    turn: int | None = None
    call: int | None = None
    file: str | None = None
    link: str | None = None
    cite: CitationKey | None = None
    view: str = ""
    code_offset: int | None = None

    def lay_out_with_lead_and_space_above(
        self, width: int, found: HighlightPattern | None = None
    ) -> StyledLines:
        """Return the lines of the block, including `lead` and `above`.

        Matches of `found` are highlighted.
        """
        made = self.lay_out_lines(max(8, width - measure_cell_width(self.lead)), found)
        if self.lead:
            for line in made:
                line.spans = [*self.lead, *line.spans]
        return [*(StyledLine() for _ in range(self.above)), *made] if made else []

    @property
    def can_be_opened(self) -> bool:
        """Whether Enter on the block opens something."""
        return self.link is not None or self.cite is not None

    @abstractmethod
    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        """Return the lines of the block, without `lead` and `above`."""

    def estimate_line_count(self, width: int) -> int:
        """Estimate the number of lines without laying the block out."""
        return self.above + 1

    def get_searchable_text(self) -> str:
        """Return the text of the block, for find and copy."""
        return ""


@dataclass(slots=True, eq=False, repr=False)
class TextRangeReaderBlock(ReaderBlock):
    """A block that shows the characters from `start` to `end` (exclusive) of a text.

    `first_line` is the number of the block's first line, counted from 1. It is 0 if references to
    this text cannot contain line numbers.
    """

    text: str
    start: int = 0
    end: int = -1
    first_line: int = 0
    newlines: int = 0

    def __post_init__(self) -> None:
        if self.end < 0:
            self.end = len(self.text)
        self.newlines = self.text.count("\n", self.start, self.end)

    def estimate_line_count(self, width: int) -> int:
        """Estimate the number of lines from the number of characters and line breaks."""
        width = max(8, width - measure_cell_width(self.lead))
        full_lines = (self.end - self.start) // width
        return self.above + 1 + max(self.newlines, full_lines + self.newlines // 2)

    def get_searchable_text(self) -> str:
        return self.text[self.start : self.end]


@dataclass(slots=True, eq=False, repr=False)
class MarkdownReaderBlock(TextRangeReaderBlock):
    """A section of Markdown. `links` has the link definitions of the whole document.

    If `breaks` is true, line breaks after short lines of a paragraph are kept.
    """

    links: dict[str, dict[str, str]] | None = None
    breaks: bool = False

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        from kbtui.tui.reader.markdown_layout import lay_out_markdown

        return lay_out_markdown(
            self.get_searchable_text(),
            width,
            found=found,
            links=self.links,
            breaks=self.breaks,
            first_line=self.first_line or 1,
            code_offset=self.code_offset,
        )


@dataclass(slots=True, eq=False, repr=False)
class VerbatimTextReaderBlock(TextRangeReaderBlock):
    """Text shown as it is written, without Markdown layout.

    `numbers` is the width of the column with line numbers; 0 means that there is no such column. If
    `panel` is true, the text is shown on a coloured background.
    """

    language: str = ""
    numbers: int = 0
    panel: bool = False

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        """Lay out the lines of the code. The syntax is highlighted if the language is known."""
        from kbtui.tui.reader.markdown_layout import highlight_source_code, lay_out_code_panel

        text = self.get_searchable_text().removesuffix("\n")
        offset = self.code_offset
        if self.panel:
            return lay_out_code_panel(text, self.language, width, self.first_line, found, offset)
        lines: StyledLines = []
        room = width - (self.numbers + 2 if self.numbers else 0)
        for number, spans in enumerate(highlight_source_code(text, self.language), self.first_line):
            source = number if self.first_line else 0
            for index, line in enumerate(
                wrap_code_line(highlight_matches(spans, found), room, source, offset)
            ):
                if self.numbers:
                    label = "" if index else number
                    line.spans.insert(0, (f"{label:>{self.numbers}}  ", "dim"))
                lines.append(line)
        return lines


@dataclass(slots=True, eq=False, repr=False)
class LeftAndRightLineBlock(ReaderBlock):
    """A line with text at both edges. If `rule` is true, a horizontal rule joins the two texts."""

    left: Spans
    right: Spans = field(default_factory=list)
    rule: bool = False

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        if not self.rule:
            left = highlight_matches(self.left, found)
            return [StyledLine(align_spans_to_edges(left, self.right, width))]
        end: Spans = [(" ", ""), *self.right] if self.right else []
        dashes = max(0, width - measure_cell_width([*self.left, *end]))
        spans = [*self.left, ("─" * dashes, "rule"), *end]
        return [StyledLine(align_spans_to_edges(spans, [], width))]

    def get_searchable_text(self) -> str:
        return join_span_texts(self.left)


def make_heading_block_with_note(
    key: str, text: str, note: str = "", above: int = 1
) -> LeftAndRightLineBlock:
    """Return a heading with a note at the right edge."""
    return LeftAndRightLineBlock(key, [(text, "h2")], [(note, "dim")] if note else [], above=above)


@dataclass(slots=True, eq=False, repr=False)
class FoldHeadingBlock(LeftAndRightLineBlock):
    """The heading of a fold.

    All folds with the same `kind`, such as "tool", can be opened together. `is_open` says whether
    the fold is open. `citation_number` is the number of the tool call's citation in the citations
    pane.
    """

    kind: str = "tool"
    citation_number: int | None = None
    is_open: bool = False

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        """Return one line: an arrow, the summary of the fold and its citation number."""
        note: Spans = [(f" [{self.citation_number}]", "note")] if self.citation_number else []
        right = [*self.right, *note]
        left = [("▾ " if self.is_open else "▸ ", "dim"), *highlight_matches(self.left, found)]
        return [StyledLine(align_spans_to_edges(left, right, width))]


@dataclass(slots=True, eq=False, repr=False)
class FactTableReaderBlock(ReaderBlock):
    """A table with a name and a value in each row. `name_role` is the style role of the names."""

    facts: list[tuple[str, Spans]]
    name_role: str = "dim"

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        """Return the lines of the table. A long value is wrapped within its column."""
        column = min(max((len(name) for name, _ in self.facts), default=0), 16)
        hang = [(" " * (column + 2), "")]
        lines: StyledLines = []
        for name, value in self.facts:
            label = [(f"{name:<{column}}  ", self.name_role)]
            lines += wrap_spans(highlight_matches(value, found), width, label, hang)
        return lines

    def estimate_line_count(self, width: int) -> int:
        return self.above + len(self.facts)

    def get_searchable_text(self) -> str:
        return "\n".join(join_span_texts(value) for _, value in self.facts)


@dataclass(slots=True, eq=False, repr=False)
class ParagraphReaderBlock(ReaderBlock):
    """A wrapped paragraph of styled text, such as a note or a message."""

    spans: Spans

    def lay_out_lines(self, width: int, found: HighlightPattern | None) -> StyledLines:
        """Wrap the text and keep its line breaks."""
        text = join_span_texts(self.spans)
        if "\n" not in text:
            return wrap_spans(highlight_matches(self.spans, found), width)
        lines: StyledLines = []
        for part in sanitize(text).split("\n"):
            lines += wrap_spans(highlight_matches([(part, self.spans[0][1])], found), width)
        return lines

    def get_searchable_text(self) -> str:
        return join_span_texts(self.spans)


def make_source_text_blocks(
    key: str, text: str, *, has_line_numbers: bool = False, above: int = 0, **fields: Any
) -> list[ReaderBlock]:
    """Split a text into `VerbatimTextReaderBlock`s with the keys `key:0`, `key:1` and so on.

    * `above` is the number of blank lines above the first block.
    * `fields` contains other attributes of all blocks.
    * If `has_line_numbers` is true, references to the text can contain line numbers.
    """
    from kbtui.tui.reader.markdown_layout import split_source_text_into_sections

    blocks: list[ReaderBlock] = []
    for number, section in enumerate(split_source_text_into_sections(text)):
        first_line = section.first_line if has_line_numbers else 0
        part = (f"{key}:{number}", text, section.start, section.end, first_line)
        blocks.append(VerbatimTextReaderBlock(*part, above=0 if number else above, **fields))
    return blocks


def make_markdown_blocks(
    key: str,
    text: str,
    *,
    start: int = 0,
    lines_before: int | None = None,
    above: int = 0,
    breaks: bool = False,
) -> list[ReaderBlock]:
    """Split a Markdown text into blocks, from character `start` on.

    Long fenced code becomes `VerbatimTextReaderBlock`s.

    * `lines_before` is the number of lines before `start`; None means that the blocks need no line
      numbers.
    * `above` is the number of blank lines above the first block.
    * If `breaks` is true, line breaks after short lines of a paragraph are kept.
    """
    from kbtui.tui.reader.markdown_layout import (
        find_link_definitions,
        split_markdown_into_sections_at_blank_lines,
    )

    body = text[start:]
    links = find_link_definitions(body)
    blocks: list[ReaderBlock] = []
    for number, section in enumerate(split_markdown_into_sections_at_blank_lines(body)):
        first_line = 0 if lines_before is None else lines_before + section.first_line
        part = (f"{key}:{number}", text, start + section.start, start + section.end, first_line)
        block: ReaderBlock
        if section.code:
            block = VerbatimTextReaderBlock(*part, language=section.language, panel=True)
        else:
            block = MarkdownReaderBlock(*part, links=links, breaks=breaks)
        block.above = int(not section.continued) if number else above
        blocks.append(block)
    return blocks


def make_blocks_of_problem_and_hint(
    said: Spans, where: str | None, hint: str | None
) -> list[ReaderBlock]:
    """Return a block with the message `said`, and a table with `where` and `hint`.

    A row without text is left out. If both rows are left out, there is no table.
    """
    known = [("where", where), ("hint", hint)]
    facts = [(name, [(sanitize_to_one_line(text), "")]) for name, text in known if text]
    blocks: list[ReaderBlock] = [ParagraphReaderBlock("message", said)]
    return [*blocks, FactTableReaderBlock("facts", facts, above=1)] if facts else blocks


MARK_ROLES: dict[MarkState, str] = {
    "decided": "success",
    "rejected": "error",
    "superseded": "warning",
}
"""The style role of a mark's line, by the state of the mark."""


def make_spans_of_users_mark(placed: PlacedMark, *, is_cut: bool = True) -> Spans:
    """Return the line of a mark: its sign and its text. If `is_cut` is true, a long text is cut."""
    # Import this late, so that it does not delay the first paint.
    from kbtui.conversations.turn_decision_marks import MARK_SIGNS, MAX_LISTED_CHARACTERS

    role, label = MARK_ROLES[placed.mark.state], placed.label_in_turn
    label = cut_to_width(label, MAX_LISTED_CHARACTERS) if is_cut else label
    return [(f"{MARK_SIGNS[placed.mark.state]} ", role), (label, role)]


def make_blocks_of_users_marks(
    marks: Iterable[PlacedMark], indent: str = "", key: str = ""
) -> Iterator[ParagraphReaderBlock]:
    """Yield a block for each mark. The block of a "superseded" mark links to the replacement.

    The keys of the blocks begin with `key`. If `indent` is not empty, the blocks are below a row of
    a list, so long marks are cut.
    """
    for placed in marks:
        mark, spans = placed.mark, make_spans_of_users_mark(placed, is_cut=bool(indent))
        lead = [(indent, "")] if indent else []
        yield ParagraphReaderBlock(
            f"{key}mark:{mark.id}", spans, lead=lead, link=mark.superseded_by
        )
