"""What the semantic leg is asked, and what its reply means; the same over a socket and within the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbtui.notices import Notice, keywords_only
from kbtui.search.models import Ranking

if TYPE_CHECKING:
    from kbtui.search.models import Question


def narrowed(question: Question) -> dict[str, Any]:
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


def ranking(reply: dict[str, Any]) -> Ranking:
    """The engine's reply as a leg; its `cause` where it could not rank."""
    if "ranked" not in reply:
        return Ranking(None, keywords_only(reply["cause"], reply.get("detail") or ""))
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
