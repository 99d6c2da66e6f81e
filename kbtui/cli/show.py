"""Print what a reference names: a topic, a subject, some lines, a turn, a tool call, a passage."""

from __future__ import annotations

import sys

from kbtui.cli.output import emit
from kbtui.errors import NothingFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.library import Library
    from kbtui.refs import Ref


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui show`."""
    parser.add_argument(
        "ref", metavar="REF", help="topic/slug, topic/slug:12-18, jp-c…:3, chunk:ID"
    )


def run(args: Namespace) -> int:
    """Print it; 1 when it does not exist."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    text = shown(library, library.resolve(args.ref))
    if sys.stdout.isatty():
        from kbtui.cli.pager import page
        from kbtui.text import safe

        page(safe(text).rstrip("\n") + "\n")
    else:
        emit(text)
    return 0


def shown(library: Library, ref: Ref) -> str:
    """The text that a reference names; raises `NothingFound`."""
    if ref.kind == "topic":
        learned = library.knowledge().learn(ref.topic or "")
        if learned.is_error:
            raise NothingFound(learned.text)
        return learned.text
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
    from kbtui.index.chunking import call_text

    conversation = library.conversation(ref.conversation or 0)
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
            text = call_text(event) if event.kind == "tool_call_request" else event.text
            parts.append(f"### {who}\n\n{text}")
    if ref.call is not None and not parts:
        raise NothingFound(f"turn {ref.turn} has no tool call {ref.call}", where=str(ref))
    return "\n\n".join(parts)
