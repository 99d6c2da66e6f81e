"""Browse the workspace in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kbtui.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """`kbtui tui` has no arguments of its own."""


def run(args: Namespace) -> int:
    """Open the TUI on the nearest workspace, or the one that `-w` names."""
    return browse(args.workspace)


def browse(workspace: str | None, reference: str | None = None) -> int:
    """Open the TUI, at a reference if there is one; gives the exit code.

    Raises `WorkspaceError` without a workspace, and `UsageError` without a
    terminal or for something that is not a reference.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the TUI needs a terminal, and this is a pipe or a file",
            hint="`kbtui search WORDS` prints hits; `kbtui --help` lists the commands",
        )
    from kbtui.library import open_workspace

    library = open_workspace(workspace)
    try:
        ref = library.resolve(reference) if reference else None
        from kbtui.tui.app import run_tui

        return run_tui(library, ref)
    finally:
        library.close()
