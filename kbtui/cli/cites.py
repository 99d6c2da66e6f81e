"""Show what a turn used, and which turns used a subject or a conversation."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json, note, valid
from kbtui.cli.progress import working
from kbtui.errors import NothingFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.citations.records import Citation
    from kbtui.library import Library
    from kbtui.refs import Ref


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui cites`."""
    parser.add_argument("ref", metavar="REF", help="topic/slug, jp-c… or jp-c…:3")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    """Print both directions; 1 when there is neither, or no such thing."""
    from kbtui.citations.sharing import both_ways
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    ref = library.resolve(valid(args.ref))
    if ref.kind == "topic":
        raise UsageError("is a topic, or nothing", where=args.ref, hint="write topic/slug or jp-c…")
    with working("bringing the index up to date"):
        library.current()
    used_by = library.turns_citing(ref)
    uses = _uses(library, ref, gone=bool(used_by))
    library.close()
    if args.json:
        emit_json(both_ways(str(ref), uses, used_by))
    else:
        lines = [
            f"[{number}] {cite.target}  {cite.title}  ({cite.how}, {cite.source})"
            f"{'  gone' if cite.gone else ''}\n"
            for number, cite in enumerate(uses, 1)
        ]
        lines += [f"used by {cite.source}  ({cite.how}, {cite.tool})\n" for cite in used_by]
        emit("".join(lines))
    if not uses and not used_by:
        note(f"nothing uses {ref}, and it uses nothing")
        return 1
    return 0


def _uses(library: Library, ref: Ref, *, gone: bool) -> list[Citation]:
    """What it uses; raises `NothingFound` for what does not exist, unless turns used it once."""
    try:
        if ref.kind == "subject":
            library.subject(ref)
        elif ref.kind == "conversation":
            conversation = library.conversation(ref.conversation or 0)
            if ref.turn is None:
                return library.cited(conversation)
            if conversation.turn(ref.turn) is None:
                turns = len(conversation.turns)
                has = "1 turn" if turns == 1 else f"{turns} turns"
                raise NothingFound(f"the conversation has {has}", where=str(ref))
            return library.cited_by_turn(conversation, ref.turn)
        elif library.reader().chunk(ref.chunk or "") is None:
            raise NothingFound("there is no such passage", where=str(ref))
    except NothingFound as error:
        if not gone:
            raise
        note(f"it is gone: {error.message}")
    return []
