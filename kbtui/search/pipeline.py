"""`answer`: from a question to hits. The one function behind every face."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from kbtui.notices import Notice
from kbtui.refs import conversation_ref, subject_ref
from kbtui.search.freshness import Freshness
from kbtui.search.fusion import fuse
from kbtui.search.gaps import filters_of, is_gap
from kbtui.search.highlight import Highlighter
from kbtui.search.models import QUERY_CHARACTERS, REACH, Answer, Hit, Ranking
from kbtui.search.narrowing import narrow
from kbtui.search.query_parser import parse_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbtui.index import IndexReader
    from kbtui.index.models import Chunk, Entry
    from kbtui.search.lexical import LexicalSearch, Ranked
    from kbtui.search.models import Question
    from kbtui.workspace import Workspace

    Begun = Callable[[Question, str], Ranking]
    Semantic = Callable[[str], Begun]
    """The semantic leg, in two steps: told the text it may begin, and what it gives then ranks for
    the question and the generation."""


def answer(
    workspace: Workspace,
    reader: IndexReader,
    question: Question,
    semantic: Semantic | None = None,
) -> Answer:
    """Ask both legs, or the one that the mode names, and fuse them.

    Without `semantic`, or when it gives a reason instead of a ranking, the
    answer has keyword hits only, and a notice says why. A query with a
    mistake is not asked; `mistakes` say where it is wrong.
    """
    return respond(SearchRun(workspace, reader, question), semantic)


def respond(asked: SearchRun, semantic: Semantic | None = None) -> Answer:
    """The answer to a question that was read; `asked` keeps what the legs said."""
    result = Answer(
        query=asked.query.text,
        mode=asked.question.mode,
        hits=[],
        partial=asked.question.partial,
        mistakes=tuple(asked.mistakes),
    )
    if not asked.mistakes:
        asked.ask(semantic)
        _fill(result, asked)
        is_typed = asked.question.mode == "hybrid" and asked.question.like is None
        if is_typed and result.hits and not asked.legs["lexical"]:
            asked.notices.insert(0, Notice("meaning_only"))
        result.filters = filters_of(asked.question, asked.query)
        best = result.hits[0] if result.hits else None
        similarity = asked.similarity(best.chunk_id) if best else 0.0
        result.is_gap = is_gap(asked.query, asked.lexical, best, similarity)
        # What is hidden is hidden here too: that something is must not show in what is said.
        result.empty = not asked.scores and asked.reader.is_empty(hidden=asked.question.hidden)
    result.notices = asked.notices
    return result


class SearchRun:
    """A question read against an index, and what the legs ranked."""

    def __init__(self, workspace: Workspace, reader: IndexReader, question: Question) -> None:
        self.notices: list[Notice] = []
        text = question.query
        if len(text) > QUERY_CHARACTERS:
            text = text[:QUERY_CHARACTERS]
            self.notices.append(Notice("query_cut", {"characters": QUERY_CHARACTERS}))
        self.query = parse_query(text, partial=question.partial)
        self.question, self.narrowing, self.mistakes = narrow(
            workspace, reader, self.query, question
        )
        self.notices += [mistake.notice for mistake in self.mistakes[:1]]
        self.notices += self.query.notices
        self.workspace, self.reader = workspace, reader
        self.legs: dict[str, Ranked] = {}
        self.coverage = 1.0
        self.pending: frozenset[int] = frozenset()
        self.scores: dict[int, float] = {}

    @cached_property
    def lexical(self) -> LexicalSearch:
        """The lexical leg; also what knows which words are highlighted."""
        from kbtui.search.lexical import LexicalSearch

        return LexicalSearch(self.reader, self.query, self.question, self.narrowing)

    @cached_property
    def owners(self) -> dict[int, tuple[str, str]]:
        """The ids of the chunks that a leg ranked, each with its entry's; texts are read later."""
        return self.reader.owners(list(self.scores))

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The entries of these chunks."""
        return self.reader.entries({entry_id for _, entry_id in self.owners.values()})

    def similarity(self, chunk_id: str) -> float:
        """How similar the semantic leg found a chunk; 0 where it did not rank it."""
        return next(
            (
                score
                for number, score in self.legs.get("semantic", ())
                if self.owners.get(number, ("",))[0] == chunk_id
            ),
            0.0,
        )

    def order(self) -> list[int]:
        """The chunks that are still in the catalog, best first; ties by chunk id.

        Vectors follow the catalog with some delay, so that what was hidden or
        archived meanwhile is left out here.
        """
        known = [
            number
            for number in self.scores
            if number in self.owners and self._may_show(self.owners[number][1])
        ]
        return sorted(known, key=lambda number: (-self.scores[number], self.owners[number][0]))

    def _may_show(self, entry_id: str) -> bool:
        entry = self.entries.get(entry_id)
        return (
            entry is not None
            and (self.question.hidden or not entry.hidden)
            and (self.question.archived or not entry.archived)
        )

    def ask(self, semantic: Semantic | None) -> None:
        """Fill `legs` and fuse them into `scores`."""
        question = self.question
        # The question is embedded while its words are looked for.
        begun = self._begin(semantic)
        if question.mode != "semantic":
            self.legs["lexical"] = self.lexical.ranked(question.depth)
        if begun is not None:
            self._ask_semantic(begun)
        if question.mode == "semantic" and "semantic" not in self.legs:
            self.legs["lexical"] = self.lexical.ranked(question.depth)
        if "lexical" in self.legs and not self.query.words and not self.query.phrases:
            has_query = self.lexical.sides[0].query is not None
            self.notices.append(Notice("newest_first" if has_query else "nothing_to_look_for"))
        self.scores = fuse(
            {name: [number for number, _ in ranked] for name, ranked in self.legs.items()},
            depth=question.depth,
            coverage=self.coverage,
            pending=self.pending,
        )

    def _begin(self, semantic: Semantic | None) -> Begun | None:
        if self.question.mode == "lexical" or semantic is None or not self.query.spoken:
            return None
        if self.question.tools or self.narrowing.args:
            return _nothing  # tool calls and results have no vectors
        return semantic(self.query.spoken)

    def _ask_semantic(self, begun: Begun) -> None:
        worded = tuple(number for number, _ in self.legs.get("lexical", ()))
        found = begun(replace(self.question, worded=worded), self.reader.generation)
        ranked = found.ranked
        if found.notice:
            self.notices.insert(0, found.notice)
        if ranked is not None:
            self.coverage, self.pending = found.coverage, found.pending
            # What the grammar demands holds for both legs.
            demands = self.query.phrases or self.query.excluded or self.narrowing.without
            self.legs["semantic"] = self._allowed(ranked) if demands else ranked

    def _allowed(self, ranked: Ranked) -> Ranked:
        chunks = self.reader.chunks([number for number, _ in ranked])
        entries = self.reader.entries({entry_id for _, entry_id in chunks.values()})
        kept = []
        for number, score in ranked:
            chunk, entry_id = chunks.get(number, (None, ""))
            entry = entries.get(entry_id)
            if chunk is None or entry is None or not self.narrowing.allows(entry, chunk):
                continue
            says = self.lexical.saying(f"{chunk.text}\n{entry.title}")
            if all(map(says, self.query.phrases)) and not any(map(says, self.query.excluded)):
                kept.append((number, score))
        return kept


def _fill(result: Answer, asked: SearchRun) -> None:
    """Texts from the catalog, each checked against its file; the best `limit` become hits."""
    question = asked.question
    entries = asked.entries
    ranks = {
        name: {number: at for at, (number, _) in enumerate(ranked, 1)}
        for name, ranked in asked.legs.items()
    }
    limit = max(1, min(REACH, question.limit))
    freshness = Freshness(asked.workspace, asked.reader)
    marker = Highlighter(asked.lexical.words, asked.query.phrases, asked.lexical.language)
    order = asked.order()
    chunks: dict[int, tuple[Chunk, str]] = {}
    per_entry: Counter[str] = Counter()
    for at, number in enumerate(order):
        entry_id = asked.owners[number][1]
        if per_entry[entry_id] >= question.per_entry:
            continue
        if len(result.hits) < limit:
            if number not in chunks:
                chunks |= asked.reader.chunks(order[at : at + limit])
            chunk = chunks[number][0] if number in chunks else None
            state = freshness.check(entries[entry_id], chunk) if chunk else None
            if chunk is None or state is None:
                result.omitted += 1
                continue
            hit = _hit(entries[entry_id], chunk, asked.scores[number], state)
            hit.matches = marker.find(chunk.text)
            hit.legs = {name: ranks.get(name, {}).get(number) for name in ("lexical", "semantic")}
            result.hits.append(hit)
        per_entry[entry_id] += 1
        result.total += 1


def _nothing(question: Question, generation: str) -> Ranking:
    """A leg that has no hit."""
    return Ranking([])


def _hit(
    entry: Entry, chunk: Chunk, score: float, state: tuple[str, tuple[int, int] | None]
) -> Hit:
    freshness, lines = state
    if entry.kind == "subject":
        ref = subject_ref(entry.topic or "", entry.slug or "", lines)
    else:
        ref = conversation_ref(entry.conversation or "", chunk.turn, chunk.call)
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
