"""Show or stop the engine, the process that keeps the index up to date."""

from __future__ import annotations

from kbtui.cli.output import emit, emit_json, note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui engine`."""
    parser.add_argument("action", choices=["status", "stop"], nargs="?", default="status")
    parser.add_argument("--json", action="store_true", help="the state as JSON")


def run(args: Namespace) -> int:
    """Ask the running engine; never starts one. 1 when none runs, 3 when it does not answer."""
    from kbtui.engine import NoEngine
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    try:
        engine = library.engine(start=False)
    except NoEngine:
        if args.json:
            emit_json({"running": False})
        else:
            note("no engine is running for this workspace")
        return 1
    if args.action == "stop":
        pid = engine.pid
        engine.end()
        print(f"stopped engine {pid}")
        return 0
    state = engine.request("status")
    if args.json:
        emit_json({"running": True, **state})
        return 0
    lines = [
        f"engine {state['pid']}, version {state['version']}, for {state['root']}",
        f"keywords: {'ready' if state['lexical'] else 'indexing'}",
        f"vectors: {_vectors(state) if state['semantic'] else state['reason']}",
    ]
    if state["error"]:
        lines.append(f"the last refresh failed: {state['error']}")
    emit("\n".join(lines) + "\n")
    return 0


def _vectors(state: dict[str, Any]) -> str:
    """How far the vectors are, and when they will be done."""
    if not state["left"]:
        return "ready"
    text = f"{state['left']:,} passages left"
    progress = state["progress"] or {}
    if progress.get("phase") == "vectors":
        text += f" of {progress['total']:,}"
        if progress.get("waits"):
            return f"{text}; waiting, {progress['waits']}"
        if progress.get("seconds_left"):
            text += f", about {progress['seconds_left']:.0f} s"
    return text
