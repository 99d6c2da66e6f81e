"""Opening: from a place to the document that shows it, and to the line to begin at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, NothingFound
from kbtui.tui.framework.gc_tuning import undisturbed
from kbtui.tui.library.snapshot import TopicListing
from kbtui.tui.reader.blocks import TextBlock
from kbtui.tui.reader.document import finder
from kbtui.tui.reader.static_pages import home_document, problem_document, topic_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kbtui.library import Library
    from kbtui.refs import Ref
    from kbtui.tui.clock import Clock
    from kbtui.tui.library.snapshot import LibrarySnapshot
    from kbtui.tui.navigation import NavigationTarget
    from kbtui.tui.reader.document import Document

    Home = tuple[LibrarySnapshot | None, Sequence[str], Mapping[str, str]]
    """What the home page is about: what there is, what is wrong with settings, own keys."""


BIG = 2 << 20
"""Bytes of a conversation whose beginning is shown before the rest is read."""

WARMED = 20
"""Blocks that are laid out once in the thread."""


def make_document(
    library: Library,
    place: NavigationTarget,
    clock: Clock,
    home: Home = (None, (), {}),
    tell: Callable[[Document], None] | None = None,
    held: Document | None = None,
) -> Document:
    """Read what a place names and make its document; called in a thread, never raises.

    What cannot be read becomes a page that says why. `tell` is given the beginning of
    something big before the rest is read. `held` is what is shown: where it is big and
    its files are as they were, it is given back.
    """
    try:
        if place.ref is not None and place.ref.kind == "conversation":
            return _warm(_conversation(library, place.ref.conversation or 0, clock, tell, held))
        return _warm(_make(library, place, clock, home))
    except KbtuiError as error:
        return problem_document(place.key, place.key, error.message, error.where, error.hint)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return problem_document(place.key, place.key, f"{type(error).__name__}: {error}")


def _warm(document: Document) -> Document:
    """Lay out some of it here, so that no module has to be loaded when it is drawn."""
    for block in document.blocks[:WARMED]:
        if isinstance(block, TextBlock):
            block.lines(80)
    return document


def _make(
    library: Library,
    place: NavigationTarget,
    clock: Clock,
    home: Home,
) -> Document:
    if place.key == "home":
        contents, notices, keymap = home
        return home_document(library.workspace.name, contents, clock(), notices, keymap)
    if place.key == "prompt":
        return _prompt(library)
    ref = place.ref
    if ref is None:
        raise NothingFound(f"{place.key!r} cannot be opened")
    if ref.kind == "topic":
        return _topic(library, ref.topic or "")
    return _subject(library, ref, place.view)


def _conversation(
    library: Library,
    number: int,
    clock: Clock,
    tell: Callable[[Document], None] | None,
    held: Document | None,
) -> Document:
    from kbtui.tui.reader.conversation_document import conversation_document

    info = library.conversation_info(number)
    if info.size < BIG:
        return conversation_document(library.conversation(number), clock())
    if held is not None and not held.partial and held.record is not None:
        # An index that is being made names it again and again.
        shown = getattr(held.record, "info", None)
        if shown is not None and (shown.id, shown.signature) == (info.id, info.signature):
            return held
    with undisturbed():
        beginning = library.conversation_beginning(info) if tell else None
        if tell and beginning is not None:
            tell(_warm(conversation_document(beginning, clock(), partial=True)))
        return conversation_document(library.conversation(number), clock())


def _prompt(library: Library) -> Document:
    from kbtui.tui.reader.subject_document import text_document

    text = library.knowledge().prompt()
    if text is None:
        reason = "There is no <knowledge> section: no topic has anything to list or pre-load."
        return problem_document("prompt", "<knowledge>", reason)
    return text_document("prompt", "The <knowledge> prompt", text, view="prompt")


def _topic(library: Library, name: str) -> Document:
    knowledge = library.knowledge()
    topic = knowledge.topics.get(name)
    if topic is None:
        raise NothingFound(f"there is no topic {name!r}")
    subjects = knowledge.subjects(name)
    problems = [problem for problem in knowledge.problems if problem.topic == name]
    return topic_document(TopicListing(topic, subjects, problems), knowledge.learn(name).text)


def _subject(library: Library, ref: Ref, view: str) -> Document:
    from kbtui.tui.reader.subject_document import (
        VIEWS,
        subject_badges,
        subject_document,
        text_document,
    )

    knowledge = library.knowledge()
    subject = knowledge.find(ref.topic or "", ref.slug or "")
    name = f"{ref.topic}/{ref.slug}"
    if subject is None:
        raise NothingFound(f"there is no subject {name!r}", hint="it may have been renamed")
    if view != "learn":
        return subject_document(subject, library.subject_text(subject), view)
    text = knowledge.learn(subject.topic, [subject.slug]).text
    document = text_document(name, name, text, ref=name)
    document.views, document.record = VIEWS, subject
    document.badges = subject_badges(subject)
    return document


def beginning(document: Document, place: NavigationTarget) -> tuple[int, int] | None:
    """Where to begin reading: the block, and which of the marked words in it; None for the top.

    The second is -1 when nothing in the block is marked.
    """
    ref = place.ref
    if ref is None or not document.blocks:
        return None
    if ref.turn is not None:
        first = document.block_of_turn(ref.turn, ref.call)
        if first is None:
            return None
        turn = _turn_blocks(document, first, ref.turn)
        span: Iterator[int] = (
            number for number in turn if ref.call in (None, document.blocks[number].call)
        )
    elif ref.lines is not None:
        first = document.block_of_line(ref.lines[0])
        span = iter(range(first, document.block_of_line(ref.lines[1]) + 1))
    elif place.text and not place.words:
        return _passage(document, place.text), -1
    else:
        first, span = 0, iter(range(len(document.blocks))) if place.words else iter(())
    pattern = finder(list(place.words))
    if pattern is None:
        return first, -1
    return _densest(document, list(span), pattern, place.text) or (first, -1)


def _turn_blocks(document: Document, first: int, turn: int) -> Iterator[int]:
    number = first
    while number < len(document.blocks) and document.blocks[number].turn == turn:
        yield number
        number += 1


def _densest(
    document: Document, span: list[int], pattern: re.Pattern[str], passage: str
) -> tuple[int, int] | None:
    """The block that shares most with the passage that was found."""
    probe = _probe(passage)
    best: tuple[int, int, int] | None = None
    for number in span:
        block = document.blocks[number]
        text = block.search_text()
        found = {match[0].lower() for match in pattern.finditer(text)}
        if not found:
            continue
        near = probe.search(text) if probe and isinstance(block, TextBlock) else None
        score = len(found) + (1000 if near else 0)
        if best is None or score > best[0]:
            count = len(pattern.findall(text, 0, near.start())) if near else 0
            best = (score, number, count)
    return (best[1], best[2]) if best else None


def _passage(document: Document, passage: str) -> int:
    """The block in which a passage begins, by its first line that stands anywhere; else the first."""
    for line in passage.split("\n"):
        probe = _probe(line)
        if probe is None:
            continue
        for number, block in enumerate(document.blocks):
            if isinstance(block, TextBlock) and probe.search(block.search_text()):
                return number
    return 0


def _probe(passage: str) -> re.Pattern[str] | None:
    """A pattern for the passage's first words, whatever the white space between them."""
    words = [word for word in passage.split() if any(map(str.isalnum, word))][:8]
    return re.compile(r"\W+".join(map(re.escape, words))) if len(words) > 2 else None


def within(document: Document, place: NavigationTarget) -> bool:
    """Whether a document of which only the beginning was read has the place to begin at."""
    if place.mark is not None:
        return document.index_of(place.mark.key) is not None
    if place.ref is not None and place.ref.turn is not None:
        # The last turn may not be whole.
        return place.ref.turn < document.turns_total
    return not place.words
