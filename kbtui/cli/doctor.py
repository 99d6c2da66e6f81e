"""Find and explain what is wrong with terminal, settings, packages, workspace, topics, sources, conversations, index, engine and model."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from kbtui.library.diagnostics import Finding


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui doctor`."""
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    """Look at everything; 1 when something is wrong. Starts no engine."""
    from kbtui.cli.progress import ProgressLine

    findings = []
    with ProgressLine() as progress:
        for finding in _findings(args.workspace):
            findings.append(finding)
            progress.show(f"looking at {finding.area}")
    if args.json:
        emit_json([{"area": f.area, "state": f.state, "message": f.message} for f in findings])
    else:
        emit("".join(f"{f.state:<6} {f.area:<14} {f.message}\n" for f in findings))
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


def _findings(path: str | None) -> Iterator[Finding]:
    """Also where there is no workspace, or the settings have a mistake: that is what to find."""
    from kbtui.errors import ConfigError, WorkspaceError
    from kbtui.library import open_workspace
    from kbtui.library.diagnostics import Finding, examine
    from kbtui.workspace import Settings

    try:
        yield from examine(open_workspace(path))
    except ConfigError:
        yield from examine(open_workspace(path, Settings()))
    except WorkspaceError as error:
        yield from examine(None)
        yield Finding("workspace", "wrong", str(error))
