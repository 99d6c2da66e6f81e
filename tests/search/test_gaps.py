"""Tests of the gap list: queries whose subject is missing, but not queries with filters or mistakes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support import Builder, asked, kill_engine, said

from kbtui import Library, SearchRequest, open_workspace
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SemanticRanking
from kbtui.userdata.user_data_store import UserData
from kbtui.workspace import Settings


@pytest.fixture
def built(workspace_root: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """Build forty subjects about deploying and one about an aardvark."""
    monkeypatch.setenv("KBTUI_MODEL", "off")
    builder = Builder(workspace_root)
    builder.topics(guide={"title": "The Guide"})
    for number in range(40):
        builder.subject(
            f"guide/s{number}.md", f"# Part {number}\n\nDeploy the service with care.\n"
        )
    builder.subject("guide/aardvark.md", "# Burrows\n\nAn aardvark digs at night.\n")
    builder.conversation(1, [[asked("Where is the wombat?"), said("Asleep.")]], title="Talk")
    return builder


@pytest.fixture
def library(built: Builder) -> Iterator[Library]:
    with open_workspace(built.root) as library:
        yield library
    kill_engine(built)


def gaps(library: Library) -> list[str]:
    return [
        one.query for one in UserData(library.workspace).query_log.compute_search_statistics().gaps
    ]


def test_an_answer_without_the_rare_words_is_a_gap(library: Library) -> None:
    for query in (
        "how do I deploy with zymurgy",
        "zymurgy",
        "deploy the aardvark",
        "aardvrak",
        "deploy the service",
        "how do I",
        '"an aardvark digs"',
    ):
        library.search(query)
    assert sorted(gaps(library)) == ["how do I", "how do I deploy with zymurgy", "zymurgy"]


def test_the_words_of_a_title_are_words_of_the_answer(library: Library) -> None:
    library.search("burrows deploy")
    assert gaps(library) == []


def test_a_search_with_a_filter_is_logged_with_it_and_is_no_gap(library: Library) -> None:
    library.search("wombat", types=["note", "conversation"])
    library.search("aardvark in:conversations -night")
    library.search(SearchRequest("zymurgy", since=datetime(2026, 1, 1, tzinfo=UTC)))
    library.search('title:"nothing of it" zymurgy')
    assert gaps(library) == []
    logged = {
        one.query: one.filters
        for one in UserData(library.workspace).query_log.compute_search_statistics().top
    }
    assert logged == {
        "wombat": "type:note,conversation",
        "aardvark in:conversations -night": "in:conversation -night",
        "zymurgy": "after:2026-01-01T00:00:00+00:00",
        'title:"nothing of it" zymurgy': 'title:"nothing of it"',
    }


def test_what_widens_a_search_is_no_filter(library: Library) -> None:
    library.search(
        SearchRequest("zymurgy", hidden=True, archived=True, exclude="jp-c17800000001", limit=3)
    )
    assert gaps(library) == ["zymurgy"]


def test_a_query_with_a_mistake_is_not_logged(library: Library) -> None:
    assert library.search(SearchRequest("wombat after:soonish and more")).mistakes
    assert UserData(library.workspace).query_log.compute_search_statistics().total == 0


@pytest.mark.parametrize(("similarity", "is_gap"), [(0.2, True), (0.9, False)])
def test_a_hit_that_is_alike_fits_without_the_words(
    built: Builder, similarity: float, is_gap: bool
) -> None:
    index = WorkspaceIndexWriter(built.workspace, Settings(model="off"))
    index.refresh_index()
    index.close()
    reader = IndexReader(built.workspace.cache_dir)
    [burrows] = search_index(built.workspace, reader, SearchRequest("burrows")).hits
    chunks = reader.get_chunks_by_number(list(range(1000)))
    number = next(at for at, (chunk, _) in chunks.items() if chunk.id == burrows.chunk_id)
    ranking = SemanticRanking([(number, similarity)])
    found = search_index(
        built.workspace, reader, SearchRequest("anteater"), lambda _: lambda *_: ranking
    )
    reader.close()
    assert [hit.chunk_id for hit in found.hits] == [burrows.chunk_id]
    assert found.is_gap is is_gap
