"""Find and explain what is wrong with workspace, knowledge, conversations, index, model and engine."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui doctor`."""
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    """Look at everything; 1 when something is wrong. Starts no engine."""
    from kbtui.library import open_workspace
    from kbtui.library.health import examine

    findings = list(examine(open_workspace(args.workspace)))
    if args.json:
        emit_json([{"area": f.area, "state": f.state, "message": f.message} for f in findings])
    else:
        emit("".join(f"{f.state:<6} {f.area:<14} {f.message}\n" for f in findings))
    return 1 if any(finding.state == "wrong" for finding in findings) else 0
