"""Each of the two keyword indexes is committed only when it must be."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Builder

from kbtui.index import catalog_and_keyword_indexer
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.search_pipeline import search_index
from kbtui.search.search_request_and_answer import SearchRequest
from kbtui.workspace import Settings


@pytest.fixture
def built(workspace_root: Path) -> Builder:
    builder = Builder(workspace_root)
    builder.topics(guide={})
    builder.subject("guide/.inner.md", "# Inner\n\nThe zebra hides.\n")
    return builder


@pytest.fixture
def index(built: Builder, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkspaceIndexWriter]:
    monkeypatch.setattr(catalog_and_keyword_indexer, "MAX_LAG", 3)
    held = WorkspaceIndexWriter(built.workspace, Settings(model="off"))
    held.refresh_index()
    yield held
    held.close()


def save(builder: Builder, index: WorkspaceIndexWriter, number: int) -> int:
    """Save a visible subject; return the watermark of the index of hidden ones."""
    builder.subject(f"guide/s{number}.md", f"# S{number}\n\nThe zebra {number} grazes.\n")
    index.refresh_index()
    return index.storage.writers[True].read_catalog_watermark()[0]


def found(builder: Builder) -> int:
    reader = IndexReader(builder.workspace.cache_dir)
    question = SearchRequest("zebra", mode="lexical", hidden=True)
    hits = search_index(builder.workspace, reader, question).hits
    reader.close()
    return len(hits)


def test_a_save_is_written_to_one_of_them_until_the_other_is_far_behind(
    built: Builder, index: WorkspaceIndexWriter
) -> None:
    marks = [save(built, index, number) for number in range(5)]
    assert len(set(marks[:2])) == 1, "nothing was written to it"
    assert marks[-1] > marks[0], "it caught up"
    assert found(built) == 6


def test_opened_again_one_that_is_behind_catches_up_and_has_all_it_had(
    built: Builder, index: WorkspaceIndexWriter
) -> None:
    mark = save(built, index, 1)
    assert mark < index.catalog.get_last_transaction_number()
    index.close()
    index.storage = catalog_and_keyword_indexer.CatalogAndKeywordIndexWriter(
        built.workspace.cache_dir, Settings(model="off")
    )
    index.catalog = index.storage.catalog
    assert (
        index.storage.writers[True].read_catalog_watermark()[0]
        == index.catalog.get_last_transaction_number()
    )
    built.subject("guide/.other.md", "# Other\n\nThe zebra hides too.\n")
    index.refresh_index()
    assert found(built) == 3
