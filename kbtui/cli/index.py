"""Bring the index up to date with the files, and say how far it is.

Ends when the vectors are done too, unless --no-vectors.
"""

from __future__ import annotations

import sys
import time

from kbtui.cli.output import emit, emit_json, note
from kbtui.cli.progress import ProgressLine, left_text

PHASES = {"keywords": "indexing", "vectors": "embedding"}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from kbtui.engine.client import EngineClient


def configure(parser: ArgumentParser) -> None:
    """The arguments of `kbtui index` (decisions D)."""
    add = parser.add_argument
    add("--rebuild", action="store_true", help="make a new index beside the old one, then use it")
    add("--watch", action="store_true", help="go on, and say what changes, until interrupted")
    add("--no-vectors", action="store_true", help="do not wait for the vectors")
    add("--json", action="store_true", help="counts and times as JSON")


def run(args: Namespace) -> int:
    """Have the engine refresh, and wait."""
    from kbtui.library import open_workspace

    library = open_workspace(args.workspace)
    began = time.monotonic()
    engine = library.engine()
    request: dict[str, Any] = {"rebuild": True} if args.rebuild else {"retry": True, "check": True}
    progress = ProgressLine()
    state = engine.request("refresh", wait=0.5, **request)
    while not state["done"]:
        _show(progress, engine)
        # Waits for that same refresh: one more each time would never be done.
        state = engine.request("refreshed", wait=0.5)
    keywords = time.monotonic() - began
    if state.get("mended"):
        note(f"{state['mended']}; it was built again")
    state = engine.request("status")
    if not args.no_vectors:
        while True:
            state = engine.request("settle", wait=0.5)
            if state["done"]:
                break
            _show(progress, engine)
    progress.clear()
    facts = {
        **library.reader().counts(),
        "seconds_keywords": round(keywords, 3),
        "seconds": round(time.monotonic() - began, 3),
        "semantic": state["semantic"],
        "vectors_left": state["left"],
        "reason": state["reason"],
    }
    if args.json:
        emit_json(facts)
    else:
        print(
            f"{facts['subjects']} subjects, {facts['conversations']} conversations, "
            f"{facts['chunks']} passages, {facts['citations']} citations in {facts['seconds']:.1f} s"
        )
        if state["reason"] and not args.no_vectors:
            note(f"keywords only: {state['reason']}")
    if state.get("error"):
        note(f"the last refresh failed: {state['error']}")
        return 3
    if args.watch:
        _watch(engine)
    engine.close()
    library.close()
    return 0


def _watch(engine: EngineClient) -> None:
    note("watching; Ctrl+C ends")
    for event in engine.events():
        if event.get("event") == "changed":
            names = [*event["subjects"], *(f"jp-c{number}" for number in event["conversations"])]
            emit("changed: " + (", ".join(names[:10]) or "configuration") + "\n")
            sys.stdout.flush()


def _show(progress: ProgressLine, engine: EngineClient) -> None:
    """What the engine does, with its own estimate of what is left."""
    if not sys.stderr.isatty():
        return
    found = engine.request("status").get("progress")
    if not found:
        progress.show("comparing the files with the index")
        return
    text = f"{PHASES.get(found['phase'], found['phase'])} {found['done']:,} of {found['total']:,}"
    if found.get("seconds_left"):
        text += f", {left_text(found['seconds_left'])}"
    progress.show(text + (f"; waiting, {found['waits']}" if found.get("waits") else ""))
