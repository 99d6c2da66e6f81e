"""Statistics for a recent period: searches, gaps, citations and tokens, with a daily chart."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbtui.conversations.conversation_data_types import (
    TokenUsage,
    sum_token_usage,
    sum_token_usage_by_model,
)
from kbtui.conversations.conversation_statistics import PricesByModel, format_cost
from kbtui.dates import DAY_SECONDS, format_unix_time_as_day, format_unix_time_as_iso
from kbtui.index.catalog_query import (
    count_citations_by_entry_and_by_day,
    map_cited_targets_to_entries,
    open_catalog_snapshot,
)
from kbtui.references import make_conversation_ref
from kbtui.search.outdated_hits_and_turns import list_outdated_turns
from kbtui.terminal_text import format_counted_noun
from kbtui.userdata.query_log import get_local_midnight, list_last_local_dates
from kbtui.userdata.turn_mark_lookup import MarksOfTurns, find_all_marks_in_conversations_of_turns
from kbtui.workspace import Settings

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from kbtui.index.index_reader import IndexReader
    from kbtui.search.outdated_hits_and_turns import TurnCitingOutdatedSubjects
    from kbtui.search.search_request_and_answer import OutdatedCitedSubject
    from kbtui.userdata.query_log import SearchLogSummary
    from kbtui.userdata.user_data_store import UserData
    from kbtui.workspace import Workspace

BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass
class TokenCountAndCost:
    """The tokens of a day, agent, model, project or subject, and their cost.

    * `turns` is the number of turns that used the tokens.
    * `cost` is None if no model's price is known.
    * If `is_cost_partial` is true, `cost` leaves out models without a known price.

    Tokens that an agent only estimated have a separate `TokenCountAndCost`.
    """

    name: str | None
    usage: TokenUsage
    turns: int
    cost: float | None = None
    is_cost_partial: bool = False
    title: str | None = None

    def list_token_count_phrases(self) -> list[str]:
        """Return phrases such as `3 turns`: the number of turns, the output tokens and the cost."""
        remarks = [format_counted_noun(self.turns, "turn")]
        remarks.append(format_counted_noun(self.usage.output_tokens or 0, "output token"))
        if self.cost is not None:
            remarks.append(f"cost {'over ' * self.is_cost_partial}{format_cost(self.cost)}")
        if self.usage.is_estimate:
            remarks.append("estimated")
        return remarks

    def as_json(self) -> dict[str, object]:
        """Return the counts as a JSON object with the documented keys."""
        return {
            "name": self.name,
            **({"title": self.title} if self.title is not None else {}),
            "turns": self.turns,
            **self.usage._asdict(),
            "cost": self.cost,
            "is_cost_partial": self.is_cost_partial,
        }


@dataclass
class PeriodTokenStatistics:
    """The tokens of a period.

    `by_day` is sorted by day; the other lists begin with the largest number of tokens. For each
    subject, `subjects` contains the tokens of the turns that cite it. If a turn cites several
    subjects, its tokens are counted for each of them. If no tokens were used in the period,
    `day_before` is the last earlier day on which tokens were used.
    """

    by_day: list[TokenCountAndCost] = field(default_factory=list)
    by_agent: list[TokenCountAndCost] = field(default_factory=list)
    by_model: list[TokenCountAndCost] = field(default_factory=list)
    by_project: list[TokenCountAndCost] = field(default_factory=list)
    subjects: list[TokenCountAndCost] = field(default_factory=list)
    day_before: str | None = None

    def as_json(self) -> dict[str, object]:
        """Return the statistics as a JSON object with the documented keys."""
        lists = ("by_day", "by_agent", "by_model", "by_project", "subjects")
        counts = {name: [one.as_json() for one in getattr(self, name)] for name in lists}
        return {**counts, "day_before": self.day_before}


@dataclass(frozen=True, slots=True)
class _TurnTokenUsage:
    """The tokens that a turn used with one model."""

    conversation: str
    turn: int
    model: str | None
    project: str | None
    time: float | None
    agent: str
    usage: TokenUsage


def collect_token_statistics(
    db: sqlite3.Connection,
    prices: PricesByModel,
    *,
    since: float,
    until: float,
    limit: int,
    subjects_by_target: Mapping[str, EntryCitationCount],
) -> PeriodTokenStatistics:
    """Count the tokens that turns used from `since` to `until` (Unix seconds).

    Every list except `by_day` has at most `limit` rows. `subjects_by_target` maps the target of a
    citation to the cited subject.
    """
    used = list(_iterate_tokens_used_by_turns_in_period(db, since, until))
    turns = defaultdict(list)
    for one in used:
        turns[one.conversation, one.turn].append(one)
    given: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for conversation, turn, target in db.execute(
        "SELECT DISTINCT conversation, turn, target FROM citations "
        "WHERE conversation IN (SELECT value FROM json_each(?))",
        [json.dumps(list({one.conversation for one in used}))],
    ):
        subject = subjects_by_target.get(target)
        if subject is not None and (conversation, turn) in turns:
            given[subject.ref].add((conversation, turn))
    of_subjects = ((ref, one) for ref, keys in given.items() for key in keys for one in turns[key])
    by_day = _sum_tokens_by_name(
        ((format_unix_time_as_day(one.time), one) for one in used if one.time is not None), prices
    )
    titles = {subject.ref: subject.title for subject in subjects_by_target.values()}
    subjects = _sum_tokens_by_name(of_subjects, prices)[:limit]
    for count in subjects:
        count.title = titles[count.name or ""]
    return PeriodTokenStatistics(
        by_day=sorted(by_day, key=lambda one: one.name or ""),
        by_agent=_sum_tokens_by_name(((one.agent, one) for one in used), prices)[:limit],
        by_model=_sum_tokens_by_name(((one.model, one) for one in used), prices)[:limit],
        by_project=_sum_tokens_by_name(((one.project, one) for one in used), prices)[:limit],
        subjects=subjects,
        day_before=None if used else _find_last_day_with_tokens_before(db, since),
    )


def _find_last_day_with_tokens_before(db: sqlite3.Connection, since: float) -> str | None:
    """Return the last day on which tokens were used before `since`, or None.

    `since` is in Unix seconds.
    """
    (latest,) = db.execute(
        "SELECT max(coalesce(u.timestamp, e.created)) FROM usage u "
        "JOIN entries e ON e.id = u.conversation WHERE coalesce(u.timestamp, e.created) < ?",
        (since,),
    ).fetchone()
    return None if latest is None else format_unix_time_as_day(latest)


def _iterate_tokens_used_by_turns_in_period(
    db: sqlite3.Connection, since: float, until: float
) -> Iterator[_TurnTokenUsage]:
    """Yield the tokens that each turn used with each model.

    A turn that was copied into another session is counted only once.
    """
    rows = db.execute(
        "SELECT u.conversation, u.turn, u.model, u.project, u.timestamp, coalesce(e.agent, 'jp'), "
        "input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, total_tokens, is_estimate "
        "FROM usage u JOIN entries e ON e.id = u.conversation "
        "WHERE coalesce(u.timestamp, e.created) BETWEEN ? AND ? ORDER BY e.created, e.id, u.turn",
        (since, until),
    )
    seen = set()
    for conversation, turn, model, project, started, agent, *counts in rows:
        key = (agent, started, model, *counts)
        if started is not None and key in seen:
            continue
        seen.add(key)
        usage = TokenUsage(*counts[:-1])._replace(is_estimate=bool(counts[-1]))
        yield _TurnTokenUsage(conversation, turn, model, project, started, agent, usage)


def _sum_tokens_by_name(
    named: Iterable[tuple[str | None, _TurnTokenUsage]], prices: PricesByModel
) -> list[TokenCountAndCost]:
    """For each name in `named`, return the total of its tokens, largest total first.

    If some tokens of a name are only estimated, they have a separate total.
    """
    groups: dict[tuple[str | None, bool], list[_TurnTokenUsage]] = defaultdict(list)
    for name, one in named:
        groups[name, one.usage.is_estimate].append(one)
    found = []
    for (name, _), members in groups.items():
        by_model = sum_token_usage_by_model((one.model, one.usage) for one in members)
        cost, unpriced = prices.compute_total_cost(by_model)
        total = sum_token_usage(by_model.values()) or TokenUsage()
        turns = len({(one.conversation, one.turn) for one in members})
        is_partial = cost is not None and bool(unpriced)
        found.append(TokenCountAndCost(name, total, turns, cost, is_partial))
    found.sort(key=lambda one: (-(one.usage.total_tokens or 0), one.name or ""))
    return found


@dataclass(slots=True)
class EntryCitationCount:
    """An entry, and the number of turns that cited it.

    `changed` is the time of the entry's last change, in Unix seconds. `short_ref` is a short form
    of `ref`, for human-readable lists.
    """

    id: str
    ref: str
    kind: str
    title: str
    changed: float
    path: str
    hidden: bool
    short_ref: str
    cites: int = 0

    def as_json(self) -> dict[str, object]:
        """Return the count as a JSON object with the documented keys."""
        names = ("id", "ref", "kind", "title", "cites")
        facts = {name: getattr(self, name) for name in names}
        return {**facts, "changed_at": format_unix_time_as_iso(self.changed)}


@dataclass(slots=True)
class TitledTurnWithOutdatedCitations:
    """An outdated turn and the title of its conversation.

    A turn is outdated if it was given a subject that has since changed or disappeared. `ref` is the
    reference of the turn. `time` is when a call first returned such a subject, in Unix seconds.
    """

    ref: str
    title: str
    time: float | None
    subjects: list[OutdatedCitedSubject]
    short_ref: str

    def as_json(self) -> dict[str, object]:
        """Return the turn as a JSON object with the documented keys."""
        return {
            "ref": self.ref,
            "title": self.title,
            "timestamp": format_unix_time_as_iso(self.time),
            "outdated_subjects": [subject._asdict() for subject in self.subjects],
        }


@dataclass
class UsageStatistics:
    """Statistics for the searches and citations in the last `days` days.

    * `outdated_turns` are the newest outdated turns; they can be older than `days` days.
    * `outdated_turns_total` is the number of all outdated turns.
    * `marks` are the user's marks on `outdated_turns`.
    * `stale` are cited subjects that have not changed for `stale_days` days.
    """

    days: int
    stale_days: int
    searches: SearchLogSummary
    citations: int
    citations_by_day: dict[str, int]
    most_cited: list[EntryCitationCount]
    never_cited: list[EntryCitationCount]
    never_cited_total: int
    stale: list[EntryCitationCount]
    outdated_turns: list[TitledTurnWithOutdatedCitations]
    outdated_turns_total: int
    tokens: PeriodTokenStatistics
    marks: MarksOfTurns

    def as_json(self) -> dict[str, object]:
        """Return the statistics as a JSON object with the documented keys."""
        return {
            "days": self.days,
            "searches": self.searches.total,
            "searches_by_origin": self.searches.by_origin,
            "top_queries": [query.as_json() for query in self.searches.top],
            "zero_result_queries": [query.as_json() for query in self.searches.gaps],
            "citations": self.citations,
            "most_cited": [use.as_json() for use in self.most_cited],
            "never_cited_total": self.never_cited_total,
            "never_cited": [use.as_json() for use in self.never_cited],
            "stale_days": self.stale_days,
            "stale_but_cited": [use.as_json() for use in self.stale],
            "outdated_turns_total": self.outdated_turns_total,
            "outdated_turns": [
                turn.as_json() | self.marks.make_turn_marks_json_fields(turn.ref)
                for turn in self.outdated_turns
            ],
            "by_day": [
                {"date": date, "searches": count, "citations": self.citations_by_day[date]}
                for date, count in self.searches.by_day.items()
            ],
            "tokens": self.tokens.as_json(),
        }


def collect_usage_statistics(
    workspace: Workspace,
    userdata: UserData,
    reader: IndexReader,
    *,
    prices: PricesByModel | None = None,
    days: int = 30,
    limit: int = 10,
    stale_days: int = 180,
    hidden: bool = False,
    now: float | None = None,
) -> UsageStatistics:
    """Collect the statistics for the last `days` days; every list has at most `limit` rows.

    Without `prices`, tokens have no cost. A subject is stale if it has not changed for `stale_days`
    days. If `hidden` is true, hidden entries are included.
    """
    now = time.time() if now is None else now
    dates = list_last_local_dates(now, days)
    with open_catalog_snapshot(reader) as db:
        rows = db.execute(
            "SELECT *, ref FROM (SELECT id, iif(kind = 'subject', topic || '/' || slug, id) AS ref, "
            "kind, title, changed, path, hidden FROM entries)"
        )
        entries = [EntryCitationCount(*row) for row in rows]
        recent = count_citations_by_entry_and_by_day(
            db, workspace, entries, get_local_midnight(dates[0])
        )
        cited_ids = map_cited_targets_to_entries(db, workspace, entries)
        shown = {
            entry.id: entry
            for entry in entries
            if entry.kind == "subject" and (hidden or not entry.hidden)
        }
        tokens = collect_token_statistics(
            db,
            prices or PricesByModel(Settings()),
            since=get_local_midnight(dates[0]),
            until=now + DAY_SECONDS,
            limit=limit,
            subjects_by_target={
                target: shown[entry_id]
                for target, entry_id in cited_ids.items()
                if entry_id in shown
            },
        )
    ever = set(cited_ids.values())
    entries = [entry for entry in entries if hidden or not entry.hidden]
    subjects = [entry for entry in entries if entry.kind == "subject"]
    for entry in entries:
        entry.cites = recent.by_entry[entry.id]
    cited = [entry for entry in entries if entry.cites]
    cited.sort(key=lambda use: (-use.cites, use.ref))
    never = [entry for entry in subjects if entry.id not in ever]
    never.sort(key=lambda use: (use.changed, use.ref))
    stale_before = now - stale_days * DAY_SECONDS
    stale = [use for use in cited if use.kind == "subject" and use.changed < stale_before]
    most_cited = cited[:limit]
    short_refs = reader.map_references_to_short_forms(use.ref for use in most_cited)
    for use in most_cited:
        use.short_ref = short_refs.get(use.ref, use.ref)
    outdated = list_outdated_turns(workspace, reader, hidden=hidden)
    outdated_turns = _add_titles_to_outdated_turns(reader, outdated[:limit])
    citations_by_day = {day: recent.by_day.get(day, 0) for day in dates}
    return UsageStatistics(
        days=days,
        stale_days=stale_days,
        searches=userdata.query_log.compute_search_statistics(days, limit, now),
        citations=sum(citations_by_day.values()),
        citations_by_day=citations_by_day,
        most_cited=most_cited,
        never_cited=never[:limit],
        never_cited_total=len(never),
        stale=stale[:limit],
        outdated_turns=outdated_turns,
        outdated_turns_total=len(outdated),
        tokens=tokens,
        marks=find_all_marks_in_conversations_of_turns(
            workspace, (turn.ref for turn in outdated_turns)
        ),
    )


def _add_titles_to_outdated_turns(
    reader: IndexReader, turns: list[TurnCitingOutdatedSubjects]
) -> list[TitledTurnWithOutdatedCitations]:
    entries = reader.get_entries_by_id({turn.conversation for turn in turns})
    refs = [str(make_conversation_ref(turn.conversation, turn.turn)) for turn in turns]
    short_refs = reader.map_references_to_short_forms(refs)
    return [
        TitledTurnWithOutdatedCitations(
            ref,
            entries[turn.conversation].title,
            turn.timestamp or entries[turn.conversation].created,
            turn.subjects,
            short_refs.get(ref, ref),
        )
        for ref, turn in zip(refs, turns, strict=True)
        if turn.conversation in entries
    ]


def draw_horizontal_bar(value: int, largest: int, width: int = BAR_CELLS) -> str:
    """Return a bar as text, with a resolution of an eighth of a cell.

    A bar for the value `largest` fills `width` cells.
    """
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / largest))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def draw_daily_searches_and_citations(
    insights: UsageStatistics, width: int = BAR_CELLS
) -> list[str]:
    """Return a chart of the searches and citations of each day: a header, then a line for each day.

    The longest bar has `width` cells.
    """
    searches, citations = insights.searches.by_day, insights.citations_by_day
    scales = [max(column.values(), default=0) for column in (searches, citations)]
    digits = [len(str(scale)) for scale in scales]
    lines = [f"{'':10}  {'searches':<{width + digits[0] + 1}}  citations"]
    for day, count in searches.items():
        left = f"{count:>{digits[0]}} {draw_horizontal_bar(count, scales[0], width)}"
        cites = citations[day]
        right = f"{cites:>{digits[1]}} {draw_horizontal_bar(cites, scales[1], width)}"
        lines.append(f"{day}  {left:<{width + digits[0] + 1}}  {right}".rstrip())
    return lines
