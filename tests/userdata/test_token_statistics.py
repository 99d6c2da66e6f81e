"""Tokens by day, agent, model and project, and what the turns that were given a subject used."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from claude_sessions import answered, call, result, session_id, typed, write_session
from index_without_engine import indexed
from support import Builder, asked

from kbtui.cli.insights_command import format_insights_report
from kbtui.conversations.conversation_statistics import PricesByModel
from kbtui.userdata.search_and_citation_insights import (
    UsageStatistics,
    collect_usage_statistics,
)
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import Settings

NOW = datetime(2026, 5, 30, 12, tzinfo=UTC)
PRICES = {"claude-opus-*": {"input": 5, "output": 25, "cache_read": 0.5, "cache_write": 6}}


def statistics(builder: Builder, **prices: object) -> UsageStatistics:
    settings = Settings(prices=prices or PRICES)
    with indexed(builder) as reader:
        return collect_usage_statistics(
            builder.workspace,
            UserData(builder.workspace),
            reader,
            prices=PricesByModel(settings),
            days=30,
            now=NOW.timestamp(),
        )


@pytest.fixture
def builder(home: Path, workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/hay.md", "# Hay\n\nHow to search hay.\n")
    builder.subject("guide/thread.md", "# Thread\n\nHow to thread a needle.\n")
    builder.conversation(1, [[asked("JP says nothing about tokens")]])
    return builder


RECORDS = [
    typed("Where is the needle?"),
    answered(call(1, "mcp__kbtui__learn", topic="guide", subjects="hay"), usage=(10, 2, 1000, 0)),
    result(1, "How to search hay."),
    answered("In the hay.", message="msg_2", usage=(20, 8, 1000, 0)),
    typed("And the thread?"),
    answered("Gone.", message="msg_3", model="claude-haiku-4-5", usage=(7, 5, 0, 0)),
]


def test_tokens_have_sums_by_day_agent_model_and_project(home: Path, builder: Builder) -> None:
    write_session(home, builder.root, session_id(1), RECORDS)
    before = datetime(2026, 5, 27, 10, tzinfo=UTC)
    (builder.root / "sub").mkdir()
    write_session(home, builder.root / "sub", session_id(2), RECORDS[4:], start=before)
    long_ago = datetime(2025, 5, 27, 10, tzinfo=UTC)
    write_session(home, builder.root, session_id(3), RECORDS, start=long_ago)
    found = statistics(builder).tokens
    assert [(one.name, one.usage.total_tokens) for one in found.by_day] == [
        ("2026-05-27", 12),
        ("2026-05-29", 2052),
    ]
    assert [(one.name, one.usage.total_tokens, one.turns) for one in found.by_agent] == [
        ("claude-code", 2064, 3)
    ]
    assert [(one.name, one.usage.total_tokens) for one in found.by_model] == [
        ("claude-opus-4-6", 2040),
        ("claude-haiku-4-5", 24),
    ]
    assert [(one.name, one.usage.total_tokens) for one in found.by_project] == [
        (str(builder.root), 2052),
        (f"{builder.root}/sub", 12),
    ]
    opus, haiku = found.by_model
    assert opus.cost == pytest.approx((30 * 5 + 10 * 25 + 2000 * 0.5) / 1e6)
    assert (haiku.cost, found.by_agent[0].is_cost_partial) == (None, True)


def test_a_subject_costs_what_the_turns_used_that_were_given_it(
    home: Path, builder: Builder
) -> None:
    write_session(home, builder.root, session_id(1), RECORDS)
    [hay] = statistics(builder).tokens.subjects
    assert (hay.name, hay.title, hay.turns, hay.usage.total_tokens) == ("guide/hay", "Hay", 1, 2040)
    assert hay.as_json()["cost"] == pytest.approx((30 * 5 + 10 * 25 + 2000 * 0.5) / 1e6)


def test_a_copied_turn_counts_once(home: Path, builder: Builder) -> None:
    """An agent that continues a session in a new file copies its turns there."""
    write_session(home, builder.root, session_id(1), RECORDS)
    write_session(home, builder.root, session_id(2), [*RECORDS, typed("More?")])
    assert [one.usage.total_tokens for one in statistics(builder).tokens.by_agent] == [2052]


def test_a_session_that_grows_or_goes_counts_as_it_is(home: Path, builder: Builder) -> None:
    path = write_session(home, builder.root, session_id(1), RECORDS[:4])
    assert statistics(builder).tokens.by_agent[0].usage.total_tokens == 2040
    write_session(home, builder.root, session_id(1), RECORDS)
    assert statistics(builder).tokens.by_agent[0].usage.total_tokens == 2052
    path.unlink()
    assert statistics(builder).tokens.by_agent == []


def test_a_hostile_number_of_tokens_hurts_nothing(home: Path, builder: Builder) -> None:
    records = [typed("Hi"), answered("Ho", usage=(2**63 - 1, 2**64 - 1, -(2**63), 1))]
    write_session(home, builder.root, session_id(1), records)
    [found] = statistics(builder).tokens.by_agent
    assert (found.usage.input_tokens, found.usage.cache_read_tokens) == (2**53, 0)


def test_a_period_without_tokens_says_when_the_last_were_used(home: Path, builder: Builder) -> None:
    assert statistics(builder).tokens.day_before is None
    long_ago = datetime(2025, 5, 27, 10, tzinfo=UTC)
    write_session(home, builder.root, session_id(1), RECORDS, start=long_ago)
    found = statistics(builder)
    assert (found.tokens.by_day, found.tokens.day_before) == ([], "2025-05-27")
    assert (
        "Tokens\n  no tokens in this period; the last were used on 2025-05-27\n"
        in format_insights_report(found)
    )
    write_session(home, builder.root, session_id(2), RECORDS)
    assert statistics(builder).tokens.day_before is None
