"""What a question is, and what an answer is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

from kbtui.errors import UsageError
from kbtui.notices import Notice, NoticeCode, format_notices
from kbtui.refs import Ref, parse_ref

Mode = Literal["hybrid", "lexical", "semantic"]
Kind = Literal["subject", "conversation"]

MAX_QUERY_CHARACTERS = 1000
"""A longer query is cut, and the answer says so."""
DEFAULT_LIMIT, MAX_LIMIT = 20, 100
LEG_DEPTH = 100
"""What each leg fetches, whatever the limit, so that the order does not depend on it."""
MAX_HITS = 2 * LEG_DEPTH
"""The most hits that an answer can have: all that the two legs fetch."""


@dataclass(frozen=True)
class Question:
    """Everything that decides an answer; equal questions have equal rankings on every face.

    `partial` marks a question that is still being typed: its last word matches
    as a prefix. `exclude` is a conversation never to be answered with, `entries`
    are ids of the only entries to answer with, `depth` is how many each leg
    fetches. `like` is a reference that takes the place of the query, `why` one whose absence is
    to be explained, `explain` asks for an explanation of each hit. `zone` is the time zone in
    which dates of the query hold, None for that of this process. Filters in `query` narrow further; they never widen. `worded` is for
    the semantic leg alone: numbers of the keyword hits, best first; the question
    leans towards the first of them.
    """

    query: str = ""
    mode: Mode = "hybrid"
    kinds: tuple[Kind, ...] = ("subject", "conversation")
    types: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    archived: bool = False
    hidden: bool = False
    limit: int = DEFAULT_LIMIT
    per_entry: int = 3
    partial: bool = False
    exclude: str | None = None
    entries: tuple[str, ...] = ()
    depth: int = LEG_DEPTH
    worded: tuple[int, ...] = ()
    like: str | None = None
    why: str | None = None
    explain: bool = False
    zone: str | None = None

    def as_json(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON has it; `question_from_json` reads it."""
        shape: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value != one.default:
                shape[one.name] = value.isoformat() if isinstance(value, datetime) else value
        return shape


def parse_question(shape: dict[str, Any]) -> Question:
    """The question that `Question.as_json` or a command wrote down; raises `ValueError`.

    The sender is another process of this user: types are checked, so that a mistake there is an
    error here and not a wrong answer.
    """
    values: dict[str, Any] = {}
    for one in fields(Question):
        if one.name not in shape:
            continue
        value = shape[one.name]
        if isinstance(one.default, tuple):
            kind: type = int if one.name == "worded" else str
            if not isinstance(value, list | tuple) or not all(isinstance(v, kind) for v in value):
                raise ValueError(f"{one.name} is not a list of {kind.__name__}")
            value = tuple(value)
        elif one.name in {"since", "until"}:
            value = datetime.fromisoformat(value) if value is not None else None
        elif one.name == "mode" and value not in get_args(Mode):
            raise ValueError(f"{value!r} is no mode")
        elif one.default is None:
            if value is not None and not isinstance(value, int if one.name == "exclude" else str):
                raise ValueError(f"{one.name} is of another type")
        elif type(value) is not type(one.default):
            raise ValueError(f"{one.name} is not a {type(one.default).__name__}")
        values[one.name] = value
    if unknown := set(shape) - values.keys():
        raise ValueError(f"a question has no {', '.join(sorted(unknown))}")
    return Question(**values)


def make_question(
    query: str,
    *,
    mode: Mode = "hybrid",
    types: Sequence[str] = (),
    topics: Sequence[str] = (),
    limit: int = DEFAULT_LIMIT,
) -> Question:
    """The question that a program asks with words; raises `UsageError` for what makes none."""
    if isinstance(types, str) or isinstance(topics, str):
        raise UsageError("types and topics are lists of strings")
    if mode not in get_args(Mode):
        raise UsageError(f"{mode!r} is no mode", where="mode", hint=", ".join(get_args(Mode)))
    if not query.strip():
        raise UsageError("the query is empty", hint="say what to look for")
    return Question(
        query, mode, types=tuple(types), topics=tuple(topics), limit=max(1, min(MAX_LIMIT, limit))
    )


class QueryError(NamedTuple):
    """What is wrong with a part of a query: characters `start` to `end` of it, or -1 twice for an
    option that is not of the text."""

    start: int
    end: int
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def notice(self) -> Notice:
        """The mistake as a notice of the answer."""
        return Notice("query_mistake", {"detail": str(self)})


class Ranking(NamedTuple):
    """What the semantic leg answers: chunk numbers and scores, best first; None when it is missing.

    `notice` says what is missing. While vectors are being made `coverage` is the
    share of chunks that have one, and `pending` are the keyword hits without.
    """

    ranked: list[tuple[int, float]] | None
    notice: Notice | None = None
    coverage: float = 1.0
    pending: frozenset[int] = frozenset()


@dataclass
class Hit:
    """One answer: a chunk of a subject or of a conversation's turn.

    `matches` are character offsets into `text`; `lines` are 1-based and
    inclusive; `legs` has the hit's rank in each leg, 1-based, or None.
    """

    ref: str
    kind: Kind
    entry_id: str
    chunk_id: str
    title: str
    text: str
    score: float
    matches: list[tuple[int, int]] = field(default_factory=list)
    topic: str | None = None
    slug: str | None = None
    lines: tuple[int, int] | None = None
    conversation_id: str | None = None
    turn: int | None = None
    role: str | None = None
    timestamp: datetime | None = None
    freshness: Literal["fresh", "changed"] = "fresh"
    legs: dict[str, int | None] = field(default_factory=dict)

    @property
    def target(self) -> Ref:
        """What `ref` refers to: the lines of a subject, or a conversation's turn or tool call."""
        return parse_ref(self.ref, lambda topic, slug: (topic, slug) == (self.topic, self.slug))

    def as_json(self) -> dict[str, Any]:
        """The documented shape; what does not apply to the kind is left out."""
        shape: dict[str, Any] = {
            "ref": self.ref,
            "kind": self.kind,
            "entry_id": self.entry_id,
            "chunk_id": self.chunk_id,
            "title": self.title,
            "text": self.text,
            "score": self.score,
            "matches": [list(span) for span in self.matches],
        }
        if self.kind == "subject":
            shape |= {"topic": self.topic, "slug": self.slug, "lines": list(self.lines or ())}
        else:
            shape |= {
                "conversation_id": self.conversation_id,
                "turn": self.turn,
                "role": self.role,
                "timestamp": self.timestamp.isoformat() if self.timestamp else None,
            }
        return shape | {"freshness": self.freshness, "legs": self.legs}

    @classmethod
    def from_json(cls, shape: dict[str, Any]) -> "Hit":
        """The hit that `as_json` wrote down."""
        values = {one.name: shape[one.name] for one in fields(cls) if one.name in shape}
        values["matches"] = [(first, last) for first, last in shape["matches"]]
        if lines := shape.get("lines"):
            values["lines"] = (lines[0], lines[1])
        if time := shape.get("timestamp"):
            values["timestamp"] = datetime.fromisoformat(time)
        return cls(**values)


@dataclass(frozen=True)
class LegRank:
    """Where a chunk stands in a leg.

    `rank` is 1-based and may lie beyond what the leg fetches, `score` is the
    leg's own (BM25 or cosine), `gives` its part of the fused score. `note` says
    why there is no rank.
    """

    rank: int | None = None
    score: float | None = None
    gives: float = 0.0
    note: str | None = None


@dataclass(frozen=True)
class TermMatch:
    """A term that matched: the word asked for, field and term, its weight and its part of the score."""

    word: str
    field: str
    term: str
    weight: float
    score: float


@dataclass(frozen=True)
class EmbeddedText:
    """What a chunk's vector is made from: its text, and others at their weight."""

    text: str
    title: str
    title_weight: float
    neighbours: list[str]
    neighbour_weight: float


@dataclass(frozen=True)
class Explanation:
    """One chunk explained. `rank` is its place among all hits, None where it is none; `kept_out`
    says what keeps it from being shown, in the order in which it would have to be undone.
    """

    ref: str
    title: str
    chunk_id: str | None
    rank: int | None = None
    score: float = 0.0
    lexical: LegRank = LegRank()
    semantic: LegRank = LegRank()
    matches: list[TermMatch] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    embedded: EmbeddedText | None = None
    kept_out: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Everything, with the names of the fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, shape: dict[str, Any]) -> "Explanation":
        """The explanation that `as_json` wrote down."""
        embedded = shape["embedded"]
        return cls(**shape | {
            "lexical": LegRank(**shape["lexical"]),
            "semantic": LegRank(**shape["semantic"]),
            "matches": [TermMatch(**match) for match in shape["matches"]],
            "embedded": EmbeddedText(**embedded) if embedded else None,
        })  # fmt: skip


@dataclass
class Answer:
    """The hits of a question, and `notices` of what is missing or was done differently.

    `total` counts all hits found before the limit, `omitted` those not served
    because their text or file is gone. With `mistakes` nothing was searched:
    they say where the query is wrong; a notice then has the first of them.
    `empty` says that there was nothing to search: other words would not find more.
    For the query log: `filters` are what narrowed the search, as a query spells them, and
    `is_gap` says that what was asked for seems to be missing (`search.gaps`). `explanations` has
    one for each hit, and `why` that of what was named, where the question asks for them.
    """

    query: str
    mode: Mode
    hits: list[Hit]
    total: int = 0
    omitted: int = 0
    notices: list[Notice] = field(default_factory=list)
    partial: bool = False
    mistakes: tuple[QueryError, ...] = ()
    empty: bool = False
    filters: str = ""
    is_gap: bool = False
    explanations: list[Explanation] = field(default_factory=list)
    why: Explanation | None = None

    @property
    def degraded(self) -> str | None:
        """The notices in one phrase, None where there is none."""
        return format_notices(self.notices)

    def has_notice(self, code: NoticeCode) -> bool:
        """Whether there is a notice of this code."""
        return any(notice.code == code for notice in self.notices)

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        hits = [hit.as_json() for hit in self.hits]
        for hit, explained in zip(hits, self.explanations, strict=False):
            hit["explanation"] = explained.as_json()
        shape = {
            "query": self.query,
            "mode": self.mode,
            "degraded": self.degraded,
            "total": self.total,
            "omitted": self.omitted,
            "hits": hits,
        }
        return shape | ({"why": self.why.as_json()} if self.why else {})

    def as_message(self) -> dict[str, Any]:
        """The whole answer for another process: the documented shape, and `details` beside it."""
        details = {
            "notices": [[notice.code, notice.values] for notice in self.notices],
            "mistakes": [list(mistake) for mistake in self.mistakes],
            "partial": self.partial,
            "empty": self.empty,
            "filters": self.filters,
            "is_gap": self.is_gap,
        }
        return self.as_json() | {"details": details}

    @classmethod
    def from_message(cls, shape: dict[str, Any]) -> "Answer":
        """The answer that `as_message` wrote down."""
        details = shape["details"]
        answered = cls(
            shape["query"],
            shape["mode"],
            [Hit.from_json(hit) for hit in shape["hits"]],
            total=shape["total"],
            omitted=shape["omitted"],
            notices=[Notice(code, values) for code, values in details["notices"]],
            partial=details["partial"],
            mistakes=tuple(QueryError(*mistake) for mistake in details["mistakes"]),
            empty=details["empty"],
            filters=details["filters"],
            is_gap=details["is_gap"],
        )
        if explained := [hit["explanation"] for hit in shape["hits"] if "explanation" in hit]:
            answered.explanations = [Explanation.from_json(one) for one in explained]
        if why := shape.get("why"):
            answered.why = Explanation.from_json(why)
        return answered
