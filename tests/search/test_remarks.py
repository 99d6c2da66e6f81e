"""What `kbtui search` says beside its hits."""

from pathlib import Path

from support import Builder

from kbtui.cli.search_format import format_notices
from kbtui.index import Index, IndexReader
from kbtui.search import Question
from kbtui.search.pipeline import answer
from kbtui.workspace import Settings


def test_nothing_found_is_said_once_and_briefly(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    builder.topics(notes={})
    builder.subject("notes/one.md", "# One\n\nAn otter.\n")
    index = Index(builder.workspace, Settings())
    index.refresh()
    index.close()
    reader = IndexReader(builder.workspace.cache_dir)

    def said(query: str) -> list[str]:
        question = Question(query, mode="lexical")
        return format_notices(answer(builder.workspace, reader, question).as_message(), query)

    assert said("otter") == []
    assert said("badger") == ["nothing found for 'badger'"]
    for empty in ("", "  ", '"', "-"):
        assert said(empty) == ["nothing to look for: add a word"]
    [long] = said("a" * 900)
    assert len(long) < 100
    reader.close()
