"""The commands `show`, `open` and `cites`, which take a reference."""

from __future__ import annotations

import sys

from kbtui.cli.output import (
    WaitingLine,
    decode_command_argument,
    print_result,
    print_text_or_json,
    print_through_pager,
    print_to_stderr,
)
from kbtui.text import one_line, sanitize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.citations.models import Citation


def declare_show_command_arguments(parser: ArgumentParser) -> None:
    text = "topic/slug, topic/slug:12-18, jp-c…:3, claude-…:3 or chunk:ID"
    parser.add_argument("ref", metavar="REF", help=text)


declare_open_command_arguments = declare_show_command_arguments


def run_show_command(args: Namespace) -> int:
    """Print a topic, a subject or lines of it, a conversation, a turn, a tool call or a passage."""
    from kbtui.library import open_workspace

    text = open_workspace(args.workspace).read(args.ref)
    if sys.stdout.isatty():
        print_through_pager(sanitize(text).rstrip("\n") + "\n")
    else:
        print_result(text)
    return 0


def run_open_command(args: Namespace) -> int:
    """Open a reference in the TUI."""
    from kbtui.cli.tui_commands import open_tui

    return open_tui(args.workspace, args.ref)


def declare_cites_command_arguments(parser: ArgumentParser) -> None:
    text = "topic/slug, jp-c…, claude-…:3, chunk:ID or a file's path"
    parser.add_argument("ref", metavar="REF", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run_cites_command(args: Namespace) -> int:
    """Show what a turn used, and which turns used a subject, a conversation, a passage or a file."""
    from kbtui.citations.citation_export import citations_to_dict, format_citing_turn
    from kbtui.library import open_workspace

    with open_workspace(args.workspace) as library, WaitingLine("bringing the index up to date"):
        found = library.cites(decode_command_argument(args.ref))
        cites = [*found.uses, *found.used_by]
        named = [ref for cite in cites for ref in (cite.target, cite.source)]
        short_refs = library.open_index_reader().shorten_references(named)
    if library.index_notices_text:
        print_to_stderr(library.index_notices_text)
    if found.gone:
        print_to_stderr(f"{found.ref} no longer exists: {found.gone}")
    lines = [
        _format_citation(number, cite, short_refs) for number, cite in enumerate(found.uses, 1)
    ]
    lines += [f"used by {format_citing_turn(cite, short_refs)}\n" for cite in found.used_by]
    facts = citations_to_dict(found.ref, found.uses, found.used_by)
    print_text_or_json("".join(lines), facts, args.json)
    if not found.uses and not found.used_by:
        print_to_stderr(f"no citations to or from {found.ref}")
        return 1
    return 0


def _format_citation(number: int, cite: Citation, short_refs: dict[str, str]) -> str:
    gone = "  gone" if cite.gone else ""
    title = "" if cite.title == cite.target else f"  {one_line(cite.title)}"
    target, source = (short_refs.get(ref, ref) for ref in (cite.target, cite.source))
    rewound = ", rewound" if cite.rewound else ""
    return f"[{number}] {one_line(target)}{title}  ({cite.how}, {source}{rewound}){gone}\n"
