"""Tests of the query grammar and of the positions of mistakes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.dates import parse_date_or_age
from kbtui.notices import format_notice
from kbtui.search.filter_definitions import map_filter_keys_and_aliases_to_definitions
from kbtui.search.query_parsing_and_filter_application import parse_query

NOW = datetime(2026, 11, 18, 15, 30, tzinfo=UTC)  # a Wednesday


def test_words_phrases_exclusions_and_filters_are_told_apart() -> None:
    query = parse_query('chunk "one writer" -bench topic:guide,notes -role:tool title:"the plan"')
    assert query.words == ("chunk",)
    assert query.phrases == ("one writer",)
    assert query.excluded == ("bench",)
    assert [(part.key, part.values, part.excluded) for part in query.filters] == [
        ("topic", ("guide", "notes"), False),
        ("role", ("tool",), True),
        ("title", ("the plan",), False),
    ]
    assert query.spoken == "chunk one writer"


@pytest.mark.parametrize(
    "text",
    ["http://x.com/a?b=c", "std::vec", "error: E1", "--no-vectors", "note:x", "a -", "C:\\x"],
)
def test_what_only_looks_like_grammar_is_text(text: str) -> None:
    query = parse_query(text)
    assert query.words
    assert not query.filters
    assert not query.excluded


@given(st.text(max_size=200), st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_text_is_a_query_and_filters_know_their_place(text: str, partial: bool) -> None:
    for part in parse_query(text, partial=partial).filters:
        assert part.key in map_filter_keys_and_aliases_to_definitions("search")
        assert 0 <= part.start < part.end <= len(text)


def test_an_almost_filter_and_one_without_a_value_are_remarked_upon() -> None:
    assert "title:" in format_notice(parse_query("titel:foo").notices_about_filter_like_words[0])
    assert "needs a value" in format_notice(
        parse_query("topic: foo").notices_about_filter_like_words[0]
    )
    assert "title:" in format_notice(
        parse_query("titel:fo", partial=True).notices_about_filter_like_words[0]
    )
    assert parse_query("topic:", partial=True).notices_about_filter_like_words == ()
    (elsewhere,) = parse_query("modle:x foo").almost_filters
    assert "'model:' is a filter of the library" in format_notice(elsewhere.notice)


def test_a_filter_at_the_end_of_what_is_typed_may_be_unfinished() -> None:
    assert parse_query("x topic:gui", partial=True).filters[0].unfinished
    assert not parse_query("x topic:gui y", partial=True).filters[0].unfinished
    assert not parse_query("x topic:gui").filters[0].unfinished


@pytest.mark.parametrize(
    ("text", "days"),
    [("3d", 3), ("2w", 14), ("1y", 365.25)],
)
def test_an_age_counts_back_from_now(text: str, days: float) -> None:
    assert parse_date_or_age(text, NOW) == NOW - timedelta(days=days)


def test_days_and_months_begin_at_midnight() -> None:
    today = parse_date_or_age("today", NOW)
    assert today is not None
    assert parse_date_or_age("yesterday", NOW) == today - timedelta(days=1)
    assert parse_date_or_age("wednesday", NOW) == today - timedelta(days=7)
    assert parse_date_or_age("monday", NOW) == today - timedelta(days=2)
    assert parse_date_or_age("2026-11", NOW) == parse_date_or_age("2026-11-01", NOW)
    assert parse_date_or_age("2026-11-01T10:00+02:00", NOW) == datetime(2026, 11, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "999999y", "32d2", "0000"])
def test_what_is_no_date_is_none(text: str) -> None:
    assert parse_date_or_age(text, NOW) is None
