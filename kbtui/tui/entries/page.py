"""An entry's page: its facts, the turns that used it lately, its chunks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError
from kbtui.index.entry_query import CITES_DAYS, chunks_of
from kbtui.text import one_line, safe
from kbtui.tui.clock import iso_day, moment
from kbtui.tui.entries.table import SIGNS
from kbtui.tui.framework.styled_text import StyledLine, TextMatches, wrap
from kbtui.tui.reader.blocks import FactsBlock, FoldBlock, HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document, counted

if TYPE_CHECKING:
    from datetime import datetime

    from kbtui.citations.models import Citation
    from kbtui.index.entry_query import EntryRow
    from kbtui.library import Library
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.reader.blocks import Block

PREVIEW = 200
CITES_MOST = 500
NO_MODEL = "no vector"


@dataclass(slots=True, eq=False)
class ChunkBlock(FoldBlock):
    """A chunk: its first characters, all of it when unfolded."""

    text: str = ""

    def layout(self, width: int, found: TextMatches | None, opened: bool) -> list[StyledLine]:
        """The head line, then the text as far as it shows."""
        lines = FoldBlock.layout(self, width, found, opened)
        text = self.text if opened or len(self.text) <= PREVIEW else f"{self.text[:PREVIEW]}…"
        margin: Spans = [("  ", "")]
        for part in safe(text).split("\n"):
            lines += wrap([(part, "" if opened else "dim")], width, margin, margin)
        return lines

    def estimate(self, width: int) -> int:
        """The head line and the preview."""
        return self.above + 2 + min(len(self.text), PREVIEW) // max(8, width)

    def search_text(self) -> str:
        """The text."""
        return self.text


def entry_document(library: Library, row: EntryRow, present: datetime) -> Document:
    """The page of an entry; called in a thread."""
    chunks = chunks_of(library.reader(), row.id)
    source, error = _source(library, row)
    blocks: list[Block] = [
        NoteBlock("title", [(one_line(row.title), "h1")]),
        FactsBlock("facts", _facts(row, source)),
    ]
    if problem := row.error or error:
        blocks.append(NoteBlock("error", [(f"! {one_line(problem)}", "error")], above=1))
    blocks += _citations(library, row, present)
    blocks.append(
        HeadBlock(
            "chunks", [("Passages", "h2")], [(counted(len(chunks), "passage"), "dim")], above=1
        )
    )
    for number, chunk in enumerate(chunks, 1):
        where = _where(chunk)
        size = counted(chunk["characters"], "character")
        left: Spans = [(f"{number} ", "number"), (size, ""), (where, "dim")]
        right: Spans = [(chunk["model"] or NO_MODEL, "dim" if chunk["model"] else "warning")]
        blocks.append(
            ChunkBlock(f"chunk:{chunk['chunk_id']}", left, right, kind="chunk", text=chunk["text"])
        )
    return Document(f"entry:{row.id}", one_line(row.ref), blocks, ref=row.ref, record=row)


def _facts(row: EntryRow, source: str | None) -> list[tuple[str, Spans]]:
    sign, role = SIGNS.get(row.status, ("?", "dim"))
    facts: dict[str, Spans] = {
        "entry": [(one_line(row.ref), ""), (f"  {row.id}" if row.id != row.ref else "", "dim")],
        "type": [(one_line(row.type), "")],
        "status": [(f"{sign} ", role), (row.status, "")],
        "tags": [(one_line(", ".join(row.tags)), "")] if row.tags else [],
        "source": [(one_line(source), "")] if source else [],
        "address": [(one_line(row.source_url), "link")] if row.source_url else [],
        "created": [(iso_day(row.created), "")],
        "changed": [(iso_day(row.changed), "")],
        "size": [(f"{row.size:,} bytes", "")],
    }
    return [(name, value) for name, value in facts.items() if value]


def _source(library: Library, row: EntryRow) -> tuple[str | None, str | None]:
    """The source that fetched a subject, and why its front matter counts for nothing."""
    from kbtui.knowledge.front_matter import split_front_matter

    subject = library.knowledge().find(row.topic or "", row.slug or "")
    if subject is None:
        return None, None
    try:
        text = split_front_matter(library.subject_text(subject))
    except KbtuiError as error:
        return None, error.message
    problem = text.problem and f"its front matter counts for nothing: {text.problem}"
    return text.source, problem


def _citations(library: Library, row: EntryRow, present: datetime) -> list[Block]:
    since = present - timedelta(days=CITES_DAYS)
    cites = [
        cite
        for cite in library.turns_citing(library.resolve(row.ref))
        if cite.timestamp is None or cite.timestamp >= since
    ]
    heading = f"Cited in the last {CITES_DAYS} days"
    blocks: list[Block] = [
        HeadBlock("cites", [(heading, "h2")], [(f"{len(cites):,}", "dim")], above=1)
    ]
    if not cites:
        blocks.append(NoteBlock("none", [("No turn used it in this time.", "dim")]))
    for number, cite in enumerate(cites[:CITES_MOST]):
        blocks.append(_cite(number, cite, present))
    if len(cites) > CITES_MOST:
        blocks.append(NoteBlock("further", [(f"and {len(cites) - CITES_MOST:,} more", "dim")]))
    return blocks


def _cite(number: int, cite: Citation, present: datetime) -> Block:
    when = moment(cite.timestamp, present) if cite.timestamp else ""
    left: Spans = [
        (cite.source, "link"),
        (f"  {one_line(cite.source_title)}", ""),
        (f"  {cite.how}", "dim"),
    ]
    return HeadBlock(f"cite:{number}:{cite.source}", left, [(when, "dim")], link=cite.source)


def _where(chunk: dict[str, object]) -> str:
    lines, turn = chunk["lines"], chunk["turn"]
    if isinstance(lines, list):
        first, last = lines
        return f"  line {first}" if first == last else f"  lines {first}–{last}"
    return f"  turn {turn}, {chunk['role']}" if turn else ""
