"""Statistics of tokens by day, agent, model, project and subject."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from kbtui.conversations.model_prices import format_cost
from kbtui.conversations.models import ConversationUsage, add_up_usage
from kbtui.dates import format_unix_time_as_day

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from kbtui.conversations.model_prices import ModelPrices


class CitedSubject(Protocol):
    """The attributes of a subject that the statistics use."""

    ref: str
    title: str


@dataclass
class TokenCount:
    """The tokens of a day, agent, model, project or subject, and their cost.

    `turns` is the number of turns that used the tokens. Tokens that an agent only estimated have a
    `TokenCount` of their own. `cost` is None if no model's price is known; `is_cost_partial` says that
    the cost leaves out models without a known price.
    """

    name: str | None
    usage: ConversationUsage
    turns: int
    cost: float | None = None
    is_cost_partial: bool = False
    title: str | None = None

    def list_remarks(self) -> list[str]:
        """Return the number of turns, the tokens of the answers and the cost as phrases."""
        remarks = ["1 turn" if self.turns == 1 else f"{self.turns:,} turns"]
        remarks.append(f"{self.usage.output_tokens or 0:,} output")
        if self.cost is not None:
            remarks.append(f"cost {'over ' * self.is_cost_partial}{format_cost(self.cost)}")
        if self.usage.is_estimate:
            remarks.append("estimated")
        return remarks

    def as_json(self) -> dict[str, object]:
        """Return the documented JSON shape."""
        from kbtui.conversations.conversation_summary import usage_to_dict

        return {
            "name": self.name,
            **({"title": self.title} if self.title is not None else {}),
            "turns": self.turns,
            **usage_to_dict(self.usage),
            "cost": self.cost,
            "is_cost_partial": self.is_cost_partial,
        }


@dataclass
class TokenStatistics:
    """The tokens of a period. `by_day` is in order of time; other lists begin with the largest number.

    `subjects` counts for each subject the tokens of all turns that cite it. A turn that cites several
    subjects counts for each of them. If the period has no tokens, `day_before` is the last earlier
    day with tokens.
    """

    by_day: list[TokenCount] = field(default_factory=list)
    by_agent: list[TokenCount] = field(default_factory=list)
    by_model: list[TokenCount] = field(default_factory=list)
    by_project: list[TokenCount] = field(default_factory=list)
    subjects: list[TokenCount] = field(default_factory=list)
    day_before: str | None = None

    def as_json(self) -> dict[str, object]:
        """Return the documented JSON shape."""
        lists = ("by_day", "by_agent", "by_model", "by_project", "subjects")
        counts = {name: [one.as_json() for one in getattr(self, name)] for name in lists}
        return {**counts, "day_before": self.day_before}


@dataclass(frozen=True, slots=True)
class _TurnUsage:
    """The tokens that a turn used with one model."""

    conversation: str
    turn: int
    model: str | None
    project: str | None
    time: float | None
    agent: str
    usage: ConversationUsage


def collect_token_statistics(
    db: sqlite3.Connection,
    prices: ModelPrices,
    *,
    since: float,
    until: float,
    limit: int,
    subjects_by_target: Mapping[str, CitedSubject],
) -> TokenStatistics:
    """Count the tokens that turns used from `since` to `until` (Unix seconds).

    All lists but `by_day` have at most `limit` rows. `subjects_by_target` maps the target of a citation
    to its subject.
    """
    used = list(_iterate_turn_usage(db, since, until))
    turns = defaultdict(list)
    for one in used:
        turns[one.conversation, one.turn].append(one)
    given: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for conversation, turn, target in db.execute(
        "SELECT DISTINCT conversation, turn, target FROM citations"
    ):
        subject = subjects_by_target.get(target)
        if subject is not None and (conversation, turn) in turns:
            given[subject.ref].add((conversation, turn))
    of_subjects = ((ref, one) for ref, keys in given.items() for key in keys for one in turns[key])
    by_day = _count_tokens(
        ((format_unix_time_as_day(one.time), one) for one in used if one.time is not None), prices
    )
    titles = {subject.ref: subject.title for subject in subjects_by_target.values()}
    subjects = _count_tokens(of_subjects, prices)[:limit]
    for count in subjects:
        count.title = titles[count.name or ""]
    return TokenStatistics(
        by_day=sorted(by_day, key=lambda one: one.name or ""),
        by_agent=_count_tokens(((one.agent, one) for one in used), prices)[:limit],
        by_model=_count_tokens(((one.model, one) for one in used), prices)[:limit],
        by_project=_count_tokens(((one.project, one) for one in used), prices)[:limit],
        subjects=subjects,
        day_before=None if used else _find_day_before(db, since),
    )


def _find_day_before(db: sqlite3.Connection, since: float) -> str | None:
    """Return the last day with tokens before a Unix time."""
    (latest,) = db.execute(
        "SELECT max(coalesce(u.timestamp, e.created)) FROM usage u "
        "JOIN entries e ON e.id = u.conversation WHERE coalesce(u.timestamp, e.created) < ?",
        (since,),
    ).fetchone()
    return None if latest is None else format_unix_time_as_day(latest)


def _iterate_turn_usage(db: sqlite3.Connection, since: float, until: float) -> Iterator[_TurnUsage]:
    """Yield the tokens of each turn and model; a turn that an agent copied into another session counts once."""
    rows = db.execute(
        "SELECT u.conversation, u.turn, u.model, u.project, u.timestamp, coalesce(e.agent, 'jp'), "
        "input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, total_tokens, is_estimate "
        "FROM usage u JOIN entries e ON e.id = u.conversation "
        "WHERE coalesce(u.timestamp, e.created) BETWEEN ? AND ? ORDER BY e.created, e.id, u.turn",
        (since, until),
    )
    seen = set()
    for conversation, turn, model, project, time, agent, *counts in rows:
        key = (agent, time, model, *counts)
        if time is not None and key in seen:
            continue
        seen.add(key)
        usage = replace(ConversationUsage(*counts[:-1]), is_estimate=bool(counts[-1]))
        yield _TurnUsage(conversation, turn, model, project, time, agent, usage)


def _count_tokens(
    named: Iterable[tuple[str | None, _TurnUsage]], prices: ModelPrices
) -> list[TokenCount]:
    """Return the sum of tokens for each name, largest first; estimated tokens have sums of their own."""
    groups: dict[tuple[str | None, bool], list[_TurnUsage]] = defaultdict(list)
    for name, one in named:
        groups[name, one.usage.is_estimate].append(one)
    found = []
    for (name, _), members in groups.items():
        by_model: dict[str | None, list[ConversationUsage]] = defaultdict(list)
        for one in members:
            by_model[one.model].append(one.usage)
        sums = {model: add_up_usage(usages) for model, usages in by_model.items()}
        known = {model: usage for model, usage in sums.items() if usage is not None}
        cost, unpriced = prices.compute_cost(known)
        total = add_up_usage(known.values()) or ConversationUsage()
        turns = len({(one.conversation, one.turn) for one in members})
        is_partial = cost is not None and bool(unpriced)
        found.append(TokenCount(name, total, turns, cost, is_partial))
    found.sort(key=lambda one: (-(one.usage.total_tokens or 0), one.name or ""))
    return found
