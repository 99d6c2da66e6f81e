"""Browse the workspace in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kbtui.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from kbtui.library import Library
    from kbtui.refs import Ref


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

    `first` is a reference to begin at where nothing was left to reopen. Raises `WorkspaceError` without a workspace, and `UsageError` without a
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
        ref = _resolved(library, reference) if reference else None
        begin = _resolved(library, first) if first else None
        from kbtui.tui.app import Start, run_tui

        return run_tui(library, ref, Start(first=begin, fresh=fresh, plain=plain))
    finally:
        library.close()


def _resolved(library: Library, reference: str) -> Ref:
    """What a reference names; a chunk is the lines or the turn that it was made from."""
    from kbtui.errors import NothingFound
    from kbtui.refs import conversation_ref, subject_ref

    ref = library.resolve(reference)
    if ref.kind != "chunk":
        return ref
    reader = library.reader()
    found = reader.chunk(ref.chunk or "")
    entry = reader.entries({found[1]}).get(found[1]) if found else None
    if found is None or entry is None:
        raise NothingFound("there is no such passage any more", where=reference)
    if entry.conversation is not None:
        return conversation_ref(entry.conversation, found[0].turn)
    return subject_ref(entry.topic or "", entry.slug or "", found[0].lines)
