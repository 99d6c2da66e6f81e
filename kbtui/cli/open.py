"""Open in the TUI what a reference names."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui open`."""
    parser.add_argument(
        "ref", metavar="REF", help="topic/slug, topic/slug:12-18, jp-c…:3, chunk:ID"
    )


def run(args: Namespace) -> int:
    """Open the TUI there."""
    from kbtui.cli.tui import browse

    return browse(args.workspace, args.ref)
