"""Pages that kbtui makes itself: home, topic, error, help, explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.dates import format_day
from kbtui.text import one_line, sanitize
from kbtui.tui.commands import SCOPES, SCREENS, commands_of, own_key
from kbtui.tui.library_pane import MARKS
from kbtui.tui.library_snapshot import activity, by_activity
from kbtui.tui.reader.blocks import (
    Block,
    FactsBlock,
    HeadBlock,
    MarkdownBlock,
    NoteBlock,
    make_message_blocks,
)
from kbtui.tui.reader.document import Document, format_cost, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from kbtui.search.models import Explanation, LegRank
    from kbtui.tui.commands import Scope
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library_snapshot import LibrarySnapshot, TopicListing


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
    blocks.append(FactsBlock("keys", keys, above=1, name_role="key"))
    if contents is None:
        blocks.append(NoteBlock("loading", [("Reading the workspace …", "dim")], above=1))
        return Document("home", "Home", blocks)
    _add_home_topics(blocks, contents, own_key("first", keymap))
    _home_conversations(blocks, contents, present)
    lines = [*contents.failures, *map(str, contents.problems), *notices]
    for number, line in enumerate(lines):
        spans: Spans = [(f"! {one_line(line)}", "error")]
        blocks.append(NoteBlock(f"problem:{number}", spans, above=int(number == 0)))
    return Document("home", "Home", blocks)


def _add_home_topics(blocks: list[Block], contents: LibrarySnapshot, first: str) -> None:
    total = sum(listing.visible for listing in contents.listings)
    if not contents.listings:
        _no_topics(blocks, contents, first)
        return
    count = f"{format_count(len(contents.listings), 'topic')}, {format_count(total, 'subject')}"
    blocks.append(HeadBlock("topics", [("Topics", "h2")], [(count, "dim")], above=1))
    for listing in contents.listings:
        topic = listing.topic
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
    count = format_count(len(contents.conversations), "conversation")
    blocks.append(HeadBlock("talks", [("Recent conversations", "h2")], [(count, "dim")], above=1))
    for info in live[:RECENT]:
        when = activity(info).astimezone(present.tzinfo)
        left: Spans = [(one_line(info.name), "" if info.title else "dim")]
        right: Spans = [(format_day(when.date(), present.date()), "dim")]
        blocks.append(HeadBlock(f"talk:{info.id}", left, right, lead=[("  ", "")], link=info.ref))


def topic_document(listing: TopicListing, learn_text: str) -> Document:
    """A topic's page: its facts, then what `learn` returns for it without subjects."""
    topic = listing.topic
    hidden = sum(subject.hidden for subject in listing.subjects)
    loaded = sum(subject.learned for subject in listing.subjects)
    disabled = sum(subject.disabled for subject in listing.subjects)
    counts = [format_count(listing.visible, "subject")]
    for number, word in ((hidden, "hidden"), (loaded, "pre-loaded"), (disabled, "disabled")):
        if number:
            counts.append(f"{number:,} {word}")
    size = sum(subject.size for subject in listing.subjects)
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
    for number, problem in enumerate(listing.problems):
        spans: Spans = [(f"! {one_line(str(problem))}", "error")]
        blocks.append(NoteBlock(f"problem:{number}", spans, above=int(number == 0)))
    if topic.enable:
        head: Spans = [("What `learn` returns for this topic", "h2")]
        blocks.append(HeadBlock("learn", head, [(format_cost(len(learn_text)), "dim")], above=1))
        blocks.append(MarkdownBlock("listing", learn_text, above=1, lead=[("▎ ", "rule")]))
    badges: Spans = [] if topic.enable else [("switched off", "warning")]
    return Document(
        f"topic:{topic.id}", one_line(topic.name), blocks, ref=topic.id, badges=badges, record=topic
    )


def problem_document(
    key: str, title: str, message: str, where: str | None = None, hint: str | None = None
) -> Document:
    """What is shown in place of something that cannot be read."""
    said: Spans = [(f"! {sanitize(message)}", "error")]
    return Document(key, one_line(title), make_message_blocks(said, where, hint))


def help_document(scopes: tuple[Scope, ...], keymap: Mapping[str, str] | None = None) -> Document:
    """The keys of some scopes first, then those of the others."""
    order = [*[s for s in scopes if s != "everywhere"], "moving", "everywhere"]
    order += [scope for scope in SCOPES if scope not in order]
    blocks: list[Block] = []
    for place, scope in enumerate(order):
        heading = SCOPES[scope]  # type: ignore[index]
        blocks.append(HeadBlock(f"head:{scope}", [(heading, "h2")], above=int(place > 0)))
        facts: list[tuple[str, Spans]] = [
            ("  ".join(command.key_labels), [(command.help, "")])
            for command in commands_of(scope, keymap=keymap)  # type: ignore[arg-type]
        ]
        blocks.append(FactsBlock(f"keys:{scope}", facts, name_role="key"))
    blocks.append(HeadBlock("head:marks", [("Marks in the library", "h2")], above=1))
    marks: list[tuple[str, Spans]] = [(sign, [(name, "")]) for name, (sign, _) in MARKS.items()]
    blocks.append(FactsBlock("marks", marks))
    text = "In an input letters are text: Esc leaves it, and letters are keys again."
    blocks.append(NoteBlock("input", [(text, "dim")], above=1))
    return Document("help", "Help", blocks)


def screen_help_document(
    scope: Scope, notes: Sequence[str], keymap: Mapping[str, str], more: Sequence[Block] = ()
) -> Document:
    """The help page of a screen: its keys, `more`, and remarks."""
    facts: list[tuple[str, Spans]] = [
        ("  ".join(command.key_labels), [(command.help, "")])
        for command in commands_of(scope, keymap=keymap)
    ]
    blocks: list[Block] = [
        HeadBlock("head", [(SCREENS[scope], "h2")]),
        FactsBlock("keys", facts, name_role="key"),
        *more,
    ]
    for number, text in enumerate(notes):
        blocks.append(NoteBlock(f"note:{number}", [(text, "dim")], above=1))
    return Document("help", "Help", blocks)


TERMS = 20
LEGS = {"lexical": "keywords", "semantic": "meaning"}


def explanation_page(explained: Explanation, query: str) -> Document:
    """Everything that is known of one chunk and a question."""
    blocks: list[Block] = [
        NoteBlock("title", [(one_line(explained.title) or explained.ref, "h1")]),
        FactsBlock("what", [("is", [(explained.ref, "")]), ("asked", [(one_line(query), "")])]),
    ]
    if explained.rank is not None:
        verdict: Spans = [(f"stands at {explained.rank}", "strong")]
        verdict.append((f", fused score {explained.score:.4f}", "dim"))
        blocks.append(NoteBlock("rank", verdict, above=1))
    for number, reason in enumerate(explained.kept_out):
        spans: Spans = [(f"✕ {one_line(reason)}", "warning")]
        blocks.append(NoteBlock(f"out:{number}", spans, above=int(not number)))
    if explained.chunk_id is not None:
        _legs(blocks, explained)
    _words(blocks, explained)
    _embedded(blocks, explained)
    return Document("explanation", "Why", blocks)


def _legs(blocks: list[Block], explained: Explanation) -> None:
    facts: list[tuple[str, Spans]] = []
    for leg in ("lexical", "semantic"):
        standing: LegRank = getattr(explained, leg)
        if standing.rank is None:
            said: Spans = [(standing.note or "not found", "dim")]
        else:
            said = [(f"rank {standing.rank}", ""), (f", score {standing.score:.4f}", "dim")]
        if standing.gives:
            said.append((f", gives {standing.gives:.4f}", "dim"))
        facts.append((LEGS[leg], said))
    blocks.append(HeadBlock("head:legs", [("In each ranking", "h2")], above=1))
    blocks.append(FactsBlock("legs", facts))


def _words(blocks: list[Block], explained: Explanation) -> None:
    facts: list[tuple[str, Spans]] = [
        (
            f"{match.score:.2f}",
            [(match.term, "strong"), (f" in {match.field}, weight {match.weight:g}", "dim")],
        )
        for match in explained.matches[:TERMS]
    ]
    if explained.missing:
        facts.append(("not in it", [(", ".join(explained.missing), "")]))
    if facts:
        more = len(explained.matches) - TERMS
        right: Spans = [(f"{more} more", "dim")] if more > 0 else []
        blocks.append(HeadBlock("head:words", [("Words", "h2")], right, above=1))
        blocks.append(FactsBlock("words", facts))


def _embedded(blocks: list[Block], explained: Explanation) -> None:
    made = explained.embedded
    if made is None:
        return
    blocks.append(HeadBlock("head:made", [("What its vector is made of", "h2")], above=1))
    blocks.append(NoteBlock("text", [(one_line(made.text), "")]))
    facts: list[tuple[str, Spans]] = [
        (f"+ {made.title_weight:g} ×", [("its title: ", "dim"), (one_line(made.title), "")])
    ]
    facts += [
        (f"+ {made.neighbour_weight:g} ×", [("beside it: ", "dim"), (one_line(text)[:200], "")])
        for text in made.neighbours
    ]
    blocks.append(FactsBlock("made", facts, above=1))
