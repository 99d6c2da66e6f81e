"""Build the pages that are not read from a file: home, topic, error, help, rank explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.dates import format_relative_day
from kbtui.text import describe_missing_words, one_line, sanitize
from kbtui.tui.commands import SCOPES, SCREENS, find_key_label, list_commands
from kbtui.tui.library_pane import ENTRY_MARKS
from kbtui.tui.library_snapshot import get_activity_sort_key, get_last_activity
from kbtui.tui.reader.document import Document, format_count, format_token_cost
from kbtui.tui.reader.document_blocks import (
    DocumentBlock,
    FactTableBlock,
    HeadingBlock,
    MarkdownBlock,
    ParagraphBlock,
    make_message_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from kbtui.search.models import RankExplanation, SearchLegRank
    from kbtui.tui.commands import Scope
    from kbtui.tui.framework.styled_text import Spans
    from kbtui.tui.library_snapshot import LibrarySnapshot, TopicWithSubjects

    Facts = list[tuple[str, Spans]]

FIRST_TOPIC = """\
A topic is a directory of text files. `.jp/kb.toml` declares it, in a few lines:

```toml
[kb.topic.project]
title = "Project Knowledge"
introduction = "what everybody here should know"
subjects = "docs"
```
"""
NEW_TOPIC_KEY = ("first", "create a first topic")
NEW_ENTRY_KEY = ("new", "create an entry")
"""The id and label of a command that the home page adds while there are no subjects."""
HOME_KEYS = (
    ("search", "search everything"),
    ("library.open", "open what is selected"),
    ("help", "help for the current pane"),
)
"""The ids of the commands that the home page shows, with what they do."""
RECENT_CONVERSATIONS = 5
TERMS_MOST = 20
"""The maximum number of matching terms that an explanation lists."""
LEG_NAMES = {"lexical": "keywords", "semantic": "meaning"}


# home


def build_home_document(
    name: str,
    contents: LibrarySnapshot | None,
    now: datetime,
    notices: Sequence[str] = (),
    keymap: Mapping[str, str] | None = None,
    note: str = "",
) -> Document:
    """Return the home page: the most important keys, topics, recent conversations and problems.

    `contents` is None while the lists are being read. `notices` are problems with the settings.
    `note` says why this page is shown in place of another.
    """
    keymap = keymap or {}
    keys: Facts = [
        (key, [(meaning, "")])
        for command, meaning in (*HOME_KEYS, *_list_creation_keys(contents))
        if (key := find_key_label(command, keymap))
    ]
    blocks: list[DocumentBlock] = [
        ParagraphBlock("name", [(one_line(name), "h1")]),
        FactTableBlock("keys", keys, above=1, name_role="key"),
    ]
    if note:
        blocks.insert(1, ParagraphBlock("note", [(one_line(note), "warning")], above=1))
    if contents is None:
        blocks.append(ParagraphBlock("loading", [("Reading the workspace …", "dim")], above=1))
        return Document("home", "Home", blocks)
    if contents.listings:
        _add_topics(blocks, contents)
    else:
        _add_first_topic(blocks, contents, find_key_label("first", keymap))
    _add_conversations(blocks, contents, now)
    _add_problems(blocks, [*contents.failures, *map(str, contents.problems), *notices])
    return Document("home", "Home", blocks)


def _list_creation_keys(contents: LibrarySnapshot | None) -> list[tuple[str, str]]:
    """Return the id and the label of the command that creates a missing first topic or entry."""
    if contents is None or _has_unreadable_topics(contents):
        return []
    if not contents.listings:
        return [NEW_TOPIC_KEY]
    return [] if any(listing.subjects for listing in contents.listings) else [NEW_ENTRY_KEY]


def _has_unreadable_topics(contents: LibrarySnapshot) -> bool:
    is_unread = any(line.startswith("topics") for line in contents.failures)
    return not contents.listings and (bool(contents.problems) or is_unread)


def _add_topics(blocks: list[DocumentBlock], contents: LibrarySnapshot) -> None:
    total = sum(listing.visible_subject_count for listing in contents.listings)
    hidden = sum(len(listing.subjects) for listing in contents.listings) - total
    count = f"{format_count(len(contents.listings), 'topic')}, {format_count(total, 'subject')}"
    count += f", {hidden:,} hidden" if hidden else ""
    blocks.append(HeadingBlock("topics", [("Topics", "h2")], [(count, "dim")], above=1))
    for listing in contents.listings:
        topic = listing.topic
        words: Spans = [(one_line(topic.name), "strong")]
        if topic.introduction:
            words.append((f"  {one_line(topic.introduction)}", "dim"))
        if not topic.enable:
            words.append(("  switched off", "warning"))
        blocks.append(ParagraphBlock(f"topic:{topic.id}", words, lead=[("  ", "")], link=topic.id))


def _add_first_topic(blocks: list[DocumentBlock], contents: LibrarySnapshot, key: str) -> None:
    if _has_unreadable_topics(contents):
        blocks.append(HeadingBlock("topics", [("No topic can be read", "h2")], above=1))
        blocks.append(
            ParagraphBlock(
                "why",
                [
                    (
                        "The problems are listed below. kbtui reloads the topics after you fix them.",
                        "dim",
                    )
                ],
            )
        )
        return
    blocks.append(HeadingBlock("topics", [("No topics yet", "h2")], above=1))
    blocks.append(MarkdownBlock("first", FIRST_TOPIC))
    if key:
        offer: Spans = [("Press ", ""), (key, "key"), (" to create it (shows the file first).", "")]
        blocks.append(ParagraphBlock("offer", offer, above=1))


def _add_conversations(
    blocks: list[DocumentBlock], contents: LibrarySnapshot, now: datetime
) -> None:
    if not contents.conversations:
        blocks.append(HeadingBlock("talks", [("No conversations yet", "h2")], above=1))
        hint: Spans = [("They appear after your first `jp query`.", "dim")]
        blocks.append(ParagraphBlock("no-talks", hint))
        return
    live = [info for info in contents.conversations if not info.archived]
    count = format_count(len(contents.conversations), "conversation")
    blocks.append(
        HeadingBlock("talks", [("Recent conversations", "h2")], [(count, "dim")], above=1)
    )
    for info in sorted(live, key=get_activity_sort_key)[:RECENT_CONVERSATIONS]:
        when = get_last_activity(info).astimezone(now.tzinfo)
        left: Spans = [(one_line(info.name), "" if info.title else "dim")]
        right: Spans = [(format_relative_day(when.date(), now.date()), "dim")]
        blocks.append(
            HeadingBlock(f"talk:{info.id}", left, right, lead=[("  ", "")], link=info.ref)
        )


def _add_problems(blocks: list[DocumentBlock], problems: Sequence[object]) -> None:
    for number, problem in enumerate(problems):
        spans: Spans = [(f"! {one_line(str(problem))}", "error")]
        blocks.append(ParagraphBlock(f"problem:{number}", spans, above=int(number == 0)))


# topics and errors


def build_topic_document(listing: TopicWithSubjects, learn_text: str) -> Document:
    """Return the page of a topic: a table of facts, then what `learn` returns for the topic."""
    topic, subjects = listing.topic, listing.subjects
    counts = [format_count(listing.visible_subject_count, "subject")]
    for number, word in (
        (sum(subject.hidden for subject in subjects), "hidden"),
        (sum(subject.learned for subject in subjects), "pre-loaded"),
        (sum(subject.disabled for subject in subjects), "disabled"),
    ):
        if number:
            counts.append(f"{number:,} {word}")
    size = sum(subject.size for subject in subjects)
    facts: Facts = [("id", [(one_line(topic.id), "")])]
    if topic.introduction:
        facts.append(("introduction", [(one_line(topic.introduction), "")]))
    facts.append(("size", [(", ".join(counts), ""), (f"  {size:,} bytes", "dim")]))
    facts.append(("directory", [(one_line(topic.subjects), "")]))
    if topic.learned:
        facts.append(("learned", [(one_line(", ".join(topic.learned)), "")]))
    if topic.disabled:
        facts.append(("disabled", [(one_line(", ".join(topic.disabled)), "")]))
    blocks: list[DocumentBlock] = [FactTableBlock("facts", facts)]
    _add_problems(blocks, listing.problems)
    if topic.enable:
        head: Spans = [("What `learn` returns for this topic", "h2")]
        cost: Spans = [(format_token_cost(len(learn_text)), "dim")]
        blocks.append(HeadingBlock("learn", head, cost, above=1))
        blocks.append(MarkdownBlock("listing", learn_text, above=1, lead=[("▎ ", "rule")]))
    badges: Spans = [] if topic.enable else [("switched off", "warning")]
    name = one_line(topic.name)
    return Document(f"topic:{topic.id}", name, blocks, ref=topic.id, badges=badges, record=topic)


def build_problem_document(
    key: str, title: str, message: str, where: str | None = None, hint: str | None = None
) -> Document:
    """Return the page that replaces a document that cannot be read."""
    spans: Spans = [(f"! {sanitize(message)}", "error")]
    return Document(key, one_line(title), make_message_blocks(spans, where, hint))


# help


def build_help_document(
    scopes: tuple[Scope, ...], keymap: Mapping[str, str] | None = None
) -> Document:
    """Return the help of the main screen, with the keys of the given scopes first."""
    order: list[Scope] = [*[s for s in scopes if s != "everywhere"], "moving", "everywhere"]
    order += [scope for scope in SCOPES if scope not in order]
    blocks: list[DocumentBlock] = []
    for scope in order:
        heading: Spans = [(SCOPES[scope], "h2")]
        blocks.append(HeadingBlock(f"head:{scope}", heading, above=int(bool(blocks))))
        blocks.append(
            FactTableBlock(f"keys:{scope}", _list_key_facts(scope, keymap), name_role="key")
        )
    marks: Facts = [(sign, [(name, "")]) for name, (sign, _) in ENTRY_MARKS.items()]
    text = "In an input, keys type text. Press Esc to leave it and use single-key commands."
    blocks += [
        HeadingBlock("head:marks", [("Marks in the library", "h2")], above=1),
        FactTableBlock("marks", marks),
        ParagraphBlock("input", [(text, "dim")], above=1),
    ]
    return Document("help", "Help", blocks)


def build_screen_help_document(
    scope: Scope,
    notes: Sequence[str],
    keymap: Mapping[str, str],
    more: Sequence[DocumentBlock] = (),
) -> Document:
    """Return the help of a secondary screen: its keys, then the blocks in `more`, then the notes."""
    blocks: list[DocumentBlock] = [
        HeadingBlock("head", [(SCREENS[scope], "h2")]),
        FactTableBlock("keys", _list_key_facts(scope, keymap), name_role="key"),
        *more,
    ]
    for number, text in enumerate(notes):
        blocks.append(ParagraphBlock(f"note:{number}", [(text, "dim")], above=1))
    return Document("help", "Help", blocks)


def _list_key_facts(scope: Scope, keymap: Mapping[str, str] | None) -> Facts:
    return [
        ("  ".join(command.key_labels), [(command.help, "")])
        for command in list_commands(scope, keymap=keymap)
    ]


# explanations


def build_explanation_document(explanation: RankExplanation, query: str) -> Document:
    """Return the page that explains the rank of a passage, or why the search did not find it."""
    what: Facts = [("Passage", [(explanation.ref, "")]), ("Query", [(one_line(query), "")])]
    blocks: list[DocumentBlock] = [
        ParagraphBlock("title", [(one_line(explanation.title) or explanation.ref, "h1")]),
        FactTableBlock("what", what),
    ]
    if explanation.rank is not None:
        verdict: Spans = [(f"Rank {explanation.rank}", "strong")]
        verdict.append((f", combined score {explanation.score:.3f}", "dim"))
        blocks.append(ParagraphBlock("rank", verdict, above=1))
    for number, reason in enumerate(explanation.kept_out):
        spans: Spans = [(f"✕ {one_line(reason)}", "warning")]
        blocks.append(ParagraphBlock(f"out:{number}", spans, above=int(not number)))
    if explanation.chunk_id is not None:
        _add_search_rankings(blocks, explanation)
    _add_query_terms(blocks, explanation)
    _add_embedded_text(blocks, explanation)
    return Document("explanation", "Why", blocks)


def _add_search_rankings(blocks: list[DocumentBlock], explanation: RankExplanation) -> None:
    facts: Facts = []
    for leg, name in LEG_NAMES.items():
        result: SearchLegRank = getattr(explanation, leg)
        if result.rank is None:
            spans: Spans = [(result.note or "not found", "dim")]
        else:
            spans = [(f"rank {result.rank}", ""), (f", score {result.score:.4f}", "dim")]
        if result.gives:
            spans.append((f", contributes {result.gives:.4f}", "dim"))
        facts.append((name, spans))
    blocks.append(HeadingBlock("head:legs", [("Ranks by keywords and by meaning", "h2")], above=1))
    blocks.append(FactTableBlock("legs", facts))


def _add_query_terms(blocks: list[DocumentBlock], explanation: RankExplanation) -> None:
    facts: Facts = [
        (
            f"{match.score:.2f}",
            [(match.term, "strong"), (f" in {match.field}, weight {match.weight:g}", "dim")],
        )
        for match in explanation.matches[:TERMS_MOST]
    ]
    absent = describe_missing_words(explanation.missing)
    if facts or absent:
        more = len(explanation.matches) - TERMS_MOST
        right: Spans = [(f"{more} more", "dim")] if more > 0 else []
        blocks.append(HeadingBlock("head:words", [("Words", "h2")], right, above=1))
        blocks.append(FactTableBlock("words", facts))
    for number, line in enumerate(absent):
        text = f"{line[0].upper()}{line[1:]}"
        blocks.append(ParagraphBlock(f"absent:{number}", [(text, "")], above=int(number == 0)))


def _add_embedded_text(blocks: list[DocumentBlock], explanation: RankExplanation) -> None:
    parts = explanation.embedded
    if parts is None:
        return
    facts: Facts = [
        (f"+ {parts.title_weight:g} ×", [("title: ", "dim"), (one_line(parts.title), "")])
    ]
    facts += [
        (f"+ {parts.neighbour_weight:g} ×", [("neighbour: ", "dim"), (one_line(text)[:200], "")])
        for text in parts.neighbours
    ]
    blocks.append(HeadingBlock("head:made", [("Embedded text", "h2")], above=1))
    blocks.append(ParagraphBlock("text", [(one_line(parts.text), "")]))
    blocks.append(FactTableBlock("made", facts, above=1))
