"""What the journal hands out."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

RunStatus = Literal["ok", "partial", "error"]


@dataclass(frozen=True)
class Bookmark:
    """A place that a person marked; `ref` is its reference, times are Unix seconds."""

    ref: str
    title: str
    note: str
    created: float
    changed: float


class Skip(NamedTuple):
    """What a run did not take: an address or a file, and the reason."""

    what: str
    reason: str


@dataclass(frozen=True)
class Run:
    """The last run of a source; times are Unix seconds.

    `entries` counts the documents that the source has afterwards. `problems` has a
    line for each that failed; `error` is the first of them, or why nothing ran.
    `skips` are what was not taken and is no failure, `skipped` counts all of them;
    `edited` names the documents that were left alone because their user edited them.
    """

    source: str
    began: float
    ended: float
    status: RunStatus
    error: str | None = None
    entries: int = 0
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    problems: tuple[str, ...] = ()
    skipped: int = 0
    skips: tuple[Skip, ...] = ()
    edited: tuple[str, ...] = ()

    @property
    def counts(self) -> str:
        """What became of each document, in one line."""
        counted = {
            "new": self.added,
            "changed": self.updated,
            "removed": self.removed,
            "kept": self.unchanged,
            "skipped": self.skipped,
            "edited by you and left alone": len(self.edited),
        }
        first = ("new", "changed", "removed")
        return ", ".join(f"{n:,} {what}" for what, n in counted.items() if n or what in first)

    @property
    def skips_by_reason(self) -> dict[str, list[str]]:
        """What was skipped, by the reason."""
        found: dict[str, list[str]] = {}
        for skip in self.skips:
            found.setdefault(skip.reason, []).append(skip.what)
        return found

    def as_json(self) -> dict[str, Any]:
        """The documented shape; times as ISO 8601 in UTC."""
        return {
            "last_run_at": iso(self.began),
            "last_run_ended_at": iso(self.ended),
            "last_run_status": self.status,
            "last_run_error": self.error,
            "last_run_entry_count": self.entries,
            "added": self.added,
            "updated": self.updated,
            "removed": self.removed,
            "unchanged": self.unchanged,
            "problems": list(self.problems),
            "skipped": self.skipped,
            "skips": [skip._asdict() for skip in self.skips],
            "edited": list(self.edited),
        }


@dataclass(frozen=True)
class AskedQuery:
    """A query in its last spelling: how often it was asked, when last, what that found.

    `filters` are what narrowed the last search, as a query spells them.
    """

    query: str
    times: int
    last: float
    results: int
    filters: str = ""

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        return {
            "query": self.query,
            "times": self.times,
            "last_asked_at": iso(self.last),
            "last_result_count": self.results,
            "last_filters": self.filters,
        }


@dataclass
class Queries:
    """What was searched; `by_day` has every local day of the span, oldest first."""

    total: int
    top: list[AskedQuery]
    gaps: list[AskedQuery]
    by_day: dict[str, int]
    by_origin: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EntryUse:
    """An entry and how often turns cited it in the span; `changed` is Unix seconds."""

    id: str
    ref: str
    kind: str
    title: str
    changed: float
    cites: int

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        return {
            "id": self.id,
            "ref": self.ref,
            "kind": self.kind,
            "title": self.title,
            "changed_at": iso(self.changed),
            "cites": self.cites,
        }


@dataclass
class Insights:
    """What was asked, found, used and missing in the last `days` days.

    `never_cited` are subjects without any citation ever, the longest unchanged
    first, of `never_cited_total`; `stale` are subjects that have not changed for
    `stale_days` and were cited all the same. The days of both charts are equal.
    """

    days: int
    stale_days: int
    searches: Queries
    citations: int
    citations_by_day: dict[str, int]
    most_cited: list[EntryUse]
    never_cited: list[EntryUse]
    never_cited_total: int
    stale: list[EntryUse]

    def as_json(self) -> dict[str, Any]:
        """The documented shape."""
        return {
            "days": self.days,
            "searches": self.searches.total,
            "searches_by_origin": self.searches.by_origin,
            "top_queries": [asked.as_json() for asked in self.searches.top],
            "zero_result_queries": [asked.as_json() for asked in self.searches.gaps],
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
        }


def days_until(now: float, days: int) -> list[str]:
    """The last `days` local dates up to that of `now`, as ISO 8601, oldest first."""
    last = datetime.fromtimestamp(now).date()
    return [(last - timedelta(days=back)).isoformat() for back in range(max(1, days) - 1, -1, -1)]


def start_of(dates: list[str]) -> float:
    """The local midnight at which the first of some dates began, in Unix seconds."""
    return datetime.fromisoformat(dates[0]).timestamp()


def iso(seconds: float | None) -> str | None:
    """Unix seconds as ISO 8601 in UTC; None stays."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None
