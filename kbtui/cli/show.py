"""The commands `show` and `open`: print a reference, or open it in the TUI."""

from __future__ import annotations

import sys

from kbtui.cli.output import emit, page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure_show(parser: ArgumentParser) -> None:
    """The arguments of `kbtui show`."""
    parser.add_argument(
        "ref", metavar="REF", help="topic/slug, topic/slug:12-18, jp-c…:3, chunk:ID"
    )


def run_show(args: Namespace) -> int:
    """Print what a reference names: a topic, a subject, some lines, a turn, a tool call, a passage."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    text = library.read(args.ref)
    if sys.stdout.isatty():
        from kbtui.text import safe

        page(safe(text).rstrip("\n") + "\n")
    else:
        emit(text)
    return 0


def configure_open(parser: ArgumentParser) -> None:
    """The arguments of `kbtui open`."""
    parser.add_argument(
        "ref", metavar="REF", help="topic/slug, topic/slug:12-18, jp-c…:3, chunk:ID"
    )


def run_open(args: Namespace) -> int:
    """Open in the TUI what a reference names."""
    from kbtui.cli.tui import browse

    return browse(args.workspace, args.ref)
