"""Pages of our own: the home page, a topic's page, and what is shown when something fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.text import one_line, safe
from kbtui.tui.clock import day_label
from kbtui.tui.commands import own_key
from kbtui.tui.library.snapshot import activity, by_activity
from kbtui.tui.reader.blocks import (
    Block,
    FactsBlock,
    HeadBlock,
    MarkdownBlock,
    NoteBlock,
    message_blocks,
)
from kbtui.tui.reader.document import Document, cost, counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library.snapshot import LibrarySnapshot, TopicListing

FIRST_TOPIC = """\
```toml
[kb.topic.project]
title = "Project Knowledge"
introduction = "what everybody here should know"
subjects = "docs"
```
"""
"""What a first `.jp/kb.toml` could hold."""

KEYS = (
    ("search", "search everything"),
    ("library.open", "open what is selected"),
    ("help", "what the keys do where you are"),
)
"""The commands that matter most, and what they do."""
RECENT = 5


def home_document(
    name: str,
    contents: LibrarySnapshot | None,
    present: datetime,
    notices: Sequence[str] = (),
    keymap: Mapping[str, str] | None = None,
) -> Document:
    """The page one starts on: what is here, and the keys that matter, as `keymap` has them."""
    keymap = keymap or {}
    blocks: list[Block] = [NoteBlock("name", [(one_line(name), "h1")])]
    keys: list[tuple[str, Spans]] = [
        (key, [(what, "")]) for command, what in KEYS if (key := own_key(command, keymap))
    ]
    blocks.append(FactsBlock("keys", keys, above=1, names="key"))
    if contents is None:
        blocks.append(NoteBlock("loading", [("Reading the workspace …", "dim")], above=1))
        return Document("home", "Home", blocks)
    _home_topics(blocks, contents, own_key("first", keymap))
    _home_conversations(blocks, contents, present)
    lines = [*contents.failures, *map(str, contents.problems), *notices]
    for number, line in enumerate(lines):
        spans: Spans = [(f"! {one_line(line)}", "error")]
        blocks.append(NoteBlock(f"problem:{number}", spans, above=int(number == 0)))
    return Document("home", "Home", blocks)


def _home_topics(blocks: list[Block], contents: LibrarySnapshot, first: str) -> None:
    total = sum(shelf.visible for shelf in contents.shelves)
    if not contents.shelves:
        _no_topics(blocks, contents, first)
        return
    count = f"{counted(len(contents.shelves), 'topic')}, {counted(total, 'subject')}"
    blocks.append(HeadBlock("topics", [("Topics", "h2")], [(count, "dim")], above=1))
    for shelf in contents.shelves:
        topic = shelf.topic
        words: Spans = [(one_line(topic.name), "strong")]
        if topic.introduction:
            words.append((f"  {one_line(topic.introduction)}", "dim"))
        if not topic.enable:
            words.append(("  switched off", "warning"))
        blocks.append(NoteBlock(f"topic:{topic.id}", words, lead=[("  ", "")], link=topic.id))


def _no_topics(blocks: list[Block], contents: LibrarySnapshot, first: str) -> None:
    if contents.problems or any(line.startswith("topics") for line in contents.failures):
        blocks.append(HeadBlock("topics", [("No topic can be read", "h2")], above=1))
        blocks.append(NoteBlock("why", [("The reason is below; kbtui reads them again when it is mended.", "dim")]))  # fmt: skip
        return
    blocks.append(HeadBlock("topics", [("No topics yet", "h2")], above=1))
    text = "A topic is a directory of text files. `.jp/kb.toml` declares it, in a few lines:\n\n"
    blocks.append(MarkdownBlock("first", text + FIRST_TOPIC))
    if first:
        what = " shows what would be written for this workspace, and asks"
        blocks.append(NoteBlock("offer", [(first, "key"), (what, "")], above=1))


def _home_conversations(blocks: list[Block], contents: LibrarySnapshot, present: datetime) -> None:
    live = sorted((info for info in contents.conversations if not info.archived), key=by_activity)
    if not contents.conversations:
        blocks.append(HeadBlock("talks", [("No conversations yet", "h2")], above=1))
        spans: Spans = [
            ("They appear here as soon as `jp query` has written the first one.", "dim")
        ]
        blocks.append(NoteBlock("no-talks", spans))
        return
    count = counted(len(contents.conversations), "conversation")
    blocks.append(HeadBlock("talks", [("Recent conversations", "h2")], [(count, "dim")], above=1))
    for info in live[:RECENT]:
        when = activity(info).astimezone(present.tzinfo)
        left: Spans = [(one_line(info.name), "" if info.title else "dim")]
        right: Spans = [(day_label(when.date(), present.date()), "dim")]
        blocks.append(HeadBlock(f"talk:{info.id}", left, right, lead=[("  ", "")], link=info.ref))


def topic_document(shelf: TopicListing, listing: str) -> Document:
    """A topic's page: its facts, then what `learn` returns for it without subjects."""
    topic = shelf.topic
    hidden = sum(subject.hidden for subject in shelf.subjects)
    loaded = sum(subject.learned for subject in shelf.subjects)
    disabled = sum(subject.disabled for subject in shelf.subjects)
    counts = [counted(shelf.visible, "subject")]
    for number, word in ((hidden, "hidden"), (loaded, "pre-loaded"), (disabled, "disabled")):
        if number:
            counts.append(f"{number:,} {word}")
    size = sum(subject.size for subject in shelf.subjects)
    facts: list[tuple[str, Spans]] = [
        ("id", [(one_line(topic.id), "")]),
        ("holds", [(", ".join(counts), ""), (f"  {size:,} bytes", "dim")]),
        ("directory", [(one_line(topic.subjects), "")]),
    ]
    if topic.introduction:
        facts.insert(1, ("introduction", [(one_line(topic.introduction), "")]))
    if topic.learned:
        facts.append(("learned", [(one_line(", ".join(topic.learned)), "")]))
    if topic.disabled:
        facts.append(("disabled", [(one_line(", ".join(topic.disabled)), "")]))
    blocks: list[Block] = [FactsBlock("facts", facts)]
    for number, problem in enumerate(shelf.problems):
        spans: Spans = [(f"! {one_line(str(problem))}", "error")]
        blocks.append(NoteBlock(f"problem:{number}", spans, above=int(number == 0)))
    if topic.enable:
        head: Spans = [("What `learn` returns for this topic", "h2")]
        blocks.append(HeadBlock("learn", head, [(cost(len(listing)), "dim")], above=1))
        blocks.append(MarkdownBlock("listing", listing, above=1, lead=[("▎ ", "rule")]))
    badges: Spans = [] if topic.enable else [("switched off", "warning")]
    return Document(
        f"topic:{topic.id}", one_line(topic.name), blocks, ref=topic.id, badges=badges, record=topic
    )


def problem_document(
    key: str, title: str, message: str, where: str | None = None, hint: str | None = None
) -> Document:
    """What is shown in place of something that cannot be read."""
    said: Spans = [(f"! {safe(message)}", "error")]
    return Document(key, one_line(title), message_blocks(said, where, hint))
