"""Answers a question: runs both legs, fuses their rankings, and makes hits of the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbtui.notices import Notice, make_keywords_only_notice
from kbtui.refs import make_conversation_ref, make_subject_ref
from kbtui.search.analysis import Highlighter
from kbtui.search.filters import list_filters
from kbtui.search.freshness import FreshnessChecker
from kbtui.search.models import (
    LEG_DEPTH,
    MAX_HITS,
    MAX_QUERY_CHARACTERS,
    Answer,
    Hit,
    Question,
    Ranking,
)
from kbtui.search.query_parser import apply_filters, parse_query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kbtui.index import IndexReader
    from kbtui.index.models import Chunk, Entry
    from kbtui.search.analysis import QueryWord
    from kbtui.search.lexical import LexicalSearch, Ranked
    from kbtui.search.query_parser import ParsedQuery
    from kbtui.workspace import Workspace


SemanticRanker = Callable[[Question, str], Ranking]
"""Ranks chunks by vectors for a question and an index generation."""
SemanticLeg = Callable[[str], SemanticRanker]
"""Starts to embed a query's text, and returns the ranker that waits for the vector."""


def search_index(
    workspace: Workspace,
    reader: IndexReader,
    question: Question,
    semantic: SemanticLeg | None = None,
) -> Answer:
    """Ask both legs, or the one that the mode names, and fuse them.

    Without `semantic`, or when it gives a reason instead of a ranking, the
    answer has keyword hits only, and a notice says why. A query with a
    mistake is not asked; `mistakes` say where it is wrong.
    """
    return build_answer(SearchRun(workspace, reader, question), semantic)


def build_answer(asked: SearchRun, semantic: SemanticLeg | None = None) -> Answer:
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
        _fill_hits(result, asked)
        is_typed = asked.question.mode == "hybrid" and asked.question.like is None
        if is_typed and result.hits and not asked.legs["lexical"]:
            asked.notices.insert(0, Notice("meaning_only"))
        result.filters = format_filters(asked.question, asked.query)
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
        if len(text) > MAX_QUERY_CHARACTERS:
            text = text[:MAX_QUERY_CHARACTERS]
            self.notices.append(Notice("query_cut", {"characters": MAX_QUERY_CHARACTERS}))
        self.query = parse_query(text, partial=question.partial)
        self.question, self.narrowing, self.mistakes = apply_filters(
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
        return self.reader.get_chunk_owners(list(self.scores))

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The entries of these chunks."""
        return self.reader.get_entries({entry_id for _, entry_id in self.owners.values()})

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

    def ask(self, semantic: SemanticLeg | None) -> None:
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
        self.scores = fuse_rankings(
            {name: [number for number, _ in ranked] for name, ranked in self.legs.items()},
            depth=question.depth,
            coverage=self.coverage,
            pending=self.pending,
        )

    def _begin(self, semantic: SemanticLeg | None) -> SemanticRanker | None:
        if self.question.mode == "lexical" or semantic is None or not self.query.spoken:
            return None
        if self.question.tools or self.narrowing.args:
            return _rank_nothing  # tool calls and results have no vectors
        return semantic(self.query.spoken)

    def _ask_semantic(self, begun: SemanticRanker) -> None:
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
        chunks = self.reader.get_chunks([number for number, _ in ranked])
        entries = self.reader.get_entries({entry_id for _, entry_id in chunks.values()})
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


def _fill_hits(result: Answer, asked: SearchRun) -> None:
    """Texts from the catalog, each checked against its file; the best `limit` become hits."""
    question = asked.question
    entries = asked.entries
    ranks = {
        name: {number: at for at, (number, _) in enumerate(ranked, 1)}
        for name, ranked in asked.legs.items()
    }
    limit = max(1, min(MAX_HITS, question.limit))
    freshness = FreshnessChecker(asked.workspace, asked.reader)
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
                chunks |= asked.reader.get_chunks(order[at : at + limit])
            chunk = chunks[number][0] if number in chunks else None
            state = freshness.check(entries[entry_id], chunk) if chunk else None
            if chunk is None or state is None:
                result.omitted += 1
                continue
            hit = _make_hit(entries[entry_id], chunk, asked.scores[number], state)
            hit.matches = marker.find(chunk.text)
            hit.legs = {name: ranks.get(name, {}).get(number) for name in ("lexical", "semantic")}
            result.hits.append(hit)
        per_entry[entry_id] += 1
        result.total += 1


def _rank_nothing(question: Question, generation: str) -> Ranking:
    """A leg that has no hit."""
    return Ranking([])


def _make_hit(
    entry: Entry, chunk: Chunk, score: float, state: tuple[str, tuple[int, int] | None]
) -> Hit:
    freshness, lines = state
    if entry.kind == "subject":
        ref = make_subject_ref(entry.topic or "", entry.slug or "", lines)
    else:
        ref = make_conversation_ref(entry.conversation or "", chunk.turn, chunk.call)
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


def make_vector_filters(question: Question) -> dict[str, Any]:
    """What the question leaves of the vectors, as the engine takes it."""
    return {
        "hidden": question.hidden,
        "archived": question.archived,
        "kinds": [] if len(question.kinds) == 2 else list(question.kinds),
        "topics": list(question.topics),
        "types": list(question.types),
        "roles": list(question.roles),
        "since": question.since.timestamp() if question.since else None,
        "until": question.until.timestamp() if question.until else None,
        "exclude": question.exclude,
        "entries": list(question.entries),
    }


def parse_ranking(reply: dict[str, Any]) -> Ranking:
    """The engine's reply as a leg; its `cause` where it could not rank."""
    if "ranked" not in reply:
        return Ranking(None, make_keywords_only_notice(reply["cause"], reply.get("detail") or ""))
    ranked = [(int(number), float(score)) for number, score in reply["ranked"]]
    left, total = int(reply.get("left") or 0), int(reply.get("total") or 0)
    if not left:
        return Ranking(ranked)
    return Ranking(
        ranked,
        Notice("passages_pending", {"total": left}),
        max(1, total - left) / max(1, total),
        frozenset(map(int, reply.get("pending", ()))),
    )


RANK_CONSTANT = 15
LEG_WEIGHTS = {"lexical": 1.0, "semantic": 1.0}
"""Measured (docs/search-quality.md); the documented baseline is k = 60."""


def score_rank(
    leg: str,
    rank: int | None,
    length: int,
    *,
    k: float = RANK_CONSTANT,
    weights: Mapping[str, float] = LEG_WEIGHTS,
    depth: int = LEG_DEPTH,
    coverage: float = 1.0,
) -> float:
    """What a leg of `length` gives to the score of a hit at `rank`, or to one that it lacks.

    `coverage` is the share of chunks, over 0 and up to 1, that the leg could rank at all.
    """
    if rank is None or rank > length:
        if length < depth:
            return 0.0
        rank = length + 1
    return weights.get(leg, 1.0) / (k + rank / coverage)


def fuse_rankings(
    legs: Mapping[str, Sequence[int]],
    *,
    k: float = RANK_CONSTANT,
    weights: Mapping[str, float] = LEG_WEIGHTS,
    depth: int = LEG_DEPTH,
    coverage: float = 1.0,
    pending: Collection[int] = (),
) -> dict[int, float]:
    """The score of every chunk number that a leg ranked.

    `coverage` is the share of chunks that have a vector, `pending` are keyword hits without one.
    """
    held = {
        name: {number: at for at, number in enumerate(ranked, 1)} for name, ranked in legs.items()
    }

    def part(name: str, number: int) -> float:
        share = coverage if name == "semantic" else 1.0
        if name == "semantic" and number in pending:
            name, share = "lexical", 1.0
        ranks = held[name]
        return score_rank(
            name, ranks.get(number), len(ranks), k=k, weights=weights, depth=depth, coverage=share
        )

    return {
        number: sum(part(name, number) for name in held)
        for number in {number for ranked in legs.values() for number in ranked}
    }


RARE_SHARE = 0.05
"""A word that at most this share of all passages has is rare."""
MIN_SIMILARITY = 0.4
"""The least similarity (cosine) of a passage that is about what was asked for (docs/search-quality.md)."""


def format_filters(question: Question, query: ParsedQuery) -> str:
    """What narrowed the search, by its query or its options, as a query spells it."""
    return " ".join(_iter_filters(question, query))


def _iter_filters(question: Question, query: ParsedQuery) -> Iterator[str]:
    fields = {row.key: getattr(question, row.search, None) for row in list_filters("search")}
    for key, value in fields.items():
        if isinstance(value, datetime):
            yield f"{key}:{value.isoformat()}"
        elif value and not (key == "in" and len(value) > 1):
            yield f"{key}:{','.join(map(_quote_value, value))}"
    for part in query.filters:
        if part.excluded or fields.get(part.key) is None:
            yield query.text[part.start : part.end]
    yield from (f"-{_quote_value(text)}" for text in query.excluded)


def _quote_value(text: str) -> str:
    return f'"{text}"' if " " in text or "," in text else text


def is_gap(query: ParsedQuery, lexical: LexicalSearch, best: Hit | None, similarity: float) -> bool:
    """Whether what was asked for seems to be missing, by the best hit and its similarity."""
    if best is None:
        return True
    rare = _find_rare_words(query, lexical)
    if not rare or Highlighter(rare, (), lexical.language).find(f"{best.title}\n{best.text}"):
        return False
    return similarity < MIN_SIMILARITY


def _find_rare_words(query: ParsedQuery, lexical: LexicalSearch) -> list[QueryWord]:
    """The rare words of the question, function words aside; where none is rare, all of them.

    None of a question with a phrase: its hits have that.
    """
    if query.phrases:
        return []
    # Hidden subjects have an index of their own, too small to say what is rare.
    side = lexical.sides[0]
    words = [word for word in side.words if _is_content_word(word)]
    most = max(1, RARE_SHARE * side.searcher.num_docs)
    return [word for word in words if _count_passages(word, side.searcher) <= most] or words


def _is_content_word(word: QueryWord) -> bool:
    return not word.tokens or any(token.weight == 1.0 for token in word.tokens)


def _count_passages(word: QueryWord, searcher: Any) -> int:
    """How many passages have the word, by the rarest of its parts that tell something."""
    return min(
        (
            max(
                searcher.doc_freq(field, term)
                for field, term in (
                    ("body", token.stem),
                    ("title", token.stem),
                    ("code", token.plain),
                    *token.others,
                )
            )
            for token in word.tokens
            if token.weight == 1.0
        ),
        default=0,
    )
