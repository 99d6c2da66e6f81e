"""Colours in a tool's output are not words: nothing of them is found."""

from pathlib import Path

from support import Builder, asked, called

from kbtui.conversations import find_conversation, load_conversation
from kbtui.index.chunking import chunk_conversation


def test_a_word_in_colour_is_the_word_and_nothing_else(workspace_root: Path) -> None:
    builder = Builder(workspace_root)
    output = "\x1b[1;31merror\x1b[0m: \x9b32mgreen\x9b0m \x1b]0;title\x07done"
    builder.conversation(1, [[asked("Run it"), *called("a", "cargo", output, args="\x1b[4mbuild")]])
    conversation = load_conversation(find_conversation(builder.workspace, 17_800_000_001))
    texts = [chunk.text for chunk in chunk_conversation("x", conversation)]
    assert "error: green done" in texts
    assert "cargo\nargs: build" in texts
