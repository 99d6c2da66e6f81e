"""Browse the workspace in the terminal."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from kbtui.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui tui`."""
    parser.add_argument("--fresh", action="store_true", help="do not reopen what was left")
    parser.add_argument(
        "--plain", action="store_true", help="for screen readers: one pane, no frames"
    )


def run(args: Namespace) -> int:
    """Open the TUI on the nearest workspace, or the one that `-w` names."""
    return browse(args.workspace, fresh=args.fresh, plain=args.plain)


def browse(
    workspace: str | None,
    reference: str | None = None,
    *,
    first: str | None = None,
    fresh: bool = False,
    plain: bool = False,
) -> int:
    """Open the TUI, at a reference if there is one; gives the exit code.

    `first` is a reference to begin at where nothing was left to reopen. Raises `WorkspaceError`
    without a workspace, `UsageError` without a terminal or for something that is not a reference,
    `NothingFound` for a reference to nothing.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the TUI needs a terminal, and this is a pipe or a file",
            hint="`kbtui search WORDS` prints hits; `kbtui --help` lists the commands",
        )
    # Looking for garbage among modules takes a seventh of the time to the first screen, which
    # lets the collector begin.
    gc.disable()
    if os.environ.get("TERM", "").lower() in {"dumb", "unknown"}:
        raise UsageError(
            f"the TUI needs a terminal that can place its cursor, and TERM is {os.environ['TERM']!r}",
            hint="`kbtui search WORDS` prints hits; `kbtui --help` lists the commands",
        )
    from kbtui.library import open_workspace

    library = open_workspace(workspace)
    try:
        ref = library.located(reference) if reference else None
        begin = library.located(first) if first else None
        from kbtui.tui.app import Start, run_tui

        return run_tui(library, ref, Start(first=begin, fresh=fresh, plain=plain))
    finally:
        gc.enable()
        library.close()
