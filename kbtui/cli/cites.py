"""Show what a turn used, and which turns used a subject or a conversation."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json, note, valid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.citations.records import Citation


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui cites`."""
    parser.add_argument("ref", metavar="REF", help="topic/slug, jp-c… or jp-c…:3")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    """Print both directions; 1 when there is neither."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    ref = library.resolve(valid(args.ref))
    uses: list[Citation] = []
    if ref.kind == "conversation":
        conversation = library.conversation(ref.conversation or 0)
        uses = (
            library.cited_by_turn(conversation, ref.turn)
            if ref.turn
            else library.cited(conversation)
        )
    library.current()
    used_by = library.turns_citing(ref)
    library.close()
    if args.json:
        emit_json(
            {
                "ref": str(ref),
                "uses": [_as_json(cite) for cite in uses],
                "used_by": [_as_json(cite) for cite in used_by],
            }
        )
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


def _as_json(cite: Citation) -> dict[str, object]:
    return {
        "source": cite.source,
        "call": cite.call,
        "how": cite.how,
        "tool": cite.tool,
        "kind": cite.kind,
        "target": cite.target,
        "title": cite.title,
        "chunk_id": cite.chunk,
        "score": cite.score,
        "timestamp": cite.timestamp.isoformat() if cite.timestamp else None,
        "gone": cite.gone,
    }
