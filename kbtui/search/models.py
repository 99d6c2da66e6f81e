"""What a question is, and what an answer is (decisions D, "Search, JSON")."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from kbtui.errors import UsageError
from kbtui.notices import Notice, NoticeCode, join_phrases
from kbtui.refs import Ref, parse_ref

if TYPE_CHECKING:
    from kbtui.search.query_parser import QueryError

Mode = Literal["hybrid", "lexical", "semantic"]
Kind = Literal["subject", "conversation"]

QUERY_CHARACTERS = 1000
"""A longer query is cut, and the answer says so (decisions C, "search API")."""
LIMIT_DEFAULT, LIMIT_MOST = 20, 100
DEPTH = 100
"""What each leg fetches, whatever the limit, so that the order does not depend on it."""
REACH = 2 * DEPTH
"""The most hits that an answer can have: all that the two legs fetch."""


@dataclass(frozen=True)
class Question:
    """Everything that decides an answer; equal questions have equal rankings on every face.

    `partial` marks a question that is still being typed: its last word matches
    as a prefix. `exclude` is a conversation never to be answered with, `entries`
    are ids of the only entries to answer with, `depth` is how many each leg
    fetches. Filters in `query` narrow further; they never widen. `worded` is for
    the semantic leg alone: numbers of the keyword hits, best first; the question
    leans towards the first of them.
    """

    query: str
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
    limit: int = LIMIT_DEFAULT
    per_entry: int = 3
    partial: bool = False
    exclude: int | None = None
    entries: tuple[str, ...] = ()
    depth: int = DEPTH
    worded: tuple[int, ...] = ()


def question_of(
    query: str,
    *,
    mode: Mode = "hybrid",
    types: Sequence[str] = (),
    topics: Sequence[str] = (),
    limit: int = LIMIT_DEFAULT,
) -> Question:
    """The question that a program asks with words; raises `UsageError` for what makes none."""
    if isinstance(types, str) or isinstance(topics, str):
        raise UsageError("types and topics are lists of strings")
    if mode not in get_args(Mode):
        raise UsageError(f"{mode!r} is no mode", where="mode", hint=", ".join(get_args(Mode)))
    if not query.strip():
        raise UsageError("the query is empty", hint="say what to look for")
    return Question(
        query, mode, types=tuple(types), topics=tuple(topics), limit=max(1, min(LIMIT_MOST, limit))
    )


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


NOTHING = "nothing to search: no subjects and no conversations, or none read yet"
"""What an empty answer says."""


@dataclass
class Answer:
    """The hits of a question, and `notices` of what is missing or was done differently.

    `total` counts all hits found before the limit, `omitted` those not served
    because their text or file is gone. With `mistakes` nothing was searched:
    they say where the query is wrong; a notice then has the first of them.
    `empty` says that there was nothing to search: other words would not find more.
    For the query log: `filters` are what narrowed the search, as a query spells them, and
    `is_gap` says that what was asked for seems to be missing (`search.gaps`).
    """

    query: str
    mode: Mode
    hits: list[Hit]
    total: int = 0
    omitted: int = 0
    notices: list[Notice] = field(default_factory=list)
    partial: bool = False
    mistakes: "tuple[QueryError, ...]" = ()
    empty: bool = False
    filters: str = ""
    is_gap: bool = False

    @property
    def degraded(self) -> str | None:
        """The notices in one phrase, None where there is none."""
        return join_phrases(self.notices)

    def has_notice(self, code: NoticeCode) -> bool:
        """Whether there is a notice of this code."""
        return any(notice.code == code for notice in self.notices)

    @property
    def is_by_meaning_alone(self) -> bool:
        """Whether words were looked for too, and no hit has any of them."""
        worded = any(hit.legs.get("lexical") for hit in self.hits)
        return self.mode == "hybrid" and bool(self.hits) and not worded

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        return {
            "query": self.query,
            "mode": self.mode,
            "degraded": self.degraded,
            "total": self.total,
            "omitted": self.omitted,
            "hits": [hit.as_json() for hit in self.hits],
        }
