"""Colour codes in a tool's output are not searchable."""

from pathlib import Path

from support import Builder, asked, called

from kbtui.conversations.conversation_repository import find_conversation, load_conversation
from kbtui.index.chunk_splitter import split_conversation_into_chunks
from kbtui.index.index_reader import IndexReader
from kbtui.index.workspace_index_writer import WorkspaceIndexWriter
from kbtui.search.outdated_hits_and_turns import HitFreshnessChecker
from kbtui.workspace import Settings


def test_a_word_in_colour_is_the_word_and_nothing_else(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    output = "\x1b[1;31merror\x1b[0m: \x9b32mgreen\x9b0m \x1b]0;title\x07done"
    builder.conversation(1, [[asked("Run it"), *called("a", "cargo", output, args="\x1b[4mbuild")]])
    conversation = load_conversation(find_conversation(builder.workspace, "jp-c17800000001"))
    texts = [chunk.text for chunk in split_conversation_into_chunks(conversation)]
    assert "error: green done" in texts
    assert "cargo\nargs: build" in texts


def test_a_hit_in_coloured_output_is_served_after_the_conversation_went_on(
    workspace_root: Path,
) -> None:
    builder = Builder(workspace_root)
    turns = [[asked("Run it"), *called("a", "cargo", "all \x1b[32mgre\x1b[0men, wombats too")]]
    builder.conversation(1, turns, title="Colours")
    index = WorkspaceIndexWriter(builder.workspace, Settings(model="off"))
    index.refresh_index()
    entry = index.catalog.get_entries_by_id(["jp-c17800000001"])["jp-c17800000001"]
    chunk = next(c for c in index.catalog.list_entry_chunks(entry.id) if "wombats" in c.text)
    assert chunk.text == "all green, wombats too"
    index.close()
    builder.conversation(1, [*turns, [asked("More")]], title="Colours")
    reader = IndexReader(builder.workspace.cache_dir)
    assert HitFreshnessChecker(builder.workspace, reader).check_hit_freshness_and_find_lines(
        entry, chunk
    ) == (
        "changed",
        None,
    )
    reader.close()
