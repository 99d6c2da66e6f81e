"""The types of a search: `SearchRequest`, `SearchAnswer`, `Hit` and others, also as JSON.

These types are `NamedTuple`s instead of data classes, because every search imports this module.
Importing `dataclasses` would take as long as a search (docs/performance.md).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from kbtui.errors import UsageError
from kbtui.light_named_tuple import NamedTuple
from kbtui.notices import Notice, NoticeCode, format_notice, join_notice_texts_with_semicolons
from kbtui.references import Ref, parse_ref

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbtui.conversations.turn_decision_marks import MarkFactsJson

Mode = Literal["hybrid", "lexical", "semantic"]
Kind = Literal["subject", "conversation"]
Freshness = Literal["fresh", "changed"]

MAX_QUERY_CHARACTERS = 1000
"""A query with more characters than this is cut, and the answer contains a notice about it."""
DEFAULT_LIMIT, MAX_LIMIT = 20, 100
LEG_DEPTH = 150
"""By default, each leg fetches at most this many hits before the two legs are fused."""
SCORE_DIGITS = 4
"""The number of decimal places of fused scores. Rounding keeps the legs' rounding errors from changing the order."""
MAX_HITS = 400
"""The maximum number of hits in an answer."""


class SearchRequest(NamedTuple):
    """A query with its options. Equal requests have equal answers in every front end.

    * `partial`: whether the user is still typing the query. If so, the last word matches as a
      prefix.
    * `since` (inclusive) and `until` (exclusive): limits on the times of hits.
    * `exclude`: the id of a conversation that is not searched.
    * `entries`: entry ids. If the list is not empty, only these entries are searched.
    * `per_entry`: the maximum number of hits from one entry; 0 means no maximum. It does not change
      the ranking. The answer counts the passages that are left out.
    * `depth`: the maximum number of hits that are fused from each ranking, by keywords and by
      meaning. If `limit` is higher than the number of these hits, further keyword hits follow them.
    * `like`: a reference. The search finds passages similar to the referenced text, and ignores the
      query.
    * `why`: a reference. The answer explains why the referenced text is not among the hits.
    * `explain`: whether the answer explains each hit.
    * `zone`: the time zone of dates in the query; None means the time zone of this process.
    * `marks`: states of marks. If the list is not empty, only turns with such a mark are searched.
    * `marked`: all marked turns, each as `STATE REFERENCE`. The engine sets it from the user's
      data.
    * `project_name`: the name of the searched project. The engine sets it in a search of all
      projects.
    * `chunks`: chunk numbers. If the list is not empty, only these chunks are searched.
    * `worded`: the chunk numbers of the keyword hits, best first. The search by meaning moves the
      query's vector towards the vector of the first of these chunks that has one.
    * `all_projects`: whether all workspaces that the user has opened are searched.

    Filters in `query` can narrow these options, but never widen them.
    """

    query: str = ""
    mode: Mode = "hybrid"
    kinds: tuple[Kind, ...] = ("subject", "conversation")
    types: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    project_name: str = ""
    chunks: tuple[int, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    archived: bool = False
    hidden: bool = False
    limit: int = DEFAULT_LIMIT
    per_entry: int = 0
    partial: bool = False
    exclude: str | None = None
    entries: tuple[str, ...] = ()
    depth: int = LEG_DEPTH
    worded: tuple[int, ...] = ()
    like: str | None = None
    why: str | None = None
    explain: bool = False
    zone: str | None = None
    all_projects: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object for `parse_search_request_json`, with the fields that differ from their defaults."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in self._asdict().items()
            if value != self._field_defaults[name]
        }


def parse_search_request_json(shape: Mapping[str, Any]) -> SearchRequest:
    """Parse a search request from JSON.

    A date is in ISO 8601 or as the user wrote it. Raises `ValueError` for an unknown field or a
    value of the wrong type. Raises `UsageError` for text that is not a date.
    """
    values: dict[str, Any] = {}
    for name, value in shape.items():
        if name not in SearchRequest._fields:
            raise ValueError(f"unknown field in a search request: {name!r}")
        default = SearchRequest._field_defaults[name]
        if isinstance(default, tuple):
            kind: type = int if name in {"worded", "chunks"} else str
            if not isinstance(value, list | tuple) or not all(isinstance(v, kind) for v in value):
                raise ValueError(f"{name} must be a list of {kind.__name__}")
            value = tuple(value)
        elif name == "mode" and value not in get_args(Mode):
            raise ValueError(f"unknown mode {value!r}")
        elif default is None:
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name} must be of type str")
            if value is not None and name in {"since", "until"}:
                value = _parse_date_of_request_field(name, value)
        elif type(value) is not type(default):
            raise ValueError(f"{name} must be of type {type(default).__name__}")
        values[name] = value
    return SearchRequest(**values)


def _parse_date_of_request_field(field: str, text: str) -> datetime:
    from kbtui.search.filter_definitions import (
        FilterValueError,
        list_filters_accepted_by_input_field,
    )

    row = next(row for row in list_filters_accepted_by_input_field("search") if row.search == field)
    try:
        return row.parse_date_value(text)
    except FilterValueError as error:
        raise UsageError(
            error.message, where=row.joined_command_line_options, hint=error.hint
        ) from error


class QueryMistake(NamedTuple):
    """A mistake in a query.

    `start` and `end` are its offsets in the query. Both are -1 if the mistake is in an option.
    """

    start: int
    end: int
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def as_notice(self) -> Notice:
        """The notice that tells the user about this mistake."""
        return Notice("query_mistake", {"detail": str(self)})


class SemanticRanking(NamedTuple):
    """The result of a search by meaning.

    * `ranked` contains chunk numbers with scores, best first. It is None if semantic search is not
      available.
    * `notice` says why the ranking is missing or incomplete.
    * `coverage` is the fraction of chunks that have a vector.
    * `pending` contains the numbers of keyword hits that have no vector yet.
    """

    ranked: list[tuple[int, float]] | None
    notice: Notice | None = None
    coverage: float = 1.0
    pending: frozenset[int] = frozenset()


class OutdatedCitedSubject(NamedTuple):
    """A subject that has changed or disappeared since it was given to a turn; `ref` is its reference."""

    ref: str
    state: Literal["changed", "gone"]


class Hit(NamedTuple):
    """A chunk of a subject or of a conversation's turn that matches a request.

    * `matches` contains pairs `(start, end)` of offsets in `text`.
    * `lines` are the first and the last line, counted from 1.
    * `legs` contains the ranks of the hit by keywords and by meaning, counted from 1, or None.
    * `freshness` is `changed` if the file has changed since it was indexed but still contains the
      text.
    * `agent` is the agent of the conversation.
    * `parent_id` and `parent_title` identify the conversation to which the hit's conversation
      belongs, such as the conversation that started a subagent.
    * `rewound` means that the user left the turn behind by going back to an earlier turn.
    * `outdated_subjects` are the subjects that have changed since the turn used them.
    * `marks` are the user's marks on the turn.
    * `project`, `workspace` and `also_in` are set in a search of all projects: the project's name,
      the root of the hit's workspace, and the roots of the other workspaces that contain the
      passage.
    * `entry_passages` says how many of the entry's passages the search found, including this one.
    * `answer` is the beginning of the final answer to the request, if the hit is a request or reasoning.
    * `later_turn` is the last of the later turns that match the query at least half as well as this
      hit, or None.
    """

    ref: str
    kind: Kind
    entry_id: str
    chunk_id: str
    title: str
    text: str
    score: float
    matches: Sequence[tuple[int, int]] = ()
    topic: str | None = None
    slug: str | None = None
    lines: tuple[int, int] | None = None
    conversation_id: str | None = None
    turn: int | None = None
    role: str | None = None
    timestamp: datetime | None = None
    agent: str | None = None
    parent_id: str | None = None
    parent_title: str | None = None
    rewound: bool = False
    outdated_subjects: Sequence[OutdatedCitedSubject] = ()
    marks: Sequence[MarkFactsJson] = ()
    freshness: Freshness = "fresh"
    entry_passages: int = 1
    answer: str | None = None
    later_turn: int | None = None
    legs: dict[str, int | None] = {}  # noqa: RUF012  (nobody changes it)
    project: str | None = None
    workspace: str | None = None
    also_in: Sequence[str] = ()

    @property
    def target(self) -> Ref:
        """The parsed `ref`: lines of a subject, or a turn or tool call of a conversation."""
        return parse_ref(self.ref, lambda topic, slug: (topic, slug) == (self.topic, self.slug))

    def as_json(self) -> dict[str, Any]:
        """Return the hit in the documented JSON format, with only the fields of its kind."""
        own: dict[str, Any]
        if self.kind == "subject":
            own = {"topic": self.topic, "slug": self.slug, "lines": list(self.lines or ())}
        else:
            own = {
                "conversation_id": self.conversation_id,
                "turn": self.turn,
                "role": self.role,
                "timestamp": self.timestamp.isoformat() if self.timestamp else None,
                "agent": self.agent,
                "parent_id": self.parent_id,
                "parent_title": self.parent_title,
                "rewound": self.rewound,
                "answer": self.answer,
                "later_turn": self.later_turn,
                "outdated_subjects": [
                    {"ref": ref, "state": state} for ref, state in self.outdated_subjects
                ],
                "marks": list(self.marks),
            }
        if self.project is not None and self.workspace is not None:
            own |= {
                "project": self.project,
                "workspace": self.workspace,
                "also_in": list(self.also_in),
            }
        return {
            "ref": self.ref,
            "kind": self.kind,
            "entry_id": self.entry_id,
            "chunk_id": self.chunk_id,
            "title": self.title,
            "text": self.text,
            "score": self.score,
            "matches": [list(span) for span in self.matches],
            **own,
            "freshness": self.freshness,
            "entry_passages": self.entry_passages,
            "legs": self.legs,
        }

    @classmethod
    def from_json(cls, shape: Mapping[str, Any]) -> Hit:
        """Parse the JSON that `as_json` returns."""
        values: Any = {name: value for name, value in shape.items() if name in cls._fields}
        values["matches"] = [(first, last) for first, last in shape["matches"]]
        values["outdated_subjects"] = [
            OutdatedCitedSubject(**subject) for subject in shape.get("outdated_subjects", ())
        ]
        if lines := shape.get("lines"):
            values["lines"] = (lines[0], lines[1])
        if time := shape.get("timestamp"):
            values["timestamp"] = datetime.fromisoformat(time)
        return cls(**values)


class ChunkRankAndScoreInOneRanking(NamedTuple):
    """The rank of a chunk in one leg: in the ranking by keywords, or in the ranking by meaning.

    * `rank` is counted from 1. A chunk can have a rank even if it is not among the leg's hits. If
      the rank is None, `reason` says why.
    * `score` is the chunk's score in this leg: BM25, or the cosine similarity.
    * `gives` is the part of the fused score that comes from this leg.
    """

    rank: int | None = None
    score: float | None = None
    gives: float = 0.0
    reason: Notice | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON. The key `note` contains the text of the notice `reason`."""
        reason = self.reason
        note = format_notice(reason) if reason else None
        return self._asdict() | {"note": note, "reason": reason._asdict() if reason else None}

    @classmethod
    def from_json(cls, shape: Mapping[str, Any]) -> ChunkRankAndScoreInOneRanking:
        """Parse the JSON that `as_json` returns."""
        reason = Notice(**shape["reason"]) if shape["reason"] else None
        return cls(shape["rank"], shape["score"], shape["gives"], reason)


class QueryTermScore(NamedTuple):
    """A term of a query that matches a chunk.

    The word `word` of the query matches `term` in the field `field` of the index. `weight` is the
    weight of the term, and `score` is the term's share of the BM25 score.
    """

    word: str
    field: str
    term: str
    weight: float
    score: float


class WeightedEmbeddingTexts(NamedTuple):
    """The texts from which a chunk's vector is computed.

    `text` is the chunk's own text, whose weight is 1. `neighbours` are the texts of the chunks
    before and after it.
    """

    text: str
    title: str
    title_weight: float
    neighbours: list[str]
    neighbour_weight: float


class RankExplanation(NamedTuple):
    """The reasons for the rank of a chunk, or for its absence from the hits.

    * `rank` is the rank among all ranked chunks, counted from 1. It is None if the chunk is not
      ranked.
    * `title_gives`, `length_gives` and `place_gives` are the values that the reranker adds to the score. The
      reranker orders turns by the score plus `words_gives`, `reply_gives`, `conversation_gives` and
      `role_gives`; see `RankBonuses`. All these values are 0 for a chunk that was not reranked.
    * `missing` lists the words of the query that the chunk lacks, and the pairs of adjacent query
      words that are not adjacent in the chunk.
    * `kept_out` lists the reasons why the chunk is not shown, in the order in which a user should address them.
    """

    ref: str
    title: str
    chunk_id: str | None
    rank: int | None = None
    score: float = 0.0
    lexical: ChunkRankAndScoreInOneRanking = ChunkRankAndScoreInOneRanking()
    semantic: ChunkRankAndScoreInOneRanking = ChunkRankAndScoreInOneRanking()
    title_gives: float = 0.0
    length_gives: float = 0.0
    words_gives: float = 0.0
    reply_gives: float = 0.0
    conversation_gives: float = 0.0
    role_gives: float = 0.0
    place_gives: float = 0.0
    matches: Sequence[QueryTermScore] = ()
    missing: Sequence[str] = ()
    embedded: WeightedEmbeddingTexts | None = None
    kept_out: Sequence[Notice] = ()

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON.

        The key `reasons` contains the notices in `self.kept_out` as codes with values, and the key
        `kept_out` contains them as text.
        """
        return self._asdict() | {
            "lexical": self.lexical.as_json(),
            "semantic": self.semantic.as_json(),
            "kept_out": [format_notice(notice) for notice in self.kept_out],
            "reasons": [notice._asdict() for notice in self.kept_out],
            "matches": [match._asdict() for match in self.matches],
            "embedded": self.embedded._asdict() if self.embedded else None,
        }

    @classmethod
    def from_json(cls, shape: Mapping[str, Any]) -> RankExplanation:
        """Parse the JSON that `as_json` returns."""
        embedded = shape["embedded"]
        values: Any = {name: value for name, value in shape.items() if name in cls._fields}
        return cls(**values | {
            "lexical": ChunkRankAndScoreInOneRanking.from_json(shape["lexical"]),
            "semantic": ChunkRankAndScoreInOneRanking.from_json(shape["semantic"]),
            "kept_out": [Notice(**notice) for notice in shape["reasons"]],
            "matches": [QueryTermScore(**match) for match in shape["matches"]],
            "embedded": WeightedEmbeddingTexts(**embedded) if embedded else None,
        })  # fmt: skip


class SearchAnswer(NamedTuple):
    """The answer to a `SearchRequest`: the hits, and notices for the user.

    * `total`: the number of ranked hits, of which `hits` are the first.
    * `has_more`: whether more passages contain the words. A search with a `limit` above `total`
      ranks them, too.
    * `omitted`: the number of hits that were left out because their text or file no longer exists.
    * `left_out`: the number of passages that were left out because of `SearchRequest.per_entry`.
    * `mistakes`: the mistakes in the query. If there are any, nothing was searched, and the first
      mistake is also a notice.
    * `empty`: whether the index has no entries to search.
    * `explanations`: an explanation of each hit, if the request asks for explanations.
    * `why`: the reasons for the rank, or for the absence, of the passage in `SearchRequest.why`.
    * `short_refs`: the short forms of references, for lists that people read.
    * `filters`: the filters in effect, in the syntax of queries, for the query log.
    * `is_gap`: whether the workspace seems to have nothing about the query, for the query log.
    """

    query: str
    mode: Mode
    hits: list[Hit]
    total: int = 0
    omitted: int = 0
    left_out: int = 0
    notices: Sequence[Notice] = ()
    partial: bool = False
    has_more: bool = False
    mistakes: tuple[QueryMistake, ...] = ()
    empty: bool = False
    filters: str = ""
    is_gap: bool = False
    explanations: Sequence[RankExplanation] = ()
    why: RankExplanation | None = None
    short_refs: dict[str, str] = {}  # noqa: RUF012  (nobody changes it)

    @property
    def degraded(self) -> str | None:
        """The notices as one line of text; None if there are none."""
        return join_notice_texts_with_semicolons(self.notices)

    def prepend_notices(self, *notices: Notice) -> SearchAnswer:
        """Return this answer with `notices` before its own."""
        return self._replace(notices=[*notices, *self.notices])

    def has_notice(self, code: NoticeCode) -> bool:
        """Return whether there is a notice with this code."""
        return any(notice.code == code for notice in self.notices)

    def as_json(self) -> dict[str, Any]:
        """Return the answer in the documented JSON format."""
        hits = [hit.as_json() for hit in self.hits]
        for hit, explained in zip(hits, self.explanations, strict=False):
            hit["explanation"] = explained.as_json()
        shape: dict[str, Any] = {
            "query": self.query,
            "mode": self.mode,
            "degraded": self.degraded,
            "total": self.total,
            "omitted": self.omitted,
            "left_out": self.left_out,
            "notices": [{"code": notice.code, "values": notice.values} for notice in self.notices],
            "hits": hits,
        }
        if self.why:
            shape["why"] = self.why.as_json()
        return shape

    def as_engine_message(self) -> dict[str, Any]:
        """Return the answer for another process: the documented JSON with `details` added."""
        details = {
            "mistakes": list(self.mistakes),
            "partial": self.partial,
            "has_more": self.has_more,
            "empty": self.empty,
            "filters": self.filters,
            "is_gap": self.is_gap,
            "short_refs": self.short_refs,
        }
        return {**self.as_json(), "details": details}

    @classmethod
    def from_engine_message(cls, shape: Mapping[str, Any]) -> SearchAnswer:
        """Parse the message that `as_engine_message` returns."""
        details = shape["details"]
        why = shape.get("why")
        return cls(
            shape["query"],
            shape["mode"],
            [Hit.from_json(hit) for hit in shape["hits"]],
            total=shape["total"],
            omitted=shape["omitted"],
            left_out=shape["left_out"],
            notices=[Notice(one["code"], one["values"]) for one in shape["notices"]],
            partial=details["partial"],
            has_more=details["has_more"],
            mistakes=tuple(QueryMistake(*mistake) for mistake in details["mistakes"]),
            empty=details["empty"],
            filters=details["filters"],
            is_gap=details["is_gap"],
            short_refs=details["short_refs"],
            explanations=[
                RankExplanation.from_json(hit["explanation"])
                for hit in shape["hits"]
                if "explanation" in hit
            ],
            why=RankExplanation.from_json(why) if why else None,
        )


class EntriesMatchingFilter(NamedTuple):
    """The ids of the entries that a filter selects, and the mistakes in the filter."""

    entries: frozenset[str] = frozenset()
    mistakes: tuple[QueryMistake, ...] = ()
