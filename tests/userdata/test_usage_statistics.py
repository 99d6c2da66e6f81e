"""Insights: lists of most, never and stale cited entries, and counts by day."""

import os
from datetime import datetime
from pathlib import Path

import pytest
from index_without_engine import indexed
from support import Builder, called

from kbtui.userdata.search_and_citation_insights import (
    UsageStatistics,
    collect_usage_statistics,
    draw_daily_searches_and_citations,
    draw_horizontal_bar,
)
from kbtui.userdata.user_data_store import UserData

DAY = 86_400.0
NOON = datetime.now().replace(hour=12, minute=0, second=0, microsecond=0).timestamp()
"""The fixed time of these tests, so that midnight cannot pass during one."""


def day(ago: float) -> str:
    return datetime.fromtimestamp(NOON - ago * DAY).date().isoformat()


def created(ago: float) -> int:
    return int((NOON - ago * DAY) * 10) - 17_800_000_000


@pytest.fixture
def found(workspace_root: Path) -> UsageStatistics:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    for name in ("used", "old", "never", ".hidden", "gone"):
        builder.subject(f"guide/{name}.md", f"# {name}\n\nText of {name}.\n")
    old = NOON - 300 * DAY
    for name in ("old", "never"):
        os.utime(builder.root / f"docs/guide/{name}.md", (old, old))
    for days, names in ((3, ["used", "old", "gone"]), (2, ["used"]), (200, ["old"])):
        calls = [
            part
            for number, name in enumerate(names)
            for part in called(f"c{number}", "learn", "…", topic="guide", subjects=name)
        ]
        builder.conversation(created(days), [calls], title=f"{days} days ago")
    (builder.root / "docs/guide/gone.md").unlink()
    userdata = UserData(builder.workspace)
    userdata.query_log.log_search("nothing like it", "hybrid", 0, "cli", at=NOON)
    with indexed(builder) as reader:
        return collect_usage_statistics(builder.workspace, userdata, reader, days=30, now=NOON)


def test_most_cited_counts_what_exists_in_the_span(found: UsageStatistics) -> None:
    assert [(use.ref, use.cites) for use in found.most_cited] == [
        ("guide/used", 2),
        ("guide/old", 1),
    ]
    # What is gone counts nowhere.
    assert found.citations == 3


def test_never_cited_are_subjects_alone_and_no_hidden_ones(
    found: UsageStatistics,
) -> None:
    assert [use.ref for use in found.never_cited] == ["guide/never"]
    assert found.never_cited_total == 1


def test_stale_is_what_is_cited_and_long_unchanged(found: UsageStatistics) -> None:
    assert [use.ref for use in found.stale] == ["guide/old"]


def test_every_day_of_the_span_is_there_and_adds_up(found: UsageStatistics) -> None:
    assert len(found.citations_by_day) == 30
    assert list(found.citations_by_day) == sorted(found.searches.by_day)
    assert sum(found.citations_by_day.values()) == found.citations
    assert found.searches.by_day[day(0)] == 1
    shape = found.as_json()
    assert shape["by_day"][-1] == {"date": day(0), "searches": 1, "citations": 0}
    assert [gap["query"] for gap in shape["zero_result_queries"]] == ["nothing like it"]


def test_the_chart_has_a_line_a_day_with_bars_to_scale(found: UsageStatistics) -> None:
    lines = draw_daily_searches_and_citations(found, width=8)
    assert len(lines) == 31
    days = {line[:10]: line for line in lines[1:]}
    assert days[day(3)].endswith("2 ████████")


@pytest.mark.parametrize(
    ("value", "most", "expected"),
    [(0, 10, ""), (10, 10, "████"), (5, 10, "██"), (1, 10_000, "▏"), (9, 10, "███▋"), (3, 0, "")],
)
def test_a_bar_is_as_long_as_its_share(value: int, most: int, expected: str) -> None:
    assert draw_horizontal_bar(value, most, 4) == expected
