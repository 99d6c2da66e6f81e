"""Serve the tools over MCP on standard input and output, until the input ends.

Nothing but the protocol goes to stdout. A client's configuration says
{"command": "kbtui", "args": ["mcp", "-w", "/path/to/workspace"]}.
"""

from __future__ import annotations

import sys

from kbtui.cli.output import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui mcp` (decisions B5, B6)."""
    parser.add_argument(
        "--current", metavar="ID", help="the conversation that asks: never searched unless asked to"
    )


def run(args: Namespace) -> int:
    """Serve; workspace and settings are looked at before the first message."""
    from kbtui.conversations import parse_conversation_id
    from kbtui.library import open_workspace

    current = parse_conversation_id(args.current) if args.current else None
    library = open_workspace(args.workspace)
    if args.current:
        # Another workspace's conversation is not the one that asks here.
        parse_conversation_id(args.current, library.workspace.id)
    if sys.stdin.isatty():
        note("serving MCP; this is for a client to start, Ctrl+D ends it")
    from kbtui.assistant.mcp_server import serve

    return serve(library, current)
