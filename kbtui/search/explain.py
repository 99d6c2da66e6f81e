"""Explains a hit's rank, and why something is not a hit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kbtui.search.freshness import FreshnessChecker
from kbtui.search.models import EmbeddedText, Explanation, LegRank, TermMatch
from kbtui.search.pipeline import SearchRun, build_answer, score_rank

if TYPE_CHECKING:
    from kbtui.index import IndexReader
    from kbtui.index.models import Chunk, Entry
    from kbtui.refs import Ref
    from kbtui.search.lexical import QueryTerm, Ranked
    from kbtui.search.models import Answer, Question
    from kbtui.search.pipeline import SemanticLeg
    from kbtui.workspace import Workspace


DEEP_RANKS = 1000
"""How far down a leg is looked for what it did not find."""


class Explainer:
    """An answer that can be asked why. Costs more than the answer alone."""

    def __init__(
        self,
        workspace: Workspace,
        reader: IndexReader,
        question: Question,
        semantic: SemanticLeg | None = None,
    ) -> None:
        self._workspace, self._reader, self._semantic = workspace, reader, semantic
        self._asked = SearchRun(workspace, reader, question)
        self.answer: Answer = build_answer(self._asked, semantic)
        self._order = self._asked.order()
        self._deep: dict[str, dict[int, tuple[int, float]]] = {}

    def hits(self) -> list[Explanation]:
        """An explanation for each hit of the answer, in order."""
        return [self._of_chunk_id(hit.chunk_id, hit.ref) for hit in self.answer.hits]

    def why(self, ref: Ref) -> Explanation:
        """What kept a subject, a turn or a chunk out; of several chunks the one that came nearest."""
        entry, chunks = find_passages(self._reader, ref)
        if entry is None:
            reason = explain_missing_entry(self._workspace, ref)
            return Explanation(str(ref), "", None, kept_out=[reason])
        if not chunks:
            reason = entry.error or "no text of it is indexed"
            return Explanation(str(ref), entry.title, None, kept_out=[reason])
        explained = [self._explain(entry, chunk, str(ref)) for chunk in chunks]
        return min(explained, key=_rank_nearness)

    def _of_chunk_id(self, chunk_id: str, ref: str) -> Explanation:
        found = self._reader.get_chunk(chunk_id)
        entry = self._reader.get_entries({found[1]}).get(found[1]) if found else None
        if found is None or entry is None:
            return Explanation(ref, "", chunk_id, kept_out=["it is gone since"])
        return self._explain(entry, found[0], ref)

    def _explain(self, entry: Entry, chunk: Chunk, ref: str) -> Explanation:
        asked = self._asked
        number = chunk.number
        rank = self._order.index(number) + 1 if number in self._order else None
        matches, missing = self._matches(entry, chunk)
        explained = Explanation(
            ref=ref,
            title=entry.title,
            chunk_id=chunk.id,
            rank=rank,
            score=round(asked.scores.get(number, 0.0), 6),
            lexical=self._standing("lexical", number, "none of its words is in it"),
            semantic=self._standing("semantic", number, self._no_vector(chunk)),
            matches=matches,
            missing=missing,
            embedded=self._embedded(entry, chunk),
        )
        if any(hit.chunk_id == chunk.id for hit in self.answer.hits):
            return explained
        reasons = list_obstacles(self._workspace, self._reader, asked, entry, chunk)
        if not reasons:
            reasons = self._too_far(explained, entry)
        return replace(explained, kept_out=reasons)

    # the legs

    def _standing(self, leg: str, number: int, absent: str) -> LegRank:
        asked = self._asked
        if leg not in asked.legs:
            return LegRank(note="not asked")
        ranked = asked.legs[leg]
        rank = next((at for at, (other, _) in enumerate(ranked, 1) if other == number), None)
        part = round(self._gives(leg, rank, number), 6)
        if rank is not None:
            return LegRank(rank, round(ranked[rank - 1][1], 6), part)
        if number in self._below(leg):
            rank, score = self._below(leg)[number]
            return LegRank(rank, round(score, 6), part)
        return LegRank(gives=part, note=absent)

    def _gives(self, leg: str, rank: int | None, number: int) -> float:
        asked = self._asked
        coverage = asked.coverage if leg == "semantic" else 1.0
        if leg == "semantic" and number in asked.pending:
            leg, coverage = "lexical", 1.0
            rank = next(at for at, (other, _) in enumerate(asked.legs[leg], 1) if other == number)
        length = len(asked.legs[leg])
        return score_rank(leg, rank, length, depth=asked.question.depth, coverage=coverage)

    def _below(self, leg: str) -> dict[int, tuple[int, float]]:
        """Rank and score further down, every chunk of an entry counted."""
        if leg not in self._deep:
            ranked: Ranked | None = []
            if leg == "lexical":
                ranked = self._asked.lexical.ranked(DEEP_RANKS * 10, per_entry=DEEP_RANKS * 10)
            elif self._semantic is not None and self._asked.legs.get(leg):
                question = replace(self._asked.question, depth=DEEP_RANKS, per_entry=DEEP_RANKS)
                begun = self._semantic(self._asked.query.spoken)
                ranked = begun(question, self._reader.generation).ranked
            self._deep[leg] = {
                number: (at, score) for at, (number, score) in enumerate(ranked or [], 1)
            }
        return self._deep[leg]

    def _no_vector(self, chunk: Chunk) -> str:
        if not chunk.embed:
            return "tool calls and results are found by keywords only"
        if chunk.number in self._asked.pending:
            return "not embedded yet: it counts as by keywords"
        return f"not among the first {DEEP_RANKS}, or not embedded yet"

    def _too_far(self, explained: Explanation, entry: Entry) -> list[str]:
        """Nothing forbids it: others are simply nearer."""
        asked = self._asked
        others = [number for number in self._order if asked.owners[number][1] == entry.id]
        most = asked.question.per_entry
        if len(others) >= most and explained.chunk_id not in {
            asked.owners[number][0] for number in others[:most]
        }:
            return [f"{most} other passages of it come first, and more are not shown of one entry"]
        if explained.rank is not None:
            return [
                f"it stands at {explained.rank}, and {len(self.answer.hits)} are shown: "
                "ask for more with --limit, or more precisely"
            ]
        reasons = []
        for name, standing in (("keywords", explained.lexical), ("meaning", explained.semantic)):
            if standing.rank is not None:
                reasons.append(
                    f"by {name} it stands at {standing.rank}, and the first "
                    f"{asked.question.depth} are looked at"
                )
            elif standing.note != "not asked":
                reasons.append(f"by {name}: {standing.note}")
        return reasons

    # the terms

    def _matches(self, entry: Entry, chunk: Chunk) -> tuple[list[TermMatch], list[str]]:
        """The parts of the query that match the chunk, best first, and the words that do not."""
        found: list[TermMatch] = []
        words: dict[str, bool] = {}
        for side in self._asked.lexical.sides:
            address = side.address(entry.id, chunk.number)
            if address is None:
                continue
            for part in side.parts:
                score = _score(part, side.searcher, address)
                words[part.word] = words.get(part.word, False) or score > 0
                if score > 0:
                    found.append(
                        TermMatch(part.word, part.field, part.term, part.weight, round(score, 4))
                    )
        found.sort(key=lambda match: (-match.score, match.word, match.field))
        return found, [word for word, matched in words.items() if not matched]

    def _embedded(self, entry: Entry, chunk: Chunk) -> EmbeddedText | None:
        if not chunk.embed:
            return None
        from kbtui.index.embedding_queue import NEIGHBOUR_WEIGHT, TITLE_WEIGHT
        from kbtui.index.ingest import find_vector_neighbours

        chunks = self._reader.list_chunks(entry.id)
        position = next((at for at, other in enumerate(chunks) if other.id == chunk.id), None)
        around = find_vector_neighbours(chunks, position) if position is not None else []
        return EmbeddedText(
            chunk.text,
            entry.title,
            TITLE_WEIGHT,
            [other.text for other in around],
            NEIGHBOUR_WEIGHT,
        )


def find_passages(reader: IndexReader, ref: Ref) -> tuple[Entry | None, list[Chunk]]:
    """The entry that a reference names, and those of its chunks that it means; None when the
    index does not have it."""
    from kbtui.index.models import make_subject_id

    if ref.kind == "chunk":
        found = reader.get_chunk(ref.chunk or "")
        return (reader.get_entries({found[1]}).get(found[1]), [found[0]]) if found else (None, [])
    if ref.kind == "conversation":
        entry_id = ref.conversation or ""
    else:
        entry_id = make_subject_id(ref.topic or "", ref.slug or "")
    chunks = reader.list_chunks(entry_id)
    if ref.turn is not None:
        chunks = [chunk for chunk in chunks if chunk.turn == ref.turn]
    if ref.call is not None:
        chunks = [chunk for chunk in chunks if chunk.call == ref.call]
    if ref.lines is not None:
        first, last = ref.lines
        chunks = [c for c in chunks if c.lines and c.lines[0] <= last and c.lines[1] >= first]
    return reader.get_entries({entry_id}).get(entry_id), chunks


def _score(part: QueryTerm, searcher: Any, address: Any) -> float:
    try:
        return float(json.loads(part.query.explain(searcher, address).to_json())["value"])
    except ValueError:
        return 0.0  # it does not match


def _rank_nearness(explained: Explanation) -> tuple[bool, int, int, float]:
    """Orders explanations: what was shown or came nearest first."""
    lexical, semantic = explained.lexical.rank, explained.semantic.rank
    ranks = [rank for rank in (lexical, semantic) if rank is not None]
    return (
        bool(explained.kept_out),
        explained.rank or 1_000_000,
        min(ranks, default=1_000_000),
        -sum(match.score for match in explained.matches),
    )


def explain_missing_entry(workspace: Workspace, ref: Ref) -> str:
    """Why the index has nothing of what a reference names."""
    from kbtui.errors import NothingFound
    from kbtui.knowledge import load_knowledge

    if ref.kind == "chunk":
        return "there is no such chunk any more"
    if ref.kind == "conversation":
        from kbtui.conversations.repository import find_conversation

        try:
            problem = find_conversation(workspace, ref.conversation or "").problem
        except NothingFound as error:
            return error.message
        return problem or "it is not indexed yet: `kbtui index` brings the index up to date"
    knowledge = load_knowledge(workspace)
    topic = knowledge.topics.get(ref.topic or "")
    if topic is None:
        return f"there is no topic {ref.topic!r}"
    if not topic.enable:
        return f"the topic {topic.id} is switched off"
    if ref.slug is None:
        return "a topic has no text of its own: name one of its subjects"
    subject = knowledge.find(topic.id, ref.slug)
    if subject is None:
        return f"the topic {topic.id} has no subject {ref.slug!r}"
    if subject.disabled:
        return "the subject is disabled, and so never searched"
    return "it is not indexed yet: `kbtui index` brings the index up to date"


def list_obstacles(
    workspace: Workspace, reader: IndexReader, asked: SearchRun, entry: Entry, chunk: Chunk
) -> list[str]:
    """The reasons that hold whatever the rank, in words; [] where there is none."""
    if asked.mistakes:
        return [f"the query has a mistake: {asked.mistakes[0]}"]
    found = list(_list_failed_filters(asked.question, entry, chunk))
    if not asked.narrowing.allows(entry, chunk):
        found.append("a filter of the query leaves it out")
    says = asked.lexical.saying(f"{chunk.text}\n{entry.title}")
    found += [f"it does not say “{text}”" for text in asked.query.phrases if not says(text)]
    found += [f"it says “{text}”, which must not be" for text in asked.query.excluded if says(text)]
    if not found and FreshnessChecker(workspace, reader).check(entry, chunk) is None:
        found.append("its text is not in its file any more, or it is disabled since")
    return found


def _list_failed_filters(question: Question, entry: Entry, chunk: Chunk) -> list[str]:
    found = []
    if entry.hidden and not question.hidden:
        found.append("it is hidden, and hidden subjects were not asked for")
    if entry.archived and not question.archived:
        found.append("it is archived, and archived conversations were not asked for")
    if question.exclude is not None and entry.conversation == question.exclude:
        found.append("it is the current conversation")
    for name, value, wanted in (
        ("kind", entry.kind, question.kinds),
        ("topic", entry.topic, question.topics),
        ("type", entry.type or entry.kind, question.types),
        ("role", chunk.role, question.roles),
        ("tool", chunk.tool, question.tools),
    ):
        if wanted and value not in wanted:
            found.append(f"its {name} is {value or 'none'}, searched is {', '.join(wanted)}")
    if question.entries and entry.id not in question.entries:
        found.append("its title has not the words asked for")
    time = chunk.timestamp or entry.changed
    if question.since and time < question.since.timestamp():
        found.append("it is older than what is searched")
    if question.until and time >= question.until.timestamp():
        found.append("it is newer than what is searched")
    return found
