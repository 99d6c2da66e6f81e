"""What the journal hands out."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

RunStatus = Literal["ok", "partial", "error"]


@dataclass(frozen=True)
class Bookmark:
    """A place that a person marked; `ref` is its reference, times are Unix seconds."""

    ref: str
    title: str
    note: str
    created: float
    changed: float


@dataclass(frozen=True)
class Run:
    """The last run of a source (PLATFORM, "Ingestion configuration"); times are Unix seconds.

    `entries` counts the documents that the source has afterwards. `problems` has a
    line for each that failed; `error` is the first of them, or why nothing ran.
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
        }


@dataclass(frozen=True)
class AskedQuery:
    """A query in its last spelling: how often it was asked, when last, what that found."""

    query: str
    times: int
    last: float
    results: int


@dataclass
class Queries:
    """What was searched; `by_day` has every local day of the span, oldest first."""

    total: int
    top: list[AskedQuery]
    gaps: list[AskedQuery]
    by_day: dict[str, int]
    by_origin: dict[str, int] = field(default_factory=dict)


def days_until(now: float, days: int) -> list[str]:
    """The last `days` local dates up to that of `now`, as ISO 8601, oldest first."""
    last = datetime.fromtimestamp(now).date()
    return [(last - timedelta(days=back)).isoformat() for back in range(max(1, days) - 1, -1, -1)]


def iso(seconds: float | None) -> str | None:
    """Unix seconds as ISO 8601 in UTC; None stays."""
    from datetime import UTC

    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None
