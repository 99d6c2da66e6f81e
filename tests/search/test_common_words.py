"""Tests of words that nearly every chunk of a large index contains."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder

from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search import keyword_search
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings

SUBJECTS = 60


@pytest.fixture
def built(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    for number in range(SUBJECTS):
        rare = "A walrus sleeps." if number in (7, 9) else "Nobody sleeps."
        builder.subject(f"notes/s{number:02}.md", f"# S{number}\n\nThe harbour. {rare}\n")
    index = WorkspaceIndexWriter(builder.workspace, Settings())
    index.refresh_index()
    index.close()
    return builder


@pytest.fixture
def reader(built: Builder) -> Iterator[IndexReader]:
    held = IndexReader(built.workspace.cache_dir)
    yield held
    held.close()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyword_search, "LARGE_INDEX_CHUNKS", SUBJECTS)


def ask(builder: Builder, reader: IndexReader, query: str) -> list[str | None]:
    found = search_index(builder.workspace, reader, SearchRequest(query, mode="lexical", limit=100))
    return [hit.slug for hit in found.hits]


def test_every_word_counts_in_a_small_index(built: Builder, reader: IndexReader) -> None:
    found = ask(built, reader, "walrus harbour")
    assert sorted(found[:2]) == ["s07", "s09"]  # type: ignore[type-var]
    assert len(found) == SUBJECTS


@pytest.mark.usefixtures("large")
def test_a_large_index_is_asked_for_the_words_that_tell_chunks_apart(
    built: Builder, reader: IndexReader
) -> None:
    assert sorted(ask(built, reader, "walrus harbour")) == ["s07", "s09"]  # type: ignore[type-var]
    # A word that is nowhere tells nothing either.
    assert len(ask(built, reader, "wombat harbour")) == SUBJECTS


@pytest.mark.usefixtures("large")
def test_words_that_all_chunks_have_are_asked_for_where_there_are_no_others(
    built: Builder, reader: IndexReader
) -> None:
    assert len(ask(built, reader, "harbour")) == SUBJECTS
    assert len(ask(built, reader, "the harbour")) == SUBJECTS
    assert ask(built, reader, '"the harbour" walrus')[:2] == ask(built, reader, "walrus")
