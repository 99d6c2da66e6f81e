"""Insights: searches, gaps and citations of the last days, and their chart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kbtui.index.entry_query import ever_cited, reading, used_since
from kbtui.userdata.models import EntryUse, Insights, days_until, start_of

if TYPE_CHECKING:
    from kbtui.index import IndexReader
    from kbtui.userdata.userdata import UserData
    from kbtui.workspace import Workspace


DAYS_DEFAULT, LIMIT_DEFAULT, STALE_DAYS_DEFAULT = 30, 10, 180
DAY = 86_400.0


class _Known:
    """An entry, as far as insights need it."""

    __slots__ = ("archived", "changed", "hidden", "id", "kind", "path", "ref", "title")

    def __init__(self, row: tuple[object, ...]) -> None:
        self.id, self.kind, self.title, topic, slug, self.path = map(str, row[:6])
        self.ref = f"{topic}/{slug}" if self.kind == "subject" else self.id
        self.changed = float(row[6])  # type: ignore[arg-type]
        self.hidden, self.archived = bool(row[7]), bool(row[8])

    def used(self, times: int) -> EntryUse:
        return EntryUse(self.id, self.ref, self.kind, self.title, self.changed, times)


def insights(
    workspace: Workspace,
    journal: UserData,
    reader: IndexReader,
    *,
    days: int = DAYS_DEFAULT,
    limit: int = LIMIT_DEFAULT,
    stale_days: int = STALE_DAYS_DEFAULT,
    hidden: bool = False,
    now: float | None = None,
) -> Insights:
    """The insights of the last `days` days; every list has at most `limit` rows.

    Hidden subjects are named only when asked for. Raises `IndexUnavailable`,
    and `WorkspaceError` when the query log is damaged.
    """
    now = time.time() if now is None else now
    dates = days_until(now, days)
    since = start_of(dates)
    with reading(reader) as db:
        rows = db.execute(
            "SELECT id, kind, title, topic, slug, path, changed, hidden, archived FROM entries"
        )
        known = [_Known(row) for row in rows]
        lately = used_since(db, workspace, known, since)
        ever = ever_cited(db, workspace, known)
    known = [entry for entry in known if hidden or not entry.hidden]
    subjects = [entry for entry in known if entry.kind == "subject"]
    cited = [
        entry.used(lately.by_entry[entry.id]) for entry in known if entry.id in lately.by_entry
    ]
    cited.sort(key=lambda use: (-use.cites, use.ref))
    never = [entry.used(0) for entry in subjects if entry.id not in ever]
    never.sort(key=lambda use: (use.changed, use.ref))
    stale = [use for use in cited if use.kind == "subject" and use.changed < now - stale_days * DAY]
    return Insights(
        days=days,
        stale_days=stale_days,
        searches=journal.queries.read(days, limit, now),
        citations=sum(lately.by_day.get(day, 0) for day in dates),
        citations_by_day={day: lately.by_day.get(day, 0) for day in dates},
        most_cited=cited[:limit],
        never_cited=never[:limit],
        never_cited_total=len(never),
        stale=stale[:limit],
    )


BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(value: int, most: int, width: int = BAR_CELLS) -> str:
    """A bar of up to `width` cells, in eighths of a cell; a value above 0 always shows."""
    if value <= 0 or most <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / most))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def day_chart(found: Insights, width: int = BAR_CELLS) -> list[str]:
    """A line for each day: its date, searches and citations, each with a bar to one scale a column."""
    searches, citations = found.searches.by_day, found.citations_by_day
    scales = [max(column.values(), default=0) for column in (searches, citations)]
    digits = [len(str(scale)) for scale in scales]
    lines = [f"{'':10}  {'searches':<{width + digits[0] + 1}}  citations"]
    for day, count in searches.items():
        left = f"{count:>{digits[0]}} {bar(count, scales[0], width)}"
        right = f"{citations[day]:>{digits[1]}} {bar(citations[day], scales[1], width)}"
        lines.append(f"{day}  {left:<{width + digits[0] + 1}}  {right}".rstrip())
    return lines
