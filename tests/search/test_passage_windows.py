"""A passage is also found by the words around it, and windows themselves are never hits."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support import FIRST_ID, Builder, asked, said

from kbtui.index.index_reader import IndexReader
from kbtui.index.indexer import WorkspaceIndexWriter
from kbtui.index.passage_windows import (
    WINDOW_CHUNKS,
    find_changed_windows,
    find_windows_around,
    make_chunk_place,
    make_entry_place,
    score_texts_around,
)
from kbtui.search.rank_explanation import SearchExplainer
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings


def search(builder: Builder, query: str, **options: object) -> SearchExplainer:
    index = WorkspaceIndexWriter(builder.workspace, Settings(model="off"))
    index.refresh_index()
    index.close()
    request = SearchRequest(query, mode="lexical", **options)  # type: ignore[arg-type]
    return SearchExplainer(builder.workspace, IndexReader(builder.workspace.cache_dir), request)


def test_the_words_around_a_passage_count_within_its_window(workspace_root: Path) -> None:
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
    # Hits are passages of the six that are indexed together; no other passage is one.
    assert {
        hit.ref for hit in found.answer.hits if hit.conversation_id == first.conversation_id
    } == {f"{first.conversation_id}:{turn}" for turn in range(1, WINDOW_CHUNKS)}
    assert found.answer.total == len(found.answer.hits)
    explained = found.explain_hits()[0]
    fields = {(match.term, match.field) for match in explained.matches}
    assert fields >= {("otter", "window"), ("weir", "window")}
    score = sum(match.score for match in explained.matches)
    assert abs(score - (explained.lexical.score or 0)) < 0.01
    assert not search(builder, "otter weir", roles=("system",)).answer.hits


def test_the_only_passage_of_an_entry_is_not_below_one_with_neighbours(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/alone.md", "The otter sleeps.\n")
    builder.conversation(1, [[asked("The otter sleeps.")], *([asked("Filler.")] for _ in range(9))])
    assert search(builder, "otter").answer.hits[0].slug == "alone"


@given(st.integers(0, 100), st.text(max_size=4))
def test_the_adjacent_window_is_the_nearer_one_and_of_the_same_entry(
    ordinal: int, entry_id: str
) -> None:
    first = make_entry_place(entry_id)
    around = find_windows_around(make_chunk_place(first, ordinal))
    own = (around.own - first) // WINDOW_CHUNKS
    assert own == ordinal // WINDOW_CHUNKS
    other = (around.adjacent - first) // WINDOW_CHUNKS
    assert abs(own - other) == 1
    assert 0 <= around.share < 0.5
    place = make_chunk_place(first, ordinal)
    assert score_texts_around([place], {around.own: 2.0, around.adjacent: 1.0}) == [2.0]
    (score,) = score_texts_around([place], {around.own: 2.0, around.adjacent: 4.0})
    assert 2.0 <= score < 3.0


IDS = st.lists(st.text("abc", min_size=1, max_size=2), max_size=30)


@given(IDS, IDS)
def test_a_window_is_rewritten_if_and_only_if_its_passages_differ(
    old: list[str], new: list[str]
) -> None:
    changed = find_changed_windows(enumerate(old), enumerate(new))
    for number in range(6):
        members = slice(number * WINDOW_CHUNKS, (number + 1) * WINDOW_CHUNKS)
        assert (number in changed) == (old[members] != new[members])
