"""What a reference names, as text: a topic's listing, a subject or lines of it, turns, a passage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.errors import NothingFound

if TYPE_CHECKING:
    from kbtui.library.library import Library
    from kbtui.refs import Ref


def text_of(library: Library, ref: Ref) -> str:
    """The text that a reference names; raises `NothingFound`."""
    if ref.kind == "topic":
        return library.learn(ref.topic or "")
    if ref.kind == "subject":
        return _subject(library, ref)
    if ref.kind == "chunk":
        found = library.reader().chunk(ref.chunk or "")
        if found is None:
            raise NothingFound("there is no such passage any more", where=str(ref))
        return found[0].text
    return _conversation(library, ref)


def _subject(library: Library, ref: Ref) -> str:
    subject = library.subject(ref)
    text = library.subject_text(subject)
    if ref.lines is None:
        return text
    lines = text.split("\n")
    first, last = ref.lines
    if first > len(lines):
        raise NothingFound(f"the subject has {len(lines)} lines", where=str(ref))
    return "\n".join(lines[first - 1 : last])


def _conversation(library: Library, ref: Ref) -> str:
    from kbtui.index.chunking import format_event_text

    conversation = library.conversation(ref.conversation or "")
    turns = conversation.turns
    if ref.turn is not None:
        turn = conversation.turn(ref.turn)
        if turn is None:
            raise NothingFound(f"the conversation has {len(turns)} turns", where=str(ref))
        turns = [turn]
    parts = [] if ref.turn else [f"# {conversation.info.name}"]
    for turn in turns:
        if ref.call is None:
            parts.append(f"## Turn {turn.number}")
        for event in turn.events:
            if ref.call is not None and event.call != ref.call:
                continue
            who = event.author or event.kind.replace("_", " ")
            if event.kind == "unknown":
                who = f"unknown event: {event.name}"
            text = format_event_text(event)
            parts.append(f"### {who}\n\n{text}")
    if ref.call is not None and not parts:
        raise NothingFound(f"turn {ref.turn} has no tool call {ref.call}", where=str(ref))
    return "\n\n".join(parts)
