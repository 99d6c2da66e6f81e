"""Opening: from a place to the document that shows it, and to the line to begin at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import KbtuiError, NothingFound
from kbtui.tui.framework.gc_tuning import undisturbed
from kbtui.tui.library.snapshot import TopicListing
from kbtui.tui.main.static_pages import home_document, problem_document, topic_document
from kbtui.tui.reader.blocks import TextBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
            return _warm(_conversation(library, place.ref.conversation or "", clock, tell, held))
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
    conversation: str,
    clock: Clock,
    tell: Callable[[Document], None] | None,
    held: Document | None,
) -> Document:
    from kbtui.tui.reader.conversation_document import conversation_document

    info = library.conversation_info(conversation)
    if info.size < BIG:
        return conversation_document(library.conversation(conversation), clock())
    if held is not None and not held.partial and held.record is not None:
        # An index that is being made names it again and again.
        shown = getattr(held.record, "info", None)
        if shown is not None and (shown.id, shown.signature) == (info.id, info.signature):
            return held
    with undisturbed():
        beginning = library.conversation_beginning(info) if tell else None
        if tell and beginning is not None:
            tell(_warm(conversation_document(beginning, clock(), partial=True)))
        return conversation_document(library.conversation(conversation), clock())


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
