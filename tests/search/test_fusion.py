"""Tests of the fusion of both rankings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.search.search_pipeline import HybridScoreFusion

Ranking = list[tuple[int, float]]


def fuse(lexical: Ranking, semantic: Ranking, **options: object) -> dict[int, float]:
    return HybridScoreFusion(
        {"lexical": lexical, "semantic": semantic}, **options
    ).fuse_ranking_scores()  # type: ignore[arg-type]


def sort_by_score(scores: dict[int, float]) -> list[int]:
    return sorted(scores, key=lambda number: -scores[number])


rankings = st.lists(st.floats(0.1, 1.0), min_size=2, max_size=8, unique=True).map(
    lambda scores: sorted(scores, reverse=True)
)


@given(rankings, rankings, st.floats(1.0, 1000.0))
def test_the_unit_of_a_legs_scores_does_not_matter(
    lexical: list[float], semantic: list[float], factor: float
) -> None:
    legs = list(enumerate(lexical, 1)), list(enumerate(semantic, 5))
    larger = [(number, score * factor) for number, score in legs[0]], legs[1]
    assert fuse(*larger) == pytest.approx(fuse(*legs), abs=2e-4, rel=1e-3)


@given(rankings, rankings)
def test_the_first_in_both_legs_is_the_first(lexical: list[float], semantic: list[float]) -> None:
    scores = fuse(list(enumerate(lexical, 1)), list(enumerate(semantic, 1)))
    assert scores[1] == max(scores.values())


def test_one_leg_alone_keeps_its_order_even_if_its_scores_are_equal() -> None:
    assert sort_by_score(fuse([(7, 0.0), (3, 0.0), (5, 0.0)], [])) == [7, 3, 5]


def test_how_much_better_a_hit_is_counts_and_not_only_its_rank() -> None:
    semantic = [(2, 0.60), (3, 0.59), (1, 0.58), (4, 0.57)]
    far_ahead = [(1, 30.0), (2, 6.0), (3, 5.9), (4, 5.8)]
    assert sort_by_score(fuse(far_ahead, semantic, depth=4))[0] == 1
    near = [(1, 6.05), (2, 6.04), (3, 5.9), (4, 5.8)]
    assert sort_by_score(fuse(near, semantic, depth=4))[0] == 2


def test_a_chunk_missing_in_a_full_leg_counts_there_as_its_hit_at_the_depth() -> None:
    # The leg continues after its depth with the best chunks of other entries.
    scores = fuse([(1, 9.0), (2, 5.0), (3, 1.0)], [(8, 0.9), (9, 0.5)], depth=2)
    lexical = HybridScoreFusion(
        {"lexical": [(1, 9.0), (2, 5.0), (3, 1.0)], "semantic": [(8, 0.9)]}, depth=2
    )
    assert lexical.score_chunk_in_ranking("lexical", 8) == lexical.score_chunk_in_ranking(
        "lexical", 2
    )
    assert scores[8] > scores[9] > scores[3]


def test_what_was_embedded_first_gains_nothing_by_that() -> None:
    """With vectors for one chunk in fifty, the best keyword hits, which have none, stay first."""
    legs = [(1, 9.0), (2, 8.0), (3, 7.0)], [(3, 0.9), (9, 0.5), (8, 0.4)]
    assert sort_by_score(fuse(*legs))[0] == 3
    assert sort_by_score(fuse(*legs, coverage=0.02, pending={1, 2})) == [1, 2, 3, 9, 8]


@given(st.floats(0.01, 1.0), st.sets(st.sampled_from([1, 2])))
def test_the_share_embedded_changes_no_order_within_a_leg(
    coverage: float, pending: set[int]
) -> None:
    legs = [(1, 9.0), (2, 8.0)], [(8, 0.9), (9, 0.5), (7, 0.1)]
    scores = fuse(*legs, coverage=coverage, pending=pending)
    assert scores[8] > scores[9]
    assert scores[8] <= fuse(*legs)[8]
