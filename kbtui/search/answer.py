"""`answer`: from a question to hits. The one function behind every face."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kbtui.refs import conversation_ref, subject_ref
from kbtui.search.freshness import Freshness
from kbtui.search.fusion import DEPTH, fuse
from kbtui.search.marks import find_marks
from kbtui.search.query import parse_query
from kbtui.search.records import LIMIT_MOST, QUERY_CHARACTERS, Answer, Hit

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.index import IndexReader
    from kbtui.index.records import Chunk, Entry
    from kbtui.search.lexical import Ranked
    from kbtui.search.query import Query
    from kbtui.search.records import Question
    from kbtui.workspace import Workspace

    Semantic = Callable[[str, Question, str], tuple[Ranked | None, str | None]]
    """The semantic leg: text, question and generation -> ranked chunks, or None and the reason."""


def answer(
    workspace: Workspace,
    reader: IndexReader,
    question: Question,
    semantic: Semantic | None = None,
) -> Answer:
    """Ask both legs, or the one that the mode names, and fuse them.

    Without `semantic`, or when it gives a reason instead of a ranking, the
    answer has keyword hits only and says why in `degraded`.
    """
    remarks = []
    text = question.query
    if len(text) > QUERY_CHARACTERS:
        text = text[:QUERY_CHARACTERS]
        remarks.append(f"the query was cut at {QUERY_CHARACTERS} characters")
    query = parse_query(text)
    legs: dict[str, Ranked] = {}
    if question.mode != "lexical" and semantic is not None and query.spoken:
        ranked, reason = semantic(query.spoken, question, reader.generation)
        if ranked is not None:
            legs["semantic"] = ranked
        elif reason:
            remarks.insert(0, reason)
    if question.mode != "semantic" or "semantic" not in legs:
        from kbtui.search.lexical import lexical_leg

        legs["lexical"] = lexical_leg(reader, query, question, DEPTH)
    if "semantic" in legs and (query.phrases or query.excluded):
        # What the grammar demands holds for both legs.
        legs["semantic"] = _allowed(reader, query, legs["semantic"])
    scores = fuse({name: [number for number, _ in ranked] for name, ranked in legs.items()})
    result = Answer(
        query=text,
        mode=question.mode,
        hits=[],
        degraded="; ".join(remarks) or None,
        partial=question.partial,
    )
    _fill(result, workspace, reader, question, query, legs, scores)
    return result


def _allowed(reader: IndexReader, query: Query, ranked: Ranked) -> Ranked:
    chunks = reader.chunks([number for number, _ in ranked])
    kept = []
    for number, score in ranked:
        if number not in chunks:
            continue
        text = " ".join(chunks[number][0].text.lower().split())
        if all(" ".join(phrase.lower().split()) in text for phrase in query.phrases) and not any(
            word.lower() in text for word in query.excluded
        ):
            kept.append((number, score))
    return kept


def _fill(
    result: Answer,
    workspace: Workspace,
    reader: IndexReader,
    question: Question,
    query: Query,
    legs: dict[str, Ranked],
    scores: dict[int, float],
) -> None:
    """Texts from the catalog, each checked against its file; the best `limit` become hits."""
    chunks = reader.chunks(list(scores))
    entries = reader.entries({entry_id for _, entry_id in chunks.values()})
    ranks = {
        name: {number: at for at, (number, _) in enumerate(ranked, 1)}
        for name, ranked in legs.items()
    }
    order = sorted(
        (number for number in scores if number in chunks and chunks[number][1] in entries),
        key=lambda number: (-scores[number], chunks[number][0].id),
    )
    limit = max(1, min(LIMIT_MOST, question.limit))
    freshness = Freshness(workspace, reader)
    per_entry: dict[str, int] = {}
    for number in order:
        chunk, entry_id = chunks[number]
        if per_entry.get(entry_id, 0) >= question.per_entry:
            continue
        if len(result.hits) < limit:
            state = freshness.check(entries[entry_id], chunk)
            if state is None:
                result.omitted += 1
                continue
            hit = _hit(entries[entry_id], chunk, scores[number], state)
            hit.matches = find_marks(query, chunk.text)
            hit.legs = {name: ranks.get(name, {}).get(number) for name in ("lexical", "semantic")}
            result.hits.append(hit)
        per_entry[entry_id] = per_entry.get(entry_id, 0) + 1
        result.total += 1


def _hit(
    entry: Entry, chunk: Chunk, score: float, state: tuple[str, tuple[int, int] | None]
) -> Hit:
    freshness, lines = state
    if entry.kind == "subject":
        ref = subject_ref(entry.topic or "", entry.slug or "", lines)
    else:
        ref = conversation_ref(entry.conversation or 0, chunk.turn)
    return Hit(
        ref=str(ref),
        kind=entry.kind,
        entry_id=entry.id,
        chunk_id=chunk.id,
        title=entry.title,
        text=chunk.text,
        score=round(score, 6),
        topic=entry.topic,
        slug=entry.slug,
        lines=lines,
        conversation_id=entry.id if entry.kind == "conversation" else None,
        turn=chunk.turn,
        role=chunk.role,
        timestamp=datetime.fromtimestamp(chunk.timestamp, UTC) if chunk.timestamp else None,
        freshness="changed" if freshness == "changed" else "fresh",
    )
