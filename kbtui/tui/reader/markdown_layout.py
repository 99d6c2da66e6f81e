"""Markdown to lines: markdown-it reads it, this lays it out for a terminal.

Raw HTML is shown as it is written, and nothing is fetched.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from kbtui.text import safe
from kbtui.tui.framework.styled_text import (
    Span,
    Spans,
    StyledLine,
    TextMatches,
    mark,
    width_of,
    with_role,
    wrap,
    wrap_code,
)
from kbtui.tui.reader.code import TAB, source_lines
from kbtui.tui.reader.table_layout import table_lines

if TYPE_CHECKING:
    from typing import Any

    from markdown_it.tree import SyntaxTreeNode

SHORT_LINE = 45
"""Characters; a line of a message that is shorter ends where its author ended it."""

_TASK = re.compile(r"\[([ xX])\] ")
_LINK_DEFINITION = re.compile(r"^ {0,3}\[([^\]\n]{1,200})\]:[ \t]*(\S+)", re.MULTILINE)


def link_definitions(text: str) -> dict[str, dict[str, str]]:
    """The link reference definitions of a whole text, for pieces of it that are parsed alone."""
    if "]:" not in text:
        return {}
    return {
        " ".join(name.split()).upper(): {"href": url.strip("<>"), "title": ""}
        for name, url in _LINK_DEFINITION.findall(text)
    }


def markdown_lines(
    text: str,
    width: int,
    *,
    found: TextMatches | None = None,
    links: dict[str, dict[str, str]] | None = None,
    breaks: bool = False,
    first_line: int = 1,
    shift: int | None = None,
) -> list[StyledLine]:
    """`text` laid out in `width` cells.

    `found` is marked wherever it matches; `links` are reference definitions from
    elsewhere in the same document; with `breaks` a line break in a paragraph
    stays one; `first_line` is the number of the text's first line in its file. With
    a `shift` code is not wrapped but moved to the left by so many cells.
    """
    from markdown_it.tree import SyntaxTreeNode

    text = safe(text).expandtabs(TAB)
    tokens = _parser().parse(text, {"references": dict(links or {})})
    return _Page(found, breaks, first_line, shift).blocks(SyntaxTreeNode(tokens).children, width)


@lru_cache(maxsize=1)
def _parser() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


class _Page:
    def __init__(
        self, found: TextMatches | None, breaks: bool, first_line: int, shift: int | None
    ) -> None:
        self.found = found
        self.shift = shift
        self.breaks = breaks
        self.first_line = first_line

    def blocks(
        self, nodes: list[SyntaxTreeNode], width: int, tight: bool = False
    ) -> list[StyledLine]:
        """Blocks below each other, with a blank line between them unless the list is tight."""
        lines: list[StyledLine] = []
        for node in nodes:
            made = self._block(node, max(width, 8))
            if made and lines and not tight:
                lines.append(StyledLine(source=made[0].source))
            lines += made
        return lines

    def _source(self, node: SyntaxTreeNode) -> int:
        return self.first_line + node.map[0] if node.map else 0

    def _block(self, node: SyntaxTreeNode, width: int) -> list[StyledLine]:
        kind = node.type
        if kind == "paragraph":
            return self._prose(self._inline(node), width, self._source(node))
        if kind == "heading":
            return self._heading(node, width)
        if kind in ("bullet_list", "ordered_list"):
            return self._list(node, width)
        if kind == "blockquote":
            return self._quote(node, width)
        if kind in ("fence", "code_block"):
            return self._code(node, width)
        if kind == "hr":
            return [StyledLine([("─" * width, "rule")], self._source(node))]
        if kind == "table":
            return self._table(node, width)
        return [
            line
            for number, text in enumerate(node.content.rstrip("\n").split("\n"))
            for line in wrap_code(
                mark([(text, "html")], self.found), width, self._source(node) + number
            )
        ]

    def _prose(self, spans: Spans, width: int, source: int) -> list[StyledLine]:
        lines: list[StyledLine] = []
        for paragraph in _at_breaks(spans):
            lines += wrap(mark(paragraph, self.found), width, source=source)
        return lines

    def _heading(self, node: SyntaxTreeNode, width: int) -> list[StyledLine]:
        level = int(node.tag[1])
        lines = self._prose(with_role(self._inline(node), f"h{level}"), width, self._source(node))
        if level == 1:
            lines.append(
                StyledLine(
                    [("━" * min(width, max(line.width for line in lines)), "h1 rule")],
                    self._source(node),
                )
            )
        return lines

    def _list(self, node: SyntaxTreeNode, width: int) -> list[StyledLine]:
        number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        digits = len(str(number + len(node.children) - 1)) if number is not None else 0
        lines: list[StyledLine] = []
        tight = all(
            child.hidden
            for item in node.children
            for child in item.children
            if child.type == "paragraph"
        )
        for place, item in enumerate(node.children):
            marker = "• " if number is None else f"{number + place:>{digits}}. "
            made = self.blocks(item.children, width - len(marker), tight) or [
                StyledLine(source=self._source(item))
            ]
            if lines and not tight:
                lines.append(StyledLine())
            for place_of_line, line in enumerate(made):
                lead: Span = (marker, "marker") if place_of_line == 0 else (" " * len(marker), "")
                lines.append(StyledLine([lead, *line.spans], line.source, line.whole, line.more))
        return lines

    def _quote(self, node: SyntaxTreeNode, width: int) -> list[StyledLine]:
        return [
            StyledLine(
                [("▎ ", "marker"), *with_role(line.spans, "quote")],
                line.source,
                line.whole,
                line.more,
            )
            for line in self.blocks(node.children, width - 2)
        ]

    def _code(self, node: SyntaxTreeNode, width: int) -> list[StyledLine]:
        language = (node.info.split() or [""])[0] if node.type == "fence" else ""
        start = self._source(node) + (node.type == "fence")
        text = node.content.removesuffix("\n")
        return code_panel(text, language, width, start, self.found, self.shift)

    def _table(self, node: SyntaxTreeNode, width: int) -> list[StyledLine]:
        rows: list[list[Spans]] = []
        sources: list[int] = []
        aligns: list[str] = []
        for part in node.children:
            for row in part.children:
                rows.append([mark(self._inline(cell), self.found) for cell in row.children])
                sources.append(self._source(row))
                if len(rows) == 1:
                    aligns = [
                        str(cell.attrs.get("style", "")).partition(":")[2] for cell in row.children
                    ]
        return table_lines(rows, aligns, width, sources)

    def _inline(self, node: SyntaxTreeNode) -> Spans:
        spans: Spans = []
        for child in node.children:
            spans += self._piece(child) if child.type != "inline" else self._inline(child)
        if spans and (match := _TASK.match(spans[0][0])):
            box = "☐ " if match[1] == " " else "☑ "
            spans[0] = (box + spans[0][0][match.end() :], spans[0][1])
        return spans

    def _piece(self, node: SyntaxTreeNode) -> Spans:
        kind = node.type
        if kind in ("text", "html_inline", "text_special"):
            return [(node.content, "html" if kind == "html_inline" else "")]
        if kind == "code_inline":
            return [(node.content, "code-inline")]
        if kind == "softbreak":
            return [("\n" if self.breaks else " ", "soft")]
        if kind == "hardbreak":
            return [("\n", "")]
        if kind == "image":
            return [(f"[image: {node.content or node.attrs.get('src', '')}]", "link")]
        inner = self._inline(node)
        if kind == "link":
            return self._link(inner, str(node.attrs.get("href", "")))
        role = {"strong": "strong", "em": "emph", "s": "struck"}.get(kind, "")
        return with_role(inner, role) if role else inner

    def _link(self, inner: Spans, url: str) -> Spans:
        text = "".join(part for part, _ in inner)
        shown = with_role(inner, "link")
        if "://" in url and url not in (text, f"mailto:{text}"):
            shown.append((f" ({url})", "dim"))
        return shown


def _at_breaks(spans: Spans) -> list[Spans]:
    """Cut a paragraph at its breaks; a soft one counts only after a short line.

    A long line was broken by an editor's margin, a short one on purpose.
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


def code_panel(
    text: str,
    language: str,
    width: int,
    first_line: int = 0,
    found: TextMatches | None = None,
    shift: int | None = None,
) -> list[StyledLine]:
    """Code on a panel of its own, `width` cells wide; for `shift` see `wrap_code`."""
    lines: list[StyledLine] = []
    for number, spans in enumerate(source_lines(text, language)):
        source = first_line + number if first_line else 0
        for line in wrap_code(mark(spans, found), width - 3, source, shift):
            space = " " * (width - 2 - width_of(line.spans))
            line.spans = with_role([("  ", ""), *line.spans, (space, "")], "code")
            lines.append(line)
    return lines
