"""Print what a reference names: a topic, a subject, some lines, a turn, a tool call, a passage."""

from __future__ import annotations

import sys

from kbtui.cli.output import emit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui show`."""
    parser.add_argument(
        "ref", metavar="REF", help="topic/slug, topic/slug:12-18, jp-c…:3, chunk:ID"
    )


def run(args: Namespace) -> int:
    """Print it; 1 when it does not exist."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    text = library.read(args.ref)
    if sys.stdout.isatty():
        from kbtui.cli.pager import page
        from kbtui.text import safe

        page(safe(text).rstrip("\n") + "\n")
    else:
        emit(text)
    return 0
