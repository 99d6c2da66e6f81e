"""Tests of the reranker: what it adds to the fused scores of the best passages."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Builder, asked, said

from kbtui.index.entry_and_chunk_data_types import CatalogEntry, Chunk
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.multi_index_search import QueryVectorOrNotice, SearchedIndex, search_indexes
from kbtui.search.query_stemming_and_matching import QueryWord, StemmingAnalyzer
from kbtui.search.rank_explanation import SearchExplainer
from kbtui.search.rule_based_passage_reranker import (
    PassageToRerank,
    RankBonusCalculator,
    RankBonuses,
)
from kbtui.search.search_pipeline import SemanticRanker, search_index
from kbtui.search.search_request_and_answer import SearchRequest, SemanticRanking
from kbtui.workspace import Settings

ENGLISH = StemmingAnalyzer("english")


def make_reranker(query: str) -> RankBonusCalculator:
    tokens = [tuple(ENGLISH.analyze_query_word(word)) for word in query.lower().split()]
    words = [QueryWord(one[0].plain, one, None) for one in tokens]  # type: ignore[arg-type]
    return RankBonusCalculator(words, {token.stem: 2.0 for one in tokens for token in one}, ENGLISH)


def make_turns(
    texts: Sequence[str],
    *,
    scores: Sequence[float] | None = None,
    roles: Sequence[str] | None = None,
    owner: str = "jp-c1",
    first: int = 1,
) -> list[PassageToRerank]:
    """Make the passages of a conversation in one turn."""
    entry = CatalogEntry(owner, "conversation", "Talk", "", "")
    return [
        PassageToRerank(
            first + at,
            scores[at] if scores else 1.0,
            owner,
            entry,
            Chunk(f"c{at}", text, at, turn=1, role=roles[at] if roles else "user"),
        )
        for at, text in enumerate(texts)
    ]


def make_subject(number: int, text: str) -> PassageToRerank:
    entry = CatalogEntry("s1", "subject", "Otters", "", "", topic="guide", slug="otters")
    return PassageToRerank(number, 1.0, "s1", entry, Chunk("c", text, 0, lines=(1, 1)))


def rerank(query: str, passages: Sequence[PassageToRerank]) -> list[RankBonuses]:
    found = make_reranker(query).compute_bonuses(passages)
    return [found[one.number] for one in passages]


texts = st.sampled_from(["Where do otters sleep?", "In a holt.", "An otter swims.", "", "no ?"])
turns = st.lists(
    st.tuples(texts, st.floats(0.0, 9.0), st.sampled_from(["user", "assistant", "tool-result"])),
    min_size=1,
    max_size=9,
)


@given(turns)
def test_turns_change_places_with_turns_only(rows: list[tuple[str, float, str]]) -> None:
    rows.sort(key=lambda row: -row[1])
    passages = make_turns(
        [text for text, _, _ in rows],
        scores=[score for _, score, _ in rows],
        roles=[role for _, _, role in rows],
    )
    subject, *found = rerank("where do otters sleep", [make_subject(99, "Otters."), *passages])
    assert (subject.words, subject.reply, subject.conversation, subject.place) == (0, 0, 0, 0)
    before = [one.score + got.title + got.length for one, got in zip(passages, found, strict=True)]
    after = [one.score + got.total for one, got in zip(passages, found, strict=True)]
    assert sorted(after) == pytest.approx(sorted(before), abs=2e-4)
    merit = [score + got.turn_bonuses_total for score, got in zip(before, found, strict=True)]
    best = max(range(len(merit)), key=lambda at: merit[at])
    assert after[best] == pytest.approx(max(after), abs=2e-4)


def test_the_passage_after_a_question_that_matches_ranks_higher() -> None:
    found = rerank(
        "otter beds",
        make_turns(
            [
                "Where does it sleep?",
                "In a holt by the river.",
                "It snows.",
                "In a holt by the sea.",
            ],
            scores=[5.0, 1.0, 5.0, 1.0],
        ),
    )
    assert found[1].reply > found[3].reply == found[0].reply == found[2].reply


def test_the_answer_to_a_request_ranks_higher_wherever_it_is_in_the_turn() -> None:
    roles = ["assistant", "user", "tool-call", "reasoning", "assistant"]
    found = rerank(
        "holt",
        make_turns(
            ["Hello.", "Draw it.", "cat", "hm", "Done."], scores=[1, 6, 1, 1, 1], roles=roles
        ),
    )
    assert max(found, key=lambda one: one.reply) == found[4]
    assert found[0].reply == found[1].reply == found[2].reply == found[3].reply


def test_the_words_of_the_query_count_in_the_same_form_and_in_the_passage_alone() -> None:
    found = rerank(
        "otters sleeping", make_turns(["Otters are sleeping.", "An otter sleeps.", "Herons swim."])
    )
    assert found[0].words > found[1].words > found[2].words


def test_a_message_ranks_above_the_reasoning_with_the_same_text() -> None:
    roles = ["user", "reasoning", "assistant"]
    turns = make_turns(["Well then."] * 3, scores=[1.0, 4.0, 3.0], roles=roles)
    found = rerank("holt", turns)
    totals = [one.score + bonus.total for one, bonus in zip(turns, found, strict=True)]
    assert totals[2] == max(totals)
    assert sorted(totals) == pytest.approx(sorted(one.score + found[0].length for one in turns))


def test_a_conversation_that_matches_more_often_ranks_higher() -> None:
    often = make_turns(["a", "b", "c"], scores=[4.0, 4.0, 4.0])
    once = make_turns(["a"], scores=[4.0], owner="jp-c2", first=9)
    found = rerank("otter", [*often, *once])
    assert min(one.conversation for one in found[:3]) > found[3].conversation


def test_a_passage_between_matches_ranks_higher_than_one_far_from_them() -> None:
    apart = make_turns(["a", "b", "c"], scores=[4.0, 4.0, 4.0])
    places = [0, 1, 9]
    passages = [
        one._replace(chunk=one.chunk._replace(ordinal=place))
        for one, place in zip(apart, places, strict=True)
    ]
    first, second, far = (one.conversation for one in rerank("otter", passages))
    assert first == second > far > 0


def test_a_title_with_the_words_and_a_passage_of_some_length_count_for_subjects_too() -> None:
    short, long = make_subject(1, "Otters."), make_subject(2, "Otters. " * 20)
    found = rerank("otters", [short, long])
    assert found[0].title == found[1].title > 0
    assert 0 < found[0].length < found[1].length
    [other] = rerank("herons", [long])
    assert other.title == 0


QUESTION = "where does the otter sleep"


@pytest.fixture
def talk(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/otter.md", "# Otter\n\nThe otter sleeps by day and hunts by night.\n")
    builder.conversation(
        1,
        [
            [asked("Where does the otter sleep?"), said("In a holt by the river.")],
            [asked("Thanks. And the heron?"), said("It sleeps in a tree.")],
            [asked("Once more: where does the otter sleep now?"), said("In the barn: it moved.")],
        ],
        title="Beds",
    )
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    return builder


def rank_by_number(text: str) -> SemanticRanker:
    """Return a ranking by meaning: the first chunks are the most similar ones."""
    return lambda request, generation: SemanticRanking(
        [(number, 1.0 - number / 20) for number in range(1, 8)]
    )


def test_a_score_is_the_sum_of_what_its_explanation_names(talk: Builder) -> None:
    """The answer and the later turn that a hit carries are no part of its score."""
    reader = IndexReader(talk.workspace.cache_dir)
    explainer = SearchExplainer(talk.workspace, reader, SearchRequest(QUESTION), rank_by_number)
    explained = explainer.explain_hits()
    hits = explainer.answer.hits
    reader.close()
    assert any(hit.answer for hit in hits)
    assert any(hit.later_turn for hit in hits)
    for hit, one in zip(hits, explained, strict=True):
        parts = [one.title_gives, one.length_gives, one.place_gives]
        parts += [one.lexical.gives, one.semantic.gives]
        assert hit.score == one.score == pytest.approx(sum(parts), abs=3e-4)
    assert [one.rank for one in explained] == list(range(1, len(hits) + 1))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


class _Vectors:
    """The ranking of `rank_by_number` as a `VectorSearch`."""

    def start_computing_query_vector(self, text: str) -> Callable[[], QueryVectorOrNotice]:
        return lambda: QueryVectorOrNotice([1.0])

    def get_vector_of_first_given_chunk_with_vector_in_index(
        self, index: SearchedIndex, numbers: Sequence[int]
    ) -> None:
        return None

    def search_nearest_chunks_in_index(
        self, index: SearchedIndex, vector: list[float], request: SearchRequest
    ) -> list[tuple[int, float]]:
        return rank_by_number("")(request, "").ranked or []

    def count_missing_and_required_vectors_of_index(
        self, index: SearchedIndex, *, hidden: bool
    ) -> tuple[int, int]:
        return 0, 1

    def select_chunks_without_vector_in_index(
        self, index: SearchedIndex, numbers: Sequence[int]
    ) -> list[int]:
        return []


def test_a_search_of_all_projects_reranks_alike(talk: Builder) -> None:
    reader = IndexReader(talk.workspace.cache_dir)
    request = SearchRequest(QUESTION)
    alone = search_index(talk.workspace, reader, request, rank_by_number).hits
    index = SearchedIndex(talk.workspace, reader, "zoo", "zoo")
    together = search_indexes([index], request, _Vectors()).hits
    reader.close()
    assert [(hit.ref, hit.score) for hit in together] == [(hit.ref, hit.score) for hit in alone]
