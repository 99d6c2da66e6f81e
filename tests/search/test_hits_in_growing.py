"""Tests of hits in conversations that have grown since they were indexed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder, asked, called, said

from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchAnswer, SearchRequest
from kbtui.workspace import Settings

TURNS = [
    [asked("Where do otters sleep?"), *called("a", "learn", "Holts, by the water", topic="notes")],
    [asked("And herons?"), said("In heronries, high up.")],
    [asked("And wombats?"), said("In burrows.")],
]


@pytest.fixture
def built(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.conversation(1, TURNS, title="Sleep")
    index = WorkspaceIndexWriter(builder.workspace, Settings(model="off"))
    index.refresh_index()
    index.close()
    return builder


@pytest.fixture
def reader(built: Builder) -> Iterator[IndexReader]:
    found = IndexReader(built.workspace.cache_dir)
    yield found
    found.close()


def ask(built: Builder, reader: IndexReader, query: str) -> SearchAnswer:
    return search_index(
        built.workspace, reader, SearchRequest(query, mode="lexical", per_entry=100)
    )


def saying(answered: SearchAnswer, word: str) -> list[tuple[int | None, str]]:
    """Return turn and freshness of the hits whose own text contains the word."""
    return [(hit.turn, hit.freshness) for hit in answered.hits if word in hit.text.lower()]


def test_what_went_on_is_found_where_it_was(built: Builder, reader: IndexReader) -> None:
    more = [[*TURNS[2], said("Deep ones.")], [asked("Thanks")]]
    built.conversation(1, [*TURNS[:2], *more], title="Sleep")
    for query, turn in (("otters", 1), ("holts", 1), ("notes", 1), ("heronries", 2), ("wombats", 3), ("burrows", 3)):  # fmt: skip
        answered = ask(built, reader, query)
        assert saying(answered, query) == [(turn, "changed")], query
        assert answered.omitted == 0


def test_what_is_gone_is_not_served(built: Builder, reader: IndexReader) -> None:
    edited = [asked("And herons?"), said("In trees.")]
    built.conversation(1, [TURNS[0], edited], title="Sleep")
    assert saying(ask(built, reader, "otters"), "otters") == [(1, "changed")]
    for query in ("heronries", "wombats", "burrows"):
        answered = ask(built, reader, query)
        assert saying(answered, query) == [], query
        assert answered.omitted >= 1


def test_what_moved_to_an_archive_is_found_there(built: Builder, reader: IndexReader) -> None:
    folder = built.root / ".jp/conversations/17800000001"
    archive = folder.parent / ".archive"
    archive.mkdir()
    folder.rename(archive / folder.name)
    found = ask(built, reader, "heronries")
    assert saying(found, "heronries") == [(2, "changed")]
    assert found.omitted == 0
