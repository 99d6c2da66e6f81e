"""Pages that say why: a hit's standing in each leg, and what kept something else out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.text import one_line
from kbtui.tui.reader.blocks import Block, FactsBlock, HeadBlock, NoteBlock
from kbtui.tui.reader.document import Document

if TYPE_CHECKING:
    from kbtui.search.models import Explanation, LegRank
    from kbtui.tui.framework.styled_text import Spans

TERMS = 20
LEGS = {"lexical": "keywords", "semantic": "meaning"}


def explanation_page(explained: Explanation, query: str) -> Document:
    """Everything that is known of one chunk and a question."""
    blocks: list[Block] = [
        NoteBlock("title", [(one_line(explained.title) or explained.ref, "h1")]),
        FactsBlock("what", [("is", [(explained.ref, "")]), ("asked", [(one_line(query), "")])]),
    ]
    if explained.rank is not None:
        verdict: Spans = [(f"stands at {explained.rank}", "strong")]
        verdict.append((f", fused score {explained.score:.4f}", "dim"))
        blocks.append(NoteBlock("rank", verdict, above=1))
    for number, reason in enumerate(explained.kept_out):
        spans: Spans = [(f"✕ {one_line(reason)}", "warning")]
        blocks.append(NoteBlock(f"out:{number}", spans, above=int(not number)))
    if explained.chunk_id is not None:
        _legs(blocks, explained)
    _words(blocks, explained)
    _embedded(blocks, explained)
    return Document("explanation", "Why", blocks)


def _legs(blocks: list[Block], explained: Explanation) -> None:
    facts: list[tuple[str, Spans]] = []
    for leg in ("lexical", "semantic"):
        standing: LegRank = getattr(explained, leg)
        if standing.rank is None:
            said: Spans = [(standing.note or "not found", "dim")]
        else:
            said = [(f"rank {standing.rank}", ""), (f", score {standing.score:.4f}", "dim")]
        if standing.gives:
            said.append((f", gives {standing.gives:.4f}", "dim"))
        facts.append((LEGS[leg], said))
    blocks.append(HeadBlock("head:legs", [("In each ranking", "h2")], above=1))
    blocks.append(FactsBlock("legs", facts))


def _words(blocks: list[Block], explained: Explanation) -> None:
    facts: list[tuple[str, Spans]] = [
        (
            f"{match.score:.2f}",
            [(match.term, "strong"), (f" in {match.field}, weight {match.weight:g}", "dim")],
        )
        for match in explained.matches[:TERMS]
    ]
    if explained.missing:
        facts.append(("not in it", [(", ".join(explained.missing), "")]))
    if facts:
        more = len(explained.matches) - TERMS
        right: Spans = [(f"{more} more", "dim")] if more > 0 else []
        blocks.append(HeadBlock("head:words", [("Words", "h2")], right, above=1))
        blocks.append(FactsBlock("words", facts))


def _embedded(blocks: list[Block], explained: Explanation) -> None:
    made = explained.embedded
    if made is None:
        return
    blocks.append(HeadBlock("head:made", [("What its vector is made of", "h2")], above=1))
    blocks.append(NoteBlock("text", [(one_line(made.text), "")]))
    facts: list[tuple[str, Spans]] = [
        (f"+ {made.title_weight:g} ×", [("its title: ", "dim"), (one_line(made.title), "")])
    ]
    facts += [
        (f"+ {made.neighbour_weight:g} ×", [("beside it: ", "dim"), (one_line(text)[:200], "")])
        for text in made.neighbours
    ]
    blocks.append(FactsBlock("made", facts, above=1))
