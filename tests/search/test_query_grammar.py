"""Tests of the query grammar and of the positions of mistakes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.dates import parse_date_or_age
from kbtui.notices import format_notice
from kbtui.search.filter_definitions import map_filters_by_key
from kbtui.search.query_parser import parse_query
from kbtui.search.search_pipeline import fuse_rankings

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
        assert part.key in map_filters_by_key("search")
        assert 0 <= part.start < part.end <= len(text)


def test_an_almost_filter_and_one_without_a_value_are_remarked_upon() -> None:
    assert "title:" in format_notice(parse_query("titel:foo").filter_like_word_notices[0])
    assert "needs a value" in format_notice(parse_query("topic: foo").filter_like_word_notices[0])
    assert parse_query("titel:fo", partial=True).filter_like_word_notices == ()


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


def test_fusion_adds_what_each_leg_gives_by_rank() -> None:
    scores = fuse_rankings({"lexical": [1, 2], "semantic": [2, 3]}, k=10)
    assert scores == pytest.approx({1: 1 / 11, 2: 1 / 12 + 1 / 11, 3: 1 / 12})


def test_a_hit_missing_in_a_full_leg_counts_there_as_just_after_its_last() -> None:
    scores = fuse_rankings({"lexical": [1, 2], "semantic": [3, 4]}, k=10, depth=2)
    assert scores[1] == pytest.approx(1 / 11 + 1 / 13)


@given(st.permutations([1, 2, 3, 4, 5]), st.permutations([3, 4, 5, 6, 7]))
def test_a_better_rank_never_lowers_a_score(lexical: list[int], semantic: list[int]) -> None:
    scores = fuse_rankings({"lexical": lexical, "semantic": semantic})
    raised = fuse_rankings({"lexical": [lexical[-1], *lexical[:-1]], "semantic": semantic})
    assert raised[lexical[-1]] >= scores[lexical[-1]]


def test_what_was_embedded_first_gains_nothing_by_that() -> None:
    """With vectors for one chunk in fifty, the best keyword hits, which have none, stay first."""
    ranked = {"lexical": [1, 2, 3], "semantic": [3, 9, 8]}
    plain = fuse_rankings(ranked)
    assert max(plain, key=plain.__getitem__) == 3
    scores = fuse_rankings(ranked, coverage=0.02, pending={1, 2})
    assert sorted(scores, key=lambda number: -scores[number]) == [1, 2, 3, 9, 8]


@given(st.floats(0.01, 1.0), st.sets(st.sampled_from([1, 2])))
def test_the_share_embedded_changes_no_order_within_a_leg(
    coverage: float, pending: set[int]
) -> None:
    scores = fuse_rankings(
        {"lexical": [1, 2], "semantic": [8, 9]}, coverage=coverage, pending=pending
    )
    assert scores[8] > scores[9]
    whole = fuse_rankings({"lexical": [1, 2], "semantic": [8, 9]})
    assert scores[8] <= whole[8]
