"""Insights: the searches, gaps and citations of the last days, and a chart of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbtui.conversations.model_prices import ModelPrices
from kbtui.dates import format_unix_time_as_iso
from kbtui.index.entry_query import (
    count_all_citations,
    map_cited_targets_to_entries,
    open_catalog_snapshot,
)
from kbtui.userdata.query_log import DAY_SECONDS, get_local_midnight, list_last_local_dates
from kbtui.userdata.token_statistics import collect_token_statistics
from kbtui.workspace import Settings

if TYPE_CHECKING:
    from kbtui.index import IndexReader
    from kbtui.userdata.query_log import SearchStatistics
    from kbtui.userdata.token_statistics import TokenStatistics
    from kbtui.userdata.user_data_store import UserData
    from kbtui.workspace import Workspace

BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


class EntryCitationCount(NamedTuple):
    """An entry, and how many turns cited it. `changed` is in Unix seconds.

    `short_ref` is the form of `ref` for lists that people read.
    """

    id: str
    ref: str
    kind: str
    title: str
    changed: float
    cites: int
    short_ref: str

    def as_json(self) -> dict[str, object]:
        """Return the documented JSON shape."""
        facts = self._asdict()
        del facts["changed"], facts["short_ref"]
        return {**facts, "changed_at": format_unix_time_as_iso(self.changed)}


@dataclass
class UsageStatistics:
    """Statistics of the searches and citations of the last `days` days."""

    days: int
    stale_days: int
    searches: SearchStatistics
    citations: int
    citations_by_day: dict[str, int]
    most_cited: list[EntryCitationCount]
    never_cited: list[EntryCitationCount]
    never_cited_total: int
    stale: list[EntryCitationCount]
    tokens: TokenStatistics

    def as_json(self) -> dict[str, object]:
        """Return the documented JSON shape."""
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
            "by_day": [
                {"date": date, "searches": count, "citations": self.citations_by_day[date]}
                for date, count in self.searches.by_day.items()
            ],
            "tokens": self.tokens.as_json(),
        }


@dataclass(slots=True)
class _CatalogEntryColumns:
    id: str
    ref: str
    kind: str
    title: str
    changed: float
    path: str
    hidden: bool

    def to_entry_citation_count(self, count: int) -> EntryCitationCount:
        return EntryCitationCount(
            self.id, self.ref, self.kind, self.title, self.changed, count, short_ref=self.ref
        )


def collect_usage_statistics(
    workspace: Workspace,
    userdata: UserData,
    reader: IndexReader,
    *,
    prices: ModelPrices | None = None,
    days: int = 30,
    limit: int = 10,
    stale_days: int = 180,
    hidden: bool = False,
    now: float | None = None,
) -> UsageStatistics:
    """Collect the insights of the last `days` days; every list has at most `limit` rows.

    Without `prices`, tokens have no cost.
    """
    now = time.time() if now is None else now
    dates = list_last_local_dates(now, days)
    with open_catalog_snapshot(reader) as db:
        rows = db.execute(
            "SELECT id, iif(kind = 'subject', topic || '/' || slug, id), kind, title, changed, path, "
            "hidden FROM entries"
        )
        entries = [_CatalogEntryColumns(*row) for row in rows]
        recent = count_all_citations(db, workspace, entries, get_local_midnight(dates[0]))
        cited_ids = map_cited_targets_to_entries(db, workspace, entries)
        shown = {
            entry.id: entry
            for entry in entries
            if entry.kind == "subject" and (hidden or not entry.hidden)
        }
        tokens = collect_token_statistics(
            db,
            prices or ModelPrices(Settings()),
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
    counts = recent.by_entry
    cited = [one.to_entry_citation_count(counts[one.id]) for one in entries if one.id in counts]
    cited.sort(key=lambda use: (-use.cites, use.ref))
    never = [entry.to_entry_citation_count(0) for entry in subjects if entry.id not in ever]
    never.sort(key=lambda use: (use.changed, use.ref))
    stale_before = now - stale_days * DAY_SECONDS
    stale = [use for use in cited if use.kind == "subject" and use.changed < stale_before]
    short_refs = reader.shorten_references(use.ref for use in cited[:limit])
    most_cited = [use._replace(short_ref=short_refs.get(use.ref, use.ref)) for use in cited[:limit]]
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
        tokens=tokens,
    )


def draw_bar_of_blocks(value: int, most: int, width: int = BAR_CELLS) -> str:
    """Draw a bar in eighths of a cell; a bar for the value `most` fills `width` cells."""
    if value <= 0 or most <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / most))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def draw_daily_usage_chart(insights: UsageStatistics, width: int = BAR_CELLS) -> list[str]:
    """Draw a header and a line for each day. The longest bar has `width` cells."""
    searches, citations = insights.searches.by_day, insights.citations_by_day
    scales = [max(column.values(), default=0) for column in (searches, citations)]
    digits = [len(str(scale)) for scale in scales]
    lines = [f"{'':10}  {'searches':<{width + digits[0] + 1}}  citations"]
    for day, count in searches.items():
        left = f"{count:>{digits[0]}} {draw_bar_of_blocks(count, scales[0], width)}"
        cites = citations[day]
        right = f"{cites:>{digits[1]}} {draw_bar_of_blocks(cites, scales[1], width)}"
        lines.append(f"{day}  {left:<{width + digits[0] + 1}}  {right}".rstrip())
    return lines
