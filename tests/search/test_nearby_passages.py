"""A passage is also found by the words in the passages around it."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support import FIRST_ID, Builder, asked, called, said

from kbtui.index.entry_and_chunk_data_types import (
    BLOCK_PASSAGES,
    compute_passage_place_number,
    compute_place_number_of_first_passage_in_entry,
    extract_entry_number_from_place_number,
    get_passage_block_of_place,
)
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.nearby_passage_scoring import MAX_SURROUNDING_TERMS, REACH
from kbtui.search.rank_explanation import SearchExplainer
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings


def search(builder: Builder, query: str, **options: object) -> SearchExplainer:
    index = WorkspaceIndexWriter(builder.workspace, Settings(model="off"))
    index.refresh_index()
    index.close()
    request = SearchRequest(query, mode="lexical", **options)  # type: ignore[arg-type]
    return SearchExplainer(builder.workspace, IndexReader(builder.workspace.cache_dir), request)


def test_the_words_around_a_passage_count(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    filler = [[asked(f"filler {at}")] for at in range(12)]
    builder.conversation(
        1, [[asked("the otter sleeps"), said("near the weir")], *filler], title="A"
    )
    builder.conversation(
        2, [[asked("the otter sleeps")], *filler, [asked("near the weir")]], title="B"
    )
    found = search(builder, "otter weir")
    [first, *_] = found.answer.hits
    assert first.conversation_id == f"jp-c{FIRST_ID + 1}"
    # Passages near these two are hits, although they have no word of the query. Others are not.
    assert {
        hit.ref for hit in found.answer.hits if hit.conversation_id == first.conversation_id
    } == {f"{first.conversation_id}:{turn}" for turn in range(1, REACH + 2)}
    assert found.answer.total == len(found.answer.hits)
    explained = found.explain_hits()[0]
    fields = {(match.term, match.field) for match in explained.matches}
    assert fields >= {("otter", "around"), ("weir", "around")}
    score = sum(match.score for match in explained.matches)
    assert abs(score - (explained.lexical.score or 0)) < 0.01
    assert not search(builder, "otter weir", roles=("system",)).answer.hits


def test_nearer_passages_count_more_and_tool_results_do_not_count(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    otter, weir, filler = [asked("the otter sleeps")], [asked("near the weir")], [asked("filler")]
    ran = [asked("filler"), *called("1", "fs_list", "near the weir")]
    builder.conversation(1, [otter, weir, filler], title="Same")
    builder.conversation(2, [otter, filler, weir], title="Same")
    builder.conversation(3, [otter, ran], title="Same")
    for number in range(4, 20):
        builder.conversation(number, [filler] * 9, title="Other")
    found = search(builder, "otter weir")
    scores = {}
    for hit, explained in zip(found.answer.hits, found.explain_hits(), strict=True):
        if "otter" in hit.text and hit.conversation_id:
            scores[hit.conversation_id] = sum(
                match.score for match in explained.matches if match.field == "around"
            )
    near, far, without = (scores[f"jp-c{FIRST_ID + number}"] for number in (1, 2, 3))
    assert near > far > without > 0


def test_the_only_passage_of_an_entry_is_not_below_one_with_neighbours(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/alone.md", "The otter sleeps.\n")
    builder.conversation(1, [[asked("The otter sleeps.")], *([asked("Filler.")] for _ in range(9))])
    assert search(builder, "otter").answer.hits[0].slug == "alone"


def test_a_query_with_more_words_than_are_looked_for_around_passages_has_hits(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    words = [f"otter{number}" for number in range(2 * MAX_SURROUNDING_TERMS)]
    builder.conversation(1, [[asked(word)] for word in words])
    found = search(builder, " ".join(words))
    assert len(found.answer.hits) > 1
    around = [match for match in found.explain_hits()[0].matches if match.field == "around"]
    assert len(around) > 1


@given(st.integers(0, 100), st.text(max_size=4))
def test_a_block_has_adjacent_places_of_one_entry(ordinal: int, entry_id: str) -> None:
    first = compute_place_number_of_first_passage_in_entry(entry_id)
    place = compute_passage_place_number(first, ordinal)
    block = get_passage_block_of_place(place)
    assert 0 <= place - block < BLOCK_PASSAGES
    assert (block - first) % BLOCK_PASSAGES == 0
    assert extract_entry_number_from_place_number(block) == extract_entry_number_from_place_number(
        first
    )
